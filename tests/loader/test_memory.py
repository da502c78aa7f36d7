"""Memory: bounded while in flight, the user's as long as the user holds it, and used again after that."""

from __future__ import annotations

import gc
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

import stoker
import stoker.loader.front as front_module
import stoker.loader.machinery as machinery_module
from stoker.engine.inline import InlineExecutor
from stoker.image import RandomResizedCrop
from stoker.source.streams.stream import StreamSource
from stoker.storage.scratch import Scratch

from ..support import GIL
from .runs import hash_of, no_workers, numbers, odd


def wide(rows: int = 400, width: int = 1000) -> stoker.Pipeline:
    return stoker.arrays(x=np.arange(rows * width, dtype=np.int32).reshape(rows, width))


def hash_column(column: Any) -> str:
    return hashlib.sha256(np.asarray(column).tobytes()).hexdigest()


def test_a_thousand_batches_that_are_kept_are_never_changed() -> None:
    pipeline = wide().shuffle(seed=1).batch(8)
    with pipeline.loader(threads=4) as loader:
        kept = [batch for _ in range(20) for batch in loader]
        before = [hash_of(batch) for batch in kept]
        for _ in range(3):
            for batch in loader:
                batch["x"][...] = -1
        assert len(kept) == 1000
        assert [hash_of(batch) for batch in kept] == before
    gc.collect()
    assert [hash_of(batch) for batch in kept] == before, "not by the end either"


def test_what_is_kept_of_a_batch_is_kept_however_little_it_is(image_folder: Path) -> None:
    torch = pytest.importorskip("torch")
    pipeline = stoker.files(image_folder).shuffle(seed=1).image("image", RandomResizedCrop(64)).batch(6)
    with pipeline.loader(threads=2, format="torch") as loader:
        kept: list[Any] = []
        hashes: list[str] = []
        for number in range(25):
            for batch in loader:
                images = batch["image"]
                piece = [images, images[2, 10:20], images.permute(0, 3, 1, 2), images.numpy()[1], images.view(-1)[100:300]][
                    number % 5
                ]
                kept.append(piece)
                hashes.append(hash_column(piece))
        del batch, images, piece
        assert len(kept) == 100
        assert [hash_column(piece) for piece in kept] == hashes
    assert isinstance(kept[0], torch.Tensor)


def test_writing_into_a_batch_alters_no_other_and_not_the_source() -> None:
    source = np.arange(4000).reshape(400, 10)
    untouched = source.copy()
    pipeline = stoker.arrays(x=source).batch(8)
    with pipeline.loader(threads=2) as loader:
        first = [batch["x"].copy() for batch in loader]
        for number, batch in enumerate(loader):
            assert np.array_equal(batch["x"], first[number])
            batch["x"][...] = -7
        assert np.array_equal(source, untouched)


def test_memory_is_used_again_when_nobody_holds_it() -> None:
    with wide(200, 50_000).batch(10).loader(threads=2, ahead=2) as loader:
        addresses = [batch["x"].ctypes.data for _ in range(5) for batch in loader]
    assert len(addresses) == 100
    assert len(set(addresses)) <= 8, "a few slabs serve all batches"


def test_memory_is_not_used_again_while_somebody_holds_it() -> None:
    with wide(200, 50_000).batch(10).loader(threads=2, ahead=2) as loader:
        kept = [batch["x"][3:4] for batch in loader]
        addresses = [piece.ctypes.data for piece in kept]
        assert len(set(addresses)) == 20
        later = {batch["x"][3:4].ctypes.data for batch in loader}
        assert not later & set(addresses)


def test_a_worker_holds_no_batch_while_it_waits() -> None:
    import weakref

    with wide().batch(400).loader(threads=3, ahead=1) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        base = batch["x"]
        while base.base is not None and isinstance(base.base, np.ndarray):
            base = base.base
        alive = weakref.ref(base)
        del batch, base
        assert alive() is None, "nor does the iterator"
        list(iterator)


FIXED = {"arrays": lambda: wide(400, 25_000).batch(4), "filter": lambda: wide(400, 25_000).filter(lambda s: True).batch(4)}


@pytest.mark.parametrize("memory", [1, 450_000, "2MB"])
@pytest.mark.parametrize("kind", FIXED)
def test_bytes_in_flight_stay_within_memory(kind: str, memory: int | str) -> None:
    with FIXED[kind]().loader(threads=4, memory=memory) as loader:
        most = 0
        for number, _ in enumerate(loader):
            if number % 5 == 0:
                time.sleep(0.01)
            assert loader._machinery.feed is not None
            most = max(most, loader._machinery.feed._schedule.nbytes)
        assert number == 99, "however little it is, the run goes on"
        assert most <= max(400_064, 2_000_000 if memory == "2MB" else int(memory))


