"""Batches in the making: rows come in any order and leave no trace of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.batch.draft import Draft, join, write_rows
from stoker.batch.slab import Layout, SlabPool
from stoker.batch.written_rows import Report
from stoker.errors import BatchError
from stoker.source.chunk import BYTES, OBJECT, Chunk, array_spec
from stoker.source.sample_names import ListedNames

SPECS = {"n": array_spec(np.int64), "text": BYTES, "any": OBJECT}


class Making:
    """A batch in the making, as tasks, consumer and finishing task together make it."""

    def __init__(self, rows: int = 6, rules: Any = (), specs: Any = SPECS, fill: bool = False) -> None:
        self.specs, self.rules = specs, dict(rules) if rules is not None else None
        self.draft = Draft(rows, SlabPool(Layout.of(specs or {}, rows), 2), fill)

    def write(self, first: int, stop: int, chunk: Chunk) -> int:
        targets = {name: array[first:stop] for name, array in self.draft.slab.arrays.items()}
        return self.draft.add(first, write_rows(first, targets, frozenset(), chunk, frozenset(self.specs or ()), Report()))

    def finish(self, stop: int | None = None, padded: int = 0) -> tuple[dict[str, Any], int, list[str], list[int] | None]:
        joining = self.draft.joining(0, 0, padded, stop)
        keys = joining.keys(None)
        kept = None if self.draft.kept is None else self.draft.kept.tolist()
        return join(joining, self.specs, self.rules, keys), joining.rows, keys(), kept


def chunk_of(values: list[int], slots: list[int] | None = None) -> Chunk:
    positions = np.array(values, np.int64)
    columns: dict[str, Any] = {
        "n": positions * 10,
        "text": [b"t%d" % value for value in values],
        "any": [float(value) for value in values],
    }
    own = np.arange(len(values)) if slots is None else np.array(slots, np.int64)
    return Chunk(
        columns, positions, own, positions, 0, ListedNames([f"k{value}" for value in values], list(map(str, values)), values)
    )


def test_rows_written_in_any_order_come_out_in_order() -> None:
    making = Making()
    for first, stop in ((4, 6), (0, 3), (3, 4)):
        making.write(first, stop, chunk_of(list(range(first, stop))))
    columns, rows, keys, kept = making.finish()
    assert rows == 6 and kept is None
    assert columns["n"].tolist() == [0, 10, 20, 30, 40, 50]
    assert columns["text"] == [b"t%d" % n for n in range(6)]
    assert columns["any"].tolist() == [0, 1, 2, 3, 4, 5]
    assert keys == [f"k{n}" for n in range(6)]


def test_holes_left_by_bad_rows_are_closed() -> None:
    making = Making()
    making.write(0, 3, chunk_of([1], slots=[1]))
    making.write(3, 6, chunk_of([3, 5], slots=[0, 2]))
    columns, rows, keys, kept = making.finish()
    assert rows == 3 and kept == [1, 3, 5] and making.draft.valid(0) is None
    assert columns["n"].tolist() == [10, 30, 50]
    assert columns["text"] == [b"t1", b"t3", b"t5"] and keys == ["k1", "k3", "k5"]


@given(st.sets(st.integers(0, 6), max_size=7), st.sets(st.integers(1, 6)), st.integers(0, 2))
def test_holes_are_filled_with_the_nearest_good_row_before_them_however_tasks_were_cut(
    bad: set[int], cuts: set[int], padded: int
) -> None:
    making = Making(rows=7, fill=True)
    for first, stop in pairwise([0, *sorted(cuts), 7]):
        slots = [row for row in range(first, stop) if row not in bad]
        making.write(first, stop, chunk_of(slots, [row - first for row in slots]))
    good = [row for row in range(7) if row not in bad]
    filled = [max((row for row in good if row <= at), default=good[0]) for at in range(7)] if good else []
    columns, rows, keys, kept = making.finish(padded=padded)
    assert (rows, kept) == (len(filled), None if len(good) == 7 else good)
    if good:
        assert columns["n"].tolist() == [10 * row for row in filled]
        assert list(columns["text"]) == [b"t%d" % row for row in filled]
        assert columns["any"].tolist() == filled and keys == [f"k{row}" for row in filled]
        valid = making.draft.valid(padded)
        real = [row in good and row < 7 - padded for row in range(7)]
        assert (real if valid is None else valid.tolist()) == real and (valid is not None or all(real))


def test_a_task_that_is_done_again_counts_once() -> None:
    making = Making()
    making.write(0, 3, chunk_of([0, 1, 2]))
    assert making.write(3, 6, chunk_of([3, 4, 5])) == 3 * (2 + 64)
    assert making.write(3, 6, chunk_of([3, 4, 5])) == 0
    columns, rows, _, _ = making.finish()
    assert rows == 6 and columns["text"] == [b"t%d" % n for n in range(6)]


def test_a_task_without_a_row_left_is_as_if_it_had_none() -> None:
    making = Making()
    making.write(0, 3, chunk_of([0, 1, 2]))
    empty = chunk_of([])
    empty.columns = {"something else": []}
    assert making.write(3, 6, empty) == 0
    columns, rows, _, _ = making.finish()
    assert rows == 3 and columns["n"].tolist() == [0, 10, 20]


def test_a_batch_of_which_nothing_is_left_has_no_rows() -> None:
    making = Making()
    making.write(0, 6, chunk_of([]))
    _, rows, keys, kept = making.finish()
    assert rows == 0 and keys == [] and kept == []


def test_only_the_rows_before_an_error_can_be_asked_for() -> None:
    making = Making()
    making.write(0, 4, chunk_of([0, 1, 2, 3]))
    columns, rows, keys, kept = making.finish(stop=3)
    assert rows == 3 and columns["n"].tolist() == [0, 10, 20] and columns["text"] == [b"t0", b"t1", b"t2"]
    assert keys == ["k0", "k1", "k2"] and kept == [0, 1, 2]


def test_bytes_beside_the_slab_are_told() -> None:
    assert Making().write(0, 2, chunk_of([0, 1])) == 2 + 2 + 2 * 64
    assert Making(specs={"n": array_spec(np.int64)}).write(0, 0, chunk_of([])) == 0


def test_without_rules_values_stay_as_they_are() -> None:
    making = Making(2, rules=None, specs=None)
    making.write(0, 2, chunk_of([1, 2]))
    columns, *_ = making.finish()
    assert columns["any"] == [1.0, 2.0] and columns["n"] == [10, 20]


def test_a_field_that_is_gone_is_named() -> None:
    chunk = chunk_of([0, 1])
    del chunk.columns["any"]
    with pytest.raises(BatchError, match="'any' is gone; the samples here have n, text"):
        Making().write(0, 2, chunk)


def test_fields_that_only_some_tasks_have_are_named() -> None:
    making = Making(specs=None)
    making.write(0, 2, chunk_of([0, 1]))
    other = chunk_of([2, 3])
    other.columns["more"] = [1, 2]
    making.write(2, 4, other)
    with pytest.raises(BatchError, match=r"'more' and some do not, e\.g\. 'k2'"):
        making.finish()


def test_a_value_that_does_not_fit_its_place_is_named() -> None:
    chunk = chunk_of([0, 1])
    chunk.columns["n"] = [np.zeros(3), np.zeros(3)]
    with pytest.raises(BatchError, match=r"field 'n'.*'k0'"):
        Making().write(0, 2, chunk)
