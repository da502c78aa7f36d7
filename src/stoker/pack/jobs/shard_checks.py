"""Finds what is wrong with samples as they are read from a shard, by its index, its checksums and its seek indices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptShard
from ...kernel import native
from ...kernel.example_columns import BYTES as BYTES_LIST
from ...kernel.example_columns import ExampleStats, Wanted, parse_examples
from ...kernel.records import TarScan, crc32c, verify_records
from ...sizes import counted
from ...source.chunk import BytesColumn, Ints
from ...source.paths import printable, unprintable
from ...source.shards.indexing import PIECE
from ...source.shards.seeks import seek_tables
from ...source.shards.shard_index import ShardIndex
from ...source.streams.tar_stream import TarSample
from ...source.streams.tfrecord_stream import whole_records
from ...source.streams.unpack import unpacked
from ...storage.blob import Blob
from ...storage.scratch import Scratch
from ..values.jpegs import make_seek
from ..values.stored_images import picture_kind
from .spares import Spares

#: members named in a note
_NAMED = 3
_REMEDY = "`stoker index --jpeg --force` makes it again"
_DAMAGED = f"its seek index does not match its checksum, or cannot be read; {_REMEDY}"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a sample or, without a key, with a whole shard. `offset` is None if there is no single place."""

    key: str
    shard: str
    offset: int | None
    reason: str


class Strays:
    """Pieces of a tar on their way, in which members are counted that belong to no sample."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces, self._scan = pieces, TarScan(checksums=False)

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            with contextlib.suppress(CorruptShard):  # reported by the reader of the samples
                self._scan.feed(piece)
                self._scan.forget(self._scan.samples)
            yield piece

    def told(self) -> list[str]:
        if not self._scan.ignored:
            return []
        names = [printable(name) for name in self._scan.ignored_names[:_NAMED]]
        more = ", ..." if self._scan.ignored > len(names) else ""
        return [f"{counted(self._scan.ignored, 'member')} belong to no sample: {', '.join(names)}{more}"]


class TarCheck:
    """Compares samples with the index and checks their fields."""

    def __init__(
        self,
        told: str,
        index: ShardIndex | None,
        fields: Callable[[Iterable[tuple[str, Any]]], str],
        seeks: SeekCheck | None = None,
    ) -> None:
        self._told, self._index, self._fields, self._seeks = told, index, fields, seeks

    def __call__(self, numbered: tuple[int, list[TarSample]]) -> tuple[list[Any], int, list[Problem]]:
        """Key, place and field names of each sample, their bytes together, and what is wrong."""
        first, samples = numbered
        problems = []
        misled = {} if self._seeks is None else self._seeks(first, [sample.fields for sample in samples])
        for number, sample in enumerate(samples, first):
            reason = self._against_index(number, sample) or self._fields(sample.fields.items()) or misled.get(number, "")
            if reason:
                problems.append(Problem(printable(sample.key), self._told, sample.offset, reason))
        seen = [(sample.key, sample.offset, tuple(sample.fields)) for sample in samples]
        return seen, sum(sample.nbytes for sample in samples), problems

    def _against_index(self, number: int, sample: TarSample) -> str:
        index = self._index
        if index is None or index.keys is None or index.crc is None:
            return ""
        if number >= len(index) or index.keys[number] != sample.key:
            return "its index says otherwise: no such sample is there; `stoker index --force` makes it again"
        for at, name in enumerate(index.fields):
            data = sample.fields.get(name)
            if (-1 if data is None else len(data)) != int(index.length[number, at]):
                return f"{name}: its index says otherwise; if that was intended, `stoker index --force` makes it again"
            if data is not None and crc32c(data) != int(index.crc[number, at]):
                return (
                    f"{name}: does not match the checksum in the shard's index: it was damaged, or changed after it was indexed"
                )
        return ""


class SeekCheck:
    """Compares JPEGs with the seek indices their shard's index has for them; with `decode` by making these again."""

    def __init__(self, index: ShardIndex, decode: bool, spares: Spares) -> None:
        self._tables = seek_tables([index], np.array([len(index)], np.int64), far=True)
        self._decode, self._spares = decode, spares

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that have some."""
        return tuple(self._tables)

    def __call__(self, first: int, samples: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """What is wrong with samples from number `first` on, by number."""
        found: dict[int, str] = {}
        rows = np.arange(first, first + len(samples), dtype=np.int64)
        with self._spares.one() as scratch:
            for name, table in self._tables.items():
                known = rows[rows < len(table)]
                seeks, wrong = table.strings(known, scratch)
                found |= {first + row: f"{name}: {_DAMAGED}" for row in wrong.tolist()}
                for row, seek in enumerate(seeks):
                    reason = _seek_trouble(samples[row].get(name) or b"", seek, self._decode, scratch)
                    if reason:
                        found.setdefault(first + row, f"{name}: {reason}")
        return found


def _seek_trouble(data: bytes, seek: bytes, decode: bool, scratch: Scratch) -> str:
    """What is wrong with a JPEG's seek index; nothing if all is well, or if it has none."""
    if not seek:
        return ""
    if not data or not native.seek_fits(data, seek):
        return f"its seek index was made for another file; {_REMEDY}"
    if decode and make_seek(data, scratch, native.seek_step(seek)) != seek:
        return f"its seek index is not the one that is made of it now; {_REMEDY}"
    return ""


