"""Batches and samples as users hold them: tuples by position, mappings by name."""

from __future__ import annotations

import numpy as np
import pytest

import stoker
from stoker.batch.batch import Batch, Sample

from ..loader.runs import numbers


@pytest.fixture
def batch() -> Batch:
    return Batch({"x": np.arange(4), "name": list("abcd")}, 4, lambda: ["k0", "k1", "k2", "k3"])


def test_a_batch_unpacks_in_the_order_of_its_fields(batch: Batch) -> None:
    x, name = batch
    assert x.tolist() == [0, 1, 2, 3] and name == list("abcd")
    assert len(batch) == 2


def test_a_batch_is_a_mapping_by_name(batch: Batch) -> None:
    assert list(batch.keys()) == ["x", "name"]
    assert "x" in batch and "nope" not in batch
    assert dict(batch)["name"] == list("abcd") and {**batch}.keys() == {"x", "name"}
    assert [name for name, _ in batch.items()] == ["x", "name"] and len(batch.values()) == 2
    assert batch[0] is batch["x"] and batch[-1] is batch["name"]


def test_a_missing_field_is_named_with_those_that_are_there(batch: Batch) -> None:
    with pytest.raises(KeyError, match="no field 'y'; the fields are x, name"):
        batch["y"]


def test_all_rows_are_real_unless_said_otherwise(batch: Batch) -> None:
    assert batch.mask.tolist() == [True] * 4


def test_a_part_shares_memory_and_knows_its_keys_and_mask(batch: Batch) -> None:
    masked = Batch(dict(batch.items()), 4, lambda: batch.keys_, np.array([True, True, False, False]))
    part = masked.part(1, 3)
    assert part.rows == 2 and part.keys_ == ["k1", "k2"] and part.mask.tolist() == [True, False]
    assert part["name"] == ["b", "c"] and np.shares_memory(part["x"], batch["x"])


def test_a_batch_shows_itself_briefly(batch: Batch) -> None:
    assert repr(batch) == "Batch(x=int64[4], name=['a', 'b', 'c', 'd'])"
    assert repr(Sample({"a": 1, "b": b"x" * 100}, "key")) == "Sample(a=1, b=bytes[100])"


def test_keys_name_the_samples_of_a_batch() -> None:
    batches = list(numbers().shuffle(seed=1).batch(7, drop_last=False))
    for batch in batches:
        assert batch.keys_ == [str(x) for x in batch["x"]]
        assert batch.rows == len(batch["x"]) == len(batch.mask)


def test_a_sample_has_its_key() -> None:
    assert [sample.key_ for sample in stoker.arrays(x=np.arange(3))] == ["0", "1", "2"]
