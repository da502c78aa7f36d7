"""Several sources as one, one after another: what `stoker.mix` draws from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..kernel.render import Renderer
from ..sizes import counted
from ..storage.scratch import Scratch
from ..storage.traffic import Traffic
from .chunk import OBJECT, Column, FieldSpec, Ints, spread_columns
from .source import ForesightSpan, Located, Rows, Source, Targets, digest


class ConcatSource(Source):
    """The samples of the first source, then those of the second, and so on, with the fields they have in common.

    `names` gives for each source the name its own field has there: {name here: name there}.
    """

    def __init__(self, sources: Sequence[Source], names: Sequence[Mapping[str, str]]) -> None:
        self.sources, self._names = tuple(sources), [dict(mapping) for mapping in names]
        common = [name for name in self._names[0] if all(name in mapping for mapping in self._names)]
        if not common:
            told = "; ".join(", ".join(mapping) for mapping in self._names)
            raise ConfigError(f"the pipelines of mix() must have common fields; they have {told}: rename() them first")
        self.fields: dict[str, FieldSpec] = {
            name: _common([source.fields[mapping[name]] for source, mapping in zip(self.sources, self._names)]) for name in common
        }
        self.classes = self.sources[0].classes if len({source.classes for source in self.sources}) == 1 else ()
        self.remote, self.waits = (any(getattr(source, name) for source in self.sources) for name in ("remote", "waits"))
        self._listeners = _listeners(self.sources)
        self._turns = count()
        spans = [span for member in self._listeners if (span := self.sources[member].foresight) is not None]
        self.foresight = None
        if spans:
            most, whole, shared = max(span.count for span in spans), all(s.whole for s in spans), all(s.shared for s in spans)
            self.foresight = ForesightSpan(most, whole, shared)
        self._ends = np.cumsum([len(source) for source in self.sources], dtype=np.int64)
        self.firsts = [int(end) - len(source) for end, source in zip(self._ends, self.sources)]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        parts: list[tuple[Ints, int, Rows]] = []
        for member, rows, within, private in self._parts(indices, scratch):
            names = [self._names[member][name] for name in wanted]
            parts.append((rows, member, self.sources[member].read(within, names, {}, private)))
        return self._joined(parts, len(indices), wanted, out)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        return next(
            (why for source, names in zip(self.sources, self._names) if (why := _why_not(source, names, field, box))), None
        )

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        parts: list[tuple[Ints, int, Located]] = []
        for member, rows, within, private in self._parts(indices, scratch):
            source, names = self.sources[member], self._names[member]
            there = [names[name] for name in wanted]
            located = source.locate(names[field], within, there, {}, private, None if box is None else names[box])
            if located is None:
                break
            parts.append((rows, member, located))

        def release() -> None:
            for _, _, part in parts:
                if part.release is not None:
                    part.release()

        def finish(made: Renderer) -> Rows | None:
            read = [(rows, member, part.finish(made)) for rows, member, part in parts]
            whole = [(rows, member, got) for rows, member, got in read if got is not None]
            others = [name for name in wanted if name != field]
            return self._joined(whole, len(indices), others, out) if len(whole) == len(read) else None

        if sum(len(rows) for rows, _, _ in parts) < len(indices):
            release()
            return None
        inputs = [(each, rows if slots is None else rows[slots]) for rows, _, part in parts for each, slots in part.inputs]
        return Located(inputs, finish, release, sum(part.waited_s for _, _, part in parts))

    def _parts(self, indices: Ints, scratch: Scratch) -> Iterator[tuple[int, Ints, Ints, Scratch]]:
        """Which rows each source has: its number, the rows, their numbers there, and memory for it.

        Each source fills an arena of its own: what one has read must stay while the next one reads.
        """
        members = np.searchsorted(self._ends, indices, side="right")
        for member in np.unique(members).tolist():
            rows = np.flatnonzero(members == member)
            yield member, rows, indices[rows] - self.firsts[member], scratch.keep((id(self), member), Scratch)

    def _joined(
        self, parts: Sequence[tuple[Ints, int, Rows]], count: int, wanted: Collection[str], out: Mapping[str, NDArray[Any]]
    ) -> Rows:
        """Rows of several sources as one."""
        columns: dict[str, Column] = {}
        for name in wanted:
            pieces = [(rows, read.columns[self._names[member][name]]) for rows, member, read in parts]
            alone = len(pieces) == 1 and name not in out
            columns[name] = pieces[0][1] if alone else spread_columns(pieces, count, out.get(name))
        errors = {int(rows[row]): error for rows, _, read in parts for row, error in read.errors.items()}
        return Rows(columns, errors, partial(_encoded, parts))

    def ahead(self, limit: int, wanted: Collection[str], first: Callable[[int], Ints]) -> Source:
        each = limit // len(self.sources)
        made = [
            source.ahead(each, [names[name] for name in wanted if name in names], partial(self._first, first, member))
            for member, (source, names) in enumerate(zip(self.sources, self._names))
        ]
        same = all(source is before for source, before in zip(made, self.sources))
        return self if same else ConcatSource(made, self._names)

    def traffic(self) -> Traffic:
        return reduce(Traffic.and_also, (source.traffic() for source in self.sources))

    def _first(self, first: Callable[[int], Ints], member: int, count: int) -> Ints:
        """The samples of one source among the first `count`."""
        indices = first(count)
        mine: Ints = indices[np.searchsorted(self._ends, indices, side="right") == member]
        return mine - self.firsts[member]

    def foresee(self, indices: Ints, decoded: bool, lead: int = 0) -> None:
        members = np.searchsorted(self._ends, indices, side="right")
        for member in self._listeners:
            mine = members == member
            self.sources[member].foresee(indices[mine] - self.firsts[member], decoded, int(mine[:lead].sum()))

    def fetch_ahead(self, stop: threading.Event) -> None:
        """Each thread stays with one source; with more sources than threads, some fetch only what is read."""
        self.sources[self._listeners[next(self._turns) % len(self._listeners)]].fetch_ahead(stop)

    def either(self, fields: tuple[str, ...]) -> tuple[Source, str]:
        name = ";".join(fields)
        parts = [source.either(tuple(names[field] for field in fields)) for source, names in zip(self.sources, self._names)]
        names = [{**names, name: column} for names, (_, column) in zip(self._names, parts)]
        return ConcatSource([source for source, _ in parts], names), name

    def __reduce__(self) -> tuple[type[ConcatSource], tuple[Sequence[Source], Sequence[Mapping[str, str]]]]:
        return ConcatSource, (self.sources, self._names)

    def key(self, index: int) -> str:
        member, within = self._place(index)
        return self.sources[member].key(within)

    def origin(self, index: int) -> str:
        member, within = self._place(index)
        return self.sources[member].origin(within)

    def outsized(self, times: float, most: int) -> Ints:
        parts = [source.outsized(times, most // len(self.sources)) for source in self.sources]
        return np.concatenate([first + part for first, part in zip(self.firsts, parts)])

    @property
    def origins(self) -> int:
        """Its sources, and of those that have some, their own."""
        return sum(max(1, source.origins) for source in self.sources)

    def origins_of(self, indices: Ints) -> Ints:
        members = np.searchsorted(self._ends, indices, side="right")
        found, first = np.zeros(len(indices), np.int64), 0
        for member, source in enumerate(self.sources):
            rows = np.flatnonzero(members == member)
            found[rows] = first + (source.origins_of(indices[rows] - self.firsts[member]) if source.origins else 0)
            first += max(1, source.origins)
        return found

    def origin_name(self, number: int) -> str:
        for source in self.sources:
            if number < max(1, source.origins):
                return source.origin_name(number) if source.origins else source.describe()
            number -= max(1, source.origins)
        raise AssertionError("there are fewer origins")

    def seeks(self, field: str) -> int:
        return sum(source.seeks(names[field]) for source, names in zip(self.sources, self._names) if field in names)

    def fingerprint(self) -> str:
        return digest("mix", *(source.fingerprint() for source in self.sources), *(repr(sorted(m.items())) for m in self._names))

    def version(self) -> str:
        return digest("versions", self.fingerprint(), *(source.version() for source in self.sources))

    def describe(self) -> str:
        return f"{counted(len(self), 'sample')} of " + " + ".join(source.describe() for source in self.sources)

    def _place(self, index: int) -> tuple[int, int]:
        member = int(np.searchsorted(self._ends, index, side="right"))
        return member, index - self.firsts[member]


def _why_not(source: Source, names: Mapping[str, str], field: str, box: str | None) -> str | None:
    why = source.why_not_located(names[field], None if box is None else names[box])
    return why and f"{source.describe()}: {why}"


def _encoded(parts: Sequence[tuple[Ints, int, Rows]], row: int) -> bytes | None:
    """The bytes of a picture that was rendered, from whichever source has it."""
    rows, _, read = next(part for part in parts if row in part[0])
    return None if read.encoded is None else read.encoded(int(np.searchsorted(rows, row)))


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
