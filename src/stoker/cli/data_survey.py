"""Surveys a data set from a part of it: sizes of pictures, labels, and contents of its other fields. Nothing is decoded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..sizes import counted, show_bytes
from ..source.source import Source
from .sample_choice import ShownSample, as_stored, is_label, samples_at, spread_indices
from .thumbnails import picture_size

#: samples that are looked at, and how long that may take: of a slow store it is fewer
_MOST, _SECONDS = 2000, 3.0
#: samples that are read together
_TOGETHER = 50
#: numbers of a field that are kept, and different values
_NUMBERS, _VALUES = 100_000, 1000


@dataclass(slots=True)
class FieldSurvey:
    """What a field holds that is not a picture."""

    name: str
    seen: int = 0
    missing: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # of texts and bytes
    values: Counter[str] = field(default_factory=Counter)  # of texts and integers, a number of different ones

    def add(self, value: Any) -> None:
        self.seen += 1
        if value is None:
            self.missing += 1
            return
        if isinstance(value, (bytes, bytearray, str)):
            self.kinds["text" if isinstance(value, str) else "bytes"] += 1
            self.lengths.append(len(value))
            self._count(value) if isinstance(value, str) else None
        elif isinstance(value, (int, float, np.generic, np.ndarray)) and (array := np.asarray(value)).dtype.kind in "iufb":
            self.kinds[f"{array.dtype}{list(array.shape)}" if array.ndim else str(array.dtype)] += 1
            self.numbers += array.reshape(-1)[: max(0, _NUMBERS - len(self.numbers))].astype(np.float64).tolist()
            self._count(value) if not array.ndim and array.dtype.kind in "iub" else None
        else:
            self.kinds[
                "keys: " + ", ".join(sorted(map(str, value))[:6]) if isinstance(value, dict) else type(value).__name__
            ] += 1

    def _count(self, value: Any) -> None:
        text = str(value)[:60]
        if text in self.values or len(self.values) < _VALUES:
            self.values[text] += 1

    @property
    def kind(self) -> str:
        """The commonest kind of value, and how many others there are."""
        if not self.kinds:
            return "nothing"
        (first, _), others = self.kinds.most_common(1)[0], len(self.kinds) - 1
        return f"{first} and {counted(others, 'other shape')}" if others else first

    @property
    def told(self) -> str:
        """Ranges and lengths, in a line."""
        parts = []
        if self.numbers:
            finite = [number for number in self.numbers if np.isfinite(number)] or [0.0]
            parts.append(f"{min(finite):.6g} to {max(finite):.6g}, mean {np.mean(finite):.4g}")
        if self.lengths:
            low, high = min(self.lengths), max(self.lengths)
            of = show_bytes if "bytes" in self.kinds else lambda count: counted(count, "character")
            parts.append(of(low) if low == high else f"{of(low)} to {of(high)}")
        if self.values:
            many = f"{len(self.values):,} different" if len(self.values) < _VALUES else f"more than {_VALUES:,} different"
            parts.append(many)
        return "; ".join(parts)


@dataclass(slots=True)
class DataSurvey:
    """What was seen in a number of samples."""

    samples: int = 0
    bad: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)  # width and height of pictures
    lengths: list[int] = field(default_factory=list)  # their bytes
    labels: Counter[int] = field(default_factory=Counter)
    fields: dict[str, FieldSurvey] = field(default_factory=dict)

    def add(self, sample: ShownSample) -> None:
        self.samples += 1
        if sample.problem:
            self.bad += 1
            return
        pictures = sample.pictures
        for name in pictures:
            size = picture_size(sample.values[name])
            self.bad += size is None
            if size is not None:
                self.sizes.append(size)
                self.lengths.append(len(sample.values[name]))
        self.labels.update(sample.labels)
        for name, value in sample.values.items():
            if name not in pictures and not (is_label(name) and _is_integer(value)):
                self.fields.setdefault(name, FieldSurvey(name)).add(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")


def survey_of(samples: Iterable[ShownSample]) -> DataSurvey:
    """A survey of samples that are there."""
    survey = DataSurvey()
    for sample in samples:
        survey.add(sample)
    return survey


def survey_source(source: Source, opaque: Sequence[str] = ()) -> DataSurvey:
    """A survey of samples spread over a source, as many as can be read in a short time.

    They are read in an order that keeps them spread, whenever the time is over. `opaque` fields hold no pictures.
    """
    survey = DataSurvey()
    stored, indices = as_stored(source), spread_indices(len(source), _MOST)
    parts = -(-len(indices) // _TOGETHER)
    begun = time.monotonic()
    for part in range(parts):
        for sample in samples_at(stored, indices[part::parts]):
            survey.add(ShownSample(sample.index, sample.key, sample.values, sample.problem, tuple(opaque)))
        if time.monotonic() - begun > _SECONDS:
            break
    return survey
