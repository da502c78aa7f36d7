"""Ranks come and go: any rank's state loads on any number of ranks, and no sample is lost or comes twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import stoker
from stoker import Pipeline

from ..loader.runs import expand, forgiving, noise_of, numbers, odd, real_ids, rest_of, samples, two_of_three

WORLDS = range(1, 6)

KINDS: dict[str, Callable[[int], Pipeline]] = {
    "shuffled": lambda n: numbers(n).shuffle(seed=3),
    "window": lambda n: numbers(n).shuffle(seed=3, window=7),
    "filter": lambda n: numbers(n).shuffle(seed=3).filter(odd),
    "two segments": lambda n: numbers(n).filter(two_of_three).take(n).flat_map(lambda s: [s, {**s, "x": s["x"] + 1000}]),
    "flat_map": lambda n: (
        numbers(n).shuffle(seed=3).flat_map(lambda s: [{"x": s["x"] * 10 + part} for part in range(s["x"] % 3)])
    ),
}


def ids_of(pipeline: Pipeline) -> list[int]:
    return [int(sample["x"]) for sample in pipeline]


def loaders(base: Pipeline, world: int, size: int, remainder: str = "keep", **how: Any) -> list[Any]:
    return [base.shard(rank, world, remainder).batch(size).loader(**(how or {"executor": "inline"})) for rank in range(world)]


def steps_of(base: Pipeline, world: int, size: int) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """The ids all ranks got, step by step, and the state before each step and after the last."""
    ranks = loaders(base, world, size)
    iterators = [iter(rank) for rank in ranks]
    taken, states = [], [ranks[0].state_dict()]
    while True:
        batches = [next(iterator, None) for iterator in iterators]
        if batches[0] is None:
            assert batches == [None] * world, "all ranks end together"
            return taken, states
        assert None not in batches
        taken.append([x for batch in batches for x in real_ids(batch)])
        rank_states = [rank.state_dict() for rank in ranks]
        for state, batch in zip(rank_states, batches):
            assert {**state, "skipped": None} == {**rank_states[0], "skipped": None}, "every rank has the same state"
            assert "skipped" not in state or state["skipped"]["seen"] >= batch.rows, "but for the samples it has seen itself"
        states.append(rank_states[0])


@pytest.mark.parametrize("n", [1, 7, pytest.param(26, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_union_is_every_sample_once_whatever_the_ranks_before_and_after(kind: str, n: int) -> None:
    base = KINDS[kind](n)
    every = ids_of(base)
    for world in WORLDS:
        for size in (1, 3):
            taken, states = steps_of(base, world, size)
            assert sorted(x for step in taken for x in step) == sorted(every)
            for step, state in enumerate(states):
                before = [x for ids in taken[:step] for x in ids]
                assert before == every[: len(before)], "global batches follow the global order"
                for later_world in WORLDS:
                    later_size = (1, 4)[(step + later_world) % 2]
                    rest: list[int] = []
                    counts = set()
                    for loader in loaders(base, later_world, later_size):
                        loader.load_state_dict(state)
                        batches = rest_of(loader)
                        counts.add(len(batches))
                        rest += [x for batch in batches for x in real_ids(batch)]
                    assert sorted(before + rest) == sorted(every), (world, size, step, later_world, later_size)
                    assert len(counts) == 1


@pytest.mark.faults
@pytest.mark.parametrize("n", [7, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 60, 61))])
def test_ranks_and_workers_change_together(n: int, often: Callable[[int, int], int]) -> None:
    """From 1 to 5 ranks of 1 to 5 workers to 1 to 5 ranks of 1 to 5 workers; a state is the same whoever made it."""
    base = numbers(n).shuffle(seed=3).map(noise_of, rng=True)
    every = ids_of(base)
    for world in WORLDS:
        _, states = steps_of(base, world, 3)
        half = len(states) // 2
        for workers in WORLDS if often(0, 1) else [1 + world % 5]:
            ranks = loaders(base, world, 3, threads=workers)
            iterators = [iter(rank) for rank in ranks]
            before = [x for _ in range(half) for iterator in iterators for x in real_ids(next(iterator))]
            assert [rank.state_dict() for rank in ranks] == [states[half]] * world
            [rank.close() for rank in ranks]
            for later, later_workers in itertools.product(WORLDS, WORLDS):
                rest: list[int] = []
                for loader in loaders(base, later, 4, threads=later_workers):
                    with loader:
                        loader.load_state_dict(states[half])
                        rest += [x for batch in rest_of(loader) for x in real_ids(batch)]
                assert sorted(before + rest) == sorted(every), (world, workers, later, later_workers)


@pytest.mark.parametrize("remainder", ["drop", "pad", "keep"])
def test_ranks_that_drop_or_pad_change_hands_too(remainder: str) -> None:
    base = numbers(31).shuffle(seed=3)
    every = ids_of(base)
    for world in WORLDS:
        ranks = loaders(base, world, 2, remainder)
        iterators = [iter(rank) for rank in ranks]
        before = [x for _ in range(3) for iterator in iterators for x in real_ids(next(iterator))]
        state = ranks[-1].state_dict()
        for later in WORLDS:
            rest: list[int] = []
            for loader in loaders(base, later, 3, remainder):
                loader.load_state_dict(state)
                rest += [x for batch in rest_of(loader) for x in real_ids(batch)]
            assert len(rest) == len(set(rest)) and not set(before) & set(rest)
            left = 31 - len(before)
            kept = left // (3 * later) * 3 * later if remainder == "drop" else left
            assert sorted(before + rest) == sorted(every[: len(before) + kept])


def test_several_changes_in_one_epoch() -> None:
    for base in (numbers(61).shuffle(seed=3), numbers(61).shuffle(seed=3).filter(two_of_three)):
        every = ids_of(base)
        state: dict[str, Any] | None = None
        seen: list[int] = []
        for world, size, steps in ((3, 2, 2), (1, 5, 1), (4, 1, 3), (2, 3, 1), (4, 4, 99)):
            ranks = loaders(base, world, size)
            for rank in ranks:
                if state is not None:
                    rank.load_state_dict(state)
            iterators = [iter(rank) for rank in ranks]
            for _ in range(steps):
                batches = [next(iterator, None) for iterator in iterators]
                if batches[0] is None:
                    break
                seen += [x for batch in batches for x in real_ids(batch)]
            state = ranks[world // 2].state_dict()
        assert sorted(seen) == sorted(every)


def test_streams_are_shared_and_change_hands() -> None:
    base = stoker.stream(samples).filter(odd)
    every = list(range(1, 60, 2))
    taken, states = steps_of(base, 3, 2)
    for step in (0, 1, 3, len(taken)):
        before = [x for ids in taken[:step] for x in ids]
        for world in (1, 2, 4):
            rest: list[int] = []
            for loader in loaders(base, world, 3):
                loader.load_state_dict(states[step])
                rest += [x for batch in rest_of(loader) for x in real_ids(batch)]
            assert before + sorted(rest) == every


@pytest.mark.parametrize("kind", ["random", "expanded", "stream"])
def test_values_do_not_depend_on_who_computes_them(kind: str) -> None:
    base = {
        "random": lambda: numbers(40).shuffle(seed=3).map(noise_of, rng=True),
        "expanded": lambda: numbers(40).shuffle(seed=3).flat_map(expand).map(noise_of, rng=True),
        "stream": lambda: stoker.stream(samples).take(40).map(noise_of, rng=True),
    }[kind]()
    alone = [float(sample["noise"]) for sample in base]
    for world in WORLDS:
        ranks = [list(base.shard(rank, world, "keep").batch(3)) for rank in range(world)]
        together = [float(v) for step in zip(*ranks) for batch in step for v in batch["noise"][batch.valid]]
        assert together == alone


def test_world_sizes_share_the_same_global_batches() -> None:
    base = numbers(48).shuffle(seed=3)
    whole = [batch["x"].tolist() for batch in base.batch(12)]
    for world in (2, 3, 4):
        ranks = [list(base.shard(rank, world).batch(12 // world)) for rank in range(world)]
        assert [[x for batch in step for x in batch["x"].tolist()] for step in zip(*ranks)] == whole


def test_skipped_samples_leave_states_equal_on_all_ranks() -> None:
    def picky(x: int) -> int:
        if x % 5 == 0:
            raise ValueError
        return x

    base = forgiving(numbers(40).shuffle(seed=3).map(x=picky))
    good = [x for x in ids_of(numbers(40).shuffle(seed=3)) if x % 5]
    for world in (1, 2, 5):
        taken, states = steps_of(base, world, 4)
        assert sorted(x for step in taken for x in step) == sorted(good)
        assert [state["row"] for state in states] == [4 * world * step for step in range(len(states))]
