"""The byte strings of a batch, without copies: they stay where they were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np

from ..source.chunk import BytesColumn, Ints


class ByteStrings(Sequence[bytes]):
    """A sequence of `bytes`, as a list of them would be; each is made when it is asked for.

    `views()` gives them without copying. It holds the memory it was read to, and that is used again when it is dropped.

    >>> strings = ByteStrings([BytesColumn.of([b"ab", b""]), BytesColumn.of([b"c"])])
    >>> strings[0], list(strings), strings[-1:] == [b"c"]
    (b'ab', [b'ab', b'', b'c'], True)
    """

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: list[BytesColumn] | list[bytes]) -> None:
        # Frameworks rebuild a sequence by calling its class with a list of its values.
        columns: Any = [BytesColumn.of(parts)] if parts and isinstance(parts[0], bytes) else parts
        self._parts: list[BytesColumn] = columns
        self._ends: Ints = np.cumsum([len(part) for part in columns], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> ByteStrings: ...
    def __getitem__(self, row: int | slice) -> bytes | ByteStrings:
        if isinstance(row, slice):
            return self.take(np.arange(len(self), dtype=np.int64)[row])
        at = range(len(self))[row]  # an IndexError, and negative numbers, as for any sequence
        part = int(np.searchsorted(self._ends, at, side="right"))
        column = self._parts[part]
        return column[at - int(self._ends[part]) + len(column)]

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(part.own() for part in self._parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ByteStrings({len(self)} of {self.nbytes:,} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # in another process it is a plain list

    @property
    def nbytes(self) -> int:
        """Bytes in all strings together."""
        return sum(part.nbytes for part in self._parts)

    def views(self) -> list[memoryview]:
        """Each string as a memoryview, without a copy."""
        return list(chain.from_iterable(part.views() for part in self._parts))

    def take(self, rows: Ints) -> ByteStrings:
        """The strings of the given rows, in that order; they share memory."""
        if not len(rows):
            return ByteStrings([])
        numbers = np.searchsorted(self._ends, rows, side="right")
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        parts = []
        for begin, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(rows)]):
            part = self._parts[number := int(numbers[begin])]
            parts.append(part.take(rows[begin:end] - int(self._ends[number]) + len(part)))
        return ByteStrings(parts)
