"""Several sources as one, index after index: what `stoker.mix` draws from."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..sizes import counted
from ..storage.scratch import Scratch
from .chunk import OBJECT, Column, FieldSpec, Ints, spread_columns
from .source import ForesightSpan, Rows, Source, digest


class ConcatSource(Source):
    """The samples of the first source, then those of the second, and so on, with the fields they have in common.

    `names` gives for each source the name its own field has there: {name here: name there}.
    """

    def __init__(self, sources: Sequence[Source], names: Sequence[Mapping[str, str]]) -> None:
        self.sources, self._names = tuple(sources), [dict(mapping) for mapping in names]
        common = [name for name in self._names[0] if all(name in mapping for mapping in self._names)]
        if not common:
            told = "; ".join(", ".join(mapping) for mapping in self._names)
            raise ConfigError(f"mix() needs fields that all its pipelines have; they have {told}: rename() them first")
        self.fields: dict[str, FieldSpec] = {
            name: _common([source.fields[mapping[name]] for source, mapping in zip(self.sources, self._names)]) for name in common
        }
        self.classes = self.sources[0].classes if len({source.classes for source in self.sources}) == 1 else ()
        self.waits = any(source.waits for source in self.sources)
        self._listeners = _listeners(self.sources)
        self._turns = count()
        spans = [span for member in self._listeners if (span := self.sources[member].foresight) is not None]
        self.foresight = ForesightSpan(max(span.count for span in spans), all(span.whole for span in spans)) if spans else None
        self._ends = np.cumsum([len(source) for source in self.sources], dtype=np.int64)
        self.firsts = [int(end) - len(source) for end, source in zip(self._ends, self.sources)]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        members = np.searchsorted(self._ends, indices, side="right")
        parts: list[tuple[Ints, Rows, Mapping[str, str]]] = []
        errors: dict[int, Exception] = {}
        for member in np.unique(members).tolist():
            rows, names = np.flatnonzero(members == member), self._names[member]
            # Each source fills an arena of its own: what one has read must stay while the next one reads.
            private: Scratch = scratch.keep((id(self), member), Scratch)
            read = self.sources[member].read(indices[rows] - self.firsts[member], [names[name] for name in wanted], {}, private)
            parts.append((rows, read, names))
            errors.update({int(rows[row]): error for row, error in read.errors.items()})
        columns: dict[str, Column] = {}
        for name in wanted:
            pieces = [(rows, read.columns[names[name]]) for rows, read, names in parts]
            alone = len(pieces) == 1 and name not in out
            columns[name] = pieces[0][1] if alone else spread_columns(pieces, len(indices), out.get(name))
        return Rows(columns, errors)

    def foresee(self, indices: Ints) -> None:
        members = np.searchsorted(self._ends, indices, side="right")
        for member in self._listeners:
            self.sources[member].foresee(indices[members == member] - self.firsts[member])

    def fetch_ahead(self, stop: threading.Event) -> None:
        """Each thread stays with one source; with more sources than threads, some fetch only what is read."""
        self.sources[self._listeners[next(self._turns) % len(self._listeners)]].fetch_ahead(stop)

    def __reduce__(self) -> tuple[type[ConcatSource], tuple[Sequence[Source], Sequence[Mapping[str, str]]]]:
        return ConcatSource, (self.sources, self._names)

    def key(self, index: int) -> str:
        member, within = self._place(index)
        return self.sources[member].key(within)

    def origin(self, index: int) -> str:
        member, within = self._place(index)
        return self.sources[member].origin(within)

    def seeks(self, field: str) -> int:
        return sum(source.seeks(names[field]) for source, names in zip(self.sources, self._names))

    def fingerprint(self) -> str:
        return digest("mix", *(source.fingerprint() for source in self.sources), *(repr(sorted(m.items())) for m in self._names))

    def describe(self) -> str:
        return f"{counted(len(self), 'sample')} of " + " + ".join(source.describe() for source in self.sources)

    def _place(self, index: int) -> tuple[int, int]:
        member = int(np.searchsorted(self._ends, index, side="right"))
        return member, index - self.firsts[member]


def _listeners(sources: Sequence[Source]) -> list[int]:
    """Which sources are told what comes. A cache remembers what it was told last: so none that share one."""
    found = [member for member, source in enumerate(sources) if source.foresight is not None]
    caches = [cache for member in found for cache in _caches(sources[member])]
    return found if len(set(caches)) == len(caches) else []


def _caches(source: Source) -> set[Any]:
    """The caches that records are read through; asked without importing those, which takes long and is rarely needed."""
    if isinstance(source, ConcatSource):
        return {cache for member in source.sources for cache in _caches(member)}
    return {blob.cache for blob in getattr(source, "blobs", ()) if hasattr(blob, "cache")}


def _common(specs: list[FieldSpec]) -> FieldSpec:
    first = specs[0]
    if all(spec == first for spec in specs):
        return first
    arrays = all(spec.kind == "array" for spec in specs)
    if arrays and len({(spec.dtype, len(spec.shape)) for spec in specs}) == 1:
        shape = tuple(extents[0] if len(set(extents)) == 1 else None for extents in zip(*(spec.shape for spec in specs)))
        return FieldSpec("array", first.dtype, shape)
    return OBJECT
