"""`loader.reshard`: what becomes of the iterator at work, of batches made together, of states, budgets, and who says the rank."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from stoker.errors import ClosedError, ConfigError, FunctionError
from stoker.observe.loader_view import LoaderView

from .runs import bad_every_seventh, forgiving, numbers, odd, real_ids


def rows(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


# ---- the iterator at work ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"executor": "inline"}, {"threads": 2}], ids=["inline", "threads"])
def test_a_loop_goes_on_with_the_next_step_of_the_new_ranks(how: dict[str, Any]) -> None:
    seen = []
    with numbers(40).shard(1, 2).batch(2).loader(**how) as loader:
        for step, batch in enumerate(loader):
            seen.append(batch["x"].tolist())
            if step == 4:  # batches this small are made several at once: some of these are handed out, others are not
                loader.reshard(2, 3)
        assert seen == [[2, 3], [6, 7], [10, 11], [14, 15], [18, 19], [24, 25], [30, 31], [36, 37]]
        assert rows(loader) == [[4, 5], [10, 11], [16, 17], [22, 23], [28, 29], [34, 35]], "the next epoch"
        assert len(loader) == 6


def test_single_samples_are_dealt_again_too() -> None:
    with numbers(12).shard(0, 2, "keep").loader() as loader:
        samples = iter(loader)
        assert [int(next(samples)["x"]) for _ in range(3)] == [0, 2, 4]
        loader.reshard(1, 3)
        assert [int(sample["x"]) for sample in samples] == [7, 10]


def test_a_loop_ends_where_the_new_ranks_have_no_step_left() -> None:
    with numbers(10).shard(0, 2).batch(2).loader() as loader:
        batches = iter(loader)
        assert rows([next(batches), next(batches)]) == [[0, 1], [4, 5]]
        loader.reshard(0, 3)
        assert rows(batches) == []
        assert (loader.epoch, rows(loader)) == (1, [[0, 1]])


def test_fewer_ranks_make_a_batch_of_what_more_would_have_dropped() -> None:
    with numbers(10).shard(1, 4).batch(2).loader() as loader:
        batches = iter(loader)
        assert rows([next(batches)]) == [[2, 3]]
        loader.reshard(0, 1)
        assert rows(batches) == [[8, 9]]


def test_the_same_rank_again_changes_no_batch() -> None:
    with numbers(40).shuffle(seed=1).shard(1, 2).batch(2).loader() as loader:
        whole = rows(loader)
        loader.set_epoch(0)
        seen = []
        for batch in loader:
            seen.append(batch["x"].tolist())
            loader.reshard(1, 2)
        assert seen == whole


def test_an_error_that_was_waiting_is_raised_by_whoever_gets_the_sample() -> None:
    base = numbers(40).map(x=bad_every_seventh)  # 10 is bad: rank 1's second batch, made together with the third
    with base.skip(4).shard(1, 2).batch(2).loader() as loader, base.skip(4).shard(0, 2).batch(2).loader() as other:
        mine, others = iter(loader), iter(other)
        assert rows([next(others), next(mine)]) == [[4, 5], [6, 7]]
        loader.reshard(0, 2)
        other.reshard(1, 2)
        assert rows([next(mine)]) == [[8, 9]]
        with pytest.raises(FunctionError, match="10 is bad"):
            next(others)


def test_batches_that_are_counted_out_are_not_lost_in_the_middle() -> None:
    """`skip` after `batch` leaves out batches of all ranks at the beginning of a pass; more ranks do not leave out more later."""
    with numbers(60).shard(0, 2, "keep").batch(2).skip(2).loader() as loader:
        batches = iter(loader)
        assert rows([next(batches)]) == [[8, 9]]
        loader.reshard(0, 8)
        assert rows([next(batches)]) == [[12, 13]]


# ---- states ------------------------------------------------------------------------------------------------------------------


def test_a_state_before_the_last_batch_stays_what_it_was() -> None:
    with numbers(40).shard(0, 2).batch(2).loader() as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        before, after = loader.state_dict(before=True), loader.state_dict()
        loader.reshard(0, 5)
        assert (loader.state_dict(before=True), loader.state_dict()) == (before, after)
        next(batches)
        assert loader.state_dict(before=True) == after


@pytest.mark.parametrize("kind", ["counted", "filter"])
def test_a_rank_may_load_a_state_as_anybody_and_reshard_then(kind: str) -> None:
    """That nothing was left for the ranks it thought there were does not count."""
    base = numbers(20) if kind == "counted" else numbers(40).filter(odd)
    every = [int(sample["x"]) for sample in base]
    with base.shard(0, 4).batch(2).loader() as old, base.shard(3, 7).batch(2).loader() as joining:
        batches = iter(old)
        next(batches), next(batches)
        joining.load_state_dict(old.state_dict())
        assert joining.epoch == 1, "four rows are left, and seven ranks take 14"
        old.reshard(0, 2)
        joining.reshard(1, 2)
        assert joining.epoch == 0
        assert (rows(batches), rows(joining)) == ([every[16:18]], [every[18:20]])
        assert old.state_dict() == joining.state_dict()


def test_an_epoch_that_was_chosen_is_kept() -> None:
    with numbers(40).shard(0, 2).batch(2).loader() as loader:
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        loader.set_epoch(3)
        loader.reshard(0, 4)
        assert loader.epoch == 3
        loader.set_epoch(0)
        assert rows(loader)[0] == [4, 5], "and the state that was loaded is still known"


def test_bad_samples_are_counted_once_however_often_they_were_made() -> None:
    """Batches are made several at once, and counted with the first: what was not handed out is counted by who gets it."""
    base = forgiving(numbers(60).map(x=bad_every_seventh))
    with base.shard(0, 1).batch(2).loader() as loader:
        seen, bad = 0, 0
        for step, batch in enumerate(loader):
            seen, bad = seen + 2, bad + 2 - batch.rows
            assert loader.state_dict()["skipped"] == {"seen": seen, "bad": bad, "recent": []}
            if step % 3 == 2:
                before = loader.state_dict(before=True)
                loader.reshard(0, 1)
                assert loader.state_dict()["skipped"] == {"seen": seen, "bad": bad, "recent": []}
                assert loader.state_dict(before=True) == before
        assert (seen, bad) == (60, 9)


# ---- who says which rank this is ---------------------------------------------------------------------------------------------


def test_what_was_said_to_reshard_stands_against_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with numbers(24).shard().batch(2).loader() as loader:
        assert str(loader.rank) == "rank 1 of 2 (torchrun: RANK and WORLD_SIZE)"
        next(iter(loader))
        loader.reshard(2, 3)
        assert (loader.rank.rank, loader.rank.world, str(loader.rank)) == (2, 3, "rank 2 of 3 (as given)")
        monkeypatch.setenv("WORLD_SIZE", "7")
        assert rows(loader) == [[4, 5], [10, 11], [16, 17], [22, 23]]
        assert "ranks    rank 2 of 3 (as given), remainder drop" in LoaderView(loader, "test").data()["plan"]


def test_a_loader_that_gave_batches_follows_other_ranks_when_a_state_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with numbers(24).shard().batch(2).loader() as loader:
        next(iter(loader))
        monkeypatch.setenv("WORLD_SIZE", "3")
        with pytest.raises(ConfigError, match=r"now it is rank 1 of 3.*or let all ranks call loader.reshard\(rank, world\)"):
            _ = loader.epoch
        loader.load_state_dict(loader.state_dict(before=True))
        assert (loader.rank.world, rows(loader)) == (3, [[2, 3], [8, 9], [14, 15], [20, 21]])


def test_a_pipeline_without_shard_is_told_to_add_it() -> None:
    with numbers().batch(4).loader() as loader, pytest.raises(ConfigError, match=r"no shard\(\).*add \.shard\(\) to it"):
        loader.reshard(0, 2)
    assert str(loader.rank) == "alone"


@pytest.mark.parametrize(
    ("rank", "world", "why"),
    [
        (2, 2, r"reshard\(rank=2, world=2\): rank must be from 0"),
        (-1, 2, "integer >= 0"),
        (0, 0, "integer >= 1"),
        (1.0, 2, "must be an integer"),
        (0, True, "must be an integer"),
        (0, 40, r"60 samples on 40 ranks cannot make a batch of 4; .*remainder='pad'"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(rank: Any, world: Any, why: str) -> None:
    with numbers().shard(0, 2).batch(4).loader() as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(ConfigError, match=why):
            loader.reshard(rank, world)
        assert rows([next(batches)]) == [[8, 9, 10, 11]]


def test_a_closed_loader_is_not_resharded() -> None:
    loader = numbers().shard(0, 2).batch(4).loader()
    loader.close()
    with pytest.raises(ClosedError, match="closed"):
        loader.reshard(0, 1)


def test_a_signal_handler_cannot_reshard_in_the_middle_of_a_batch() -> None:
    refused: list[ConfigError] = []

    def handler(*_: object) -> None:
        with pytest.raises(ConfigError, match="between steps") as caught:
            loader.reshard(0, 3)
        refused.append(caught.value)

    def interrupted(x: Any) -> Any:
        if x == 10:
            signal.raise_signal(signal.SIGUSR1)
        return x

    earlier = signal.signal(signal.SIGUSR1, handler)
    try:
        with numbers(24).map(x=interrupted).shard(0, 2).batch(2).loader(executor="inline") as loader:
            assert [real_ids(batch) for batch in loader] == [[0, 1], [4, 5], [8, 9], [12, 13], [16, 17], [20, 21]]
            assert not refused
            loader.reshard(1, 2)
            assert len(rows(loader)) == 6
            assert len(refused) == 1
    finally:
        signal.signal(signal.SIGUSR1, earlier)
