"""Fields as a named tuple: what it answers, and that it survives what frameworks do to named tuples."""

from __future__ import annotations

import copy
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.batch.named_fields import NamedFields, named

NAMES = st.lists(
    st.one_of(st.text(max_size=5), st.sampled_from(["seg.png", "0", "_x", "class", "to", "count", "index"])), unique=True
)


def make(**values: Any) -> NamedFields:
    return named(values)


@settings(max_examples=25)
@given(NAMES)
def test_any_names_will_do_and_values_come_back_however_it_is_rebuilt(names: list[str]) -> None:
    fields = make(**{name: at for at, name in enumerate(names)})
    assert fields == tuple(range(len(names))) and fields._fields == tuple(names)
    assert [fields[name] for name in names] == [fields[at] for at in range(len(names))] == list(fields)
    assert fields._asdict() == dict(zip(names, fields))
    for again in (
        type(fields)(*fields),
        fields._make(fields),
        fields._replace(),
        copy.copy(fields),
        copy.deepcopy(fields),
        ForkingPickler.loads(ForkingPickler.dumps(fields)),
    ):
        assert again == fields and type(again) is type(fields)


def test_a_name_that_is_not_there_and_a_wrong_number_of_values_are_told() -> None:
    fields = make(image=1, label=2)
    with pytest.raises(KeyError, match="no field 'lable'; the fields are image, label"):
        fields["lable"]
    with pytest.raises(TypeError, match="image, label need 2 values, got 1"):
        type(fields)(fields)
    assert fields._replace(label=3) == (1, 3)
    with pytest.raises(TypeError):
        fields._replace(lable=3)


def test_names_are_no_attributes_so_none_is_taken_for_a_method() -> None:
    fields = make(to=1, pin_memory=2)
    assert not hasattr(fields, "to") and not hasattr(fields, "pin_memory") and not hasattr(fields, "__dict__")


def test_it_shows_itself_briefly() -> None:
    assert repr(make(image=np.zeros((4, 3)), label=7)) == "NamedFields(image=float64[4, 3], label=7)"


def test_frameworks_take_it_for_a_named_tuple() -> None:
    torch = pytest.importorskip("torch")
    fields = make(**{"seg.png": np.ones((2, 3)), "to": torch.arange(2), "text": "a"})
    collate = torch.utils.data
    converted = collate.default_convert(fields)
    assert type(converted) is type(fields) and isinstance(converted["seg.png"], torch.Tensor)
    collated = collate.default_collate([fields, fields])
    assert type(collated) is type(fields) and collated["to"].shape == (2, 2) and list(collated["text"]) == ["a", "a"]
    leaves, spec = torch.utils._pytree.tree_flatten(converted)
    assert len(leaves) == 3 and type(torch.utils._pytree.tree_unflatten(leaves, spec)) is type(fields)


def test_lightning_and_accelerate_move_slice_and_join_it() -> None:
    torch = pytest.importorskip("torch")
    operations = pytest.importorskip("accelerate.utils.operations")
    lightning = pytest.importorskip("lightning_fabric.utilities.apply_func")
    fields = make(**{"seg.png": torch.ones(2, 3), "to": torch.arange(2)})
    meta = torch.device("meta")
    for moved in (lightning.move_data_to_device(fields, meta), operations.send_to_device(fields, meta)):
        assert type(moved) is type(fields) and moved["to"].device == meta
    joined = operations.concatenate([fields, fields])
    assert type(joined) is type(fields) and joined["seg.png"].shape == (4, 3)
    sliced = operations.slice_tensors(joined, slice(0, 3))
    assert type(sliced) is type(fields) and operations.find_batch_size(sliced) == 3
    shapes = ForkingPickler.loads(ForkingPickler.dumps(operations.get_data_structure(fields)))
    assert type(operations.initialize_tensors(shapes)) is type(fields)
