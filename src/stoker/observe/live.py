"""A loader watched while it runs: a page on this machine, and a view in the terminal beside it.

The page is for whoever has its address: it is served on loopback alone, to whoever shows the token in it. The token comes in the
address once; after that in a header, which no page of another origin can send without being asked back, and gets no answer to.
There is no cookie, so that nobody's browser sends it unasked.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import os
import secrets
import socket
import socketserver
import threading
import time
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ..engine.background import Background
from ..engine.daemons import Daemons
from ..errors import ConfigError
from .loader_view import LoaderView
from .page_data import finite
from .report import page_policy, run_page, sample_pictures

if TYPE_CHECKING:
    from ..loader import Loader

_log = logging.getLogger("stoker")

_HOST = "127.0.0.1"
#: names under which a browser on this machine, or at the other end of a tunnel to it, may ask
_NAMES = ("127.0.0.1", "localhost")
_TOKEN = "X-Stoker-Token"
#: connections at the same time, and how long one may say nothing
_CONNECTIONS, _SILENT_S = 16, 5.0
#: how often it is looked whether the loader was closed
_TURN_S = 0.25
#: after that, who looked so lately is given so long to see how it ended
_LOOKED_S, _LINGER_S = 5.0, 3.0
#: how long pictures of a batch are shown before those of another
_PICTURES_S = 5.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def watch(loader: Loader, *, port: int = 0, terminal: bool = False, title: str = "", training: bool = True) -> LoaderWatch:
    """Show a loader in a browser while it runs, and with `terminal` in this terminal too.

    The page is served on this machine alone, at a port that is free unless `port` names one, to whoever has its address: print
    `watch(loader).url`. Nothing is measured for it that is not measured anyway, and it is read once per second while somebody
    looks. It ends with the loader, with the program, or with `close`. `training=False`: nobody works with the batches, so that
    waiting for them means nothing.

    >>> import numpy as np, stoker
    >>> with stoker.arrays(x=np.arange(8)).batch(2).loader() as loader, stoker.observe.watch(loader) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 1 << 16:
        raise ConfigError(f"watch(port={port!r}): must be an integer from 0 (any that is free) to 65,535")
    view = LoaderView(loader, "watch(loader)", title, training)
    return LoaderWatch(view, port, terminal)


class LoaderWatch:
    """A loader that is being watched; `url` is where. Ends with its loader, or by `close`, or as a context manager."""

    def __init__(self, view: LoaderView, port: int, terminal: bool) -> None:
        self._server = _PageServer(view, port)
        self.url = f"http://{_HOST}:{self._server.server_address[1]}/?token={self._server.token}"
        self._threads: list[Background] = []
        self._next_s = 0.0
        _serving[id(self._server)] = self._server
        try:
            # Their threads hold server and view: what nobody holds any more goes on until the loader is closed.
            self._threads.append(Background(self._server.serve, 1, "stoker-watch"))
            if terminal:
                from .terminal_view import TerminalView

                self._threads.append(Background(TerminalView(view, self.url).run, 1, "stoker-terminal"))
        except ConfigError:
            self.close()
            raise
        _log.info("watch the loader at %s", self.url)

    def show(self, batch: Any) -> None:
        """Show the first pictures of a batch on the page, if somebody looks; may be called with every batch."""
        now = time.monotonic()
        if now >= self._next_s and now - self._server.looked_s < _LOOKED_S:
            self._next_s = now + _PICTURES_S
            self._server.pictures = sample_pictures(batch)

    def close(self) -> None:
        """Stop serving, and leave the terminal; idempotent."""
        for thread in self._threads:
            thread.stop()
        if id(self._server) in _serving:
            _hang_up(self._server.socket)  # wakes the thread that waits for connections
        for thread in self._threads:
            thread.close()
        self._server.end()

    def __enter__(self) -> LoaderWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"LoaderWatch({self.url!r})"

    def _repr_html_(self) -> str:
        """A link, for notebooks."""
        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener noreferrer">Watch the loader</a>'


