"""Servers that misbehave on purpose: whatever they do, reading ends in time, with the right samples or with the URL named.

Each behaviour is a server of its own (`hostile.py`), read through the public functions, all of them at once. Its table entry
says how it must end: with the samples, or with an error of that class. The clients' patience follows from that. Where a server
makes us wait, giving up is a `RemoteError`, and waiting is short; every other end is certain however slow the machine is, so
there waiting is long. A client that has not ended after `DEADLINE_S` never would.

URLs have a password and a signature. Neither may be found in an error, in its traceback, or in the log.
"""

from __future__ import annotations

import base64
import gc
import gzip
import io
import logging
import random
import resource
import ssl
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Union

import pytest

import stoker
from stoker.errors import CorruptShard, ReadError, RecordError, RemoteError, ShardChanged, SourceNotFound, StokerError
from stoker.kernel.records import crc32c, mask_crc

from ..storage.conftest import open_files
from ..storage.tls import self_signed
from .hostile import Behaviour, Hostile, Peer, Request

#: how long any of them may take, from the start of all
DEADLINE_S = 60.0
#: for servers that make us wait: then giving up is what they get
HASTY = stoker.Patience(
    connect_s=1, silence_s=0.4, least_bytes_per_s=4000, rate_window_s=0.5, first_delay_s=0.05, longest_delay_s=0.2,
    longest_retry_after_s=0.2, budget_s=1.5,
)  # fmt: skip
#: for all others: no time ends here that a busy machine could take
PATIENT = stoker.Patience(
    connect_s=50, silence_s=50, rate_window_s=50, first_delay_s=0.01, longest_delay_s=0.02, longest_retry_after_s=0.02,
    budget_s=50,
)  # fmt: skip
SECRET = "s3cr3t-canary"
LOGIN = base64.b64encode(f"reader:{SECRET}".encode()).decode()
SAMPLES = {f"{number}": random.Random(number).randbytes(50_000) for number in range(4)}
Ends = Union[type[StokerError], tuple[type[StokerError], ...], None]


# ---- clients -----------------------------------------------------------------------------------------------------------------


def samples_of(pipeline: stoker.Pipeline) -> dict[str, bytes]:
    with pipeline.batch(1).loader(executor="inline") as loader:
        return {key: bytes(data) for batch in loader for key, data in zip(batch["txt"], batch["bin"])}


def read_tar(url: str, patience: stoker.Patience, **options: Any) -> dict[str, bytes]:
    return samples_of(stoker.tar(url, patience=patience, **options))


