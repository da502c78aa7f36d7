"""moto's S3 server in processes of its own, with the files of a folder as objects, that answers every request after a pause.

It is a program in Python, and takes several times as long for an answer as `slow_server.py`: `raw` downloads beside a measurement
show what it can give at all. Like that one it says what it did at ``/-/stats``, and can be several processes: they share the
memory of the objects, which are there before they part.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slow_server import BUCKET, STATS, Crew, serving

_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request",
    "Content-Type": "application/octet-stream",
}


class LateApp:
    """A WSGI application whose answers to GET and HEAD come late."""

    def __init__(self, crew: Crew, app: Any, latency_s: float) -> None:
        self._crew, self._app, self._latency_s = crew, app, latency_s

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == STATS:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._crew.stats()).encode()]
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            time.sleep(self._latency_s)
            self._crew.count()
        return self._app(environ, start_response)


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
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server
    from werkzeug.test import Client

    app, crew = DomainDispatcherApplication(create_backend_app), Crew()

    def put(path: str, data: bytes = b"") -> None:
        answer = Client(app).put(path, base_url="http://127.0.0.1", data=data, headers=_SIGNED)
        if answer.status_code != 200:
            raise RuntimeError(f"moto does not take {path}: {answer.status}")

    put(f"/{BUCKET}")
    with ThreadPoolExecutor(4) as pool:  # whose threads end before processes part
        list(pool.map(lambda file: put(f"/{BUCKET}/{file.name}", file.read_bytes()), Path(sys.argv[1]).iterdir()))
    crew.fork(int(sys.argv[3]))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it notes every request
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections are kept, as S3 keeps them
    late = LateApp(crew, app, float(sys.argv[2]))
    host, port = crew.listening.getsockname()
    server = make_server(host, port, late, threaded=True, fd=crew.listening.fileno())
    while True:
        server.process_request(*crew.listening.accept())  # waiting in `accept`, processes have their turns


if __name__ == "__main__":
    main()
