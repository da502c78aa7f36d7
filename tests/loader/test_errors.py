"""Errors on their way to the consumer: once, in their place, with the sample's key and the original's traceback."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stoker
from stoker import Pipeline
from stoker.engine.feed import Pace
from stoker.errors import ConfigError, FunctionError, SampleError, StokerError
from stoker.image import Resize

from .runs import numbers, samples

# ---- the exceptions users write ------------------------------------------------------------------------------------------


class ThreeArguments(Exception):
    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__(f"{a} {b} {c}")


class CannotTravel(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()
        self.function = lambda: None

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class NoMessage(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")

    __repr__ = __str__


def recursive() -> Exception:
    error = ValueError("its own cause")
    error.__cause__ = error
    return error


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: ValueError("plain"),
    "three arguments": lambda: ThreeArguments(1, 2, 3),
    "cannot be pickled": CannotTravel,
    "10 MB of message": lambda: ValueError("x" * 10_000_000),
    "no message": NoMessage,
    "its own cause": recursive,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(7),
    "StokerError": lambda: StokerError("from inside"),
    "KeyError": lambda: KeyError("key"),
    "OSError": lambda: FileNotFoundError(2, "No such file", "gone.txt"),
    "non-UTF-8": lambda: ValueError("\udcff"),
}

BAD = 17


def pipelines(raise_: Callable[[Any], Any]) -> dict[str, Pipeline]:
    """The function in every place a function can be."""

    def on_sample(sample: dict[str, Any]) -> dict[str, Any]:
        raise_(sample["x"])
        return sample

    def stream_of() -> Iterator[dict[str, Any]]:
        yield from samples()

    return {
        "map": numbers().map(on_sample).batch(4),
        "map of a field": numbers().map(x=lambda v: raise_(v) or v).batch(4),
        "filter": numbers().filter(lambda s: raise_(s["x"]) is None).batch(4),
        "flat_map": numbers().flat_map(lambda s: [on_sample(s)]).batch(4),
        "map behind filter": numbers().filter(lambda s: True).map(on_sample).batch(4),
        "single": numbers().map(on_sample),
        "map of a stream": stoker.stream(stream_of).map(on_sample).batch(4),
    }


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("place", ["map", "filter", "single", "map of a stream"])
def test_whatever_a_function_raises_reaches_the_consumer_with_key_and_traceback(name: str, place: str) -> None:
    original = EXCEPTIONS[name]()

    def the_users_function(x: int) -> None:
        if x == BAD:
            raise original

    with pipelines(the_users_function)[place].loader(threads=2) as loader:
        iterator = iter(loader)
        with pytest.raises(FunctionError) as caught:
            while True:
                next(iterator)
        error = caught.value
        assert error.key in ("17", "s17") and error.key in str(error)
        assert error.__cause__ is original
        assert "the_users_function" in "".join(traceback.format_tb(original.__traceback__))
        assert len(str(error)) < 2000
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.parametrize("place", pipelines(lambda x: None))
@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("threads", [0, 1, 2, 8])
def test_batches_before_the_error_are_handed_out_first_on_any_number_of_threads(
    place: str, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: rows)

    def raise_(x: int) -> None:
        if x in (BAD, BAD + 1, 40, 59):
            raise ValueError("this one")

    how: dict[str, Any] = {"threads": threads} if threads else {"executor": "inline"}
    with pipelines(raise_)[place].loader(**how) as loader:
        seen: list[int] = []
        with pytest.raises(FunctionError, match="this one") as caught:
            for batch in loader:
                seen += [int(batch["x"])] if place == "single" else batch["x"].tolist()
        assert caught.value.key in ("17", "s17"), "the first of the bad ones, whoever met it first"
        assert seen == list(range(17 if place == "single" else 16))


def test_after_an_error_the_loader_goes_on_with_the_next_epoch() -> None:
    bad = {BAD}

    def picky(x: Any) -> Any:
        if int(x) in bad:
            raise ValueError
        return x

    with numbers().map(x=picky).batch(4).loader(threads=2) as loader:
        for epoch in range(3):
            with pytest.raises(FunctionError):
                list(loader)
            assert loader.epoch == epoch
        bad.clear()
        assert len(list(loader)) == 15
        assert loader.epoch == 4


def test_the_state_after_an_error_is_that_of_the_last_good_batch() -> None:
    bad = {BAD}

    def picky(x: Any) -> Any:
        if int(x) in bad:
            raise ValueError
        return x

    pipeline = numbers().map(x=picky).batch(4)
    with pipeline.loader(threads=2) as loader, pytest.raises(FunctionError):
        list(loader)
    state = loader.state_dict()
    assert state["row"] == 16
    bad.clear()
    with pipeline.loader() as loader:
        loader.load_state_dict(state)
        assert [batch["x"][0] for batch in loader] == [16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56]


def test_an_error_in_the_next_epoch_waits_for_the_next_epoch() -> None:
    calls = [0]

    def fails_later(x: Any) -> Any:
        calls[0] += 1
        if calls[0] > 60:
            raise ValueError("later")
        return x

    for pipeline in (numbers().map(x=fails_later).batch(4), numbers().map(x=fails_later).filter(lambda s: True).batch(4)):
        calls[0] = 0
        with pipeline.loader(threads=1) as loader:
            assert len(list(loader)) == 15
            with pytest.raises(FunctionError, match="later"):
                list(loader)


def test_an_error_beyond_a_take_is_never_met() -> None:
    def raise_(x: int) -> None:
        if x == 40:
            raise ValueError

    for pipeline in (
        numbers().map(lambda s: raise_(s["x"]) or s).filter(lambda s: True).take(30).batch(4),
        stoker.stream(samples).map(lambda s: raise_(s["x"]) or s).take(30).batch(4),
    ):
        assert len(list(pipeline)) == 7


def test_several_segments_keep_errors_in_their_place() -> None:
    def raise_(x: int) -> None:
        if x == 41:
            raise ValueError("told in its place")

    pipeline = numbers().map(lambda s: raise_(s["x"]) or s).filter(lambda s: True).skip(1).flat_map(lambda s: [s]).batch(4)
    for threads in (1, 2, 8):
        for _ in range(3):
            with pipeline.loader(threads=threads) as loader:
                seen = 0
                with pytest.raises(FunctionError, match="told in its place"):
                    for _batch in loader:
                        seen += 1
                assert seen == 10


def test_a_stream_that_breaks_is_told_after_what_it_gave() -> None:
    def torn() -> Iterator[dict[str, Any]]:
        for number in range(22):
            yield {"x": number}
        raise ConnectionError("cable cut")

    for how in ({"executor": "inline"}, {"threads": 1}, {"threads": 4}):
        with stoker.stream(torn).batch(4).loader(**how) as loader:  # type: ignore[arg-type]
            seen: list[int] = []
            with pytest.raises(FunctionError, match=r"ConnectionError after \d+ samples: cable cut") as caught:
                for batch in loader:
                    seen += batch["x"].tolist()
            assert seen == list(range(20))
            assert isinstance(caught.value.__cause__, ConnectionError)


@pytest.mark.parametrize("value", [3, "text", [1, 2]], ids=repr)
def test_a_stream_of_what_are_no_samples_is_refused(value: Any) -> None:
    with pytest.raises(StokerError, match="sample 3"):
        list(stoker.stream(lambda: iter([{"x": 1}] * 3 + [value])).batch(2))
    with pytest.raises(StokerError, match="iterable"):
        list(stoker.stream(lambda: 3).batch(2))  # type: ignore[arg-type, return-value]


def test_an_interrupt_is_the_callers_when_there_are_no_workers() -> None:
    def interrupted(x: Any) -> Any:
        raise KeyboardInterrupt

    with numbers().map(x=interrupted).batch(4).loader(executor="inline") as loader:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        assert loader.state_dict()["row"] == 0, "a state can be saved in the handler"


def test_sys_exit_in_a_batch_function_does_not_end_the_program() -> None:
    def leave(columns: dict[str, Any]) -> dict[str, Any]:
        sys.exit(3)

    with numbers().batch(4).map_batch(leave).loader(threads=2) as loader, pytest.raises(FunctionError, match="SystemExit"):
        list(loader)


def test_a_file_that_vanishes_is_named_with_its_folder(tmp_path: Any, image_folder: Any) -> None:
    import shutil

    root = tmp_path / "images"
    shutil.copytree(image_folder, root)
    pipeline = stoker.files(root).decode("image").batch(4, drop_last=False)
    assert len(list(pipeline)) == 6
    os.unlink(root / "dog" / "dog_03.jpg")
    with pipeline.loader(threads=2) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    assert isinstance(caught.value, OSError) and "dog_03.jpg" in str(caught.value)
    with pipeline.on_error("skip", budget=1).loader(threads=2) as loader:
        assert sum(batch.rows for batch in loader) == 23


class Unreadable:
    """A value that fails whatever is asked of it, as things that wrap a device or a lost connection do."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NoMessage

    def __len__(self) -> int:
        raise NoMessage

    def __repr__(self) -> str:
        raise NoMessage


