"""What servers may do, and how reading from them must end: the table of `test_hostile_server.py`.

A behaviour is mostly a few steps: bytes, which are sent, and functions of the connection (`slowly(...)`, `Peer.hang`). After the
last one the connection is closed.
"""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

from stoker.errors import CorruptShard, ReadError, RecordError, RemoteError, ShardChanged, SourceNotFound, StokerError
from stoker.kernel.records import crc32c, mask_crc

from .hostile import Behaviour, Peer, Request

#: the password in the URL, and its signature
SECRET = "s3cr3t-canary"
SAMPLES = {f"{number}": random.Random(number).randbytes(50_000) for number in range(4)}
Step = Union[bytes, Behaviour]
#: errors of which one must come; None: the samples must
Ends = Union[type[StokerError], tuple[type[StokerError], ...], None]


@dataclass(frozen=True)
class Case:
    """A behaviour, and how reading must end."""

    behave: Behaviour
    ends: Ends
    #: who reads
    client: str = "tar"
    scheme: str = "http"
    #: whose certificate the server has
    certificate: str | None = None
    #: whether it ends when we give up. If not, the end comes by itself and is certain, however slow the machine is
    tiring: bool = False


def ends_with(ends: Ends, behaviours: dict[str, Behaviour], **options: Any) -> dict[str, Case]:
    return {name: Case(behave, ends, **options) for name, behave in behaviours.items()}


def tires_us_out(behaviours: dict[str, Behaviour], ends: Ends = RemoteError, **options: Any) -> dict[str, Case]:
    return ends_with(ends, behaviours, tiring=True, **options)


# ---- what is said ------------------------------------------------------------------------------------------------------------


