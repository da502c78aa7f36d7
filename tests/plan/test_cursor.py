"""Saved states: small JSON that is checked before it is believed."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from stoker.errors import StateError
from stoker.plan.cursor import Cursor, SkipCounts, decode, encode

IDENTITY = {"source": "arrays:1", "order": "order:2", "stages": "stages:3"}
CURSORS = [Cursor(), Cursor(3, 48), Cursor(3, 48, (7, 2)), Cursor((1 << 32) - 1, (1 << 62) - 1, (0, 0))]


@pytest.mark.parametrize("cursor", CURSORS, ids=str)
def test_a_cursor_comes_back_from_json_as_it_was(cursor: Cursor) -> None:
    text = json.dumps(encode(cursor, IDENTITY))
    assert len(text) < 300
    assert decode(json.loads(text), IDENTITY) == cursor


def good() -> dict[str, Any]:
    return encode(Cursor(3, 48, (7, 2)), IDENTITY)


BAD_NUMBERS = [None, -1, 1.5, "48", True, [48], 1 << 70, float("nan")]


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize("field", ["epoch", "row"])
def test_a_number_that_is_none_is_refused_by_its_name(field: str, value: Any) -> None:
    for force in (False, True):
        with pytest.raises(StateError, match=f"'{field}'"):
            decode({**good(), field: value}, IDENTITY, force=force)


@pytest.mark.parametrize("value", [3, "ab", [1], [1, 2, 3], [1, -2], [None, 2], [1.0, 2], {"a": 1, "b": 2}], ids=repr)
def test_a_place_that_is_none_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(StateError, match="at"):
        decode({**good(), "at": value}, IDENTITY)


@pytest.mark.parametrize("field", ["stoker", "epoch", "row", "pipeline"])
def test_a_missing_field_is_named(field: str) -> None:
    state = {name: value for name, value in good().items() if name != field}
    with pytest.raises(StateError, match="version" if field == "stoker" else field):
        decode(state, IDENTITY)


@pytest.mark.parametrize("version", [0, 3, "2", None, [2]], ids=repr)
def test_a_state_of_another_version_is_refused(version: Any) -> None:
    with pytest.raises(StateError, match="version"):
        decode({**good(), "stoker": version}, IDENTITY)


def test_a_state_saved_before_streams_had_kinds_is_refused_for_that_reason_and_gives_its_position_when_forced() -> None:
    old = {**good(), "stoker": 1}
    with pytest.raises(StateError, match=r"earlier Stoker.*numbered random streams differently.*start the epoch again"):
        decode(old, IDENTITY)
    assert decode(old, IDENTITY, force=True) == Cursor(3, 48, (7, 2))


@pytest.mark.parametrize("field", IDENTITY)
def test_a_state_of_other_data_or_another_pipeline_is_refused_naming_what_differs(field: str) -> None:
    state = encode(Cursor(1, 2), {**IDENTITY, field: "another"})
    with pytest.raises(StateError, match=field) as caught:
        decode(state, IDENTITY)
    assert "'another'" in str(caught.value) and IDENTITY[field] in str(caught.value)
    assert not any(f"{name}:" in str(caught.value) for name in IDENTITY if name != field)
    assert decode(state, IDENTITY, force=True) == Cursor(1, 2)


@pytest.mark.parametrize("pipeline", [None, "x", 3, ["source"], {}], ids=repr)
def test_a_state_that_does_not_say_whose_it_is_is_refused(pipeline: Any) -> None:
    with pytest.raises(StateError):
        decode({**good(), "pipeline": pipeline}, IDENTITY)


def test_what_is_no_mapping_is_refused_and_nothing_is_unpickled() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    text = json.dumps(good())
    for state in (pickle.dumps(Bomb()), text, text.encode(), text[: len(text) // 2], None, 7, [good()]):
        with pytest.raises(StateError, match="mapping made by state_dict"):
            decode(state, IDENTITY)


def test_truncated_json_never_becomes_a_state() -> None:
    text = json.dumps(good())
    for cut in range(len(text)):
        with pytest.raises(json.JSONDecodeError):
            decode(json.loads(text[:cut]), IDENTITY)


COUNTS = SkipCounts(5000, 3, (1900, 7, 1))


def test_counts_of_bad_samples_come_back_from_json_and_are_no_part_of_the_place() -> None:
    state = json.loads(json.dumps(encode(Cursor(3, 48), IDENTITY, COUNTS)))
    cursor = decode(state, IDENTITY)
    assert cursor.counts == COUNTS and cursor == Cursor(3, 48)
    assert decode(state, IDENTITY, force=True).counts is None, "of another pipeline only the position"
    assert decode(encode(Cursor(), IDENTITY), IDENTITY).counts is None


@pytest.mark.parametrize(
    "skipped",
    [
        3,
        [1, 2],
        {"seen": 5},
        {"seen": 5, "bad": -1, "recent": []},
        {"seen": "5", "bad": 1, "recent": []},
        {"seen": 5, "bad": 6, "recent": []},
        {"seen": 5, "bad": 1, "recent": 1},
        {"seen": 5, "bad": 1, "recent": [True]},
        {"seen": 5, "bad": 2, "recent": [1, 2]},
        {"seen": 5, "bad": 1, "recent": [1] * 1001},
    ],
    ids=lambda value: str(value)[:40],
)
def test_damaged_counts_are_refused(skipped: Any) -> None:
    with pytest.raises(StateError, match="skipped"):
        decode({**good(), "skipped": skipped}, IDENTITY)
