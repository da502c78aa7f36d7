"""Input and output that fails for a moment is tried again; bad data are not; and the batches are the same."""

from __future__ import annotations

import errno
import socket
import urllib.error
from collections import Counter
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError, FunctionError, ReadError, RemoteError
from stoker.loader import Loader, LoaderOptions
from stoker.source.shards.tar_source import TarSource
from stoker.source.source import Rows
from stoker.stage import io_retries
from stoker.stage.io_retries import IoRetries, may_pass
from stoker.storage.scratch import Scratch

from ..loader.runs import hash_of, noise_of, numbers, odd

#: one epoch: the next, made ahead, would take some of the failures
HOW: list[dict[str, Any]] = [{"executor": "inline"}, {"threads": 4}]


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.pauses = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(io_retries, "time", clock)
    return clock


class Flaky:
    """A function that fails some times for each value, and counts its calls."""

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.times, self.error, self.calls = times, error or ConnectionResetError("gone"), Counter[int]()

    def fail(self, x: Any) -> None:
        self.calls[int(x)] += 1
        if self.calls[int(x)] <= self.times and int(x) % 5 == 2:
            raise self.error

    def value(self, x: Any) -> Any:
        self.fail(x)
        return x

    def keep(self, sample: dict[str, Any]) -> bool:
        self.fail(sample["x"])
        return odd(sample)

    def twice(self, sample: dict[str, Any]) -> list[dict[str, Any]]:
        self.fail(sample["x"])
        return [sample, sample]

    def noisy(self, sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        made = noise_of(sample, rng)
        self.fail(sample["x"])
        return made


def verbs(flaky: Flaky) -> dict[str, Pipeline]:
    return {
        "map of a field": numbers().map(x=flaky.value),
        "map with numbers": numbers().shuffle(seed=1).map(flaky.noisy, rng=True),
        "filter": numbers().filter(flaky.keep),
        "flat_map": numbers().flat_map(flaky.twice),
    }


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("name", verbs(Flaky(0)))
def test_a_function_that_fails_for_a_moment_gives_what_it_gives_anyway(name: str, how: dict[str, Any], clock: Clock) -> None:
    wanted = [hash_of(batch) for batch in verbs(Flaky(0))[name].batch(4)]
    flaky = Flaky(2)
    with Loader(verbs(flaky)[name].retry(2).batch(4).plan, LoaderOptions(**how), once=True) as loader:
        assert [hash_of(batch) for batch in loader] == wanted
        assert loader.stats().retried == len(clock.pauses) == 2 * 12 and loader.stats().skipped == 0
    assert all(flaky.calls[x] == (3 if x % 5 == 2 else 1) for x in range(60))


def test_more_failures_than_tries_are_the_sample_s_error_and_none_is_the_default(clock: Clock) -> None:
    flaky = Flaky(2)
    with pytest.raises(FunctionError, match="ConnectionResetError on sample '2': gone") as caught:
        list(numbers().map(x=flaky.value).retry(1).batch(4))
    assert caught.value.stage == "map x" and flaky.calls[2] == 2
    with pytest.raises(FunctionError):
        list(numbers().map(x=Flaky(1).value).batch(4))
    with pytest.raises(FunctionError):
        list(numbers().map(x=Flaky(1).value).retry(3).retry(0).batch(4))


def test_bad_data_and_missing_files_are_not_tried_again(clock: Clock) -> None:
    for error in (ValueError("bad"), FileNotFoundError(2, "No such file"), PermissionError(13, "no"), OSError("cannot identify")):
        flaky = Flaky(1, error)
        with numbers().map(x=flaky.value).retry(5).on_error("skip", budget=60).loader(executor="inline") as loader:
            assert len(list(loader)) == 48 and loader.stats().retried == 0
        assert set(flaky.calls.values()) == {1}
    assert clock.pauses == []


def test_pauses_grow_vary_and_end_before_anybody_calls_it_a_stall(clock: Clock) -> None:
    flaky = Flaky(1 << 30)
    pipeline = numbers(3).map(x=flaky.value).retry(1000).batch(3)
    with pytest.raises(FunctionError):
        list(pipeline)
    assert clock.now <= 130 and len(clock.pauses) > 6
    for number, pause in enumerate(clock.pauses):
        longest = min(5.0, 0.1 * 2**number)
        assert longest / 2 <= pause <= longest
    assert len({pause / min(5.0, 0.1 * 2**number) for number, pause in enumerate(clock.pauses)}) > 1


def test_many_rows_of_a_dead_server_share_one_time_limit(clock: Clock) -> None:
    def dead(row: int) -> Any:
        clock.now += 0.01
        raise TimeoutError

    patient = IoRetries(9).patient(dead, Scratch())
    for row in range(32):
        with pytest.raises(TimeoutError):
            patient(row)
    assert 20 < clock.now - 100 <= 31


class FlakyReads:
    """Makes reads of a kind of source fail for some rows, with what a row holds then in the columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int, times: int) -> None:
        self.code, self.times, self.failed = code, times, Counter[int]()
        read = TarSource.read

        def flaky(source: TarSource, indices: Any, wanted: Any, out: Any, scratch: Scratch) -> Rows:
            rows = read(source, indices, wanted, out, scratch)
            errors = dict(rows.errors)
            for row, index in enumerate(indices.tolist()):
                if index % 3 == 1 and self.failed[index] < self.times:
                    self.failed[index] += 1
                    errors[row] = OSError(self.code, "it failed")
                    for column in rows.columns.values():
                        if isinstance(column, np.ndarray):
                            column[row] = 99
            return Rows(rows.columns, errors)

        monkeypatch.setattr(TarSource, "read", flaky)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shards") / "a.tar"
    samples = [{"__key__": f"s{n:02}", "bin": bytes([n]) * (n + 1), "txt": f"text {n}", "cls": n} for n in range(30)]
    stoker.write_tar(path, samples)
    return path


@pytest.mark.parametrize("how", HOW, ids=str)
def test_reads_that_fail_for_a_moment_are_made_again_and_the_batches_are_the_same(
    shard: Path, how: dict[str, Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = stoker.tar(shard).shuffle(seed=1).batch(7, drop_last=False)
    wanted = [hash_of(batch) for batch in pipeline]
    FlakyReads(monkeypatch, errno.EIO, 2)
    with Loader(pipeline.retry(2).plan, LoaderOptions(**how), once=True) as loader:
        assert [hash_of(batch) for batch in loader] == wanted
        retried = loader.stats().retried
        # Threads read ahead: then some of it is done, and not yet counted.
        assert retried == 20 if how == {"executor": "inline"} else 0 < retried <= 20
    FlakyReads(monkeypatch, errno.EIO, 3)
    with (
        pytest.raises(ReadError, match="it failed") as caught,
        Loader(pipeline.retry(2).plan, LoaderOptions(**how), once=True) as loader,
    ):
        list(loader)
    assert caught.value.stage == "read"


def test_a_file_that_is_gone_is_not_read_again(shard: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = FlakyReads(monkeypatch, errno.ENOENT, 1)
    with stoker.tar(shard).retry(2).on_error("skip", budget=60).loader(executor="inline") as loader:
        assert len(list(loader)) == 20 and loader.stats().skipped_by == {"read: ReadError": 10}
    assert set(flaky.failed.values()) == {1} and clock.pauses == []


class Answer:
    def __init__(self, status: int) -> None:
        self.status_code = status


class Foreign(OSError):
    """As requests has it."""

    def __init__(self, status: int) -> None:
        super().__init__("an answer")
        self.response = Answer(status)


class TransportError(Exception):
    """As httpx has it."""


def wrapped(cause: Exception) -> Exception:
    error = ReadError("could not be read")
    error.__cause__ = cause
    return error


PASSING: list[tuple[BaseException, bool]] = [
    (TimeoutError(), True),
    (BrokenPipeError(), True),
    (OSError(errno.ESTALE, ""), True),
    (wrapped(OSError(errno.EIO, "")), True),
    (socket.gaierror(socket.EAI_AGAIN, "for now"), True),
    (socket.gaierror(socket.EAI_NONAME, "no such host"), False),
    (urllib.error.URLError(ConnectionRefusedError()), True),
    (urllib.error.HTTPError("http://a", 503, "", Message(), None), True),
    (urllib.error.HTTPError("http://a", 404, "", Message(), None), False),
    (Foreign(429), True),
    (Foreign(403), False),
    (TransportError(), True),
    (OSError("image file is truncated"), False),
    (OSError(errno.ENOSPC, ""), False),
    (wrapped(RemoteError("gave up after 40 s", status=503)), False),
    (MemoryError(), False),
]


@pytest.mark.parametrize(("error", "passes"), PASSING, ids=lambda value: repr(value)[:50])
def test_what_may_pass_is_a_matter_of_input_and_output(error: BaseException, passes: bool) -> None:
    assert may_pass(error) is passes


def test_a_pipeline_that_tries_again_is_the_same_pipeline_and_says_so() -> None:
    base = numbers().map(x=abs).batch(4)
    assert base.retry(3).fingerprint() == base.fingerprint()
    assert "errors   raise; input and output are retried up to 3 times" in base.retry(3).explain()
    for times in (-1, 1.5, True, None):
        with pytest.raises(ConfigError, match=r"retry\(times=.*\): must be an integer >= 0"):
            base.retry(times)  # type: ignore[arg-type]
