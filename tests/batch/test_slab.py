"""The memory of batches: laid out once, leased, and used again only when nobody can see it any more."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker.batch.slab import Layout, Lease, Slab, SlabPool, plain_memory
from stoker.errors import BatchError
from stoker.source.chunk import BYTES, OBJECT, array_spec

SPECS = {
    "a": array_spec(np.uint8, 3, 5),
    "text": BYTES,
    "b": array_spec(np.float64),
    "what": OBJECT,
    "c": array_spec(np.int16, 7),
    "empty": array_spec(np.int16, 0),
    "varies": array_spec(np.uint8, None, 3),
}


def leased(pool: SlabPool) -> dict[str, Any]:
    return Lease(pool.take(), pool).fields()


def test_fixed_fields_are_laid_out_apart_and_aligned() -> None:
    layout = Layout.of(SPECS, 10)
    assert [name for name, *_ in layout.fields] == ["a", "b", "c", "empty"]
    slab = Slab(layout, *plain_memory(layout.nbytes + 64))
    for number, (name, array) in enumerate(slab.arrays.items()):
        array[...] = number
        assert array.shape[0] == 10 and array.dtype == SPECS[name].dtype
        assert not array.size or array.ctypes.data % 64 == 0
    for number, array in enumerate(slab.arrays.values()):
        assert np.all(array == number), "no field reaches into another"


def test_a_slab_comes_back_when_the_last_reference_is_gone() -> None:
    pool = SlabPool(Layout.of(SPECS, 10), 4)
    arrays = leased(pool)
    address = arrays["a"].ctypes.data
    piece = arrays["b"][2:5][::-1]
    del arrays
    gc.collect()
    assert leased(pool)["a"].ctypes.data != address, "a slice of a slice still holds it"
    piece[...] = 7
    assert piece.tolist() == [7, 7, 7]
    del piece
    assert leased(pool)["a"].ctypes.data == address


HOLD: dict[str, Callable[[Any], Any]] = {
    "view": lambda array: array.view(np.uint8),
    "memoryview": memoryview,
    "frombuffer": lambda array: np.frombuffer(array, np.uint8),
    "torch": lambda array: pytest.importorskip("torch").from_numpy(array),
    "torch slice": lambda array: pytest.importorskip("torch").from_numpy(array)[3:4].view(-1),
}


@pytest.mark.parametrize("hold", HOLD)
def test_any_kind_of_reference_holds_it(hold: str) -> None:
    pool = SlabPool(Layout.of(SPECS, 10), 4)
    arrays = leased(pool)
    address, array = arrays["a"].ctypes.data, arrays["c"]
    held = HOLD[hold](array)
    del arrays, array
    gc.collect()
    other = leased(pool)
    assert other["a"].ctypes.data != address
    del held, other
    gc.collect()
    addresses = {leased(pool)["a"].ctypes.data for _ in range(1)}
    kept = [leased(pool) for _ in range(2)]
    assert address in addresses | {one["a"].ctypes.data for one in kept}


def test_a_pool_keeps_so_many_slabs_and_no_more() -> None:
    pool = SlabPool(Layout.of(SPECS, 10), 2)
    many = [leased(pool) for _ in range(6)]
    addresses = [arrays["a"].ctypes.data for arrays in many]
    assert len(set(addresses)) == 6
    many.clear()
    gc.collect()
    assert len(pool._free) == 2


def test_no_line_of_python_runs_when_a_slab_comes_back() -> None:
    """An interrupt that came there would be dropped: Python only says that it ignores what a finalizer raises."""
    pool = SlabPool(Layout.of(SPECS, 10), 4)
    arrays = leased(pool)
    ran: list[str] = []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del arrays
    finally:
        sys.setprofile(None)
    assert ran == [] and len(pool._free) == 1


def test_a_lease_that_was_interrupted_before_it_began_gives_nothing_back() -> None:
    pool = SlabPool(Layout.of(SPECS, 10), 4)
    lease = Lease(pool.take(), pool)
    del lease._returned.slab
    del lease
    assert len(pool._free) == 1 and isinstance(pool.take(), Slab)


@pytest.mark.parametrize(
    ("error", "told"), [(MemoryError, BatchError), (ValueError, BatchError), (KeyboardInterrupt, KeyboardInterrupt)]
)
def test_what_ends_an_allocation_is_told_by_itself(error: type[BaseException], told: type[BaseException]) -> None:
    def refuse(nbytes: int) -> Any:
        raise error

    with pytest.raises(told) as caught:
        SlabPool(Layout.of(SPECS, 10), 2, refuse).take()
    first = caught.value.__cause__ or caught.value
    assert type(first) is error and first.__context__ is None, "that the pool was empty is nobody's trouble"


def test_batches_outlive_their_pool() -> None:
    pool = SlabPool(Layout.of(SPECS, 10), 2)
    arrays = leased(pool)
    arrays["b"][...] = 3
    del pool
    gc.collect()
    assert arrays["b"].tolist() == [3] * 10


def test_a_batch_without_fixed_fields_needs_no_memory() -> None:
    layout = Layout.of({"text": BYTES}, 10)
    assert layout.nbytes == 0
    assert leased(SlabPool(layout, 2)) == {}


def test_slabs_of_before_are_not_used_again_when_memory_is_to_be_of_another_kind() -> None:
    made: list[int] = []

    def allocate(nbytes: int) -> Any:
        made.append(nbytes)
        return plain_memory(nbytes)

    pool = SlabPool(Layout.of(SPECS, 10), 4, allocate)
    held, slab = leased(pool), pool.take()
    leased(pool)
    pool.start_over()
    lease = Lease(slab, pool).fields()  # taken before, leased after
    del held, slab, lease
    assert len(made) == 3
    new = leased(pool)
    assert len(made) == 4, "neither the free one nor those that came back since"
    del new
    leased(pool)
    assert len(made) == 4, "but the new one is"
