"""Batches and samples as users hold them: tuples by position, mappings by name, and named tuples to frameworks."""

from __future__ import annotations

import copy
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.batch.batch import Batch, Sample

from ..loader.runs import numbers

NAMES = st.lists(
    st.one_of(
        st.text(max_size=5), st.sampled_from(["seg.png", "0", "_x", "class", "to", "count", "keys", "rows", "valid", "_fields"])
    ),
    unique=True,
)


def pickled(value: Any) -> Any:
    return ForkingPickler.loads(ForkingPickler.dumps(value))


@pytest.fixture
def batch() -> Batch:
    return Batch.of({"x": np.arange(4), "name": list("abcd")}, 4, lambda: ["k0", "k1", "k2", "k3"])


def test_keys_are_found_by_the_name_that_functions_use_and_are_not_fields(batch: Batch) -> None:
    sample = Sample.of(("x",), (3,), "k0")
    assert batch["__key__"] == ["k0", "k1", "k2", "k3"] and sample["__key__"] == "k0"
    assert "__key__" not in batch and "__key__" not in dict(sample)


@settings(max_examples=50)
@given(NAMES, st.integers(0, 3))
def test_with_any_names_it_is_a_tuple_and_a_mapping_and_survives_rebuilding(names: list[str], rows: int) -> None:
    columns = {name: [at] * rows for at, name in enumerate(names)}
    keys, valid = [str(row) for row in range(rows)], np.arange(rows) % 2 == 0
    batch, values = Batch.of(columns, rows, lambda: keys, valid), tuple(columns.values())
    assert isinstance(batch, tuple) and batch == values and [*batch] == [*values] and batch[:] == values
    assert batch._fields == tuple(names) and len(batch) == len(names)
    assert dict(batch) == dict(batch.items()) == {**batch} == batch._asdict() == columns
    assert list(batch.keys()) == names and list(batch.values()) == list(values)
    assert all(batch[name] is batch[at] is columns[name] and name in batch for at, name in enumerate(names))
    assert all(getattr(batch, name) is columns[name] for name in names if not hasattr(Batch, name) and not name.startswith("_"))
    kept = (
        batch._replace(),
        batch.with_values(values),
        copy.copy(batch),
        copy.deepcopy(batch),
        pickled(batch),
    )
    for again in (*kept, type(batch)(*values), batch._make(values), pickled(type(batch)(*values))):
        assert again == batch and type(again) is type(batch)
    for again in kept:
        assert (again.rows, again.sample_keys, again.valid.tolist()) == (rows, keys, valid.tolist())


def test_a_field_is_an_attribute_where_a_batch_has_no_other_of_that_name(batch: Batch) -> None:
    named: Any = Batch.of({"label": 1, "rows": 2, "to": 3, "mask": 4}, 1, ["k"])
    assert named.label == 1 and named.mask == 4
    assert named.rows == 1 and named["rows"] == 2 and callable(named.to) and named["to"] == 3
    with pytest.raises(AttributeError, match=r"no attribute 'mask'; use batch\.valid"):
        _ = batch.mask
    with pytest.raises(AttributeError, match=r"no attribute 'keys_'; use batch\.sample_keys"):
        _ = batch.keys_
    with pytest.raises(AttributeError, match=r"no attribute 'key_'; use sample\.key"):
        _ = Sample.of(("x",), [1], "k").key_
    assert not hasattr(batch, "label")


def test_what_is_wrong_with_a_name_or_a_number_of_values_is_told(batch: Batch) -> None:
    with pytest.raises(KeyError, match="no field 'y'; the fields are x, name"):
        batch["y"]
    with pytest.raises(TypeError, match="x, name need 2 values, got 1"):
        type(batch)(batch)
    with pytest.raises(ValueError, match="no field 'nope'; the fields are x, name"):
        batch._replace(nope=3)
    assert batch._replace(name=3)["name"] == 3
    assert Sample.of(("self",), [1], "k")._replace(self=2)["self"] == 2


def test_one_rebuilt_from_its_values_says_that_it_has_no_keys(batch: Batch) -> None:
    for name in ("rows", "sample_keys", "valid"):
        with pytest.raises(AttributeError, match=rf"rebuilt from its values and has no {name}.*\.to\(device\) keeps"):
            getattr(type(batch)(*batch), name)
    sample = Sample.of(("x",), [1], "k")
    assert sample.key == pickled(sample).key == "k" and not hasattr(type(sample)(1), "key")


def test_all_rows_are_valid_unless_said_otherwise(batch: Batch) -> None:
    assert batch.valid.tolist() == [True] * 4


def test_a_part_shares_memory_and_knows_its_keys_and_valid_rows(batch: Batch) -> None:
    padded = Batch.of(dict(batch), 4, lambda: batch.sample_keys, np.array([True, True, False, False]))
    part = padded.part(1, 3)
    assert part.rows == 2 and part.sample_keys == ["k1", "k2"] and part.valid.tolist() == [True, False]
    assert part["name"] == ["b", "c"] and np.shares_memory(part["x"], batch["x"]) and type(part) is type(batch)


