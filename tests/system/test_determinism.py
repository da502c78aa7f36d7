"""One hash over all batches of three epochs, whoever computed them and however the work was cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.engine.feed import Pace
from stoker.loader import front

from ..loader.runs import PIPELINES, SINGLES, image_pipelines, sha_of_run

#: two threads: see the contract of executors
THREADS: list[dict[str, Any]] = [{"threads": 1}, {"threads": 8}, {"threads": 3, "ahead": 1}, {"threads": 2, "memory": 1}]
KINDS = [*PIPELINES, *SINGLES]


def pipeline_of(kind: str) -> Any:
    return PIPELINES[kind](7) if kind in PIPELINES else SINGLES[kind]()


@pytest.fixture(scope="module")
def inline() -> dict[str, str]:
    """What the oracle gives: no threads at all."""
    return {kind: sha_of_run(pipeline_of(kind), executor="inline") for kind in KINDS}


@pytest.mark.parametrize("how", THREADS[:2], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_gives_the_same_batches(kind: str, how: dict[str, Any], inline: dict[str, str]) -> None:
    assert sha_of_run(pipeline_of(kind), **how) == inline[kind]


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_any_size_of_task_gives_the_same_batches(
    kind: str, rows: int, inline: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: rows)
    assert sha_of_run(pipeline_of(kind), threads=3) == inline[kind]


@pytest.mark.parametrize("how", THREADS[2:], ids=str)
@pytest.mark.parametrize("kind", ["shuffled", "map_batch", "pad", "filter", "two segments", "stream", "single"])
def test_little_memory_and_little_looking_ahead_give_the_same_batches(
    kind: str, how: dict[str, Any], inline: dict[str, str]
) -> None:
    assert sha_of_run(pipeline_of(kind), **how) == inline[kind]


@pytest.mark.parametrize("seconds", [1e-9, 1e-4, 10.0])
@pytest.mark.parametrize("kind", ["shuffled", "pad", "flat_map", "stream, window, filter", "single"])
def test_any_pace_gives_the_same_batches(
    kind: str, seconds: float, inline: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "TASK_S", seconds)
    monkeypatch.setattr(Pace, "GROUP_S", seconds)
    assert sha_of_run(pipeline_of(kind), threads=2) == inline[kind]


@pytest.mark.parametrize("rows", [1, 5, 1000])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not pipeline_of(kind).plan.counted])
def test_any_size_of_chunk_on_the_way_gives_the_same_batches(
    kind: str, rows: int, inline: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "ROWS", rows)
    assert sha_of_run(pipeline_of(kind), threads=2) == inline[kind]


def test_images_are_the_same_to_the_last_bit(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, pipeline in image_pipelines(image_folder).items():
        expected = sha_of_run(pipeline, executor="inline")
        for how in THREADS:
            assert sha_of_run(pipeline, **how) == expected, (kind, how)
        for rows in (1, 3, 1000):
            with monkeypatch.context() as patch:
                patch.setattr(Pace, "task_rows", lambda self, unit_rows, rows=rows: rows)
                assert sha_of_run(pipeline, threads=2) == expected, (kind, rows)


def test_the_hash_notices_what_it_should(inline: dict[str, str]) -> None:
    assert len(set(inline.values())) == len(inline), "all these pipelines are different"
    for kind in ("shuffled", "map with numbers", "stream"):
        assert sha_of_run(pipeline_of(kind), epochs=2) != inline[kind]
    assert sha_of_run(pipeline_of("shuffled"), epoch=1) != inline["shuffled"]
