"""The names of samples in the rows of a chunk, and the dicts that users' functions get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError
from ..sizes import a_type
from .paths import printable

if TYPE_CHECKING:
    from .source import Source

#: the entry of a sample that is its key, not a field
KEY = "__key__"

Rows = NDArray[np.int64]


class Names(ABC):
    """Which sample each row of a chunk is. Worked out when asked for, and never holds memory of a worker."""

    __slots__ = ()

    @abstractmethod
    def key(self, row: int) -> str:
        """The sample's name."""

    @abstractmethod
    def origin(self, row: int) -> str:
        """Where it is stored."""

    @abstractmethod
    def index(self, row: int) -> int:
        """Its number in its source."""

    @abstractmethod
    def take(self, rows: Rows) -> Names:
        """The names of the given rows, in that order."""

    def bound(self, source: Source | None) -> Names:
        """The same where they come from another process, which has a source of its own: names by `source`."""
        return self


class SourceNames(Names):
    """Samples of a source, by their indices. Sent elsewhere they leave the source out, and are `bound` to the one there."""

    __slots__ = ("_indices", "_source")

    def __init__(self, source: Source | None, indices: Rows) -> None:
        self._source, self._indices = source, indices

    def key(self, row: int) -> str:
        assert self._source is not None
        return self._source.key(self.index(row))

    def origin(self, row: int) -> str:
        assert self._source is not None
        return self._source.origin(self.index(row))

    def bound(self, source: Source | None) -> SourceNames:
        return self if self._source is not None else SourceNames(source, self._indices)

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceNames, (None, self._indices)

    def index(self, row: int) -> int:
        return int(self._indices[row])

    def take(self, rows: Rows) -> SourceNames:
        return SourceNames(self._source, self._indices[rows])

    def joined(self, others: Sequence[tuple[Names, int]]) -> SourceNames | None:
        """The first rows, as many as said, of each of these one after another; None if they are not all of this source."""
        indices = [
            names._indices[:count] for names, count in others if isinstance(names, SourceNames) and names._source is self._source
        ]
        return SourceNames(self._source, np.concatenate(indices)) if len(indices) == len(others) else None


def join_names(parts: Sequence[tuple[Names, int]]) -> Names:
    """Names of several chunks joined: of each, those of the given number of rows."""
    first = parts[0][0] if parts else None
    if isinstance(first, SourceNames) and (joined := first.joined(parts)) is not None:
        return joined
    rows = [(names, row) for names, count in parts for row in range(count)]
    return ListedNames(
        [names.key(row) for names, row in rows],
        [names.origin(row) for names, row in rows],
        [names.index(row) for names, row in rows],
    )


class ListedNames(Names):
    """Names that are known already."""

    __slots__ = ("_indices", "_keys", "_origins")

    def __init__(self, keys: Sequence[str], origins: Sequence[str], indices: Sequence[int]) -> None:
        self._keys, self._origins, self._indices = keys, origins, indices

    def key(self, row: int) -> str:
        return self._keys[row]

    def origin(self, row: int) -> str:
        return self._origins[row]

    def index(self, row: int) -> int:
        return self._indices[row]

    def take(self, rows: Rows) -> ListedNames:
        at = rows.tolist()
        return ListedNames(
            [self._keys[row] for row in at], [self._origins[row] for row in at], [self._indices[row] for row in at]
        )


class RenamedNames(Names):
    """The same samples, some of them under keys that a function gave them: {row: key}."""

    __slots__ = ("_keys", "_names")

    def __init__(self, names: Names, keys: Mapping[int, str]) -> None:
        self._names, self._keys = names, keys

    def key(self, row: int) -> str:
        given = self._keys.get(row)
        return self._names.key(row) if given is None else given

    def origin(self, row: int) -> str:
        return self._names.origin(row)

    def index(self, row: int) -> int:
        return self._names.index(row)

    def bound(self, source: Source | None) -> RenamedNames:
        return RenamedNames(self._names.bound(source), self._keys)

    def take(self, rows: Rows) -> RenamedNames:
        keys = {at: self._keys[row] for at, row in enumerate(rows.tolist()) if row in self._keys}
        return RenamedNames(self._names.take(rows), keys)


