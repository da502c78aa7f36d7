"""One answer of an HTTP server, read from its connection: status, headers, and the bytes as they come.

The standard library's reading of answers was measured to take most of the time of a small request: it makes a file of the
connection and a mail message of the headers, each time. This reads the same, and as strictly: errors are those of http.client.
"""

from __future__ import annotations

import http.client
import re
import socket

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_LINE, _MOST_HEADERS = 1 << 16, 100
#: bytes received at once while headers are read
_RECEIVE = 1 << 12


class Wire:
    """The bytes of one connection, in order. What was received with the end of the headers is given out first."""

    __slots__ = ("_held", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._held = b""

    @property
    def empty(self) -> bool:
        """Whether all that was received has been given out."""
        return not self._held

    def line(self) -> bytes:
        """The next line, its end included; without one when the connection ends there, b"" when it ends before it."""
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > _MOST_LINE:
                raise http.client.LineTooLong("header line")
            more = self._socket.recv(_RECEIVE)
            if not more:
                rest, self._held = self._held, b""
                return rest
            self._held += more
        line, self._held = self._held[: end + 1], self._held[end + 1 :]
        if len(line) > _MOST_LINE:
            raise http.client.LineTooLong("header line")
        return line

    def readinto(self, view: memoryview) -> int:
        """What is there, at least a byte; 0 when the connection has ended."""
        if not self._held:
            return self._socket.recv_into(view)
        part = self._held[: len(view)]
        view[: len(part)] = part
        self._held = self._held[len(part) :]
        return len(part)


class Reply:
    """Status and headers, read now, and where the body ends.

    `headers` are by name in lower case, the first of several. `length` is how many bytes of the body are still to come: None when
    only the end of the connection tells, or, with `chunked`, the chunks.
    """

    __slots__ = ("_chunk", "_wire", "chunked", "headers", "length", "status", "will_close")

    def __init__(self, wire: Wire, head: bool) -> None:
        self._wire = wire
        version, self.status = _status(wire)
        while self.status == 100:
            _headers(wire)
            version, self.status = _status(wire)
        self.headers = _headers(wire)
        self.chunked = self.headers.get("transfer-encoding", "").strip().lower() == "chunked"
        self._chunk = 0
        told = self.headers.get("content-length", "").strip()
        self.length = int(told) if told.isascii() and told.isdigit() and len(told) < 20 and not self.chunked else None
        if head or self.status in (204, 304) or self.status < 200:
            self.length, self.chunked = 0, False
        kept = "close" not in (words := self.headers.get("connection", "").lower()) and (version == b"1" or "keep-alive" in words)
        self.will_close = not kept or (self.length is None and not self.chunked)

    def readinto(self, view: memoryview) -> int:
        """The next bytes of the body, at least one; 0 at its end, or where the connection ended before it."""
        if self.chunked:
            return self._read_chunk(view)
        if self.length is not None:
            view = view[: self.length]
        count = self._wire.readinto(view) if len(view) else 0
        if self.length is not None:
            self.length -= count
        return count

    def _read_chunk(self, view: memoryview) -> int:
        if not self._chunk:
            line = self._wire.line().split(b";", 1)[0].strip()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", line):
                raise http.client.IncompleteRead(b"")
            self._chunk = int(line, 16)
            if not self._chunk:
                return 0
        count = self._wire.readinto(view[: self._chunk])
        self._chunk -= count
        if not self._chunk and count and self._wire.line().strip():
            raise http.client.IncompleteRead(b"")
        return count


def _status(wire: Wire) -> tuple[bytes, int]:
    line = wire.line()
    if not line:
        raise http.client.RemoteDisconnected("the connection ended before an answer")
    found = _STATUS.fullmatch(line)
    if found is None:
        raise http.client.BadStatusLine(repr(line[:40]))
    return found[1], int(found[2])


def _headers(wire: Wire) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MOST_HEADERS + 1):
        line = wire.line()
        if line in (b"\r\n", b"\n"):
            return headers
        name, colon, value = line.partition(b":")
        if not line.endswith(b"\n") or not colon or not _NAME.fullmatch(name):
            raise http.client.HTTPException("a header that is none")
        headers.setdefault(name.decode("ascii").lower(), value.strip().decode("latin-1"))
    raise http.client.HTTPException(f"more than {_MOST_HEADERS} headers")
