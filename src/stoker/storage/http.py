"""Files on HTTP servers: single attempts; every answer is checked before any byte of it is used."""

from __future__ import annotations

import email.utils
import re
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from ..errors import ConfigError
from .blob import Stat
from .connections import Connection, Connections, pool_of
from .names import printable
from .once import Once
from .origin import HOST, LOGIN_ADVICE, PORTS, Origin, basic_login, bracketed
from .proxies import Proxy, proxy_for
from .reach import common_reach
from .reply import TIMEOUTS, BrokenReply, ConnectionEnd, Reply
from .retry import Body, Patience, Remote, RemoteFault, refused

MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
#: statuses with which servers refuse HEAD alone; a URL signed for GET is the usual reason for 403
_NO_HEAD = (403, 405, 501)
#: what may stand in a request line as it is; a percent sign is taken to begin an escape that is there already
_SAFE = "/%:@!$&'()*+,;=~-._"
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")
#: words of servers that messages may show. Any other is not shown: it may be a secret of the request, sent back.
_SHOWN_CODINGS = ("gzip", "x-gzip", "br", "deflate", "zstd", "compress", "aws-chunked")
_SHOWN_SCHEMES = ("http", "ftp", "ftps", "file", "data", "javascript", "s3", "gs", "az", "ws", "wss", "pipe")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart. Its `repr`, which tools show that print the variables of a traceback, holds no secret."""

    origin: Origin
    #: path and query, as they go into the request line
    path: str = field(repr=False)
    #: name and password before the host, as a header's value
    login: str | None = field(repr=False)
    #: the URL without its secrets
    told: str

    @classmethod
    def of(cls, url: str) -> Target:
        """Raises ValueError, whose text holds nothing of the URL, when it cannot be asked for."""
        if any(ord(character) < 32 or ord(character) == 127 for character in url):
            raise ValueError("it holds a control character")
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:
            raise ValueError("its host or port cannot be understood") from None
        scheme = parts.scheme.lower()
        if scheme not in PORTS or not HOST.fullmatch(host):
            raise ValueError("it names no host")
        # A byte that is not UTF-8 goes out as it came in.
        path = quote(parts.path, safe=_SAFE, errors="surrogateescape") or "/"
        query = quote(parts.query, safe=_SAFE + "?", errors="surrogateescape")
        told = f"{scheme}://{bracketed(host)}{f':{port}' if port is not None else ''}{path}{'?…' if parts.query else ''}"
        if port is not None and parts.username is None:
            # A "/", "?" or "#" in a password ends it, so that the name is read as the host, and the password's begin as the port.
            if not parts.path and "@" in parts.query + parts.fragment:
                raise ValueError(f"it has {LOGIN_ADVICE}")
            if "@" in path:
                told = f"{scheme}://…@{told.rpartition('@')[2]}"
        origin = Origin(scheme, host, port if port is not None else PORTS[scheme])
        return cls(origin, f"{path}?{query}" if query else path, basic_login(parts.username, parts.password), told)

    def redirected(self, location: str | None) -> Target:
        """Where an answer sends us. Raises RemoteFault where we do not go: to another scheme, but from http to https."""
        if not location:
            raise RemoteFault("a redirect that does not say where to", again=False)
        scheme = self.origin.scheme
        try:
            location = location.encode("latin-1").decode("utf-8", "surrogateescape")  # headers are read as latin-1
            url = urljoin(f"{scheme}://{self.origin.authority}{self.path}", location)
            named = urlsplit(url).scheme.lower()
            if named not in (scheme, "https"):
                shown = f"{named}:" if named in _SHOWN_SCHEMES else "another scheme"
                raise RemoteFault(f"a redirect from {scheme}: to {shown} is not followed", again=False)
            target = Target.of(url)
        except ValueError as error:
            raise RemoteFault(f"a redirect to a URL that cannot be used: {error}", again=False) from None
        return replace(target, login=self.login) if target.origin == self.origin and target.login is None else target


class _Landing(NamedTuple):
    """Where redirects led, and from where the servers that sent us there can be reached."""

    target: Target
    sender: str


class HttpRemote(Remote):
    """A file at an ``http://`` or ``https://`` URL. Name and password in the URL are sent to that origin only."""

    def __init__(self, url: str, once: Once | None = None) -> None:
        self.address = url
        try:
            self._target = Target.of(url)
        except ValueError as error:
            raise ConfigError(f"a URL that begins with {url[:8]!r} cannot be used: {error}") from None
        self.url = self._target.told
        self.name = printable(unquote_to_bytes(self.url.removesuffix("?…").rstrip("/").rpartition("/")[2]))
        self._pools: dict[Origin, Connections] = {}
        #: where the last redirect led; asked first, and forgotten when it fails
        self._landed: _Landing | None = None
        self._once = Once() if once is None else once

    def head(self, patience: Patience, limit_s: float) -> Stat:
        deadline = time.monotonic() + limit_s
        answer = self._ask("HEAD", {}, patience, deadline)
        status, length = answer.status, answer.announced
        answer.close()
        if status == 200 and length is not None and not _coded(answer):
            return Stat(length, _version(answer))
        if status not in (200, *_NO_HEAD):
            raise answer.named(refused(status, after_s=_retry_after(answer)))
        return self._head_by_get(patience, deadline)

    def get(self, start: int, stop: int, stat: Stat, patience: Patience, limit_s: float) -> Body:
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        if stat.version.startswith('"'):  # a weak ETag matches nothing there
            headers["If-Match"] = stat.version
        elif _is_date(stat.version):
            headers["If-Unmodified-Since"] = stat.version
        answer = self._ask("GET", headers, patience, time.monotonic() + limit_s)
        try:
            self._check(answer, start, stop, stat)
        except BaseException as error:
            answer.close()
            if isinstance(error, RemoteFault):
                answer.named(error)
            raise
        return answer

    def sibling(self, suffix: str) -> HttpRemote:
        parts = urlsplit(self.address)
        return HttpRemote(parts._replace(path=parts.path + quote(suffix), fragment="").geturl())

    def close(self) -> None:
        self._pools = {}  # the last file of an origin closes its connections

    def __reduce__(self) -> tuple[type[HttpRemote], tuple[str, Once]]:
        return HttpRemote, (self.address, self._once)

    def _head_by_get(self, patience: Patience, deadline: float) -> Stat:
        answer = self._ask("GET", {"Range": "bytes=0-0"}, patience, deadline)
        try:
            if answer.status not in (200, 206, 416):
                raise refused(answer.status, after_s=_retry_after(answer))
            if _coded(answer):
                raise _coded_fault(answer)
            size = _content_range(answer)[2] if answer.status != 200 else answer.announced
            if size is None or (answer.status == 416 and size):
                raise RemoteFault("the server does not say how long the file is", again=False)
            return Stat(size, _version(answer))
        except RemoteFault as fault:
            raise answer.named(fault) from None
        finally:
            answer.close()

    def _check(self, answer: _Answer, start: int, stop: int, stat: Stat) -> None:
        """Raise unless the answer holds the bytes asked for, of the very file asked for; then say where in the file it begins."""
        if answer.status == 416:
            size = _content_range(answer)[2]
            changed = size is not None and size != stat.size
            raise RemoteFault(
                f"there are no such bytes, it has {size} now and had {stat.size}", status=416, again=False, changed=changed
            )
        if answer.status not in (200, 206):
            raise refused(answer.status, after_s=_retry_after(answer))
        if _coded(answer):
            raise _coded_fault(answer)
        if _is_another(answer, stat.version):
            raise RemoteFault("its ETag or date is another now", status=answer.status, changed=True)
        if answer.status == 200:
            first, expected, size = 0, stat.size, answer.announced
            if start:
                self._warn_no_ranges()
        else:
            begin, last, size = _content_range(answer)
            if begin != start or last is None or not start <= last < stop:
                raise RemoteFault(f"bytes {begin} to {last} came for {start} to {stop - 1}", status=206, tries=3)
            first, expected = start, last + 1 - start
            if answer.announced not in (None, expected):
                raise RemoteFault(f"{answer.announced} bytes announced for a range of {expected}", status=206, tries=3)
        if size is not None and size != stat.size:
            raise RemoteFault(f"it has {size:,} bytes now, and had {stat.size:,}", status=answer.status, changed=True)
        answer.at, answer.left = first, expected

    def _warn_no_ranges(self) -> None:
        self._once.warn(
            "%s: the server cannot send a part of a file, so every read begins at byte 0 and throws away what it skips; "
            "read its files through a cache of whole shards, or from another server",
            self.url,
        )

    def _ask(self, method: str, headers: dict[str, str], patience: Patience, deadline: float) -> _Answer:
        """One question and its answer, redirects followed."""
        landed = self._landed
        if landed is not None:
            try:
                answer = self._ask_one(landed.target, method, headers, patience, deadline, landed.sender)
                if answer.status < 300 or answer.status in (412, 416):
                    return answer
                answer.close()
            except RemoteFault:
                pass
            self._landed = None  # a signed URL expires, a mirror goes away: ask the one who sent us there
        target, sender = self._target, None
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._ask_one(target, method, headers, patience, deadline, sender)
            if answer.status not in _REDIRECTS:
                if sender is not None and answer.status < 300:
                    self._landed = _Landing(target, sender)
                return answer
            sender = common_reach(sender, answer.reach)
            answer.close()
            target = target.redirected(answer.headers.get("location"))
        raise RemoteFault(f"more than {MOST_REDIRECTS} redirects", status=answer.status, again=False)

    def _ask_one(
        self, target: Target, method: str, headers: dict[str, str], patience: Patience, deadline: float, sender: str | None
    ) -> _Answer:
        """One request on one connection. `sender`: the reach of who redirected us here, beyond which we do not go inwards."""
        pool = self._pool(target.origin)
        request = _request(method, target, headers, pool.proxy)
        try:
            return _ask_pool(pool, request, method == "HEAD", patience, deadline, sender)
        except RemoteFault as fault:
            fault.via = pool.via
            raise

    def _pool(self, origin: Origin) -> Connections:
        pool = self._pools.get(origin)
        if pool is None:
            try:
                proxy = proxy_for(origin)
            except ValueError as error:
                raise RemoteFault(str(error), again=False) from None
            pool = self._pools[origin] = pool_of(origin, proxy)
        return pool


