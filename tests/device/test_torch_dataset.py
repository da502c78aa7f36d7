"""A pipeline inside torch's own DataLoader: its workers share every epoch, and nothing changes."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.batch.batch import Batch
from stoker.errors import ConfigError

from ..loader.runs import PIPELINES, SINGLES, expand, numbers, odd

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*suggested max number of worker.*")
        yield


def rows(batch: Any) -> dict[str, Any]:
    fields = batch._asdict() if isinstance(batch, tuple) else batch
    return {name: np.asarray(value).tolist() for name, value in fields.items()}


def through(pipeline: Pipeline, workers: int, epochs: int = 1, **options: Any) -> list[list[dict[str, Any]]]:
    loader = DataLoader(pipeline.torch_dataset(), batch_size=None, num_workers=workers, **options)
    return [[rows(batch) for batch in loader] for _ in range(epochs)]


def ours(pipeline: Pipeline, epochs: int = 1) -> list[list[dict[str, Any]]]:
    with pipeline.loader() as loader:
        return [[rows(batch) for batch in loader] for _ in range(epochs)]


BATCHED = ["last batch kept", "map with numbers", "filter", "two segments", "stream, window, filter"]


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("kind", BATCHED)
def test_batches_come_in_the_very_sequence_of_a_loader(kind: str, workers: int) -> None:
    pipeline = PIPELINES[kind](7)
    epochs = 2 if workers in (0, 2) else 1
    assert through(pipeline, workers, epochs) == ours(pipeline, epochs)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("kind", ["single", "single, bad left out", "single, filter", "single stream"])
def test_single_samples_come_each_once(kind: str, workers: int) -> None:
    pipeline = SINGLES[kind]()
    found = sorted(repr(sample) for sample in through(pipeline, workers)[0])
    assert found == sorted(repr(sample) for sample in ours(pipeline)[0])


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_torch_may_do_the_batching(workers: int, drop_last: bool) -> None:
    """Its batches are those of a loader, whatever the number of workers: one is short, and not one of each worker."""
    samples = numbers().shuffle(seed=1)
    loader = DataLoader(samples.torch_dataset(), batch_size=7, num_workers=workers, drop_last=drop_last)
    assert [rows(batch) for batch in loader] == ours(samples.batch(7, drop_last=drop_last))[0]


class Doubled(IterableDataset):  # type: ignore[misc, type-arg]
    """A data set of a user's own around ours."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __iter__(self) -> Any:
        for sample in self._inner:
            yield {"x": 2 * sample["x"]}


