"""moto's S3 server in a process of its own, with the files of a folder as objects, that answers every request after a pause.

It is a program in Python, and takes several times as long for an answer as `slow_server.py`: `raw` downloads beside a measurement
show what it can give at all. Like that one it says what it did at ``/-/stats``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slow_server import BUCKET, STATS

_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request",
    "Content-Type": "application/octet-stream",
}


class LateApp:
    """A WSGI application whose answers to GET and HEAD come late."""

    def __init__(self, app: Any, latency_s: float) -> None:
        self._app, self._latency_s, self._requests = app, latency_s, 0
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == STATS:
            used = resource.getrusage(resource.RUSAGE_SELF)
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps({"requests": self._requests, "cpu_s": used.ru_utime + used.ru_stime}).encode()]
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            time.sleep(self._latency_s)
            with self._lock:
                self._requests += 1
        return self._app(environ, start_response)


def look_for_s3_at(address: str) -> None:
    """Have obstore, in this process, take the server at an address for S3."""
    os.environ |= {
        "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }  # fmt: skip


@contextmanager
def serving_s3(folder: Path, latency_s: float) -> Iterator[str]:
    """A server with the files of a folder; gives its address."""
    command = [sys.executable, str(Path(__file__).resolve()), str(folder), str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections are kept, as S3 keeps them
    app = LateApp(DomainDispatcherApplication(create_backend_app), float(sys.argv[2]))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}/{BUCKET}"
    for path, data in [("", b""), *((f"/{file.name}", file.read_bytes()) for file in sorted(Path(sys.argv[1]).iterdir()))]:
        request = urllib.request.Request(origin + path, data=data, method="PUT", headers=_SIGNED)
        urllib.request.urlopen(request, timeout=60).close()
    print(server.server_port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
