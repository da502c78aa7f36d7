"""Splits samples over numbered shards, by bytes or by count."""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...errors import ClosedError, ConfigError, SourceEmpty, WriteError
from ...sizes import a_type, counted, parse_bytes, show_bytes
from ...source.paths import AnyPath, printable
from ...source.shards.shard_index import ShardIndex
from ..values.written_samples import each
from .target import Pipe, ShardFile

_NUMBER = re.compile(r"\{(?P<braces>:0(?P<width>\d+)d?|:d)?\}|%(?:0(?P<percent>\d+))?d")
#: digits of ``{}``: enough that the shards' order is the order of their names
_DIGITS = 6

_Encoded = TypeVar("_Encoded")
_Self = TypeVar("_Self", bound="ShardWriter[Any]")


@dataclass(frozen=True, slots=True)
class WrittenShards:
    """What was written: the files in order, and how many samples and bytes they hold (indexes not counted)."""

    paths: tuple[str, ...]
    samples: int
    bytes: int


class ShardWriter(ABC, Generic[_Encoded]):
    """A shard being written: it appears, whole and with its index, when it is closed."""

    def __init__(self, target: ShardFile | Pipe) -> None:
        self._target = target
        self.samples = 0
        self._open = True
        self._size = 0  # bytes of the shard so far, gathered ones included
        self._pieces: list[bytes] = []

    @property
    def path(self) -> str:
        """What is being written, for messages."""
        return self._target.told

    @property
    def size(self) -> int:
        """Bytes the shard would have if it were closed now."""
        return self._size

    @abstractmethod
    def size_with(self, encoded: _Encoded) -> int:
        """Bytes the shard would have with one more sample."""

    @abstractmethod
    def add(self, encoded: _Encoded) -> None:
        """Append an encoded sample."""

    @abstractmethod
    def _end(self) -> None:
        """Write what is left."""

    @abstractmethod
    def _index(self, size: int, mtime_ns: int) -> ShardIndex:
        """What the index says."""

    def close(self) -> None:
        """Make the shard appear; nothing when it is closed already."""
        if not self._open:
            return
        try:
            self._end()
            self._open = False
            self._target.close(self._index)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Give the shard up: nothing of it stays, unless it went down a pipe."""
        self._open = False
        self._pieces.clear()
        self._target.abandon()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _check_open(self) -> None:
        if not self._open:
            raise ClosedError(f"{self.path}: this shard is closed; write to a new one")


class Pattern:
    """The names of shards: ``out-{:06d}.tar``, ``out-%06d.tar``, ``out-{}.tar`` (six digits), or ``out.tar`` for a single one.

    >>> Pattern("out-{:04d}.tar").name(7), Pattern("out-%03d.tar").name(7), Pattern("out-{}.tar").name(7)
    ('out-0007.tar', 'out-007.tar', 'out-000007.tar')
    """

    def __init__(self, pattern: AnyPath) -> None:
        if not isinstance(pattern, (str, bytes, os.PathLike)):
            raise ConfigError(f"{a_type(pattern)} is not a name for shards; use a path (TarWriter takes file objects, too)")
        self.text = os.fsdecode(pattern)
        found = list(_NUMBER.finditer(self.text))
        rest = _NUMBER.sub("", self.text)
        if len(found) > 1 or re.search(r"\{.*\}|%\d+d", rest):
            raise ConfigError(
                f"{self.text}: must have one place for the shard's number, as in out-{{:06d}}.tar, out-%06d.tar or out-{{}}.tar"
            )
        self.single = not found
        if found:
            self._before, self._after = self.text[: found[0].start()], self.text[found[0].end() :]
            plain = _DIGITS if found[0][0] == "{}" else 1
            self._width = int(found[0]["width"] or found[0]["percent"] or plain)
            if "/" in self._after:
                raise ConfigError(f"{self.text}: put the number in the name of the file, not of a folder")

    def name(self, number: int) -> str:
        """The path of a shard."""
        return self.text if self.single else f"{self._before}{number:0{self._width}d}{self._after}"

    def existing(self, first: int = 0) -> list[str]:
        """The shards of these names that are there, from a number on."""
        if self.single:
            return []
        folder, begin = os.path.split(self._before)
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  names may be any bytes
        except OSError:
            return []  # reported when it is written to
        wanted = re.compile(f"{re.escape(begin)}([0-9]{{{self._width},}}){re.escape(self._after)}", re.DOTALL)
        numbers = [int(found[1]) for found in map(wanted.fullmatch, names) if found]
        return [name for number in sorted(numbers) if number >= first and os.path.lexists(name := self.name(number))]


def write_shards(
    pattern: AnyPath,
    samples: Iterable[Any],
    encode: Callable[[Any, int], _Encoded],
    open_writer: Callable[[str], ShardWriter[_Encoded]],
    *,
    max_bytes: int | str | None,
    max_samples: int | None,
    overwrite: bool,
) -> WrittenShards:
    """Write samples to as many shards as necessary. Each appears when it is full; if something fails, earlier ones are kept."""
    names = Pattern(pattern)
    most_bytes = None if max_bytes is None else parse_bytes(max_bytes, "max_bytes")
    if max_samples is not None and (not isinstance(max_samples, int) or isinstance(max_samples, bool) or max_samples < 1):
        raise ConfigError(f"max_samples={max_samples!r}: must be an integer >= 1")
    if names.text == "-":
        most_bytes = max_samples = None  # a pipe is one shard, however long
    if not overwrite and (there := names.existing()):
        raise WriteError(f"{told_paths(there)} already there; use another name, or overwrite=True")
    paths: list[str] = []
    total_bytes, number = 0, 0
    writer = open_writer(names.name(0))
    try:
        with contextlib.closing(each(samples)) as stream:
            for number, sample in enumerate(stream, 1):
                encoded = encode(sample, number - 1)
                full = writer.samples == max_samples or (most_bytes is not None and writer.size_with(encoded) > most_bytes)
                if full and writer.samples:
                    if names.single:
                        raise ConfigError(
                            f"{names.text}: more than one shard is needed (one is full with {counted(writer.samples, 'sample')}, "
                            f"{show_bytes(writer.size)}); name them {numbered(names.text)!r}, or raise the limit "
                            "(max_bytes=None: no limit)"
                        )
                    writer.close()
                    paths.append(names.name(len(paths)))
                    total_bytes += writer.size
                    writer = open_writer(names.name(len(paths)))
                writer.add(encoded)
        if not number:
            raise SourceEmpty(f"{names.text}: there were no samples to write; check their source")
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    paths.append(names.name(len(paths)))
    if overwrite and (stale := names.existing(len(paths))):
        raise WriteError(
            f"{names.text}: {counted(len(paths), 'shard')} written; but {told_paths(stale)} left from an earlier run, which "
            "would be read together with them: delete what you do not want"
        )
    return WrittenShards(tuple(paths), number, total_bytes + writer.size)


def numbered(name: str) -> str:
    """The name of one shard as a pattern for several.

    >>> numbered("out.tar")
    'out-{:06d}.tar'
    """
    stem, dot, ending = name.rpartition(".")
    return f"{stem}-{{:06d}}.{ending}" if dot and "/" not in ending else f"{name}-{{:06d}}"


def told_paths(paths: list[str]) -> str:
    """Some paths as the beginning of a sentence."""
    first = printable(os.fsencode(paths[0]))
    return f"{first} is" if len(paths) == 1 else f"{first} and {len(paths) - 1:,} more like it are"
