"""`stoker bench --compare`: the same training loop fed in series and in parallel, and the two timelines."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..engine.resources import usable_cores
from ..observe.measured_speed import Speed, speed
from ..observe.report import page
from ..observe.timeline import STEP, TASK, WAIT, Timeline, recorded
from ..observe.timeline_svg import time_text, timeline_svg
from ..observe.verdict import Verdict, verdict
from ..sizes import counted, show_bytes
from ..storage.text_files import write_text
from .bench_samples import BenchSamples
from .contenders import ROUNDS, OwnLoader, warm_up
from .progress import Progress
from .run import tell_verdict
from .screen import out, print_json, tell, tell_sentence, tell_table

if TYPE_CHECKING:
    from ..pipeline import Pipeline

#: steps of the serial loop that the timelines show
_STEPS = 8
#: how names of bars look in a terminal: characters, and their colours
_LOOKS = {STEP: ("█", "green"), WAIT: ("·", "red"), "read": ("▒", "blue"), TASK: ("░", "dim"), "": (" ", "")}
_DECODING, _OTHER = ("▓", "yellow"), ("▚", "magenta")


class Side(OwnLoader):
    """One way to feed the loop, measured in rounds."""

    def __init__(self, title: str, pipeline: Pipeline, **arguments: Any) -> None:
        super().__init__(title, pipeline, **arguments)
        self.timeline = Timeline()
        self.workers, self.step_s = 0, 0.0

    def measure(self, seconds: float) -> Speed:
        """Run the loop for a while."""
        train = partial(_train, self.step_s) if self.step_s else None
        with self._pipeline.loader(**self._arguments) as loader, recorded(loader) as recorder:
            measured = speed(loader, seconds, rounds=1, warm_s=warm_up(seconds), step=train)
            self.workers, self._facts = loader.stats().workers, loader.facts()
        self.timeline = recorder.timeline()
        return measured

    @property
    def why(self) -> Verdict:
        """What limits it."""
        return verdict(self.stats, self._facts)

    @property
    def stall_s(self) -> float:
        """How long the loop waits for a batch, on average."""
        return self.speed.waited_s / self.speed.batches

    def facts(self) -> dict[str, Any]:
        measured = self.speed
        return {
            "title": self.title,
            "samples_per_s": measured.mean,
            "deviation": measured.deviation,
            "rounds": list(measured.rates),
            "wait_share": measured.wait_share,
            "stall_s": self.stall_s,
            "batch_s": measured.batch_s,
            "workers": self.workers,
            "timeline": self.timeline.as_dict(),
        }


def _train(step_s: float, batch: Any) -> None:
    """In the place of a training step: an accelerator works, and this thread waits for it."""
    time.sleep(step_s)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of it."""

    found: BenchSamples
    size: int
    batch: int
    step_s: float
    serial: Side
    parallel: Side

    @property
    def times(self) -> float:
        return self.parallel.speed.mean / self.serial.speed.mean

    @property
    def panels(self) -> list[tuple[str, Timeline]]:
        return [(f"{side.title}: {_rate(side)} {self.found.thing}s/s", side.timeline) for side in (self.serial, self.parallel)]

    def about(self) -> str:
        """What was done."""
        found = self.found
        crops = f", random crops of {self.size} x {self.size}" if found.field else ""
        return (
            f"{counted(found.count, found.thing)} of {show_bytes(found.nbytes / found.count)} from {found.source}{crops}, "
            f"batches of {self.batch}"
        )

    def honest(self) -> str:
        """What the training step is, and what it is not."""
        return (
            f"A training step takes {time_text(self.step_s)} and only waits, as for an accelerator that needs no core of "
            f"this machine. {ROUNDS} rounds in turn, after a warm-up; mean and standard deviation of the rounds."
        )

    def facts(self) -> dict[str, Any]:
        found = self.found
        return {
            "source": found.source,
            "samples": found.count,
            "pictures": found.field,
            "size": self.size if found.field else None,
            "batch": self.batch,
            "step_s": self.step_s,
            "rounds": ROUNDS,
            "serial": self.serial.facts(),
            "parallel": self.parallel.facts(),
            "times": self.times,
            "notes": found.notes(),
            "verdict": str(self.parallel.why),
        }


