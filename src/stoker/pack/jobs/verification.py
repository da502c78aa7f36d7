"""Every sample of a source read and checked: what `stoker verify` does, without the talking.

Shards of records are read once, from the first byte to the last, so that also what no sample needs is checked: headers, the end,
the checksums of lengths. Samples are compared with the checksums in the shard's index, where there is one. After a place that
cannot be understood the rest of the shard is read by its index.

There are no threads here. What may run in parallel goes through `each`, which the caller gives.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptShard, ShardError, StokerError
from ...kernel import native
from ...kernel.records import BYTES as BYTES_LIST
from ...kernel.records import ExampleStats, TarScan, Wanted, crc32c, parse_examples, verify_records
from ...sizes import counted
from ...source.chunk import BytesColumn, Ints
from ...source.opening import tfrecord_packing
from ...source.paths import printable, shard_and_offset, unprintable
from ...source.shards.codecs import PICKLES, decode_field, kind_of
from ...source.shards.indexing import PIECE, find_index
from ...source.shards.seeks import seek_tables
from ...source.shards.shard_index import ShardIndex
from ...source.source import Source
from ...source.streams.tar_stream import TarSample, is_compressed, open_pieces, tar_samples
from ...source.streams.tfrecord_stream import whole_records
from ...source.streams.unpack import check_unpacker, unpacked
from ...storage.blob import Blob
from ...storage.fetch import Each
from ...storage.scratch import Scratch
from ..values.jpegs import make_seek
from ..values.stored_images import EXTENSIONS, check_picture, picture_kind
from .planning import Moved, gathered, unheard
from .rawtar import is_absent, raw_tar
from .spares import Spares

#: members named in a note
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a sample; without a key, with a shard as a whole. `offset` is None where there is no single place."""

    key: str
    shard: str
    offset: int | None
    reason: str


@dataclass(slots=True)
class Findings:
    """What was found in a shard, or in a whole source without shards."""

    shard: str
    samples: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checksums: bool = True  # False: an index would have some to compare with
    keys: list[Any] = field(default_factory=list)  # bytes, as they are stored
    offsets: list[int] = field(default_factory=list)
    #: fields of the samples: sets of names, and for each sample the number of its set
    field_sets: list[tuple[str, ...]] = field(default_factory=list)
    fields: list[int] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        self.problems.append(problem)


