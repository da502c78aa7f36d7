"""`random`, `numpy.random` and torch's generator are seeded by a sample's place, for functions that draw from them."""

from __future__ import annotations

import hashlib
import importlib.util
import random
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline, turns
from stoker.errors import ConfigError
from stoker.stage import user_function
from stoker.stage.global_random import GENERATORS
from stoker.turns import TURNS, Turn

from ..loader.runs import run_python

N = 64
#: whoever computes batches
HERE: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "threads": 1},
    {"threads": 8, "executor": "threads"},
]
PROCESSES: list[dict[str, Any]] = [{"processes": 1, "threads": 4}, {"processes": 2, "threads": 1}, {"processes": 4, "threads": 1}]


def rows(count: int = N) -> Pipeline:
    return stoker.arrays(x=np.arange(float(count))).shuffle(seed=3)


def noisy(x: float) -> float:
    """What a function may do: numbers of each kind, and normal ones, of which a generator keeps every second for later."""
    return float(x) + random.gauss(0, 1) + float(np.random.normal()) + random.random() + float(np.random.random_sample())


def sometimes(x: float) -> float:
    return noisy(x) if int(x) % 8 == 5 else float(x)


def joined(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"x": sample["x"]}, {"x": random.random()}]


def shifted(columns: dict[str, Any]) -> dict[str, Any]:
    return {"x": columns["x"] + np.random.normal()}


def augmented(x: float) -> np.ndarray:
    from ..image.vision import torch, v2  # in a worker, too, torchvision is imported this way

    transform = v2.Compose([v2.RandomResizedCrop(8, antialias=True), v2.ColorJitter(0.4, 0.4), v2.RandomErasing(value="random")])
    made: np.ndarray = transform(torch.full((3, 12, 10), int(x), dtype=torch.uint8)).numpy()
    return made


PIPELINES: dict[str, Callable[[], Pipeline]] = {
    "map": lambda: rows().map(x=[noisy, noisy], rng=False),
    "whole": lambda: rows().map(lambda sample: {**sample, "y": noisy(0)}),
    "with rng": lambda: rows().map(x=lambda x, rng: noisy(x) + rng.random(), rng=True),
    "sometimes": lambda: stoker.arrays(x=np.arange(float(N))).map(x=sometimes),
    "filter": lambda: rows().filter(lambda sample: random.random() < 0.7).map(x=noisy),
    "flat_map": lambda: rows().flat_map(joined),
    "map_batch": lambda: rows().batch(4).map_batch(shifted).unbatch(),
}


def sha(pipeline: Pipeline, **how: Any) -> str:
    """Of all batches of two epochs, and of a function over them."""
    seen = hashlib.sha256()
    with pipeline.batch(8).map_batch(lambda columns: {**columns, "z": columns["x"] * np.random.random()}).loader(**how) as loader:
        for _ in range(2):
            for batch in loader:
                for column in batch:
                    seen.update(np.ascontiguousarray(column).tobytes())
    return seen.hexdigest()


def states() -> list[str]:
    found = [repr(random.getstate()), repr([*np.random.get_state(legacy=False)["state"]["key"]]), repr(np.random.get_state()[2:])]
    return [*found, *(repr(generator.save()) for generator in GENERATORS[2:])]


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(user_function, "PATIENCE_S", 60.0)  # no call loses its turn, however busy the machine
    random.gauss(0, 1)  # it keeps a number for later, and so does the next one
    np.random.normal()
    before = states()
    yield
    assert states() == before


@pytest.mark.parametrize("kind", [kind for kind in PIPELINES if kind != "sometimes"])
def test_batches_are_the_same_in_any_number_of_threads_and_the_programs_own_numbers_too(kind: str, untouched: None) -> None:
    assert len({sha(PIPELINES[kind](), **how) for how in HERE}) == 1


def test_a_function_that_draws_for_some_samples_only_is_found_out() -> None:
    assert len({sha(PIPELINES["sometimes"](), **how) for how in HERE * 3}) == 1


