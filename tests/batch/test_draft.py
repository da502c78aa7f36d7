"""Batches in the making: rows come in any order and leave no trace of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker.batch.draft import Draft
from stoker.batch.slab import Layout, SlabPool
from stoker.errors import BatchError
from stoker.source.chunk import BYTES, OBJECT, Chunk, array_spec
from stoker.source.sample_names import ListedNames

SPECS = {"n": array_spec(np.int64), "text": BYTES, "any": OBJECT}


def draft_of(rows: int = 6, rules: dict[str, Any] | None = None, specs: Any = SPECS) -> Draft:
    return Draft(rows, SlabPool(Layout.of(specs or {}, rows), 2), specs, {} if rules is None else rules)


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


def write(draft: Draft, first: int, stop: int, chunk: Chunk) -> int:
    return draft.write(first, draft.targets(first, stop), chunk)


def test_rows_written_in_any_order_come_out_in_order() -> None:
    draft = draft_of()
    for first, stop in ((4, 6), (0, 3), (3, 4)):
        write(draft, first, stop, chunk_of(list(range(first, stop))))
    columns, rows, keys, kept = draft.finish()
    assert rows == 6 and kept is None
    assert columns["n"].tolist() == [0, 10, 20, 30, 40, 50]
    assert columns["text"] == [b"t%d" % n for n in range(6)]
    assert columns["any"].tolist() == [0, 1, 2, 3, 4, 5]
    assert keys() == [f"k{n}" for n in range(6)]


def test_holes_left_by_bad_rows_are_closed() -> None:
    draft = draft_of()
    write(draft, 0, 3, chunk_of([1], slots=[1]))
    write(draft, 3, 6, chunk_of([3, 5], slots=[0, 2]))
    columns, rows, keys, kept = draft.finish()
    assert rows == 3 and kept is not None and kept.tolist() == [1, 3, 5]
    assert columns["n"].tolist() == [10, 30, 50]
    assert columns["text"] == [b"t1", b"t3", b"t5"] and keys() == ["k1", "k3", "k5"]


def test_a_task_without_a_row_left_is_as_if_it_had_none() -> None:
    draft = draft_of()
    write(draft, 0, 3, chunk_of([0, 1, 2]))
    empty = chunk_of([])
    empty.columns = {"something else": []}
    assert write(draft, 3, 6, empty) == 0
    columns, rows, _, _ = draft.finish()
    assert rows == 3 and columns["n"].tolist() == [0, 10, 20]


def test_a_batch_of_which_nothing_is_left_has_no_rows() -> None:
    draft = draft_of()
    write(draft, 0, 6, chunk_of([]))
    _, rows, keys, kept = draft.finish()
    assert rows == 0 and keys() == [] and kept is not None and not len(kept)


def test_only_the_rows_before_an_error_can_be_asked_for() -> None:
    draft = draft_of()
    write(draft, 0, 4, chunk_of([0, 1, 2, 3]))
    columns, rows, keys, kept = draft.finish(stop=3)
    assert rows == 3 and columns["n"].tolist() == [0, 10, 20] and columns["text"] == [b"t0", b"t1", b"t2"]
    assert keys() == ["k0", "k1", "k2"] and kept is not None and kept.tolist() == [0, 1, 2]


def test_bytes_beside_the_slab_are_told() -> None:
    draft = draft_of()
    assert write(draft, 0, 2, chunk_of([0, 1])) == 2 + 2 + 2 * 64
    assert draft_of(specs={"n": array_spec(np.int64)}).write(0, {}, chunk_of([])) == 0


def test_without_rules_values_stay_as_they_are() -> None:
    draft = Draft(2, SlabPool(Layout.of({}, 2), 2), None, None)
    draft.write(0, {}, chunk_of([1, 2]))
    columns, *_ = draft.finish()
    assert columns["any"] == [1.0, 2.0] and columns["n"] == [10, 20]


def test_a_field_that_is_gone_is_named() -> None:
    chunk = chunk_of([0, 1])
    del chunk.columns["any"]
    with pytest.raises(BatchError, match="'any' is gone; the samples here have n, text"):
        write(draft_of(), 0, 2, chunk)


def test_fields_that_only_some_tasks_have_are_named() -> None:
    draft = draft_of(specs=None)
    draft.write(0, {}, chunk_of([0, 1]))
    other = chunk_of([2, 3])
    other.columns["more"] = [1, 2]
    draft.write(2, {}, other)
    with pytest.raises(BatchError, match=r"'more' and some do not, e\.g\. 'k2'"):
        draft.finish()


def test_a_value_that_does_not_fit_its_place_is_named() -> None:
    chunk = chunk_of([0, 1])
    chunk.columns["n"] = [np.zeros(3), np.zeros(3)]
    with pytest.raises(BatchError, match=r"field 'n'.*'k0'"):
        write(draft_of(), 0, 2, chunk)
