"""The loaders that `stoker bench` measures in turn."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import StokerError
from ..observe.measured_speed import Speed, joined, speed
from ..observe.verdict import Verdict, verdict
from .peers import Peer, PeerWork
from .progress import Progress

if TYPE_CHECKING:
    from ..observe.facts import Facts
    from ..observe.stats import Stats
    from ..pipeline import Pipeline

#: how often every contender is measured, in turn, so that a slow moment of the machine affects all of them
ROUNDS = 5
#: seconds of each round that do not count, at most
_WARM_S = 0.2


def warm_up(seconds: float) -> float:
    """How long a round of so many seconds is run before it counts."""
    return min(_WARM_S, seconds)


class Contender(ABC):
    """A loader that is measured, round after round. If one that may fail does so, the others continue; `failure` says why."""

    #: what it may raise
    failures: type[Exception] | tuple[()] = ()

    def __init__(self, title: str) -> None:
        self.title = title
        self.failure = ""
        self._rounds: list[Speed] = []

    @abstractmethod
    def measure(self, seconds: float) -> Speed:
        """Run for some seconds."""

    def round(self, seconds: float) -> None:
        """Measure once more, unless it has failed."""
        if self.failure:
            return
        try:
            self._rounds.append(self.measure(seconds))
        except self.failures as error:
            self.failure = f"{type(error).__name__}: {self._words(error)}"

    def _words(self, error: Exception) -> str:
        return str(error)

    @property
    def speed(self) -> Speed:
        """All rounds as one."""
        return joined(self._rounds)

    @property
    def rates(self) -> tuple[float, ...]:
        """Samples per second, one per round."""
        return self.speed.rates if self._rounds else ()

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else 0.0

    def result(self) -> dict[str, Any]:
        """As plain data."""
        if self.failure:
            return {"title": self.title, "failure": self.failure}
        measured = self.speed
        return {
            "title": self.title,
            "samples_per_s": self.rate,
            "mean": measured.mean,
            "deviation": measured.deviation,
            "rounds": list(self.rates),
            "first_batch_s": measured.first_batch_s,
        }


class OwnLoader(Contender):
    """Stoker itself, with some arguments for its loader."""

    def __init__(self, title: str, pipeline: Pipeline, **arguments: Any) -> None:
        super().__init__(title)
        self._pipeline, self._arguments = pipeline, arguments
        self._facts: Facts | None = None

    def measure(self, seconds: float) -> Speed:
        with self._pipeline.loader(**self._arguments) as loader:
            self._facts = loader.facts()
            return speed(loader, seconds, rounds=1, warm_s=warm_up(seconds))

    @property
    def stats(self) -> Stats:
        """What was measured in all rounds."""
        stats = self.speed.stats
        assert stats is not None  # it is a loader of ours
        return stats

    @property
    def why(self) -> Verdict:
        """What limits it."""
        return verdict(self.stats, self._facts, training=False)


class Strategy(OwnLoader):
    """Stoker on the same samples in another form."""

    failures = StokerError

    def __init__(self, name: str, title: str, pipeline: Pipeline, **arguments: Any) -> None:
        super().__init__(title, pipeline, **arguments)
        self.name = name


class FilledCache(Strategy):
    """Stoker on samples that it keeps: a round begins when it has seen them all.

    Every round fills the cache again. A loader that stays open would be quicker, but other loaders fork, and must not do so while
    its threads run.
    """

    def __init__(self, name: str, title: str, pipeline: Pipeline, batches: int, **arguments: Any) -> None:
        super().__init__(name, title, pipeline, **arguments)
        self._batches = batches  # that hold all samples

    def measure(self, seconds: float) -> Speed:
        with self._pipeline.loader(**self._arguments) as loader:
            for _ in islice(loader, self._batches):
                pass
            return speed(loader, seconds, rounds=1, warm_s=warm_up(seconds))


class PeerLoader(Contender):
    """Another loader."""

    failures = Exception  # whatever it raises is its own affair

    def __init__(self, name: str, peer: Peer, work: PeerWork) -> None:
        super().__init__(peer.title)
        self.name, self._peer, self._work = name, peer, work

    def measure(self, seconds: float) -> Speed:
        # Its workers make whole batches side by side, so these come in bursts of one from each.
        burst = self._work.workers if self._peer.bursts else 1
        with closing(self._peer.batches(self._work)) as batches:
            return speed(batches, seconds, rounds=1, warm_s=warm_up(seconds), burst=burst)

    def _words(self, error: Exception) -> str:
        return str(error).strip().rpartition("\n")[2]


def take_turns(contenders: Sequence[Contender], seconds: float) -> None:
    """Measure all of them in rounds, each for `seconds` seconds."""
    with Progress("measuring", ROUNDS * len(contenders), unit="turns") as shown:
        for turn in range(ROUNDS):
            for number, contender in enumerate(contenders):
                shown.move(turn * len(contenders) + number, f"round {turn + 1} of {ROUNDS}: {contender.title}")
                contender.round(seconds / ROUNDS)


def ratios(one: Contender, other: Contender) -> list[float]:
    """How many times as fast one is as the other, within each round; the least first."""
    return sorted(mine / theirs for mine, theirs in zip(one.rates, other.rates))


def ratio_text(name: str, one: Contender, other: Contender) -> str:
    """The same as text, after the name of the first; empty if one of them failed."""
    found = ratios(one, other)
    return f"{name}{_times(statistics.median(found))}x ({_times(found[0])}–{_times(found[-1])})" if found else ""


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def ratio_facts(name: str, one: Contender, other: Contender) -> dict[str, float]:
    """The same as plain data."""
    found = ratios(one, other)
    return {name: statistics.median(found), "ratio_least": found[0], "ratio_most": found[-1]} if found else {}
