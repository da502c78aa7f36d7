"""Reads and checks every sample of a source: the work of `stoker verify`, without its output.

Shards of records are read once, from the first byte to the last, so that everything is checked that no sample needs: headers, the
end, the checksums of lengths. Samples are compared with the checksums in the shard's index, if it has one. After a place that
cannot be understood, the rest of the shard is read by its index.

There are no threads here. What may run in parallel goes through `each`, which the caller passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from ...errors import ShardError, StokerError
from ...source.chunk import BytesColumn, Ints
from ...source.opening import tfrecord_packing
from ...source.paths import printable, shard_and_offset
from ...source.shards.codecs import PICKLES, decode_field, kind_of
from ...source.shards.indexing import find_index
from ...source.shards.shard_index import ShardIndex
from ...source.source import Source
from ...source.streams.tar_stream import TarSample, is_compressed, open_pieces, tar_samples
from ...source.streams.unpack import check_unpacker
from ...storage.blob import Blob
from ...storage.fetch import Each
from ...storage.scratch import Scratch
from ..values.stored_images import EXTENSIONS, check_picture, picture_kind
from .planning import Moved, gathered, unheard
from .rawtar import is_absent, raw_tar
from .shard_checks import Problem, RecordCheck, SeekCheck, Strays, TarCheck, misled_rows, records_of
from .spares import Spares


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
    #: fields of the samples: sets of names with their numbers, and for each sample the number of its set
    field_sets: dict[tuple[str, ...], int] = field(default_factory=dict)
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
        """Check a tar shard, plain or compressed; `pieces` are its bytes if they come from a pipe."""
        found = Findings(blob.url)
        if pieces is None and not self._is_there(blob, found):
            return found
        in_sequence = pieces is not None or is_compressed(blob.name)
        index = None if in_sequence else self._index(blob, "tar", found)
        found.checksums = in_sequence or (index is not None and index.crc is not None)
        ended: list[StokerError] = []
        strays = Strays(open_pieces(blob) if pieces is None else pieces)
        samples = _until_error(tar_samples(strays, blob.url), ended)
        check = TarCheck(blob.url, index, self._checked_fields, self._seek_check(index))
        for seen, size, problems in self._each(check, _chunks(samples)):
            for key, offset, names in seen:
                found.keys.append(key)
                found.offsets.append(offset)
                found.fields.append(found.field_sets.setdefault(tuple(sorted(names)), len(found.field_sets)))
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

    def _seek_check(self, index: ShardIndex | None) -> SeekCheck | None:
        return SeekCheck(index, self._decode, self._spares) if index is not None and index.seeks else None

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
        check = RecordCheck(blob, self._checked_fields if self._decode else None, self._seek_check(index))
        foreign: list[Problem] = []
        for count, size, problems, others in self._each(check, _until_error(records_of(blob, packing), ended)):
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
        pieces = (indices[at : at + 64] for at in range(0, len(indices), 64))
        for count, size, problems in self._each(lambda piece: self._some_rows(source, piece), pieces):
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
            place = shard_and_offset(source.origin(index))
            return 1, 0, [Problem(source.key(index), *place, "there is not enough memory to read it")]

    def _rows_together(self, source: Source, indices: Ints) -> tuple[int, int, list[Problem]]:
        problems: list[Problem] = []
        with self._spares.one() as scratch:
            rows = source.read(indices, tuple(source.fields), {}, scratch)
            size = sum(int(column.lengths.sum()) for column in rows.columns.values() if isinstance(column, BytesColumn))
            misled = misled_rows(rows.columns, self._decode, scratch)
            for row, index in enumerate(indices.tolist()):
                reason = str(rows.errors[row]) if row in rows.errors else self._row_trouble(source, rows.columns, row)
                reason = reason or misled.get(row, "")
                if reason:
                    problems.append(Problem(source.key(index), *shard_and_offset(source.origin(index)), reason))
        return len(indices), size, problems

    def _row_trouble(self, source: Source, columns: dict[str, Any], row: int) -> str:
        values = [(name, columns[name][row]) for name, spec in source.fields.items() if spec.kind == "bytes"]
        empty = next((name for name, value in values if name == "image" and not value), "")
        if empty:
            return "the file is empty"
        return self._checked_fields((name, value) for name, value in values if not is_absent(value))

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
        field_sets = list(shard.field_sets)
        short = {number: [name for name in every if name not in names] for number, names in enumerate(field_sets)}
        if not any(short.values()):
            continue
        for key, offset, number in zip(shard.keys, shard.offsets, shard.fields):
            if short[number]:
                has = ", ".join(field_sets[number])
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