@pytest.mark.parametrize("how", PROCESSES, ids=str)
def test_batches_are_the_same_in_worker_processes(how: dict[str, Any]) -> None:
    everything = rows().map(x=[noisy, sometimes]).filter(lambda sample: random.random() < 0.7).map(x=noisy)
    assert sha(everything, **how) == sha(everything, executor="inline")


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
def test_transforms_of_torchvision_give_the_same_batches_whoever_computes_them_and_after_resumes() -> None:
    pipeline = (
        rows(40).map(image=augmented) if False else rows(40).map(lambda sample: {**sample, "image": augmented(sample["x"])})
    )
    whole = [batch["image"].tobytes() for batch in pipeline.batch(4).loader(executor="inline")]
    assert len({*whole}) == 10
    for how in HERE[1:]:
        with pipeline.batch(4).loader(**how) as loader:
            assert [batch["image"].tobytes() for batch in loader] == whole
    state: Any = None
    for step in range(10):  # a loader of its own for each batch
        with pipeline.batch(4).loader(**HERE[step % 3]) as loader:
            if state is not None:
                loader.load_state_dict(state)
            assert next(iter(loader))["image"].tobytes() == whole[step]
            state = loader.state_dict()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
@pytest.mark.parametrize(
    "processes", [2, pytest.param(1, marks=pytest.mark.thorough), pytest.param(4, marks=pytest.mark.thorough)]
)
def test_transforms_of_torchvision_give_the_same_batches_in_worker_processes(processes: int) -> None:
    pipeline = rows().map(lambda sample: {**sample, "image": augmented(sample["x"])})
    assert sha(pipeline, processes=processes, threads=1) == sha(pipeline, executor="inline")


def drawn(pipeline: Pipeline, field: str = "x") -> list[float]:
    return [float(value) for batch in pipeline.batch(8).loader(executor="inline") for value in batch[field]]


def test_numbers_are_those_of_the_place_and_of_the_function() -> None:
    def draw(x: float) -> float:
        return random.random() + np.random.random()

    pipeline = rows().map(x=draw)
    assert len({*drawn(pipeline)}) == N
    assert drawn(pipeline) != drawn(stoker.arrays(x=np.arange(float(N))).shuffle(seed=4).map(x=draw))
    two = rows().map(lambda sample: {"x": draw(0), "y": draw(0)}).map(y=draw)
    assert not {*drawn(two)} & {*drawn(two, "y")}
    assert drawn(rows().filter(lambda sample: random.random() < 2).map(lambda sample: sample, seeded=False).map(x=draw)) != drawn(
        pipeline
    )
    assert drawn(rows().filter(lambda sample: random.random() < 2).map(x=draw)) == drawn(pipeline)
    named = (
        rows()
        .map(lambda sample: {"x": 0.0, "y": 0.0})
        .map(x=lambda x, rng: draw(x), rng="a")
        .map(y=lambda y, rng: draw(y), rng="a")
    )
    assert drawn(named) == drawn(named, "y")


def test_without_seeding_functions_draw_what_comes_and_move_the_programs_generators() -> None:
    random.seed(5)
    expected = [random.random() for _ in range(N)]
    random.seed(5)
    assert drawn(rows().map(x=lambda x: random.random(), seeded=False)) == expected
    for verb in (Pipeline.filter, Pipeline.flat_map, Pipeline.map):
        with pytest.raises(ConfigError, match="seeded=3"):
            verb(rows(), joined, seeded=3)  # type: ignore[operator]
    field = stoker.arrays(seeded=np.arange(4.0)).map(seeded=lambda value: value + 1)
    assert [float(value) for value in next(iter(field.batch(4)))["seeded"]] == [1, 2, 3, 4]


def test_seeding_is_the_default_and_no_part_of_a_fingerprint() -> None:
    def kept(**how: Any) -> str:
        return rows().filter(lambda sample: True, **how).map(joined, **how).batch(2).map_batch(shifted, **how).fingerprint()

    assert kept() == kept(seeded=True) != kept(seeded=False)


def test_functions_that_do_not_draw_run_beside_each_other() -> None:
    both = threading.Barrier(2)

    def meets(x: float) -> float:
        if x >= 8:  # the first calls are made alone
            both.wait(60)
        return x

    with stoker.arrays(x=np.arange(24.0)).map(x=meets).batch(8).loader(threads=2, executor="threads") as loader:
        assert len(list(loader)) == 3 and not loader.stats().draws


def test_functions_that_draw_run_one_at_a_time() -> None:
    inside, most = 0, 0

    def counts(x: float) -> float:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        value = sum(random.random() for _ in range(1000))
        inside -= 1
        return value

    with rows().map(x=[counts, counts]).batch(8).loader(threads=4, executor="threads") as loader:
        assert len(list(loader)) == 8 and loader.stats().draws
    assert most == 1


