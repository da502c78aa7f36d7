"""A web server on the loopback that does what a script says, and remembers what it was asked.

    with Server() as server:
        url = server.put("/a.tar", data)
        server.script("/a.tar", Status(500), Short(100))      # the first two answers; after them, all is well
        server.always("/b.tar", NoRange())                    # every answer

An act changes one answer: `Status`, `Short`, `Reset`, `Drip`, `Silence`, `NoRange`, `WrongRange`, `WrongLength`, `Tag`, `Coded`,
`Redirect`, `Garbage`, `Forever`, `Chunked`, `NoHead`; `Fine` changes nothing. HEAD requests are answered well and use up no
script, unless `heads=True` is said.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass
class Request:
    """What was asked."""

    method: str
    path: str
    headers: dict[str, str]
    #: the connection it came over: a number for each
    connection: int

    @property
    def span(self) -> str | None:
        """The range asked for: ``"0-99"``."""
        return self.headers["range"].removeprefix("bytes=") if "range" in self.headers else None


@dataclass
class Answer:
    """What is about to be said; an act changes it."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: int | None = None  # send so many bytes of the body, then end
    reset: bool = False  # end by a reset, not a close
    silent_at: int | None = None  # send so many bytes, then nothing, until the other end goes
    pause_s: float = 0.0  # between bytes
    raw: bytes | None = None  # send this and nothing else
    forever: bytes = b""  # and after it this, again and again, until the other end goes


class Act:
    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # the same in every process, as names of tests must be

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return answer


class Fine(Act):
    pass


@dataclass
class Status(Act):
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"<html>no</html>"

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return Answer(self.status, dict(self.headers), self.body)


@dataclass
class Short(Act):
    """The whole length is announced, `after` bytes come."""

    after: int
    reset: bool = False

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return replace(answer, cut=self.after, reset=self.reset)


def Reset(after: int) -> Short:
    return Short(after, reset=True)


@dataclass
class Drip(Act):
    """One byte every `pause_s`."""

    pause_s: float

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return replace(answer, pause_s=self.pause_s)


@dataclass
class Silence(Act):
    """`after` bytes of the body, then nothing; -1: not even a status."""

    after: int = -1

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return replace(answer, silent_at=self.after)


class NoRange(Act):
    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        headers = {name: value for name, value in answer.headers.items() if name != "Content-Range"}
        return replace(answer, status=200, headers=headers, body=data)


