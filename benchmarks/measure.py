"""How the benchmarks measure: contestants in processes of their own, rounds in turn, medians, ratios per round.

A number taken alone says little on a machine that others use too. So everything that is compared runs in the same
minutes: in every round each contestant has its turn, the order of turns is reversed from round to round, and a ratio is
the median of the rounds' ratios, not the ratio of two medians. Each contestant lives in a process of its own, so that no
library's threads, allocator or imports touch another's, and its memory can be told.

A contestant may hold batches ready when its turn comes. They are not counted: before the clock starts it hands out as
many as it can hold, and one more; after the clock has stopped it gets the time to fill up again before the next turn.
A `take` that has a function `ready` has it called before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: take so many batches, return their rows
Take = Callable[[int], int]
#: gives (rows/s, seconds a batch), or the text of an error
Answer = tuple[float, float] | str

SEED = 7
_SAMPLE_S = 0.1  # between two looks at a contestant's memory


# ---- the command line and the report -----------------------------------------------------------------------------------


class BenchmarkParser(argparse.ArgumentParser):
    """The options of a benchmark: `--quick` and `--rounds`, and those that are added."""

    def __init__(self, doc: str | None, rounds: int = 5) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._amounts: dict[str, tuple[float, float]] = {}
        self.amount("--rounds", rounds, 1, "how often each thing is measured")
        self.add_argument("--quick", action="store_true", help="a run of a few seconds that only shows that it works")

    def amount(self, option: str, full: float, quick: float, what: str) -> None:
        """Add a number that is another one in a quick run, unless it is given."""
        action = self.add_argument(option, type=type(full), help=f"{what} ({full:,})")
        self._amounts[action.dest] = full, quick

    def peers(self, names: Iterable[str]) -> None:
        """Let the user choose among these contestants."""
        help = "which to run, or 'none' (default: all that are installed)"
        self.add_argument("--peers", type=_names, default=[*names], help=help)

    def parse_args(self, *words: Any) -> Any:
        options = super().parse_args(*words)
        for name, (full, quick) in self._amounts.items():
            if getattr(options, name) is None:
                setattr(options, name, quick if options.quick else full)
        return options


def _names(text: str) -> list[str]:
    return [] if text == "none" else text.split(",")


def note(text: str) -> None:
    """Tell the person who watches; the result alone goes to standard output."""
    print(text, file=sys.stderr, flush=True)


def report(benchmark: str, options: argparse.Namespace, **figures: Any) -> None:
    """Print the result: one line of JSON."""
    head = {"benchmark": benchmark, "quick": options.quick, "rounds": options.rounds, "machine": machine()}
    print(json.dumps({**head, **rounded(figures)}), flush=True)


def machine() -> dict[str, Any]:
    """Where and with what this ran."""
    from stoker.kernel.native import build_info

    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "kernel": build_info(),
    }


def usable_cores() -> int:
    """The cores this process may use, as Stoker counts them."""
    from stoker.engine.resources import usable_cores as count

    return count()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def rounded(value: Any) -> Any:
    """Floats to four significant digits, wherever they stand."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {str(name): rounded(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(inner) for inner in value]
    return value


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def pull(batches: Iterator[Any], rows: int) -> Take:
    """Take from an endless iterator of batches of so many rows."""

    def take(count: int) -> int:
        for _ in range(count):
            next(batches)
        return count * rows

    return take


