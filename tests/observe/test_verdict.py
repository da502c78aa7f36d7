"""The verdict: one text for each kind of limit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stoker.observe.meters import ExecutorStats, Stats
from stoker.observe.verdict import verdict

from ..loader.runs import numbers


def stats(**changes: Any) -> Stats:
    known: dict[str, Any] = {
        "batches": 101, "samples": 10_100, "first_samples": 100, "bytes": 101_000_000, "elapsed_s": 10.0, "waited_s": 0.1,
        "task_s": 8.0, "cpu_s": 7.9, "workers": 2, "steps_s": {"read": 1.0, "image jpg": 6.0, "map f": 0.9},
    }  # fmt: skip
    return Stats(**{**known, **changes})


#: the loop waits, workers are in tasks and hardly on a core: here four of them, that use 2 of 16 cores
WAITING: dict[str, Any] = {
    "waited_s": 8.0,
    "workers": 4,
    "task_s": 39.0,
    "cpu_s": 20.0,
    "process_s": 21.0,
    "cores": 16,
    "worked": 10_000,
}

CASES: dict[str, tuple[Stats, str]] = {
    "the training loop": (stats(), "training loop is the limit"),
    "idle workers": (stats(waited_s=8.0, task_s=3.0), "Workers were idle 85%"),
    "computing": (stats(waited_s=8.0, task_s=19.0, cpu_s=18.5), r"workers are the limit.*image jpg \(76%\)"),
    "computing a little": (stats(**WAITING | {"cpu_s": 38.0}), "computing all the time"),
    "waiting for storage": (
        stats(waited_s=8.0, task_s=19.0, cpu_s=4.0, steps_s={"read": 18.0, "map f": 1.0}),
        "storage.*threads",
    ),
    "a Python function": (
        stats(waited_s=8.0, task_s=19.0, cpu_s=4.0, process_s=10.0, steps_s={"map f": 18.0}), "function holds the interp"
    ),
    "a function that waits": (
        stats(waited_s=8.0, task_s=19.0, cpu_s=0.6, process_s=1.0, steps_s={"map f": 18.0}), "waits for something outside"
    ),
    "a function over batches": (stats(**WAITING | {"steps_s": {"map_batch f": 30.0, "read": 9.0}}), "function holds the interp"),
    "more threads than cores": (
        stats(**WAITING | {"workers": 8, "task_s": 70.0, "cores": 2, "cpu_s": 19.0, "queued_s": 50.0}),
        r"the loader has 8 threads on 2 cores, and they take turns; `threads=2` does as much. .*image jpg \(76%\)",
    ),
    "more processes than cores": (
        stats(
            **WAITING
            | {"workers": 8, "task_s": 70.0, "cores": 2, "cpu_s": 19.0, "executor": ExecutorStats("processes", 8, 1)}
        ),
        r"the loader has 8 processes on 2 cores, and they take turns; `processes=2, threads=1` does as much",
    ),
    "more threads than cores, and files in memory": (
        stats(**WAITING | {"workers": 8, "task_s": 70.0, "cores": 2, "cpu_s": 19.0, "steps_s": {"read": 70.0}}),
        r"8 threads on 2 cores.*read \(100%\)",
    ),
    "Pillow and its lock": (
        stats(**WAITING | {"workers": 16, "task_s": 160.0, "cpu_s": 67.0, "pillow": 10_000, "queued_s": 1.0}),
        "10,000 images of 10,000 samples were decoded by Pillow.*interpreter lock.*JPEG.*more than 7 threads will not help",
    ),
    "Pillow, and nothing in its way": (stats(**WAITING | {"cpu_s": 38.0, "pillow": 9_000}), "limit.*9,000 images.*Pillow"),
    "a training loop in Python": (stats(**WAITING | {"cpu_s": 10.0, "queued_s": 0.5}), "Python code elsewhere.*the training"),
    "other programs": (stats(**WAITING | {"cpu_s": 10.0, "queued_s": 25.0}), r"other programs took them.* used 2\.1 of 16"),
    "other programs, and more threads than cores": (
        stats(**WAITING | {"cores": 2, "cpu_s": 5.0, "process_s": 5.5, "queued_s": 30.0}), r"used 0\.6 of 2\. The loader itself"
    ),
    "other programs, while files are read": (
        stats(**WAITING | {"cpu_s": 10.0, "queued_s": 25.0, "steps_s": {"read": 39.0}}), "other programs took them"
    ),
    "the training itself": (
        stats(**WAITING | {"cpu_s": 10.0, "queued_s": 25.0, "process_s": 150.0}), r"the training itself, used 14\.0 of 16"
    ),
    "a function in processes of several threads": (
        stats(**WAITING | {"steps_s": {"map f": 30.0}, "executor": ExecutorStats("processes", 2, 2)}), "more processes help"
    ),
    "reads in processes": (
        stats(**WAITING | {"steps_s": {"read": 30.0}, "executor": ExecutorStats("processes", 4, 1)}), "more threads per process"
    ),
    "processes, after threads that waited for a core": (
        stats(**WAITING | {"cpu_s": 10.0, "queued_s": 25.0, "executor": ExecutorStats("processes", 4, 1)}),
        "more threads per process",
    ),
    "work that was moved": (
        stats(executor=ExecutorStats("processes", 2, 1, 30, "functions hold the lock", 1)),
        r"the limit: .* Work runs in 2 processes since batch 30: functions hold the lock\.$",
    ),
    "work that was not moved": (
        stats(executor=ExecutorStats("threads", 0, 2, 0, "one worker for each core")), "Work runs in 2 threads: one worker for"
    ),
    "cores or the lock, which nobody can tell": (stats(waited_s=8.0, task_s=19.0, cpu_s=4.0), "took the cores, or Python"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_limit_is_named(name: str) -> None:
    found, told = CASES[name]
    text = verdict(found)
    assert re.search(told, text), text
    assert "1,000 samples/s" in text and "10.0 MB/s" in text and "10.0 s" in text


@pytest.mark.parametrize("name", CASES)
def test_where_nothing_is_trained_no_verdict_speaks_of_training(name: str) -> None:
    text = verdict(CASES[name][0], training=False)
    assert not re.search("training|loop", text), text
    assert name != "the training loop" or "handing them out is the limit" in text


def test_bad_samples_are_mentioned_only_when_there_were_some() -> None:
    assert "left out" not in verdict(stats())
    assert "3 bad samples" in verdict(stats(skipped=3))
    assert "1 bad sample " in verdict(stats(skipped=1))


@pytest.mark.parametrize("few", [Stats(), Stats(batches=1, samples=4), Stats(batches=5)], ids=["nothing", "one batch", "no time"])
def test_too_little_is_said_to_be_too_little(few: Stats) -> None:
    assert "Too little" in verdict(few)


def test_bytes_that_nobody_counted_are_not_told() -> None:
    assert "(10.0 MB/s)" in verdict(stats()) and "B/s" not in verdict(stats(bytes=0))


def test_a_verdict_without_steps_or_tasks_is_still_a_sentence() -> None:
    for changes in (
        {"steps_s": {}},
        {"steps_s": {}, "task_s": 0.0, "waited_s": 9.0},
        {"steps_s": {}, "waited_s": 9.0, "task_s": 19.0},
    ):
        assert verdict(stats(**changes)).endswith(".")


def test_a_real_run_has_a_verdict() -> None:
    with numbers(4000).batch(4).loader(threads=2) as loader:
        assert "Too little" in loader.why()
        list(loader)
        assert "samples/s" in loader.why() and "waited" in loader.why()
