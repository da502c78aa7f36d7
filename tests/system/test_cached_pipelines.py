"""Random pipelines with a cache somewhere in them give what the naive oracle says, which knows nothing of caches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stoker import Pipeline
from stoker.errors import ConfigError
from stoker.plan.nodes import Batch, Cached
from stoker.storage import sample_cache

from . import random_pipelines
from .random_pipelines import case_of, check, pipeline_of
from .stored_samples import Shelf

#: seeds of one test, and how many tests there are
EACH, TESTS = 15, 4


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("stored"))


def cached(pipeline: Pipeline, rng: random.Random, folder: Path) -> Pipeline:
    """The pipeline with a cache at one of the places where it may be; none, if there is no such place."""
    nodes = pipeline._nodes
    stop = next((at for at, node in enumerate(nodes) if isinstance(node, Batch)), len(nodes))
    where, nbytes = rng.choice(("memory", str(folder))), rng.choice((1, 5 * 4096, 1 << 20))
    for at in rng.sample(range(stop + 1), stop + 1):
        made = Pipeline(pipeline._source, (*nodes[:at], Cached(where, nbytes), *nodes[at:]))
        try:
            made.plan
        except ConfigError as error:
            if "cache(" not in str(error):
                raise
        else:
            return made
    return pipeline


@pytest.mark.parametrize("first", range(0, EACH * TESTS, EACH))
def test_batches_states_and_errors_are_the_same_with_a_cache(
    first: int, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_cache, "_ALONE", 1)  # every value has a page of its own, so that small ones are removed too
    for seed in range(first, first + EACH):
        case, folder = case_of(seed, shelf), tmp_path / str(seed)

        def with_cache(*args: Any, seed: int = seed, folder: Path = folder) -> Pipeline:
            return cached(pipeline_of(*args), random.Random(seed), folder)

        monkeypatch.setattr(random_pipelines, "pipeline_of", with_cache)
        try:
            check(case, shelf)
        except Exception as error:
            raise AssertionError(f"seed {seed}, with a cache: {case}") from error