@dataclass
class WrongRange(Act):
    shift: int = 1

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        first, last = map(int, (request.span or "0-0").split("-"))
        first, last = first + self.shift, last + self.shift
        headers = {**answer.headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        return replace(answer, headers=headers, body=data[max(0, first) : last + 1])


@dataclass
class WrongLength(Act):
    """More, or fewer, bytes announced than the range has."""

    by: int

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return replace(answer, headers={**answer.headers, "Content-Length": str(len(answer.body) + self.by)})


@dataclass
class Tag(Act):
    """Another ETag; None: none at all."""

    etag: str | None

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        headers = {name: value for name, value in answer.headers.items() if name != "ETag"}
        return replace(answer, headers=headers | ({"ETag": self.etag} if self.etag is not None else {}))


@dataclass
class Coded(Act):
    coding: str = "gzip"

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return replace(answer, headers={**answer.headers, "Content-Encoding": self.coding})


@dataclass
class Redirect(Act):
    to: str
    status: int = 302

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return Answer(self.status, {"Location": self.to}, b"moved")


@dataclass
class Garbage(Act):
    data: bytes = b"SSH-2.0-OpenSSH_9.2\r\n"

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return replace(answer, raw=self.data)


@dataclass
class Forever(Act):
    """Some bytes, then others, one after the other, again and again; `pause_s` between any two."""

    begin: bytes
    again: bytes
    pause_s: float = 0.01
    heads: bool = True  # HEAD is answered so too

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        if request.method == "HEAD" and not self.heads:
            return answer
        return replace(answer, raw=self.begin, forever=self.again, pause_s=self.pause_s)


class Chunked(Act):
    """The whole file, in chunks, its length not told."""

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        chunks = [data[at : at + 1000] for at in range(0, len(data), 1000)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        headers = {"Transfer-Encoding": "chunked", "ETag": answer.headers.get("ETag", '""'), "Content-Length": ""}
        return replace(answer, status=200, headers=headers, body=body)


@dataclass
class NoHead(Act):
    """HEAD alone is refused."""

    status: int = 405

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return Answer(self.status, {}, b"") if request.method == "HEAD" else answer


@dataclass
class _File:
    data: bytes
    headers: dict[str, str]
    script: list[Act] = field(default_factory=list)
    always: list[Act] = field(default_factory=list)
    heads: bool = False


class Server:
    """Files in memory behind a port of the loopback; `latency_s` passes before every answer."""

    def __init__(self, latency_s: float = 0.0, context: Any = None) -> None:
        self.latency_s = latency_s
        self.files: dict[str, _File] = {}
        self.log: list[Request] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.scheme = "http" if context is None else "https"
        self.origin = f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join(10)

    def put(self, path: str, data: bytes, *, etag: str | None = "auto", modified: str | None = None) -> str:
        """Have a file; returns its URL. Putting it again changes it."""
        headers = {}
        if etag is not None:
            headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()[:16]}"' if etag == "auto" else etag
        if modified is not None:
            headers["Last-Modified"] = modified
        with self._lock:
            old = self.files.get(path)
            self.files[path] = _File(data, headers) if old is None else replace(old, data=data, headers=headers)
        return self.origin + path

    def put_all(self, paths: Iterable[Path], *always: Act) -> None:
        """Have files by their names; all answers for them are like these acts."""
        for path in paths:
            self.put(f"/{path.name}", path.read_bytes())
            self.always(f"/{path.name}", *always)

    def script(self, path: str, *acts: Act, heads: bool = False) -> None:
        """What the next answers for a path are like, one act each."""
        with self._lock:
            self.files[path].script += acts
            self.files[path].heads = heads

    def always(self, path: str, *acts: Act) -> None:
        """What all answers for a path are like, HEAD's too."""
        with self._lock:
            self.files[path].always = list(acts)

    def asked(self, path: str, method: str = "GET") -> list[Request]:
        """The requests for a path so far."""
        with self._lock:
            return [request for request in self.log if request.path.partition("?")[0] == path and request.method == method]

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            self.log.append(request)
            file = self.files.get(request.path.partition("?")[0])
            if file is None:
                return Answer(404, {}, b"<html>not found</html>")
            acts = list(file.always)
            if file.script and (file.heads or request.method == "GET"):
                acts.append(file.script.pop(0))
        answer = _plain(file, request)
        for act in acts:
            answer = act.change(answer, file.data, request)
        return answer


def _plain(file: _File, request: Request) -> Answer:
    headers, data = dict(file.headers), file.data
    wanted = request.headers.get("if-match")
    since = request.headers.get("if-unmodified-since")
    if (wanted is not None and wanted != headers.get("ETag")) or (since is not None and since != headers.get("Last-Modified")):
        return Answer(412, headers, b"changed")
    if request.span is None or request.method == "HEAD":
        return Answer(200, headers, data)
    first, last = map(int, request.span.split("-"))
    if first >= len(data):
        return Answer(416, {**headers, "Content-Range": f"bytes */{len(data)}"}, b"")
    last = min(last, len(data) - 1)
    return Answer(206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1])


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    owner: Server

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the other end went away; that is what many of these tests are about


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.owner.connections += 1
        self._number = self.server.owner.connections

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        owner = self.server.owner
        request = Request(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, self._number)
        answer = owner._answer(request)
        if owner.latency_s:
            time.sleep(owner.latency_s)
        if answer.raw is not None or answer.silent_at == -1:
            self.close_connection = True
            self.wfile.write(answer.raw or b"")
            while answer.forever and not owner._ending.wait(answer.pause_s):
                self.wfile.write(answer.forever)
            if answer.silent_at == -1:
                self._wait_for_the_other_end()
            return
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        if answer.silent_at is not None:
            self.wfile.write(answer.body[: answer.silent_at])
            self.wfile.flush()
            self._wait_for_the_other_end()
        elif answer.pause_s:
            for byte in answer.body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.owner._ending.wait(answer.pause_s):
                    break
        elif answer.cut is not None:
            self.wfile.write(answer.body[: answer.cut])
            self.wfile.flush()
            if answer.reset:
                time.sleep(0.02)  # a reset overtakes what the other end has not read yet
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            self.wfile.write(answer.body)
            return
        self.close_connection = True

    def _wait_for_the_other_end(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.settimeout(60)
            self.connection.recv(1)
