"""One answer of an HTTP server, read from its connection: status, headers, and the bytes as they come.

The standard library's parser was measured to take most of the time of a small request: it makes a file of the connection and a
mail message of the headers, each time. This one reads the same, and more strictly: every wait ends at a deadline, even if
single bytes keep arriving before it.
"""

from __future__ import annotations

import re
import socket
import ssl
import time

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\0\r\n]*)\r?\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
#: headers of which a second one is not left out but added to the first, so that a contradiction is seen
_ADDED = ("content-length", "transfer-encoding", "connection", "content-range", "content-encoding")
#: bytes of the status line and all headers of an answer together; of the line before a chunk, and of what follows the last
MOST_HEADER_BYTES = 1 << 16
#: answers of the kind "100 Continue" before the one that counts
MOST_INTERIM = 5
#: bytes received at once while headers are read
_RECEIVE = 1 << 12
#: the rest of an unwanted answer is taken, and its connection kept, when it is no longer than this
_DRAIN_BYTES = 1 << 12
_BLANK = (b"\r\n", b"\n")
#: the deadline of one who takes only what has arrived
AT_ONCE = 0.0
#: what a socket raises when nothing came in time
TIMEOUTS = (TimeoutError, BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BrokenReply(Exception):
    """An answer that cannot be used. The text is ours, and quotes nothing that a server said."""


class ConnectionEnd(Exception):
    """The connection ended before a byte of the answer came."""


class Wire:
    """The bytes of one connection, in order. What was received with the end of the headers is given out first.

    Deadlines are times of the monotonic clock. When one has passed and nothing is there, it is one of `TIMEOUTS`.
    """

    __slots__ = ("_at", "_held", "_socket", "_timeout_s")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._timeout_s = connected.gettimeout()
        #: what was received, and how much of it was given out
        self._held, self._at = b"", 0

    @property
    def empty(self) -> bool:
        """Whether all that was received has been given out."""
        return self._at == len(self._held)

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        self._wait_until(deadline)
        self._socket.sendall(data)

    def line(self, deadline: float, most: int) -> bytes:
        """The next line, its end included; without one when the connection ends there, b"" when it ends before it."""
        while (end := self._held.find(b"\n", self._at, self._at + most) + 1) == 0:
            if len(self._held) - self._at >= most:
                raise BrokenReply("a line of it has no end")
            self._wait_until(deadline)
            more = self._socket.recv(_RECEIVE)
            if not more:
                end = len(self._held)
                break
            self._held, self._at = self._held[self._at :] + more, 0
        line, self._at = self._held[self._at : end], end
        return line

    def readinto(self, view: memoryview, deadline: float) -> int:
        """What is there, at least a byte; 0 when the connection has ended."""
        if self._at == len(self._held):
            self._wait_until(deadline)
            return self._socket.recv_into(view)
        part = self._held[self._at : self._at + len(view)]
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _wait_until(self, deadline: float) -> None:
        """Have the next call wait so long at most; after the deadline it takes what has arrived, and does not wait."""
        left = max(0.0, deadline - time.monotonic())
        # Each change is a call of the system: it is made a little too long, and then stays for deadlines that are as far away.
        if self._timeout_s is None or not left <= self._timeout_s <= 1.05 * left:
            self._timeout_s = 1.02 * left
            self._socket.settimeout(self._timeout_s)


class Reply:
    """Status and headers, read now, and where the body ends.

    `headers` are by name in lower case, the first of several. `announced` is the length of the body by the headers, of HEAD too.
    `length` is how many bytes of it are still to come: None when only the end of the connection tells, or, with `chunked`, the
    chunks do.
    """

    __slots__ = ("_chunk", "_wire", "announced", "chunked", "headers", "length", "status", "will_close")

    def __init__(self, wire: Wire, head: bool, deadline: float) -> None:
        """Raises ConnectionEnd, BrokenReply and OSError. `head`: the request was one whose answer has no body."""
        self._wire = wire
        version, self.status, self.headers = _final(wire, deadline)
        coding = self.headers.get("transfer-encoding", "identity").strip().lower()
        if coding not in ("identity", "chunked") and not head:
            raise BrokenReply("its transfer coding is not 'chunked', and no other is read")
        self.chunked = coding != "identity"
        #: bytes of this chunk that are still to come; None: no chunk has begun
        self._chunk: int | None = None
        self.announced = _length(self.headers.get("content-length"))
        kept = "close" not in (words := self.headers.get("connection", "").lower()) and (version == b"1" or "keep-alive" in words)
        if self.chunked and self.announced is not None:
            # The chunks tell. Somebody on the way may have gone by the length, so what comes after them is not to be believed.
            self.announced, kept = None, False
        self.length = self.announced
        if head or self.status in (204, 304):
            self.length, self.chunked = 0, False
        self.will_close = not kept or (self.length is None and not self.chunked)

    def readinto(self, view: memoryview, deadline: float) -> int:
        """The next bytes of the body, at least one; 0 at its end, or where the connection ended before it."""
        if self.chunked:
            return self._read_chunk(view, deadline)
        if self.length is None:
            return self._wire.readinto(view, deadline)
        if not self.length:
            return 0
        count = self._wire.readinto(view[: self.length], deadline)
        self.length -= count
        return count

    def ends_here(self) -> bool:
        """Whether the next byte of the connection is the next answer's, once what little has arrived is out of the way."""
        if self.length == 0 and not self.chunked:
            return True
        rest = memoryview(bytearray(_DRAIN_BYTES))
        try:
            if self.chunked:
                return not self._chunk and not self._read_chunk(rest, AT_ONCE) and not self.chunked
            while self.length and self.length <= _DRAIN_BYTES and self.readinto(rest, AT_ONCE):
                pass
        except (OSError, BrokenReply):
            return False
        return self.length == 0

    def _read_chunk(self, view: memoryview, deadline: float) -> int:
        if not self._chunk:
            if self._chunk is not None and self._wire.line(deadline, 2) not in _BLANK:
                raise BrokenReply("a chunk is longer than it said")
            found = _CHUNK.fullmatch(self._wire.line(deadline, MOST_HEADER_BYTES))
            if found is None:
                raise BrokenReply("a chunk that does not say how long it is")
            self._chunk = int(found[1], 16)
            if not self._chunk:
                _headers(self._wire, deadline, MOST_HEADER_BYTES)
                self.chunked, self.length = False, 0
                return 0
        count = self._wire.readinto(view[: self._chunk], deadline)
        self._chunk -= count
        return count


def _final(wire: Wire, deadline: float) -> tuple[bytes, int, dict[str, str]]:
    """HTTP's minor version, status and headers of the answer that counts."""
    room = MOST_HEADER_BYTES
    for _ in range(MOST_INTERIM + 1):
        line = wire.line(deadline, room)
        if not line:
            raise ConnectionEnd
        found = _STATUS.fullmatch(line)
        if found is None:
            raise BrokenReply("its status line cannot be understood")
        headers, room = _headers(wire, deadline, room - len(line))
        status = int(found[2])
        if status == 101:
            raise BrokenReply("it changes to another protocol, which was not requested")
        if status >= 200:
            return found[1], status, headers
    raise BrokenReply(f"more than {MOST_INTERIM} times it says that the answer will follow")


def _headers(wire: Wire, deadline: float, room: int) -> tuple[dict[str, str], int]:
    """Headers up to the empty line after them, and how many of `room` bytes are left."""
    headers: dict[str, str] = {}
    while True:
        line = wire.line(deadline, room)
        room -= len(line)
        if line in _BLANK:
            return headers, room
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BrokenReply("a header cannot be understood, or is cut off")
        name, value = found[1].decode("ascii").lower(), found[2].strip().decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _ADDED:
            headers[name] += ", " + value


def _length(text: str | None) -> int | None:
    """The number a Content-Length says, which may say it several times."""
    if text is None:
        return None
    numbers = {part.strip() for part in text.split(",")}
    number = numbers.pop()
    if numbers:
        raise BrokenReply("its Content-Lengths contradict each other")
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise BrokenReply("its Content-Length is not a number")
    return int(number)
