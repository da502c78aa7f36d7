"""Files on web servers that behave, and on those that do not."""

from __future__ import annotations

import logging
import os
import random
import socket
import time
import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from stoker.errors import ConfigError, RemoteError, ShardChanged, SourceNotFound, StokerError
from stoker.storage import connections
from stoker.storage.blob import Stat
from stoker.storage.connections import pool_of
from stoker.storage.http import HttpRemote, Target
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from ..support import together, until
from .conftest import in_child, secure_server
from .server import (
    Act,
    Answer,
    Chunked,
    Coded,
    Drip,
    Fine,
    Garbage,
    NoHead,
    NoRange,
    Redirect,
    Request,
    Reset,
    Server,
    Short,
    Silence,
    Status,
    Tag,
    WrongLength,
    WrongRange,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("nothing_is_left_open")
DATA = random.Random(1).randbytes(300_000)


def read(blob: RemoteBlob, start: int = 1000, stop: int = 200_000) -> bytes:
    data = bytearray(stop - start)
    blob.read_into(start, memoryview(data))
    return bytes(data)


@pytest.fixture
def blob(server: Server, quick: Patience) -> Any:
    opened = RemoteBlob(HttpRemote(server.put("/dir/a.tar", DATA)), quick)
    yield opened
    opened.close()


def test_ranges_are_read_over_one_connection(server: Server, blob: RemoteBlob) -> None:
    assert blob.stat() == Stat(len(DATA), server.files["/dir/a.tar"].headers["ETag"])
    for start, stop in [(0, 1), (0, 300_000), (299_999, 300_000), (77, 77), (5, 100_000)]:
        assert read(blob, start, stop) == DATA[start:stop]
    assert [request.span for request in server.asked("/dir/a.tar")] == ["0-0", "0-299999", "299999-299999", "5-99999"]
    assert server.connections == 1
    assert all(request.headers["accept-encoding"] == "identity" for request in server.log)


def test_a_whole_file_is_streamed_by_one_request(server: Server, blob: RemoteBlob) -> None:
    assert b"".join(map(bytes, blob.stream(7, 10_000))) == DATA[7:]
    assert blob.read_all(1 << 20) == DATA
    assert len(server.asked("/dir/a.tar")) == 2


#: each is one answer; the next is fine
TROUBLES: list[Act] = [
    Status(500), Status(502), Status(503), Status(504), Status(408), Status(429, {"Retry-After": "0"}),
    Status(503, {"Retry-After": "Wed, 21 Oct 2015 07:28:10 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    Short(0), Short(1), Short(100_000), Reset(0), Reset(50_000), Silence(), Silence(0), Silence(1234), Drip(0.02),
    WrongRange(), WrongRange(-1), WrongLength(5), WrongLength(-5), Garbage(), Garbage(b""),
    Garbage(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 99_999), NoRange(), Chunked(), Tag(None),
]  # fmt: skip


@pytest.mark.parametrize("act", TROUBLES, ids=lambda act: str(act)[:40])
def test_after_any_trouble_the_bytes_are_right(act: Act, server: Server, hasty: Patience) -> None:
    blob = RemoteBlob(HttpRemote(server.put("/dir/a.tar", DATA)), hasty)
    server.script("/dir/a.tar", act)
    assert read(blob) == DATA[1000:200_000]
    blob.close()


@pytest.mark.parametrize("after", random.Random(2).sample(range(199_000), 20))
def test_a_reset_at_any_place_loses_and_repeats_nothing(after: int, server: Server, blob: RemoteBlob) -> None:
    server.script("/dir/a.tar", Reset(after))
    assert read(blob) == DATA[1000:200_000]
    first, second = server.asked("/dir/a.tar")
    assert first.span == "1000-199999" and 1000 <= int(str(second.span).split("-")[0]) <= 1000 + after


def test_a_short_body_is_resumed_exactly_where_it_ended(server: Server, blob: RemoteBlob) -> None:
    server.script("/dir/a.tar", Short(500), Short(70), Short(0))
    assert read(blob) == DATA[1000:200_000]
    assert [request.span for request in server.asked("/dir/a.tar")] == [
        "1000-199999",
        "1500-199999",
        "1570-199999",
        "1570-199999",
    ]
    assert all(request.headers["if-match"] == blob.stat().version for request in server.asked("/dir/a.tar"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_what_the_server_refuses_fails_at_once_with_the_url(status: int, server: Server, blob: RemoteBlob) -> None:
    blob.stat()
    server.always("/dir/a.tar", Status(status))
    with pytest.raises(RemoteError, match=rf"^http://127.0.0.1:\d+/dir/a.tar: HTTP {status}") as caught:
        read(blob)
    assert caught.value.status == status and len(server.asked("/dir/a.tar")) == 1


def test_what_is_not_there_is_said_to_be_not_there(server: Server, quick: Patience) -> None:
    with pytest.raises(SourceNotFound, match=r"/none.tar: HTTP 404"):
        RemoteBlob(HttpRemote(server.origin + "/none.tar"), quick).stat()


@pytest.mark.parametrize("act", [Status(503), Short(10), Silence(), Drip(0.05), Garbage()], ids=str)
def test_trouble_that_stays_ends_in_an_error(act: Act, server: Server, blob: RemoteBlob) -> None:
    blob.stat()
    blob._patience = Patience(
        silence_s=0.1, least_bytes_per_s=1000, rate_window_s=0.1, first_delay_s=0.001, longest_delay_s=0.01, budget_s=0.5
    )
    server.always("/dir/a.tar", act)
    with pytest.raises(RemoteError, match=r"http://127.0.0.1:\d+/dir/a.tar: .* gave up after \d+ attempts"):
        read(blob)


def test_a_server_that_is_not_there_is_an_error(quick: Patience) -> None:
    with Server() as gone:
        url = gone.put("/a", b"x")
    with pytest.raises(RemoteError, match=r"the connection failed \(Connection refused\).*; check the address and the port"):
        RemoteBlob(HttpRemote(url), Patience(budget_s=0.05, first_delay_s=0.01)).stat()


def test_a_host_that_cannot_be_found_is_tried_a_few_times(monkeypatch: pytest.MonkeyPatch, quick: Patience) -> None:
    asked = []

    def unknown(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(RemoteError, match=r"name cannot be resolved; gave up after 4 attempts in .*; check the host's name"):
        RemoteBlob(HttpRemote("http://nowhere.invalid/a.tar"), quick).stat()
    assert len(asked) == 4


# ---- a file that changes -----------------------------------------------------------------------------------------------------


def test_a_changed_file_is_noticed(server: Server, blob: RemoteBlob) -> None:
    read(blob)
    server.put("/dir/a.tar", DATA[::-1])
    with pytest.raises(ShardChanged, match="changed since it was opened"):
        read(blob)


def test_a_file_that_changes_in_the_middle_of_a_read_is_noticed(server: Server, blob: RemoteBlob) -> None:
    server.script("/dir/a.tar", Short(1000), Tag('"other"'))
    with pytest.raises(ShardChanged, match="ETag"):
        read(blob)


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_strong_etag_a_change_is_noticed_by_date_or_size(etag: str | None, server: Server, quick: Patience) -> None:
    first, later = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:01 GMT"
    blob = RemoteBlob(HttpRemote(server.put("/b", DATA, etag=etag, modified=first)), quick)
    assert read(blob) == DATA[1000:200_000]
    assert blob.stat().version == etag or first
    server.put("/b", DATA[:-1], etag=etag, modified=first)
    with pytest.raises(ShardChanged, match="299,999 bytes now, and had 300,000"):
        read(blob)
    server.put("/b", DATA, etag=None if etag is None else 'W/"other"', modified=later)
    with pytest.raises(ShardChanged):
        read(blob)
    server.put("/b", DATA[:500], etag=etag, modified=first)
    with pytest.raises(ShardChanged):
        read(blob)


def test_a_server_that_tells_no_version_is_read_all_the_same(server: Server, quick: Patience) -> None:
    blob = RemoteBlob(HttpRemote(server.put("/b", DATA, etag=None)), quick)
    assert blob.stat() == Stat(len(DATA), "") and read(blob) == DATA[1000:200_000]


# ---- servers with less than HTTP has -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [NoRange(), Chunked()], ids=["whole file", "chunks"])
def test_a_server_without_ranges_is_read_correctly_and_told_of_once(
    act: Act, server: Server, quick: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.put("/a", DATA)
    blob = RemoteBlob(HttpRemote(url), quick)
    blob.stat()
    server.always("/a", act)
    with caplog.at_level(logging.WARNING, "stoker"):
        assert read(blob, 0, 300_000) == DATA
        assert not caplog.records
        for start, stop in [(1, 2), (150_000, 150_100), (299_999, 300_000)]:
            assert read(blob, start, stop) == DATA[start:stop]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot send a part of a file" in caplog.text and url in caplog.text


def test_a_break_without_ranges_begins_anew_and_delivers_each_byte_once(server: Server, blob: RemoteBlob) -> None:
    blob.stat()
    server.always("/dir/a.tar", NoRange())
    server.script("/dir/a.tar", Short(100_000), Short(500), Short(250_000))
    assert b"".join(map(bytes, blob.stream(1000, 10_000))) == DATA[1000:]


@pytest.mark.parametrize("status", [403, 405, 501])
@pytest.mark.parametrize("also", [Fine(), NoRange()], ids=["ranges", "no ranges"])
def test_where_head_is_refused_a_get_of_one_byte_tells_the_size(status: int, also: Act, server: Server, quick: Patience) -> None:
    blob = RemoteBlob(HttpRemote(server.put("/a", DATA)), quick)
    server.always("/a", also, NoHead(status))
    assert blob.stat().size == len(DATA)
    assert read(blob) == DATA[1000:200_000]


def test_where_head_tells_no_length_a_get_does(server: Server, quick: Patience) -> None:
    blob = RemoteBlob(HttpRemote(server.put("/a", DATA)), quick)
    server.script("/a", Status(200, {"Content-Length": ""}), heads=True)
    assert blob.stat().size == len(DATA)


def test_an_empty_file_has_no_bytes(server: Server, quick: Patience) -> None:
    blob = RemoteBlob(HttpRemote(server.put("/a", b"")), quick)
    server.always("/a", NoHead())
    assert blob.stat().size == 0 and blob.read_all(10) == b"" and list(blob.stream()) == []


def test_a_file_nobody_may_read_says_so(server: Server, quick: Patience) -> None:
    server.put("/a", DATA)
    server.always("/a", Status(403))
    with pytest.raises(RemoteError, match=r"HTTP 403 Forbidden; check the spelling, that the credentials") as caught:
        RemoteBlob(HttpRemote(server.origin + "/a"), quick).stat()
    assert caught.value.status == 403


def test_a_compressed_answer_is_refused(server: Server, blob: RemoteBlob) -> None:
    blob.stat()
    server.always("/dir/a.tar", Coded("gzip"))
    with pytest.raises(RemoteError, match="Content-Encoding gzip though 'identity' was asked for"):
        read(blob)
    with pytest.raises(RemoteError, match="Content-Encoding gzip"):
        RemoteBlob(HttpRemote(server.origin + "/dir/a.tar")).stat()


# ---- redirects ---------------------------------------------------------------------------------------------------------------


def test_redirects_are_followed_and_remembered(server: Server, quick: Patience) -> None:
    server.put("/real.tar", DATA)
    for path, to in [("/a", "/b"), ("/b", server.origin + "/c?signature=canary"), ("/c", "real.tar")]:
        server.put(path, b"")
        server.always(path, Redirect(to, 307))
    blob = RemoteBlob(HttpRemote(server.origin + "/a"), quick)
    assert read(blob) == DATA[1000:200_000]
    asked = len(server.log)
    assert read(blob) == DATA[1000:200_000]
    assert len(server.log) == asked + 1, "the way was remembered"
    server.always("/real.tar", Status(403))  # as a signed URL that has expired
    server.put("/new.tar", DATA)
    server.always("/c", Redirect("/new.tar"))
    server.files["/new.tar"].headers = server.files["/real.tar"].headers
    assert read(blob) == DATA[1000:200_000]


def test_five_redirects_are_followed_and_no_more(server: Server, quick: Patience) -> None:
    for number in range(7):
        server.put(f"/{number}", b"")
        server.always(f"/{number}", Redirect(f"/{number + 1}"))
    server.put("/7", DATA)
    assert RemoteBlob(HttpRemote(server.origin + "/2"), quick).stat().size == len(DATA)
    with pytest.raises(RemoteError, match="more than 5 redirects"):
        RemoteBlob(HttpRemote(server.origin + "/1"), quick).stat()


def test_a_redirect_to_itself_ends(server: Server, quick: Patience) -> None:
    server.put("/a", DATA)
    server.always("/a", Redirect("/a"))
    with pytest.raises(RemoteError, match="more than 5 redirects"):
        RemoteBlob(HttpRemote(server.origin + "/a"), quick).stat()


@pytest.mark.parametrize(
    "to",
    ["file:///etc/passwd", "ftp://127.0.0.1/x", "pipe:touch canary", "s3://bucket/key", "http://[::1/x", "", "http://a b/"],
)
def test_a_redirect_elsewhere_is_not_followed(to: str, server: Server, quick: Patience) -> None:
    server.put("/a", DATA)
    server.always("/a", Redirect(to))
    with pytest.raises(RemoteError, match=r"/a: (a )?redirect"):
        RemoteBlob(HttpRemote(server.origin + "/a"), quick).stat()
    assert len(server.log) == 1


def test_a_redirect_never_leads_from_tls_to_plain_text() -> None:
    from stoker.storage.retry import RemoteFault

    secure = Target.of("https://h/a")
    with pytest.raises(RemoteFault, match="from https: to http: is not followed"):
        secure.redirected("http://h/a")
    assert Target.of("http://h/a").redirected("https://h/b").origin == ("https", "h", 443)


@pytest.mark.parametrize(
    ("location", "path"),
    [("/ä b.tar?é".encode(), "/%C3%A4%20b.tar?%C3%A9"), (b"/%C3%A4.tar", "/%C3%A4.tar"), (b"/\xe4.tar", "/%E4.tar")],
)
def test_bytes_of_a_redirect_go_out_as_they_came(location: bytes, path: str) -> None:
    assert Target.of("http://h/a").redirected(location.decode("latin-1")).path == path


def reaches(monkeypatch: pytest.MonkeyPatch, reaches: dict[str, str]) -> None:
    """Have servers, by their origin, be reachable from elsewhere than they are."""
    real = connections._reach

    def reach(connected: socket.socket) -> str:
        return reaches.get("http://{}:{}".format(*connected.getpeername()), real(connected))

    monkeypatch.setattr(connections, "_reach", reach)


def test_a_redirect_into_another_network_is_refused_before_anything_is_asked(
    server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as metadata:
        url = metadata.put("/latest/meta-data", b"canary")
        server.put("/a", DATA)
        server.always("/a", Redirect(url))
        reaches(monkeypatch, {server.origin: "public", metadata.origin: "link-local"})
        with pytest.raises(RemoteError, match="a redirect from a public to a link-local address"):
            RemoteBlob(HttpRemote(server.origin + "/a"), quick).stat()
        assert metadata.log == []


@pytest.mark.parametrize("idle", [False, True], ids=["new connection", "idle connection"])
def test_where_a_redirect_led_is_checked_again_each_time(
    idle: bool, server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a name that resolves to another address from one request to the next."""
    with Server() as landing:
        server.put("/a", DATA)
        server.always("/a", Redirect(landing.put("/real", DATA)))
        kinds = {server.origin: "public", landing.origin: "public"}
        reaches(monkeypatch, kinds)
        blob = RemoteBlob(HttpRemote(server.origin + "/a"), quick)
        assert read(blob) == DATA[1000:200_000]
        asked = len(landing.log)
        pool = pool_of(Target.of(landing.origin).origin, None)
        kinds[landing.origin] = "loopback"
        pool.forget_idle()
        if idle:
            pool.give_back(pool.connect(time.monotonic() + 60))
        with pytest.raises(RemoteError, match="a redirect from a public to a loopback address"):
            read(blob)
        assert len(landing.log) == asked
        blob.close()


def test_a_redirect_by_way_of_a_public_server_does_not_lead_back_inwards(
    server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as outside:
        server.put("/a", DATA)
        server.put("/secret", b"canary")
        server.always("/a", Redirect(outside.put("/b", DATA)))
        outside.always("/b", Redirect(server.origin + "/secret"))
        reaches(monkeypatch, {outside.origin: "public"})
        with pytest.raises(RemoteError, match="a redirect from a public to a loopback address"):
            RemoteBlob(HttpRemote(server.origin + "/a"), quick).stat()
        assert not server.asked("/secret", "HEAD")


def test_a_password_goes_to_its_own_host_only(server: Server, quick: Patience) -> None:
    with Server() as other:
        there = other.put("/real", DATA)
        server.put("/a", DATA)
        server.put("/b", DATA)
        server.always("/a", Redirect("/b"))
        server.always("/b", Redirect(there))
        login = server.origin.replace("http://", "http://user%40x:can%3Aary@")
        assert read(RemoteBlob(HttpRemote(login + "/a"), quick)) == DATA[1000:200_000]
        assert {request.headers.get("authorization") for request in server.log} == {"Basic dXNlckB4OmNhbjphcnk="}
        assert {request.headers.get("authorization") for request in other.log} == {None}


# ---- secrets -----------------------------------------------------------------------------------------------------------------


def test_the_variables_of_a_traceback_show_no_secret(server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    """As services print them that collect errors, here of an interruption in the middle of a request."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    server.put("/a.tar", DATA)
    remote = HttpRemote(server.origin.replace("http://", "http://canary:canary@") + "/a.tar?X-Amz-Signature=canary")
    monkeypatch.setenv("http_proxy", server.origin.replace("http://", "http://canary:canary@"))
    monkeypatch.setattr("stoker.storage.reply.Wire.send", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        remote.head(quick, 10)
    frames = traceback.TracebackException(caught.type, caught.value, caught.tb.tb_next, capture_locals=True)
    told = "".join(frames.format())
    assert "target = Target(" in told and "canary" not in told


def test_no_error_and_no_log_line_shows_a_secret(server: Server, quick: Patience, caplog: pytest.LogCaptureFixture) -> None:
    server.put("/a.tar", DATA)
    url = server.origin.replace("http://", "http://canary:canary@") + "/a.tar?X-Amz-Signature=canary&X-Amz-Credential=canary"
    blob = RemoteBlob(HttpRemote(url), quick)
    assert blob.url == server.origin + "/a.tar?…" and blob.name == "a.tar" and "canary" not in repr(blob)
    texts = []
    acts = [
        Status(403, body=b"canary"),
        Status(500, body=b"canary"),
        Short(5),
        Coded("canary"),
        Redirect("file://canary"),
        Redirect("canary:x"),
        NoRange(),
    ]
    with caplog.at_level(logging.DEBUG, "stoker"):
        for act in acts:
            blob = RemoteBlob(HttpRemote(url), Patience(budget_s=0.05, first_delay_s=0.01))
            blob.stat()
            server.always("/a.tar", act)
            try:
                read(blob)
            except StokerError as error:
                assert error.__cause__ is None and error.__context__ is None
                texts.append(f"{error} {error!r}")
            server.always("/a.tar")
        server.put("/a.tar", b"other")
        with pytest.raises(ShardChanged) as caught:
            read(blob)
        texts.append(str(caught.value))
    assert len(texts) == len(acts) and "canary" not in "".join(texts) + caplog.text
    assert all("/a.tar?…" in text for text in texts)
    sent = server.log[0]
    assert "X-Amz-Signature=canary" in sent.path and sent.headers["authorization"].startswith("Basic ")


def test_the_file_beside_has_the_same_query_and_a_longer_name(server: Server, quick: Patience) -> None:
    server.put("/a.tar.stk", b"index")
    blob = RemoteBlob(HttpRemote(server.origin + "/a.tar?token=t"), quick).sibling(".stk")
    assert (blob.read_all(100), blob.name) == (b"index", "a.tar.stk")
    assert server.log[-1].path == "/a.tar.stk?token=t"


@pytest.mark.parametrize(
    ("url", "path", "told", "name"),
    [
        ("http://h/a%20b%2Fc.tar", "/a%20b%2Fc.tar", "http://h/a%20b%2Fc.tar", "a b/c.tar"),
        ("http://h/a b.tar", "/a%20b.tar", "http://h/a%20b.tar", "a b.tar"),
        ("http://H:8080/ä.tar", "/%C3%A4.tar", "http://h:8080/%C3%A4.tar", "ä.tar"),
        ("http://h/$(id)", "/$(id)", "http://h/$(id)", "$(id)"),
        ("http://h", "/", "http://h/", "h"),
        ("https://[::1]:1/a?b=c?d#e", "/a?b=c?d", "https://[::1]:1/a?…", "a"),
        ("http://h/%ff.tar", "/%ff.tar", "http://h/%ff.tar", "\\xff.tar"),
        ("http://bücher.example/a", "/a", "http://xn--bcher-kva.example/a", "a"),
        ("http://h/b@c/a.tar", "/b@c/a.tar", "http://h/b@c/a.tar", "a.tar"),
        ("http://u:p@h:1/b@c", "/b@c", "http://h:1/b@c", "b@c"),
        ("http://reader:1234/5678@host/a.tar", "/5678@host/a.tar", "http://…@host/a.tar", "a.tar"),
        ("http://reader:1234/5678@host?q", "/5678@host?q", "http://…@host?…", "…@host"),
    ],
)
def test_urls_are_sent_and_shown_as_they_should_be(url: str, path: str, told: str, name: str) -> None:
    remote = HttpRemote(url)
    assert (remote._target.path, remote.url, remote.name) == (path, told, name)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///a",
        "http://h:99999/",
        "http://h:x/",
        "http://h\n/a",
        "http://h/a\r\nX: y",
        "http://a b/",
        "http://[::1/",
        "http://canary:12?34@h/a",
        "http://canary:12#34@h/a",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_at_the_door(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        HttpRemote(url)
    assert "canary" not in str(caught.value)


# ---- connections -------------------------------------------------------------------------------------------------------------


def test_many_threads_share_a_pool(server: Server, quick: Patience) -> None:
    blobs = [RemoteBlob(HttpRemote(server.put(f"/{number}", DATA[number:])), quick) for number in range(4)]

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            number, start = rng.randrange(4), rng.randrange(200_000)
            length = rng.randrange(1, 20_000)
            assert read(blobs[number], start, start + length) == DATA[number:][start : start + length]

    assert together(8, work) == [None] * 8 and server.connections <= 8
    for blob in blobs:
        blob.close()


def test_closing_the_last_file_of_a_host_closes_its_connections(server: Server, quick: Patience) -> None:
    one, two = (RemoteBlob(HttpRemote(server.put(path, DATA)), quick) for path in ("/a", "/b"))
    before = len(os.listdir("/proc/self/fd"))
    read(one)
    read(two)
    assert server.connections == 1
    one.close()
    read(two)
    assert server.connections == 1, "still held by the other"
    two.close()
    server._server.end_connections()
    pool = pool_of(HttpRemote(server.origin)._target.origin, None)
    assert pool.take_idle() is None
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the server's end may take a moment
    assert read(one) == DATA[1000:200_000]
    one.close()


def test_a_connection_the_server_closed_meanwhile_costs_no_attempt(server: Server, blob: RemoteBlob) -> None:
    read(blob)
    server._server.end_connections()
    once = RemoteBlob(HttpRemote(server.origin + "/dir/a.tar"), Patience(budget_s=0.001))
    assert read(once) == DATA[1000:200_000]


def hold_idle(server: Server, count: int) -> connections.Connections:
    """A pool with so many idle connections, which the server has seen."""
    pool = pool_of(Target.of(server.origin).origin, None)
    for connection in [pool.connect(time.monotonic() + 60) for _ in range(count)]:
        pool.give_back(connection)
    until(lambda: server.connections >= count)
    return pool


@dataclass
class Dead(Act):
    """Nothing comes over any of the first connections: a router has forgotten them, or the server ends them."""

    first: int
    act: Act

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return self.act.change(answer, data, request) if request.connection <= self.first else answer


@pytest.mark.parametrize("act", [Silence(), Garbage(b"")], ids=["forgotten", "ended"])
def test_of_many_idle_connections_that_are_dead_one_is_asked(act: Act, server: Server, hasty: Patience) -> None:
    url = server.put("/a", DATA)
    server.always("/a", Dead(8, act))
    pool = hold_idle(server, 8)
    assert RemoteBlob(HttpRemote(url), hasty).read_all(1 << 20) == DATA
    assert len(pool._idle) <= 1, "the others are closed"
    assert len([request for request in server.log if request.connection <= 8]) == 1
    pool.forget_idle()


def test_a_connection_that_was_idle_for_long_is_not_used(server: Server) -> None:
    pool = hold_idle(server, 2)
    pool._idle[0].idle_since -= connections._IDLE_S + 1
    taken = pool.take_idle()
    assert taken is not None and pool.take_idle() is None
    taken.close()


def test_a_forked_child_makes_connections_of_its_own(server: Server, blob: RemoteBlob) -> None:
    read(blob)
    assert in_child(lambda: read(blob) == DATA[1000:200_000])
    assert read(blob) == DATA[1000:200_000]
    assert server.connections == 2


def test_it_travels_to_another_process(server: Server, blob: RemoteBlob) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(blob))  # noqa: S301
    assert read(again) == DATA[1000:200_000]


# ---- TLS ---------------------------------------------------------------------------------------------------------------------


def test_tls_works_and_keeps_its_connection(certificate: str, quick: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with secure_server(certificate) as server:
        blob = RemoteBlob(HttpRemote(server.put("/a", DATA)), quick)
        for _ in range(3):
            assert read(blob) == DATA[1000:200_000]
        assert server.connections == 1
        blob.close()


def test_a_certificate_nobody_vouches_for_is_refused_at_once(certificate: str, quick: Patience) -> None:
    with secure_server(certificate) as server:
        with pytest.raises(RemoteError, match=r"its certificate is not trusted \(self.signed certificate\)"):
            RemoteBlob(HttpRemote(server.put("/a", DATA)), quick).stat()
        assert server.log == []
