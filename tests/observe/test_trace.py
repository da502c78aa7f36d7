"""Timelines: valid JSON that says who did what when, whatever happens to the process that writes it."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.batch.written_rows import Report
from stoker.errors import ClosedError, ConfigError, WriteError
from stoker.observe.meters import Meters, Span, StepName
from stoker.observe.stats import ExecutorStats
from stoker.observe.trace_events import TraceEvents

from ..loader.runs import numbers, run_python, spread

SCHEMA = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ph", "name", "pid"],
                "properties": {
                    "ph": {"enum": ["X", "M", "C", "i"]},
                    "name": {"type": "string", "minLength": 1},
                    "pid": {"type": "integer", "minimum": 1},
                    "tid": {"type": "integer", "minimum": 0},
                    "ts": {"type": "integer", "minimum": 0},
                    "dur": {"type": "integer", "minimum": 0},
                    "args": {"type": "object"},
                },
                "allOf": [
                    {
                        "if": {"properties": {"ph": {"const": "X"}}},
                        "then": {"required": ["ts", "dur", "tid"], "properties": {"tid": {"minimum": 1}}},
                    },
                    {
                        "if": {"properties": {"ph": {"const": "M"}}},
                        "then": {
                            "required": ["args"],
                            "properties": {
                                "name": {"enum": ["process_name", "thread_name"]},
                                "args": {"required": ["name"]},
                            },
                        },
                    },
                    {
                        "if": {"properties": {"ph": {"const": "C"}}},
                        "then": {
                            "required": ["ts", "args"],
                            "properties": {"args": {"additionalProperties": {"type": "number"}}},
                        },
                    },
                    {"if": {"properties": {"ph": {"const": "i"}}}, "then": {"required": ["ts", "s"]}},
                ],
            },
        },
    },
}

Events = list[dict[str, Any]]


def events_of(path: Path) -> Events:
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data)
    events: Events = document["traceEvents"]
    return events


def written(events: TraceEvents) -> Events:
    found: Events = json.loads("[0" + "".join(events.take_lines()) + "]")[1:]
    return found


def slices(events: Events) -> Events:
    return [event for event in events if event["ph"] == "X"]


def named(events: Events, kind: str) -> dict[tuple[int, int], str]:
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == kind}


def check_nesting(events: Events) -> None:
    """On each row what begins within a slice ends within it."""
    for _, row in itertools.groupby(sorted(slices(events), key=row_of), key=row_of):
        open_until: list[int] = []
        for event in sorted(row, key=lambda event: (event["ts"], -event["dur"])):
            stop = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or stop <= open_until[-1], event
            open_until.append(stop)


def row_of(event: dict[str, Any]) -> tuple[int, int]:
    return event["pid"], event["tid"]


# ---- what happened so far ------------------------------------------------------------------------------------------------


def latest(loader: Any, path: Path) -> Events:
    loader.trace(path)
    return events_of(path)


def test_the_latest_tasks_and_waits_are_on_the_timeline(tmp_path: Path) -> None:
    with numbers(4000).batch(40).map_batch(spread).loader(threads=2) as loader:
        list(loader)
        events = latest(loader, tmp_path / "trace.json")
    rows = named(events, "thread_name")
    assert rows.pop((1, 1)) == "training loop" and set(rows.values()) <= {"worker 0", "worker 1"}
    assert min(event["ts"] for event in slices(events)) == 0
    assert len([event for event in slices(events) if event["name"] == "wait"]) == 100
    assert len([event for event in slices(events) if event["name"].startswith("join")]) >= 100
    check_nesting(events)


def test_a_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    with numbers().batch(4).loader() as loader:
        assert not slices(latest(loader, tmp_path / "trace.json"))
    assert not slices(latest(loader, tmp_path / "later.json.gz")), "also after close"


def test_a_trace_that_cannot_be_written_says_why_and_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with numbers().batch(4).loader(executor="inline") as loader:
        list(loader)
        write: list[Callable[[Any], Any]] = [loader.trace, lambda path: stoker.observe.trace(loader, path)]
        for trace in write:
            with pytest.raises(WriteError, match="/dev/full: cannot be written: the disk is full"):
                trace("/dev/full")
            with pytest.raises(WriteError, match=r"its folder does not exist; make it first"):
                trace(tmp_path / "no" / "trace.json")
            for name in (5, "", "a\0b"):
                with pytest.raises(ConfigError, match=r"path|file name"):
                    trace(name)
    assert not list(tmp_path.iterdir())


# ---- written as it goes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"threads": 2}, {"processes": 2}, {"executor": "inline"}], ids=["threads", "processes", "inline"]
)
def test_every_task_with_its_steps_and_every_wait_and_step_of_the_loop_is_there(options: Any, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    path = tmp_path / "trace.json"
    with numbers(4000).map(x=abs).batch(40).map_batch(spread).loader(**options) as loader:
        recorded = stoker.observe.trace(loader, path)
        list(loader)
        stats = loader.stats()
    assert recorded.closed and recorded.error is None
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    events = events_of(path)
    check_nesting(events)
    tasks = [event for event in slices(events) if "unit" in event["name"]]
    assert len(tasks) == sum(worker.tasks for worker in stats.by_worker)
    assert {event["args"]["rows"] for event in tasks} >= {40}
    names = {event["name"] for event in slices(events)}
    assert names >= {"wait", "step", "map x"}
    assert len([event for event in slices(events) if event["name"] == "step"]) == 100
    processes, rows = named(events, "process_name"), named(events, "thread_name")
    expected = {"worker process 0", "worker process 1"} if "processes" in options else set()
    assert set(processes.values()) <= {"training", *expected} and bool(expected) == (len(processes) > 1)
    assert {row_of(event) for event in slices(events)} <= set(rows)


def test_counters_show_the_rate_what_is_ready_and_what_is_in_flight() -> None:
    meters = Meters(1)
    events = TraceEvents(meters, 0.0)
    meters.delivered(meters.request(), 50, 100)
    events.loop(1.0, 1.5, 2.0)
    counted = [event for event in written(events) if event["ph"] == "C"]
    assert [(event["name"], *event["args"].items()) for event in counted] == [
        ("samples per second", ("samples", 25)),
        ("units ready", ("units", 0)),
        ("bytes in flight", ("bytes", 0)),
    ]


def test_hand_overs_lie_within_waits_and_workers_that_are_moved_in_their_processes() -> None:
    meters = Meters(2)
    events = TraceEvents(meters, 10.0, rank=2)
    meters.handed_over(0.25)
    events.loop(11.0, 12.0, 13.0)
    events.loop(11.0, 12.0, 13.5)  # again, because the request failed
    events.task(Span(1, 0, 0, 12.0, 12.5), (), None)
    meters.moved(4, ExecutorStats("processes", 2, 2))
    events.task(Span(3, 1, 0, 13.0, 13.5), (), None)
    events.task(Span(0, 2, 0, 9.0, 13.5), (), None)  # begun before the trace
    lines = written(events)
    shown = [(event["name"], row_of(event), event["ts"], event["dur"]) for event in slices(lines)]
    assert shown == [
        ("wait", (2001, 1), 1_000_000, 1_000_000),
        ("hand over", (2001, 1), 1_750_000, 250_000),
        ("step", (2001, 1), 2_000_000, 1_000_000),
        ("unit 0", (2001, 3), 2_000_000, 500_000),
        ("unit 1", (2003, 5), 3_000_000, 500_000),
    ]
    assert named(lines, "process_name") == {(2003, 0): "worker process 1"}
    assert named(lines, "thread_name") == {(2001, 1): "training loop", (2001, 3): "worker 1", (2003, 5): "worker 3"}


def test_the_file_opens_while_it_grows_and_after_its_process_was_killed(tmp_path: Path) -> None:
    script = """
