"""Timelines: valid JSON that says who did what when."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ConfigError, WriteError

from ..loader.runs import numbers, spread


def trace_of(loader: Any, path: Path) -> list[dict[str, Any]]:
    loader.trace(path)
    document = json.loads(path.read_text())
    assert document["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_tasks_and_waits_are_on_the_timeline(tmp_path: Path) -> None:
    with numbers(4000).batch(40).map_batch(spread).loader(threads=2) as loader:
        list(loader)
        events = trace_of(loader, tmp_path / "trace.json")
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names[0].startswith("training loop") and set(names.values()) <= {names[0], "worker 0", "worker 1"}
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["tid"] in names for event in spans)
    assert min(event["ts"] for event in spans if event["tid"] > 0) == 0
    assert len([event for event in spans if event["name"] == "wait"]) == 99
    assert len([event for event in spans if event["name"].startswith("join")]) >= 100
    for worker in range(1, len(names)):
        own = sorted((event["ts"], event["dur"]) for event in spans if event["tid"] == worker)
        assert all(start + length <= later + 1 for (start, length), (later, _) in itertools.pairwise(own)), "one task at a time"


def test_a_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    with numbers().batch(4).loader() as loader:
        assert len(trace_of(loader, tmp_path / "trace.json")) == 1
    assert len(trace_of(loader, tmp_path / "later.json")) == 1, "also after close"


def test_a_trace_that_cannot_be_written_says_why_and_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with numbers().batch(4).loader(executor="inline") as loader:
        list(loader)
        with pytest.raises(WriteError, match="/dev/full: cannot be written: the disk is full"):
            loader.trace("/dev/full")
        with pytest.raises(WriteError, match=r"its folder does not exist; make it first"):
            loader.trace(tmp_path / "no" / "trace.json")
        for name in (5, "", "a\0b"):
            with pytest.raises(ConfigError, match=r"path|name of a file"):
                loader.trace(name)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
