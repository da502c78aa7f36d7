"""The view of a loader in a terminal."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from stoker.observe import terminal_view
from stoker.observe.loader_view import Glance, LoaderView
from stoker.observe.stats import Moment, Stats, StepStats
from stoker.observe.terminal_view import TerminalView, blocks, frame, line, sparks

from ..loader.runs import numbers

STATS = Stats(
    batches=10,
    samples=1000,
    first_samples=100,
    elapsed_s=1.0,
    waited_s=0.4,
    workers=2,
    cores=4,
    steps=(StepStats("read", "read", 1000, 0.1, 0.1), StepStats("map [red]", "function", 1000, 0.3, 0.15, 0.15)),
    history=(Moment(1.0, 1.0, 10, 1000, 0.4, 1.0, 2, 3, 6, 10_000_000, 2_000_000_000),),
)
GLANCE = Glance(STATS, "Because.", False, ((-1.0, 500.0, 0.1, 0.5), (0.0, 1000.0, 0.8, 0.9)))


def shown(glance: Glance, width: int = 100, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(frame(glance, "train.py", **options))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_view_has_rates_steps_memory_and_the_verdict() -> None:
    text = shown(GLANCE, url="http://127.0.0.1:1/")
    for part in ("train.py", "1,000", "80%", "40% on average", "▄█", "map [red]", "300.0", "of 6 in progress", "of 2.0 GB"):
        assert part in text
    assert "Because." in text and "http://127.0.0.1:1/" in text and "1,000 samples, 10 batches" in text


def test_without_training_and_before_anything_ran_it_shows_what_there_is() -> None:
    assert "waited" not in shown(GLANCE, training=False)
    assert "0 samples" in shown(Glance(Stats(), "too short to say.", True)) and "(closed)" in shown(Glance(Stats(), "", True))


def test_eighty_columns_are_enough() -> None:
    steps = (StepStats("image('photograph')", "native", 1000, 12.3, 12.3),)
    text = shown(Glance(replace(STATS, steps=steps), "Because.", False, GLANCE.recent), width=80)
    assert "…" not in text and "us/sample" in text and "■ other waiting" in text


def test_names_do_not_steer_the_terminal() -> None:
    steps = (replace(STATS.steps[0], name="read \x1b[2J\x9b2J\r"),)
    text = shown(Glance(replace(STATS, steps=steps), "Because \x1b]0;of\x07 it.", False))
    assert "\x1b" not in text and "\x9b" not in text and "read ?[2J?2J?" in text and "Because ?]0;of? it." in text


def test_bars_stay_within_their_rail() -> None:
    assert len(blocks(7.0)) == len(blocks(-1.0)) == len(blocks(0.5)) and sparks([]) == "" and sparks([0.0, 0.0]) == "▁▁"
    assert sparks([5.0, float(10**9)], 1.0) == "██"


def test_where_there_is_no_terminal_a_line_says_how_it_goes(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_view, "_LINES_S", 0.0)

    class Once(threading.Event):
        """Is set when it is waited for the second time."""

        def wait(self, timeout: float | None = None) -> bool:
            was = self.is_set()
            self.set()
            return was

    with numbers().batch(6).loader(threads=1) as loader:
        list(loader)
        TerminalView(LoaderView(loader, "watch")).run(Once())
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith("60 samples, ") and "the loop waited" in told
    assert line(GLANCE, training=False) == "1,000 samples, 1,000 per second, workers busy 90%"


def test_where_there_is_no_terminal_the_end_of_the_loader_is_seen_before_the_next_line_is_due(capsys: Any) -> None:
    class Waited(threading.Event):
        longest = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            self.longest = max(self.longest, timeout or 0.0)
            loader.close()
            return False

    loader = numbers().batch(6).loader(threads=1)
    stop = Waited()
    TerminalView(LoaderView(loader, "watch")).run(stop)
    assert stop.longest <= 1.0 and capsys.readouterr().err == ""
