"""moto's S3 server on the loopback, with one bucket."""

from __future__ import annotations

import urllib.parse
import urllib.request


class S3Server:
    """``with S3Server() as s3: s3.put("a.tar", data)``, then read ``s3://bucket/a.tar`` with `environment` set."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)

    def __enter__(self) -> S3Server:
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.origin = f"http://{host}:{port}"
        self._put("", b"")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which obstore finds it."""
        return {
            "AWS_ENDPOINT_URL": self.origin, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        }  # fmt: skip

    def put(self, key: str, data: bytes) -> str:
        """Have an object; returns its URL."""
        self._put("/" + urllib.parse.quote(key), data)
        return f"s3://bucket/{key}"

    def _put(self, path: str, data: bytes) -> None:
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request",
            "Content-Type": "application/octet-stream",
        }
        request = urllib.request.Request(f"{self.origin}/bucket{path}", data=data, method="PUT", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
