"""Live view of a running loader: a page on this machine, and a view in the terminal.

The page is private to the users who have its address: it is served on loopback only, to requests with the token. The token
comes in the address once, and afterwards in a header, which a page of another origin cannot send without a preflight, which is
not answered. There is no cookie, so no browser sends the token unasked.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import secrets
import time
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ..engine.background import Background
from ..errors import ConfigError
from .followers import ClosedByWith
from .loader_view import LoaderView
from .page_data import finite
from .page_server import PageAnswer, PageServer, names_this_machine
from .report import page_policy, run_page, sample_pictures

if TYPE_CHECKING:
    from ..loader import Loader

_log = logging.getLogger("stoker")

_HOST = "127.0.0.1"
_TOKEN = "X-Stoker-Token"
#: who looked so lately at a loader that is closed is given so long to see how it ended
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

    The page is served to this machine only, at any free port or `port`, and can be read only with its address: print
    `watch(loader).url`. It uses the measurements that the loader makes anyway, and reads them once per second while the page is
    open. It ends with the loader, with the program, or with `close`. With ``training=False`` waiting for batches does not count.

    >>> import numpy as np, stoker
    >>> with stoker.arrays(x=np.arange(8)).batch(2).loader() as loader, stoker.observe.watch(loader) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 1 << 16:
        raise ConfigError(f"watch(port={port!r}): must be an integer from 0 (any that is free) to 65,535")
    view = LoaderView(loader, "watch(loader)", title, training)
    return LoaderWatch(view, port, terminal)


class LoaderWatch(ClosedByWith):
    """A loader that is being watched; `url` is where. Ends with its loader, or by `close`, or as a context manager."""

    def __init__(self, view: LoaderView, port: int, terminal: bool) -> None:
        self._server = _WatchServer(view, port)
        self.url = f"http://{_HOST}:{self._server.port}/?token={self._server.token}"
        self._terminal: Background | None = None
        self._next_s = 0.0
        self._server.start("stoker-watch")
        try:
            if terminal:
                from .terminal_view import TerminalView

                self._terminal = Background(TerminalView(view, self.url).run, 1, "stoker-terminal")
        except ConfigError:
            self.close()
            raise
        _log.info("watch the loader at %s", self.url)

    def show(self, batch: Any) -> None:
        """Show the first pictures of a batch on the page, if it is being viewed; may be called with every batch."""
        now = time.monotonic()
        if now >= self._next_s and now - self._server.looked_s < _LOOKED_S:
            self._next_s = now + _PICTURES_S
            self._server.pictures = sample_pictures(batch)

    def close(self) -> None:
        """Stop serving, and leave the terminal; idempotent."""
        self._server.stop()
        if self._terminal is not None:
            self._terminal.close()

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"LoaderWatch({self.url!r})"

    def _repr_html_(self) -> str:
        """A link, for notebooks."""
        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener noreferrer">Watch the loader</a>'


class _WatchServer(PageServer):
    """Serves one view, until the loader has been closed and those who looked have seen that."""

    def __init__(self, view: LoaderView, port: int) -> None:
        self.view, self.token = view, secrets.token_urlsafe(24)
        self.looked_s = float("-inf")
        self.pictures: list[dict[str, str]] = []
        self._until_s: float | None = None  # when it ends; None: the loader runs
        try:
            super().__init__(_HOST, port, _WatchAnswer)
        except OSError as error:
            why = {errno.EADDRINUSE: "the port is in use", errno.EACCES: "this user may not use that port"}.get(error.errno or 0)
            raise ConfigError(
                f"watch(port={port}): the page cannot be served on {_HOST}: {why or error.strerror}; choose another port, "
                "or 0 for any that is free"
            ) from error

    @property
    def over(self) -> bool:
        now = time.monotonic()
        looks = now - self.looked_s < _LOOKED_S
        if not looks:
            self.view.stop_recording()
        if self._until_s is None and self.view.closed:
            self._until_s = now + _LINGER_S if looks else now
        return self._until_s is not None and now >= self._until_s

    def end(self) -> None:
        super().end()
        self.view.stop_recording()


class _WatchAnswer(PageAnswer):
    """The page, or the data it shows."""

    server: _WatchServer

    def do_GET(self) -> None:  # noqa: N802
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
            if self.server.serves:
                self.server.view.record()
            self._send(200, "application/json", json.dumps(finite(self._data()), allow_nan=False))
        else:
            self._refuse(404, "there is no such page")

    def _data(self) -> dict[str, Any]:
        return self.server.view.data(pictures=self.server.pictures)

    def _no_such_method(self) -> None:
        self._refuse(405, "this page is read-only")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _no_such_method  # noqa: N815

    def _from_here(self) -> bool:
        """Whether a browser asks that took this server for what it is: by a name of this machine, and for a page of ours."""
        host = self.headers.get("Host", "")
        if not names_this_machine(host):
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return False
        return self.path.startswith("/?") or self.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")

    def _refuse(self, status: int, why: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{why}\n")

    def _send(self, status: int, kind: str, text: str) -> None:
        policy = f"{page_policy(live=True)}; frame-ancestors 'none'"
        self.send_page(status, kind, text.encode("utf-8", "backslashreplace"), Content_Security_Policy=policy, **_HEADERS)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._refuse(code, message or "that was not understood")