class _PageServer(socketserver.TCPServer):
    """Serves one view; every connection has a thread, because browsers open some and say nothing."""

    allow_reuse_address = True
    allow_reuse_port = False
    request_queue_size = _CONNECTIONS
    timeout = _TURN_S

    def __init__(self, view: LoaderView, port: int) -> None:
        self.view, self.token = view, secrets.token_urlsafe(24)
        self.looked_s = float("-inf")
        self.pictures: list[dict[str, str]] = []
        self._open = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            super().__init__((_HOST, port), _PageAnswer)
        except OSError as error:
            why = {errno.EADDRINUSE: "the port is in use", errno.EACCES: "this user may not use that port"}.get(error.errno or 0)
            raise ConfigError(
                f"watch(port={port}): the page cannot be served on {_HOST}: {why or error.strerror}; choose another port, "
                "or 0 for any that is free"
            ) from error

    def serve(self, stop: threading.Event) -> None:
        """Answer until it is to stop, or the loader has been closed and those who looked have seen that."""
        try:
            while not stop.is_set() and not self.view.closed:
                self.handle_request()
                if time.monotonic() - self.looked_s >= _LOOKED_S:
                    self.view.stop_recording()  # nobody looks any more
            lingers_s = time.monotonic() + (_LINGER_S if time.monotonic() - self.looked_s < _LOOKED_S else 0.0)
            while not stop.is_set() and time.monotonic() < lingers_s:
                self.handle_request()
        finally:
            self.end()

    def end(self) -> None:
        """Free the port; idempotent."""
        _serving.pop(id(self), None)
        self.server_close()
        self.view.stop_recording()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._open.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            Daemons(partial(_hang_up, request)).start(
                "a connection", "stoker-watch-answer", self._converse, request, client_address
            )
        except ConfigError:
            self._open.release()
            raise

    def _converse(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001  nobody else is told of it, and the loader must not care
            _log.debug("watch: an answer failed", exc_info=True)
        finally:
            self.shutdown_request(request)
            self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("watch: a connection failed", exc_info=True)


class _PageAnswer(BaseHTTPRequestHandler):
    """One request, and its answer: the page, or the data it shows."""

    server: _PageServer
    timeout = _SILENT_S

    def do_GET(self) -> None:
        if not self._from_here():
            self._refuse(403, "asked from elsewhere: open the address that watch() gave")
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            given = (parse_qs(asked.query).get("token") or [""])[0]
        else:
            given = self.headers.get(_TOKEN, "")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.server.token.encode()):
            self._refuse(403, "the token is missing or wrong: open the whole address that watch() gave")
        elif asked.path == "/":
            self._send(200, "text/html; charset=utf-8", run_page(self._data(), live=True))
        elif asked.path == "/data":
            self.server.looked_s = time.monotonic()
            if id(self.server) in _serving:
                self.server.view.record()
            self._send(200, "application/json", json.dumps(finite(self._data()), allow_nan=False))
        else:
            self._refuse(404, "there is no such page")

    def _data(self) -> dict[str, Any]:
        return self.server.view.data(pictures=self.server.pictures)

    def _no_such_method(self) -> None:
        self._refuse(405, "this page can only be looked at")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _no_such_method  # noqa: N815

    def _from_here(self) -> bool:
        """Whether a browser asks that took this server for what it is: by a name of this machine, and for a page of ours.

        A page of others whose name was made to lead here (DNS rebinding) shows in `Host`, any other in `Origin`.
        """
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in _NAMES and host not in _NAMES:
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return False
        return self.path.startswith("/?") or self.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")

    def _refuse(self, status: int, why: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{why}\n")

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        policy = f"{page_policy(live=True)}; frame-ancestors 'none'"
        headers = {**_HEADERS, "Content-Security-Policy": policy, "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._refuse(code, message or "that was not understood")

    def version_string(self) -> str:
        return "stoker"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a page that is watched asks every second."""


def _hang_up(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has gone


#: servers of this process; changed and copied in single steps, because a fork may come at any time
_serving: dict[int, _PageServer] = {}


def _stop_serving() -> None:
    """A forked child has the port, but no thread that answers: who asks must not get there."""
    for server in list(_serving.values()):
        server.socket.close()
    _serving.clear()


os.register_at_fork(after_in_child=_stop_serving)