def test_numbers_that_the_program_draws_meanwhile_make_no_function_suspicious() -> None:
    """It would run alone from then on, and the program would draw from what it was seeded with."""
    random.seed(7)
    expected = [random.random() for _ in range(50)]
    random.seed(7)
    with rows(400).map(x=float).batch(8).loader(threads=4, executor="threads") as loader:
        own = [random.random() for _ in loader]
        assert own == expected and not loader.stats().draws


@pytest.mark.parametrize("how", HERE, ids=str)
def test_a_function_may_iterate_another_loader(how: dict[str, Any]) -> None:
    inner = rows(16).map(x=[noisy, float]).batch(4)
    expected = [batch["x"].tolist() for batch in inner.loader(executor="inline")]

    def nested(x: float) -> float:
        first = random.random()
        with inner.loader(threads=2, executor="threads") as loader:
            assert [batch["x"].tolist() for batch in loader] == expected
        return first + random.random()

    def alone(x: float) -> float:
        return random.random() + random.random()

    assert [b["x"].tolist() for b in rows(4).map(x=nested).batch(2).loader(**how)] == [
        b["x"].tolist() for b in rows(4).map(x=alone).batch(2).loader(executor="inline")
    ]


def test_an_interrupt_in_a_function_leaves_generators_and_turns_as_they_were(untouched: None) -> None:
    def interrupted(x: float) -> float:
        noisy(x)
        raise KeyboardInterrupt

    for _ in range(2):
        with rows().map(x=interrupted).batch(8).loader(executor="inline") as loader, pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    assert len({sha(rows().map(x=noisy), **how) for how in HERE}) == 1


def test_a_call_that_is_tried_again_draws_the_same_numbers() -> None:
    def flaky(x: float, failed: set[float]) -> float:
        value = noisy(x)
        if x not in failed and x % 3 == 0:
            failed.add(x)
            raise ConnectionResetError
        return value

    def made(failed: set[float]) -> list[float]:
        return drawn(rows(12).map(x=lambda x: flaky(float(x), failed)).retry(1))

    assert made(set()) == made({float(x) for x in range(12)})


def test_a_first_call_that_takes_long_keeps_no_other_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_function, "PATIENCE_S", 0.01)
    monkeypatch.setattr(turns, "_LOOK_S", 0.01)
    calls, other = count(), threading.Event()

    def first_waits_for_second(x: float) -> float:
        if next(calls):
            other.set()
        assert other.wait(60)
        return float(x)

    with rows(8).map(x=first_waits_for_second).batch(8).loader(threads=2, executor="threads") as loader:
        assert sorted(next(iter(loader))["x"]) == [*range(8)]


def test_a_thread_that_nobody_waits_for_keeps_nobody_waiting() -> None:
    held, over = threading.Event(), threading.Event()

    def stuck() -> None:
        turn = Turn(alone=True)
        TURNS.begin(turn)
        held.set()
        over.wait(60)
        TURNS.end(turn)

    thread = threading.Thread(target=stuck)
    thread.start()
    assert held.wait(60)
    TURNS.forget(thread.ident)
    mine = Turn(alone=True)
    TURNS.begin(mine)
    over.set()
    thread.join(60)
    assert mine.holds  # the other one had nothing to give back
    TURNS.end(mine)


def test_what_is_looked_at_changes_with_every_number_that_is_drawn() -> None:
    draws: list[list[Callable[[], Any]]] = [
        [random.random, lambda: random.gauss(0, 1), lambda: random.getrandbits(32 * 624), random.seed],
        [np.random.normal, np.random.random, lambda: np.random.bytes(4 * 624), np.random.seed],
    ]
    for generator, ways in zip(GENERATORS, draws):
        saved = generator.save()
        generator.seed(1)  # an earlier test may have left a number that the next `normal` or `gauss` takes without drawing
        for way in ways:
            before = generator.look()
            assert not generator.moved(before)
            way()
            assert generator.moved(before), way
        generator.restore(saved)


MANY_LOOKS = """
import gc, sys, threading
import torch
from stoker.stage.global_random import GENERATORS

def look():
    for _ in range(1000):
        ring = [torch.empty(1)]
        ring.append(ring)
        GENERATORS[2].moved(GENERATORS[2].save())

gc.set_threshold(5, 2, 2)
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=look) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_threads_that_look_at_torch_while_tensors_are_collected_do_not_wait_for_each_other_for_ever() -> None:
    assert run_python(MANY_LOOKS, timeout_s=100).returncode == 0
