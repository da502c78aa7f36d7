"""Leaving bad samples out: exactly those, counted, listed, and never more than was allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker import Pipeline
from stoker.engine.feed import Pace
from stoker.errors import ConfigError, DataLossError, FunctionError, WriteError

from .runs import expand, numbers, odd, samples

HOW: list[dict[str, Any]] = [{"executor": "inline"}, {"threads": 1}, {"threads": 8}]


def failing(bad: Callable[[int], bool]) -> Callable[[Any], Any]:
    def picky(x: Any) -> Any:
        if bad(int(x)):
            raise ValueError(f"{x} is bad")
        return x

    return picky


def run(pipeline: Pipeline, **how: Any) -> tuple[list[list[int]], str]:
    """The ids of all batches, and the error that ended them, if one did."""
    seen: list[list[int]] = []
    with pipeline.loader(**how) as loader:
        try:
            for batch in loader:
                seen.append([int(x) for x in np.atleast_1d(batch["x"])])
        except DataLossError as error:
            return seen, str(error)
    return seen, ""


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_bad_rows_are_left_out_and_batches_stay_where_they_were(
    how: dict[str, Any], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: rows)
    bad = {0, 5, 6, 7, 31, 59}
    pipeline = numbers().map(x=failing(lambda x: x in bad)).batch(4).on_error("skip", budget=6)
    seen, error = run(pipeline, **how)
    assert not error
    assert seen == [[x for x in range(first, first + 4) if x not in bad] for first in range(0, 60, 4)]


def test_keys_and_valid_rows_of_a_shortened_batch_fit() -> None:
    pipeline = numbers(10).map(x=failing(lambda x: x in (1, 9))).shard(1, 2, "pad").batch(4).on_error("skip", budget=9)
    batches = list(pipeline)
    assert [batch["x"].tolist() for batch in batches] == [[4, 5, 6, 7], [8, 8]]
    assert [batch.sample_keys for batch in batches] == [["4", "5", "6", "7"], ["8", "8"]]
    assert [batch.valid.tolist() for batch in batches] == [[True] * 4, [False, False]]
    assert all(len(batch["y"]) == batch.rows for batch in batches)


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize(
    "pipeline",
    [
        numbers().map(lambda s: {"fresh": s["x"]}).rename(x="fresh"),
        numbers().rename(z="y").map(x=lambda v: v).select("x"),
        numbers().map(x=lambda v: v).drop("y"),
    ],
    ids=["new fields", "select", "drop"],
)
def test_a_task_all_of_whose_rows_are_bad_hinders_no_other(
    pipeline: Pipeline, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: 2)
    nodes = pipeline._nodes
    with_bad = Pipeline(pipeline._source, (*numbers().map(x=failing(lambda x: 4 <= x < 8))._nodes, *nodes))
    seen, error = run(with_bad.batch(8, drop_last=False).on_error("skip", budget=6), **how)
    assert not error and seen[0] == [0, 1, 2, 3] and seen[1] == list(range(8, 16))


RATES = {
    "1 in 1000": (lambda x: x % 1000 == 500, 0.002, None),
    "5 %": (lambda x: x % 20 == 3, 0.06, None),
    "5 % when 4 % are allowed": (lambda x: x % 20 == 3, 0.04, 41),
    "50 %": (lambda x: x % 2 == 1, 0.6, None),
    "50 % when 40 % are allowed": (lambda x: x % 2 == 1, 0.4, 401),
    "all": (lambda x: True, 0.5, 1),
    "bad at the start": (lambda x: x < 30, 0.02, 21),
    "bad at the start, allowed": (lambda x: x < 19, 0.02, None),
    "bad at the end": (lambda x: x >= 1950, 0.02, 40),
    "more than a number": (lambda x: x % 100 == 7, 5, 6),
    "as many as the number": (lambda x: x % 100 == 7, 20, None),
    "none allowed": (lambda x: x == 77, 0, 1),
}


@pytest.mark.parametrize("name", RATES)
def test_a_budget_is_kept_and_broken_at_the_same_batch_on_any_number_of_threads(name: str) -> None:
    bad, budget, most = RATES[name]
    source = stoker.arrays(x=np.arange(2000))
    pipeline = source.map(x=failing(bad)).batch(50).on_error("skip", budget=budget)
    runs = [run(pipeline, **how) for how in HOW]
    assert all(one == runs[0] for one in runs)
    seen, error = runs[0]
    expected = [[x for x in range(first, first + 50) if not bad(x)] for first in range(0, 2000, 50)]
    assert seen == expected[: len(seen)]
    if most is None:
        assert not error and seen == expected
    else:
        assert f"on_error('skip', budget={budget:g})" in error or "every sample" in error
        lost = sum(50 - len(batch) for batch in seen)
        assert lost < most <= lost + 50, "the batch that breaks the budget is not handed out"


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.integers(0, 119), max_size=40), st.sampled_from([0, 0.1, 0.25, 1, 2, 5]), st.integers(1, 60), st.integers(3, 20)
)
def test_a_budget_for_a_window_is_that_of_any_samples_in_sequence(bad: set[int], budget: float, window: int, size: int) -> None:
    allowed = budget if budget >= 1 else max(1 if budget else 0, budget * window)
    broken = [x for x in sorted(bad) if len(bad & set(range(x - window + 1, x + 1))) > allowed]
    batches = [range(first, first + size) for first in range(0, 120 // size * size, size)]
    lost = [number for number, rows in enumerate(batches) if bad.issuperset(rows) or any(x in rows for x in broken)]
    pipeline = numbers(120).map(x=failing(bad.__contains__)).batch(size).on_error("skip", budget=budget, window=window)
    seen, error = run(pipeline, executor="inline")
    assert seen == [[x for x in rows if x not in bad] for rows in batches[: lost[0] if lost else None]]
    assert bool(error) == bool(lost)
    assert "every sample" in error or not lost or f"of the last {window} samples of epoch 0 were bad" in error


def test_a_window_finds_many_bad_samples_late_in_an_epoch_and_each_rank_counts_its_own() -> None:
    source = stoker.arrays(x=np.arange(20_000)).map(x=failing(lambda x: 19_000 <= x < 19_008))
    assert not run(source.batch(50).on_error("skip", budget=0.001))[1]
    for how in HOW:
        seen, error = run(source.batch(50).on_error("skip", budget=0.001, window=2000), **how)
        assert error.startswith("3 of the last 2,000 samples of epoch 0 were bad") and len(seen) == 380
        seen, error = run(source.shard(1, 2).batch(4).on_error("skip", budget=1, window=4), **how)
        assert len(seen) == 19_000 // 8 and "2 of the last 4 samples" in error


def test_the_default_raises_and_so_does_raise() -> None:
    for pipeline in (
        numbers().map(x=failing(odd_number)).batch(4),
        numbers().map(x=failing(odd_number)).batch(4).on_error("raise"),
    ):
        with pytest.raises(FunctionError):
            list(pipeline)


def odd_number(x: int) -> bool:
    return x % 2 == 1


def test_the_last_word_on_errors_stands() -> None:
    pipeline = numbers().on_error("skip", budget=60).map(x=failing(odd_number)).on_error("raise").batch(4)
    with pytest.raises(FunctionError):
        list(pipeline)


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_bad_samples_are_listed_in_order_once_and_completely(
    tmp_path: Path, how: dict[str, Any], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: rows)
    listed = tmp_path / "bad.jsonl"
    first = failing(lambda x: x % 10 == 4)
    second = failing(lambda x: x % 10 == 2)
    pipeline = numbers().map(x=first).map(x=second).batch(20).on_error("skip", budget=20, quarantine=str(listed))
    with pipeline.loader(**how) as loader:
        list(loader)
        assert loader.stats().skipped == 12
        list(loader)
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [(line["epoch"], line["key"], line["position"]) for line in lines] == [
        (epoch, str(x), x) for epoch in range(2) for x in range(60) if x % 10 in (2, 4)
    ]
    assert all(line["error"] == "FunctionError" and f"{line['key']} is bad" in line["reason"] for line in lines)
    assert all(line["index"] == line["position"] and line["shard"] is line["offset"] is None for line in lines)
    assert all(line["stage"] in ("map x", "map x #2") and line["source"].startswith("arrays:") for line in lines)
    assert all(line["traceback"].splitlines()[1].endswith("in picky") for line in lines), "it begins in the user's function"


def test_a_list_of_bad_samples_that_cannot_be_written_says_so_and_the_loader_goes_on_with_the_next_epoch(tmp_path: Path) -> None:
    listed = tmp_path / "bad.jsonl"
    pipeline = numbers().map(x=failing(lambda x: x == 3)).batch(20).on_error("skip", budget=1, quarantine=listed)
    listed.symlink_to("/dev/full")
    with pipeline.loader(threads=2) as loader:
        with pytest.raises(WriteError, match=r"bad\.jsonl: cannot be written: the disk is full.*; make room"):
            list(loader)
        listed.unlink()
        assert [batch.rows for batch in loader] == [19, 20, 20]
    assert [json.loads(line)["epoch"] for line in listed.read_text().splitlines()] == [1]


def test_every_epoch_has_a_budget_of_its_own() -> None:
    pipeline = numbers().map(x=failing(lambda x: x % 20 == 3)).batch(4).on_error("skip", budget=3)
    with pipeline.loader(threads=2) as loader:
        for epoch in range(4):
            assert sum(batch.rows for batch in loader) == 57
            assert loader.stats().skipped == 3 * (epoch + 1)


def test_what_is_wrong_with_all_samples_cannot_be_skipped() -> None:
    def uneven(sample: dict[str, Any]) -> dict[str, Any]:
        return {"t": np.zeros(1 + int(sample["x"]) % 2)}

    with pytest.raises(stoker.errors.BatchError):
        list(numbers().map(uneven).batch(4).on_error("skip", budget=60))


@pytest.mark.parametrize("how", HOW, ids=str)
def test_a_batch_of_which_nothing_is_left_is_data_loss(how: dict[str, Any]) -> None:
    pipeline = numbers().map(x=failing(lambda x: 8 <= x < 12)).batch(4).on_error("skip", budget=50)
    seen, error = run(pipeline, **how)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert "every sample" in error and "starting at row 8" in error and "11 is bad" in error


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("bad", [{0}, {59}, {0, 1, 2, 3, 4}, set(range(10, 50)), {31, 32}, set(range(0, 60, 2))], ids=str)
def test_single_samples_are_left_out_one_by_one(how: dict[str, Any], bad: set[int]) -> None:
    seen, error = run(numbers().map(x=failing(lambda x: x in bad)).on_error("skip", budget=60), **how)
    assert not error
    assert seen == [[x] for x in range(60) if x not in bad]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_bad_samples_on_the_way_to_a_batch_do_not_shorten_it(how: dict[str, Any]) -> None:
    picky = failing(lambda x: x % 10 == 4)
    for pipeline in (
        numbers().map(x=picky).filter(odd).batch(4, drop_last=False),
        stoker.stream(samples).map(x=picky).filter(odd).batch(4, drop_last=False),
    ):
        seen, error = run(pipeline.on_error("skip", budget=6), **how)
        good = [x for x in range(60) if x % 2]
        assert not error and seen == [good[at : at + 4] for at in range(0, 30, 4)]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_bad_samples_behind_the_last_batch_count_too(how: dict[str, Any]) -> None:
    for bad, budget, batches in ((lambda x: True, 5, 0), (lambda x: x >= 56, 3, 14)):
        pipeline = numbers().map(x=failing(bad)).filter(lambda s: True).batch(4).on_error("skip", budget=budget)
        seen, error = run(pipeline, **how)
        assert len(seen) <= batches and "bad, more than" in error


def test_a_resumed_run_does_not_count_again_what_was_counted(tmp_path: Path) -> None:
    for make in (
        lambda: numbers().map(x=failing(lambda x: x % 10 == 4)).filter(lambda s: True).batch(3),
        lambda: numbers().map(x=failing(lambda x: x % 10 == 4)).filter(lambda s: True).shuffle(window=1).batch(3),
        lambda: stoker.stream(samples).map(x=failing(lambda x: x % 10 == 4)).filter(lambda s: True).batch(3),
    ):
        listed = tmp_path / "bad.jsonl"
        listed.unlink(missing_ok=True)
        pipeline = make().on_error("skip", budget=6, quarantine=str(listed))
        with pipeline.loader() as loader:
            for _ in zip(range(9), loader):
                pass
            state = loader.state_dict()
        assert len(listed.read_text().splitlines()) == 3
        with pipeline.loader() as loader:
            loader.load_state_dict(state)
            list(loader)
            assert loader.stats().skipped <= 3
        lines = [json.loads(line)["key"].lstrip("s") for line in listed.read_text().splitlines()]
        assert len(lines) == len(set(lines)) and set(lines) <= {"4", "14", "24", "34", "44", "54"}


def stopped(pipeline: Pipeline, steps: int, before: bool = False) -> tuple[list[list[int]], str, dict[str, Any]]:
    """The same as `run`, for the first steps of an epoch, and the state after them."""
    seen: list[list[int]] = []
    with pipeline.loader(executor="inline") as loader:
        try:
            for batch in loader:
                seen.append([int(x) for x in np.atleast_1d(batch["x"])])
                if len(seen) == steps + before:
                    break
        except DataLossError as error:
            return seen, str(error), {}
        state = loader.state_dict(before=before)
        return seen[: len(seen) - before], "", json.loads(json.dumps(state))


def resumed(pipeline: Pipeline, state: dict[str, Any]) -> tuple[list[list[int]], str]:
    seen: list[list[int]] = []
    with pipeline.loader(executor="inline") as loader:
        loader.load_state_dict(state)
        try:
            seen += [[int(x) for x in np.atleast_1d(batch["x"])] for batch in loader if loader.epoch == 0]
        except DataLossError as error:
            return seen, str(error)
    return seen, ""


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 119), max_size=40),
    st.sampled_from([0.004, 0.02, 0.1, 1, 2, 5, 9]),
    st.one_of(st.none(), st.integers(1, 60)),
    st.one_of(st.none(), st.integers(3, 20)),
    st.integers(1, 40),
    st.booleans(),
)
def test_a_resumed_epoch_goes_on_with_its_budget_as_if_it_had_not_stopped(
    bad: set[int], budget: float, window: int | None, size: int | None, steps: int, before: bool
) -> None:
    base = numbers(120).shard(0, 1, "keep").map(x=failing(bad.__contains__))
    pipeline = (base if size is None else base.batch(size)).on_error("skip", budget=budget, window=window)
    whole = run(pipeline, executor="inline")
    first, error, state = stopped(pipeline, steps, before)
    if state and state["epoch"] == 0:
        seen = [x for x in range(120) if x < state["row"]]
        assert (state["skipped"]["seen"], state["skipped"]["bad"]) == (len(seen), len(bad & set(seen)))
        rest, error = resumed(pipeline, state)
        if size is None and error:  # single samples are counted some at a time, and that may be at other places
            assert whole[1]
        else:
            assert (first + rest, error) == whole
    else:
        assert (first, error) in (whole, (whole[0][: len(first)], ""))


@pytest.mark.parametrize("size", [1, 3, 7])
def test_bad_samples_on_the_way_to_a_filter_are_counted_once_over_a_resume(size: int, tmp_path: Path) -> None:
    listed = tmp_path / "bad.jsonl"
    source = numbers().map(x=failing(lambda x: x % 10 == 4)).filter(odd).batch(size)
    pipeline = source.on_error("skip", budget=6, quarantine=listed)  # one more counted would be too many
    whole, _ = run(pipeline, executor="inline")
    for steps in range(1, len(whole)):
        listed.unlink(missing_ok=True)
        first, _, state = stopped(pipeline, steps)
        rest, error = resumed(pipeline, state)
        assert (first + rest, error) == (whole, "")
        assert [json.loads(line)["key"] for line in listed.read_text().splitlines()] == ["4", "14", "24", "34", "44", "54"]


def test_a_state_saved_without_counts_begins_at_none_and_a_forced_one_too() -> None:
    pipeline = numbers().map(x=failing(lambda x: x % 10 == 4)).batch(10).on_error("skip", budget=3)
    _, _, state = stopped(pipeline, 3)
    assert state["skipped"] == {"seen": 30, "bad": 3, "recent": []}
    assert "more than" in resumed(pipeline, state)[1]
    old = {name: value for name, value in state.items() if name != "skipped"}
    assert resumed(pipeline, old)[1] == ""
    with pipeline.loader(executor="inline") as loader:
        loader.load_state_dict(state, force=True)
        assert loader.state_dict()["skipped"]["bad"] == 0
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert loader.state_dict() == state, "an epoch set to where it is anyway"
        loader.set_epoch(1)
        assert loader.state_dict()["skipped"]["bad"] == 0
    with numbers().batch(10).loader(executor="inline") as loader:
        assert "skipped" not in loader.state_dict()


def test_a_bad_sample_is_listed_once_however_often_its_batch_is_made(tmp_path: Path) -> None:
    listed = tmp_path / "bad.jsonl"
    listed.write_text('not json\n{"epoch": 0, "key": "somebody else\'s"}\n')
    pipeline = numbers().map(x=failing(lambda x: x % 10 == 4)).batch(10).on_error("skip", budget=60, quarantine=listed)
    with pipeline.loader(threads=2) as loader:
        state = loader.state_dict()
        for _ in range(2):
            loader.load_state_dict(state)
            assert len(list(loader)) == 6
        assert loader.stats().skipped == 12 and loader.stats().skipped_by == {"map x: FunctionError": 12}
    run(pipeline, executor="inline")
    assert [json.loads(line)["key"] for line in listed.read_text().splitlines()[2:]] == ["4", "14", "24", "34", "44", "54"]
    run(numbers(61).map(x=failing(lambda x: x == 4)).batch(10).on_error("skip", budget=60, quarantine=listed))
    assert len(listed.read_text().splitlines()) == 9, "of other data it is another sample"


def test_ranks_may_share_a_list_and_what_all_of_them_meet_is_in_it_once(tmp_path: Path) -> None:
    listed = tmp_path / "bad.jsonl"
    for base in (numbers().map(x=failing(lambda x: x % 10 == 4)), numbers().map(x=failing(lambda x: x % 10 == 4)).filter(odd)):
        listed.unlink(missing_ok=True)
        for rank in range(3):
            run(base.shard(rank, 3).batch(2).on_error("skip", budget=60, quarantine=listed))
        keys = sorted(int(json.loads(line)["key"]) for line in listed.read_text().splitlines())
        assert keys == [4, 14, 24, 34, 44, 54]


def always_bad(x: Any) -> Any:
    raise KeyError(int(x))


def test_a_list_is_the_same_whoever_worked_on_the_samples(tmp_path: Path) -> None:
    texts = []
    for how in ({"executor": "inline"}, {"threads": 3}, {"processes": 1, "threads": 2}):
        listed = tmp_path / f"{len(texts)}.jsonl"
        seen, error = run(numbers(4).map(x=always_bad).on_error("skip", budget=9, quarantine=listed), **how)
        assert not seen and not error
        texts.append(listed.read_text())
    assert texts[0].count("in always_bad") == 4 and texts == [texts[0]] * 3


def test_the_log_has_the_first_bad_sample_with_its_traceback_and_one_line_for_each_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = numbers().map(x=failing(lambda x: x % 10 == 4)).batch(10).on_error("skip", budget=6)
    for how in HOW:
        caplog.clear()
        with pipeline.loader(**how) as loader:
            for _ in range(3):
                list(loader)
        first, *epochs = [record.getMessage() for record in caplog.records]
        assert first.startswith("sample '4' is bad and was skipped") and "4 is bad\nTraceback" in first and "in picky\n" in first
        assert "raise ValueError" in first and "each_row" not in first
        told = [f"epoch {epoch}: 6 samples skipped because of on_error('skip') (6 map x: FunctionError)" for epoch in range(3)]
        assert epochs == told
    caplog.clear()
    seen, error = run(pipeline.on_error("skip", budget=2))
    assert len(caplog.records) == 1 and "3 of 30" in error and len(seen) == 2, "too many are told once, by the error"


def test_children_of_a_sample_are_left_out_one_by_one() -> None:
    def no_second(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["part"] == 1:
            raise ValueError
        return sample

    pipeline = numbers(8).flat_map(expand).map(no_second).batch(1).on_error("skip", budget=60)
    seen: list[tuple[int, int]] = []
    with pytest.raises(DataLossError):  # batches of one row, and a bad one leaves nothing
        for batch in pipeline:
            seen.append((int(batch["x"][0]), int(batch["part"][0])))
    assert seen == [(1, 0), (2, 0)]
    single = numbers(8).flat_map(expand).map(no_second).on_error("skip", budget=60)
    assert [(int(s["x"]), s["part"]) for s in single] == [(1, 0), (2, 0), (3, 0), (3, 2), (5, 0), (6, 0), (7, 0), (7, 2)]


def test_a_stream_that_breaks_cannot_be_skipped() -> None:
    def torn() -> Iterator[dict[str, Any]]:
        yield {"x": 1}
        raise ConnectionError

    with pytest.raises(FunctionError):
        list(stoker.stream(torn).batch(1).on_error("skip", budget=60))


@pytest.mark.parametrize("name", ["", b"", "a\0b"])
def test_a_list_of_bad_samples_has_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be a file name"):
        numbers().on_error("skip", quarantine=name)


@pytest.mark.parametrize("fill", [None, "repeat"])
@pytest.mark.parametrize("size", [4, None], ids=["batches", "samples"])
def test_a_bad_sample_that_pads_as_well_counts_once_where_it_is_due(size: int | None, fill: Any, tmp_path: Path) -> None:
    bad, listed = (
        numbers(9 if size is None else 10).map(x=failing(lambda x: x == (8 if size is None else 9))),
        tmp_path / "bad.jsonl",
    )
    skipped = []
    for rank in range(2):
        shared = bad.shard(rank, 2, remainder="pad")
        pipeline = shared if size is None else shared.batch(size)
        with pipeline.on_error("skip", budget=1, quarantine=listed, fill=fill).loader(threads=2) as loader:
            list(loader)
            skipped.append(loader.stats().skipped)
    assert skipped == [1, 0] and len(listed.read_text().splitlines()) == 1


def test_a_batch_of_nothing_but_bad_rows_that_pad_is_data_loss_like_the_batch_they_are_from() -> None:
    for rank in range(2):
        pipeline = numbers(9).map(x=failing(lambda x: x == 8)).shard(rank, 2, remainder="pad").batch(4).on_error("skip", budget=9)
        with pipeline.loader() as loader, pytest.raises(DataLossError, match=r"every sample of a batch was bad .* 8 is bad"):
            list(loader)