def compare_loaders(
    found: BenchSamples,
    size: int,
    batch: int,
    threads: int | None,
    ahead: int | None,
    seconds: float,
    step_s: float | None,
    html: Path | None,
    json: bool,
) -> None:
    """Measure both, and show the result."""
    pipeline = found.work(size, batch)
    # One batch at a time: read, decode, train, and only then the next.
    serial = Side("serial", pipeline, executor="inline", ahead=1)
    parallel = Side("parallel", pipeline, threads=threads, ahead=ahead)
    with Progress("measuring", 2 * ROUNDS + 1, unit="turns") as shown:
        if step_s is None:
            shown.move(0, "how long a batch takes")
            step_s = parallel.measure(seconds / ROUNDS).batch_s
        serial.step_s = parallel.step_s = step_s
        for turn in range(ROUNDS):
            for number, side in enumerate((serial, parallel)):
                shown.move(1 + 2 * turn + number, f"round {turn + 1} of {ROUNDS}: {side.title}")
                side.round(seconds / ROUNDS)
    length_s = min(_STEPS * serial.speed.batch_s, serial.timeline.length_s, parallel.timeline.length_s)
    for side in (serial, parallel):
        side.timeline = side.timeline.last(length_s)
    # Without workers it is the loop's own thread that reads and decodes.
    serial.timeline = replace(
        serial.timeline,
        rows=tuple(replace(row, name="same thread") if row.name == "worker 0" else row for row in serial.timeline.rows),
    )
    parallel.title = f"parallel, {counted(parallel.workers, 'worker')}"
    result = Comparison(found, size, batch, step_s, serial, parallel)
    if json:
        print_json(result.facts())
    else:
        _tell(result)
        tell_verdict(parallel.why)
    if html is not None:  # after the figures, which a full disk is not to cost
        write_text(html, compare_page(result))
        if not json:
            tell(f"{html}: the two timelines", style="dim")


# ---- as text ----------------------------------------------------------------------------------------------------------------


def _rate(side: Side) -> str:
    return f"{side.speed.mean:,.0f} ± {side.speed.deviation:,.0f}"


def _tell(result: Comparison) -> None:
    tell_sentence(result.about(), style="bold")
    tell_sentence(result.honest())
    for note in result.found.notes():
        tell_sentence(note, style="dim")
    tell()
    rows = [
        [side.title, _rate(side), f"{side.speed.wait_share:.0%}", time_text(side.stall_s), times]
        for side, times in ((result.serial, ""), (result.parallel, f"{result.times:.2f}x"))
    ]
    columns = (f"{result.found.thing}s/s", "loop waits", "for each batch")
    tell_table(("", *columns, ""), rows, right=columns, strong=1)
    for title, timeline in result.panels:
        tell()
        tell(title, style="bold")
        _tell_timeline(timeline)
    names = list(dict.fromkeys(name for _, timeline in result.panels for name in timeline.names))
    words = {STEP: "step of the loop", WAIT: "loop waits"}
    tell()
    tell("  ".join(f"{_look(name)[0]} {words.get(name, name)}" for name in names), style="dim")


def _look(name: str) -> tuple[str, str]:
    return _LOOKS.get(name) or (_DECODING if name.startswith(("image", "decode")) else _OTHER)


def _tell_timeline(timeline: Timeline) -> None:
    from rich.text import Text

    label = max((len(row.name) for row in timeline.rows), default=0)
    width = max(20, min(100, out().width - label - 12))
    for row in timeline.rows:
        line = Text(f"{row.name:<{label}} ")
        for name, run in groupby(row.cells(timeline.length_s, width)):
            character, colour = _look(name)
            line.append(character * len(list(run)), colour)
        out().print(line)
    out().print(Text(f"{'':<{label}} 0{time_text(timeline.length_s):>{width - 1}}", "dim"))


# ---- as a page --------------------------------------------------------------------------------------------------------------


def compare_page(result: Comparison) -> str:
    """Both timelines on one axis, complete in itself."""
    thing = result.found.thing
    tiles = [
        (f"Serial, {thing}s/s", f"{result.serial.speed.mean:,.0f}", f"± {result.serial.speed.deviation:,.0f}"),
        (f"Parallel, {thing}s/s", f"{result.parallel.speed.mean:,.0f}", f"± {result.parallel.speed.deviation:,.0f}"),
        ("Faster", f"{result.times:.2f}x", f"{counted(result.parallel.workers, 'worker')} on {counted(usable_cores(), 'core')}"),
        (
            "The loop waits",
            f"{result.serial.speed.wait_share:.0%} → {result.parallel.speed.wait_share:.0%}",
            f"{time_text(result.serial.stall_s)} → {time_text(result.parallel.stall_s)} for each batch",
        ),
    ]
    cards = "".join(
        f'<section><h2>{escape(title)}</h2><div class="figure">{escape(figure)}</div>'
        f'<div class="note">{escape(note)}</div></section>'
        for title, figure, note in tiles
    )
    versions = (
        f"Stoker {__version__}, Python {platform.python_version()}, {platform.machine()}, {counted(usable_cores(), 'core')}"
    )
    return page(
        "Serial against parallel",
        result.about(),
        f'<div class="tiles">{cards}</div><section><div class="wide">{timeline_svg(result.panels)}</div>'
        f'<div class="note">{escape(result.honest())} Made by stoker bench --compare; {escape(versions)}.</div></section>',
        ".wide { overflow-x: auto; }",
    )
