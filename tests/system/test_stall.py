"""Functions that never return: a report that names them, an end within seconds, and a process that can still exit."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import Pipeline
from stoker.engine import feed, process_executor
from stoker.errors import StallError, WorkerError

from ..loader.runs import numbers, samples
from ..support import Passing

RELEASE = threading.Event()


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    RELEASE.clear()
    yield
    RELEASE.set()


def the_function_that_hangs(x: Any) -> Any:
    if x == 21:
        RELEASE.wait(60)
    return x


def hanging_samples() -> Iterator[dict[str, Any]]:
    for sample in samples():
        the_function_that_hangs(sample["x"])
        yield sample


PLACES: dict[str, tuple[Callable[[], Pipeline], int]] = {
    "map": (lambda: numbers().map(x=the_function_that_hangs).batch(4), 5),
    "filter": (lambda: numbers().filter(lambda s: the_function_that_hangs(s["x"]) is not None).batch(4), 5),
    "map behind filter": (lambda: numbers().filter(lambda s: True).map(x=the_function_that_hangs).batch(4), 5),
    "map_batch": (lambda: numbers().batch(3).map_batch(lambda c: [the_function_that_hangs(x) for x in c["x"]] and c), 7),
    "stream": (lambda: stoker.stream(hanging_samples).batch(4), 5),
    "single": (lambda: numbers().map(x=the_function_that_hangs), 21),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_function_that_never_returns_is_named_and_does_not_hold_up_the_end(place: str) -> None:
    make, before = PLACES[place]
    loader = make().loader(threads=2, watchdog_s=2)
    seen = 0
    begun = time.monotonic()
    with pytest.raises(StallError, match="the_function_that_hangs") as caught:
        for _ in loader:
            seen += 1
    assert isinstance(caught.value, TimeoutError)
    assert place == "stream" or re.search(r"worker \d, at .*'21'", str(caught.value)), "the samples it was at are named"
    assert seen <= before
    assert time.monotonic() - begun < 15
    closing = time.monotonic()
    loader.close()
    assert time.monotonic() - closing < 10, "it waits a second for each kind of worker, not for ever"


class HangTime:
    """A clock that stands still but while a worker process hangs: starting one may take as long as it likes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._now, self._at = folder, 0.0, 0.0

    def monotonic(self) -> float:
        before, self._at = self._at, time.monotonic()
        if any(Path("/proc", process.name).exists() for process in self._folder.iterdir()):
            self._now += self._at - before
        return self._now


def hangs_in_its_process(folder: str, x: Any) -> Any:
    if x == 21:
        Path(folder, str(os.getpid())).touch()
        time.sleep(1000)
    return x


@pytest.mark.parametrize("policy", ["skip", "raise"])
def test_a_worker_process_that_is_stuck_is_replaced_until_its_sample_is_known(
    policy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "time", HangTime(tmp_path))
    monkeypatch.setattr(process_executor, "_STACKS_S", 60.0)
    pipeline = numbers(200).map(x=partial(hangs_in_its_process, str(tmp_path))).batch(4).on_error(policy)
    seen: list[int] = []
    error = None
    with pipeline.loader(processes=1, threads=1, watchdog_s=0.5, ahead=2) as loader:
        try:
            for batch in loader:
                seen += batch["x"].tolist()
        except WorkerError as caught:
            error = caught
        skipped = loader.stats().skipped
    reports = [text for record in caplog.records if "no task finished for 0.5 s" in (text := record.getMessage())]
    assert len(reports) == 2 and all("in hangs_in_its_process" in report for report in reports)
    assert "at sample '21'" in reports[1]
    if policy == "skip":
        assert (seen, skipped) == ([x for x in range(200) if x != 21], 1)
    else:
        assert seen == list(range(20)) and error is not None
        assert (error.key, error.position) == ("21", 21) and "was stuck: it did not finish within" in str(error)


def test_a_loader_goes_on_when_the_function_has_returned_after_all() -> None:
    with numbers().map(x=the_function_that_hangs).batch(4).loader(threads=2, watchdog_s=2) as loader:
        with pytest.raises(StallError):
            list(loader)
        RELEASE.set()
        assert len(list(loader)) == 15


def test_a_slow_training_loop_is_no_stall(passing: Passing) -> None:
    with numbers().batch(4).loader(threads=2, watchdog_s=30) as loader:
        for number, _ in enumerate(loader):
            passing.sleep(100)
        assert number == 14


def test_slow_work_that_moves_is_no_stall(passing: Passing) -> None:
    def slowly(x: Any) -> Any:
        passing.sleep(0.05)
        return x

    for pipeline in (numbers().map(x=slowly).batch(60), numbers().map(x=slowly).filter(lambda s: True).batch(60)):
        with pipeline.loader(threads=2, watchdog_s=1.4) as loader:
            assert len(list(loader)) == 1


def test_a_watchdog_can_wait_for_ever() -> None:
    for pipeline in (numbers().batch(4), numbers().filter(lambda s: True).batch(4), stoker.stream(samples).batch(4)):
        with pipeline.loader(watchdog_s=float("inf")) as loader:
            assert len(list(loader)) == 15
