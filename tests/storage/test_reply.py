"""Answers as they come over a connection: where they end, and what is refused because nobody can say where."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stoker.storage.reply import BrokenReply, Reply, Wire


@contextmanager
def answering(data: bytes) -> Iterator[tuple[Wire, socket.socket]]:
    """A connection over which these bytes have arrived, and its other end, which is still open."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data)
        yield Wire(here), there


def reply_on(wire: Wire) -> Reply:
    return Reply(wire, False, time.monotonic() + 60)


def body_of(data: bytes) -> tuple[bytes, bool]:
    """The whole body, and whether the connection may be used again after it."""
    with answering(data) as (wire, there):
        there.shutdown(socket.SHUT_WR)
        reply, view, got = reply_on(wire), memoryview(bytearray(100)), b""
        while count := reply.readinto(view, time.monotonic() + 60):
            got += bytes(view[:count])
        return got, reply.ends_here() and not reply.will_close and wire.empty


@pytest.mark.parametrize(
    ("headers", "rest", "body", "kept"),
    [
        (b"Content-Length: 5\r\n", b"hello", b"hello", True),
        (b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello", b"hello", True),
        (b"Content-Length: 5, 5\r\n", b"hello", b"hello", True),
        (b"Content-Length: 5\r\nConnection: close\r\n", b"hello", b"hello", False),
        (b"Content-Length: 5\r\nConnection: x\r\nConnection: close\r\n", b"hello", b"hello", False),
        (b"Content-Length: 5\r\n", b"hello and more", b"hello", False),
        (b"", b"hello", b"hello", False),
        (b"Content-Length: 5\r\nTransfer-Encoding: Identity\r\n", b"hello", b"hello", True),
        (b"Transfer-Encoding: chunked\r\n", b"5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n", b"hello", True),
        (b"Transfer-Encoding: Chunked\r\n", b"2\r\nhe\r\n3 \r\nllo\r\n0\r\n\r\n", b"hello", True),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"hello", False),
    ],
)
def test_a_body_ends_where_the_headers_say(headers: bytes, rest: bytes, body: bytes, kept: bool) -> None:
    assert body_of(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + rest) == (body, kept)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", "contradict each other"),
        (b"Content-Length: 5, 6\r\n", "contradict each other"),
        (b"content-length: 5\r\nX: y\r\nCONTENT-LENGTH: 06\r\n", "contradict each other"),
        (b"Content-Length: -1\r\n", "is not a number"),
        (b"Content-Length: canary\r\n", "is not a number"),
        (b"Content-Length: 0x10\r\n", "is not a number"),
        (b"Content-Length: 1_0\r\n", "is not a number"),
        (b"Content-Length: 99999999999999999999\r\n", "is not a number"),
        (b"Transfer-Encoding: gzip, chunked\r\n", "no other is read"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "no other is read"),
        (b"Transfer-Encoding: canary\r\n", "no other is read"),
        (b"canary canary\r\n", "a header cannot be understood"),
        (b"X : canary\r\n", "a header cannot be understood"),
        (b"X: canary\r\n canary\r\n", "a header cannot be understood"),
        (b"X: can\0ary\r\n", "a header cannot be understood"),
        (b"X: can\rary\r\n", "a header cannot be understood"),
        (b"X: " + b"canary" * 11_000 + b"\r\n", "a line of it has no end"),
        ((b"X: " + b"y" * 100 + b"\r\n") * 700, "a line of it has no end"),
    ],
)
def test_headers_that_contradict_each_other_or_have_no_end_are_refused(headers: bytes, why: str) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\nhello") as (wire, _), pytest.raises(BrokenReply, match=why) as caught:
        reply_on(wire)
    assert "canary" not in str(caught.value)


def test_how_a_body_is_coded_does_not_matter_where_there_is_none() -> None:
    """As in the answer to CONNECT, after which the connection is another's."""
    with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n") as (wire, _):
        reply = Reply(wire, True, time.monotonic() + 60)
        assert reply.status == 200 and wire.empty and reply.ends_here()


@pytest.mark.parametrize(
    "line", [b"HTTP/2 200\r\n", b"HTTP/1.1 99 canary\r\n", b"HTTP/1.1 abc\r\n", b"canary\r\n", b"HTTP/1.1 101 X\r\n"]
)
def test_a_status_that_is_none_is_refused(line: bytes) -> None:
    with answering(line + b"\r\n") as (wire, _), pytest.raises(BrokenReply) as caught:
        reply_on(wire)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "chunks", [b"-1\r\n", b"0x5\r\nhello\r\n", b"1_0\r\n", b"\r\n", b"5\r\nhello, you\r\n0\r\n\r\n", b"f" * 16 + b"\r\n", b"5"]
)
def test_chunks_of_unclear_length_are_refused(chunks: bytes) -> None:
    with pytest.raises(BrokenReply):
        body_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)


def test_only_what_has_arrived_is_drained() -> None:
    begin = b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n"
    for rest, kept in ((b"0123456789", True), (b"01234", False)):
        with answering(begin + rest) as (wire, _):  # the other end is open and says no more: who waited would wait for ever
            assert reply_on(wire).ends_here() is kept
