"""Objects in stores: S3 by moto's server, GCS and Azure by a loopback that speaks as much of them as reading needs."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.errors import ConfigError, MissingExtra, RemoteError, ShardChanged, SourceNotFound, StokerError
from stoker.storage import objects
from stoker.storage.objects import ObjectRemote
from stoker.storage.open import open_blob
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from .conftest import in_child
from .s3 import S3Server
from .server import Act, Coded, Drip, Forever, NoRange, Redirect, Reset, Server, Short, Silence, Status, Tag, WrongRange

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
def test_after_trouble_the_bytes_are_right(act: Act, scripted: Server, quick: Patience, hasty: Patience) -> None:
    blob = opened("s3://bucket/dir/a.tar", hasty if isinstance(act, (Silence, Drip)) else quick)
    blob.stat()
    scripted.script("/bucket/dir/a.tar", act)
    assert read(blob) == DATA[1000:200_000]
    asked = scripted.asked("/bucket/dir/a.tar")
    assert len(asked) == 2, "obstore itself tries once"
    assert all(request.headers["if-match"] == blob.stat().version for request in asked)


def test_the_text_of_an_error_that_never_ends_is_not_read_for_ever(scripted: Server) -> None:
    blob = opened("s3://bucket/dir/a.tar", Patience(silence_s=0.2, connect_s=0.2, budget_s=0.2, first_delay_s=0.01))
    blob._stat = opened("s3://bucket/dir/a.tar", Patience()).stat()
    scripted.always("/bucket/dir/a.tar", Forever(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100000\r\n\r\n", b"x", 0.02))
    with pytest.raises(RemoteError, match=r"^s3://bucket/dir/a.tar: "):
        read(blob)


def test_a_good_answer_that_takes_too_long_is_resumed(scripted: Server) -> None:
    blob = opened("s3://bucket/dir/a.tar", Patience(connect_s=0.5, silence_s=1.5, budget_s=4, first_delay_s=0.01))
    blob.stat()
    scripted.script("/bucket/dir/a.tar", Drip(0.02))
    assert read(blob) == DATA[1000:200_000]
    assert len(scripted.asked("/bucket/dir/a.tar")) == 2


def test_a_break_is_resumed_where_it_came(scripted: Server, quick: Patience) -> None:
    scripted.script("/bucket/dir/a.tar", Short(100_000), Short(50_000))
    assert read(opened("s3://bucket/dir/a.tar", quick)) == DATA[1000:200_000]
    starts = [int(str(request.span).split("-")[0]) for request in scripted.asked("/bucket/dir/a.tar")]
    assert starts == [1000, 101_000, 151_000]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 416])
def test_what_the_store_refuses_fails_at_once(status: int, scripted: Server, quick: Patience) -> None:
    blob = opened("s3://bucket/dir/a.tar", quick)
    blob.stat()
    scripted.always("/bucket/dir/a.tar", Status(status))
    with pytest.raises(RemoteError, match=rf"^s3://bucket/dir/a.tar: HTTP {status}") as caught:
        read(blob)
    assert caught.value.status == status and len(scripted.asked("/bucket/dir/a.tar")) == 1


@pytest.mark.parametrize("act", [Tag('"other"'), Status(412)], ids=str)
def test_another_etag_is_another_object(act: Act, scripted: Server, quick: Patience) -> None:
    blob = opened("s3://bucket/dir/a.tar", quick)
    blob.stat()
    scripted.always("/bucket/dir/a.tar", act)
    with pytest.raises(ShardChanged, match="changed since"):
        read(blob)


@pytest.mark.parametrize("act", [Status(503), WrongRange(), NoRange(), Short(3), Redirect("/elsewhere")], ids=str)
def test_trouble_that_stays_ends_in_an_error(act: Act, scripted: Server) -> None:
    blob = opened("s3://bucket/dir/a.tar", Patience(budget_s=0.3, first_delay_s=0.01, longest_delay_s=0.02))
    blob.stat()
    scripted.always("/bucket/dir/a.tar", act)
    with pytest.raises((RemoteError, SourceNotFound), match=r"^s3://bucket/dir/a.tar: "):
        read(blob)


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


@pytest.mark.parametrize("key", ["a//b.tar", "../b.tar", "a/../b.tar"])
def test_a_key_no_store_has_is_an_error(key: str, scripted: Server, quick: Patience) -> None:
    with pytest.raises(RemoteError, match="cannot use this name"):
        opened(f"s3://bucket/{key}", quick).stat()
    assert scripted.log == []


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
            return "start workers with 'spawn'" in str(error)
        return False

    assert in_child(refuses)
    assert read(blob) == DATA[1000:200_000]


def test_it_travels_to_another_process(scripted: Server, quick: Patience) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(opened("s3://bucket/dir/a.tar", quick)))  # noqa: S301
    assert read(again) == DATA[1000:200_000]