def _request(method: str, target: Target, headers: dict[str, str], proxy: Proxy | None) -> memoryview:
    """A request, as a view whose `repr` shows none of it. What goes into it was checked when it was made; this makes sure."""
    origin = target.origin
    host = bracketed(origin.host) if origin.port == PORTS[origin.scheme] else origin.authority
    path = target.path
    lines = ["", f"Host: {host}", "Accept: */*", "Accept-Encoding: identity", "User-Agent: stoker"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if target.login is not None:
        lines.append(f"Authorization: {target.login}")
    if proxy is not None and origin.scheme == "http":  # with https the proxy was asked for a connection, and sees none of this
        path = f"http://{host}{path}"
        if proxy.login is not None:
            lines.append(f"Proxy-Authorization: {proxy.login}")
    lines[0] = f"{method} {path} HTTP/1.1"
    if any("\r" in line or "\n" in line for line in lines):
        raise RemoteFault("a header that would hold a line break", again=False)
    return memoryview(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def _ask_pool(
    pool: Connections, request: memoryview, head: bool, patience: Patience, deadline: float, sender: str | None
) -> _Answer:
    """A request on an idle connection, or where none answers on a new one."""
    connection = pool.take_idle(sender)
    if connection is not None:
        try:
            return _exchange(pool, connection, request, head, patience, deadline)
        except _Unanswered:
            pool.forget_idle()  # the server had closed it in the meantime; that says nothing about the request
        except RemoteFault as fault:
            if fault.late:
                pool.forget_idle()  # a router may have forgotten them all: the next attempt uses a new one
            raise
    try:
        connection = pool.connect(min(deadline, time.monotonic() + patience.connect_s), sender)
    except (OSError, BrokenReply, ConnectionEnd) as error:
        failed = _fault_of(error)
    else:
        return _exchange(pool, connection, request, head, patience, deadline)
    raise failed


def _exchange(
    pool: Connections, connection: Connection, request: memoryview, head: bool, patience: Patience, deadline: float
) -> _Answer:
    """Send a request and read the answer's status and headers, all under one deadline; then the connection is the answer's."""
    try:
        deadline = min(deadline, time.monotonic() + patience.silence_s)
        connection.wire.send(request, deadline)
        return _Answer(pool, connection, Reply(connection.wire, head, deadline))
    except (OSError, BrokenReply, ConnectionEnd) as error:
        fault = _fault_of(error)
        connection.close()
    except BaseException:
        connection.close()
        raise
    raise fault


class _Unanswered(RemoteFault):
    """The connection ended before a byte of the answer came."""


class _Answer(Body):
    """The answer to one request: status and headers now, bytes as they are read. It owns its connection until it is closed."""

    at = 0
    #: bytes of it that are wanted and still to come; None: it was not accepted
    left: int | None = None

    def __init__(self, pool: Connections, connection: Connection, reply: Reply) -> None:
        self._pool, self._connection, self.via = pool, connection, pool.via
        self._reply: Reply | None = reply
        self.status, self.headers, self.announced = reply.status, reply.headers, reply.announced
        #: from where the server that gave it can be reached
        self.reach = connection.reach

    def named(self, fault: RemoteFault) -> RemoteFault:
        """The fault, with the server that gave this answer."""
        fault.via = self.via
        return fault

    def readinto(self, view: memoryview, wait_s: float) -> int:
        reply = self._reply
        if reply is None or not self.left:
            return 0
        view, fault = view[: self.left], None
        try:
            count = reply.readinto(view, time.monotonic() + wait_s)
        except BrokenReply as error:
            fault = RemoteFault(f"the answer broke off ({error})")
        except OSError as error:
            fault = _network_fault(error)
        if fault is not None:
            raise fault
        self.at += count
        self.left -= count
        return count

    def close(self) -> None:
        """Drop the answer, without waiting. Its connection is kept if the next byte would be that of the next answer."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        if not reply.will_close and not self.left and reply.ends_here() and self._connection.wire.empty:
            self._pool.give_back(self._connection)
        else:
            self._connection.close()


def _content_range(answer: _Answer) -> tuple[int | None, int | None, int | None]:
    """First and last byte of the answer, and the size of the file, as far as it tells."""
    found = _CONTENT_RANGE.fullmatch((answer.headers.get("content-range") or "").strip())
    if found is None:
        return None, None, None
    first, last, size = (int(part) if part and part != "*" else None for part in found.groups())
    return first, last, size


def _version(answer: _Answer) -> str:
    return str(answer.headers.get("etag") or answer.headers.get("last-modified") or "").strip()


def _is_another(answer: _Answer, version: str) -> bool:
    """Whether the answer says that it is of another version. Weak and strong ETags of the same text are the same to us."""
    etag, date = ((answer.headers.get(name) or "").strip() for name in ("etag", "last-modified"))
    now = date if _is_date(version) else etag
    return bool(version and now) and now.removeprefix("W/") != version.removeprefix("W/")


def _is_date(version: str) -> bool:
    return not version.endswith('"') and email.utils.parsedate_tz(version) is not None


def _coded(answer: _Answer) -> bool:
    return (answer.headers.get("content-encoding") or "identity").strip().lower() != "identity"


def _coded_fault(answer: _Answer) -> RemoteFault:
    coding = (answer.headers.get("content-encoding") or "").strip().lower()
    shown = f"Content-Encoding {coding}" if coding in _SHOWN_CODINGS else "some Content-Encoding"
    why = f"the server sends it with {shown} though 'identity' was asked for; switch that off for this file"
    return RemoteFault(why, status=answer.status, again=False)


def _retry_after(answer: _Answer) -> float | None:
    """Seconds the server asks us to wait. A date is compared with the server's own clock, never with ours."""
    text = (answer.headers.get("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    dates = [email.utils.parsedate_tz(value) for value in (text, answer.headers.get("date") or "")]
    if dates[0] is None or dates[1] is None:
        return None
    try:
        until, now = (email.utils.mktime_tz(date) for date in dates if date is not None)
    except (ValueError, OverflowError):
        return None
    return float(max(0, until - now))


def _fault_of(error: OSError | BrokenReply | ConnectionEnd) -> RemoteFault:
    """What follows from it when a connection cannot be made, or an answer not be read. Nothing that a server said is in it."""
    if isinstance(error, BrokenReply):
        return RemoteFault(f"the answer is not HTTP ({error})", tries=3)
    if isinstance(error, (ConnectionEnd, ConnectionResetError, BrokenPipeError)):
        return _Unanswered("the server closed the connection without an answer")
    return _network_fault(error)


def _network_fault(error: OSError) -> RemoteFault:
    if isinstance(error, TIMEOUTS):
        return RemoteFault("nothing came in time", late=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return RemoteFault(f"its certificate is not trusted ({error.verify_message})", again=False)
    if isinstance(error, ssl.SSLError):
        return RemoteFault(f"TLS failed ({error.reason or type(error).__name__})")
    if isinstance(error, socket.gaierror):
        # A name that cannot be found is mostly misspelt, but name servers have bad moments too.
        return RemoteFault("the host's name cannot be resolved", tries=4, remedy="check the host's name, and the network")
    if isinstance(error, ConnectionRefusedError):
        remedy = "check the address and the port, and that the server is running"
        return RemoteFault(f"the connection failed ({error.strerror})", remedy=remedy)
    return RemoteFault(f"the connection failed ({error.strerror or type(error).__name__})")