def test_workers_share_runs_of_a_batch_through_a_data_set_of_the_users_own() -> None:
    samples = numbers().shuffle(seed=1)
    loader = DataLoader(Doubled(samples.torch_dataset()), batch_size=7, num_workers=2)
    assert [(batch["x"] // 2).tolist() for batch in loader] == [b["x"] for b in ours(samples.batch(7, drop_last=False))[0]]


@pytest.mark.parametrize("kind", ["single", "single, filter", "single stream"])
def test_workers_take_turns_at_runs_from_any_place_on(kind: str) -> None:
    from stoker.loader import WorkerPart

    part = WorkerPart(SINGLES[kind]())
    samples = [rows(sample) for sample in part(0, 0, 1)]
    runs = [samples[at : at + 4] for at in range(0, len(samples), 4)]
    for number in range(3):
        for skipped in (0, 1, 2):
            mine = [sample for run in runs[number::3][skipped:] for sample in run]
            assert [rows(sample) for sample in part(0, number, 3, skip=4 * skipped, run=4)] == mine


def test_each_iteration_is_the_next_epoch_and_set_epoch_chooses_one() -> None:
    pipeline = numbers().shuffle(seed=1).batch(10)
    expected = ours(pipeline, 5)
    for workers in (0, 2):
        dataset = pipeline.torch_dataset()
        loader = DataLoader(dataset, batch_size=None, num_workers=workers)
        assert [[rows(batch) for batch in loader] for _ in range(2)] == expected[:2]
        dataset.set_epoch(4)
        assert [rows(batch) for batch in loader] == expected[4]
        dataset.set_epoch(0)
        assert [rows(batch) for batch in loader] == expected[0]


def test_epochs_are_counted_whatever_the_default_device_is() -> None:
    pipeline = numbers().shuffle(seed=1).batch(10)
    expected = ours(pipeline, 3)
    torch.set_default_device("meta")
    try:
        dataset = pipeline.torch_dataset()
        assert [rows(batch) for batch in dataset] == expected[0]
        dataset.set_epoch(2)
        assert [rows(batch) for batch in dataset] == expected[2]
    finally:
        torch.set_default_device(None)


def test_workers_agree_on_the_epoch_after_an_iteration_that_was_left_early() -> None:
    pipeline = numbers(400).shuffle(seed=1).batch(4)
    expected = ours(pipeline, 4)
    loader = DataLoader(pipeline.torch_dataset(), batch_size=None, num_workers=3, prefetch_factor=1)
    for epoch in range(4):
        for step, batch in enumerate(loader):
            assert rows(batch) == expected[epoch][step]
            if epoch < 3:
                break


def test_persistent_workers_go_on_to_the_next_epoch() -> None:
    pipeline = numbers().shuffle(seed=1).batch(10)
    assert through(pipeline, 2, 3, persistent_workers=True) == ours(pipeline, 3)


@pytest.mark.slow
def test_a_dataset_travels_to_a_spawned_worker() -> None:
    pipeline = numbers().shuffle(seed=1).filter(odd).batch(5)
    assert through(pipeline, 1, 1, multiprocessing_context="spawn") == ours(pipeline)


def test_a_dataset_that_has_travelled_counts_epochs_together_with_the_first() -> None:
    from multiprocessing.reduction import ForkingPickler

    pipeline = numbers().shuffle(seed=1).filter(odd).batch(5)
    expected = ours(pipeline, 3)
    dataset = pipeline.torch_dataset()
    travelled = ForkingPickler.loads(ForkingPickler.dumps(dataset))
    found = [[rows(batch) for batch in one] for one in (dataset, travelled, dataset)]
    assert found == expected


@pytest.mark.parametrize("remainder", ["drop", "pad", "keep"])
@pytest.mark.parametrize("n", [12, 13, 23])
def test_ranks_with_workers_share_single_samples_as_promised(remainder: str, n: int) -> None:
    """Without processes: the parts a DataLoader's workers would ask for."""
    from stoker.loader import WorkerPart

    for world in (1, 2, 3):
        for workers in (1, 2, 4):
            counts, every = [], []
            for rank in range(world):
                part = WorkerPart(numbers(n).shuffle(seed=1).shard(rank, world, remainder))
                mine = [int(s["x"]) for number in range(workers) for s in part(0, number, workers)]
                counts.append(len(mine))
                every += mine
            if remainder == "keep":
                assert sorted(every) == list(range(n))
                assert max(counts) - min(counts) <= 1
            else:
                assert len(set(counts)) == 1, "every rank takes the same number of steps"
                assert len(set(every)) == (n if remainder == "pad" else n // world * world)


@pytest.mark.parametrize("kind", ["shuffled", "filter", "flat_map", "stream"])
def test_workers_share_batches_in_turn_whatever_their_number(kind: str) -> None:
    from stoker.loader import WorkerPart

    pipeline = PIPELINES[kind](4)
    expected = [rows(batch) for batch in pipeline]
    for workers in (1, 2, 3, 5, 40):
        part = WorkerPart(pipeline)
        shares = [[rows(batch) for batch in part(0, number, workers)] for number in range(workers)]
        assert shares == [expected[number::workers] for number in range(workers)]


def test_an_error_in_a_worker_reaches_the_training_loop() -> None:
    def fail(x: Any) -> Any:
        if x == 30:
            raise ValueError("thirty")
        return x

    for workers in (0, 2):
        loader = DataLoader(numbers().map(x=fail).batch(4).torch_dataset(), batch_size=None, num_workers=workers)
        with pytest.raises(RuntimeError, match="thirty"):
            list(loader)


def test_expanded_samples_are_shared_too() -> None:
    pipeline = numbers().flat_map(expand)
    found = through(pipeline, 3)[0]
    assert sorted((s["x"], s["part"]) for s in found) == sorted((int(s["x"]), s["part"]) for s in pipeline)
    assert isinstance(stoker.arrays(x=np.arange(3)).torch_dataset(), torch.utils.data.IterableDataset)


# ---- what comes out, and what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_unpack_and_answer_by_name(workers: int) -> None:
    pipeline = numbers().select("y", "x").batch(10)
    for y, x in DataLoader(pipeline.torch_dataset(), batch_size=None, num_workers=workers):
        assert x.shape == (10,) and y.shape == (10, 5)
    batch = next(iter(DataLoader(pipeline.torch_dataset(), batch_size=None, num_workers=workers)))
    assert batch._fields == ("y", "x")
    assert batch["x"] is batch[1]
    as_dict = next(iter(DataLoader(pipeline.torch_dataset(batches="dict"), batch_size=None, num_workers=workers)))
    assert type(as_dict) is dict and rows(as_dict) == rows(batch)


def test_torch_collates_samples_to_named_tuples_or_dicts() -> None:
    samples = numbers().torch_dataset(), numbers().torch_dataset(batches="dict")
    named, as_dict = (next(iter(DataLoader(dataset, batch_size=4))) for dataset in samples)
    assert named._fields == ("x", "y") and named["y"].shape == (4, 5)
    assert type(as_dict) is dict and rows(as_dict) == rows(named)
    assert isinstance(named, Batch) and named.rows == 4 and named.sample_keys == [str(x) for x in named["x"].tolist()]


def as_it_is(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("workers", [0, 2])
def test_keys_and_valid_rows_come_through_where_torch_rebuilds_nothing(workers: int) -> None:
    pipeline = numbers(7).shard(1, 2, "pad").batch(2)
    loader = DataLoader(pipeline.torch_dataset(), batch_size=None, num_workers=workers, collate_fn=as_it_is)
    assert [(batch.sample_keys, batch.valid.tolist()) for batch in loader] == [
        (batch.sample_keys, batch.valid.tolist()) for batch in pipeline
    ]
    with pytest.raises(AttributeError, match="rebuilt from its values"):
        _ = next(iter(DataLoader(pipeline.torch_dataset(), batch_size=None))).valid


def test_a_form_of_batches_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"torch_dataset\(batches='list'\): must be 'tuple' or 'dict'"):
        numbers().torch_dataset(batches="list")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_has_the_length_of_its_pipeline(workers: int) -> None:
    for pipeline, length in ((numbers().batch(7), 8), (numbers().batch(7).repeat(2), 16), (numbers(), 60)):
        dataset = pipeline.torch_dataset()
        loader = DataLoader(dataset, batch_size=None, num_workers=workers)
        assert len(dataset) == len(loader) == length
        assert len(list(loader)) == length, "and torch does not warn of more than it was told"
    assert len(DataLoader(numbers().torch_dataset(), batch_size=7)) == 9


def test_a_data_set_without_a_known_length_says_so_and_is_true() -> None:
    dataset = numbers().filter(odd).torch_dataset()
    assert dataset
    with pytest.raises(TypeError, match="not known in advance"):
        len(dataset)
    assert len(list(DataLoader(dataset, batch_size=None))) == 30


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batches", ["tuple", "dict"])
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 8}], ids=repr)
def test_batches_are_not_batched_again(arguments: dict[str, Any], batches: str, workers: int) -> None:
    dataset = numbers().batch(4).torch_dataset(batches=batches)
    with pytest.raises(ConfigError, match="pass batch_size=None"):
        next(iter(DataLoader(dataset, num_workers=workers, **arguments)))
    assert len(list(DataLoader(dataset, batch_size=None, num_workers=workers))) == 15
    (first, *_), *rest = DataLoader(dataset, batch_size=1, num_workers=workers, collate_fn=list)
    assert len(rest) == 14 and len(first["x"]) == 4, "who collates has said what is wanted"


