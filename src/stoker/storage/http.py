"""Files on HTTP servers, on the standard library's client: single attempts, every answer checked before a byte of it is used."""

from __future__ import annotations

import base64
import email.utils
import http.client
import re
import socket
import ssl
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, unquote_to_bytes, urljoin, urlsplit

from ..errors import ConfigError
from .blob import Stat
from .connections import Connections, Origin, pool_of, reach_of, silence, wire_of
from .names import printable
from .once import Once
from .reply import Reply
from .retry import Body, Fault, Patience, Remote, refused

MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
#: statuses with which servers refuse HEAD alone; a URL signed for GET is the usual reason for 403
_NO_HEAD = (403, 405, 501)
#: what may stand in a request line as it is; a percent sign is taken to begin an escape that is there already
_SAFE = "/%:@!$&'()*+,;=~-._"
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_PORTS = {"http": 80, "https": 443}
#: the rest of an unwanted answer is read, and its connection kept, when it is no longer than this
_DRAIN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart."""

    origin: Origin
    #: path and query, as they go into the request line
    path: str
    #: name and password before the host, as a header's value
    login: str | None
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
        if scheme not in _PORTS or not _HOST.fullmatch(host):
            raise ValueError("it names no host")
        path, query = quote(parts.path, safe=_SAFE) or "/", quote(parts.query, safe=_SAFE + "?")
        shown = f"[{host}]" if ":" in host else host
        told = f"{scheme}://{shown}{f':{port}' if port is not None else ''}{path}{'?…' if parts.query else ''}"
        login = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            login = "Basic " + base64.b64encode(pair.encode()).decode()
        origin = Origin(scheme, host, port if port is not None else _PORTS[scheme])
        return cls(origin, f"{path}?{query}" if query else path, login, told)

    def redirected(self, location: str | None) -> Target:
        """Where an answer sends us. Raises Fault where we do not go: to another scheme, but from http to https."""
        if not location:
            raise Fault("a redirect that does not say where to", again=False)
        scheme, host, port = self.origin
        try:
            url = urljoin(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{self.path}", location)
            named = urlsplit(url).scheme.lower()
            if named not in (scheme, "https"):
                raise Fault(f"a redirect from {scheme}: to {printable(named.encode())}: is not followed", again=False)
            target = Target.of(url)
        except ValueError as error:
            raise Fault(f"a redirect to a URL that cannot be used: {error}", again=False) from None
        return replace(target, login=self.login) if target.origin == self.origin and target.login is None else target


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
        self._landed: Target | None = None
        self._once = Once() if once is None else once

    def head(self, patience: Patience) -> Stat:
        answer = self._ask("HEAD", {}, patience)
        status, length = answer.status, _length(answer)
        answer.close()
        if status == 200 and length is not None and not _coded(answer):
            return Stat(length, _version(answer))
        if status not in (200, *_NO_HEAD):
            raise refused(status, after_s=_retry_after(answer))
        return self._head_by_get(patience)

    def get(self, start: int, stop: int, stat: Stat, patience: Patience) -> Body:
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        if stat.version.startswith('"'):  # a weak ETag matches nothing there
            headers["If-Match"] = stat.version
        elif _is_date(stat.version):
            headers["If-Unmodified-Since"] = stat.version
        answer = self._ask("GET", headers, patience)
        try:
            self._check(answer, start, stop, stat)
        except BaseException:
            answer.close()
            raise
        return answer

    def sibling(self, suffix: str) -> HttpRemote:
        parts = urlsplit(self.address)
        return HttpRemote(parts._replace(path=parts.path + quote(suffix), fragment="").geturl())

    def close(self) -> None:
        self._pools = {}  # the last file of an origin closes its connections

    def __reduce__(self) -> tuple[type[HttpRemote], tuple[str, Once]]:
        return HttpRemote, (self.address, self._once)

    def _head_by_get(self, patience: Patience) -> Stat:
        answer = self._ask("GET", {"Range": "bytes=0-0"}, patience)
        try:
            if answer.status not in (200, 206, 416):
                raise refused(answer.status, after_s=_retry_after(answer))
            if _coded(answer):
                raise _coded_fault(answer)
            size = _content_range(answer)[2] if answer.status != 200 else _length(answer)
            if size is None or (answer.status == 416 and size):
                raise Fault("the server does not tell how long the file is", again=False)
            return Stat(size, _version(answer))
        finally:
            answer.close()

    def _check(self, answer: _Answer, start: int, stop: int, stat: Stat) -> None:
        """Raise unless the answer holds the bytes asked for, of the very file asked for; then say where in the file it begins."""
        if answer.status == 416:
            size = _content_range(answer)[2]
            changed = size is not None and size != stat.size
            raise Fault(
                f"there are no such bytes, it has {size} now and had {stat.size}", status=416, again=False, changed=changed
            )
        if answer.status not in (200, 206):
            raise refused(answer.status, after_s=_retry_after(answer))
        if _coded(answer):
            raise _coded_fault(answer)
        if _is_another(answer, stat.version):
            raise Fault("its ETag or date is another now", status=answer.status, changed=True)
        if answer.status == 200:
            first, expected, size = 0, stat.size, _length(answer)
            if start:
                self._warn_no_ranges()
        else:
            begin, last, size = _content_range(answer)
            if begin != start or last is None or not start <= last < stop:
                raise Fault(f"bytes {begin} to {last} came for {start} to {stop - 1}", status=206, tries=3)
            first, expected = start, last + 1 - start
            if _length(answer) not in (None, expected):
                raise Fault(f"{_length(answer)} bytes announced for a range of {expected}", status=206, tries=3)
        if size is not None and size != stat.size:
            raise Fault(f"it has {size:,} bytes now, and had {stat.size:,}", status=answer.status, changed=True)
        answer.at, answer.left = first, expected

    def _warn_no_ranges(self) -> None:
        self._once.warn(
            "%s: the server cannot send a part of a file, so every read begins at byte 0 and throws away what it skips; "
            "read its files through a cache of whole shards, or from another server",
            self.url,
        )

    def _ask(self, method: str, headers: dict[str, str], patience: Patience) -> _Answer:
        """One question and its answer, redirects followed."""
        landed = self._landed
        if landed is not None:
            try:
                answer = self._ask_one(landed, method, headers, patience, None)
                if answer.status < 300 or answer.status in (412, 416):
                    return answer
                answer.close()
            except Fault:
                pass
            self._landed = None  # a signed URL expires, a mirror goes away: ask the one who sent us there
        target, reach = self._target, None
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._ask_one(target, method, headers, patience, reach)
            if answer.status not in _REDIRECTS:
                if target is not self._target and answer.status < 300:
                    self._landed = target
                return answer
            reach = reach or answer.reach()
            answer.close()
            target = target.redirected(answer.headers.get("location"))
        raise Fault(f"more than {MOST_REDIRECTS} redirects", status=answer.status, again=False)

    def _ask_one(self, target: Target, method: str, headers: dict[str, str], patience: Patience, reach: str | None) -> _Answer:
        """One request on one connection. `reach`: the kind of network a redirect came from, which it may not leave inwards."""
        pool = self._pools.get(target.origin)
        if pool is None:
            pool = self._pools[target.origin] = pool_of(target.origin)
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "stoker", **headers}
        if target.login is not None:
            headers["Authorization"] = target.login
        connection = pool.take_idle()
        if connection is not None:
            try:
                return _Answer(pool, connection, method, target, headers, patience, reach)
            except _Unanswered:
                pool.forget_idle()  # the server had closed it meanwhile; that says nothing about the request
        try:
            connection = pool.connect(patience.connect_s)
        except OSError as error:
            fault = _network_fault(error)
        else:
            return _Answer(pool, connection, method, target, headers, patience, reach)
        raise fault


def _request(method: str, target: Target, headers: dict[str, str]) -> bytes:
    """The bytes of a request. What goes into it was checked when it was made; this makes sure."""
    scheme, host, port = target.origin
    shown = f"[{host}]" if ":" in host else host
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {shown if port == _PORTS[scheme] else f'{shown}:{port}'}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise Fault("a header that would hold a line break", again=False)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Unanswered(Fault):
    """The connection ended before a byte of the answer came."""


class _Answer(Body):
    """The answer to one request: status and headers now, bytes as they are read. It owns its connection until it is closed."""

    at = 0
    #: bytes of it that are wanted and still to come; None: it was not accepted
    left: int | None = None

    def __init__(
        self,
        pool: Connections,
        connection: http.client.HTTPConnection,
        method: str,
        target: Target,
        headers: dict[str, str],
        patience: Patience,
        reach: str | None,
    ) -> None:
        self._pool, self._connection, self._head = pool, connection, method == "HEAD"
        self._response: Reply | None = None
        fault: Fault | None = None
        try:
            if reach is not None and (here := reach_of(connection)) not in ("public", reach):
                raise Fault(f"a redirect from a {reach} to a {here} address; if that is meant, give that URL itself", again=False)
            silence(connection, patience.silence_s)
            connection.sock.sendall(_request(method, target, headers))
            self._response = Reply(wire_of(connection), self._head)
        except Fault as error:
            fault = error
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            fault = _Unanswered("the server closed the connection without an answer")
        except http.client.HTTPException as error:
            fault = Fault(f"the answer is not HTTP ({type(error).__name__})", tries=3)
        except OSError as error:
            fault = _network_fault(error)
        except BaseException:
            connection.close()
            raise
        if fault is not None:
            connection.close()
            raise fault
        assert self._response is not None
        self.status = self._response.status
        self.headers = self._response.headers

    def reach(self) -> str:
        """The kind of network the answer came from."""
        return reach_of(self._connection)

    def readinto(self, view: memoryview) -> int:
        response = self._response
        if response is None or not self.left:
            return 0
        view, fault = view[: self.left], None
        try:
            count = response.readinto(view)
        except http.client.HTTPException as error:
            fault = Fault(f"the answer broke off ({type(error).__name__})")
        except OSError as error:
            fault = _network_fault(error)
        if fault is not None:
            raise fault
        self.at += count
        self.left -= count
        return count

    def close(self) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        if not response.will_close and self._is_read(response) and wire_of(self._connection).empty:
            self._pool.give_back(self._connection)
        else:
            self._connection.close()

    def _is_read(self, response: Reply) -> bool:
        """Whether the next byte of the connection would be the next answer's; reads what little is in the way."""
        if self.left is not None or response.chunked:
            return self.left == 0 and not response.chunked
        if self._head or not response.length:
            return True
        if response.length > _DRAIN_BYTES:
            return False
        rest = memoryview(bytearray(response.length))
        try:
            while response.length and response.readinto(rest):
                pass
        except (OSError, http.client.HTTPException):
            return False
        return not response.length


def _length(answer: _Answer) -> int | None:
    text = (answer.headers.get("content-length") or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


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


def _coded_fault(answer: _Answer) -> Fault:
    coding = printable((answer.headers.get("content-encoding") or "")[:40].encode())
    why = f"the server sends it with Content-Encoding {coding} though 'identity' was asked for; switch that off for this file"
    return Fault(why, status=answer.status, again=False)


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


def _network_fault(error: OSError) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Fault(f"its certificate is not trusted ({error.verify_message})", again=False)
    if isinstance(error, ssl.SSLError):
        return Fault(f"TLS failed ({error.reason or type(error).__name__})")
    if isinstance(error, TimeoutError):
        return Fault("nothing came in time")
    if isinstance(error, socket.gaierror):
        # A name that cannot be found is mostly misspelt, but name servers have bad moments too.
        return Fault("the host's name cannot be resolved", tries=4)
    return Fault(f"the connection failed ({error.strerror or type(error).__name__})")
