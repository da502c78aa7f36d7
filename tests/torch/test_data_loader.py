"""The DataLoader in this process: torch's arguments and results, epochs, orders, states."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from stoker.errors import ClosedError, ConfigError, StateError
from stoker.torch import DataLoader

from .datasets import Draws, DrawsTogether, Fails, ItemError, Named, Nested, Stream, Workers


def plain(batch: Any) -> Any:
    """A batch as something that can be compared."""
    if isinstance(batch, torch.Tensor):
        return str(batch.dtype), batch.tolist()
    if isinstance(batch, dict):
        return {name: plain(value) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch).__name__, [plain(value) for value in batch]
    return batch


def epochs(loader: Any, count: int = 1) -> list[Any]:
    return [[plain(batch) for batch in loader] for _ in range(count)]


def test_batches_are_those_that_torch_makes() -> None:
    ours, theirs = DataLoader(Nested(), 3), torch_data.DataLoader(Nested(), 3)
    assert epochs(ours) == epochs(theirs)
    assert isinstance(next(iter(ours))["point"], tuple)
    assert len(ours) == len(theirs) == len(iter(ours)) == 3


@pytest.mark.parametrize(
    "given",
    [
        {"batch_size": 2, "drop_last": True},
        {"batch_size": None},
        {"batch_size": None, "sampler": [[0, 1], [2, 3, 4]], "collate_fn": None},
        {"batch_size": 3, "sampler": [4, 2, 2, -1]},
        {"batch_sampler": [[1], [2, 3], [0, 0, 0]]},
        {"batch_size": 3, "collate_fn": len},
        {"batch_size": 4, "sampler": (3, 1)},
    ],
    ids=repr,
)
@pytest.mark.parametrize("lower", [True, False])
def test_what_makes_batches_is_what_makes_torchs(given: dict[str, Any], lower: bool) -> None:
    dataset = TensorDataset(torch.arange(14).reshape(7, 2))
    made = epochs(DataLoader(dataset, **given, lower=lower))
    assert made == epochs(torch_data.DataLoader(dataset, **given))
    assert made[0]


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [0]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "shuffle": True},
        {"batch_sampler": [[0]], "sampler": [0]},
        {"batch_sampler": [[0]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"multiprocessing_context": "fork"},
        {"multiprocessing_context": "no such", "num_workers": 1},
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused_as_torch_refuses_them(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as theirs:
        torch_data.DataLoader(Draws(), **given)
    with pytest.raises(ValueError) as ours:
        DataLoader(Draws(), **given)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("given", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}], ids=repr)
def test_an_iterable_data_set_takes_no_order(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Stream(), **given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"executor": "thread"}, "choose one of"),
        ({"seed": 1.5}, "must be an integer"),
        ({"memory": "lots"}, "memory"),
        ({"executor": "threads"}, "num_workers=0"),
        ({"executor": "threads", "num_workers": 1, "worker_init_fn": print}, "prepares worker processes"),
    ],
)
def test_our_own_arguments_are_checked_too(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        DataLoader(Draws(), **given)


def test_attributes_are_there_and_those_torch_protects_cannot_be_set() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True, drop_last=True, seed=3)
    assert isinstance(loader, torch_data.DataLoader)
    assert (loader.batch_size, loader.drop_last, loader.num_workers, loader.pin_memory, loader.timeout) == (4, True, 0, False, 0)
    assert isinstance(loader.sampler, RandomSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert (loader.seed, loader.lower, loader.executor, loader.memory, loader.generator) == (3, True, None, "2GB", None)
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 5


# ---- order and randomness -----------------------------------------------------------------------------------------------


def indices(epoch: Any) -> list[int]:
    return [index for batch in epoch for index in batch[0].tolist()]


def test_every_epoch_has_all_items_in_another_order_which_the_seed_decides() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True, seed=1)
    first, second = indices(loader), indices(loader)
    assert sorted(first) == sorted(second) == list(range(23))
    assert first != second
    assert indices(DataLoader(Draws(), 5, shuffle=True, seed=1)) == first, "whatever the size of batches"
    assert indices(DataLoader(Draws(), 4, shuffle=True, seed=2)) != first


def test_without_a_seed_torchs_generator_decides_or_the_one_that_is_given() -> None:
    torch.manual_seed(5)
    first = epochs(DataLoader(Draws(), 4, shuffle=True), 2)
    torch.manual_seed(5)
    assert epochs(DataLoader(Draws(), 4, shuffle=True), 2) == first
    generator = torch.Generator().manual_seed(6)
    second = epochs(DataLoader(Draws(), 4, shuffle=True, generator=generator))
    assert second == epochs(DataLoader(Draws(), 4, shuffle=True, generator=torch.Generator().manual_seed(6)))
    assert second != first[:1]


def draws_of(loader: Any) -> dict[int, Any]:
    found = {}
    for index, *drawn in itertools.chain.from_iterable(zip(*batch) for batch in loader):
        found[int(index)] = [plain(value) for value in drawn]
    return found


def test_what_an_item_draws_depends_on_seed_epoch_and_index_and_on_nothing_else() -> None:
    plain_order = DataLoader(Draws(), 4, seed=1)
    first, second = draws_of(plain_order), draws_of(plain_order)
    assert first[3] != second[3]
    assert first[3] != first[4]
    assert draws_of(DataLoader(Draws(), 7, shuffle=True, seed=1)) == first
    assert draws_of(DataLoader(Draws(), 2, sampler=[9, 3], seed=1)) == {index: first[index] for index in (3, 9)}
    assert draws_of(DataLoader(Draws(), batch_sampler=[[9, 3]], seed=1)) == {index: first[index] for index in (3, 9)}


def test_an_item_that_comes_twice_in_an_epoch_draws_twice() -> None:
    [[_, drawn, *_]] = list(DataLoader(Draws(), 4, sampler=[5, 5, 6, 5], seed=1))
    assert len({*drawn.tolist()}) == 4


def test_the_generators_of_the_program_are_as_if_there_were_no_loader() -> None:
    def drawn(loader: Any) -> list[float]:
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(1)
        found = []
        for _ in loader:
            found += [random.random(), np.random.rand(), torch.rand(1).item()]
        return found

    alone = drawn(range(3))
    for dataset in (Draws(12), DrawsTogether(12), Stream(12)):
        assert drawn(DataLoader(dataset, 4, seed=1)) == alone
    sampler = WeightedRandomSampler([1.0] * 12, 12)
    assert drawn(DataLoader(Draws(12), 4, sampler=sampler, seed=1)) == alone


def test_what_the_program_draws_between_batches_changes_none_of_them() -> None:
    class Drawn:
        """A sampler that draws as it goes."""

        def __iter__(self) -> Iterator[int]:
            for _ in range(12):
                yield random.randrange(23)

    for given in ({"dataset": Stream(12)}, {"dataset": Draws(), "sampler": Drawn()}):
        expected = epochs(DataLoader(**given, batch_size=4, seed=1))[0]
        made = []
        for batch in DataLoader(**given, batch_size=4, seed=1):
            made.append(plain(batch))
            random.random()
            torch.rand(1)
        assert made == expected
        assert len({str(batch) for batch in made}) == 3


def test_a_collate_function_that_draws_is_seeded_by_its_batch() -> None:
    def joined(items: list[Any]) -> Any:
        return [item[0] for item in items], random.random()

    loader = DataLoader(Draws(), 4, collate_fn=joined, seed=1)
    first = list(loader)
    assert len({drawn for _, drawn in first}) == len(first)
    resumed = DataLoader(Draws(), 4, collate_fn=joined, seed=1)
    resumed.load_state_dict({**resumed.state_dict(), "batches": 3})
    assert list(resumed) == first[3:]


def test_indices_need_not_be_numbers() -> None:
    loader = DataLoader(Named(), 2, sampler=["b", "a", "c"], seed=1)
    first = epochs(loader, 2)
    assert [batch[1][0] for batch in first[0]] == [("tuple", ["b", "a"]), ("tuple", ["c"])]
    assert epochs(DataLoader(Named(), 2, sampler=["b", "a", "c"], seed=1), 2) == first
    assert first[0] != first[1]


def test_a_sampler_without_length_or_end_is_asked_for_no_more_than_is_needed() -> None:
    class Endless:
        asked = 0

        def __iter__(self) -> Iterator[int]:
            while True:
                self.asked += 1
                yield self.asked % 23

    sampler = Endless()
    loader = DataLoader(Draws(), 4, sampler=sampler)
    assert len(list(itertools.islice(loader, 10))) == 10
    assert sampler.asked == 40


def test_an_error_of_a_sampler_comes_after_the_batches_before_it() -> None:
    def broken() -> Iterator[int]:
        yield from range(6)
        raise KeyError("sampler")

    found = iter(DataLoader(Draws(), 2, sampler=broken()))
    assert [next(found)[0].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(KeyError, match="sampler"):
        next(found)


# ---- epochs -------------------------------------------------------------------------------------------------------------


def test_a_loop_that_is_left_is_followed_by_the_next_epoch() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True, seed=1)
    whole = epochs(DataLoader(Draws(), 4, shuffle=True, seed=1), 2)
    for _ in loader:
        break
    assert loader.epoch == 0
    assert epochs(loader)[0] == whole[1]


def test_an_iterator_that_gave_nothing_is_not_an_epoch() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True, seed=1)
    iter(loader)
    assert epochs(loader) == epochs(DataLoader(Draws(), 4, shuffle=True, seed=1))


@pytest.mark.parametrize("lower", [True, False])
def test_several_iterators_at_once_are_epochs_of_their_own(lower: bool) -> None:
    def make() -> DataLoader:
        return DataLoader(TensorDataset(torch.arange(12)), 4, shuffle=True, seed=1, lower=lower)

    first, second = epochs(make(), 2)
    loader = make()
    pairs = [(plain(one), plain(other)) for one, other in zip(loader, loader)]
    assert ([one for one, _ in pairs], [other for _, other in pairs]) == (first, second)
    assert len([0 for _ in loader for _ in loader]) == 9


def test_samplers_that_are_told_the_epoch_follow_it() -> None:
    def make(sampler: Any) -> DataLoader:
        return DataLoader(Draws(), 4, sampler=sampler, seed=1)

    sampler = DistributedSampler(Draws(), 2, 1, seed=3)
    loader = make(sampler)
    found = []
    for epoch in (4, 5):
        sampler.set_epoch(epoch)
        found.append(indices(loader))
    sampler = DistributedSampler(Draws(), 2, 1, seed=3)
    loader = make(sampler)
    loader.set_epoch(5)
    assert indices(loader) == found[1] == list(sampler)
    assert found[0] != found[1]


def test_a_shuffling_loader_follows_who_sets_the_epoch_of_its_sampler() -> None:
    third = epochs(DataLoader(Draws(), 4, shuffle=True, seed=1), 3)[2]
    for tell in (lambda loader: loader.sampler.set_epoch(2), lambda loader: loader.set_epoch(2)):
        loader = DataLoader(Draws(), 4, shuffle=True, seed=1)
        tell(loader)
        assert epochs(loader)[0] == third
        assert loader.epoch == 3
    with pytest.raises(ConfigError, match="set_epoch"):
        loader.set_epoch(-1)


def test_copies_go_on_where_the_loader_is() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True, seed=1)
    whole = epochs(DataLoader(Draws(), 4, shuffle=True, seed=1), 2)
    list(loader)
    for same in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):  # noqa: S301
        assert epochs(same) == whole[1:]


# ---- errors -------------------------------------------------------------------------------------------------------------


def test_an_error_of_an_item_is_the_users_own_and_the_loop_can_go_on() -> None:
    loader = DataLoader(Fails(fails=5), 4)
    found = iter(loader)
    next(found)
    state = loader.state_dict()
    with pytest.raises(ItemError) as caught:
        next(found)
    assert caught.value.index == 5
    assert "index 5 of the data set" in caught.value.__notes__
    assert loader.state_dict() == state, "the batch was not handed out"
    assert next(found).tolist() == [8, 9, 10, 11]


def test_an_item_that_raises_stop_iteration_does_not_end_the_epoch() -> None:
    with pytest.raises(RuntimeError, match="index 5 of the data set: raised StopIteration"):
        list(DataLoader(Fails(stops=5), 4))


def test_a_closed_loaders_iterator_ends_and_the_loader_can_be_used_again() -> None:
    loader = DataLoader(Draws(), 4)
    with loader:
        found = iter(loader)
        next(found)
    with pytest.raises(ClosedError, match="closed"):
        next(found)
    assert len(list(loader)) == 6
    loader.close()
    loader.close()


# ---- states -------------------------------------------------------------------------------------------------------------


class Stateful(torch_data.Sampler):
    """A sampler that keeps its own state."""

    def __init__(self) -> None:
        self.given, self.asked = 0, 0

    def __len__(self) -> int:
        return 23

    def __iter__(self) -> Iterator[int]:
        first, self.given = self.given, 0
        for self.given in range(first + 1, 24):
            self.asked += 1
            yield (self.given * 7) % 23
        self.given = 0

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


ORDERS: dict[str, Any] = {
    "in sequence": lambda: {"dataset": Draws(), "batch_size": 4},
    "shuffled": lambda: {"dataset": Draws(), "batch_size": 4, "shuffle": True},
    "dropping": lambda: {"dataset": Draws(), "batch_size": 4, "shuffle": True, "drop_last": True},
    "together": lambda: {"dataset": DrawsTogether(), "batch_size": 4, "shuffle": True},
    "single": lambda: {"dataset": Draws(5), "batch_size": None, "shuffle": True},
    "tensors": lambda: {"dataset": TensorDataset(torch.arange(23), torch.arange(23.0)), "batch_size": 4, "shuffle": True},
    "weighted": lambda: {"dataset": Draws(), "batch_size": 4, "sampler": WeightedRandomSampler([*map(float, range(23))], 23)},
    "subset": lambda: {"dataset": Draws(), "batch_size": 4, "sampler": SubsetRandomSampler(range(15))},
    "own generator": lambda: {
        "dataset": Draws(),
        "batch_sampler": BatchSampler(RandomSampler(Draws(), generator=torch.Generator().manual_seed(3)), 4, False),
    },
    "distributed": lambda: {"dataset": Draws(), "batch_size": 4, "sampler": DistributedSampler(Draws(), 2, 0)},
    "stateful": lambda: {"dataset": Draws(), "batch_size": 4, "sampler": Stateful()},
    "stream": lambda: {"dataset": Stream(), "batch_size": 4},
    "stream, dropping": lambda: {"dataset": Stream(), "batch_size": 4, "drop_last": True},
    "stream, single": lambda: {"dataset": Stream(5), "batch_size": None},
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_resume_anywhere_gives_what_would_have_come(name: str) -> None:
    def make() -> DataLoader:
        return DataLoader(**ORDERS[name](), seed=9)

    first, second = epochs(make(), 2)
    for steps in range(len(first) + 1):
        loader = make()
        assert [plain(batch) for batch in itertools.islice(loader, steps)] == first[:steps]
        state = json.loads(json.dumps(loader.state_dict()))
        assert len(json.dumps(state)) < 400
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert epochs(resumed, 2)[0] == (first[steps:] or second), f"after {steps} batches"
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.epoch == (steps == len(first)), "also where that is known only when the next batch is asked for"
        assert epochs(resumed, 2)[0] == (first[steps:] or second)


@pytest.mark.parametrize("name", ORDERS)
def test_batches_that_are_skipped_are_left_out_and_the_rest_is_as_it_was(name: str) -> None:
    def make() -> DataLoader:
        return DataLoader(**ORDERS[name](), seed=9)

    first, second = epochs(make(), 2)
    for steps in range(len(first) + 1):
        loader = make()
        loader.skip(steps)
        state = json.loads(json.dumps(loader.state_dict()))
        assert epochs(loader)[0] == (first[steps:] or second), f"after {steps} batches"
        resumed = make()
        resumed.load_state_dict(state)
        assert epochs(resumed)[0] == (first[steps:] or second)
    loader = make()
    assert [plain(batch) for batch in itertools.islice(loader, 2)] == first[:2]
    loader.skip(1)
    assert epochs(loader)[0] == (first[3:] or second)
    loader.set_epoch(1)
    loader.skip(1)
    if name != "distributed":  # which was told of another epoch
        assert epochs(loader)[0] == second[1:]


def test_more_batches_than_there_are_cannot_be_skipped() -> None:
    for given in ({}, {"sampler": [3, 4, 5]}):
        loader = DataLoader(Draws(12), 4, **given)
        with pytest.raises(ConfigError, match=r"skip\(4\): epoch 0 has fewer"):
            loader.skip(4)
        with pytest.raises(ConfigError, match="must be an integer"):
            loader.skip(-1)
        assert len(list(loader)) == len(loader)


def test_a_state_of_a_sampler_of_its_own_is_kept_and_nothing_is_passed_over() -> None:
    loader = DataLoader(Draws(), 4, sampler=Stateful())
    found = iter(loader)
    next(found), next(found)
    state = loader.state_dict()
    assert state["sampler"] == {"given": 8}
    sampler = Stateful()
    resumed = DataLoader(Draws(), 4, sampler=sampler)
    resumed.load_state_dict(state)
    next(iter(resumed))
    assert sampler.asked == 4


def test_a_resume_asks_for_no_item_that_was_handed_out() -> None:
    asked = []

    class Asked(Draws):
        def __getitem__(self, index: int) -> int:
            asked.append(index)
            return index

    loader = DataLoader(Asked(1000), 10, shuffle=True, seed=1)
    loader.load_state_dict({**loader.state_dict(), "batches": 97})
    assert len(list(loader)) == 3
    assert len(asked) == 30


def test_the_epoch_that_a_sampler_was_told_is_part_of_the_state() -> None:
    sampler = DistributedSampler(Draws(), 2, 0)
    loader = DataLoader(Draws(), 4, sampler=sampler, seed=1)
    sampler.set_epoch(6)
    found = iter(loader)
    next(found)
    state = loader.state_dict()
    resumed = DataLoader(Draws(), 4, sampler=DistributedSampler(Draws(), 2, 0), seed=1)
    resumed.load_state_dict(state)
    assert indices(resumed) == indices(found)


def test_a_loader_without_a_seed_takes_that_of_the_state() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True)
    found = iter(loader)
    next(found)
    resumed = DataLoader(Draws(), 4, shuffle=True)
    list(resumed)
    resumed.load_state_dict(loader.state_dict())
    assert [plain(batch) for batch in resumed] == [plain(batch) for batch in found]


def test_a_state_loaded_during_an_epoch_counts_from_the_next_iteration() -> None:
    loader = DataLoader(Draws(), 4, seed=1)
    found = iter(loader)
    next(found)
    state = loader.state_dict()
    next(found)
    loader.load_state_dict(state)
    assert next(found)[0].tolist() == [8, 9, 10, 11]
    assert loader.state_dict() == state
    assert indices(loader)[0] == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, "not a state"),
        ({"format": "torchdata"}, "not a state"),
        ({"batches": "3"}, "'batches' is '3'"),
        ({"batches": -1}, "'batches' is -1"),
        ({"batches": 99}, "an epoch has 6 batches"),
        ({"epoch": 1 << 60}, "'epoch'"),
        ({"of": 3}, "'of'"),
        ({"of": {"length": 22, "batch_size": 4, "drop_last": False, "order": "in sequence"}}, "length was 22 and is 23"),
        ({"of": {"length": 23, "batch_size": 8, "drop_last": False, "order": "shuffled"}}, "batch_size was 8 .* order was"),
        ({"seed": 8}, "seed is 8, and this loader was given seed=7"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: Any, why: str) -> None:
    loader = DataLoader(Draws(), 4, seed=7)
    state = loader.state_dict()
    with pytest.raises(StateError, match=why):
        loader.load_state_dict(change and {**state, **change})
    assert loader.state_dict() == state


# ---- data sets that Stoker reads itself ---------------------------------------------------------------------------------


def rows() -> TensorDataset:
    return TensorDataset(torch.arange(46, dtype=torch.float32).reshape(23, 2), torch.arange(23))


@pytest.mark.parametrize(
    "given",
    [
        {"batch_size": 4},
        {"batch_size": 4, "shuffle": True, "drop_last": True},
        {"batch_size": 5, "sampler": [3, -1, 3, 22]},
        {"batch_sampler": [[1], [2, 3, 4, 5, 6, 7], [0, 0]]},
        {"batch_size": 2, "sampler": np.array([4, 5, 6])},
    ],
    ids=repr,
)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "kind", [lambda: rows(), lambda: Subset(rows(), range(22, -1, -1)), lambda: ConcatDataset([rows(), rows()])]
)
def test_what_stoker_reads_itself_is_what_the_data_set_gives(kind: Any, num_workers: int, given: dict[str, Any]) -> None:
    with DataLoader(kind(), **given, seed=3, num_workers=num_workers) as loader:
        made = epochs(loader, 2)
        assert "Stoker reads them itself" in loader.explain()
    assert made == epochs(DataLoader(kind(), **given, seed=3, lower=False), 2)


def test_an_index_out_of_range_is_an_error_there_too() -> None:
    with pytest.raises(IndexError, match="23"):
        list(DataLoader(rows(), 2, sampler=[23]))


def test_a_data_set_that_is_changed_between_epochs_is_read_as_it_is_then() -> None:
    dataset = Subset(rows(), [0, 1])
    loader = DataLoader(dataset, 2)
    assert [batch[1].tolist() for batch in loader] == [[0, 1]]
    dataset.indices = [5, 6]
    assert [batch[1].tolist() for batch in loader] == [[5, 6]]


# ---- looking in ---------------------------------------------------------------------------------------------------------


def test_a_loader_says_what_it_does_and_what_it_measured() -> None:
    loader = DataLoader(Draws(), 4, shuffle=True, seed=7)
    assert loader.explain().splitlines()[0] == "Draws: 23 items, shuffled, in batches of 4; seed 7"
    assert "the data set makes its items" in loader.explain()
    assert "in this thread" in loader.explain()
    assert "too short to say" in loader.why()
    list(loader)
    assert loader.stats().samples == 23
    assert [step.name for step in loader.stats().steps] == ["items", "collate"]
    assert "2 worker processes" in DataLoader(Draws(), num_workers=2).explain()
    assert "1 worker process," in DataLoader(Stream(), num_workers=2).explain()
    assert "lower=False" in DataLoader(rows(), lower=False).explain()


def test_without_workers_items_are_made_in_this_thread_by_the_data_set_itself() -> None:
    dataset = Workers()
    dataset.prepared = 7
    for batch in DataLoader(dataset, 4):
        assert batch[2].tolist() == [7] * 4
        assert batch[3].tolist() == [-1] * 4, "there is no worker to tell of"


def test_pinned_memory_without_a_device_is_a_warning_as_in_torch() -> None:
    with pytest.warns(UserWarning, match="pin_memory"):
        assert len(list(DataLoader(Draws(), 4, pin_memory=True))) == 6


def test_an_iterable_data_set_with_a_length_has_one_here() -> None:
    class Sized(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

        def __len__(self) -> int:
            return 5

    assert len(DataLoader(Sized(), 2)) == 3
    assert len(DataLoader(Sized(), 2, drop_last=True)) == 2
    with pytest.raises(TypeError):
        len(DataLoader(Stream(), 2))


def test_an_interrupt_ends_the_iterator_and_not_the_loader() -> None:
    class Interrupted(Draws):
        armed = True

        def __getitem__(self, index: int) -> Any:
            if index == 6 and self.armed:
                raise KeyboardInterrupt
            return index

    dataset = Interrupted(12)
    loader = DataLoader(dataset, 4)
    found = iter(loader)
    next(found)
    with pytest.raises(KeyboardInterrupt):
        next(found)
    with pytest.raises(ClosedError, match="interrupted"):
        next(found)
    dataset.armed = False
    loader.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in loader] == [[4, 5, 6, 7], [8, 9, 10, 11]]
