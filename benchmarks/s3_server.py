"""moto's S3 server in processes of its own, with the files of a folder as objects, that answers every request after a pause.

It is a program in Python, and takes several times as long for an answer as `slow_server.py`: `raw` downloads beside a measurement
show what it can give at all. Like that one it says what it did at ``/-/stats``, and can be several processes: they share the
memory of the objects, which are there before they part.
"""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slow_server import BUCKET, Crew, Server, serving

_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request",
    "Content-Type": "application/octet-stream",
}


class S3Server(Server):
    """A WSGI application as a server that keeps connections, as S3 does; werkzeug's own closes each after its answer."""

    def __init__(self, crew: Crew, app: Any, latency_s: float) -> None:
        super().__init__(crew, Path(), latency_s)
        self._app = app

    def _send(self, connection: socket.socket, method: str, target: str, head: bytes) -> None:
        from werkzeug.datastructures import Headers
        from werkzeug.test import EnvironBuilder, run_wsgi_app

        wanted = Headers([tuple(line.split(": ", 1)) for line in head.decode("latin-1").split("\r\n")[1:]])
        environ = EnvironBuilder(target, method=method, headers=wanted).get_environ()
        pieces, status, headers = run_wsgi_app(self._app, environ)
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), 0 if method == "HEAD" else socket.MSG_MORE)
        for piece in pieces:
            connection.sendall(piece)


def look_for_s3_at(address: str) -> None:
    """Have obstore, in this process, take the server at an address for S3."""
    os.environ |= {
        "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }  # fmt: skip


@contextmanager
def serving_s3(folder: Path, latency_s: float, processes: int = 1) -> Iterator[str]:
    """A server with the files of a folder; gives its address."""
    with serving(folder, latency_s, processes, __file__) as address:
        yield address


def main() -> None:
    # In files, where moto keeps objects of 5 MB and more, processes would move each other's place to read from.
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(1 << 40)
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import create_backend_app
    from werkzeug.test import Client

    # S3 alone: to find the service, moto's dispatcher lists its own modules for every request, half of the request's time.
    app, crew = create_backend_app("s3"), Crew()

    def put(path: str, data: bytes = b"") -> None:
        answer = Client(app).put(path, base_url="http://127.0.0.1", data=data, headers=_SIGNED)
        if answer.status_code != 200:
            raise RuntimeError(f"moto does not take {path}: {answer.status}")

    put(f"/{BUCKET}")
    with ThreadPoolExecutor(4) as pool:  # whose threads end before processes part
        list(pool.map(lambda file: put(f"/{BUCKET}/{file.name}", file.read_bytes()), Path(sys.argv[1]).iterdir()))
    # moto copies an object for each answer, unless its buffer was made of the very bytes that are asked for.
    bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET]
    for key in bucket.keys.values():
        key._value_buffer = io.BytesIO(key.value)
    crew.fork(int(sys.argv[3]))
    S3Server(crew, app, float(sys.argv[2])).run()


if __name__ == "__main__":
    main()
