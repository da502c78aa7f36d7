"""What a training loop received, and how long it waited: sums over its batches, computed when requested."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .stats import BUCKETS

#: a step of the loop is a pause (a validation, a checkpoint) that takes longer than this, and so many times as long as a batch
#: takes otherwise, where so many were seen; and a first step of such length (it compiles) is not counted
PAUSE_S, _PAUSE_TIMES, _PAUSE_STEPS = 1.0, 20.0, 8


class LatestRows:
    """The latest rows of numbers, in memory that is allocated once: a long run must not look like a leak."""

    def __init__(self, most: int, width: int) -> None:
        try:
            self._rows = np.full((most, width), 0.0)  # written to, so that it is really there
        except MemoryError as error:
            raise ConfigError(f"there is not enough memory to start a loader ({error}); close others, or free some") from error
        self._most, self._row, self.count = most, struct.Struct(f"{width}d"), 0

    def append(self, row: Sequence[float]) -> None:
        # Five times as fast as an assignment of NumPy's, and it is done for every task.
        self._row.pack_into(self._rows, self.count % self._most * self._row.size, *row)  # type: ignore[arg-type]
        self.count += 1

    def rows(self, latest: int | None = None) -> NDArray[np.float64]:
        """All that are kept, or so many, oldest first."""
        count = self.count
        kept = min(count, self._most, count if latest is None else latest)
        at = (count - kept) % self._most
        if at + kept <= self._most:
            return np.array(self._rows[at : at + kept])
        return np.concatenate((self._rows[at:], self._rows[: at + kept - self._most]))

    def last(self) -> tuple[float, ...]:
        """The latest of them."""
        return self._row.unpack_from(self._rows, (self.count - 1) % self._most * self._row.size)  # type: ignore[arg-type]


class LoopSums(NamedTuple):
    """Sums over the batches handed out so far, the first one excepted: it was there when the clock started."""

    folded: int = 0  # batches these are of
    samples: int = 0
    nbytes: int = 0
    waited_s: float = 0.0
    step_s: float = 0.0
    paused_s: float = 0.0  # between epochs, and in steps that are pauses
    got_s: float = 0.0  # when the last of them was handed out
    waits: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)

    def and_then(self, rows: NDArray[np.float64]) -> LoopSums:
        """With further rows of (asked, got, samples, bytes, away)."""
        if not len(rows):
            return self
        asked, got, samples, nbytes, away = rows.T
        before = np.concatenate(([self.got_s or asked[0]], got[:-1]))
        waited, steps = got - asked, asked - before - away
        pauses = steps > PAUSE_S
        if pauses.any():
            pauses &= steps > _PAUSE_TIMES * self._usual_s(steps + waited)
        later = waited if self.folded else waited[1:]  # the first batch was waited for before the clock started
        counts = np.bincount(
            np.clip(2 * np.log2(np.maximum(later, 1e-9) * 1e6) + 1, 0, BUCKETS - 1).astype(int), minlength=BUCKETS
        )
        return LoopSums(
            self.folded + len(rows),
            self.samples + int(samples.sum()),
            self.nbytes + int(nbytes.sum()),
            self.waited_s + float(later.sum()),
            self.step_s + float(steps[~pauses].sum()),
            self.paused_s + float(away.sum() + steps[pauses].sum()),
            float(got[-1]),
            self.waits + counts,
        )

    def _usual_s(self, further: NDArray[np.float64]) -> float:
        """What a batch takes with its step, by those so far or by further ones; without end where there are too few."""
        seen = int(self.waits.sum())
        if seen >= _PAUSE_STEPS:
            return (self.step_s + self.waited_s) / seen
        return float(np.sort(further)[len(further) // 2]) if len(further) > _PAUSE_STEPS else np.inf


class Along:
    """A batch and those that come with it, of `size` samples each: how many were handed out so far.

    So small batches that were made together cost nothing to count.
    """

    __slots__ = ("handed", "row_bytes", "rows", "size")

    def __init__(self, size: int, rows: int, row_bytes: float) -> None:
        self.handed, self.size, self.rows, self.row_bytes = 0, size, rows, row_bytes


class CameAlong(NamedTuple):
    batches: int = 0
    samples: int = 0
    nbytes: int = 0

    def and_also(self, along: Along) -> CameAlong:
        """With what came along with the first."""
        batches = max(0, along.handed - 1)
        samples = max(0, min(along.handed * along.size, along.rows) - along.size)
        return CameAlong(self.batches + batches, self.samples + samples, self.nbytes + int(samples * along.row_bytes))