class Counted(np.ndarray):
    """Arrays of 100 kB that are counted while they live."""

    live, most, lock = 0, 0, threading.Lock()

    @classmethod
    def new(cls, *_: Any) -> Counted:
        with cls.lock:
            cls.live += 1
            cls.most = max(cls.most, cls.live)
        return np.zeros(100_000, np.uint8).view(cls)

    def __del__(self) -> None:
        with Counted.lock:
            Counted.live -= 1


def big_samples() -> Iterator[dict[str, Any]]:
    for number in range(400):
        yield {"x": number, "y": Counted.new()}


GROWING: dict[str, Callable[[], stoker.Pipeline]] = {
    "map": lambda: numbers(400).map(y=Counted.new).batch(5, pad={"y": list}),
    "map of single samples": lambda: numbers(400).map(y=Counted.new),
    "filter": lambda: numbers(400).map(y=Counted.new).filter(lambda s: True).batch(5, pad={"y": list}),
    "stream": lambda: stoker.stream(big_samples).batch(5, pad={"y": list}),
    "stream, filter": lambda: stoker.stream(big_samples).filter(lambda s: True).batch(5, pad={"y": list}),
}


@pytest.mark.parametrize("kind", GROWING)
def test_bytes_of_values_whose_size_shows_only_afterwards_are_bounded_too(kind: str) -> None:
    Counted.most = 0
    with GROWING[kind]().loader(threads=4, memory="12MB") as loader:
        for number, batch in enumerate(loader):
            del batch
            if number % 10 == 0:
                time.sleep(0.01)
    # 12 MB are 120 arrays. Beyond that may go what nobody could know at the start (two units for each part of the way, of up to
    # 32 arrays), the user's own, and what is on its way from one part to the next. Without a bound it would be all 400.
    assert Counted.most <= 120 + 80
    gc.collect()
    assert Counted.live == 0


def at_rest(count: Callable[[], int]) -> int:
    """A count once it has stood still for a while."""
    seen, since = count(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.01)
        if (now := count()) != seen:
            seen, since = now, time.monotonic()
    return seen


def in_use(process: psutil.Process) -> tuple[int, int]:
    return process.num_threads(), process.num_fds()


