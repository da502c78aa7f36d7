"""A speed test: how many samples per second something yields, in rounds, once it runs steadily."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import ConfigError
from .stats import Stats, WorkerStats, merge


@dataclass(frozen=True, slots=True)
class Speed:
    """What a speed test measured. Times are in seconds; the warm-up and the first batch are not in the rounds."""

    rates: tuple[float, ...]  # samples per second in each round
    first_batch_s: float  # from starting the workers to the first batch
    batches: int  # in all rounds, as everything below
    samples: int
    seconds: float
    waited_s: float  # of these, waiting for batches
    cpu_s: float  # this process, on cores
    stats: Stats | None = None  # what the loader measured in that time; None: it is not one of Stoker's

    @property
    def median(self) -> float:
        """Samples per second."""
        return statistics.median(self.rates)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.rates)

    @property
    def deviation(self) -> float:
        """The standard deviation of the rounds' rates; 0 for one round."""
        return statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time spent waiting for batches."""
        return self.waited_s / self.seconds

    @property
    def batch_s(self) -> float:
        """Time from one batch to the next."""
        return self.seconds / self.batches

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        figures = {name: getattr(self, name) for name in ("median", "mean", "deviation", "wait_share")}
        return {**asdict(self), **figures}

    def __repr__(self) -> str:
        return f"Speed({self})"

    def __str__(self) -> str:
        rounds = f"median of {len(self.rates)} rounds, {min(self.rates):,.0f} to {max(self.rates):,.0f}"
        spread = f" ({rounds})" if len(self.rates) > 1 else ""
        return (
            f"{self.median:,.0f} samples/s{spread}; first batch after {self.first_batch_s:.2f} s; "
            f"{self.samples:,} samples in {self.batches:,} batches and {self.seconds:.1f} s"
        )


def speed(
    source: Any,
    seconds: float = 5.0,
    *,
    rounds: int = 5,
    warm_s: float | None = None,
    step: Callable[[Any], object] | None = None,
    burst: int = 1,
    **loader: Any,
) -> Speed:
    """Measure the samples per second of a pipeline, in `rounds` that take `seconds` in total.

    `source` is a pipeline, of which a loader is made with the other arguments (``threads=4``); or a loader, which keeps its
    position; or any iterable that yields batches every time it is iterated, such as PyTorch's DataLoader. The first `warm_s`
    seconds (a fifth of `seconds`, at most one second) do not count. `step` is called with every batch, in place of training.
    Loaders that make several batches in parallel deliver them in bursts: whole bursts are measured.

    >>> import numpy as np, stoker
    >>> measured = speed(stoker.arrays(x=np.arange(1000)).batch(100), seconds=0.05, threads=1)
    >>> len(measured.rates), measured.samples == 100 * measured.batches
    (5, True)
    """
    if not seconds > 0 or rounds < 1 or burst < 1:
        raise ConfigError(f"speed(seconds={seconds}, rounds={rounds}, burst={burst}): all of these must be above 0")
    begun = time.monotonic()
    with ExitStack() as stack:
        if hasattr(source, "loader"):
            source = stack.enter_context(source.loader(**loader))
        elif loader:
            raise ConfigError(f"speed({', '.join(loader)}=): these options are for a new loader, but {source!r} is already one")
        test = _Test(source, step, burst)
        test.take(0.0)
        first_batch_s = test.first_s - begun
        test.take(min(1.0, seconds / 5) if warm_s is None else warm_s)
        return _joined([test.round(seconds / rounds) for _ in range(rounds)], first_batch_s)


def joined(speeds: Iterable[Speed]) -> Speed:
    """Several speed tests of the same thing as one; the first batch is the first test's."""
    given = list(speeds)
    return _joined(given, given[0].first_batch_s)


def _joined(given: list[Speed], first_batch_s: float) -> Speed:
    stats = [each.stats for each in given if each.stats is not None]
    sums = {name: sum(getattr(each, name) for each in given) for name in ("batches", "samples", "seconds", "waited_s", "cpu_s")}
    rates = tuple(rate for each in given for rate in each.rates)
    return Speed(rates, first_batch_s, stats=_one_after_another(stats) if stats else None, **sums)


def _one_after_another(given: list[Stats]) -> Stats:
    """Measurements of one loader after another as one: `merge` is for those that ran at the same time."""
    last = given[-1]
    workers: dict[int, WorkerStats] = {}
    for worker in (worker for stats in given for worker in stats.by_worker):
        so_far = workers.get(worker.number, WorkerStats(worker.number))
        sums = {name: getattr(worker, name) + getattr(so_far, name) for name in ("tasks", "busy_s", "cpu_s")}
        workers[worker.number] = replace(worker, **sums)
    added = {name: sum(getattr(stats, name) for stats in given) for name in ("epochs", "elapsed_s", "paused_s", "resized_s")}
    same = {name: getattr(last, name) for name in ("workers", "ranks", "cores", "cores_by", "host", "executor")}
    return replace(merge(given), **same, **added, by_worker=tuple(workers.values()))


class _Test:
    """Batches of something without end, and the time it takes to get them."""

    def __init__(self, source: Any, step: Callable[[Any], object] | None, burst: int) -> None:
        self._stats: Callable[[], Stats] | None = getattr(source, "stats", None)
        self._batches, self._step, self._burst = _endless(source), step, burst
        self._taken = self._rows = 0
        self._waited_s = self.first_s = 0.0

    def take(self, seconds: float) -> float:
        """Take whole bursts for so long, one at least; returns the time that took."""
        begun = time.monotonic()
        while True:
            for _ in range(self._burst):
                self._one()
            spent = time.monotonic() - begun
            if spent >= seconds:
                return spent

    def _one(self) -> None:
        asked = time.monotonic()
        batch = next(self._batches)
        got = time.monotonic()
        self._waited_s += got - asked
        self.first_s = self.first_s or got
        self._taken += 1
        if self._stats is None:
            self._rows += _rows(batch)
        if self._step is not None:
            self._step(batch)

    def round(self, seconds: float) -> Speed:
        before = self._stats() if self._stats is not None else None
        self._taken, self._rows, self._waited_s, cpu_s = 0, 0, 0.0, time.process_time()
        spent = self.take(seconds)
        cpu_s = time.process_time() - cpu_s
        stats = self._stats() - before if self._stats is not None and before is not None else None
        samples = self._rows if stats is None else stats.samples
        return Speed((samples / spent,), 0.0, self._taken, samples, spent, self._waited_s, cpu_s, stats)


def _endless(source: Any) -> Iterator[Any]:
    while True:
        empty = True
        for batch in source:
            empty = False
            yield batch
        if empty:
            raise ConfigError(f"speed({source!r}): there are no more batches; it must yield some every time it is iterated")


def _rows(batch: Any) -> int:
    """Rows of a batch that is not of Stoker's making: those of its first field."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), None)
    elif isinstance(batch, (tuple, list)) and batch:
        batch = batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else 1