def read_in_sequence(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    return read_tar(url, patience, index="never")


def read_tfrecord(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    return samples_of(stoker.tfrecord(url, {"txt": str, "bin": bytes}, patience=patience))


def read_through_a_cache(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder, closing(stoker.Cache(folder, limit="10MB")) as cache:
        return read_tar(url, patience, cache=cache)


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
#: ending of the URL, and who reads it
CLIENTS: dict[str, tuple[str, Callable[[str, stoker.Patience], dict[str, bytes]]]] = {
    "tar": ("tar", read_tar),
    "sequence": ("tar", read_in_sequence),
    "gzip": ("tar.gz", read_tar),
    "cache": ("tar", read_through_a_cache),
    "tfrecord": ("tfrecord", read_tfrecord),
}


# ---- what is said ------------------------------------------------------------------------------------------------------------


def head(status: str, *headers: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *headers, "")).encode("latin-1")


def proper(request: Request, data: bytes, *more: str) -> bytes:
    """What a good server says; there is no index."""
    if ".stk" in request.path:
        return head("404 Not Found", "Content-Length: 0", *more)
    begin, end = request.span or (0, len(data) - 1)
    body = data[begin : end + 1]
    if request.span is None or request.method == "HEAD":
        answer = head("200 OK", f"Content-Length: {len(data)}", 'ETag: "1"', *more)
    else:
        span = f"Content-Range: bytes {begin}-{begin + len(body) - 1}/{len(data)}"
        answer = head("206 Partial Content", f"Content-Length: {len(body)}", span, 'ETag: "1"', *more)
    return answer if request.method == "HEAD" else answer + body


def behave_well(peer: Peer) -> None:
    while True:
        peer.send(proper(peer.request(), peer.data))


def asked_for_bytes(peer: Peer) -> Request:
    """Behave well until the bytes of the shard are asked for."""
    while not (request := peer.request()).is_for_bytes:
        peer.send(proper(request, peer.data))
    return request


def chunked(data: bytes, size: int = 1000) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield b"%x\r\n%s\r\n" % (len(data[at : at + size]), data[at : at + size])


# ---- the table ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A behaviour, and how it must end."""

    behave: Behaviour
    #: the error; None: the samples
    ends: Ends
    client: str = "tar"
    scheme: str = "http"
    #: whose certificate the server has
    certificate: str | None = None

    @property
    def patience(self) -> stoker.Patience:
        ends = self.ends if isinstance(self.ends, tuple) else (self.ends,)
        return HASTY if RemoteError in ends else PATIENT


CASES: dict[str, Case] = {}


def case(ends: Ends, **options: Any) -> Callable[[Behaviour], Behaviour]:
    def add(behave: Behaviour) -> Behaviour:
        CASES[behave.__name__.replace("_", " ")] = Case(behave, ends, **options)
        return behave

    return add


def cases(ends: Ends, behave: Callable[[Any, Peer], None], table: dict[str, Any], **options: Any) -> None:
    for name, what in table.items():
        CASES[name] = Case(partial(behave, what), ends, **options)


SLOWLY = partial(Peer.drip_endlessly, data=b"<")


# -- connections


@case(RemoteError)
def closes_at_once(peer: Peer) -> None:
    pass


@case(RemoteError)
def resets_at_once(peer: Peer) -> None:
    peer.reset()


@case(RemoteError)
def accepts_and_never_reads(peer: Peer) -> None:
    peer.wait_for_stop()


@case(RemoteError)
def reads_and_never_answers(peer: Peer) -> None:
    peer.hang()


@case(RemoteError)
def closes_after_the_request(peer: Peer) -> None:
    peer.request()


@case(RemoteError)
def resets_after_the_request(peer: Peer) -> None:
    peer.request()
    peer.reset()


@case(RemoteError)
def resets_in_the_middle_of_every_answer(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(head("200 OK", f"Content-Length: {len(SHARD)}"), SHARD[:500])
    peer.reset()


@case(None)
def closes_the_connection_after_every_answer_without_saying_so(peer: Peer) -> None:
    peer.send(proper(peer.request(), peer.data))


@case(None)
def says_that_it_closes_and_stays(peer: Peer) -> None:
    peer.send(proper(peer.request(), peer.data, "Connection: close"))
    peer.hang()


# -- status and headers, slowly or for ever


@case(RemoteError)
def status_line_byte_by_byte(peer: Peer) -> None:
    peer.request()
    peer.drip(b"HTTP/1.1 200 ")
    peer.drip_endlessly(b"O")


@case(RemoteError)
def header_byte_by_byte(peer: Peer) -> None:
    peer.request()
    peer.drip(head("200 OK")[:-2] + b"X-Slow: ")
    peer.drip_endlessly(b"o")


@case(RemoteError)
def one_header_after_the_other_slowly(peer: Peer) -> None:
    peer.request()
    peer.send(head("200 OK")[:-2])
    peer.drip_endlessly(b"A:\r\n")


@case(RemoteError)
def endless_headers(peer: Peer) -> None:
    peer.request()
    peer.send(head("200 OK")[:-2])
    peer.pour_endlessly(b"X-More: of it\r\n")


@case(RemoteError)
def headers_of_a_megabyte_each(peer: Peer) -> None:
    peer.request()
    peer.send(head("200 OK")[:-2])
    peer.pour_endlessly(b"X-More: " + b"o" * (1 << 20) + b"\r\n")


@case(RemoteError)
def one_endless_header_line(peer: Peer) -> None:
    peer.request()
    peer.send(head("200 OK")[:-2], "X-Long: ")
    peer.pour_endlessly(b"o" * 4096)


@case(RemoteError)
def one_endless_status_line(peer: Peer) -> None:
    peer.request()
    peer.send("HTTP/1.1 200 ")
    peer.pour_endlessly(b"O" * 4096)


def informs_endlessly(status: str, peer: Peer) -> None:
    peer.request()
    peer.pour_endlessly(head(status))


def informs_slowly(status: str, peer: Peer) -> None:
    peer.request()
    peer.drip_endlessly(head(status))


def informs_once(status: str, peer: Peer) -> None:
    while True:
        request = peer.request()
        peer.send(head(status, "X-Hint: wait"), proper(request, peer.data))


cases(
    RemoteError,
    informs_endlessly,
    {"endless 100 Continue": "100 Continue", "endless 102": "102 Processing", "endless 103": "103 Early Hints"},
)
cases(RemoteError, informs_slowly, {"endless 100 Continue byte by byte": "100 Continue"})
cases(None, informs_once, {"100 Continue before every answer": "100 Continue", "103 before every answer": "103 Early Hints"})


def says(answer: bytes, peer: Peer) -> None:
    """The same bytes for every request, and the end of the connection."""
    peer.request()
    peer.send(answer)


LENGTH = f"Content-Length: {len(SHARD)}"
cases(
    RemoteError,
    says,
    {
        # what is not HTTP/1
        "garbage": bytes(range(128, 256)) * 4,
        "a line end": b"\r\n",
        "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/2": b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64\0\4\0\xa0\0\0\0\5\0\xff\xff\xff",
        "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/0.9": SHARD,
        "HTTP/9.9": b"HTTP/9.9 200 OK\r\n" + LENGTH.encode() + b"\r\n\r\n",
        "http/1.1 in lower case": head("200 OK", LENGTH).replace(b"HTTP", b"http"),
        "status 0": head("000 OK", LENGTH),
        "status 99": head("99 OK", LENGTH),
        "status 600": head("600 OK", LENGTH),
        "status 2000": head("2000 OK", LENGTH),
        "status -200": head("-200 OK", LENGTH),
        "status abc": head("abc", LENGTH),
        "status without a number": b"HTTP/1.1\r\n\r\n",
        "101 Switching Protocols": head("101 Switching Protocols", "Upgrade: h2c", "Connection: Upgrade"),
        "204 No Content": head("204 No Content"),
        "300 Multiple Choices": head("300 Multiple Choices", "Content-Length: 0"),
        "304 Not Modified": head("304 Not Modified"),
        # headers that are none
        "a space in the name of a header": head("200 OK", "Content Length: 5", LENGTH),
        "a space after the name of a header": head("200 OK", f"Content-Length : {len(SHARD)}"),
        "a header without a name": head("200 OK", ": of nothing", LENGTH),
        "a header without a colon": head("200 OK", "of nothing", LENGTH),
        "a folded header": head("200 OK", "X-Long: one", " two", LENGTH),
        "a NUL in the name of a header": head("200 OK", "X-\0: nothing", LENGTH),
        "a NUL in a header": head("200 OK", LENGTH, "X-Nul: \0"),
        "headers that end early": head("200 OK", LENGTH)[:-2],
        # lengths
        "no length": head("200 OK"),
        "a length below 0": head("200 OK", "Content-Length: -5"),
        "a length with a sign": head("200 OK", f"Content-Length: +{len(SHARD)}"),
        "a length that is not a number": head("200 OK", "Content-Length: many"),
        "a length with an exponent": head("200 OK", "Content-Length: 1e5"),
        "a length of other digits": head("200 OK", "Content-Length: \xb2"),
        "a length of a thousand digits": head("200 OK", "Content-Length: " + "9" * 1000),
        "two lengths that differ": head("200 OK", LENGTH, "Content-Length: 5"),
        "two lengths in one": head("200 OK", "Content-Length: 5, 6"),
        "a length of a terabyte": head("200 OK", f"Content-Length: {1 << 40}"),
        "a length of eight exabytes": head("200 OK", f"Content-Length: {(1 << 63) - 1}"),
        # other words
        "gzip that nobody asked for": head("200 OK", LENGTH, "Content-Encoding: gzip"),
        "a coding nobody knows": head("200 OK", LENGTH, "Content-Encoding: \x1b[31mred"),
        "401": head("401 Unauthorized", "WWW-Authenticate: Basic", "Content-Length: 0"),
        "403": head("403 Forbidden", "Content-Length: 0"),
        "407": head("407 Proxy Authentication Required", "Content-Length: 0"),
        "503 for a billion seconds": head("503 Unavailable", "Retry-After: 1000000000", "Content-Length: 0"),
        "503 for a number of a thousand digits": head("503 Unavailable", "Retry-After: " + "9" * 1000, "Content-Length: 0"),
        "503 for less than no time": head("503 Unavailable", "Retry-After: -1", "Content-Length: 0"),
        "503 until a day far away": head(
            "503 Unavailable", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", "Date: Thu, 01 Jan 1970 00:00:00 GMT",
            "Content-Length: 0",
        ),
        "503 until a day that is none": head("503 Unavailable", "Retry-After: Fri, 99 Foo 0000", "Content-Length: 0"),
        "503 until whenever": head("503 Unavailable", "Retry-After: later", "Content-Length: 0"),
        # redirects
        "a redirect to ftp": head("302 Found", "Location: ftp://127.0.0.1/a.tar", "Content-Length: 0"),
        "a redirect to a file": head("302 Found", "Location: file:///etc/passwd", "Content-Length: 0"),
        "a redirect to a program": head("302 Found", "Location: javascript:alert(1)", "Content-Length: 0"),
        "a redirect to data": head("302 Found", "Location: data:,hello", "Content-Length: 0"),
        "a redirect to nowhere": head("302 Found", "Content-Length: 0"),
        "a redirect to no host": head("302 Found", "Location: http:///a.tar", "Content-Length: 0"),
        "a redirect to no port": head("302 Found", "Location: http://127.0.0.1:99999/a.tar", "Content-Length: 0"),
        "a redirect to half an address": head("302 Found", "Location: http://[::1/a.tar", "Content-Length: 0"),
        "a redirect with control characters": head("302 Found", "Location: /a\x01\tb\x7f.tar", "Content-Length: 0"),
        "a redirect to a port nobody listens on": head("302 Found", "Location: http://127.0.0.1:1/", "Content-Length: 0"),
        "a redirect to a path of 60,000 characters": head("302 Found", "Location: /" + "a" * 60_000, "Content-Length: 0"),
    },
)  # fmt: skip
cases(
    SourceNotFound,
    says,
    {
        "404": head("404 Not Found", "Content-Length: 0"),
        "404 without a length": head("404 Not Found"),
        "404 with the same length twice": head("404 Not Found", "Content-Length: 0", "Content-Length: 0"),
        "410": head("410 Gone", "Content-Length: 0"),
    },
)


# -- redirects


@case(RemoteError)
def a_redirect_to_itself(peer: Peer) -> None:
    while True:
        request = peer.request()
        peer.send(head("302 Found", f"Location: {request.path}", "Content-Length: 0"))


@case(RemoteError)
def redirects_in_a_circle(peer: Peer) -> None:
    while True:
        request = peer.request()
        peer.send(head("307 Temporary Redirect", f"Location: /{request.number % 2}", "Content-Length: 0"))


@case(RemoteError)
def redirects_without_end(peer: Peer) -> None:
    while True:
        request = peer.request()
        peer.send(head("308 Permanent Redirect", f"Location: /{request.number}", "Content-Length: 0"))


@case(RemoteError)
def a_redirect_to_tls_on_the_same_port(peer: Peer) -> None:
    port = peer.connection.getsockname()[1]
    peer.request()
    peer.send(head("301 Moved", f"Location: https://127.0.0.1:{port}/", "Content-Length: 0"))


@case(RemoteError, scheme="https", certificate="trusted")
def a_redirect_from_tls_to_plain_text(peer: Peer) -> None:
    peer.request()
    peer.send(head("301 Moved", "Location: http://127.0.0.1:1/", "Content-Length: 0"))


@case(None)
def a_redirect_to_another_host(peer: Peer) -> None:
    port = peer.connection.getsockname()[1]
    while True:
        request = peer.request()
        if request.headers["host"].startswith("127.0.0.1") and request.is_for_bytes:
            peer.send(head("302 Found", f"Location: http://localhost:{port}/landed", "Content-Length: 0"))
        else:
            peer.send(proper(request, peer.data))


def redirects_then(after: Callable[[Peer], None], peer: Peer) -> None:
    """Send everybody who asks for bytes to another path of the same server; what follows the headers is `after`."""
    while True:
        request = peer.request()
        if not request.is_for_bytes or request.path.startswith("/landed"):
            peer.send(proper(request, peer.data))
            continue
        peer.send(head("302 Found", "Location: /landed", "Content-Length: 4096"))
        after(peer)


cases(
    None,
    redirects_then,
    {
        "a redirect whose body comes byte by byte": SLOWLY,
        "a redirect whose body never comes": Peer.hang,
        "a redirect whose body is cut": lambda peer: peer.end(),
    },
)


# -- bodies of errors


def refuses(status: str, body: Callable[[Peer], None], peer: Peer) -> None:
    """Refuse HEAD, and send a body with the error that GET meets."""
    while peer.request().method == "HEAD":
        peer.send(head("405 Method Not Allowed", "Content-Length: 0"))
    peer.send(head(status, "Content-Length: 4096"))
    body(peer)


cases(SourceNotFound, partial(refuses, "404 Not Found"), {"404 byte by byte": SLOWLY, "404 whose body never comes": Peer.hang})
cases(RemoteError, partial(refuses, "500 Server Error"), {"500 byte by byte": SLOWLY, "500 whose body never comes": Peer.hang})
cases(RemoteError, partial(refuses, "403 Forbidden"), {"403 byte by byte": SLOWLY})


@case(SourceNotFound)
def an_endless_404(peer: Peer) -> None:
    while peer.request().method == "HEAD":
        peer.send(head("405 Method Not Allowed", "Content-Length: 0"))
    peer.send(head("404 Not Found"))
    peer.pour_endlessly(b"<" * 4096)


@case(SourceNotFound)
def an_endless_404_in_chunks(peer: Peer) -> None:
    while peer.request().method == "HEAD":
        peer.send(head("405 Method Not Allowed", "Content-Length: 0"))
    peer.send(head("404 Not Found", "Transfer-Encoding: chunked"))
    peer.pour_endlessly(b"4\r\n<<<<\r\n")


# -- the bytes of the shard


def sends(answer: bytes, peer: Peer) -> None:
    """Behave well until bytes are asked for; then the same for everybody, and the end of the connection."""
    asked_for_bytes(peer)
    peer.send(answer)


def sends_and_hangs(answer: bytes, peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(answer)
    peer.hang()


CHUNKS = head("200 OK", "Transfer-Encoding: chunked")
cases(
    RemoteError,
    sends,
    {
        "a short body": head("200 OK", LENGTH) + SHARD[:1000],
        "no body": head("200 OK", LENGTH),
        "a body without a length that is cut": head("200 OK") + SHARD[:1000],
        "chunks that end early": CHUNKS + b"3e8\r\n" + SHARD[:1000] + b"\r\n0\r\n\r\n",
        "chunks that are cut": CHUNKS + b"3e8\r\n" + SHARD[:500],
        "a chunk of -1": CHUNKS + b"-1\r\n" + SHARD,
        "a chunk of 2**64": CHUNKS + b"10000000000000000\r\n" + SHARD,
        "a chunk of 2**60": CHUNKS + b"fffffffffffffff\r\n" + SHARD[:1000],
        "a chunk whose size has an underscore": CHUNKS + b"3_2000\r\n" + SHARD,
        "a chunk whose size has a prefix": CHUNKS + b"0x32000\r\n" + SHARD,
        "a chunk of no size": CHUNKS + b"\r\n" + SHARD,
        "a chunk that is longer than it says": CHUNKS + b"3e8\r\n" + SHARD + b"\r\n0\r\n\r\n",
        "chunks in gzip": head("200 OK", "Transfer-Encoding: gzip, chunked") + b"".join(chunked(gzip.compress(SHARD))),
        "a transfer coding nobody knows": head("200 OK", "Transfer-Encoding: rot13") + SHARD,
        "206 without a range": head("206 Partial Content", LENGTH) + SHARD,
        "206 of a single byte": head("206 Partial Content", "Content-Length: 1", f"Content-Range: bytes 0-0/{len(SHARD)}") + b"0",
        "206 of other bytes": head("206 Partial Content", LENGTH, f"Content-Range: bytes 1-{len(SHARD)}/{len(SHARD)}") + SHARD,
        "206 of a range of words": head("206 Partial Content", LENGTH, "Content-Range: bytes all/all") + SHARD,
        "206 that ends before it begins": head("206 Partial Content", LENGTH, f"Content-Range: bytes 0--5/{len(SHARD)}") + SHARD,
        "206 of another length than its range": (
            head("206 Partial Content", "Content-Length: 5", f"Content-Range: bytes 0-{len(SHARD) - 1}/{len(SHARD)}") + SHARD[:5]
        ),
        "multipart/byteranges": (
            head("206 Partial Content", "Content-Type: multipart/byteranges; boundary=b")
            + f"--b\r\nContent-Range: bytes 0-{len(SHARD) - 1}/{len(SHARD)}\r\n\r\n".encode() + SHARD + b"\r\n--b--\r\n"
        ),
        "gzip for bytes": head("200 OK", LENGTH, "Content-Encoding: gzip") + SHARD,
        "204 for bytes": head("204 No Content"),
        "two lengths that differ for bytes": head("200 OK", LENGTH, "Content-Length: 5") + SHARD,
    },
)  # fmt: skip
cases(
    RemoteError,
    sends_and_hangs,
    {
        "silence after the headers": head("200 OK", LENGTH),
        "silence in the middle": head("200 OK", LENGTH) + SHARD[:100_000],
        "silence instead of a chunk": CHUNKS,
        "silence within a chunk": CHUNKS + b"3e8\r\n" + SHARD[:10],
        "silence after a chunk": CHUNKS + b"3e8\r\n" + SHARD[:1000],
    },
)
cases(
    ShardChanged,
    sends,
    {
        "another length than HEAD said": head("200 OK", "Content-Length: 5") + SHARD[:5],
        "a range of a longer file": (
            head("206 Partial Content", LENGTH, f"Content-Range: bytes 0-{len(SHARD) - 1}/{1 << 40}") + SHARD
        ),
        "412 for bytes": head("412 Precondition Failed", "Content-Length: 0"),
        "416 of a shorter file": head("416 Range Not Satisfiable", "Content-Range: bytes */5", "Content-Length: 0"),
    },
)  # fmt: skip
cases(
    None,
    sends,
    {
        "bytes without a length": head("200 OK") + SHARD,
        "more bytes than it says": head("200 OK", LENGTH) + SHARD + b"and more" * 1000,
        "two lengths that agree": head("200 OK", LENGTH, LENGTH) + SHARD,
        "bare line feeds": head("200 OK", LENGTH).replace(b"\r\n", b"\n") + SHARD,
        "HTTP/1.0": head("200 OK", LENGTH).replace(b"HTTP/1.1", b"HTTP/1.0") + SHARD,
        "chunks of seven bytes": CHUNKS + b"".join(chunked(SHARD, 7)) + b"0\r\n\r\n",
        "chunks and a length": head("200 OK", "Transfer-Encoding: chunked", LENGTH) + b"".join(chunked(SHARD)) + b"0\r\n\r\n",
        "chunks and a wrong length": (
            head("200 OK", "Transfer-Encoding: chunked", "Content-Length: 5") + b"".join(chunked(SHARD)) + b"0\r\n\r\n"
        ),
        "a second answer nobody asked for": head("200 OK", LENGTH) + SHARD + head("200 OK", LENGTH) + bytes(len(SHARD)),
    },
)  # fmt: skip


@case(RemoteError)
def a_body_byte_by_byte(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(head("200 OK", LENGTH))
    peer.drip(SHARD)


@case(RemoteError)
def chunks_of_a_byte_slowly(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS)
    peer.pour(chunked(SHARD, 1), pause_s=0.02)


@case(RemoteError)
def a_chunk_line_byte_by_byte(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS)
    peer.drip_endlessly(b"0")


@case(RemoteError)
def a_chunk_extension_byte_by_byte(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS, "3e8;")
    peer.drip_endlessly(b"x")


@case(RemoteError)
def an_endless_chunk_extension(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS, "3e8;")
    peer.pour_endlessly(b"x" * 4096)


@case(RemoteError)
def the_end_of_a_chunk_byte_by_byte(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS, "3e8\r\n", SHARD[:1000])
    peer.drip_endlessly(b" ")


@case(None)
def endless_trailers(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS, *chunked(SHARD), "0\r\n")
    peer.pour_endlessly(b"X-More: of it\r\n")


@case(None)
def trailers_byte_by_byte(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(CHUNKS, *chunked(SHARD), "0\r\n")
    peer.drip_endlessly(b"x")


@case(RemoteError)
def no_ranges_and_every_answer_cut_at_70000_bytes(peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(head("200 OK", LENGTH), SHARD[:70_000])


@case(None)
def no_ranges_and_every_answer_cut_a_little_later(peer: Peer) -> None:
    request = asked_for_bytes(peer)
    peer.send(head("200 OK", LENGTH), SHARD[: 20_000 * request.number])


@case(RemoteError)
def zeros_for_ever_without_a_length(peer: Peer) -> None:
    request = peer.request()
    peer.send(head("200 OK"))
    if request.method == "GET":
        peer.pour_endlessly(bytes(4096))


# -- versions and sizes


@case(ShardChanged)
def an_etag_that_is_another_every_time(peer: Peer) -> None:
    while True:
        request = peer.request()
        peer.send(proper(request, peer.data).replace(b'"1"', b'"%d"' % (request.number + 10)))


@case(RemoteError)
def HEAD_that_hangs_where_GET_works(peer: Peer) -> None:
    if (request := peer.request()).method == "HEAD":
        peer.hang()
    peer.send(proper(request, peer.data))


@case(None)
def HEAD_that_has_a_body(peer: Peer) -> None:
    while True:
        request = peer.request()
        peer.send(proper(request, peer.data), SHARD[:100] if request.method == "HEAD" else b"")


@case(None)
def an_answer_to_HEAD_with_another_after_it(peer: Peer) -> None:
    while True:
        request = peer.request()
        more = head("200 OK", LENGTH, 'ETag: "1"') + bytes(len(SHARD)) if request.method == "HEAD" else b""
        peer.send(proper(request, peer.data) + more)


@case((RemoteError, ReadError))
def silence_once_it_is_open(peer: Peer) -> None:
    while True:
        request = asked_for_bytes(peer)
        if request.span != (0, len(peer.data) - 1):
            peer.hang()
        peer.send(proper(request, peer.data))


@case(RecordError)
def other_bytes_once_it_is_open(peer: Peer) -> None:
    while True:
        request = asked_for_bytes(peer)
        data = peer.data if request.span == (0, len(peer.data) - 1) else bytes(len(peer.data))
        peer.send(proper(request, data))


@case(RemoteError)
def an_index_that_never_comes(peer: Peer) -> None:
    while ".stk" not in (request := peer.request()).path:
        peer.send(proper(request, peer.data))
    peer.hang()


@case(None)
def an_index_that_is_a_page(peer: Peer) -> None:
    page = b"<!doctype html><title>no such file</title>" + b" " * 5000
    while True:
        request = peer.request()
        data = page if ".stk" in request.path else peer.data
        peer.send(proper(Request(request.method, "/", request.headers, request.number), data))


@case((CorruptShard, RemoteError))
def an_index_of_a_terabyte_that_never_comes(peer: Peer) -> None:
    while ".stk" not in (request := peer.request()).path:
        peer.send(proper(request, peer.data))
    peer.send(head("200 OK", f"Content-Length: {1 << 40}"))
    if request.method == "HEAD":
        an_index_of_a_terabyte_that_never_comes(peer)
    peer.hang()


def claims_a_terabyte(begin: bytes, peer: Peer) -> None:
    """A shard of a terabyte, whose first record takes nearly all of it; what follows its header never comes."""
    while (request := peer.request()).method == "HEAD":
        peer.send(proper(request, b"") if ".stk" in request.path else head("200 OK", f"Content-Length: {1 << 40}"))
    peer.send(proper(request, b"") if ".stk" in request.path else head("200 OK", f"Content-Length: {1 << 40}") + begin)
    peer.hang()


def huge_member() -> bytes:
    member = tarfile.TarInfo("0.bin")
    member.size = 1 << 39
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(4096)


def huge_record() -> bytes:
    length = (1 << 39).to_bytes(8, "little")
    return length + int(mask_crc(crc32c(length))).to_bytes(4, "little") + bytes(4096)


TOO_MUCH: Ends = (CorruptShard, RemoteError)
cases(TOO_MUCH, claims_a_terabyte, {"a member of half a terabyte": huge_member()})
cases(TOO_MUCH, claims_a_terabyte, {"a member of half a terabyte in sequence": huge_member()}, client="sequence")
cases(TOO_MUCH, claims_a_terabyte, {"a record of half a terabyte": huge_record()}, client="tfrecord")


# -- the other clients


def is_silent_in_the_middle(after: int, peer: Peer) -> None:
    asked_for_bytes(peer)
    peer.send(head("200 OK", f"Content-Length: {len(peer.data)}"), peer.data[:after])
    peer.hang()


for _client in ("sequence", "gzip", "cache", "tfrecord"):
    cases(RemoteError, is_silent_in_the_middle, {f"silence in the middle of {_client}": 100_000}, client=_client)
    CASES[f"nothing wrong with {_client}"] = Case(behave_well, None, _client)


# -- TLS


@case(RemoteError, scheme="https")
def plain_text_where_TLS_is_expected(peer: Peer) -> None:
    peer.send(head("200 OK", LENGTH))
    peer.hang()


@case(RemoteError, scheme="https")
def TLS_that_never_answers(peer: Peer) -> None:
    peer.hang()


@case(RemoteError, scheme="https")
def TLS_byte_by_byte(peer: Peer) -> None:
    peer.drip(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB, which is looked at when it is whole
    peer.drip_endlessly(b"\x02")


@case(RemoteError, scheme="https")
def TLS_that_only_alerts(peer: Peer) -> None:
    peer.pour_endlessly(b"\x15\x03\x03\x00\x02\x01\x5a")  # a warning: no renegotiation


@case(RemoteError, scheme="https", certificate="of a stranger")
def TLS_nobody_vouches_for(peer: Peer) -> None:
    behave_well(peer)


@case(RemoteError, scheme="https", certificate="trusted")
def TLS_and_headers_byte_by_byte(peer: Peer) -> None:
    header_byte_by_byte(peer)


@case(RemoteError, scheme="https", certificate="trusted")
def TLS_and_a_body_byte_by_byte(peer: Peer) -> None:
    a_body_byte_by_byte(peer)


@case(None, scheme="https", certificate="trusted")
def TLS_that_ends_without_a_word(peer: Peer) -> None:
    peer.send(proper(peer.request(), peer.data))


# -- secrets


def echoes(answer: str, peer: Peer) -> None:
    """Say what the request held: ``{word}`` is its password, ``{line}`` its query and its Authorization."""
    request = peer.request()
    _, _, query = request.path.partition("?")
    text = answer.format(word=query.partition("=")[2] or SECRET, line=f"{query} {request.headers.get('authorization')}")
    peer.send(text, *(text for _ in range(10) if "\r\n\r\n" not in text))


NOTHING = "Content-Length: 0\r\n\r\n"
cases(
    RemoteError,
    echoes,
    {
        "an echo instead of an answer": "{line}\r\n\r\n",
        "an echo as the status": "HTTP/1.1 {line}\r\n\r\n",
        "an echo as the reason": "HTTP/1.1 403 {line}\r\n" + NOTHING,
        "an echo as a header without a name": "HTTP/1.1 200 OK\r\n{line}\r\n" + NOTHING,
        "an echo as the coding": "HTTP/1.1 200 OK\r\nContent-Encoding: {word}\r\n" + NOTHING,
        "an echo as the transfer coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: {word}\r\n\r\n",
        "an echo as the length": "HTTP/1.1 200 OK\r\nContent-Length: {word}\r\n\r\n",
        "an echo as one of two lengths": "HTTP/1.1 200 OK\r\nContent-Length: {word}\r\n" + NOTHING,
        "an echo as the time to wait": "HTTP/1.1 503 No\r\nRetry-After: {line}\r\n" + NOTHING,
        "an echo as the challenge": "HTTP/1.1 401 No\r\nWWW-Authenticate: {line}\r\n" + NOTHING,
        "an echo as the scheme of a redirect": "HTTP/1.1 302 Found\r\nLocation: {word}://127.0.0.1/\r\n" + NOTHING,
        "an echo as the port of a redirect": "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{word}/\r\n" + NOTHING,
        "an echo as the user of a redirect": "HTTP/1.1 302 Found\r\nLocation: http://{word}@127.0.0.1:1/{word}\r\n" + NOTHING,
        "an echo as the path of a redirect": "HTTP/1.1 302 Found\r\nLocation: /{word}\r\n" + NOTHING,
        "an echo as a wrong redirect": "HTTP/1.1 302 Found\r\nLocation: http://[{word}\r\n" + NOTHING,
    },
)


def echoes_for_bytes(answer: str, peer: Peer) -> None:
    """The same, once bytes are asked for."""
    request = asked_for_bytes(peer)
    peer.send(answer.format(word=SECRET, line=f"{request.path} {request.headers.get('authorization')}"))


cases(
    RemoteError,
    echoes_for_bytes,
    {
        "an echo as the range": "HTTP/1.1 206 OK\r\nContent-Range: bytes {word}/{word}\r\n" + NOTHING,
        "an echo as a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{line}\r\n\r\n",
        "an echo as the reason for no bytes": "HTTP/1.1 403 {line}\r\n" + NOTHING,
    },
)
cases(
    ShardChanged,
    echoes_for_bytes,
    {
        "an echo as the ETag": 'HTTP/1.1 200 OK\r\nETag: "{line}"\r\n' + NOTHING,
        "an echo as the reason of a change": "HTTP/1.1 412 {line}\r\n" + NOTHING,
    },
)


@case(CorruptShard)
def an_echo_as_the_shard(peer: Peer) -> None:
    while True:
        request = peer.request()
        line = f"{request.path} {request.headers.get('authorization')} {SECRET} "
        peer.send(proper(request, line.encode().ljust(1024, b".") * 20))


# ---- all of them at once -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How reading ended. Of an error there is what it says and where it was raised: itself, it would keep connections open."""

    samples: dict[str, bytes] | None = None
    error: type[BaseException] | None = None
    message: str = ""
    raised: traceback.TracebackException | None = None

    @property
    def trace(self) -> str:
        """What the interpreter would print. Made by one thread: in some Pythons formatting in several at once fails."""
        return "the samples" if self.raised is None else "".join(self.raised.format())


@dataclass
class Run:
    """All behaviours, under way."""

    hostile: Hostile
    before: dict[str, Any]
    deadline: float
    ports: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, Future[Outcome]] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def outcome(self, name: str) -> Outcome:
        return self.outcomes[name].result(max(0, self.deadline - time.monotonic()))

    def asked(self, name: str) -> list[Request]:
        return self.hostile.requests[self.ports[name]]

    def wait_for_all(self) -> None:
        for name in CASES:
            self.outcome(name)


def outcome_of(read: Callable[[], dict[str, bytes]]) -> Outcome:
    try:
        return Outcome(read())
    except BaseException as error:
        return Outcome(None, type(error), str(error), traceback.TracebackException.from_exception(error))


class Listing(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the servers have, by the ending of its name."""
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    stoker.write_tfrecord(path, ({"txt": key, "bin": data} for key, data in SAMPLES.items()))
    return {"tar": SHARD, "tar.gz": gzip.compress(SHARD), "tfrecord": path.read_bytes()}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tls")
    return {name: self_signed(folder / f"{name}.pem") for name in ("trusted", "of a stranger")}


def secured(behave: Behaviour, certificate: Path) -> Behaviour:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def encrypted(peer: Peer) -> None:
        peer.encrypt(context)
        behave(peer)

    return encrypted


@pytest.fixture(scope="module")
def running(contents: dict[str, bytes], certificates: dict[str, Path]) -> Iterator[Run]:
    """All servers, and a client of each, started; the tests wait for what they need."""
    gc.collect()
    before = {"files": len(open_files()), "threads": set(threading.enumerate()), "memory": memory_peak()}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", str(certificates["trusted"]))
        run = Run(Hostile(), before, time.monotonic() + DEADLINE_S)
        log, listing = logging.getLogger("stoker"), Listing(run.log)
        log.addHandler(listing)
        stack.callback(log.removeHandler, listing)
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.DEBUG)
        for name, case in CASES.items():
            behave = case.behave if case.certificate is None else secured(case.behave, certificates[case.certificate])
            run.ports[name] = run.hostile.listen(behave, contents[CLIENTS[case.client][0]])
        stack.enter_context(run.hostile)
        for name in CASES:
            start(run, name)
        yield run


def start(run: Run, name: str) -> None:
    """Read from a server in a thread, which may hang without keeping this process."""
    case, future = CASES[name], Future[Outcome]()
    run.outcomes[name] = future
    url = plain_url(run, name).replace("://", f"://reader:{SECRET}@") + f"?signature={SECRET}"
    read = partial(CLIENTS[case.client][1], url, case.patience)
    thread = threading.Thread(target=lambda: future.set_result(outcome_of(read)), daemon=True)
    run.threads.append(thread)
    thread.start()


def plain_url(run: Run, name: str) -> str:
    """The URL as errors name it."""
    case = CASES[name]
    return f"{case.scheme}://127.0.0.1:{run.ports[name]}/shard.{CLIENTS[case.client][0]}"


def memory_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("name", CASES)
def test_whatever_a_server_does_reading_ends_with_the_samples_or_names_the_url(running: Run, name: str) -> None:
    ends = CASES[name].ends
    outcome = running.outcome(name)
    if ends is None:
        assert outcome.error is None, outcome.trace
        assert outcome.samples == SAMPLES
        return
    assert outcome.error is not None and issubclass(outcome.error, ends), outcome.trace
    assert plain_url(running, name) in outcome.message
    assert outcome.message.isprintable()
    assert SECRET not in outcome.trace and LOGIN not in outcome.trace


def test_nothing_a_server_says_brings_a_secret_into_the_log(running: Run) -> None:
    running.wait_for_all()
    assert running.log, "attempts are logged"
    assert [line for line in running.log if SECRET in line or LOGIN in line or not line.isprintable()] == []


def test_a_server_that_cuts_every_answer_is_asked_a_few_times(running: Run) -> None:
    name = "no ranges and every answer cut at 70000 bytes"
    running.outcome(name)
    # Two budgets, one before any byte came and one after, of pauses that are soon half of `longest_delay_s` at least.
    most = 2 * (3 + HASTY.budget_s / (HASTY.longest_delay_s / 2))
    assert len([request for request in running.asked(name) if request.is_for_bytes]) <= most


def test_name_and_password_do_not_follow_a_redirect_to_another_host(running: Run) -> None:
    name = "a redirect to another host"
    running.outcome(name)
    sent = {(request.headers["host"].partition(":")[0], "authorization" in request.headers) for request in running.asked(name)}
    assert sent == {("127.0.0.1", True), ("localhost", False)}


def test_after_all_of_it_no_thread_no_connection_and_no_memory_is_left(running: Run) -> None:
    running.wait_for_all()
    running.hostile.stop()
    assert running.hostile.mistakes == []
    for thread in running.threads:
        thread.join(10)
    gc.collect()
    assert set(threading.enumerate()) <= running.before["threads"]
    assert len(open_files()) <= running.before["files"], open_files()
    assert memory_peak() - running.before["memory"] < 1 << 30
