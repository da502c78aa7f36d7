"""A loader over its life: epochs, breaks, iterators that are left behind, the end."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ClosedError, ConfigError

from ..support import until
from .runs import PIPELINES, SINGLES, epochs_of, hash_of, no_workers, numbers, odd, samples

KINDS = ["shuffled", "filter", "stream", "map_batch", "inner batch", "repeated batches", "pad"]


def test_each_iteration_is_the_next_epoch() -> None:
    with numbers().shuffle(seed=1).batch(4).loader() as loader:
        orders = []
        for epoch in range(4):
            assert loader.epoch == epoch
            orders.append([x for batch in loader for x in batch["x"].tolist()])
            assert sorted(orders[-1]) == list(range(60))
        assert loader.epoch == 4
    assert len({tuple(order) for order in orders}) == 4


def test_a_loader_can_begin_with_any_epoch() -> None:
    pipeline = numbers().shuffle(seed=1).batch(4)
    with pipeline.loader() as a, pipeline.loader(epoch=3) as b:
        assert epochs_of(a, 5)[3:] == epochs_of(b, 2)


def test_iterating_a_pipeline_itself_is_the_same() -> None:
    pipeline = numbers().shuffle(seed=1).batch(4)
    with pipeline.loader() as loader:
        expected = epochs_of(loader, 3)
    assert [[hash_of(batch) for batch in pipeline] for _ in range(3)] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_break_anywhere_the_next_epoch_begins_at_its_beginning(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader(executor="inline") as loader:
        oracle = epochs_of(loader, 40)
    with pipeline.loader(threads=2) as loader:
        for epoch in range(40):
            seen = []
            if epoch % 3 == 2:
                seen = [hash_of(batch) for batch in loader]
                assert seen == oracle[epoch]
                continue
            for number, batch in enumerate(loader):
                seen.append(hash_of(batch))
                if number == epoch % 17:
                    break
            assert seen == oracle[epoch][: len(seen)] and len(seen) == min(epoch % 17 + 1, len(oracle[epoch]))


@pytest.mark.parametrize("step", range(9))
def test_a_break_at_every_step(step: int) -> None:
    pipeline = numbers().shuffle(seed=1).batch(7)
    with pipeline.loader() as oracle, pipeline.loader(threads=2) as loader:
        expected = epochs_of(oracle, 2)
        iterator = iter(loader)
        assert [hash_of(next(iterator)) for _ in range(min(step, 8))] == expected[0][:step]
        assert [hash_of(batch) for batch in loader] == expected[1 if step else 0], "what was not begun is not passed over"


def test_an_iterator_that_was_replaced_says_so() -> None:
    with numbers().batch(4).loader() as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        for _ in range(2):
            with pytest.raises(ClosedError, match="iterated again"):
                next(old)
        assert next(new)["x"].tolist() == [0, 1, 2, 3], "and does not disturb the new one"
        with pytest.raises(ClosedError):
            next(old)
        assert next(new)["x"].tolist() == [4, 5, 6, 7]


def test_a_state_that_is_loaded_ends_the_iterator_at_work() -> None:
    with numbers().batch(4).loader() as loader:
        old = iter(loader)
        next(old)
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(ClosedError, match="loaded a state"):
            next(old)
        assert next(iter(loader))["x"].tolist() == [4, 5, 6, 7]


def test_an_iterator_at_its_end_stays_at_its_end() -> None:
    with numbers().batch(30).loader() as loader:
        iterator = iter(loader)
        assert len(list(iterator)) == 2
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)
        assert len(list(loader)) == 2
        assert list(iterator) == [], "not even after a later epoch"


def test_an_iterator_is_its_own_iterator() -> None:
    with numbers().batch(4).loader() as loader:
        iterator = iter(loader)
        assert iter(iterator) is iterator
        assert len(list(zip(range(3), iterator))) == 3


def test_a_closed_loader_says_so_and_batches_stay_valid() -> None:
    loader = numbers().batch(4).loader()
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    loader.close()
    for use in (lambda: next(iterator), lambda: iter(loader), lambda: loader.load_state_dict({})):
        with pytest.raises(ClosedError, match="closed"):
            use()
    assert batch["x"].tolist() == [0, 1, 2, 3]
    assert loader.state_dict()["row"] == 4, "a state can still be asked for"
    assert "closed" in repr(loader)
    assert no_workers()


def test_an_exception_in_the_with_block_closes_and_passes() -> None:
    with pytest.raises(ZeroDivisionError), numbers().batch(4).loader() as loader:
        for _ in loader:
            raise ZeroDivisionError
    assert no_workers()
    with pytest.raises(ClosedError):
        iter(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_that_is_dropped_stops_at_once(kind: str) -> None:
    gc.disable()  # counting references must be enough
    try:
        for batch in PIPELINES[kind](4).loader(threads=2):
            assert batch.rows
            break
        assert no_workers()
        loader = PIPELINES[kind](4).loader(threads=2)
        iterator = iter(loader)
        next(iterator)
        del loader
        next(iterator), "an iterator keeps its loader"
        del iterator
        assert no_workers()
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_that_is_left_in_the_middle_leaves_nothing(kind: str) -> None:
    for _ in PIPELINES[kind](4):
        break
    iterator = iter(PIPELINES[kind](4))
    next(iterator)
    del iterator
    assert no_workers()


def test_a_loader_in_a_cycle_is_collected() -> None:
    holder: dict[str, Any] = {"loader": numbers().batch(4).loader(threads=2)}
    holder["self"] = holder
    next(iter(holder["loader"]))
    del holder
    gc.collect()
    assert no_workers()


def test_loaders_do_not_disturb_each_other() -> None:
    pipeline = numbers().shuffle(seed=1).batch(4)
    with pipeline.loader() as a, pipeline.loader() as b, numbers().filter(odd).batch(4).loader() as c:
        pairs = [(hash_of(x), hash_of(y)) for x, y, _ in zip(a, b, c)]
    assert pairs and all(x == y for x, y in pairs)


def test_a_loader_works_in_another_thread() -> None:
    found: list[list[str]] = []
    pipeline = numbers().shuffle(seed=1).batch(4)

    def run() -> None:
        with pipeline.loader(threads=2) as loader:
            found.extend(epochs_of(loader, 2))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    with pipeline.loader() as loader:
        assert found == epochs_of(loader, 2)
    assert no_workers()


def test_a_loader_closed_from_another_thread_ends_the_wait_for_a_batch() -> None:
    def slowly(x: Any) -> Any:
        begun.set()
        time.sleep(0.05)
        return x

    slow = numbers(6000).map(x=slowly)  # minutes of work
    for pipeline in (slow.batch(6000), slow.filter(odd).batch(2000)):
        begun = threading.Event()
        loader = pipeline.loader(threads=2)
        found: list[BaseException] = []

        def run(loader: Any = loader, found: list[BaseException] = found) -> None:
            try:
                list(loader)
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        loader.close()
        thread.join(60)
        assert not thread.is_alive()
        assert [type(error) for error in found] == [ClosedError]
    assert no_workers()


def test_a_loader_may_move_from_thread_to_thread() -> None:
    with numbers().batch(4).loader(threads=2) as loader:
        iterator = iter(loader)
        found: list[list[int]] = [next(iterator)["x"].tolist()]
        for _ in range(3):
            thread = threading.Thread(target=lambda: found.append(next(iterator)["x"].tolist()))
            thread.start()
            thread.join(60)
    assert found == [[4 * n + i for i in range(4)] for n in range(4)]


@pytest.mark.parametrize("kind", SINGLES)
def test_without_batch_samples_come_one_by_one(kind: str) -> None:
    pipeline = SINGLES[kind]()
    with pipeline.loader(executor="inline") as oracle, pipeline.loader(threads=3) as loader:
        expected = epochs_of(oracle, 2)
        assert epochs_of(loader, 2) == expected
        assert all(len(epoch) > 15 for epoch in expected)


def test_values_of_single_samples_are_what_the_function_gave() -> None:
    values = [1, 2.5, "text", None, np.zeros(3), np.zeros((2, 2)), b"bytes", [1, 2], {"a": 1}, np.float32(1)]
    samples = list(stoker.arrays(x=np.arange(10)).map(lambda s: {"v": values[int(s["x"])]}))
    assert [type(sample["v"]) for sample in samples] == [type(value) for value in values]
    assert samples[4]["v"].shape == (3,) and samples[5]["v"].shape == (2, 2)


def test_what_a_pipeline_gives_can_be_looked_up() -> None:
    pipeline = numbers().shuffle(seed=1).map(x=lambda v: v * 10).shard(1, 2).batch(4).take(3)
    order = [int(sample["x"]) for sample in numbers().shuffle(seed=1)]
    assert [int(pipeline.sample(i)["x"]) for i in (0, 7, 59)] == [10 * order[i] for i in (0, 7, 59)]
    with pytest.raises(IndexError, match="sample\\(60\\)"):
        pipeline.sample(60)
    assert int(numbers().filter(odd).batch(4).sample(2)["x"]) == 5
    assert int(numbers().batch(4).map_batch(lambda c: {"x": c["x"][::-1]}).unbatch().batch(2).sample(0)["x"]) == 3
    assert stoker.stream(samples).batch(4).sample(7)["x"] == 7
    with pytest.raises(IndexError):
        stoker.stream(samples).sample(1000)
    with pytest.raises(ConfigError):
        pipeline.sample(-1)


def test_a_sample_that_is_looked_up_draws_what_it_draws_in_a_batch() -> None:
    drawn = numbers().shuffle(seed=1).map(lambda s, rng: {**s, "u": rng.random()}, rng=True)
    for pipeline in (drawn, drawn.filter(odd), drawn.skip(3)):
        whole = [sample["u"] for sample in pipeline]
        assert [pipeline.batch(4).sample(i)["u"] for i in (0, 5, 11)] == [whole[i] for i in (0, 5, 11)]


def test_a_loader_of_one_row_batches_and_one_of_one_batch() -> None:
    assert [batch["x"].tolist() for batch in numbers(3).batch(1)] == [[0], [1], [2]]
    assert [batch["x"].tolist() for batch in numbers(3).batch(3)] == [[0, 1, 2]]
    assert [batch["x"].tolist() for batch in numbers(1).batch(9, drop_last=False)] == [[0]]


def test_repeat_without_end_goes_on() -> None:
    with numbers(3).repeat().batch(2).loader(threads=2) as loader:
        assert [batch["x"].tolist() for batch, _ in zip(loader, range(4))] == [[0, 1], [2, 0], [1, 2], [0, 1]]
    with numbers(3).batch(2).repeat().loader(threads=2) as loader:
        assert [batch["x"].tolist() for batch, _ in zip(loader, range(4))] == [[0, 1], [0, 1], [0, 1], [0, 1]]
    with numbers(5).filter(odd).repeat().batch(3).loader(threads=2) as loader:
        assert [batch["x"].tolist() for batch, _ in zip(loader, range(3))] == [[1, 3, 1], [3, 1, 3], [1, 3, 1]]


def test_verbs_behind_batch_count_batches() -> None:
    def xs(pipeline: stoker.Pipeline) -> list[list[int]]:
        return [batch["x"].tolist() for batch in pipeline]

    every = xs(numbers(10).batch(3, drop_last=False))
    assert xs(numbers(10).batch(3, drop_last=False).skip(1)) == every[1:]
    assert xs(numbers(10).batch(3, drop_last=False).take(2)) == every[:2]
    assert xs(numbers(10).batch(3, drop_last=False).skip(1).take(2)) == every[1:3]
    assert xs(numbers(10).batch(3, drop_last=False).take(3).skip(1)) == every[1:3]
    assert xs(numbers(10).batch(3, drop_last=False).take(99)) == every
    assert xs(numbers(10).batch(3, drop_last=False).repeat(2)) == every * 2
    assert xs(numbers(10).batch(3, drop_last=False).skip(2).repeat(2)) == every[2:] * 2
    assert xs(numbers(10).repeat(2).batch(3, drop_last=False)) != every * 2, "before batch the passes run into each other"


def test_the_next_epochs_batches_are_ready_when_one_ends() -> None:
    made: list[int] = []
    pipeline = numbers(8).map(x=lambda v: made.append(int(v)) or v).batch(4)
    with pipeline.loader(threads=1, ahead=2) as loader:
        list(loader)
        until(lambda: len(made) > 8, "work on the next epoch, which begins before it is asked for")
        assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def never(sample: dict[str, Any]) -> bool:
    return False


NOTHING: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "a filter": (lambda: numbers().filter(never).batch(4), r"made no sample: none came through filter\(.*never\) \(arrays"),
    "a stream": (lambda: stoker.stream(list).batch(4), r"made no sample: none came \(stream.*\); check"),
    "a short rest": (
        lambda: numbers(8).filter(odd).batch(5),
        r"only 4 samples arrived, and a batch needs 5 samples; .*drop_last=False",
    ),
    "ranks": (
        lambda: numbers(8).filter(odd).shard(1, 4).batch(2),
        r"only 4 samples arrived, and a batch needs 8 samples on 4 ranks",
    ),
    "single samples": (lambda: numbers(8).filter(never), r"made no sample"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_an_epoch_that_gives_nothing_is_told_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, told = NOTHING[name]
    with make().loader() as loader:
        assert [len(list(loader)) for _ in range(3)] == [0, 0, 0]
    assert len(caplog.messages) == 1 and re.match(f"epoch 0 .*{told}", caplog.messages[0])


def test_an_epoch_whose_last_batch_was_taken_before_a_state_was_saved_is_not_called_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = numbers(9).filter(odd).batch(2)
    with pipeline.loader() as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict()
    with pipeline.loader() as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 2 and loader.epoch == 2
    assert not caplog.messages
