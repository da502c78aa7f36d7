"""Ranks that join, leave and change places in the middle of an epoch: every sample is handed out exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import Pipeline

from ..loader.runs import numbers, odd, real_ids, samples, two_of_three
from ..source.making import sample_tar
from ..storage.server import Server
from .elastic_crew import MakeRank, RankCrew
from .naive_oracle import INLINE, Ranks, deal, given, samples_of, steps_of
from .pipeline_specs import Repeat, Skip, Take
from .random_pipelines import WAYS, Case, agree, case_of, pipeline_of, plain_batch
from .stored_samples import Shelf

#: played by `make faults` alone
LONG = (pytest.mark.faults, pytest.mark.thorough)


def ids(batches: list[Any]) -> list[int]:
    return [x for batch in batches for x in real_ids(batch)]


def ranks_of(base: Pipeline, size: int, remainder: str = "keep", **how: Any) -> MakeRank:
    return lambda rank, world: base.shard(rank, world, remainder).batch(size).loader(**(how or INLINE))


@pytest.mark.parametrize(("remainder", "most"), [("keep", 1000), ("pad", 300), ("drop", 300)])
def test_a_thousand_reshards_in_one_epoch(remainder: str, most: int) -> None:
    """Every step is the one that plain lists give: the next rows of the order, dealt to the ranks there are by then."""
    rng, size, n = random.Random(5), 2, 9 * most
    base = numbers(n).shuffle(seed=3)
    with base.batch(n).loader(**INLINE) as whole:
        (every,) = (batch["x"].tolist() for batch in whole)
    seen, changes, row = list[int](), 0, 0
    with RankCrew(ranks_of(base, size, remainder), 3) as crew:
        while changes < most or remainder != "drop":
            if changes < most:
                crew.change(rng, rng.randint(1, 5))
                changes += 1
            for _ in range(rng.randint(0, 2) if changes < most else n):
                batches = crew.step()
                if batches is None:
                    break
                wanted = every[row : row + size * crew.world]
                got = ids(batches)
                assert got == wanted, (row, crew.world)
                seen, row = seen + got, row + len(wanted)
                assert crew.row == row
            else:
                continue
            break
    assert changes == most
    assert seen == every[: len(seen)]
    assert remainder == "drop" or len(seen) == n


#: pipelines of which a batch's rows are not known by arithmetic, or that come in several passes; all have few samples
KINDS: dict[str, Callable[[], Pipeline]] = {
    "filter": lambda: numbers(90).shuffle(seed=3).filter(odd),
    "filter, counted again": lambda: numbers(90).filter(two_of_three).take(50),
    "flat_map": lambda: numbers(40).shuffle(seed=3).flat_map(lambda s: [{"x": s["x"] * 10 + part} for part in range(s["x"] % 4)]),
    "stream": lambda: stoker.stream(samples).shuffle(seed=2, window=9),
    "two passes": lambda: numbers(31).shuffle(seed=3).repeat(2),
    "cached": lambda: numbers(60).shuffle(seed=3).map(x=lambda x: x).cache("memory"),
}


@pytest.mark.parametrize("how", [INLINE, {"threads": 2}, {"threads": 2, "ahead": 1}], ids=["inline", "threads", "one ahead"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_pipeline_is_dealt_again(kind: str, how: dict[str, Any]) -> None:
    base, rng = KINDS[kind](), random.Random(3)
    every = [int(sample["x"]) for sample in base]
    seen: list[int] = []
    with RankCrew(ranks_of(base, 3, **how), 2) as crew:
        while (batches := crew.step()) is not None:
            seen += ids(batches)
            crew.change(rng, rng.randint(1, 4))
    assert seen == every


def test_what_is_fetched_ahead_goes_on_with_the_new_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    rng, seen = random.Random(3), list[int]()
    with Server() as server:
        shards = [sample_tar([(f"{shard}-{at}", {"cls": b"%d" % (shard * 20 + at)}) for at in range(20)]) for shard in range(3)]
        urls = [server.put(f"/{number}.tar", shard) for number, shard in enumerate(shards)]
        base = stoker.tar(urls, cache=stoker.Cache(tmp_path / "cache", "1GB")).shuffle(seed=3).rename(x="cls")
        with RankCrew(ranks_of(base, 2, threads=1), 2) as crew:
            while (batches := crew.step()) is not None:
                seen += ids(batches)
                crew.change(rng, rng.randint(1, 3))
    assert sorted(seen) == list(range(60))


def test_processes_are_dealt_other_rows_too() -> None:
    base, rng = numbers(200).shuffle(seed=3), random.Random(3)
    with base.shard(0, 2, "keep").batch(3).loader(processes=1) as mine, base.shard(1, 2, "keep").batch(3).loader() as other:
        seen: list[int] = []
        world = 2
        others = iter(other)
        for batch in mine:
            if world == 2:
                seen += real_ids(batch) + real_ids(next(others))
            else:
                seen += real_ids(batch)
            world = rng.choice((1, 2))
            mine.reshard(0, world)
            other.reshard(world - 1, world)
            if world == 2 and mine.state_dict() != other.state_dict():
                other.load_state_dict(mine.state_dict())
                others = iter(other) if other.epoch == 0 else iter(())
        assert seen == [int(sample["x"]) for sample in base]


@pytest.mark.parametrize("first", [*range(0, 120, 40), *(pytest.param(n, marks=LONG) for n in range(120, 600, 40))])
def test_random_pipelines_are_dealt_again_as_the_oracle_says(first: int, shelf: Shelf) -> None:
    for seed in range(first, first + 40):
        case = case_of(seed, shelf)
        if case.spec.batch is None or any(isinstance(verb, (Take, Skip, Repeat)) for verb in case.spec.behind):
            continue  # without batches ranks may differ by a sample; and what counts batches counts those of all ranks
        try:
            check_random(case, random.Random(seed), shelf)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {case}") from error


def check_random(case: Case, rng: random.Random, shelf: Shelf) -> None:
    """Steps of a random pipeline, between which ranks change at random."""
    spec, ranks = case.spec, replace(case.ranks, world=rng.randint(1, 4))
    if not steps_of(spec, ranks, shelf.rows, case.epoch):
        return
    rows = samples_of(spec, shelf.rows, case.epoch)
    names = next((list(row.values) for row in rows if not row.bad), [])

    def make(rank: int, world: int) -> Any:
        pipeline = pipeline_of(spec, shelf, replace(ranks, world=world), rank, rng.choice(("first", "last")))
        return pipeline.loader(**dict(rng.choice(WAYS)), epoch=case.epoch)

    row = 0
    with RankCrew(make, ranks.world, case.epoch) as crew:
        while True:
            world = rng.randint(1, 4)
            # What a world gives nothing of in a whole epoch is refused, and where all of a batch is bad the epoch ends.
            if rng.random() < 0.7 and _can_be(spec, replace(ranks, world=world), rows, row):
                ranks = replace(ranks, world=world)
                crew.change(rng, world)
            batches = crew.step()
            steps = deal(rows[row:], spec.batch, ranks, row)
            if not steps or batches is None:
                assert not steps and batches is None, (row, ranks)
                return
            for rank, batch in enumerate(batches):
                agree(f"row {row}, rank {rank} of {ranks}", plain_batch(batch), given(spec, steps[0].shares[rank], names))
            row = steps[0].end
            assert crew.row == row


def _can_be(spec: Any, ranks: Ranks, rows: list[Any], row: int) -> bool:
    dealt = [step for start in (0, row) for step in deal(rows[start:], spec.batch, ranks, start)]
    return bool(deal(rows, spec.batch, ranks, 0)) and not any(
        all(one.bad for one, _ in share) for step in dealt for share in step.shares
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("stored"))