def test_a_batch_shows_itself_briefly(batch: Batch) -> None:
    assert repr(batch) == "Batch(x=int64[4], name=['a', 'b', 'c', 'd'])"
    assert repr(Sample.of(("a", "b"), [1, b"x" * 100], "key")) == "Sample(a=1, b=bytes[100])"


def test_keys_name_the_samples_of_a_batch() -> None:
    batches = list(numbers().shuffle(seed=1).batch(7, drop_last=False))
    for batch in batches:
        assert batch.sample_keys == [str(x) for x in batch["x"]]
        assert batch.rows == len(batch["x"]) == len(batch.valid)


def test_a_sample_has_its_key() -> None:
    assert [sample.key for sample in stoker.arrays(x=np.arange(3))] == ["0", "1", "2"]


def test_batches_may_be_plain_dicts() -> None:
    for pipeline in (numbers().batch(3), numbers(3), numbers().shuffle(seed=3).batch(50, drop_last=False)):
        with pipeline.loader() as tuples, pipeline.loader(batches="dict") as dicts:
            for ours, plain in zip(tuples, dicts):
                assert type(plain) is dict and plain.keys() == ours.keys() == {"x", "y"}
                assert all(np.array_equal(plain[name], ours[name]) for name in plain)
    with pytest.raises(stoker.errors.ConfigError, match=r"loader\(batches='list'\): must be 'tuple' or 'dict'"):
        numbers().loader(batches="list")


# ---- frameworks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed() -> Batch:
    torch = pytest.importorskip("torch")
    columns = {"seg.png": np.ones((2, 3)), "to": torch.arange(2), "text": ["a", "b"], "box": [np.ones(1), np.ones((2, 4))]}
    return Batch.of(columns, 2, lambda: ["k0", "k1"], np.array([True, False]))


def known(batch: Batch) -> tuple[int, list[str], list[bool]]:
    return batch.rows, batch.sample_keys, batch.valid.tolist()


def test_whoever_moves_a_batch_to_a_device_gets_a_batch_with_its_keys(mixed: Batch) -> None:
    torch = pytest.importorskip("torch")
    operations = pytest.importorskip("accelerate.utils.operations")
    lightning = pytest.importorskip("lightning_fabric.utilities.apply_func")
    meta = torch.device("meta")
    moved = (mixed.to("meta"), mixed.to(meta, non_blocking=True), operations.send_to_device(mixed, meta))
    for each in (*moved, lightning.move_data_to_device(mixed, meta)):
        assert type(each) is type(mixed) and known(each) == known(mixed)
        assert each["seg.png"].device == each["to"].device == each["box"][1].device == meta and each["text"] == ["a", "b"]


def test_trees_are_mapped_over_a_batch_as_over_a_named_tuple(mixed: Batch) -> None:
    torch = pytest.importorskip("torch")
    operations = pytest.importorskip("accelerate.utils.operations")
    apply = pytest.importorskip("lightning_utilities.core.apply_func").apply_to_collection
    data, pytree = torch.utils.data, torch.utils._pytree
    tensors = mixed.to("cpu")
    leaves, spec = pytree.tree_flatten(tensors)
    twice = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor * 2, tensors)
    for again in (pytree.tree_unflatten(leaves, spec), twice, data.default_convert(mixed), apply(tensors, torch.Tensor, abs)):
        assert type(again) is type(mixed) and again["to"].shape == (2,) and again["text"] == ["a", "b"]
    assert twice["to"].tolist() == [0, 2] and len(leaves) == 6
    joined = data.default_collate([tensors._replace(box=1), tensors._replace(box=2)])
    assert type(joined) is type(mixed) and joined["to"].shape == (2, 2)
    plain = Batch.of({"seg.png": tensors["seg.png"], "to": tensors["to"]}, 2, ["k0", "k1"])
    sliced = operations.slice_tensors(operations.concatenate([plain, plain]), slice(0, 3))
    assert type(sliced) is type(plain) and operations.find_batch_size(sliced) == 3
    assert type(operations.initialize_tensors(pickled(operations.get_data_structure(plain)))) is type(plain)


def test_byte_strings_survive_being_taken_apart(tmp_path: Any) -> None:
    data = pytest.importorskip("torch").utils.data
    stoker.write_tar(tmp_path / "a.tar", [{"bin": bytes([n]) * n, "cls": n} for n in range(4)])
    [batch] = stoker.tar(tmp_path / "a.tar").batch(4)
    assert list(data.default_convert(batch)["bin"]) == list(batch["bin"]) == [b"", b"\1", b"\2\2", b"\3\3\3"]