def breaking() -> Iterator[dict[str, Any]]:
    yield {"x": 1}
    raise NoMessage


def no_message(*_: Any) -> Any:
    raise NoMessage


def unreadable(*_: Any) -> dict[str, Any]:
    return {"x": Unreadable()}


WITHOUT_A_MESSAGE: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "a stream": (
        lambda: stoker.stream(breaking).batch(1),
        r"raised NoMessage after 1 sample: \(its message raised RuntimeError\)",
    ),
    "an exit in a batch function": (lambda: numbers().batch(4).map_batch(mute_exit), r"raised MuteExit\(\(its message raised"),
    "labels": (lambda: stoker.files([__file__], labels=no_message), r"raised on .*test_errors\.py: NoMessage\(\(its message"),
    "values that do not join": (lambda: numbers().map(unreadable).batch(4), r"field 'x' cannot be joined.*'0'.*raised NoMessage"),
    "values that do not pad": (lambda: numbers().map(unreadable).batch(4, pad={"x": 0}), r"field 'x' cannot be joined"),
    "values that do not split": (
        lambda: numbers().map(unreadable).unbatch(),
        r"cannot split sample '0': a field raised NoMessage",
    ),
    "values that are not pictures": (lambda: numbers().map(unreadable).image("x", Resize(4)), "an Unreadable is neither encoded"),
    "columns": (lambda: stoker.arrays(x=Unreadable()), r"arrays\(x=...\): NumPy cannot make an array of this Unreadable"),
    "a key": (lambda: numbers().map(lambda s: {"x": 1, "__key__": Unreadable()}).batch(4), r"an Unreadable cannot be a key"),
}


class MuteExit(SystemExit):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")


def mute_exit(_: Any) -> Any:
    raise MuteExit


@pytest.mark.parametrize("name", WITHOUT_A_MESSAGE)
def test_what_fails_without_a_message_is_an_error_of_ours_all_the_same(name: str) -> None:
    make, told = WITHOUT_A_MESSAGE[name]
    with pytest.raises(StokerError, match=told):
        list(make())


def test_a_thread_that_cannot_be_started_leaves_a_loader_that_works_when_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "stoker-pump":
            raise MemoryError
        real(thread)

    with stoker.stream(samples).batch(4).loader(threads=2) as loader:
        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(ConfigError, match=r"reads a stream could not be started \(MemoryError\); .*loader\(threads=2\)"):
            next(iter(loader))
        monkeypatch.undo()
        assert len(list(loader)) == len(list(stoker.stream(samples).batch(4)))
