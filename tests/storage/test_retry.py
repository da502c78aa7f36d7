"""The one loop of patience, on a fake file far away and a clock that only moves when somebody waits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from stoker.errors import ConfigError, RemoteError, ShardChanged, SourceNotFound
from stoker.storage.blob import Stat
from stoker.storage.http import HttpRemote
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Body, Patience, Remote, RemoteFault, read_range, refused

from .conftest import FakeClock
from .server import Server, Short

DATA = bytes(range(256)) * 1024  # 256 KiB
STAT = Stat(len(DATA), '"v1"')
#: what an attempt is like: how many bytes come before it fails, and how; None: it goes well
Attempt = tuple[int, Exception | None] | None


class FakeBody(Body):
    def __init__(self, remote: FakeRemote, at: int, stop: int, attempt: Attempt) -> None:
        self.remote, self.at, self.stop = remote, at, stop
        self.left, self.fault = attempt if attempt is not None else (1 << 60, None)

    def readinto(self, view: memoryview, wait_s: float) -> int:
        self.remote.before_piece()
        self.remote.waits.append(wait_s)
        count = min(len(view), self.stop - self.at, self.left, self.remote.piece)
        if not count and self.fault is not None:
            raise self.fault
        view[:count] = DATA[self.at : self.at + count]
        self.at, self.left = self.at + count, self.left - count
        return count

    def close(self) -> None:
        self.remote.closed += 1


class FakeRemote(Remote):
    url, name, address = "fake://host/a.tar", "a.tar", "fake://user:canary@host/a.tar?sig=canary"

    def __init__(self, *attempts: Attempt | RemoteFault, piece: int = 5000, back: int = 0) -> None:
        self.attempts, self.piece, self.back = list(attempts), piece, back
        self.asked: list[tuple[int, int]] = []
        #: how long each answer, and each piece of one, was to be waited for
        self.limits: list[float] = []
        self.waits: list[float] = []
        self.closed = 0
        self.before_piece: Callable[[], None] = lambda: None
        self.before_answer: Callable[[], None] = lambda: None

    def head(self, patience: Patience, limit_s: float) -> Stat:
        self.limits.append(limit_s)
        attempt = self.attempts.pop(0) if self.attempts else None
        if isinstance(attempt, RemoteFault):
            raise attempt
        return STAT

    def get(self, start: int, stop: int, stat: Stat, patience: Patience, limit_s: float) -> Body:
        self.asked.append((start, stop))
        self.limits.append(limit_s)
        self.before_answer()
        attempt = self.attempts.pop(0) if self.attempts else None
        if isinstance(attempt, RemoteFault):
            raise attempt
        return FakeBody(self, max(0, start - self.back), stop, attempt)

    def sibling(self, suffix: str) -> FakeRemote:
        return FakeRemote()


def read(remote: Remote, clock: FakeClock, start: int = 100, stop: int = 200_000, patience: Patience | None = None) -> bytes:
    data = bytearray(stop - start)
    read_range(remote, start, stop, memoryview(data), STAT, patience or Patience(), clock)
    return bytes(data)


def test_a_read_that_goes_well_is_one_request_and_no_pause(clock: FakeClock) -> None:
    remote = FakeRemote()
    assert read(remote, clock) == DATA[100:200_000]
    assert (remote.asked, clock.pauses, remote.closed) == ([(100, 200_000)], [], 1)


def test_whoever_asks_hears_of_bytes_as_they_come_and_of_nothing_else(clock: FakeClock) -> None:
    remote, heard = FakeRemote(None, (9_000, None)), list[int]()
    blob, data = RemoteBlob(remote, clock=clock), memoryview(bytearray(20_000))
    blob.read_into(0, data, None, lambda: heard.append(len(remote.waits)))
    assert data == DATA[:20_000] and heard == [1, 2, 4, 5, 6], "of five pieces, and not of the end that came too early"


@pytest.mark.parametrize("after", [0, 1, 4999, 5000, 5001, 100_000, 199_899])
@pytest.mark.parametrize("fault", [None, RemoteFault("reset")], ids=["short", "reset"])
def test_after_a_break_it_goes_on_from_the_last_good_byte(after: int, fault: RemoteFault | None, clock: FakeClock) -> None:
    remote = FakeRemote((after, fault))
    assert read(remote, clock) == DATA[100:200_000]
    assert remote.asked == [(100, 200_000), (100 + after, 200_000)]
    assert remote.closed == 2 and len(clock.pauses) == 1


def test_pauses_grow_up_to_a_cap_and_end_with_the_budget(clock: FakeClock) -> None:
    remote = FakeRemote(*[refused(503)] * 100)
    patience = Patience(first_delay_s=1, delay_factor=2, longest_delay_s=8, budget_s=40)
    with pytest.raises(
        RemoteError, match=r"fake://host/a.tar: HTTP 503 .* at byte 100; gave up after 8 attempts in 39 s"
    ) as caught:
        read(remote, clock, patience=patience)
    assert clock.pauses == [1, 2, 4, 8, 8, 8, 8]
    assert (caught.value.status, caught.value.url) == (503, "fake://host/a.tar")


def test_a_server_that_fails_for_long_is_named_while_attempts_go_on(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.storage.retry._warned", {})
    patience = Patience(first_delay_s=1, delay_factor=2, longest_delay_s=8, budget_s=40)
    read(FakeRemote(refused(503)), clock, patience=patience)
    assert not caplog.records, "one short pause is nothing to tell"
    for _ in range(2):  # the second is of the same minute
        read(FakeRemote(*[refused(503)] * 5), clock, patience=patience)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "fake://host/a.tar: HTTP 503" in caplog.text and "; trying again for up to 37 s" in caplog.text


def test_chance_makes_pauses_shorter_by_up_to_a_half(clock: FakeClock) -> None:
    clock.chance = lambda: 0.0  # type: ignore[method-assign]
    read(FakeRemote(refused(500), refused(500)), clock, patience=Patience(first_delay_s=1))
    assert clock.pauses == [0.5, 1.0]


def test_retry_after_is_kept_and_capped(clock: FakeClock) -> None:
    patience = Patience(first_delay_s=1, longest_retry_after_s=30, budget_s=100)
    read(FakeRemote(refused(429, after_s=7), refused(503, after_s=86400), refused(429, after_s=0)), clock, patience=patience)
    assert clock.pauses == [7, 30, 4]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 416, 418, 451, 304, 204])
def test_what_will_not_pass_fails_at_once_with_the_url(status: int, clock: FakeClock) -> None:
    remote = FakeRemote(refused(status))
    with pytest.raises(RemoteError, match=rf"^fake://host/a.tar: HTTP {status}") as caught:
        read(remote, clock)
    assert (len(remote.asked), clock.pauses, caught.value.status) == (1, [], status)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(status: int, clock: FakeClock) -> None:
    assert read(FakeRemote(refused(status)), clock) == DATA[100:200_000]


def test_a_changed_file_is_told_at_once(clock: FakeClock) -> None:
    remote = FakeRemote((10_000, RemoteFault("reset")), refused(412))
    with pytest.raises(ShardChanged, match=r"fake://host/a.tar: changed since it was opened .* at byte 10,100") as caught:
        read(remote, clock)
    assert caught.value.shard == "fake://host/a.tar" and len(remote.asked) == 2


def test_a_trickle_is_broken_off_and_asked_for_again(clock: FakeClock) -> None:
    remote = FakeRemote(piece=1)

    def a_second_passes() -> None:
        clock.time += 1
        if len(remote.asked) > 1:
            remote.piece = 1 << 20  # the second connection is a good one

    remote.before_piece = a_second_passes
    assert read(remote, clock) == DATA[100:200_000]
    assert remote.asked == [(100, 200_000), (115, 200_000)]  # 15 s were enough to see it


def test_what_came_late_but_whole_is_not_too_slow(clock: FakeClock) -> None:
    """A small file from a store that thinks for longer than the rate is looked at, before its headers or after them."""
    patience, remote = Patience(silence_s=60, budget_s=300), FakeRemote()

    def time_passes(seconds: float) -> None:
        clock.time += seconds

    remote.before_piece = lambda: time_passes(20)
    assert read(remote, clock, 100, 200, patience) == DATA[100:200]
    remote = FakeRemote(piece=50)
    remote.before_answer = lambda: time_passes(20)
    assert read(remote, clock, 100, 200, patience) == DATA[100:200]
    assert len(remote.asked) == 1 and not clock.pauses


def test_a_trickle_that_stays_ends_in_an_error(clock: FakeClock) -> None:
    remote = FakeRemote(piece=1)

    def a_second_passes() -> None:
        clock.time += 1

    remote.before_piece = a_second_passes
    with pytest.raises(RemoteError, match=r"only 1\d bytes came in 1\d s at byte \d+; gave up after \d attempts"):
        read(remote, clock)
    assert clock.time < 60


def test_a_server_that_breaks_off_after_every_few_bytes_ends_in_an_error_too(clock: FakeClock) -> None:
    with pytest.raises(RemoteError, match=r"the answer ended .* bytes early"):
        read(FakeRemote(*[(10, None)] * 1000), clock)
    assert clock.time <= Patience().budget_s


def test_real_progress_restores_patience(clock: FakeClock) -> None:
    blob = RemoteBlob(FakeRemote(None, *[(70_000, None), *[refused(503)] * 3] * 3), Patience(budget_s=20, first_delay_s=1), clock)
    data = bytearray(256 * 1024)
    blob.read_into(0, memoryview(data))
    assert bytes(data) == DATA
    assert sum(clock.pauses) > 20


def test_bytes_that_came_before_are_no_progress(clock: FakeClock) -> None:
    """A server that cannot begin in the middle and ends each answer at the same place, before what is wanted."""
    remote = FakeRemote(*[(70_000, None)] * 1000, back=1 << 30)
    with pytest.raises(RemoteError, match="the answer ended at byte 70,000, before what was asked for"):
        read(remote, clock, 150_000, 150_010, Patience(budget_s=3))
    assert clock.time <= 3 and len(remote.asked) < 10
    with pytest.raises(RemoteError, match="at byte 70,000; gave up"):
        read(FakeRemote(*[(70_000, None)] * 1000, back=1 << 30), clock, 0, 200_000, Patience(budget_s=3))


def test_a_long_way_to_skip_uses_up_no_patience(clock: FakeClock) -> None:
    remote = FakeRemote((160_000, None), back=1 << 30, piece=20_000)

    def ten_seconds_pass() -> None:
        clock.time += 10

    remote.before_piece = ten_seconds_pass
    assert read(remote, clock, 150_000, 200_000) == DATA[150_000:200_000]
    assert clock.time > 3 * Patience().budget_s and len(remote.asked) == 2


def test_an_attempt_may_take_what_is_left_of_the_budget(clock: FakeClock) -> None:
    patience = Patience(connect_s=1, silence_s=4, rate_window_s=100, budget_s=10, first_delay_s=1, longest_delay_s=1)
    remote = FakeRemote(*[(1, RemoteFault("silence"))] * 100)

    def three_seconds_pass() -> None:
        clock.time += 3

    remote.before_piece = three_seconds_pass
    with pytest.raises(RemoteError, match="gave up after 2 attempts"):
        read(remote, clock, patience=patience)
    assert remote.limits == [10, 3]
    assert remote.waits == [4, 4, 3]
    with pytest.raises(RemoteError):
        RemoteBlob(asked := FakeRemote(*[RemoteFault("no")] * 100), Patience(budget_s=0.2, first_delay_s=0.1), clock).stat()
    assert asked.limits == [25, pytest.approx(0.1)], "one attempt is always made in full"


def test_an_attempt_cut_off_by_the_budget_does_not_hide_what_went_wrong_before(clock: FakeClock) -> None:
    patience = Patience(silence_s=15, budget_s=8, first_delay_s=4, longest_delay_s=4)
    late = RemoteFault("nothing came in time", late=True)
    with pytest.raises(RemoteError, match=r"HTTP 503 .* gave up after 3 attempts") as caught:
        read(FakeRemote(refused(503), late, late), clock, patience=patience)
    assert caught.value.status == 503
    with pytest.raises(RemoteError, match="nothing came in time"):
        read(FakeRemote(refused(503), *[late] * 100), clock, patience=replace(patience, silence_s=1, budget_s=16))


def test_an_answer_that_begins_earlier_is_skipped_to_the_right_place(clock: FakeClock) -> None:
    assert read(FakeRemote(back=100_000), clock, 150_000, 150_010) == DATA[150_000:150_010]
    assert read(FakeRemote((3, None), back=1 << 30), clock, 150_000, 150_010) == DATA[150_000:150_010]


def test_an_answer_that_begins_later_is_never_used(clock: FakeClock) -> None:
    with pytest.raises(RemoteError, match="begins at byte 101 and not at byte 100; gave up after 3 attempts"):
        read(FakeRemote(back=-1), clock)


def test_a_stream_is_one_request_and_resumes(clock: FakeClock) -> None:
    remote = FakeRemote(None, (30_000, None))
    blob = RemoteBlob(remote, clock=clock)
    assert b"".join(map(bytes, blob.stream(1000, 4096))) == DATA[1000:]
    assert remote.asked == [(1000, len(DATA)), (31_000, len(DATA))]
    assert list(blob.stream(len(DATA))) == []


def test_a_slow_consumer_is_no_slow_server(clock: FakeClock) -> None:
    remote = FakeRemote()
    got = b""
    for piece in RemoteBlob(remote, clock=clock).stream(0, 1000):
        clock.time += 1000
        got += bytes(piece)
    assert got == DATA and len(remote.asked) == 1


def test_a_stream_left_early_lets_go_of_its_answer(clock: FakeClock) -> None:
    remote = FakeRemote()
    pieces = RemoteBlob(remote, clock=clock).stream()
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert remote.closed == 1


def test_size_and_version_are_asked_for_once_and_with_patience(clock: FakeClock) -> None:
    remote = FakeRemote(refused(500), refused(503))
    blob = RemoteBlob(remote, clock=clock)
    assert blob.stat() == STAT and blob.stat() is blob.stat()
    assert len(clock.pauses) == 2 and not remote.attempts


def test_a_file_that_is_not_there_is_said_to_be_not_there(clock: FakeClock) -> None:
    with pytest.raises(SourceNotFound, match=r"fake://host/a.tar: HTTP 404 Not Found; check the spelling"):
        RemoteBlob(FakeRemote(refused(404)), clock=clock).read_all(100)


def test_reading_behind_the_end_is_told_before_anything_is_asked(clock: FakeClock) -> None:
    remote = FakeRemote()
    with pytest.raises(ShardChanged, match="its index belongs to another file"):
        RemoteBlob(remote, clock=clock).read_into(len(DATA) - 1, memoryview(bytearray(2)))
    assert not remote.asked


def test_a_file_too_large_to_read_at_once_is_not_read(clock: FakeClock) -> None:
    blob = RemoteBlob(FakeRemote(), clock=clock)
    with pytest.raises(RemoteError, match="262,144 bytes, more than the 1,000"):
        blob.read_all(1000)
    assert blob.read_all(1 << 20) == DATA


@pytest.mark.parametrize("by", ["close", "stopped"])
def test_who_wants_no_more_ends_an_answer_in_its_middle(by: str, clock: FakeClock) -> None:
    remote, stopped = FakeRemote(), threading.Event()
    blob = RemoteBlob(remote, clock=clock)
    remote.before_piece = blob.close if by == "close" else stopped.set
    data = bytearray(100_000)
    with pytest.raises(RemoteError, match=r"^fake://host/a.tar: closed while it was read$"):
        blob.read_into(0, memoryview(data), stopped if by == "stopped" else None)
    assert (len(remote.waits), remote.closed) == (1, 1), "a piece, and the answer was let go of"
    remote.before_piece = lambda: None
    blob.read_into(0, memoryview(data))
    assert data == DATA[:100_000], "it can be used again"


def test_closing_ends_the_wait_for_another_attempt(clock: FakeClock) -> None:
    remote = FakeRemote(None, *[refused(503)] * 1000)
    blob = RemoteBlob(remote, clock=clock)
    clock.pause = lambda seconds, stop: blob.close()  # type: ignore[method-assign]
    with pytest.raises(RemoteError, match="closed while it was read"):
        blob.read_into(0, memoryview(bytearray(10)))
    remote.attempts.clear()
    blob.read_into(0, memoryview(bytearray(10)))  # and may be used again


def test_no_message_holds_what_is_secret(clock: FakeClock) -> None:
    for attempts in ([refused(403)], [refused(412)], [RemoteFault("reset")] * 100):
        with pytest.raises((RemoteError, ShardChanged)) as caught:
            read(FakeRemote(*attempts), clock)
        assert "canary" not in str(caught.value) and caught.value.__cause__ is None and caught.value.__context__ is None
    assert "canary" not in repr(RemoteBlob(FakeRemote()))


def test_patience_says_which_number_is_wrong() -> None:
    with pytest.raises(ConfigError, match="silence_s=0"):
        Patience(silence_s=0)
    for name in ("connect_s", "silence_s", "budget_s", "longest_delay_s", "delay_factor"):
        for value in (math.inf, 1e10, math.nan):
            with pytest.raises(ConfigError, match=rf"{name}=.*: must be"):
                Patience(**{name: value})
    Patience(least_bytes_per_s=1e9, progress_bytes=1 << 30)


def test_the_longest_patience_there_can_be_still_reads(server: Server) -> None:
    url = server.put("/a", DATA)
    server.script("/a", Short(5), Short(5), Short(5))
    long = dict.fromkeys(("connect_s", "silence_s", "rate_window_s", "budget_s", "delay_factor"), 1e6)
    blob = RemoteBlob(HttpRemote(url), Patience(**long, first_delay_s=0.001, longest_delay_s=0.001))
    assert blob.read_all(1 << 20) == DATA
    blob.close()


def test_the_real_clock_wakes_up_when_it_is_told_to() -> None:
    from stoker.storage.retry import Clock

    stop = threading.Event()
    stop.set()
    clock = Clock()
    before = clock.now()
    clock.pause(3600, stop)
    assert before <= clock.now() and 0 <= clock.chance() < 1
