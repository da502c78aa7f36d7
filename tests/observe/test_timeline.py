"""Timelines: who did what when, as data and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import stoker
from stoker.observe.meters import Meters, Span, StepName
from stoker.observe.timeline import Bar, Timeline, TimelineRecorder, TimelineRow, recorded
from stoker.observe.timeline_svg import colours, time_text, timeline_svg

STEPS = (StepName("read", "read"), StepName("image jpg"))


class Costs:
    """What a task says it took."""

    rows, read_bytes, queued_s, lock_s = 4, 0, 0.0, -1.0

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.cpu_s, self.nbytes = list(seconds), list(seconds), [0] * len(seconds)


def recorder_of_a_run() -> TimelineRecorder:
    recorder = TimelineRecorder()
    recorder.task(Span(1, 0, 0, 10.0, 11.0), STEPS, Costs(0.25, 0.5))
    recorder.task(Span(0, 0, 1, 10.5, 11.5), STEPS, None)
    recorder.loop(10.0, 11.5, 13.0)
    recorder.loop(13.0, 13.0, 14.0)
    return recorder


def test_a_task_is_its_steps_one_after_another_on_the_row_of_its_worker() -> None:
    timeline = recorder_of_a_run().timeline()
    assert timeline.length_s == 4.0
    assert [row.name for row in timeline.rows] == ["loop", "worker 0", "worker 1"]
    assert timeline.rows[0].bars == (Bar("wait", 0.0, 1.5), Bar("step", 1.5, 3.0), Bar("step", 3.0, 4.0))
    assert timeline.rows[1].bars == (Bar("other", 0.5, 1.5),)
    assert timeline.rows[2].bars == (Bar("read", 0.0, 0.25), Bar("image jpg", 0.25, 0.75), Bar("other", 0.75, 1.0))
    assert timeline.names == ["step", "wait", "read", "image jpg", "other"]


def test_a_part_of_a_run_is_cut_at_its_ends() -> None:
    part = recorder_of_a_run().timeline(11.0, 13.5)
    assert part.rows[0].bars == (Bar("wait", 0.0, 0.5), Bar("step", 0.5, 2.0), Bar("step", 2.0, 2.5))
    assert [row.name for row in part.rows] == ["loop", "worker 0"]


def test_a_recorder_keeps_the_latest() -> None:
    recorder = TimelineRecorder(most=2)
    for at in range(5):
        recorder.loop(float(at), at + 0.5, at + 1.0)
    assert recorder.timeline().length_s == 2.0


def test_a_cell_is_what_took_most_of_it() -> None:
    row = TimelineRow("worker 0", (Bar("read", 0.0, 0.4), Bar("image", 0.4, 2.2), Bar("read", 3.9, 4.0)))
    assert row.cells(4.0, 4) == ["image", "image", "", ""]
    assert row.cells(4.0, 1) == ["image"]
    assert row.seconds() == {"read": pytest.approx(0.5), "image": pytest.approx(1.8)}


def test_a_loader_is_heard_only_meanwhile() -> None:
    pipeline = stoker.arrays(x=np.arange(64)).map(lambda sample: sample).batch(8)
    with pipeline.loader(threads=1) as loader:
        meters: Meters = loader._meters
        with recorded(meters) as recorder:
            list(loader)
            list(loader)
        assert not meters.sinks
        timeline = recorder.timeline()
    assert [row.name for row in timeline.rows] == ["loop", "worker 0"]
    assert {"wait", "step", "read"} <= set(timeline.names)


def test_a_picture_has_a_row_and_a_title_for_each_and_an_axis_with_its_unit() -> None:
    timeline = recorder_of_a_run().timeline()
    text = timeline_svg([("serial <1>", timeline), ("parallel", timeline)])
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("loop") == words.count("worker 1") == 2
    assert {"serial <1>", "parallel", "0 s", "4 s", "step of the loop", "read"} <= set(words)
    assert "prefers-color-scheme:dark" in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_long_run_makes_no_large_picture() -> None:
    bars = tuple(Bar(("read", "image jpg")[at % 2], at / 1e5, (at + 1) / 1e5) for at in range(100_000))
    assert len(timeline_svg([("", Timeline((TimelineRow("worker 0", bars),), 1.0))])) < 60_000
    assert timeline_svg([("nothing", Timeline())])


def test_reading_and_decoding_always_have_their_colours() -> None:
    assert colours(["image jpg", "map f", "read"]) == {"image jpg": "tl-decode", "map f": "tl-a", "read": "tl-read"}
    assert [time_text(seconds) for seconds in (2e-6, 0.0123, 2.0)] == ["2 us", "12.3 ms", "2.00 s"]
