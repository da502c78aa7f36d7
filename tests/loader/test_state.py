"""Saved states in the loader: whose they are, where they lead, and which are refused."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import StateError

from .runs import PIPELINES, N, numbers, odd, tokens


def state_after(pipeline: stoker.Pipeline, steps: int) -> dict[str, Any]:
    with pipeline.loader(executor="inline") as loader:
        iterator = iter(loader)
        for _ in range(steps):
            next(iterator)
        return loader.state_dict()


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_state_is_small_json_that_says_whose_it_is(kind: str) -> None:
    state = state_after(PIPELINES[kind](4), 3)
    text = json.dumps(state)
    assert len(text) < 300
    assert json.loads(text) == state
    assert {"stoker", "epoch", "row", "pipeline"} <= state.keys()


def test_a_state_counts_what_was_handed_out_and_not_what_is_ready() -> None:
    with numbers().batch(4).loader(threads=2, ahead=10) as loader:
        assert loader.state_dict()["row"] == 0
        for step, _ in enumerate(loader):
            assert loader.state_dict()["row"] == 4 * (step + 1)
        assert (loader.state_dict()["epoch"], loader.state_dict()["row"]) == (1, 0)


OTHERS: dict[str, tuple[stoker.Pipeline, str]] = {
    "other data": (stoker.arrays(x=np.arange(N) + 1, y=np.zeros((N, 5), np.float32)).shuffle(seed=1).batch(4), "source"),
    "more data": (numbers(61).shuffle(seed=1).batch(4), "source"),
    "another seed": (numbers().shuffle(seed=2).batch(4), "order"),
    "no shuffle": (numbers().batch(4), "order"),
    "less of it": (numbers().shuffle(seed=1).take(50).batch(4), "order"),
    "another function": (numbers().shuffle(seed=1).map(tokens).batch(4, pad={"t": 0}), "stages"),
    "a filter": (numbers().shuffle(seed=1).filter(odd).batch(4), "stages"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_state_of_something_else_is_refused_and_changes_nothing(name: str) -> None:
    other, field = OTHERS[name]
    state = state_after(other, 2)
    with numbers().shuffle(seed=1).batch(4).loader() as loader:
        iterator = iter(loader)
        next(iterator)
        before = loader.state_dict()
        with pytest.raises(StateError, match=f"{field} differ"):
            loader.load_state_dict(state)
        assert loader.state_dict() == before
        next(iterator)  # goes on as if nothing had been
        loader.load_state_dict(state, force=True)
        assert loader.state_dict()["row"] == state["row"]
        assert len(list(loader)) == 13


@pytest.mark.parametrize(
    "state",
    [b"\x80\x04N.", pickle.dumps({"row": 1}), '{"stoker": 1, "ep', "", None, 3, [], {}, {"stoker": 1}],
    ids=repr,
)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with numbers().batch(4).loader() as loader:
        for force in (False, True):
            with pytest.raises(StateError):
                loader.load_state_dict(state, force=force)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("stoker", 2, "version 2"),
        ("epoch", -1, "'epoch' is -1"),
        ("epoch", 1 << 32, "'epoch' is 4294967296"),
        ("epoch", 1.0, "'epoch' is 1.0"),
        ("row", -4, "'row' is -4"),
        ("row", "4", "'row' is '4'"),
        ("row", 61, "'row' is 61, but an epoch has 60"),
        ("row", 1 << 61, "'row' is 2,305,843,009,213,693,952, but"),
        ("at", [0], "'at' is \\[0\\]"),
        ("at", [-1, 0], "'at\\[0\\]' is -1"),
        ("at", "00", "'at"),
        ("pipeline", None, "'pipeline' is missing"),
        ("pipeline", {"source": "x"}, "source, order, stages differ"),
    ],
)
def test_each_field_is_checked_and_named(field: str, value: Any, told: str) -> None:
    with numbers().batch(4).loader() as loader, pytest.raises(StateError, match=told):
        loader.load_state_dict({**loader.state_dict(), field: value})


def test_a_place_behind_the_end_of_the_data_is_refused() -> None:
    pipeline = numbers().filter(odd).batch(4)
    state = state_after(pipeline, 2)
    with pipeline.loader() as loader:
        with pytest.raises(StateError, match="'at' begins at sample 61"):
            loader.load_state_dict({**state, "at": [61, 0]})
        loader.load_state_dict({**state, "at": [15, 10**6]})
        with pytest.raises(StateError, match="not the same"):
            list(loader)


def test_a_stream_that_has_become_shorter_is_noticed() -> None:
    count = [N]
    pipeline = stoker.stream(lambda: ({"x": n} for n in range(count[0]))).batch(4)
    state = state_after(pipeline, 10)
    count[0] = 20
    with pipeline.loader(threads=2) as loader:
        loader.load_state_dict(state)
        with pytest.raises(StateError, match="ends 20 rows before"):
            list(loader)


def test_a_state_of_the_very_end_gives_an_empty_rest_and_then_the_next_epoch() -> None:
    for kind in ("shuffled", "filter", "stream", "inner batch"):
        pipeline = PIPELINES[kind](4)
        with pipeline.loader() as loader:
            iterator = iter(loader)
            count = sum(1 for _ in range(len(list(pipeline))) if next(iterator))
            state = loader.state_dict()
            assert state["epoch"] == 0
        with pipeline.loader() as loader:
            loader.load_state_dict(state)
            assert list(loader) == []
            assert loader.epoch == 1
            assert len(list(loader)) == count


def test_a_state_can_be_loaded_in_the_middle_and_again_and_again() -> None:
    pipeline = numbers().shuffle(seed=1).batch(4)
    with pipeline.loader() as loader:
        every = [batch["x"].tolist() for batch in loader]
    states = [state_after(pipeline, step) for step in range(15)]
    with pipeline.loader(threads=2) as loader:
        for step in (7, 3, 14, 0, 7):
            loader.load_state_dict(states[step])
            iterator = iter(loader)
            assert next(iterator)["x"].tolist() == every[step]
            assert loader.epoch == 0


def test_a_state_is_a_value_and_not_a_view() -> None:
    with numbers().batch(4).loader() as loader:
        state = loader.state_dict()
        copy = json.loads(json.dumps(state))
        next(iter(loader))
        state["pipeline"]["source"] = "spoilt"
        assert loader.state_dict()["pipeline"] == copy["pipeline"]
        loader.load_state_dict(copy)
