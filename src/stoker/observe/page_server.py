"""A page server next to training: a thread that waits for connections, and one for each of them.

Browsers open connections without sending anything, which must not delay others. A forked child has the port but no thread that
answers, so it closes its copy.
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

from ..engine.background import Background
from ..engine.daemons import Daemons
from ..errors import ConfigError

_log = logging.getLogger("stoker")

#: connections at the same time, how long one may say nothing, and how long one may take in all
_CONNECTIONS, _SILENT_S, _WHOLE_S = 16, 5.0, 15.0
#: how often it is looked whether it is to end
_TURN_S = 0.25
#: names under which a browser on this machine, or at the other end of a tunnel to it, asks
_HERE = ("127.0.0.1", "localhost", "[::1]")


def names_this_machine(host: str) -> bool:
    """Whether a `Host` header is one of this machine. Any other is that of a page of others whose name was made to lead here
    (DNS rebinding).

    >>> names_this_machine("localhost:8080"), names_this_machine("evil.example")
    (True, False)
    """
    return host in _HERE or host.rpartition(":")[0] in _HERE


class PageAnswer(BaseHTTPRequestHandler):
    """One request, and its answer."""

    timeout = _SILENT_S

    def send_page(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        """Answer; names of headers have _ for -."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "stoker"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a page that is watched asks every second."""


class PageServer(socketserver.TCPServer):
    """Listens from when it is made, and answers from `start` until `stop`, or until it is `over`. OSErrors are the caller's."""

    allow_reuse_address = True
    allow_reuse_port = False
    request_queue_size = _CONNECTIONS
    timeout = _TURN_S

    def __init__(self, host: str, port: int, answer: type[PageAnswer]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open = threading.BoundedSemaphore(_CONNECTIONS)
        self._thread: Background | None = None
        self._talking: dict[socket.socket, float] = {}  # until when; changed and copied in single steps
        super().__init__((host, port), answer)
        self.port: int = self.server_address[1]
        _serving[id(self)] = self

    @property
    def serves(self) -> bool:
        return id(self) in _serving

    @property
    def over(self) -> bool:
        """Whether there is nothing to be seen any more; asked some times per second."""
        return False

    def start(self, name: str) -> None:
        """Answer requests in a thread of this name. Raises ConfigError if the server cannot start, which also ends it."""
        try:
            # The thread references the server, so it continues until it ends, even without other references.
            self._thread = Background(self._serve, 1, name)
        except ConfigError:
            self.end()
            raise

    def stop(self) -> None:
        """Answer no more, and free the port; idempotent."""
        if self._thread is not None:
            self._thread.stop()
        if self.serves:
            _hang_up(self.socket)  # wakes the thread that waits for connections
        if self._thread is not None:
            self._thread.close()
        self.end()

    def _serve(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set() and not self.over:
                self.handle_request()
                self._hang_up_on_the_slow()
        finally:
            self.end()

    def end(self) -> None:
        """Free the port, without waiting for clients that have sent nothing yet; idempotent."""
        _serving.pop(id(self), None)
        self.server_close()
        for request in list(self._talking):
            _hang_up(request, socket.SHUT_RD)

    def _hang_up_on_the_slow(self) -> None:
        """Who sends a byte now and then is never silent, and would keep a place for good."""
        now = time.monotonic()
        for request, until_s in list(self._talking.items()):
            if now >= until_s:
                _hang_up(request)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._open.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._talking[request] = time.monotonic() + _WHOLE_S
        try:
            Daemons(partial(_hang_up, request)).start("a connection", "stoker-answer", self._converse, request, client_address)
        except ConfigError:
            self._let_go(request)
            raise

    def _converse(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001  it is not reported anywhere, and must not affect the loader
            _log.debug("an answer failed", exc_info=True)
        finally:
            self._let_go(request)
            self.shutdown_request(request)

    def _let_go(self, request: Any) -> None:
        del self._talking[request]
        self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection failed", exc_info=True)


def _hang_up(request: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    try:
        request.shutdown(how)
    except OSError:
        return  # it has gone


#: servers of this process; changed and copied in single steps, because a fork may come at any time
_serving: dict[int, PageServer] = {}


def _stop_serving() -> None:
    for server in list(_serving.values()):
        server.socket.close()
    _serving.clear()


os.register_at_fork(after_in_child=_stop_serving)