def endless(batches: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from batches


# ---- contestants -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """Something to measure: ``make(*arguments)`` opens it, and gives a function that takes batches."""

    name: str
    make: Callable[..., AbstractContextManager[Take]]
    arguments: tuple[Any, ...]
    batches: int  # in a round
    lead: int = 0  # batches it may hold ready, and one: taken before the clock starts
    needs: tuple[str, ...] = ()  # modules it imports
    seconds: float = (
        0.0  # a round goes on, `batches` at a time, until so much time has passed: for those that differ much in speed
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out: by name, rows/s of each round, and the peak of the memory (PSS of all its processes) in bytes."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    peaks: dict[str, int | None] = field(default_factory=dict)
    #: who was left out, and the modules that are not here
    missing: dict[str, list[str]] = field(default_factory=dict)

    def medians(self) -> dict[str, float]:
        """Rows/s."""
        return {name: median(rates) for name, rates in self.rates.items()}

    def ratios(self, name: str) -> dict[str, float]:
        """How much faster `name` is than each of the others."""
        ours = self.rates[name]
        return {other: ratio(ours, theirs) for other, theirs in self.rates.items() if other != name}

    def best(self, names: Iterable[str]) -> str | None:
        """Of several settings of one contestant the one with the highest median; None when none of them ran."""
        ran = [name for name in names if name in self.rates]
        return max(ran, key=lambda name: median(self.rates[name]), default=None)

    def peaks_mb(self) -> dict[str, float | None]:
        """Peaks in millions of bytes; None where psutil is missing."""
        return {name: None if peak is None else peak / 1e6 for name, peak in self.peaks.items()}


def compare(entries: Iterable[Entry], rounds: int) -> Comparison:
    """Measure the entries in turn, round by round. Those whose modules are missing are left out, with a note."""
    result = Comparison()
    with ExitStack() as stack:
        contestants = []
        for entry in entries:
            if available(entry.name, entry.needs):
                contestants.append(stack.enter_context(Contestant(entry)))
            else:
                result.missing[entry.name] = missing_of(entry.needs)
        for contestant in contestants:
            contestant.await_ready()
        for contestant in contestants:
            result.peaks[contestant.name] = contestant.warm_up()
            result.rates[contestant.name] = []
        for number in range(rounds):
            for contestant in contestants[:: -1 if number % 2 else 1]:
                rate = contestant.round()
                result.rates[contestant.name].append(rate)
                note(f"round {number + 1}/{rounds}  {contestant.name:24} {rate:12,.0f}/s")
    return result


def available(name: str, needs: Iterable[str]) -> bool:
    """Whether all the modules that `name` needs are here; notes those that are not."""
    missing = missing_of(needs)
    if missing:
        note(f"{name}: left out, {' and '.join(missing)} cannot be imported")
    return not missing


def missing_of(needs: Iterable[str]) -> list[str]:
    """The modules that are not here."""
    return [module for module in needs if not _importable(module)]


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that would hold it
        return False


class Contestant:
    """An entry at work in a process of its own, which runs a round when told to."""

    def __init__(self, entry: Entry) -> None:
        import multiprocessing

        self.name, self._entry = entry.name, entry
        context = multiprocessing.get_context("spawn")  # nothing of this process goes along
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, entry))
        self._process.start()
        theirs.close()

    def await_ready(self) -> None:
        """Wait until it is: one that is still starting would disturb the others' rounds."""
        self._answer()

    def warm_up(self) -> int | None:
        """One round that does not count; returns the peak of memory since the start."""
        with PeakMemory(self._process.pid or 0) as memory:
            rate = self.round()
        note(f"warm-up    {self.name:24} {rate:12,.0f}/s")
        return memory.peak

    def round(self) -> float:
        """Rows/s of one round."""
        with suppress(BrokenPipeError):  # it ended, and may have said why
            self._pipe.send(True)
        rate, batch_s = self._answer()
        time.sleep(1.2 * self._entry.lead * batch_s)
        return rate

    def _answer(self) -> tuple[float, float]:
        try:
            answer: Answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            answer = f"its process ended with {self._process.exitcode}"
        if isinstance(answer, str):
            raise RuntimeError(f"{self.name}: {answer}")
        return answer

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


def _serve(pipe: Any, entry: Entry) -> None:
    """The contestant's process: a round each time a message comes, until the other end closes."""
    try:
        with entry.make(*entry.arguments) as take:
            pipe.send((0.0, 0.0))  # it is ready
            while pipe.recv():
                pipe.send(_round(take, entry))
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - told to the parent, which raises it
        pipe.send(f"{type(error).__name__}: {error}")


def _round(take: Take, entry: Entry) -> Answer:
    if entry.lead:
        take(entry.lead)
    if (ready := getattr(take, "ready", None)) is not None:
        ready()  # what a round needs and is not to be measured
    start = time.perf_counter()
    rows, batches = take(entry.batches), entry.batches
    while (seconds := time.perf_counter() - start) < entry.seconds:
        rows, batches = rows + take(entry.batches), batches + entry.batches
    return rows / seconds, seconds / batches


class PeakMemory:
    """Looks ten times per second at the memory of a process and its children: PSS, so that shared pages count once."""

    def __init__(self, pid: int) -> None:
        self.peak: int | None = None
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        if not _importable("psutil"):
            return
        while not self._stop.wait(_SAMPLE_S):
            self.peak = max(self.peak or 0, tree_pss(self._pid))

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def tree_pss(pid: int) -> int:
    """The memory of a process and its children in bytes; pages that several share count once."""
    import psutil

    total = 0
    try:
        first = psutil.Process(pid)
        processes = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total
