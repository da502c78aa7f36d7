"""`tf.train.Example` records parsed into columns, and what features they have. ``native/include/stoker.h`` is the manual."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.library import Owned, address, library, place
from stoker.kernel.records import Ints, as_bytes, as_spans, cut

BYTES, FLOAT, INT = 1, 2, 3
#: what became of a feature of a record, in `Parsed.status`
OK, MISSING, OTHER_KIND, OTHER_COUNT = 0, 1, 2, 3

_NUMBERS: dict[int, type[np.generic]] = {FLOAT: np.float32, INT: np.int64}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A feature to read from every record: its name, its kind, and how many values a record has (-1: any number)."""

    name: bytes
    kind: int
    count: int

    @property
    def is_list(self) -> bool:
        """Whether its column is a list a record, with offsets."""
        return self.count < 0 or (self.kind == BYTES and self.count != 1)


class Parsed(NamedTuple):
    """What `parse_examples` found in n records.

    `columns` has, for each wanted feature, of integers or floats an array (n,) for one value per record, (n, k) for k, and
    (offsets, values) for any number; of bytes, places in the data: (starts, lengths) for one value per record, else (offsets,
    starts, lengths). Record i of a list has the values ``offsets[i]`` to ``offsets[i + 1]``.

    `status` is (n, features): `OK`, `MISSING` (not there, or of no kind), `OTHER_KIND`, or `OTHER_COUNT`; where it is not `OK`
    the values are zeros, or none. `bad` is (n,): -1, or the byte of the record at which it is no Example.
    """

    columns: tuple[Any, ...]
    status: NDArray[np.uint8]
    bad: Ints


def parse_examples(
    data: NDArray[np.uint8], starts: Ints, lengths: Ints, wanted: Sequence[Wanted], outs: Sequence[NDArray[Any] | None] = ()
) -> Parsed:
    """Read ``tf.train.Example`` records into columns; a bad record does not raise, but is marked in its row.

    Numbers are written to ``outs[i]`` if that is given and is a contiguous array of the column's shape and type.
    """
    return parse_into(Parsing(wanted, len(starts), outs), data, starts, lengths)


def parse_into(parsing: Parsing, data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> Parsed:
    """The same, with the memory for it made before."""
    data, (starts, lengths, count) = as_bytes(data), as_spans(starts, lengths)
    if count != len(parsing.bad):
        raise KernelError(f"{count} records, and room for {len(parsing.bad)}")
    library().examples_parse(
        address(data), data.size, address(starts), address(lengths), count, address(parsing.table), len(parsing.table),
        address(parsing.status), address(parsing.bad),
    )  # fmt: skip
    return parsing.finished(data)


class Parsing:
    """The memory that features of `count` records are parsed to, by one call or another."""

    def __init__(self, wanted: Sequence[Wanted], count: int, outs: Sequence[NDArray[Any] | None] = ()) -> None:
        self._wanted = wanted
        self.columns = [_column(each, count, outs[i] if i < len(outs) else None) for i, each in enumerate(wanted)]
        self._names, told = _told(tuple(wanted))
        rows = [(*about, place(column[0]), place(column[-1])) for about, column in zip(told, self.columns)]
        #: what is wanted, for the library
        self.table = np.array(rows, np.int64)
        self.status, self.bad = np.empty((count, len(wanted)), np.uint8), np.empty(count, np.int64)

    def finished(self, data: NDArray[np.uint8]) -> Parsed:
        """What was found, after the call; `data` is what was parsed."""
        columns = [
            _listed(data, each, column[0], self.status[:, i]) if each.is_list else column if each.kind == BYTES else column[0]
            for i, (each, column) in enumerate(zip(self._wanted, self.columns))
        ]
        return Parsed(tuple(columns), self.status, self.bad)


def _number_column(wanted: Wanted, count: int, out: NDArray[Any] | None) -> tuple[NDArray[Any]]:
    """Memory for numbers, a fixed count a record: `out`, where it fits."""
    shape, dtype = (count,) if wanted.count == 1 else (count, wanted.count), _NUMBERS[wanted.kind]
    if out is not None and out.shape == shape and out.dtype == dtype and out.flags.c_contiguous and out.flags.writeable:
        return (out,)
    return (np.empty(shape, dtype),)


@functools.lru_cache(64)
def _told(wanted: tuple[Wanted, ...]) -> tuple[NDArray[np.uint8], list[tuple[int, int, int, int]]]:
    """The names, and of each feature where its name is, its length, kind and count."""
    if len({each.name for each in wanted}) != len(wanted):
        raise KernelError("a feature is wanted twice")
    names = np.frombuffer(b"".join(each.name for each in wanted) + b"\0", np.uint8)
    rows, at = [], place(names)
    for each in wanted:
        rows.append((at, len(each.name), each.kind, each.count))
        at += len(each.name)
    return names, rows


def _column(wanted: Wanted, count: int, out: NDArray[Any] | None) -> tuple[NDArray[Any], ...]:
    """Make the memory of a column: values; starts and lengths; or, for lists, where each is described."""
    if wanted.kind not in (BYTES, FLOAT, INT):
        raise KernelError(f"a feature of kind {wanted.kind}")
    if wanted.is_list:
        return (np.empty((count, 3), np.int64),)
    if wanted.kind == BYTES:
        return np.empty(count, np.int64), np.empty(count, np.int64)
    return _number_column(wanted, count, out)


def _listed(data: NDArray[np.uint8], wanted: Wanted, spans: Ints, status: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
    """Return a column of lists as the caller gets it; they are read here, now that their sizes are known."""
    count = len(status)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.where(status == OK, spans[:, 2], 0), out=offsets[1:])
    total = int(offsets[-1])
    values = np.empty(total, _NUMBERS.get(wanted.kind, np.int64))
    also = np.empty(total if wanted.kind == BYTES else 0, np.int64)
    library().examples_lists(
        address(data), data.size, address(spans), count, wanted.kind, address(offsets), address(values), address(also)
    )
    return (offsets, values, also) if wanted.kind == BYTES else (offsets, values)


class FeatureStat(NamedTuple):
    """A feature as it occurs in records.

    `kind` is `BYTES`, `FLOAT` or `INT`; 0 if no record gives it one, -1 if records disagree. `least` and `most` count the values
    in a record that has it, `present` those records.
    """

    name: bytes
    kind: int
    least: int
    most: int
    present: int


class ExampleStats(Owned):
    """Learns which features the records of a file have; records that are not Examples are counted as `others`."""

    def __init__(self) -> None:
        super().__init__(library().examples_new(), library().examples_free, "set of statistics")
        self._totals = np.zeros(4, np.int64)

    def add(self, data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> None:
        """Learn from more records."""
        data, (starts, lengths, count) = as_bytes(data), as_spans(starts, lengths)
        library().examples_add(
            self.handle, address(data), data.size, address(starts), address(lengths), count, address(self._totals)
        )

    @property
    def examples(self) -> int:
        """How many records were Examples; one without features is one."""
        return int(self._totals[0])

    @property
    def others(self) -> int:
        """How many records were none."""
        return int(self._totals[1])

    @property
    def features(self) -> tuple[FeatureStat, ...]:
        """The features of all Examples, as first met."""
        count, capacity = int(self._totals[2]), int(self._totals[3])
        stats, names, ends = np.empty((count, 4), np.int64), np.empty(capacity, np.uint8), np.empty(count, np.int64)
        library().examples_about(self.handle, address(stats), address(names), capacity, address(ends))
        return tuple(FeatureStat(name, *stat) for name, stat in zip(cut(names, ends), stats.tolist()))
