"""A thousand random pipelines give what the naive oracle says, batch by batch: the same ones in every run.

`make soak` goes on with others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stoker

from .naive_oracle import Row, shuffled
from .pipeline_specs import Shuffle
from .random_pipelines import Case, case_of, check, failure_of, report, smallest
from .stored_samples import KINDS, SIZES, Shelf

#: seeds of one test, and how many tests there are
EACH, TESTS = 50, 20


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("stored"))


#: the second half is played by `make faults` alone
FIRSTS = [
    pytest.param(first, marks=[pytest.mark.faults, pytest.mark.thorough] if first >= EACH * TESTS // 2 else [])
    for first in range(0, EACH * TESTS, EACH)
]


@pytest.mark.parametrize("first", FIRSTS)
def test_random_pipelines_give_what_the_oracle_says(first: int, shelf: Shelf) -> None:
    for seed in range(first, first + EACH):
        wrong = report(seed, shelf)
        assert wrong is None, wrong


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_holds_what_the_oracle_thinks(kind: str, shelf: Shelf) -> None:
    n = SIZES.get(kind, 5)
    with shelf.open(kind, n).loader(executor="inline") as samples:
        assert [sample.key for sample in samples] == [row.key for row in shelf.rows(kind, n)]


def test_the_oracle_shuffles_as_stoker_does() -> None:
    for verb in (Shuffle(3), Shuffle(3, 3), Shuffle(3, 4), Shuffle(3, 9)):
        rows = [Row(str(at), at, {}) for at in range(41)]
        with stoker.arrays(x=np.arange(41)).shuffle(seed=3, window=verb.window).loader(executor="inline") as samples:
            for epoch in range(2):
                assert [row.index for row in shuffled(verb, rows, epoch, ())] == [int(sample["x"]) for sample in samples]


def test_a_case_is_made_from_its_seed_alone(shelf: Shelf, tmp_path: Path) -> None:
    assert [case_of(seed, shelf) for seed in range(20)] == [case_of(seed, Shelf(tmp_path)) for seed in range(20)]


def test_a_failure_is_reported_with_its_seed_its_code_and_a_smaller_one(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(case: Case, shelf: Shelf) -> None:
        check(case, shelf)
        assert ".filter(" not in str(case), "no filters"

    monkeypatch.setattr("tests.system.random_pipelines.check", wrong)
    seed = next(seed for seed in range(100) if failure_of(case_of(seed, shelf), shelf) is not None)
    text = report(seed, shelf)
    assert text is not None and f"--seed {seed}" in text and "no filters" in text
    error = failure_of(case_of(seed, shelf), shelf)
    assert error is not None
    assert len(smallest(case_of(seed, shelf), shelf, error).spec.verbs) == 1
