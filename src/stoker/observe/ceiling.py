"""How fast a machine could do some work at most, from what one core needs for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .measured_speed import Speed


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What all cores together could do, if each did as much as one does alone."""

    cores: int
    cpu_s: float  # of one core, for a sample

    @property
    def samples_per_s(self) -> float:
        return self.cores / self.cpu_s if self.cpu_s > 0 else 0.0

    def share(self, rate: float) -> float:
        """How much of it so many samples per second are."""
        return rate / self.samples_per_s if self.samples_per_s else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {**asdict(self), "samples_per_s": self.samples_per_s}


def ceiling_of(serial: Speed, cores: int) -> Ceiling:
    """The ceiling for work that was measured without workers, so that the process's time on cores is all there was to do."""
    return Ceiling(cores, serial.cpu_s / max(1, serial.samples))