class Verifier:
    """Checks shards and samples; with `decode`, pictures are decoded too. Any number of shards may be checked at once."""

    def __init__(self, decode: bool = False, each: Each = map, moved: Moved = unheard) -> None:
        self._decode, self._each, self._moved = decode, each, moved
        self._spares = Spares()

    # ---- tar ----------------------------------------------------------------------------------------------------------------

    def tar(self, blob: Blob, pieces: Iterable[Any] | None = None) -> Findings:
        """Check a tar shard, plain or packed; `pieces` are its bytes where they come from a pipe."""
        found = Findings(blob.url)
        if pieces is None and not self._is_there(blob, found):
            return found
        in_sequence = pieces is not None or is_compressed(blob.name)
        index = None if in_sequence else self._index(blob, "tar", found)
        found.checksums = in_sequence or (index is not None and index.crc is not None)
        ended: list[StokerError] = []
        strays = _Strays(open_pieces(blob) if pieces is None else pieces)
        samples = _until_error(tar_samples(strays, blob.url), ended)
        numbers: dict[tuple[str, ...], int] = {}
        check = _TarCheck(blob.url, index, self._checked_fields, self._seek_check(index))
        for seen, size, problems in self._each(check, _chunks(samples)):
            for key, offset, names in seen:
                found.keys.append(key)
                found.offsets.append(offset)
                found.fields.append(_number(found, numbers, names))
            self._count(found, len(seen), size)
            found.problems += problems
        found.notes += strays.told()
        for error in ended:
            found.add(Problem("", blob.url, getattr(error, "offset", None), str(error)))
        if ended and index is not None:
            self._rest(blob, index, found)
        elif index is not None and len(index) != len(found.keys):
            found.add(Problem("", blob.url, None, f"its index names {len(index):,} samples, and it has {len(found.keys):,}"))
        return found

    def _rest(self, blob: Blob, index: ShardIndex, found: Findings) -> None:
        """Samples after a bad place, as their index finds them."""
        source = raw_tar([blob], [index])
        done = self.rows(source, np.arange(len(found.keys), len(source)))
        found.samples += done.samples
        found.bytes += done.bytes
        found.problems += done.problems

    def _checked_fields(self, fields: Iterable[tuple[str, Any]]) -> str:
        """What is wrong with the fields of a sample; nothing if all is well."""
        with self._spares.one() as scratch:
            for name, data in fields:
                try:
                    self._check_field(name, data, scratch)
                except StokerError as error:
                    return f"{name}: {error}" if name not in str(error) else str(error)
        return ""

    def _check_field(self, name: str, data: Any, scratch: Scratch) -> None:
        kind = kind_of(name)
        if self._decode and isinstance(data, bytes) and (kind in EXTENSIONS or name == "image" or picture_kind(data)):
            check_picture(data, scratch)
        elif isinstance(data, bytes) and kind not in PICKLES:
            decode_field(name, data)

    def _seek_check(self, index: ShardIndex | None) -> _SeekCheck | None:
        return _SeekCheck(index, self._decode, self._spares) if index is not None and index.seeks else None

    # ---- TFRecord -----------------------------------------------------------------------------------------------------------

    def tfrecord(self, blob: Blob) -> Findings:
        """Check a TFRecord file, plain or packed: both checksums of every record, and that it is a tf.train.Example."""
        found = Findings(blob.url)
        if not self._is_there(blob, found):
            return found
        packing = tfrecord_packing(blob)
        check_unpacker(packing, blob.url)
        index = self._index(blob, "tfrecord", found) if packing is None else None
        ended: list[StokerError] = []
        check = _RecordCheck(blob, self._checked_fields if self._decode else None, self._seek_check(index))
        foreign: list[Problem] = []
        for count, size, problems, others in self._each(check, _until_error(_records(blob, packing), ended)):
            self._count(found, count, size)
            found.problems += problems
            foreign += others
        for error in ended:
            found.add(Problem("", blob.url, getattr(error, "offset", None), str(error)))
        if len(foreign) < found.samples:
            found.problems += foreign
        elif foreign:
            found.notes.append("its records are not tf.train.Examples; their checksums are right, and no more is known of them")
        if index is not None and not ended and len(index) != found.samples:
            found.add(Problem("", blob.url, None, f"its index names {len(index):,} records, and it has {found.samples:,}"))
        return found

    # ---- anything else ------------------------------------------------------------------------------------------------------

    def rows(self, source: Source, indices: Ints) -> Findings:
        """Check samples of any source by reading them."""
        found = Findings(source.describe())
        for count, size, problems in self._each(lambda chunk: self._some_rows(source, chunk), _pieces_of(indices)):
            self._count(found, count, size)
            found.problems += problems
        return found

    def _some_rows(self, source: Source, indices: Ints) -> tuple[int, int, list[Problem]]:
        try:
            return self._rows_together(source, indices)
        except MemoryError:
            if len(indices) > 1:  # perhaps for one of them only
                counts, sizes, problems = zip(*(self._some_rows(source, indices[at : at + 1]) for at in range(len(indices))))
                return sum(counts), sum(sizes), [problem for some in problems for problem in some]
            index = int(indices[0])
            return (
                1,
                0,
                [Problem(source.key(index), *shard_and_offset(source.origin(index)), "there is not enough memory to read it")],
            )

    def _rows_together(self, source: Source, indices: Ints) -> tuple[int, int, list[Problem]]:
        problems: list[Problem] = []
        with self._spares.one() as scratch:
            rows = source.read(indices, tuple(source.fields), {}, scratch)
            size = sum(int(column.lengths.sum()) for column in rows.columns.values() if isinstance(column, BytesColumn))
            misled = _misled_rows(rows.columns, self._decode, scratch)
            for row, index in enumerate(indices.tolist()):
                reason = str(rows.errors[row]) if row in rows.errors else self._row_trouble(source, rows.columns, row)
                reason = reason or misled.get(row, "")
                if reason:
                    problems.append(Problem(source.key(index), *shard_and_offset(source.origin(index)), reason))
        return len(indices), size, problems

    def _row_trouble(self, source: Source, columns: dict[str, Any], row: int) -> str:
        values = [(name, columns[name][row]) for name, spec in source.fields.items() if spec.kind == "bytes"]
        empty = next((name for name, value in values if name == "image" and not value), "")
        return (
            "the file is empty"
            if empty
            else self._checked_fields((name, value) for name, value in values if not is_absent(value))
        )

    # ---- shared -------------------------------------------------------------------------------------------------------------

    def _is_there(self, blob: Blob, found: Findings) -> bool:
        try:
            blob.stat()
        except StokerError as error:
            found.add(Problem("", blob.url, None, str(error)))
            return False
        return True

    def _index(self, blob: Blob, kind: str, found: Findings) -> ShardIndex | None:
        try:
            return find_index(blob, kind)
        except ShardError as error:
            found.add(Problem("", blob.url, error.offset, str(error)))
            return None

    def _count(self, found: Findings, samples: int, nbytes: int) -> None:
        found.samples += samples
        found.bytes += nbytes
        self._moved(samples, nbytes)


# ---- all shards together ----------------------------------------------------------------------------------------------------


