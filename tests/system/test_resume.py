"""Stop at every step, go on from the saved state: what is left is exactly what was left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker import Pipeline

from ..loader.runs import PIPELINES, SINGLES, epochs_of, hash_of, image_pipelines, rest_of, run_python

Run = tuple[list[str], list[dict[str, Any]], list[str]]


def whole_run(pipeline: Pipeline) -> Run:
    """The hashes of an epoch's steps, the states before each of them and after the last, and the next epoch's hashes."""
    with pipeline.loader(executor="inline") as loader:
        hashes, states = [], [loader.state_dict()]
        for batch in loader:
            hashes.append(hash_of(batch))
            states.append(loader.state_dict())
        states[-1:] = [states[-1], loader.state_dict()]  # after the last batch, and after StopIteration
        return hashes, [json.loads(json.dumps(state)) for state in states], [hash_of(batch) for batch in loader]


def check_every_step(pipeline: Pipeline, run: Run, **how: Any) -> None:
    hashes, states, next_epoch = run
    assert len(states) == len(hashes) + 2
    with pipeline.loader(**how) as loader:
        for step, state in enumerate(states[:-1]):
            loader.load_state_dict(state)
            assert [hash_of(batch) for batch in rest_of(loader)] == hashes[step:], step
            assert loader.epoch == 1
            if step % 10 == 0:
                assert hash_of(next(iter(loader))) == next_epoch[0]
        loader.load_state_dict(states[-1])
        assert [hash_of(batch) for batch in loader] == next_epoch


@pytest.mark.parametrize("size", [1, 4, 7])
@pytest.mark.parametrize("kind", PIPELINES)
def test_resuming_at_every_step_gives_the_very_rest(kind: str, size: int) -> None:
    if kind in ("bad samples left out", "blend, bad samples left out") and size == 1:
        pytest.skip("a batch of one bad sample is data loss")
    pipeline = PIPELINES[kind](size)
    check_every_step(pipeline, whole_run(pipeline), **({"executor": "inline"} if size == 1 else {"threads": 2}))


@pytest.mark.faults
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_resuming_at_every_step_with_any_number_of_worker_processes(processes: int, often: Callable[[int, int], int]) -> None:
    some = ["map with numbers", "filter, then map", "pad", "stream, window, filter", "inner batch"]
    kinds = [some[processes], *([] if often(0, 1) == 0 else set(PIPELINES) - {some[processes]})]
    for kind in kinds:
        pipeline = PIPELINES[kind](7)
        check_every_step(pipeline, whole_run(pipeline), processes=processes, threads=1 + processes % 2)


@pytest.mark.parametrize("kind", SINGLES)
def test_resuming_at_every_sample_gives_the_very_rest(kind: str) -> None:
    pipeline = SINGLES[kind]()
    check_every_step(pipeline, whole_run(pipeline), threads=2)


def test_images_resume_to_the_last_bit(image_folder: Path) -> None:
    for pipeline in image_pipelines(image_folder).values():
        check_every_step(pipeline, whole_run(pipeline), threads=2)


@pytest.mark.parametrize(
    "kind", ["shuffled", "filter", "flat_map", "inner batch", "two segments", "stream, window, filter", "pad"]
)
def test_resuming_twice_and_thrice_in_one_epoch(kind: str) -> None:
    pipeline = PIPELINES[kind](3)
    hashes, _, _ = whole_run(pipeline)
    for first in range(0, len(hashes), 2):
        seen: list[str] = []
        state: dict[str, Any] | None = None
        for steps in (first, 2, 1, len(hashes)):
            with pipeline.loader(threads=1) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                seen += [hash_of(batch) for _, batch in zip(range(steps), iter(loader))]
                state = json.loads(json.dumps(loader.state_dict()))
            if len(seen) >= len(hashes):
                break
        assert seen[: len(hashes)] == hashes


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_state_does_not_depend_on_the_threads_that_made_it(threads: int) -> None:
    for kind in PIPELINES:
        pipeline = PIPELINES[kind](4)
        _, states, _ = whole_run(pipeline)
        with pipeline.loader(threads=threads) as loader:
            for step, _ in enumerate(loader):
                assert loader.state_dict() == states[step + 1], (kind, step)


def test_a_state_saved_while_resumed_leads_to_the_same_place() -> None:
    for kind in PIPELINES:
        pipeline = PIPELINES[kind](4)
        hashes, states, next_epoch = whole_run(pipeline)
        with pipeline.loader(executor="inline") as loader, pipeline.loader(executor="inline") as again:
            loader.load_state_dict(states[3])
            for step, _ in enumerate(loader, 3):
                again.load_state_dict(loader.state_dict())
                rest = [hash_of(batch) for _, batch in zip(range(2), iter(again))]
                assert rest == (hashes[step + 1 : step + 3] or next_epoch[:2]), (kind, step)


def test_batches_made_ahead_are_not_in_the_state() -> None:
    pipeline = PIPELINES["shuffled"](4)
    _, states, _ = whole_run(pipeline)
    with pipeline.loader(threads=2, ahead=12) as loader:
        iterator = iter(loader)
        for step in range(5):
            next(iterator)
            assert loader.state_dict() == states[step + 1]


SCRIPT = """
import json, sys
from tests.loader.runs import PIPELINES, hash_of

