"""One iterator, several threads: every batch goes to exactly one of them, and a wait ends when the loader is closed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stoker
from stoker import Pipeline
from stoker.engine import pump
from stoker.errors import ClosedError
from stoker.loader import loader as loading
from stoker.storage.scratch import Scratch

from ..support import together
from .runs import numbers, odd, samples

LONG_S = 60.0
PIPELINES: dict[str, Callable[[], Pipeline]] = {
    "counted": lambda: numbers(4000).batch(2),
    "single samples": lambda: numbers(2000),
    "filtered": lambda: numbers(2000).filter(odd).batch(1),
    "a stream": lambda: stoker.stream(samples).batch(1),
}


@pytest.fixture(autouse=True)
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def xs(step: Any) -> list[int]:
    return [int(x) for x in (step["x"] if hasattr(step, "rows") else [step["x"]])]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("how", ["threads", "inline", "the pipeline itself"])
def test_every_batch_goes_to_one_thread(name: str, how: str) -> None:
    pipeline = PIPELINES[name]()
    expected = [x for step in pipeline for x in xs(step)]
    if how == "the pipeline itself":
        shared = iter(pipeline)
        shares = together(4, lambda _: [x for step in shared for x in xs(step)])
    else:
        with pipeline.loader(executor=how) as loader:
            shared = iter(loader)
            shares = together(4, lambda _: [x for step in shared for x in xs(step)])
            assert loader.epoch == 1 and loader.stats().epochs == 1
            assert loader.state_dict()["row"] == 0
    assert all(share == sorted(share) for share in shares), "each thread gets its batches in order"
    assert sorted(x for share in shares for x in share) == expected


def test_the_error_of_a_batch_goes_to_one_thread_and_ends_the_iteration_of_all() -> None:
    def picky(x: Any) -> Any:
        if x == 40:
            raise ValueError("40 is bad")
        return x

    shared = iter(numbers(60).map(x=picky).batch(1))
    shares = together(3, lambda _: [x for step in shared for x in xs(step)])
    assert sum(isinstance(share, stoker.errors.FunctionError) for share in shares) == 1
    assert next(shared, None) is None


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_closing_ends_the_wait_of_every_thread(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_TURN_S", 0.01)
    entered, release, freed = threading.Event(), threading.Event(), threading.Event()
    free, others = Scratch.close, set(threading.enumerate())

    def stay(x: Any) -> Any:
        entered.set()
        assert release.wait(LONG_S)
        assert executor == "threads" or not freed.is_set(), "what a thread works with is not freed under it"
        return x

    def close(scratch: Scratch) -> None:
        freed.set()
        free(scratch)

    monkeypatch.setattr(Scratch, "close", close)
    loader = numbers().map(x=stay).batch(4).loader(**({"threads": 1} if executor == "threads" else {"executor": executor}))
    shared = iter(loader)

    def ask() -> None:
        try:
            next(shared)
        finally:
            release.set()

    def end() -> None:
        assert entered.wait(LONG_S)
        loader.close()
        release.set()

    works = iter([ask, ask, end])
    raised = together(3, lambda _: next(works)())
    assert [type(result) for result in raised if result is not None] == [ClosedError] * 2
    for thread in set(threading.enumerate()) - others:
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert freed.is_set()


def test_a_function_may_ask_its_loader_where_it_is_while_a_batch_waits_for_it() -> None:
    seen: list[tuple[int, int, int]] = []

    def look(x: Any) -> Any:
        seen.append((loader.epoch, loader.state_dict()["row"], loader.stats().batches))
        return x

    with numbers(8).map(x=look).batch(4).loader(threads=1, ahead=1) as loader:
        assert [batch.rows for batch in loader] == [4, 4]
    assert {epoch for epoch, _, _ in seen} == {0} and len(seen) >= 8


def test_an_iterator_that_is_closed_has_ended() -> None:
    shared = iter(numbers(8).batch(4))
    shared.close()  # type: ignore[attr-defined]
    assert list(shared) == []
    shared = iter(numbers(8).batch(4))
    next(shared)
    shared.close()  # type: ignore[attr-defined]
    assert list(shared) == []


def test_who_waits_when_another_thread_comes_to_the_end_has_come_to_the_end_too() -> None:
    shared: Any = iter(numbers(8).batch(4))
    next(shared)
    loader = shared._loader

    class Busy:
        """The turn of another thread, which ends the epoch, and with it the loader, while it is waited for."""

        turn = loader._turn

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if blocking:
                loader._turn = self.turn
                assert [len(batches) for batches in together(1, lambda _: list(shared))] == [1]
            return False

    loader._turn = Busy()
    assert next(shared, None) is None
    with pytest.raises(ClosedError):
        iter(loader)


def test_a_stream_is_closed_when_its_loop_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "_CLOSE_S", LONG_S)
    closed: list[bool] = []

    def endless() -> Iterator[dict[str, int]]:
        try:
            while True:
                yield {"x": 1}
        finally:
            closed.append(True)

    for _ in stoker.stream(endless).batch(2):
        break
    assert closed == [True]
