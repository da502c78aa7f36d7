"""Accelerate around a data set: on two ranks every sample comes once, or the combination is refused on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError

from .ranks import WORLD, run_ranks

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")


def ids(n: int) -> Pipeline:
    return stoker.arrays(x=np.arange(n), y=np.zeros((n, 2), np.float32)).shuffle(seed=3)


#: name -> samples, size of the pipeline's batches (0: none), arguments of DataLoader, whether rank 0 reads for all
EXACT: dict[str, tuple[int, int, dict[str, Any], bool]] = {
    "batches, dispatched": (24, 4, {"batch_size": None}, True),
    "batches, dispatched, an odd and shorter last one": (22, 4, {"batch_size": None}, True),
    "batches, dispatched, with workers": (24, 4, {"batch_size": None, "num_workers": 2}, True),
    "samples, dispatched": (24, 0, {"batch_size": 4}, True),
    "samples, in turns": (24, 0, {"batch_size": 4}, False),
    "samples, in turns, a rest that fills no batch is dropped": (29, 0, {"batch_size": 4, "drop_last": True}, False),
}
#: the same; the last batches are filled up with this many samples from the first ones
FILLED: dict[str, tuple[int, int, dict[str, Any], bool, int]] = {
    "batches, dispatched": (21, 4, {"batch_size": None}, True, 1),
    "samples, in turns": (22, 0, {"batch_size": 4}, False, 2),
}
#: name -> pipeline, arguments of DataLoader, whether rank 0 reads for all, and what is said
REFUSED: dict[str, tuple[Pipeline, dict[str, Any], bool, str]] = {
    "sharded, dispatched": (ids(24).shard(0, WORLD).batch(4), {"batch_size": None}, True, "omit .shard()"),
    "sharded, dispatched, with workers": (
        ids(24).shard(0, WORLD).batch(4),
        {"batch_size": None, "num_workers": 1},
        True,
        "omit .shard()",
    ),
    "sharded, in turns": (ids(24).shard(0, WORLD), {"batch_size": 4}, False, "omit .shard()"),
    "batched twice, with workers": (ids(24).batch(4), {"batch_size": 4, "num_workers": 1}, True, "pass batch_size=None"),
    "batches, in turns": (ids(24).batch(4), {"batch_size": None}, False, "omit dispatch_batches=False"),
}


#: batches of a rank that `skip_first_batches` leaves out
SKIPPED = 2
made: list[int] = []


def noted(x: Any) -> Any:
    made.append(int(x))
    return x


def main(folder: Path) -> dict[str, Any]:
    """What a rank sees."""
    from accelerate.utils import DataLoaderConfiguration

    accelerators = {
        dispatch: accelerate.Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
        for dispatch in (True, False)
    }
    found: dict[str, Any] = {"ranks": accelerators[True].num_processes}

    def prepared(pipeline: Pipeline, arguments: dict[str, Any], dispatch: bool, batches: str = "tuple") -> Any:
        loader = torch.utils.data.DataLoader(pipeline.torch_dataset(batches=batches), **arguments)
        return accelerators[dispatch].prepare(loader)

    for table in (EXACT, FILLED):
        for name, (n, size, arguments, dispatch, *_) in table.items():
            pipeline = ids(n).batch(size, drop_last=False) if size else ids(n)
            loader = prepared(pipeline, arguments, dispatch, "dict" if size == 0 else "tuple")
            epochs = [[int(x) for batch in loader for x in batch["x"]] for _ in range(2)]
            found[f"{'exact' if table is EXACT else 'filled'}: {name}"] = epochs
    for name, (n, size, arguments, dispatch) in EXACT.items():
        made.clear()
        pipeline = ids(n).map(x=noted)
        loader = prepared(pipeline.batch(size, drop_last=False) if size else pipeline, arguments, dispatch)
        skipping = accelerate.skip_first_batches(loader, SKIPPED)
        rests = [[int(x) for batch in skipping for x in batch["x"]] for _ in range(2)]
        found[f"skipped: {name}"] = rests, len(made), [int(x) for batch in loader for x in batch["x"]]
    for name, (pipeline, arguments, dispatch, _) in REFUSED.items():
        with pytest.raises(ConfigError) as refused:
            list(prepared(pipeline, arguments, dispatch))
        found[name] = str(refused.value)
    rank = accelerators[True].process_index
    with ids(24).shard(rank, WORLD).batch(4).loader(format="torch", threads=1) as loader:
        ours = accelerators[True].prepare(loader)
        found["a loader of our own"] = [[int(x) for batch in ours for x in batch["x"]] for _ in range(2)]
        accelerators[True].register_for_checkpointing(ours)
        batches = iter(ours)
        next(batches)
        accelerators[True].save_state(str(folder / "saved"))
        accelerators[True].wait_for_everyone()  # the first rank writes what all of them load
        found["left"] = [int(x) for batch in batches for x in batch["x"]]
        accelerators[True].load_state(str(folder / "saved"))
        found["left after loading"] = [int(x) for batch in ours for x in batch["x"]]
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks saw, all cases in one run: it takes seconds to start."""
    found = run_ranks("tests.journeys.test_accelerate", tmp_path_factory.mktemp("accelerate"))
    assert [rank["ranks"] for rank in found] == [WORLD] * WORLD
    return found