def tar_bytes(samples: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for key, data in samples.items():
            for name, content in ((f"{key}.bin", data), (f"{key}.txt", key.encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


SHARD = tar_bytes(SAMPLES)
SIZE = len(SHARD)
TERABYTE = 1 << 40


def head(status: str, *headers: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *headers, "")).encode("latin-1")


LENGTH, NO_BODY, CHUNKED = f"Content-Length: {SIZE}", "Content-Length: 0", "Transfer-Encoding: chunked"
#: headers that are to be continued
OPEN = head("200 OK")[:-2]


def part(*headers: str) -> bytes:
    return head("206 Partial Content", *headers)


def redirect(to: str) -> bytes:
    return head("302 Found", f"Location: {to}", NO_BODY)


def busy(after: str, *headers: str) -> bytes:
    return head("503 Unavailable", f"Retry-After: {after}", *headers, NO_BODY)


def chunks(data: bytes = SHARD, size: int = 1000) -> bytes:
    parts = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def proper(request: Request, data: bytes, *more: str) -> bytes:
    """What a good server says; there is no index."""
    if ".stk" in request.path:
        return head("404 Not Found", NO_BODY, *more)
    begin, end = request.span or (0, len(data) - 1)
    body = data[begin : end + 1]
    if request.span is None or request.method == "HEAD":
        answer = head("200 OK", f"Content-Length: {len(data)}", 'ETag: "1"', *more)
    else:
        span = f"Content-Range: bytes {begin}-{begin + len(body) - 1}/{len(data)}"
        answer = part(f"Content-Length: {len(body)}", span, 'ETag: "1"', *more)
    return answer if request.method == "HEAD" else answer + body


# ---- behaviours made of steps ------------------------------------------------------------------------------------------------


def slowly(data: bytes) -> Behaviour:
    """A step that sends these bytes again and again, one at a time."""
    return lambda peer: peer.drip_endlessly(data)


def endlessly(data: bytes) -> Behaviour:
    """A step that sends these bytes again and again, fast."""
    return lambda peer: peer.pour_endlessly(data)


def at_once(*steps: Step) -> Behaviour:
    """Do this without waiting for a request."""

    def behave(peer: Peer) -> None:
        for step in steps:
            if isinstance(step, bytes):
                peer.send(step)
            else:
                step(peer)

    return behave


def to_all(*steps: Step) -> Behaviour:
    """Do this to whoever asks for anything."""
    return at_once(Peer.request, *steps)


def asked_for_bytes(peer: Peer) -> Request:
    """Behave well until the bytes of the shard are asked for."""
    while not (request := peer.request()).is_for_bytes:
        peer.send(proper(request, peer.data))
    return request


def to_bytes(*steps: Step) -> Behaviour:
    """Behave well until the bytes of the shard are asked for, then do this."""
    return at_once(asked_for_bytes, *steps)


def asked_for_index(peer: Peer) -> Request:
    while ".stk" not in (request := peer.request()).path:
        peer.send(proper(request, peer.data))
    return request


def to_get(*steps: Step) -> Behaviour:
    """Refuse HEAD, then do this."""

    def refuse_head(peer: Peer) -> None:
        while peer.request().method == "HEAD":
            peer.send(head("405 Method Not Allowed", NO_BODY))

    return at_once(refuse_head, *steps)


def always(answer: Callable[[Request, bytes], bytes]) -> Behaviour:
    """Answer every request so: the function is given the request and the server's data."""

    def behave(peer: Peer) -> None:
        while True:
            peer.send(answer(peer.request(), peer.data))

    return behave


def answer_and_close(peer: Peer) -> None:
    peer.send(proper(peer.request(), peer.data))


WELL = always(proper)

# ---- connections, status and headers -----------------------------------------------------------------------------------------

CONNECTIONS = {
    **tires_us_out(
        {
            "closes at once": at_once(),
            "resets at once": at_once(Peer.reset),
            "accepts and never reads": at_once(Peer.wait_for_stop),
            "reads and never answers": at_once(Peer.hang),
            "closes after the request": to_all(),
            "resets after the request": to_all(Peer.reset),
            "resets in the middle of every answer": to_bytes(head("200 OK", LENGTH), SHARD[:500], Peer.reset),
        },
    ),
    **ends_with(
        None,
        {
            "closes after every answer without saying so": answer_and_close,
            "says that it closes and stays": lambda peer: (
                peer.send(proper(peer.request(), peer.data, "Connection: close")),
                peer.hang(),
            ),
        },
    ),
}

SLOW = tires_us_out(
    {
        "status line byte by byte": to_all(b"HTTP/1.1 200 ", slowly(b"O")),
        "header byte by byte": to_all(OPEN, b"X-Slow: ", slowly(b"o")),
        "one header after the other slowly": to_all(OPEN, slowly(b"A:\r\n")),
        "endless 100 Continue byte by byte": to_all(slowly(head("100 Continue"))),
    },
)
ENDLESS = ends_with(
    RemoteError,
    {
        "endless headers": to_all(OPEN, endlessly(b"X-More: of it\r\n" * 50)),
        "headers of a megabyte each": to_all(OPEN, endlessly(b"X-More: " + b"o" * (1 << 20) + b"\r\n")),
        "one endless header line": to_all(OPEN, b"X-Long: ", endlessly(b"o" * 4096)),
        "one endless status line": to_all(b"HTTP/1.1 200 ", endlessly(b"O" * 4096)),
        "endless 100 Continue": to_all(endlessly(head("100 Continue"))),
        "endless 102": to_all(endlessly(head("102 Processing"))),
        "endless 103": to_all(endlessly(head("103 Early Hints"))),
    },
)
BEFORE_THE_ANSWER = ends_with(
    None,
    {
        "100 Continue before every answer": always(lambda request, data: head("100 Continue") + proper(request, data)),
        "103 before every answer": always(lambda request, data: head("103 Early Hints", "X-Hint: wait") + proper(request, data)),
    },
)

ANSWERS = {
    # what is not HTTP/1
    "garbage": bytes(range(128, 256)) * 4,
    "a line end": b"\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/2": b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64\0\4\0\xa0\0\0\0\5\0\xff\xff\xff",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": SHARD,
    "HTTP/9.9": head("200 OK", LENGTH).replace(b"1.1", b"9.9"),
    "http/1.1 in lower case": head("200 OK", LENGTH).replace(b"HTTP", b"http"),
    # statuses
    "status 0": head("000 OK", LENGTH),
    "status 99": head("99 OK", LENGTH),
    "status 2000": head("2000 OK", LENGTH),
    "status -200": head("-200 OK", LENGTH),
    "status abc": head("abc", LENGTH),
    "status without a number": b"HTTP/1.1\r\n\r\n",
    "101": head("101 Switching Protocols", "Upgrade: h2c", "Connection: Upgrade"),
    "204": head("204 No Content"),
    "300": head("300 Multiple Choices", NO_BODY),
    "304": head("304 Not Modified"),
    "401": head("401 Unauthorized", "WWW-Authenticate: Basic", NO_BODY),
    "403": head("403 Forbidden", NO_BODY),
    "407": head("407 Proxy Authentication Required", NO_BODY),
    # headers
    "a space in the name of a header": head("200 OK", "Content Length: 5", LENGTH),
    "a space after the name of a header": head("200 OK", f"Content-Length : {SIZE}"),
    "a header without a name": head("200 OK", ": of nothing", LENGTH),
    "a header without a colon": head("200 OK", "of nothing", LENGTH),
    "a folded header": head("200 OK", "X-Long: one", " two", LENGTH),
    "a NUL in the name of a header": head("200 OK", "X-\0: nothing", LENGTH),
    "a NUL in a header": head("200 OK", LENGTH, "X-Nul: \0"),
    "an ETag with half a line end": head("200 OK", LENGTH, 'ETag: "1\rX-Injected: 1"'),
    "headers that end early": head("200 OK", LENGTH)[:-2],
    "gzip that nobody asked for": head("200 OK", LENGTH, "Content-Encoding: gzip"),
    "a coding nobody knows": head("200 OK", LENGTH, "Content-Encoding: \x1b[31mred"),
    # lengths
    "no length": head("200 OK"),
    "a length below 0": head("200 OK", "Content-Length: -5"),
    "a length with a sign": head("200 OK", f"Content-Length: +{SIZE}"),
    "a length that is not a number": head("200 OK", "Content-Length: many"),
    "a length with an exponent": head("200 OK", "Content-Length: 1e5"),
    "a length of other digits": head("200 OK", "Content-Length: \xb2"),
    "a length of a thousand digits": head("200 OK", "Content-Length: " + "9" * 1000),
    "two lengths that differ": head("200 OK", LENGTH, "Content-Length: 5"),
    "two lengths in one": head("200 OK", "Content-Length: 5, 6"),
    # redirects
    "a redirect to ftp": redirect("ftp://127.0.0.1/a.tar"),
    "a redirect to a file": redirect("file:///etc/passwd"),
    "a redirect to a program": redirect("javascript:alert(1)"),
    "a redirect to data": redirect("data:,hello"),
    "a redirect to nowhere": head("302 Found", NO_BODY),
    "a redirect to no host": redirect("http:///a.tar"),
    "a redirect to no port": redirect("http://127.0.0.1:99999/a.tar"),
    "a redirect to half an address": redirect("http://[::1/a.tar"),
    "a redirect with control characters": redirect("/a\x01\tb\x7f.tar"),
    "a redirect to a path of 60,000 characters": redirect("/" + "a" * 60_000),
}
TRY_AGAIN = {
    "status 600": head("600 OK", LENGTH),
    "503 for a billion seconds": busy("1000000000"),
    "503 for a number of a thousand digits": busy("9" * 1000),
    "503 for less than no time": busy("-1"),
    "503 until a day far away": busy("Fri, 31 Dec 9999 23:59:59 GMT", "Date: Thu, 01 Jan 1970 00:00:00 GMT"),
    "503 until a day that does not exist": busy("Fri, 99 Foo 0000"),
    "503 until later": busy("later"),
    "a length of a terabyte": head("200 OK", f"Content-Length: {TERABYTE}"),
    "a length of eight exabytes": head("200 OK", f"Content-Length: {(1 << 63) - 1}"),
    "a redirect to a port nobody listens on": redirect("http://127.0.0.1:1/"),
}
REFUSALS = {
    "404": head("404 Not Found", NO_BODY),
    "404 without a length": head("404 Not Found"),
    "404 with the same length twice": head("404 Not Found", NO_BODY, NO_BODY),
    "410": head("410 Gone", NO_BODY),
}
HEADERS = {
    **CONNECTIONS,
    **SLOW,
    **ENDLESS,
    **BEFORE_THE_ANSWER,
    **ends_with(RemoteError, {name: to_all(answer) for name, answer in ANSWERS.items()}),
    **tires_us_out({name: to_all(answer) for name, answer in TRY_AGAIN.items()}),
    **ends_with(SourceNotFound, {name: to_all(answer) for name, answer in REFUSALS.items()}),
}

# ---- redirects, and bodies nobody wants --------------------------------------------------------------------------------------


def to_another_host(peer: Peer) -> None:
    port = peer.connection.getsockname()[1]
    while True:
        request = peer.request()
        sent_on = request.is_for_bytes and request.headers["host"].startswith("127.0.0.1")
        peer.send(redirect(f"http://localhost:{port}/landed") if sent_on else proper(request, peer.data))


def to_tls_on_the_same_port(peer: Peer) -> None:
    peer.request()
    peer.send(redirect(f"https://127.0.0.1:{peer.connection.getsockname()[1]}/"))


def redirected(*steps: Step) -> Behaviour:
    """Send whoever asks for bytes to another path of the same server; the headers announce a body, and these steps follow."""

    def behave(peer: Peer) -> None:
        while not (request := peer.request()).is_for_bytes or request.path.startswith("/landed"):
            peer.send(proper(request, peer.data))
        at_once(head("302 Found", "Location: /landed", "Content-Length: 4096"), *steps)(peer)

    return behave


REDIRECTS = {
    **ends_with(
        RemoteError,
        {
            "a redirect to itself": always(lambda request, _: redirect(request.path)),
            "redirects in a circle": always(lambda request, _: redirect(f"/{request.number % 2}")),
            "redirects without end": always(lambda request, _: redirect(f"/{request.number}")),
        },
    ),
    **tires_us_out({"a redirect to TLS on the same port": to_tls_on_the_same_port}),
    **ends_with(
        None,
        {
            "a redirect to another host": to_another_host,
            "a redirect whose body comes byte by byte": redirected(slowly(b"<")),
            "a redirect whose body never comes": redirected(Peer.hang),
            "a redirect whose body is cut": redirected(),
        },
    ),
}

ERROR_BODIES = {
    **ends_with(
        SourceNotFound,
        {
            "404 byte by byte": to_get(head("404 Not Found", "Content-Length: 4096"), slowly(b"<")),
            "404 whose body never comes": to_get(head("404 Not Found", "Content-Length: 4096"), Peer.hang),
            "an endless 404": to_get(head("404 Not Found"), endlessly(b"<" * 4096)),
            "an endless 404 in chunks": to_get(head("404 Not Found", CHUNKED), endlessly(b"4\r\n<<<<\r\n")),
        },
    ),
    **ends_with(RemoteError, {"403 byte by byte": to_get(head("403 Forbidden", "Content-Length: 4096"), slowly(b"<"))}),
    **tires_us_out(
        {
            "500 byte by byte": to_get(head("500 Server Error", "Content-Length: 4096"), slowly(b"<")),
            "500 whose body never comes": to_get(head("500 Server Error", "Content-Length: 4096"), Peer.hang),
        },
    ),
}

# ---- the bytes of the shard --------------------------------------------------------------------------------------------------

OK, IN_CHUNKS = head("200 OK", LENGTH), head("200 OK", CHUNKED)
WHOLE = f"Content-Range: bytes 0-{SIZE - 1}/{SIZE}"
PARTS = f"--b\r\n{WHOLE}\r\n\r\n".encode() + SHARD + b"\r\n--b--\r\n"
LAST_CHUNK = b"0\r\n\r\n"

REFUSED_BODIES = {
    "gzip for bytes": (head("200 OK", LENGTH, "Content-Encoding: gzip"), SHARD),
    "204 for bytes": (head("204 No Content"),),
    "two lengths that differ for bytes": (head("200 OK", LENGTH, "Content-Length: 5"), SHARD),
    "chunks in gzip": (head("200 OK", "Transfer-Encoding: gzip, chunked"), chunks(gzip.compress(SHARD)), LAST_CHUNK),
    "a transfer coding nobody knows": (head("200 OK", "Transfer-Encoding: rot13"), SHARD),
    "206 without a range": (part(LENGTH), SHARD),
    "206 of other bytes": (part(LENGTH, f"Content-Range: bytes 1-{SIZE}/{SIZE}"), SHARD),
    "206 of a range of words": (part(LENGTH, "Content-Range: bytes all/all"), SHARD),
    "206 that ends before it begins": (part(LENGTH, f"Content-Range: bytes 0--5/{SIZE}"), SHARD),
    "206 of another length than its range": (part("Content-Length: 5", WHOLE), SHARD[:5]),
    "multipart/byteranges": (part("Content-Type: multipart/byteranges; boundary=b"), PARTS),
}
BAD_BODIES = {
    "a short body": (OK, SHARD[:1000]),
    "no body": (OK,),
    "a body without a length that is cut": (head("200 OK"), SHARD[:1000]),
    "a body byte by byte": (OK, lambda peer: peer.drip(SHARD)),
    "silence after the headers": (OK, Peer.hang),
    "silence in the middle": (OK, SHARD[:100_000], Peer.hang),
    "no ranges and every answer cut at 70000 bytes": (OK, SHARD[:70_000]),
    # chunks
    "chunks that end early": (IN_CHUNKS, chunks(SHARD[:1000]), LAST_CHUNK),
    "chunks that are cut": (IN_CHUNKS, b"3e8\r\n", SHARD[:500]),
    "chunks of a byte slowly": (IN_CHUNKS, lambda peer: peer.drip(chunks(size=1))),
    "a chunk of -1": (IN_CHUNKS, b"-1\r\n", SHARD),
    "a chunk of 2**64": (IN_CHUNKS, b"10000000000000000\r\n", SHARD),
    "a chunk of 2**60": (IN_CHUNKS, b"fffffffffffffff\r\n", SHARD[:1000]),
    "a chunk whose size has an underscore": (IN_CHUNKS, b"3_4800\r\n", SHARD),
    "a chunk whose size has a prefix": (IN_CHUNKS, b"0x34800\r\n", SHARD),
    "a chunk without a size": (IN_CHUNKS, b"\r\n", SHARD),
    "a chunk that is longer than it says": (IN_CHUNKS, b"3e8\r\n", SHARD, b"\r\n", LAST_CHUNK),
    "a chunk line byte by byte": (IN_CHUNKS, slowly(b"0")),
    "a chunk extension byte by byte": (IN_CHUNKS, b"3e8;", slowly(b"x")),
    "an endless chunk extension": (IN_CHUNKS, b"3e8;", endlessly(b"x" * 4096)),
    "the end of a chunk byte by byte": (IN_CHUNKS, b"3e8\r\n", SHARD[:1000], slowly(b" ")),
    "silence instead of a chunk": (IN_CHUNKS, Peer.hang),
    "silence within a chunk": (IN_CHUNKS, b"3e8\r\n", SHARD[:10], Peer.hang),
    "silence after a chunk": (IN_CHUNKS, b"3e8\r\n", SHARD[:1000], Peer.hang),
    "206 of a single byte": (part("Content-Length: 1", f"Content-Range: bytes 0-0/{SIZE}"), SHARD[:1]),
}
CHANGES = {
    "another length than HEAD said": (head("200 OK", "Content-Length: 5"), SHARD[:5]),
    "a range of a longer file": (part(LENGTH, f"Content-Range: bytes 0-{SIZE - 1}/{TERABYTE}"), SHARD),
    "412 for bytes": (head("412 Precondition Failed", NO_BODY),),
    "416 of a shorter file": (head("416 Range Not Satisfiable", "Content-Range: bytes */5", NO_BODY),),
}
ODD_BODIES = {
    "bytes without a length": (head("200 OK"), SHARD),
    "more bytes than it says": (OK, SHARD, b"and more" * 1000),
    "a second answer nobody asked for": (OK, SHARD, OK, bytes(SIZE)),
    "two lengths that agree": (head("200 OK", LENGTH, LENGTH), SHARD),
    "bare line feeds": (OK.replace(b"\r\n", b"\n"), SHARD),
    "HTTP/1.0": (OK.replace(b"1.1", b"1.0"), SHARD),
    "chunks of seven bytes": (IN_CHUNKS, chunks(size=7), LAST_CHUNK),
    "chunks and a length": (head("200 OK", CHUNKED, LENGTH), chunks(), LAST_CHUNK),
    "chunks and a wrong length": (head("200 OK", CHUNKED, "Content-Length: 5"), chunks(), LAST_CHUNK),
    "endless trailers": (IN_CHUNKS, chunks(), b"0\r\n", endlessly(b"X-More: of it\r\n")),
    "trailers byte by byte": (IN_CHUNKS, chunks(), b"0\r\n", slowly(b"x")),
}


def cut_a_little_later_each_time(peer: Peer) -> None:
    request = asked_for_bytes(peer)
    peer.send(OK, SHARD[: 20_000 * request.number])


BODIES = {
    **ends_with(RemoteError, {name: to_bytes(*steps) for name, steps in REFUSED_BODIES.items()}),
    **tires_us_out({name: to_bytes(*steps) for name, steps in BAD_BODIES.items()}),
    **ends_with(ShardChanged, {name: to_bytes(*steps) for name, steps in CHANGES.items()}),
    **ends_with(None, {name: to_bytes(*steps) for name, steps in ODD_BODIES.items()}),
    **ends_with(None, {"no ranges and every answer cut a little later": cut_a_little_later_each_time}),
}

# ---- versions and sizes ------------------------------------------------------------------------------------------------------


def another_version(request: Request, data: bytes) -> bytes:
    return proper(request, data).replace(b'"1"', b'"%d"' % (request.number + 10))


def poisoned_head(request: Request, data: bytes) -> bytes:
    """HEAD's answer, and at once what looks like the answer to the next request."""
    more = head("200 OK", LENGTH, 'ETag: "1"') + bytes(SIZE) if request.method == "HEAD" else b""
    return proper(request, data) + more


PAGE = b"<!doctype html><title>no such file</title>".ljust(5000)


def page_as_index(request: Request, data: bytes) -> bytes:
    if ".stk" not in request.path:
        return proper(request, data)
    return proper(Request(request.method, "/", request.headers, request.number), PAGE)


def get_works(peer: Peer) -> None:
    while (request := peer.request()).method == "GET":
        peer.send(proper(request, peer.data))
    peer.hang()


def zeros(peer: Peer) -> None:
    request = peer.request()
    peer.send(head("200 OK"))
    if request.method == "GET":
        peer.pour_endlessly(bytes(4096))


def silence_once_open(peer: Peer) -> None:
    while (request := asked_for_bytes(peer)).span == (0, len(peer.data) - 1):
        peer.send(proper(request, peer.data))
    peer.hang()


def zeros_once_open(request: Request, data: bytes) -> bytes:
    is_whole = not request.is_for_bytes or request.span == (0, len(data) - 1)
    return proper(request, data if is_whole else bytes(len(data)))


def huge_index(peer: Peer) -> None:
    while asked_for_index(peer).method == "HEAD":
        peer.send(head("200 OK", f"Content-Length: {TERABYTE}"))
    peer.send(head("200 OK", f"Content-Length: {TERABYTE}"))
    peer.hang()


def terabyte_of(begin: bytes) -> Behaviour:
    """A shard of a terabyte that begins so; then nothing comes."""

    def behave(peer: Peer) -> None:
        while not (request := peer.request()).is_for_bytes:
            peer.send(proper(request, b"") if ".stk" in request.path else head("200 OK", f"Content-Length: {TERABYTE}"))
        peer.send(head("200 OK", f"Content-Length: {TERABYTE}"), begin)
        peer.hang()

    return behave


def huge_member() -> bytes:
    member = tarfile.TarInfo("0.bin")
    member.size = TERABYTE // 2
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(4096)


def huge_record() -> bytes:
    length = (TERABYTE // 2).to_bytes(8, "little")
    return length + int(mask_crc(crc32c(length))).to_bytes(4, "little") + bytes(4096)


TOO_MUCH: Ends = (CorruptShard, RemoteError)
FILES = {
    **ends_with(RemoteError, {"zeros for ever without a length": zeros}),
    **tires_us_out(
        {
            "HEAD that hangs where GET works": get_works,
            "an index that never comes": at_once(asked_for_index, Peer.hang),
        },
    ),
    **ends_with(
        None,
        {
            "HEAD that has a body": always(lambda request, data: proper(request, data) + b"x" * (request.method == "HEAD")),
            "an answer to HEAD with another after it": always(poisoned_head),
            "an index that is a page": always(page_as_index),
        },
    ),
    **ends_with(ShardChanged, {"an ETag that is another every time": always(another_version)}),
    **ends_with(CorruptShard, {"a page instead of the shard": always(lambda request, _: proper(request, PAGE))}),
    **ends_with(RecordError, {"other bytes once it is open": always(zeros_once_open)}, client="tar records"),
    **tires_us_out({"silence once it is open": silence_once_open}, (RemoteError, ReadError), client="tfrecord records"),
    **tires_us_out({"a member of half a terabyte": terabyte_of(huge_member()), "an index of a terabyte": huge_index}, TOO_MUCH),
    **tires_us_out({"a member of half a terabyte in sequence": terabyte_of(huge_member())}, TOO_MUCH, client="sequence"),
    **tires_us_out({"a record of half a terabyte": terabyte_of(huge_record())}, TOO_MUCH, client="tfrecord"),
}

# ---- other clients -----------------------------------------------------------------------------------------------------------


def silent_in_the_middle(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(head("200 OK", f"Content-Length: {len(peer.data)}"), peer.data[:100_000])
    peer.hang()


CLIENTS = {
    name: case
    for client in ("sequence", "gzip", "cache", "tfrecord")
    for name, case in {
        f"nothing wrong with {client}": Case(WELL, None, client),
        f"silence in the middle of {client}": Case(silent_in_the_middle, RemoteError, client, tiring=True),
    }.items()
}

# ---- TLS ---------------------------------------------------------------------------------------------------------------------

TLS = {
    **tires_us_out(
        {
            "plain text where TLS is expected": at_once(head("200 OK", LENGTH), Peer.hang),
            "TLS that never answers": at_once(Peer.hang),
            # a record of 16 KiB, which is looked at when it is whole
            "TLS byte by byte": at_once(b"\x16\x03\x03\x40\x00", slowly(b"\x02")),
            "TLS that only warns": at_once(endlessly(b"\x15\x03\x03\x00\x02\x01\x5a")),
        },
        scheme="https",
    ),
    **tires_us_out(
        {
            "TLS and a header byte by byte": to_all(OPEN, b"X-Slow: ", slowly(b"o")),
            "TLS and a body byte by byte": to_bytes(*BAD_BODIES["a body byte by byte"]),
        },
        scheme="https",
        certificate="trusted",
    ),
    "TLS nobody vouches for": Case(WELL, RemoteError, scheme="https", certificate="of a stranger"),
    "a redirect from TLS to plain text": Case(
        to_all(redirect("http://127.0.0.1:1/")), RemoteError, scheme="https", certificate="trusted"
    ),
    "TLS that ends without a word": Case(answer_and_close, None, scheme="https", certificate="trusted"),
}

# ---- secrets -----------------------------------------------------------------------------------------------------------------


def echo(answer: str, wait: Callable[[Peer], Request] = Peer.request) -> Behaviour:
    """Say what the request held: ``{word}`` is the password, ``{line}`` the path with the query, and Authorization."""

    def behave(peer: Peer) -> None:
        request = wait(peer)
        line = f"{request.path} {request.headers.get('authorization')}"
        peer.send(answer.format(word=SECRET, line=line).encode("latin-1"))

    return behave


def echo_for_bytes(answer: str) -> Behaviour:
    return echo(answer, asked_for_bytes)


NOTHING = f"{NO_BODY}\r\n\r\n"
FOUND = "HTTP/1.1 302 Found\r\nLocation:"
ECHOES = {
    **tires_us_out(
        {
            "an echo as the time to wait": echo("HTTP/1.1 503 No\r\nRetry-After: {line}\r\n" + NOTHING),
            "an echo as the user of a redirect": echo(f"{FOUND} http://{{word}}@127.0.0.1:1/{{word}}\r\n{NOTHING}"),
            "an echo as a chunk": echo_for_bytes(f"HTTP/1.1 200 OK\r\n{CHUNKED}\r\n\r\n{{line}}\r\n\r\n"),
        },
    ),
    **ends_with(
        RemoteError,
        {
            "an echo instead of an answer": echo("{line}\r\n\r\n"),
            "an echo as the status": echo("HTTP/1.1 {line}\r\n\r\n"),
            "an echo as the reason": echo("HTTP/1.1 403 {line}\r\n" + NOTHING),
            "an echo as a header without a name": echo("HTTP/1.1 200 OK\r\n{line}\r\n" + NOTHING),
            "an echo as the coding": echo("HTTP/1.1 200 OK\r\nContent-Encoding: {word}\r\n" + NOTHING),
            "an echo as the transfer coding": echo("HTTP/1.1 200 OK\r\nTransfer-Encoding: {word}\r\n\r\n"),
            "an echo as the length": echo("HTTP/1.1 200 OK\r\nContent-Length: {word}\r\n\r\n"),
            "an echo as one of two lengths": echo("HTTP/1.1 200 OK\r\nContent-Length: {word}\r\n" + NOTHING),
            "an echo as the challenge": echo("HTTP/1.1 401 No\r\nWWW-Authenticate: {line}\r\n" + NOTHING),
            "an echo as the scheme of a redirect": echo(f"{FOUND} {{word}}://127.0.0.1/\r\n{NOTHING}"),
            "an echo as the port of a redirect": echo(f"{FOUND} http://127.0.0.1:{{word}}/\r\n{NOTHING}"),
            "an echo as the path of a redirect": echo(f"{FOUND} /{{word}}\r\n{NOTHING}"),
            "an echo as a wrong redirect": echo(f"{FOUND} http://[{{word}}\r\n{NOTHING}"),
            "an echo as the range": echo_for_bytes("HTTP/1.1 206 OK\r\nContent-Range: bytes {word}/{word}\r\n" + NOTHING),
            "an echo as the reason for no bytes": echo_for_bytes("HTTP/1.1 403 {line}\r\n" + NOTHING),
        },
    ),
    **ends_with(
        ShardChanged,
        {
            "an echo as the ETag": echo_for_bytes('HTTP/1.1 200 OK\r\nETag: "{line}"\r\n' + NOTHING),
            "an echo as the reason of a change": echo_for_bytes("HTTP/1.1 412 {line}\r\n" + NOTHING),
        },
    ),
}

CASES: dict[str, Case] = {
    **HEADERS, **REDIRECTS, **ERROR_BODIES, **BODIES, **FILES, **CLIENTS, **TLS, **ECHOES
}  # fmt: skip