import sys, time
import numpy as np, stoker
import stoker.observe.trace_events as events
events._NOTED = 20
loader = stoker.arrays(x=np.arange(100_000)).batch(10).loader()
traces = [stoker.observe.trace(loader, path) for path in sys.argv[1:]]
for number, batch in enumerate(loader):
    if number == 3000:
        print("now", flush=True)
        time.sleep(100)
"""
    paths = [tmp_path / "trace.json", tmp_path / "trace.json.gz"]
    command = [sys.executable, "-c", script, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "now\n"
        growing = [len(events_of(path)) for path in paths]
        child.send_signal(signal.SIGKILL)
    assert [len(events_of(path)) for path in paths] == growing
    assert min(growing) > 1000


def test_a_program_that_ends_without_closing_anything_leaves_a_whole_trace(tmp_path: Path) -> None:
    script = f"""
import numpy as np, stoker
loader = stoker.arrays(x=np.arange(100)).batch(10).loader()
stoker.observe.trace(loader, {str(tmp_path / "exit.json")!r})
list(loader)
"""
    done = run_python(script)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert len([event for event in slices(events_of(tmp_path / "exit.json")) if event["name"] == "step"]) == 10


def test_a_loader_that_is_dropped_ends_its_trace_and_one_that_is_closed_gets_none(tmp_path: Path) -> None:
    loader = numbers().batch(4).loader(executor="inline")
    recorded = stoker.observe.trace(loader, tmp_path / "trace.json")
    list(loader)
    del loader
    assert recorded.closed and len(slices(events_of(tmp_path / "trace.json"))) > 15
    with numbers().batch(4).loader(executor="inline") as loader:
        pass
    with pytest.raises(ClosedError, match="this loader is closed"):
        stoker.observe.trace(loader, tmp_path / "late.json")
    with pytest.raises(ConfigError, match="must be a loader, as pipeline"):
        stoker.observe.trace(numbers().batch(4), tmp_path / "late.json")  # type: ignore[arg-type]
    assert not (tmp_path / "late.json").exists()


def test_a_forked_child_leaves_the_trace_alone(tmp_path: Path) -> None:
    with numbers(4000).batch(4).loader(executor="inline") as loader:
        stoker.observe.trace(loader, tmp_path / "trace.json")
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if not child:
            list(iterator)
            loader.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        list(iterator)
    steps = [event for event in slices(events_of(tmp_path / "trace.json")) if event["name"] == "step"]
    assert len(steps) == 1000


def test_recording_ends_after_so_many_bytes_or_seconds_and_says_so(tmp_path: Path) -> None:
    with numbers(4000).batch(4).loader(executor="inline") as loader:
        small = stoker.observe.trace(loader, tmp_path / "small.json", most="50KB")
        short = stoker.observe.trace(loader, tmp_path / "short.json", seconds=1e-9)
        list(loader)
        assert small.closed and short.closed and loader._meters.sinks == ()
    for name, words in (("small", "reached its maximum size"), ("short", "1e-09 seconds have passed")):
        path = tmp_path / f"{name}.json"
        assert words in events_of(path)[-1]["name"]
        assert path.stat().st_size < 500_000
    with pytest.raises(ConfigError, match="must be a number of seconds above 0"):
        stoker.observe.trace(loader, tmp_path / "never.json", seconds=0)


def test_a_full_disk_ends_the_trace_and_not_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with numbers(4000).batch(4).loader(executor="inline") as loader:
        recorded = stoker.observe.trace(loader, tmp_path / "trace.json")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, recorded._file._fd)
        os.close(full)
        assert len(list(loader)) == 1000
    assert isinstance(recorded.error, WriteError) and "training continues" in caplog.text
    assert "What was written of it is incomplete" in str(recorded.error), "and is not gone"


def test_many_spans_take_little_memory(tmp_path: Path) -> None:
    report = Report(2)
    report.seconds, report.rows = [0.001, 0.002], 32
    steps = [StepName("read", "read"), StepName("image jpg")]
    path, most = tmp_path / "trace.json.gz", 0
    with numbers().batch(4).loader(executor="inline") as loader, stoker.observe.trace(loader, path) as recorded:
        base_s, before = time.monotonic(), sys.getallocatedblocks()
        for number in range(70_000):
            start_s = base_s + number / 1000
            recorded.task(Span(number % 4, number, 0, start_s, start_s + 0.0035), steps, report)
            if number % 777 == 0:
                most = max(most, sys.getallocatedblocks() - before)
    assert most < 20_000, "of 210,000 spans those are in memory that are not written yet"
    text = gzip.decompress(path.read_bytes())
    assert text.count(b'"ph":"X"') == 210_000 and len(text) / 210_000 < 110


def test_steps_are_within_their_task_and_in_order_whatever_clocks_said() -> None:
    events = TraceEvents(Meters(2), 0.0)
    steps = [StepName('100 % "sure"'), StepName("read", "read"), StepName("late"), StepName("unheard of")]
    report = Report(0)
    for seconds in ([0.25, 0.0, 0.5], [0.25, -0.1, 9.0, 1.0], [0.0, 0.0, 0.0, 0.0], []):
        report.seconds = seconds
        events.task(Span(0, 7, 0, 1.0, 2.0), steps, report)
    events.task(Span(1, 8, -1, 1.0, 2.0), steps, None)
    shown = [(event["name"], event["tid"], event["ts"], event["dur"], event.get("args")) for event in slices(written(events))]
    unit = ("unit 7", 2, 1_000_000, 1_000_000, {"rows": 0})
    assert shown == [
        unit,
        ('100 % "sure"', 2, 1_000_000, 250_000, None),
        ("late", 2, 1_250_000, 500_000, None),
        unit,
        ('100 % "sure"', 2, 1_000_000, 250_000, None),
        ("late", 2, 1_250_000, 750_000, None),
        unit,
        unit,
        ("join unit 8", 3, 1_000_000, 1_000_000, None),
    ]


def test_there_may_be_more_steps_than_a_number_has_bits() -> None:
    events = TraceEvents(Meters(1), 0.0)
    steps = [StepName(f"map {number}") for number in range(100)]
    report = Report(100)
    report.seconds = [0.0, 0.001] * 50
    events.task(Span(0, 0, 0, 1.0, 2.0), steps, report)
    names = [event["name"] for event in slices(written(events))]
    assert names == ["unit 0", *(f"map {number}" for number in range(1, 100, 2))]


def test_the_trace_opens_in_perfettos_own_trace_processor(tmp_path: Path) -> None:
    """It needs a program that the package downloads."""
    perfetto = pytest.importorskip("perfetto.trace_processor")
    path = tmp_path / "trace.json"
    with numbers(400).batch(4).loader(threads=2) as loader, stoker.observe.trace(loader, path):
        list(loader)
    try:
        processor = perfetto.TraceProcessor(trace=str(path))
    except Exception as error:
        pytest.skip(f"its trace processor does not run here: {error}")
    with processor:
        counted = next(iter(processor.query("select count(*) as n from slice"))).n
        errors = next(iter(processor.query("select sum(value) as n from stats where severity = 'error'"))).n
    assert (counted, errors) == (len(slices(events_of(path))), 0)
