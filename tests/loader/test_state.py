"""Saved states in the loader: whose they are, where they lead, and which are refused."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, FunctionError, StateError

from .runs import PIPELINES, N, epochs_of, hash_of, numbers, odd, tokens


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
        ("stoker", 3, "version 3"),
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
        with pytest.raises(StateError, match="'at' starts at sample 61"):
            loader.load_state_dict({**state, "at": [61, 0]})
        loader.load_state_dict({**state, "at": [15, 10**6]})
        with pytest.raises(StateError, match="have changed"):
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


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_state_of_the_very_end_is_the_start_of_the_next_epoch(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader(threads=2) as loader:
        epochs = epochs_of(loader, 3)
        assert loader.state_dict()["epoch"] == 3
    state = state_after(pipeline, len(epochs[0]))
    assert state["epoch"] == 0, "saving waits for nothing, so the state does not know that the epoch is over"
    with pipeline.loader(threads=2) as loader, pipeline.loader(threads=2) as asked:
        loader.load_state_dict(state)
        assert [hash_of(batch) for batch in loader] == epochs[1], "no empty iteration"
        asked.load_state_dict(state)
        assert [[hash_of(batch) for batch in asked] for _ in range(asked.epoch, 3)] == epochs[1:]
        assert asked.epoch == loader.epoch + 1 == 3


def test_a_state_of_a_finished_training_leaves_nothing_to_do() -> None:
    for kind in ("shuffled", "filter"):
        pipeline = PIPELINES[kind](4)
        with pipeline.loader() as loader:
            within = [loader.state_dict() for _ in range(2) for _ in loader][-1]
            after = loader.state_dict()
        for state in (within, after):
            with pipeline.loader() as loader:
                loader.load_state_dict(state)
                assert list(range(loader.epoch, 2)) == []


@pytest.mark.parametrize("kind", ["shuffled", "filter"])
def test_rows_that_give_no_step_of_another_size_are_the_end_of_their_epoch(kind: str) -> None:
    """60 or 30 rows: 3 or 2 are left after steps of 3, and no rank gets a whole batch of 4 from them."""
    base = numbers().take(59).shuffle(seed=3) if kind == "shuffled" else numbers().filter(odd).take(29)
    for world in (1, 2):
        steps = 19 if kind == "shuffled" else 9
        state = state_after(base.batch(3), steps)
        for rank in range(world):
            with base.shard(rank, world).batch(4).loader() as loader:
                loader.load_state_dict(state)
                assert loader.epoch == 1
                assert loader.state_dict()["row"] == 0
                loader.load_state_dict({**state, "row": state["row"] - 9} | ({"at": None} if "at" in state else {}))
                assert loader.epoch == 0


def test_an_error_met_while_looking_whether_the_epoch_goes_on_is_raised_in_its_place() -> None:
    bad = [False]

    def keep(sample: dict[str, Any]) -> bool:
        if bad[0]:
            raise ValueError("spoilt")
        return True

    pipeline = numbers().filter(keep).batch(4)
    state = state_after(pipeline, 3)
    bad[0] = True
    with pipeline.loader(threads=2) as loader:
        loader.load_state_dict(state)
        assert loader.epoch == 0
        assert repr(loader).endswith("epoch 0, row 12)")
        with pytest.raises(FunctionError, match="spoilt"):
            list(loader)
        loader.load_state_dict(state)
        loader.close()
        assert loader.epoch == 0, "a closed loader waits for nothing"


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_a_function_may_ask_for_the_epoch_while_only_its_batch_can_tell_whether_that_goes_on(executor: str) -> None:
    asked: list[int] = []
    state = state_after(numbers().filter(odd).batch(4), 2)
    for settle in (lambda loader: loader.epoch, lambda loader: next(iter(loader))):

        def look(sample: dict[str, Any]) -> bool:
            asked.append(loader.epoch)
            return odd(sample)

        with numbers().filter(look).batch(4).loader(executor=executor) as loader:
            loader.load_state_dict(state, force=True)
            settle(loader)
            assert loader.epoch == 0 and set(asked) == {0}


@pytest.mark.parametrize("kind", ["shuffled", "filter", "stream"])
def test_set_epoch_chooses_the_next_iteration(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader(threads=2) as loader:
        epochs = epochs_of(loader, 6)
    with pipeline.loader(threads=2) as loader:

        def one() -> list[str]:
            return [hash_of(batch) for batch in loader]

        loader.set_epoch(3)
        assert loader.epoch == 3 and one() == epochs[3] and one() == epochs[4]
        loader.set_epoch(0)
        iterator = iter(loader)
        first = hash_of(next(iterator))
        loader.set_epoch(2)
        assert [first, *map(hash_of, iterator)] == epochs[0], "an iterator at work goes on as it is"
        assert loader.epoch == 2 and one() == epochs[2]
        next(iter(loader))
        loader.set_epoch(3)  # the epoch that was left in the middle
        assert one() == epochs[3] and one() == epochs[4]
        iterator = iter(loader)
        loader.set_epoch(1)
        assert [hash_of(batch) for batch in iterator] == epochs[1], "no batch was taken from it yet"
        for wrong in (-1, 1 << 32, 1.0, True, None, "1"):
            with pytest.raises(ConfigError, match="set_epoch\\("):
                loader.set_epoch(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["shuffled", "filter", "stream"])
def test_set_epoch_in_every_round_of_the_loop_resumes_exactly(kind: str) -> None:
    """However the loop knows where it was: by the loader, or by a number of its own."""
    pipeline = PIPELINES[kind](7)
    with pipeline.loader() as loader:
        epochs = epochs_of(loader, 3)
    for step in range(len(epochs[0]) + 1):
        state = state_after(pipeline, step)
        for own in (False, True):
            with pipeline.loader(threads=2) as loader:
                loader.load_state_dict(state)
                seen: list[str] = []
                for epoch in range(0 if own else loader.epoch, 3):
                    loader.set_epoch(epoch)
                    seen += [hash_of(batch) for batch in loader]
                assert seen == [*epochs[0][step:], *epochs[1], *epochs[2]], (step, own)


@pytest.mark.parametrize("kind", ["shuffled", "filter", "stream", "repeat"])
def test_the_state_before_a_batch_does_not_count_it_until_the_next_is_asked_for(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader(threads=2) as loader:
        last = loader.state_dict()
        assert loader.state_dict(before=True) == last
        for _ in loader:
            assert loader.state_dict(before=True) == last
            last = loader.state_dict()
            assert last != loader.state_dict(before=True)
        assert loader.state_dict(before=True) == loader.state_dict(), "the loop asked for more: its last batch is done"
        next(iter(loader))
        loader.load_state_dict(last)
        assert loader.state_dict(before=True) == loader.state_dict()


def test_an_interrupt_while_waiting_for_a_batch_has_no_batch_in_hand() -> None:
    def interrupt(x: Any) -> Any:
        if x == 9:
            raise KeyboardInterrupt
        return x

    with numbers().map(x=interrupt).batch(4).loader(executor="inline") as loader:
        with pytest.raises(KeyboardInterrupt):
            list(loader)
        assert loader.state_dict()["row"] == loader.state_dict(before=True)["row"] == 8


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


@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.parametrize("rank", [0, 1])
def test_skipping_batches_is_as_if_they_had_been_taken(kind: str, rank: int) -> None:
    pipeline = PIPELINES[kind](4)
    pipeline = pipeline if "shard" in kind or "unbatch" in kind else pipeline.shard(rank, 2)
    with pipeline.loader(executor="inline") as loader:
        whole = epochs_of(loader, 2)
    steps = len(whole[0])
    for first, skipped in {(0, 0), (0, 1), (0, steps // 2), (1, steps // 3), (2, steps - 2), (0, steps)}:
        if first + skipped > steps:
            continue
        with pipeline.loader(executor="inline") as loader:
            taken = [hash_of(batch) for _, batch in zip(range(first), loader)]
            loader.skip(skipped)
            left = [hash_of(batch) for _ in range(1) for batch in loader]
            assert taken + left == (
                whole[0][:first] + whole[0][first + skipped :] if first + skipped < steps else [*taken, *whole[1]]
            )


def test_skipping_reads_nothing_of_what_is_skipped() -> None:
    read: list[int] = []
    pipeline = numbers(1000).map(lambda s: read.append(int(s["x"])) or s).batch(10)
    with pipeline.loader(executor="inline") as loader:
        loader.skip(90)
        assert sum(1 for _ in loader) == 10
    assert sorted(read) == list(range(900, 1000))


@pytest.mark.parametrize("pipeline", [numbers().batch(4), numbers().filter(odd).batch(4)], ids=["counted", "filtered"])
def test_more_than_is_left_cannot_be_skipped(pipeline: stoker.Pipeline) -> None:
    with pipeline.loader(executor="inline") as loader:
        whole = epochs_of(loader, 1)[0]
        with pytest.raises(ConfigError, match=rf"skip\(99\): epoch 1 has {len(whole)} left"):
            loader.skip(99)
        assert loader.epoch == 1, "nothing has changed"
        assert len(list(loader)) == len(whole)
    for wrong in (-1, 1.5, "3", True):
        with pipeline.loader() as loader, pytest.raises(ConfigError, match="must be an integer"):
            loader.skip(wrong)  # type: ignore[arg-type]