def key_text(key: Any) -> str:
    """A user's key as text that is safe in logs. Printable text does not change."""
    if isinstance(key, str) and key.isprintable():
        return key
    if isinstance(key, bytes):
        return printable(key)
    try:
        text = str(key)
    except Exception as error:  # it may be of any type
        raise BatchError(f"{a_type(key)} cannot be a key, because it cannot be shown as text; use str") from error
    try:
        return printable(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # a lone surrogate, as broken JSON has it
        return printable(text.encode("utf-8", "surrogatepass"))


class NamedSample(dict[str, Any]):
    """One sample as functions get it: a dict of its fields that knows which sample it is.

    ``sample["__key__"]`` is its key too, as in WebDataset, but is not among its items: ``{**sample}`` and ``in`` do not see it.

    >>> sample = NamedSample.of({"cls": 3}, ListedNames(["cat/1"], ["a.tar, byte 512"], [7]), 0)
    >>> sample, sample.key, sample["__key__"], sample.origin, sample.index
    ({'cls': 3}, 'cat/1', 'cat/1', 'a.tar, byte 512', 7)
    """

    __slots__ = ("_names", "_row")

    # The names and not the chunk: who keeps a sample must not keep the columns of all samples read with it.
    # Both are missing in a sample that a user made of a dict: it has no key.
    _names: Names
    _row: int

    @classmethod
    def of(cls, values: Mapping[str, Any], names: Names, row: int) -> NamedSample:
        sample = cls(values)
        sample._names = names
        sample._row = row
        return sample

    @property
    def key(self) -> str:
        """The sample's name, the same in every run."""
        return self._known().key(self._row)

    @property
    def origin(self) -> str:
        """Where it is stored: a path, or a shard and the byte in it."""
        return self._known().origin(self._row)

    @property
    def index(self) -> int:
        """Its number in its source; in a stream, in the order samples came."""
        return self._known().index(self._row)

    def __missing__(self, name: str) -> str:
        if name == KEY and hasattr(self, "_names"):
            return self.key
        _no_field(name, self)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, self.key if name == KEY and hasattr(self, "_names") else default)

    def copy(self) -> NamedSample:
        return NamedSample.of(self, self._names, self._row) if hasattr(self, "_names") else NamedSample(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if not hasattr(self, "_names"):
            return NamedSample, (dict(self),)
        # In another process, or in a copy, with names that stand for themselves: a source may be large.
        return NamedSample.of, (dict(self), ListedNames([self.key], [self.origin], [self.index]), 0)

    def _known(self) -> Names:
        if not hasattr(self, "_names"):
            raise AttributeError(
                "this sample was made from a dict and has no key, origin or index; use the one that the function received"
            )
        return self._names


class NamedColumns(dict[str, Any]):
    """A batch as functions get it: a dict of its columns that knows its samples' keys.

    ``columns["__key__"]`` is the list of keys, but is not among the items.

    >>> columns = NamedColumns.of({"cls": [3, 4]}, 2, lambda: ["a", "b"])
    >>> columns, columns.rows, columns.sample_keys, columns["__key__"]
    ({'cls': [3, 4]}, 2, ['a', 'b'], ['a', 'b'])
    """

    __slots__ = ("_keys", "rows")

    _keys: Callable[[], list[str]]
    #: how many samples the batch has
    rows: int

    @classmethod
    def of(cls, columns: Mapping[str, Any], rows: int, keys: Callable[[], list[str]]) -> NamedColumns:
        named = cls(columns)
        named._keys = keys
        named.rows = rows
        return named

    @property
    def sample_keys(self) -> list[str]:
        """The samples' keys, row by row."""
        if not hasattr(self, "_keys"):
            raise AttributeError("these columns were made from a dict and have no keys; use those that the function received")
        keys = self._keys()
        self._keys = lambda: keys
        return keys

    def __missing__(self, name: str) -> list[str]:
        if name == KEY and hasattr(self, "_keys"):
            return self.sample_keys
        _no_field(name, self)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, self.sample_keys if name == KEY and hasattr(self, "_keys") else default)

    def copy(self) -> NamedColumns:
        return NamedColumns.of(self, self.rows, self._keys) if hasattr(self, "_keys") else NamedColumns(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if not hasattr(self, "_keys"):
            return NamedColumns, (dict(self),)
        return _listed_columns, (dict(self), self.rows, self.sample_keys)


def _listed_columns(columns: dict[str, Any], rows: int, keys: list[str]) -> NamedColumns:
    return NamedColumns.of(columns, rows, lambda: keys)


def _no_field(name: str, fields: Mapping[str, Any]) -> NoReturn:
    raise KeyError(f"no field {name!r}; the fields are {', '.join(map(str, fields))}")