def both(ranks: list[dict[str, Any]], name: str) -> list[list[int]]:
    """Each epoch's samples on both ranks, sorted; they share them evenly."""
    assert [len(epoch) for epoch in ranks[0][name]] == [len(epoch) for epoch in ranks[1][name]]
    assert ranks[0][name][0] != ranks[0][name][1], "the next epoch has another order"
    return [sorted(first + second) for first, second in zip(ranks[0][name], ranks[1][name])]


@pytest.mark.parametrize("name", EXACT)
def test_without_shard_every_sample_comes_once(name: str, ranks: list[dict[str, Any]]) -> None:
    n = EXACT[name][0]
    for epoch in both(ranks, f"exact: {name}"):
        assert len(epoch) == len(set(epoch)) == n - n % 8 if "dropped" in name else epoch == list(range(n))


@pytest.mark.parametrize("name", EXACT)
def test_skipped_batches_are_not_made_and_the_rest_is_the_same(name: str, ranks: list[dict[str, Any]]) -> None:
    """In the first epoch, in the second of the loader that skips, and in none of the one it was made of."""
    n, size, arguments, dispatch = EXACT[name]
    for number, rank in enumerate(ranks):
        (first, second), samples, after = rank[f"skipped: {name}"]
        whole = rank[f"exact: {name}"]
        skipped = SKIPPED * (size or arguments["batch_size"])
        assert first == whole[0][skipped:] and second == whole[1][skipped:] and after == whole[0]
        if not arguments.get("num_workers"):  # whose samples are made in other processes
            assert samples == (2 * (n - WORLD * skipped) if number == 0 or not dispatch else 0)


@pytest.mark.parametrize("name", FILLED)
def test_accelerate_fills_up_what_it_cannot_share_evenly(name: str, ranks: list[dict[str, Any]]) -> None:
    n, *_, repeated = FILLED[name]
    for epoch in both(ranks, f"filled: {name}"):
        assert set(epoch) == set(range(n)) and len(epoch) == n + repeated


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_show_a_part_of_the_data_is_refused_on_every_rank(name: str, ranks: list[dict[str, Any]]) -> None:
    assert all(REFUSED[name][-1] in rank[name] for rank in ranks)


def test_a_loader_with_shard_goes_through_prepare_as_it_is_and_into_checkpoints(ranks: list[dict[str, Any]]) -> None:
    assert both(ranks, "a loader of our own") == [list(range(24))] * 2
    for rank in ranks:
        assert len(rank["left"]) == 8 and rank["left after loading"] == rank["left"]


def test_one_process_may_have_a_share_it_was_given() -> None:
    """Nobody deals anything out there, so `shard` is right."""
    loader = accelerate.Accelerator(cpu=True).prepare(
        torch.utils.data.DataLoader(ids(24).shard(1, 2).batch(4).torch_dataset(), batch_size=None)
    )
    assert len(loader) == 3 and sum(len(batch["x"]) for batch in loader) == 12