def lacking(found: Sequence[Findings]) -> list[Problem]:
    """Samples without a field that others have."""
    every = dict.fromkeys(name for shard in found for names in shard.field_sets for name in names)
    problems = []
    for shard in found:
        short = {number: [name for name in every if name not in names] for number, names in enumerate(shard.field_sets)}
        if not any(short.values()):
            continue
        for key, offset, number in zip(shard.keys, shard.offsets, shard.fields):
            if short[number]:
                has = ", ".join(shard.field_sets[number])
                reason = f"has no {' and no '.join(short[number])}, only {has}; others have it"
                problems.append(Problem(printable(key), shard.shard, offset, reason))
    return problems


def repeated(found: Sequence[Findings]) -> tuple[list[Problem], dict[str, list[str]]]:
    """Keys that several samples have: within a shard, which is a problem, and over several shards, with their names."""
    hashes = np.array([hash(key) for shard in found for key in shard.keys], np.int64)
    order = np.sort(hashes)
    twice = set(order[1:][order[1:] == order[:-1]].tolist())
    if not twice:
        return [], {}
    places: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
    for shard in found:
        for key, offset in zip(shard.keys, shard.offsets):
            if hash(key) in twice:
                places[key].append((shard.shard, offset))
    problems: list[Problem] = []
    across: dict[str, list[str]] = {}
    for key, where in places.items():
        shards = list(dict.fromkeys(name for name, _ in where))
        if len(shards) > 1:
            across[printable(key)] = shards
        if len(where) > len(shards):
            name, offset = where[-1]
            reason = "another sample of this shard has the same key; the files of a sample must be adjacent (`stoker tar sort`)"
            problems.append(Problem(printable(key), name, offset, reason))
    return problems, across


# ---- reading ----------------------------------------------------------------------------------------------------------------


class _Strays:
    """Pieces of a tar on their way, in which members are counted that belong to no sample."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces, self._scan = pieces, TarScan(checksums=False)

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            with contextlib.suppress(CorruptShard):  # told by whoever reads the samples
                self._scan.feed(piece)
                self._scan.forget(self._scan.samples)
            yield piece

    def told(self) -> list[str]:
        if not self._scan.ignored:
            return []
        names = [printable(name) for name in self._scan.ignored_names[:_NAMED]]
        more = ", ..." if self._scan.ignored > len(names) else ""
        return [f"{counted(self._scan.ignored, 'member')} belong to no sample: {', '.join(names)}{more}"]


class _TarCheck:
    """Compares samples with the index and checks their fields."""

    def __init__(
        self,
        told: str,
        index: ShardIndex | None,
        fields: Callable[[Iterable[tuple[str, Any]]], str],
        seeks: _SeekCheck | None = None,
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


class _SeekCheck:
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


_REMEDY = "`stoker index --jpeg --force` makes it again"
_DAMAGED = f"its seek index does not match its checksum, or cannot be read; {_REMEDY}"


def _seek_trouble(data: bytes, seek: bytes, decode: bool, scratch: Scratch) -> str:
    """What is wrong with a JPEG's seek index; nothing if all is well, or if it has none."""
    if not seek:
        return ""
    if not data or not native.seek_fits(data, seek):
        return f"its seek index was made for another file; {_REMEDY}"
    if decode and make_seek(data, scratch, native.seek_step(seek)) != seek:
        return f"its seek index is not the one that is made of it now; {_REMEDY}"
    return ""


def _misled_rows(columns: Mapping[str, Any], decode: bool, scratch: Scratch) -> dict[int, str]:
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


class _RecordCheck:
    """Checks some records of a TFRecord file: (records, bytes, problems, and those that are right but no Examples)."""

    def __init__(
        self,
        blob: Blob,
        fields: Callable[[Iterable[tuple[str, Any]]], str] | None,
        seeks: _SeekCheck | None = None,
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
        self, seeks: _SeekCheck, data: NDArray[np.uint8], records: tuple[Ints, Ints], first: int, base: int, examples: bool
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


def _records(blob: Blob, packing: str | None) -> Iterator[tuple[int, int, NDArray[np.uint8], Ints, Ints]]:
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


def _until_error(things: Iterable[Any], ended: list[StokerError]) -> Iterator[Any]:
    """The things up to the first error, which goes to `ended`: what came before it is good, and still counts."""
    try:
        yield from things
    except StokerError as error:
        ended.append(error)


def _chunks(samples: Iterable[TarSample]) -> Iterator[tuple[int, list[TarSample]]]:
    """Samples in chunks, each with the number of its first."""
    number = 0
    for chunk in gathered(samples, attrgetter("nbytes")):
        yield number, chunk
        number += len(chunk)


def _pieces_of(indices: Ints) -> Iterator[Ints]:
    for at in range(0, len(indices), 64):
        yield indices[at : at + 64]


def _number(found: Findings, numbers: dict[tuple[str, ...], int], names: tuple[str, ...]) -> int:
    names = tuple(sorted(names))
    if names not in numbers:
        numbers[names] = len(numbers)
        found.field_sets.append(names)
    return numbers[names]