kinds = json.load(sys.stdin)
found = {}
for kind, states in kinds.items():
    found[kind] = []
    for state in states:
        with PIPELINES[kind](7).loader(threads=2) as loader:
            loader.load_state_dict(state)
            found[kind].append([[hash_of(batch) for batch in loader] for epoch in range(loader.epoch, 2)])
print(json.dumps(found))
"""


def test_a_new_process_goes_on_exactly_where_this_one_was() -> None:
    kinds = ["last batch kept", "map with numbers", "pad", "filter", "flat_map", "inner batch", "stream, window, filter"]
    runs = {kind: whole_run(PIPELINES[kind](7)) for kind in kinds}
    done = run_python(SCRIPT, input=json.dumps({kind: states for kind, (_, states, _) in runs.items()}))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for kind, (hashes, _, next_epoch) in runs.items():
        within = [[hashes[step:], next_epoch] for step in range(len(hashes))]
        assert found[kind] == [*within, [next_epoch], [next_epoch]], kind


def test_a_trainer_that_is_killed_loses_only_what_it_had_not_saved(tmp_path: Path) -> None:
    script = """
import json, os, signal, sys
from tests.loader.runs import PIPELINES
path, die_at = sys.argv[1], int(sys.argv[2])
pipeline = PIPELINES["filter"](3)
with pipeline.loader(threads=2) as loader:
    if os.path.exists(path):
        loader.load_state_dict(json.load(open(path)))
    for step, batch in enumerate(loader):
        print(*batch["x"], flush=True)
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 2 == 1:
            with open(path + ".new", "w") as file:
                json.dump(loader.state_dict(), file)
            os.replace(path + ".new", path)
"""
    state = tmp_path / "state.json"
    killed = run_python(script, str(state), "4")
    assert killed.returncode == -9
    resumed = run_python(script, str(state), "99")
    assert resumed.returncode == 0, resumed.stderr
    with PIPELINES["filter"](3).loader() as loader:
        every = [" ".join(map(str, batch["x"])) for batch in loader]
    assert killed.stdout.split("\n")[:-1] == every[:5]
    assert resumed.stdout.split("\n")[:-1] == every[4:], "steps 0 to 3 were saved, step 4 is done again"


def test_epochs_after_a_resumed_one_are_as_ever() -> None:
    for kind in ("shuffled", "filter", "stream"):
        pipeline = PIPELINES[kind](4)
        with pipeline.loader() as loader:
            every = epochs_of(loader, 4)
        with pipeline.loader() as loader:
            iterator = iter(loader)
            next(iterator), next(iterator)
            state = loader.state_dict()
        with pipeline.loader() as loader:
            loader.load_state_dict(state)
            assert epochs_of(loader, 4) == [every[0][2:], *every[1:]]
