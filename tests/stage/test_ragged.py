"""Stages that change how many samples there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import BatchError, FunctionError, RecordError
from stoker.source.sample_names import NamedColumns, NamedSample

from ..loader.runs import numbers, odd, spread


def xs(pipeline: stoker.Pipeline) -> list[list[int]]:
    return [[int(x) for x in batch["x"]] for batch in pipeline]


def flat(pipeline: stoker.Pipeline) -> list[int]:
    return [x for batch in xs(pipeline) for x in batch]


def test_filter_keeps_what_is_true_and_its_order() -> None:
    shuffled = [x for x in flat(numbers().shuffle(seed=5).batch(1)) if x % 2]
    assert flat(numbers().shuffle(seed=5).filter(odd).batch(7, drop_last=False)) == shuffled


def test_a_filter_before_decoding_is_as_good_as_one_behind_it() -> None:
    assert xs(numbers().filter(odd).map(x=lambda v: v).batch(4)) == xs(numbers().map(x=lambda v: v).filter(odd).batch(4))


@pytest.mark.parametrize("keep", [0, 1, 15, 16, 17, 59, 60])
def test_a_filter_may_keep_any_number(keep: int) -> None:
    assert flat(numbers().filter(lambda s: s["x"] < keep).batch(4, drop_last=False)) == list(range(keep))


def test_any_truth_will_do() -> None:
    assert flat(numbers(6).filter(lambda s: s["x"] % 3).batch(9, drop_last=False)) == [1, 2, 4, 5]


def test_flat_map_puts_samples_in_place_of_samples() -> None:
    def copies(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in range(int(sample["x"])):
            yield {"x": sample["x"], "number": number}

    batches = list(numbers(5).flat_map(copies).batch(3, drop_last=False))
    assert [x for batch in batches for x in batch["x"]] == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    assert [n for batch in batches for n in batch["number"]] == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert [key for batch in batches for key in batch.sample_keys] == list("1223334444")


def test_one_sample_may_become_thousands() -> None:
    batches = list(numbers(2).flat_map(lambda s: ({"x": n} for n in range(3000))).batch(1))
    assert [int(batch["x"][0]) for batch in batches] == list(range(3000)) * 2
    assert batches[4567].sample_keys == ["1"]


@pytest.mark.parametrize("result", [5, None, [1, 2], ["x"]], ids=repr)
def test_flat_map_must_give_samples(result: Any) -> None:
    with pytest.raises(FunctionError, match="raised TypeError"):
        list(numbers().flat_map(lambda sample: result).batch(2))


def test_rows_of_one_sample_draw_different_numbers() -> None:
    def draw(value: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 40))

    three = numbers(20).flat_map(lambda s: [{"x": s["x"]}] * 3)
    behind = three.map(x=draw, rng=True)
    between = three.map(x=draw, rng=True).filter(lambda s: True)
    assert len(set(flat(behind.batch(60)))) == 60
    assert len(set(flat(between.batch(60)))) == 60


def test_batch_and_unbatch_undo_each_other() -> None:
    for size in (1, 3, 7, 60):
        again = list(numbers().shuffle(seed=2).batch(size, drop_last=False).unbatch().batch(4))
        assert [batch["x"].tolist() for batch in again] == xs(numbers().shuffle(seed=2).batch(4))
        assert [batch.sample_keys for batch in again] == [[str(x) for x in batch["x"]] for batch in again]


def test_unbatch_splits_fields_along_their_first_axis() -> None:
    pipeline = stoker.arrays(x=np.arange(12).reshape(4, 3), y=np.arange(24).reshape(4, 3, 2)).unbatch().batch(2)
    batches = list(pipeline)
    assert [x for batch in batches for x in batch["x"]] == list(range(12))
    assert batches[0]["y"].tolist() == [[0, 1], [2, 3]]


UNEVEN: dict[str, tuple[dict[str, Any], str]] = {
    "unequal": ({"x": [1, 2, 3], "y": [1, 2]}, r"sample 'b': its fields differ in length \('x' has 3, 'y' has 2\); make them"),
    "single": ({"x": [1, 2], "y": 5}, r"sample 'b': its field 'y' is a single value \(int\); repeat it"),
    "of no dimension": ({"x": [1, 2], "y": np.array(5)}, r"its field 'y' is a single value \(ndarray\)"),
    "a mapping": ({"x": [1, 2], "y": {0: 1, 1: 2}}, r"its field 'y' is a single value \(dict\)"),
    "of no items": ({"x": [1, 2], "y": {1: 2, 2: 3}.keys()}, r"'y' is a single value \(dict_keys\)"),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_a_sample_that_unbatch_cannot_split_is_bad_and_says_what_to_do(name: str) -> None:
    sample, told = UNEVEN[name]
    given = [{"__key__": "a", "x": [7], "y": [8]}, {"__key__": "b", **sample}, {"__key__": "c", "x": [9], "y": [10]}]
    pipeline = stoker.stream(lambda: given).unbatch().batch(2)
    with pytest.raises(RecordError, match=told) as caught:
        list(pipeline)
    assert caught.value.key == "b" and "_split" not in str(caught.value)
    assert flat(pipeline.on_error("skip", budget=1)) == [7, 9]


def test_an_inner_batch_that_cannot_be_split_again_names_its_first_sample_and_the_fields() -> None:
    inner = numbers(8).batch(4).map_batch(lambda columns: {"x": columns["x"], "y": columns["y"][:3]}).unbatch()
    with pytest.raises(BatchError, match=r"starts with sample '0': its fields differ in length \('x' has 4, 'y' has 3\)"):
        list(inner)


def test_an_inner_batch_may_drop_add_and_reorder_rows() -> None:
    def last_two_thrice(columns: dict[str, Any]) -> dict[str, Any]:
        return {"x": np.tile(columns["x"][-2:], 3)}

    inner = numbers(8).batch(4).map_batch(last_two_thrice).unbatch()
    assert flat(inner.batch(1)) == [2, 3, 2, 3, 2, 3, 6, 7, 6, 7, 6, 7]


def test_an_inner_batch_drops_its_last_only_when_told_to() -> None:
    assert flat(numbers(10).batch(4).unbatch().batch(1)) == list(range(8))
    assert flat(numbers(10).batch(4, drop_last=False).unbatch().batch(1)) == list(range(10))
    assert flat(numbers(10).filter(lambda s: True).batch(4).unbatch().batch(1)) == list(range(8))


def test_inner_batches_see_the_size_they_were_promised() -> None:
    sizes: list[int] = []

    def note(columns: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(columns["x"]))
        return columns

    list(numbers().filter(odd).batch(7, drop_last=False).map_batch(note).unbatch().batch(5))
    assert sorted(sizes) == [2, 7, 7, 7, 7]


def test_a_bad_sample_shortens_its_inner_batch_and_no_other() -> None:
    def picky(value: Any) -> Any:
        if value in (0, 5, 6, 7):
            raise ValueError
        return value

    pipeline = numbers(12).map(x=picky).batch(4).map_batch(spread).unbatch().batch(1).on_error("skip", budget=4)
    assert flat(pipeline) == [1, 2, 3, 4, 8, 9, 10, 11]


def test_the_error_of_a_sample_is_told_and_not_what_an_inner_batch_makes_of_it() -> None:
    def picky(value: Any) -> Any:
        if value == 2:
            raise KeyError("the reason")
        return value

    def exactly_four(columns: dict[str, Any]) -> dict[str, Any]:
        return {"x": columns["x"].reshape(2, 2).ravel()}

    with pytest.raises(FunctionError, match="the reason"):
        list(numbers(12).map(x=picky).batch(4).map_batch(exactly_four).unbatch().batch(1))


def test_select_rename_and_drop_work_inside_an_inner_batch() -> None:
    inner = numbers(8).batch(4).rename(z="y").drop("z").unbatch()
    assert [list(batch.keys()) for batch in inner.batch(4)] == [["x"], ["x"]]


def test_a_batch_function_must_give_columns() -> None:
    with pytest.raises(BatchError, match="must return a mapping of field names to columns, not list"):
        list(numbers().batch(4).map_batch(lambda columns: [1, 2]))


def test_a_batch_function_that_raises_names_its_batch_and_keeps_the_cause() -> None:
    def fail(columns: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("oh")

    with pytest.raises(FunctionError, match=r"ZeroDivisionError on the batch of 4 that starts with sample '0': oh") as caught:
        list(numbers().batch(4).map_batch(fail))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_samples_of_a_stream_must_agree_on_their_fields() -> None:
    def uneven() -> Iterator[dict[str, Any]]:
        for number in range(40):
            yield {"x": number} if number != 33 else {"x": number, "extra": 1}

    with pytest.raises(BatchError, match="'extra'"):
        list(stoker.stream(uneven).batch(4))


# ---- which samples they are --------------------------------------------------------------------------------------------


def test_a_filter_and_a_flat_map_see_which_sample_they_work_on() -> None:
    def kept(sample: NamedSample) -> bool:
        return sample.index % 2 == 0 and sample.key == sample.origin == sample["__key__"] == str(sample.index)

    def twice(sample: NamedSample) -> list[dict[str, Any]]:
        return [{"n": sample.index}, {"__key__": f"{sample.key}/again", "n": sample.index}]

    def look(sample: NamedSample) -> dict[str, Any]:
        return {**sample, "seen": (sample.key, sample.index)}

    batch = next(iter(numbers(6).filter(kept).flat_map(twice).map(look).batch(6)))
    assert batch.sample_keys == ["0", "0/again", "2", "2/again", "4", "4/again"] and list(batch.keys()) == ["n", "seen"]
    assert batch["seen"] == [("0", 0), ("0/again", 0), ("2", 2), ("2/again", 2), ("4", 4), ("4/again", 4)]


def test_what_unbatch_splits_keeps_the_name_of_its_sample() -> None:
    pipeline = stoker.arrays(x=np.arange(6).reshape(3, 2)).unbatch().map(lambda s: {**s, "of": (s.key, s.index)})
    assert [sample["of"] for sample in pipeline] == [("0", 0), ("0", 0), ("1", 1), ("1", 1), ("2", 2), ("2", 2)]


def test_a_batch_function_gets_the_keys_of_its_rows() -> None:
    def look(columns: NamedColumns) -> dict[str, Any]:
        assert columns["__key__"] == columns.sample_keys and "__key__" not in columns and list(columns) == ["x", "y"]
        return {"x": columns["x"], "key": columns.sample_keys, "rows": np.full(columns.rows, columns.rows)}

    batches = list(numbers(8).shuffle(seed=1).batch(4).map_batch(look))
    assert all(batch["key"] == batch.sample_keys == [str(x) for x in batch["x"]] for batch in batches)
    inner = next(iter(numbers(8).shuffle(seed=1).batch(4).map_batch(look).unbatch().batch(8)))
    assert inner["key"] == inner.sample_keys == [key for batch in batches for key in batch["key"]]
    assert inner["rows"].tolist() == [4] * 8


def test_keys_that_a_batch_function_returns_are_the_batchs() -> None:
    def reversed_(columns: NamedColumns) -> dict[str, Any]:
        return {"__key__": columns["__key__"][::-1], "x": columns["x"][::-1]}

    def first_two(columns: NamedColumns) -> dict[str, Any]:
        return {"__key__": [f"{key}!" for key in columns.sample_keys[:2]], "x": columns["x"][:2]}

    whole = next(iter(numbers(4).batch(4).map_batch(reversed_).map_batch(lambda columns: {**columns})))
    assert whole.sample_keys == ["3", "2", "1", "0"] == [str(x) for x in whole["x"]] and list(whole.keys()) == ["x"]
    inner = numbers(8).batch(4).map_batch(reversed_).map_batch(first_two).select("x").unbatch().batch(4)
    assert [(batch.sample_keys, batch["x"].tolist()) for batch in inner] == [(["3!", "2!", "7!", "6!"], [3, 2, 7, 6])]


@pytest.mark.parametrize(
    ("keys", "why"), [(["a"], "gave 1 key for 4 rows; '__key__' must be"), ("abcd", "a str; it must be a list")]
)
@pytest.mark.parametrize("inner", [False, True])
def test_keys_that_do_not_fit_the_batch_are_refused(keys: Any, why: str, inner: bool) -> None:
    pipeline = numbers(4).batch(4).map_batch(lambda columns: {**columns, "__key__": keys})
    with pytest.raises(BatchError, match=why):
        list(pipeline.unbatch() if inner else pipeline)


def test_a_function_that_fails_on_an_empty_inner_batch_is_named() -> None:
    def empty(columns: Any) -> Any:
        return {name: column[:0] for name, column in columns.items()}

    def bad(columns: Any) -> Any:
        raise ValueError("my own bug")

    pipeline = stoker.arrays(x=np.arange(8)).batch(4).map_batch(empty).map_batch(bad).unbatch().batch(2)
    with pytest.raises(FunctionError, match=r"bad raised ValueError on the batch of 0: my own bug"):
        list(pipeline)
