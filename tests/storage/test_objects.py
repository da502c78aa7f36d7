"""Objects in stores: S3 by moto's server, GCS and Azure by a loopback that speaks as much of them as reading needs."""

from __future__ import annotations

import logging
import pickle
import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stoker.errors import ConfigError, MissingExtra, RemoteError, ShardChanged, SourceNotFound, StokerError
from stoker.storage import connections, objects
from stoker.storage.http import HttpRemote
from stoker.storage.objects import ObjectRemote
from stoker.storage.once import Once
from stoker.storage.open import open_blob
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience, RemoteFault, error_of

from .conftest import in_child
from .s3 import S3Server
from .server import (
    Act,
    Answer,
    Coded,
    Drip,
    Forever,
    NoRange,
    Redirect,
    Request,
    Reset,
    Server,
    Short,
    Silence,
    Status,
    Tag,
    WrongRange,
)

DATA = random.Random(3).randbytes(300_000)


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def s3(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    objects._stores.clear()  # each was made for an environment that is gone
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    return moto


@pytest.fixture
def scripted(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A scripted server that is taken for S3, GCS and Azure."""
    environment(monkeypatch, server.origin)
    server.put("/bucket/dir/a.tar", DATA, modified="Wed, 21 Oct 2015 07:28:00 GMT")
    return server


def environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    objects._stores.clear()  # each was made for an environment that is gone
    for name, value in {
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIDcanary", "AWS_SECRET_ACCESS_KEY": "canary-secret", "AWS_SESSION_TOKEN": "canary-token",
        "GOOGLE_BASE_URL": url, "GOOGLE_SKIP_SIGNATURE": "true", "GOOGLE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ENDPOINT": url, "AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_SKIP_SIGNATURE": "true",
        "AZURE_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


class Refuses(Act):
    """Requests by signed URLs get a 403, like all others where there are none but these."""

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return Answer(403, {}, b"") if is_signed(request) else answer


def is_signed(request: Request) -> bool:
    """Whether it came by a signed URL, from our own client."""
    signed = "X-Amz-Signature=" in request.path or "&sig=" in request.path
    assert signed == (request.headers["user-agent"] == "stoker")
    return signed


class Way:
    """How the bytes of ``s3://bucket/dir/a.tar`` come: by signed URLs, which have worked before, or as obstore reads them."""

    def __init__(self, name: str, server: Server) -> None:
        self.name, self._server = name, server
        #: requests for a read that nobody may do
        self.tries = 2 if name == "signed" else 1

    def open(self, patience: Patience) -> RemoteBlob:
        """The object; its server has been asked for nothing yet that counts."""
        blob = opened("s3://bucket/dir/a.tar", patience)
        blob.stat()
        if self.name == "signed":
            read(blob)
        assert [is_signed(request) for request in self.asked()] == [True] * (self.name == "signed")
        self._server.log.clear()
        return blob

    def asked(self) -> list[Request]:
        return self._server.asked("/bucket/dir/a.tar")


@pytest.fixture(params=["signed", "obstore"])
def way(request: pytest.FixtureRequest, scripted: Server, monkeypatch: pytest.MonkeyPatch) -> Way:
    if request.param == "obstore":
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    return Way(request.param, scripted)


def opened(url: str, patience: Patience) -> RemoteBlob:
    return RemoteBlob(ObjectRemote(url), patience)


def read(blob: Any, start: int = 1000, stop: int = 200_000) -> bytes:
    data = bytearray(stop - start)
    blob.read_into(start, memoryview(data))
    return bytes(data)


# ---- S3 by moto --------------------------------------------------------------------------------------------------------------


def test_an_object_is_read_by_ranges_and_as_a_stream(s3: S3Server) -> None:
    s3.put("train/a b.tar", DATA)
    blob = open_blob("s3://bucket/train/a b.tar")
    assert (blob.url, blob.name, blob.stat().size) == ("s3://bucket/train/a b.tar", "a b.tar", len(DATA))
    for start, stop in [(0, 1), (0, 300_000), (299_999, 300_000), (5, 5), (1000, 200_000)]:
        assert read(blob, start, stop) == DATA[start:stop]
    assert b"".join(map(bytes, blob.stream(7, 10_000))) == DATA[7:]
    assert blob.read_all(1 << 20) == DATA


def test_the_index_beside_an_object_is_found_or_said_to_be_not_there(s3: S3Server) -> None:
    s3.put("b.tar", DATA)
    s3.put("b.tar.stk", b"index")
    blob = open_blob("s3://bucket/b.tar")
    assert blob.sibling(".stk").read_all(100) == b"index"
    with pytest.raises(SourceNotFound, match=r"s3://bucket/b.tar.none: HTTP 404"):
        blob.sibling(".none").read_all(100)
    with pytest.raises(SourceNotFound):
        open_blob("s3://no-such-bucket/b.tar").stat()


def test_a_changed_object_is_noticed(s3: S3Server) -> None:
    s3.put("c.tar", DATA)
    blob = open_blob("s3://bucket/c.tar")
    assert read(blob) == DATA[1000:200_000]
    s3.put("c.tar", DATA[::-1])
    with pytest.raises(ShardChanged, match=r"s3://bucket/c.tar: changed since"):
        read(blob)


# ---- troubles, by a script ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_every_store_reads_the_same_bytes(scheme: str, scripted: Server, quick: Patience) -> None:
    scripted.put("/bucket/dir%2Fa%2Etar", DATA, modified="Wed, 21 Oct 2015 07:28:00 GMT")  # as GCS writes it
    blob = opened(f"{scheme}://bucket/dir/a.tar", quick)
    assert read(blob) == DATA[1000:200_000]
    assert b"".join(map(bytes, blob.stream(7, 10_000))) == DATA[7:]


@pytest.mark.parametrize(
    "act",
    [
        Status(500),
        Status(503),
        Status(429),
        Status(408),
        Short(0),
        Short(70_000),
        Reset(50_000),
        Silence(),
        Silence(999),
        Drip(0.02),
    ],
    ids=str,
)
def test_after_trouble_the_bytes_are_right(act: Act, way: Way, scripted: Server, quick: Patience, hasty: Patience) -> None:
    blob = way.open(hasty if isinstance(act, (Silence, Drip)) else quick)
    scripted.script("/bucket/dir/a.tar", act)
    assert read(blob) == DATA[1000:200_000]
    assert len(way.asked()) == 2, "one attempt, and another"
    assert all(request.headers["if-match"] == blob.stat().version for request in way.asked())
    assert [is_signed(request) for request in way.asked()] == [way.name == "signed"] * 2


def test_the_text_of_an_error_that_never_ends_is_not_read_for_ever(scripted: Server) -> None:
    blob = opened("s3://bucket/dir/a.tar", Patience(silence_s=0.2, connect_s=0.2, budget_s=0.2, first_delay_s=0.01))
    blob._stat = opened("s3://bucket/dir/a.tar", Patience()).stat()
    scripted.always("/bucket/dir/a.tar", Forever(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100000\r\n\r\n", b"x", 0.02))
    with pytest.raises(RemoteError, match=r"^s3://bucket/dir/a.tar: "):
        read(blob)


def test_a_good_answer_that_takes_too_long_for_obstore_is_resumed(scripted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    blob = opened("s3://bucket/dir/a.tar", Patience(connect_s=0.5, silence_s=1.5, budget_s=4, first_delay_s=0.01))
    blob.stat()
    scripted.script("/bucket/dir/a.tar", Drip(0.02))
    assert read(blob) == DATA[1000:200_000]
    assert len(scripted.asked("/bucket/dir/a.tar")) == 2


def test_a_break_is_resumed_where_it_came(way: Way, scripted: Server, quick: Patience) -> None:
    blob = way.open(quick)
    scripted.script("/bucket/dir/a.tar", Short(100_000), Short(50_000))
    assert read(blob) == DATA[1000:200_000]
    assert [int(str(request.span).split("-")[0]) for request in way.asked()] == [1000, 101_000, 151_000]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 416])
def test_what_the_store_refuses_fails_at_once(status: int, way: Way, scripted: Server, quick: Patience) -> None:
    blob = way.open(quick)
    scripted.always("/bucket/dir/a.tar", Status(status))
    with pytest.raises(RemoteError, match=rf"^s3://bucket/dir/a.tar: HTTP {status}") as caught:
        read(blob)
    assert caught.value.status == status and len(way.asked()) == way.tries


@pytest.mark.parametrize("act", [Tag('"other"'), Status(412)], ids=str)
def test_another_etag_is_another_object(act: Act, way: Way, scripted: Server, quick: Patience) -> None:
    blob = way.open(quick)
    scripted.always("/bucket/dir/a.tar", act)
    with pytest.raises(ShardChanged, match="changed since"):
        read(blob)


@pytest.mark.parametrize("act", [Status(503), WrongRange(), Short(3), Redirect("/elsewhere")], ids=str)
def test_trouble_that_stays_ends_in_an_error(act: Act, way: Way, scripted: Server) -> None:
    blob = way.open(Patience(budget_s=0.3, first_delay_s=0.01, longest_delay_s=0.02))
    scripted.always("/bucket/dir/a.tar", act)
    with pytest.raises((RemoteError, SourceNotFound), match=r"^s3://bucket/dir/a.tar: "):
        read(blob)


# ---- signed URLs, and where they do not do -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "name", "value"),
    [("s3", "AWS_REGION", "us-east-1"), ("az", "AZURE_STORAGE_ACCOUNT_KEY", "Y2FuYXJ5")],
)
def test_bytes_come_by_urls_that_are_signed(
    scheme: str, name: str, value: str, scripted: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.delenv("AZURE_SKIP_SIGNATURE")
    blob = opened(f"{scheme}://bucket/dir/a.tar", quick)
    for _ in range(2):
        assert read(blob) == DATA[1000:200_000]
    asked = scripted.asked("/bucket/dir/a.tar")
    assert [is_signed(request) for request in asked] == [True, True]
    assert asked[0].path == asked[1].path, "one URL does for many reads"
    assert all("authorization" not in request.headers for request in asked)


def test_an_old_url_is_signed_again(scripted: Server, quick: Patience) -> None:
    remote = ObjectRemote("s3://bucket/dir/a.tar")
    blob = RemoteBlob(remote, quick)
    read(blob)
    first = remote._signed
    assert first is not None
    remote._signed = first._replace(since=first.since - 500)
    read(blob)
    assert remote._signed is not None and remote._signed.place is not first.place


@pytest.mark.parametrize("worked_before", [False, True])
def test_where_signed_urls_are_refused_obstore_reads(worked_before: bool, scripted: Server, quick: Patience) -> None:
    other = opened("s3://bucket/dir/b.tar", quick)
    scripted.put("/bucket/dir/b.tar", DATA)
    if worked_before:
        read(other)
    scripted.always("/bucket/dir/a.tar", Refuses())
    blob = opened("s3://bucket/dir/a.tar", quick)
    for _ in range(3):
        assert read(blob) == DATA[1000:200_000]
    assert [is_signed(request) for request in scripted.asked("/bucket/dir/a.tar")] == [True, False, False, False]


def test_credentials_that_expired_meanwhile_are_no_reason_to_sign_no_more(scripted: Server, quick: Patience) -> None:
    remote = ObjectRemote("s3://bucket/dir/a.tar")
    blob = RemoteBlob(remote, quick)
    read(blob)
    assert remote._signed is not None
    remote._signed = remote._signed._replace(since=remote._signed.since - 300)
    scripted.script("/bucket/dir/a.tar", Status(403))
    for _ in range(2):
        assert read(blob) == DATA[1000:200_000]
    assert [is_signed(request) for request in scripted.asked("/bucket/dir/a.tar")] == [True, True, False, True]


def test_a_store_in_which_no_signed_url_ever_works_is_soon_read_by_obstore_alone(
    scripted: Server, quick: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stoker")
    blobs = []
    for number in range(6):
        scripted.put(f"/bucket/{number}.tar", DATA)
        scripted.always(f"/bucket/{number}.tar", Refuses())
        blobs.append(opened(f"s3://bucket/{number}.tar", quick))
        assert read(blobs[-1]) == DATA[1000:200_000]
    asked = [request for number in range(6) for request in scripted.asked(f"/bucket/{number}.tar")]
    assert [is_signed(request) for request in asked] == [True, False] * objects._MOST_DOUBTS + [False] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "s3://bucket: signed URLs do not work now; obstore reads, which takes more processor time"
    ]
    # As when there was a disturbance while the first of many hours began.
    scripted.always("/bucket/5.tar")
    store = blobs[-1]._remote._store
    assert time.monotonic() < store.unsigned_until <= time.monotonic() + objects._SIGNED_S / 2
    store.unsigned_until = 0.0
    for _ in range(2):
        read(blobs[-1])
    assert [is_signed(request) for request in scripted.asked("/bucket/5.tar")] == [False, True, True] and store.signs()


def test_after_some_time_signed_urls_are_tried_again(scripted: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where obstore could not sign, as when a server that does it for obstore did not answer."""
    read(opened("s3://bucket/dir/a.tar", quick))  # they work in this store
    remote = ObjectRemote("s3://bucket/dir/a.tar")
    blob = RemoteBlob(remote, quick)
    scripted.log.clear()
    with monkeypatch.context() as failing:
        failing.setattr("obstore.sign", lambda *_: (_ for _ in ()).throw(TimeoutError("operation timed out")))
        read(blob)
    read(blob)
    assert 0 < remote._unsigned_until - time.monotonic() <= objects._SIGNED_S / 2
    remote._unsigned_until = 0.0
    scripted.script("/bucket/dir/a.tar", Refuses())
    read(blob)
    remote._unsigned_until = 0.0
    read(blob)
    assert [is_signed(request) for request in scripted.asked("/bucket/dir/a.tar")] == [False, False, True, False, True]


def test_silence_is_waited_for_once_an_attempt(scripted: Server, hasty: Patience) -> None:
    """Not for a signed URL and then for obstore, or a read would take twice its time."""
    blob = opened("s3://bucket/dir/a.tar", hasty)
    blob.stat()
    scripted.script("/bucket/dir/a.tar", Silence())
    with pytest.raises(RemoteFault, match="nothing came in time"):
        blob._remote.get(0, 100, blob.stat(), hasty, hasty.silence_s)
    assert [is_signed(request) for request in scripted.asked("/bucket/dir/a.tar")] == [True]
    assert read(blob) == DATA[1000:200_000]
    assert [is_signed(request) for request in scripted.asked("/bucket/dir/a.tar")] == [True, False]


def test_a_url_that_names_another_object_is_not_used(scripted: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore leaves "%" and "#" in a key as they are when it signs URLs of Google's, so that they mean something else there."""
    scripted.put("/bucket/aA.tar", DATA[::-1], etag='"same"')
    scripted.put("/bucket/a%2541.tar", DATA, etag='"same"', modified="Wed, 21 Oct 2015 07:28:00 GMT")
    monkeypatch.setattr("obstore.sign", lambda *_: f"{scripted.origin}/bucket/a%41.tar?X-Amz-Signature=1")
    scripted.put("/bucket/a%41.tar", DATA[::-1], etag='"same"')
    assert read(opened("s3://bucket/a%41.tar", quick)) == DATA[1000:200_000]
    assert [request.path for request in scripted.log] == ["/bucket/a%2541.tar"] * 2


def test_a_busy_store_is_still_asked_by_signed_urls(scripted: Server, quick: Patience) -> None:
    blob = opened("s3://bucket/dir/a.tar", quick)
    blob.stat()
    for _ in range(4):
        scripted.script("/bucket/dir/a.tar", Status(503))
        assert read(blob) == DATA[1000:200_000]
    assert all(map(is_signed, scripted.asked("/bucket/dir/a.tar")))


@pytest.mark.parametrize("name", ["AWS_SKIP_SIGNATURE", "AWS_PROXY_URL", "AZURE_STORAGE_SAS_KEY"])
def test_what_cannot_be_signed_is_read_by_obstore(
    name: str, scripted: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"AWS_SKIP_SIGNATURE": "true", "AWS_PROXY_URL": scripted.origin, "AZURE_STORAGE_SAS_KEY": "sv=1&sp=r"}[name]
    monkeypatch.setenv(name, value)
    monkeypatch.delenv("AZURE_SKIP_SIGNATURE")
    if name == "AWS_PROXY_URL":
        scripted.put(f"{scripted.origin}/bucket/dir/a.tar", DATA)
    blob = opened(f"{'az' if name.startswith('AZ') else 's3'}://bucket/dir/a.tar", quick)
    assert read(blob) == DATA[1000:200_000]
    asked = [request for request in scripted.log if request.method == "GET"]
    assert [request.headers["user-agent"] == "stoker" for request in asked] == [False]


def test_an_object_without_a_strong_etag_is_read_by_obstore(scripted: Server, quick: Patience) -> None:
    scripted.put("/bucket/dir/a.tar", DATA, etag='W/"weak"', modified="Wed, 21 Oct 2015 07:28:00 GMT")
    assert read(opened("s3://bucket/dir/a.tar", quick)) == DATA[1000:200_000]
    assert [is_signed(request) for request in scripted.asked("/bucket/dir/a.tar")] == [False]


def test_a_url_that_our_client_cannot_use_is_no_error(scripted: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> HttpRemote:
        raise ConfigError("it names no host")

    monkeypatch.setattr(objects, "HttpRemote", refuse)
    assert read(opened("s3://bucket/dir/a.tar", quick)) == DATA[1000:200_000]


def test_who_lets_go_of_the_last_object_ends_its_connections(scripted: Server, quick: Patience) -> None:
    blob = opened("s3://bucket/dir/a.tar", quick)
    read(blob)
    assert any(origin.authority in scripted.origin for origin, _ in connections._pools)
    blob.close()
    assert not any(origin.authority in scripted.origin for origin, _ in connections._pools)


def test_an_object_with_a_coding_is_read_as_it_is_stored(scripted: Server, quick: Patience) -> None:
    scripted.always(
        "/bucket/dir/a.tar", Coded("gzip")
    )  # as it was uploaded: obstore does not unpack it, and must not be asked to
    assert read(opened("s3://bucket/dir/a.tar", quick)) == DATA[1000:200_000]


def test_a_store_that_sends_no_parts_is_named(
    way: Way, scripted: Server, quick: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    blob = way.open(quick)
    scripted.always("/bucket/dir/a.tar", NoRange())
    try:
        assert read(blob) == DATA[1000:200_000]
    except RemoteError as error:
        assert "the server cannot send a part of a file" in str(error)
    else:
        assert "the server cannot send a part of a file" in caplog.text and "Signature" not in caplog.text


def test_many_objects_have_their_warnings_once_and_by_their_own_names(
    scripted: Server, quick: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    once = Once()
    for name in "ab":
        scripted.put(f"/bucket/dir/{name}.tar", DATA)
        scripted.always(f"/bucket/dir/{name}.tar", NoRange())
        remote = pickle.loads(pickle.dumps(ObjectRemote(f"s3://bucket/dir/{name}.tar")))  # noqa: S301
        remote._once = once
        assert read(RemoteBlob(remote, quick)) == DATA[1000:200_000]
        remote._signed = None  # as after some minutes
        assert read(RemoteBlob(remote, quick)) == DATA[1000:200_000]
    assert [record.getMessage()[:25] for record in caplog.records] == ["s3://bucket/dir/a.tar: th"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("AWS_SKIP_SIGNATURE", "canary", "obstore cannot use its configuration; check the variables that begin with AWS_$"),
        ("AWS_ENDPOINT_URL", "canary", "the variable AWS_ENDPOINT_URL is not a URL; write http://"),
        ("AWS_ENDPOINT_URL", "http://canary canary", "obstore "),
    ],
)
def test_a_configuration_that_cannot_be_used_is_not_tried_again(
    name: str, value: str, why: str, scripted: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(RemoteError, match=rf"^s3://bucket/a: {why}") as caught:
        opened("s3://bucket/a", Patience(budget_s=5)).stat()
    assert "canary" not in str(caught.value) and "attempts" not in str(caught.value)


def test_a_store_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as gone:
        environment(monkeypatch, gone.origin)
    with pytest.raises(RemoteError, match="the connection failed"):
        opened("s3://bucket/a", Patience(budget_s=0.1, first_delay_s=0.01, connect_s=1)).stat()


def test_plain_http_has_to_be_allowed(scripted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    with pytest.raises(RemoteError, match="set AWS_ALLOW_HTTP=true if it is meant"):
        opened("s3://bucket/a", Patience(budget_s=0.5)).stat()


def test_no_message_shows_what_a_store_says_or_is_given(scripted: Server, caplog: pytest.LogCaptureFixture) -> None:
    told = b"<Error><AWSAccessKeyId>AKIDcanary</AWSAccessKeyId><StringToSign>canary</StringToSign></Error>"
    texts = []
    with caplog.at_level(logging.DEBUG, "stoker"):
        for act in [
            Status(403, body=told),
            Status(400, body=told),
            Status(500, body=told),
            Short(7),
            Coded("canary"),
            Tag('"canary"'),
        ]:
            blob = opened("s3://bucket/dir/a.tar", Patience(budget_s=0.05, first_delay_s=0.01, connect_s=3.5))
            blob.stat()
            scripted.always("/bucket/dir/a.tar", act)
            try:
                read(blob)
            except StokerError as error:
                assert error.__cause__ is None and error.__context__ is None
                texts.append(f"{error} {error!r} {blob!r}")
            scripted.always("/bucket/dir/a.tar")
    assert len(texts) >= 5 and "canary" not in "".join(texts) + caplog.text


def test_each_error_has_one_remedy(scripted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores answer 400 where credentials for a limited time have expired."""
    scripted.always("/bucket/dir/a.tar", Status(400))
    with pytest.raises(
        RemoteError, match=r"a\.tar: HTTP 400 Bad Request; check .* credentials for a limited time have not expired$"
    ):
        opened("s3://bucket/dir/a.tar", Patience()).stat()
    objects._stores.clear()
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(
        RemoteError, match=r"a\.tar: the endpoint is http:// and that is not allowed; set AWS_ALLOW_HTTP=true[^;]*$"
    ):
        opened("s3://bucket/dir/a.tar", Patience()).stat()
    no_answer = objects._fault_of(OSError("error sending request for url (http://169.254.169.254/latest/api/token)"))
    said = str(error_of(ObjectRemote("s3://bucket/dir/a.tar"), no_answer))
    assert re.search(r"a\.tar: no credentials were found; set them as obstore reads them [^;]*$", said)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_that_is_no_url_is_named(name: str, scripted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "localhost:9000")
    with pytest.raises(
        RemoteError, match=rf"a\.tar: the variable {name} is not a URL; write http:// or https:// before the host"
    ):
        opened("s3://bucket/dir/a.tar", Patience()).stat()


def test_where_nobody_listens_at_an_endpoint_the_remedy_says_where_to_look(
    quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(RemoteError, match=r"the connection failed; gave up .*; check the network, and the address of the server"):
        opened("s3://bucket/dir/a.tar", replace(quick, budget_s=0.05)).stat()


# ---- names, and what is missing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://bucket",
        "s3://bucket/",
        "s3:///key",
        "s3://canary:canary@bucket/key",
        "s3://bucket/key?X-Amz-Signature=canary",
    ],
)
def test_a_url_that_names_no_object_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="must be s3://bucket/key") as caught:
        open_blob(url)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("key", ["a\tb.tar", "a\x01.tar"])
def test_a_key_no_store_has_is_an_error(key: str, scripted: Server, quick: Patience) -> None:
    with pytest.raises(RemoteError, match="cannot use this name"):
        opened(f"s3://bucket/{key}", quick).stat()
    assert scripted.log == []


@pytest.mark.parametrize("key", ["/a.tar", "a.tar/", "a/b/", "a//b.tar", "../b.tar", "a/../b.tar", "a/./b.tar"])
def test_a_key_that_obstore_refuses_or_would_take_for_another_is_refused_with_a_remedy(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(key)}: names .* are not supported; check for a '/' too many"):
        ObjectRemote(f"s3://bucket/{key}")


def test_a_missing_package_names_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"gs:// needs the package obstore: pip install 'stoker\[remote\]'"):
        open_blob("gs://bucket/a.tar")


def test_a_forked_child_says_that_it_cannot_read_instead_of_waiting_for_ever(scripted: Server, quick: Patience) -> None:
    blob = opened("s3://bucket/dir/a.tar", quick)
    read(blob)

    def refuses() -> bool:
        try:
            read(blob)
        except RemoteError as error:
            return str(error).endswith("; start workers with 'spawn' or 'forkserver'")
        return False

    assert in_child(refuses)
    assert read(blob) == DATA[1000:200_000]


def test_it_travels_to_another_process(scripted: Server, quick: Patience) -> None:
    again = pickle.loads(pickle.dumps(opened("s3://bucket/dir/a.tar", quick)))  # noqa: S301
    assert read(again) == DATA[1000:200_000]