def no_more_in_use(process: psutil.Process, before: tuple[int, int]) -> bool:
    """Whether threads and files are as few as they were, soon; fewer when those of an earlier test have ended meanwhile."""
    deadline = time.monotonic() + 20
    while any(now > then for now, then in zip(in_use(process), before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return all(now <= then for now, then in zip(in_use(process), before))


def test_a_slow_consumer_stops_the_workers() -> None:
    made = [0]

    def count(value: Any) -> Any:
        made[0] += 1
        return value

    for pipeline in (numbers(4000).map(x=count).batch(4), numbers(4000).map(x=count).filter(odd).batch(4)):
        made[0] = 0
        with pipeline.loader(threads=2, ahead=3) as loader:
            iterator = iter(loader)
            next(iterator)
            assert at_rest(lambda: made[0]) < 600, "nobody works ahead without bound"


@pytest.mark.slow
def test_many_iterations_leave_memory_threads_and_files_as_they_were() -> None:
    process = psutil.Process(os.getpid())
    pipeline = stoker.arrays(x=np.zeros((256, 64), np.float32), y=np.arange(256)).shuffle(seed=1).batch(8)
    with pipeline.loader(threads=2) as loader:

        def run(batches: int) -> None:
            done = 0
            while done < batches:
                for _ in loader:
                    done += 1

        run(60_000)  # warm-up: the trace keeps its last 20,000 spans
        gc.collect()
        before, memory = in_use(process), process.memory_info().rss
        run(200_000)
        gc.collect()
        assert process.memory_info().rss - memory < 4 << 20
        assert no_more_in_use(process, before)


def test_loaders_that_come_and_go_leave_nothing(image_folder: Path) -> None:
    process = psutil.Process(os.getpid())
    kinds = [
        numbers().shuffle(seed=1).batch(4),
        numbers().filter(odd).batch(4),
        stoker.files(image_folder).image("image", RandomResizedCrop(16)).batch(4),
    ]

    def cycle(count: int) -> None:
        for number in range(count):
            loader = kinds[number % 3].loader(threads=2)
            iterator = iter(loader)
            for _ in range(number % 4):
                next(iterator)
            if number % 2:
                loader.close()
            del loader, iterator

    cycle(60)
    gc.collect()
    assert no_workers()
    before, memory = in_use(process), process.memory_info().rss
    cycle(300)
    gc.collect()
    assert no_more_in_use(process, before)
    # Without GIL, the interpreter keeps memory of threads that have ended: it grows for a thousand loaders, and then no more.
    assert process.memory_info().rss - memory < (16 if GIL else 256) << 20


def test_iterators_that_are_left_leave_nothing() -> None:
    process = psutil.Process(os.getpid())
    with numbers(400).batch(4).loader(threads=2) as loader, numbers(400).filter(odd).batch(4).loader(threads=2) as ragged:

        def leave(one: stoker.loader.Loader, count: int) -> None:
            for number in range(count):
                for step, _ in enumerate(one):
                    if step == number % 3:
                        break

        leave(loader, 20), leave(ragged, 20)
        before = in_use(process)
        leave(loader, 300), leave(ragged, 100)
        assert no_more_in_use(process, before)


@pytest.mark.parametrize("kind", ["numpy", "torch", "pillow", "nested", "batch function"])
def test_the_second_batch_does_not_wait_for_a_long_look_ahead_where_sizes_show_only_afterwards(kind: str) -> None:
    side = 1024  # a megabyte each
    if kind == "torch":
        torch = pytest.importorskip("torch")
    begun = []

    def large(x: int) -> Any:
        begun.append(x)
        if kind == "torch":
            return torch.zeros(side, side, dtype=torch.uint8)
        if kind == "pillow":
            return Image.new("L", (side, side))
        pixels = np.zeros((side, side), np.uint8)
        return {"pixels": [pixels]} if kind == "nested" else pixels

    def grown(columns: dict[str, Any]) -> dict[str, Any]:
        begun.extend(columns["x"])
        return {"big": np.zeros((len(columns["x"]), side, side), np.uint8)}

    rows = stoker.arrays(x=np.arange(1600), label=np.arange(1600))
    pipeline = rows.batch(4).map_batch(grown) if kind == "batch function" else rows.map(x=large).batch(4, pad={"x": list})
    with pipeline.loader(threads=2) as loader:
        iterator = iter(loader)
        for taken in range(1, 7):
            next(iterator)
            # Two until one is complete, then as many as 64 MB hold; 64 batches, the most there can be, are 256 MB.
            assert len(begun) <= 4 * (taken + 17)


@pytest.mark.parametrize("kind", ["counted", "filter", "two segments"])
def test_work_nearer_to_the_batch_goes_before_the_look_ahead_in_front_of_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, bool]] = set()

    def noting(module: Any) -> Callable[..., Any]:
        feed = module.Feed

        def made(*arguments: Any, **options: Any) -> Any:
            asked.add((module.__name__.rpartition(".")[2], options["first"]))
            return feed(*arguments, **options)

        return made

    for module in (machinery_module, front_module):
        monkeypatch.setattr(module, "Feed", noting(module))
    pipeline = numbers(60) if kind == "counted" else numbers(60).filter(odd)
    pipeline = pipeline.take(20).filter(odd) if kind == "two segments" else pipeline
    with pipeline.batch(4).loader(threads=2) as loader:
        next(iter(loader))
    assert (
        asked
        == {
            "counted": {("machinery", False)},
            "filter": {("machinery", True), ("front", False)},
            "two segments": {("machinery", True), ("front", False), ("front", True)},
        }[kind]
    )


def test_large_samples_of_a_stream_are_handed_on_few_at_a_time() -> None:
    source = stoker.stream(lambda: ({"x": np.zeros(1 << 20, np.uint8)} for _ in range(9)))._source
    assert isinstance(source, StreamSource)
    flow = front_module.Pulled(source, 0, InlineExecutor(1, Scratch), budget=20 << 20, watchdog_s=60)
    assert [len(flow.next(True)) for _ in range(5)] == [2, 2, 2, 2, 1]


def shared_files() -> int:
    """How many files of shared memory this process has open or mapped."""
    links = Path("/proc/self/fd")
    return sum(os.readlink(link).startswith("/memfd:stoker") for link in links.iterdir() if link.is_symlink())


def test_a_closed_loader_leaves_no_shared_memory_for_the_garbage_collector() -> None:
    gc.collect()
    before = shared_files()
    gc.disable()
    try:
        with wide().batch(8).loader(processes=1) as loader:
            next(iter(loader))  # and many are under way
        del loader
        assert shared_files() == before
    finally:
        gc.enable()


def test_who_keeps_a_closed_loader_does_not_keep_its_batches() -> None:
    with wide().batch(8).loader(threads=2) as loader:
        assert sum(1 for _ in loader) == 50
    assert not loader._machinery.slabs._free