def misled_rows(columns: Mapping[str, Any], decode: bool, scratch: Scratch) -> dict[int, str]:
    """What is wrong with the seek indices that columns came with."""
    found: dict[int, str] = {}
    for name, column in columns.items():
        if not isinstance(column, BytesColumn) or column.seeks is None:
            continue
        spans, wrong = column.seeks.read(column, scratch)
        found |= dict.fromkeys(wrong.tolist(), f"{name}: changed since its seek index was made, or that is damaged; {_REMEDY}")
        if spans is None:
            continue
        for row, seek in enumerate(BytesColumn(*spans).own()):
            if reason := _seek_trouble(column[row], seek, decode, scratch):
                found.setdefault(row, f"{name}: {reason}")
    return found


class RecordCheck:
    """Checks some records of a TFRecord file: (records, bytes, problems, and those that are right but no Examples)."""

    def __init__(
        self,
        blob: Blob,
        fields: Callable[[Iterable[tuple[str, Any]]], str] | None,
        seeks: SeekCheck | None = None,
    ) -> None:
        self._blob, self._fields, self._seeks = blob, fields, seeks

    def __call__(self, piece: tuple[int, int, NDArray[np.uint8], Ints, Ints]) -> tuple[int, int, list[Problem], list[Problem]]:
        first, base, data, starts, lengths = piece
        right = verify_records(data, starts, lengths)
        problems = [
            self._problem(first + row, base + int(starts[row]), "does not match its checksum: it is damaged")
            for row in np.flatnonzero(~right).tolist()
        ]
        rows = np.flatnonzero(right)
        good = starts[rows], lengths[rows]
        bad = parse_examples(data, *good, []).bad
        others = [
            self._problem(
                first + int(rows[at]), base + int(good[0][at]), f"not a tf.train.Example at byte {int(bad[at])} of the record"
            )
            for at in np.flatnonzero(bad >= 0).tolist()
        ]
        if self._fields is not None and not others:
            problems += self._pictures(data, rows, good, first, base)
        if self._seeks is not None and len(rows) == len(starts):
            problems += self._misled(self._seeks, data, good, first, base, examples=not others)
        return len(starts), int(lengths.sum()), problems, others

    def _pictures(self, data: NDArray[np.uint8], rows: Ints, good: tuple[Ints, Ints], first: int, base: int) -> list[Problem]:
        """Every bytes feature that mostly holds pictures must hold nothing else."""
        assert self._fields is not None
        stats = ExampleStats()
        stats.add(data, *good)
        wanted = [
            Wanted(feature.name, BYTES_LIST, 1) for feature in stats.features if feature.kind == BYTES_LIST and feature.most == 1
        ]
        parsed, problems = parse_examples(data, *good, wanted), []
        for feature, (starts, lengths), status in zip(wanted, parsed.columns, parsed.status.T):
            column = BytesColumn(data, starts, lengths)
            here = np.flatnonzero(status == 0).tolist()
            pictures = sum(bool(picture_kind(data[starts[row] : starts[row] + 16].tobytes())) for row in here)
            if not pictures or 2 * pictures <= len(here):
                continue
            name = printable(feature.name)
            for row in here:
                reason = self._fields([(f"{name}.jpg", column[row])])
                if reason:
                    problems.append(
                        self._problem(first + int(rows[row]), base + int(good[0][row]), reason.replace(".jpg", "", 1))
                    )
        return problems

    def _misled(
        self, seeks: SeekCheck, data: NDArray[np.uint8], records: tuple[Ints, Ints], first: int, base: int, examples: bool
    ) -> list[Problem]:
        """What is wrong with the seek indices of these records."""
        wanted = [Wanted(unprintable(name), BYTES_LIST, 1) for name in seeks.names]
        found = parse_examples(data, *records, wanted).columns if examples else [records for _ in wanted]
        columns = [BytesColumn(data, *spans) for spans in found]
        samples = [{name: column[row] for name, column in zip(seeks.names, columns)} for row in range(len(records[0]))]
        wrong = seeks(first, samples).items()
        return [self._problem(number, base + int(records[0][number - first]), reason) for number, reason in wrong]

    def _problem(self, number: int, start: int, reason: str) -> Problem:
        return Problem(f"{self._blob.name}#{number}", self._blob.url, start - 12, reason)


def records_of(blob: Blob, packing: str | None) -> Iterator[tuple[int, int, NDArray[np.uint8], Ints, Ints]]:
    """Whole records of a TFRecord file, in pieces: number of the first, place, bytes, and where in them the payloads lie.

    Places in a packed file are those in what it unpacks to. The checksums of payloads are left to the caller, so that one damaged
    record does not hide the next.
    """
    size = blob.stat().size
    if not size:
        raise CorruptShard(f"{blob.url}: is empty (0 bytes); fetch or make it again", shard=blob.url, offset=0)
    pieces, number = unpacked(blob.stream(0, PIECE), packing, blob.url), 0
    try:
        for base, data, starts, lengths in whole_records(pieces, size if packing is None else None, verify=False):
            yield number, base, data.copy(), starts, lengths  # checked while the next piece is read
            number += len(starts)
    except CorruptShard as error:
        if error.shard:
            raise
        raise CorruptShard(f"{blob.url}: {error}", shard=blob.url, offset=error.offset) from error