def test_set_epoch_takes_an_epoch() -> None:
    for wrong in (-1, 1 << 32, 0.5, True, None):
        with pytest.raises(ConfigError, match="set_epoch\\("):
            numbers().torch_dataset().set_epoch(wrong)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batches", ["tuple", "dict"])
def test_fields_of_bytes_are_lists(batches: str, workers: int, image_folder: Path) -> None:
    pipeline = stoker.files(image_folder, labels=None).take(6).batch(3)
    expected = [list(batch["image"]) for batch in pipeline.loader()]
    dataset = pipeline.torch_dataset(batches=batches)
    assert [batch["image"] for batch in DataLoader(dataset, batch_size=None, num_workers=workers)] == expected


class Inner(IterableDataset):  # type: ignore[type-arg]
    """A data set of the user's own around ours."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        yield from self.inner


def test_accelerate_is_seen_through_a_data_set_of_the_users_own() -> None:
    class DataLoaderDispatcher:
        state = SimpleNamespace(num_processes=2)
        batch_size = None

        def read(self, dataset: Any) -> list[Any]:
            return list(DataLoader(Inner(dataset), batch_size=None))

    DataLoaderDispatcher.__module__ = "accelerate.data_loader"
    with pytest.raises(ConfigError, match=r"omit \.shard\(\)"):
        DataLoaderDispatcher().read(numbers().shard(rank=0, world=2).batch(4).torch_dataset())
    assert len(DataLoaderDispatcher().read(numbers().batch(4).torch_dataset())) == 15


def test_a_pipeline_in_the_place_of_its_data_set_says_so() -> None:
    with pytest.raises(ConfigError, match=r"DataLoader takes pipeline\.torch_dataset\(\)"):
        next(iter(DataLoader(numbers().batch(4))))


def test_numpy_numbers_are_epochs_and_unknown_devices_are_named() -> None:
    dataset = numbers().batch(4).torch_dataset()
    dataset.set_epoch(np.int64(3))
    with numbers().batch(4).loader(epoch=np.int64(2), threads=np.int64(1)) as loader:
        loader.set_epoch(np.int64(3))
        assert loader.state_dict()["epoch"] == 3
        json.dumps(loader.state_dict())
    for device in ("gpu", 3.5, "vulkan"):  # torch knows the last, and is built without it
        with pytest.raises(ConfigError, match="torch has no such device"):
            numbers().batch(4).loader(device=device)


def test_a_missing_cuda_device_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cuda, remedy in (("13.0", "nvidia-smi, and the variable CUDA_VISIBLE_DEVICES"), (None, "install a build with it")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        with pytest.raises(ConfigError, match=rf"device='cuda'\): torch finds no CUDA device; .*{remedy}, or omit device"):
            numbers().batch(4).loader(device="cuda")


def test_a_loader_says_that_it_cannot_be_sent_to_another_process() -> None:
    with numbers().batch(4).loader() as loader:
        for copying in (pickle.dumps, copy.deepcopy):
            with pytest.raises(ConfigError, match=r"send the pipeline and call \.loader"):
                copying(loader)  # type: ignore[operator]
