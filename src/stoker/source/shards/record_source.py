"""Records in shards, by index: what tar, TFRecord and LMDB share."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordError, SourceEmpty
from ...kernel.example_columns import Parsing
from ...kernel.file_reads import Arena
from ...kernel.records import Blocks, RecordTable, Seal, crc32c, crc32c_spans
from ...kernel.render import Boxes, RecordInput
from ...sizes import counted, show_bytes
from ...storage.blob import Blob
from ...storage.cache import CachedBlob
from ...storage.fetch import Each, fetch
from ...storage.local import HeldFiles, LocalBlob
from ...storage.read_ahead import BLOCKS, HeldBlocks, ReadAhead
from ...storage.remote import RemoteBlob
from ...storage.scratch import Scratch
from ...storage.traffic import Traffic
from ..chunk import BytesColumn, Column, Ints, numbers
from ..paths import printable
from ..source import ForesightSpan, Located, Requests, Rows, Source, digest
from .examples import ExampleColumns, Extraction
from .seekrows import Seeks
from .seeks import seek_tables
from .shard_index import Keys, KeysOfShards, ShardIndex

_Records = TypeVar("_Records", bound="RecordSource")

#: samples of an epoch that stand for all of it, where whole shards are fetched ahead; and how many are looked at one by one,
#: where parts of shards are
_WHOLE_SPAN, _BLOCK_SPAN = 1 << 14, 1 << 12
#: the most samples that are foreseen where blocks are fetched ahead into memory, and how much of it they may need for themselves:
#: blocks hold others, too, that are needed later
_MOST_AHEAD, _AHEAD_SHARE = 1 << 15, 0.5
_NO_FILES = np.zeros(0, np.int32)
#: records whose sizes are compared when somebody asks for large ones: that takes a nanosecond or two for each
_MOST_WEIGHED = 1 << 26


@dataclass(slots=True)
class Read:
    """Bytes of some records: field f of row r is ``data[at[r, f] : at[r, f] + lengths[r, f]]``; a length of -1: it has none."""

    data: NDArray[np.uint8]
    at: Ints
    lengths: Ints
    errors: dict[int, Exception]
    arena: Arena
    checked: bool  # whether every checksum the shard itself holds was compared
    whole: bool = False  # known to have every field of every row

    def column(self, field: int) -> BytesColumn:
        lengths = self.lengths[:, field]
        return BytesColumn(self.data, self.at[:, field], lengths if self.whole else np.maximum(lengths, 0), self.arena)


def whole(records: RecordInput, arena: Arena) -> Read:
    """What was read of records on the way to their pictures."""
    return Read(arena.buffer, records.at, records.lengths, {}, arena, True, True)


class _Held:
    """Descriptors by shard, and what to give back; or blocks of shards in memory."""

    __slots__ = ("_given", "ahead", "fds")

    def __init__(self, fds: NDArray[np.int32], given: Any, ahead: HeldBlocks | None = None) -> None:
        self.fds, self._given, self.ahead = fds, given, ahead

    @property
    def blocks(self) -> Blocks | None:
        return None if self.ahead is None else self.ahead.blocks

    def add(self, shard: int, blob: Blob) -> None:
        fd = blob.hold()
        self.fds[shard] = fd
        if fd >= 0:
            self._given.append((blob, fd))

    def release(self) -> None:
        for blob, fd in self._given:
            blob.release(fd)
        if self.ahead is not None:
            self.ahead.release()


def _in_order(shards: Ints) -> list[int]:
    """Each shard once, in the order they first come."""
    return list(dict.fromkeys(shards.tolist()))


class RecordSource(Source):
    """Records of some shards, one shard after the other, with their indexes.

    A source that was unpickled has no `indexes`, only the parts needed for reading, in a few arrays that processes can share.

    `stored` names the fields as they are stored; the fields that users see depend on the format. Without `seek` the seek indices
    of JPEGs are ignored.
    """

    kind: str
    #: asks for many spans at once, where that is mostly waiting
    each: Each = map
    #: what proves that a record is whole
    seal = Seal.TABLE
    #: bytes that are read after each record, with it
    after = 0

    def __init__(self, blobs: Sequence[Blob], indexes: Sequence[ShardIndex], seek: bool = True) -> None:
        self.blobs, self.indexes = tuple(blobs), tuple(indexes)
        self._keys: Sequence[Keys | None] = [index.keys for index in indexes]
        self._tails = {at: index.tail for at, index in enumerate(indexes) if isinstance(index.tail.blob, CachedBlob)}
        self._fingerprint = ""
        self.stored = tuple(dict.fromkeys(name for index in indexes if len(index) for name in index.fields))
        self._ends = np.cumsum([len(index) for index in indexes], dtype=np.int64)
        self._firsts = self._ends - [len(index) for index in indexes]
        if not len(self):
            raise SourceEmpty(f"{self._told()}: {counted(len(self.blobs), 'shard')} without samples; check what wrote them")
        self._start = self._joined([index.start for index in indexes], 0)
        self._length = self._joined([index.length for index in indexes], -1)
        self.remote = self.waits = not all(isinstance(blob, LocalBlob) for blob in self.blobs)
        self._cached = [blob for blob in self.blobs if isinstance(blob, CachedBlob)]
        self._ahead: ReadAhead | None = None
        self._foreseen: Sequence[int] = ()  # the fields that are fetched ahead
        if self._cached:
            whole = self._cached[0].cache.block is None
            self.foresight = ForesightSpan(_WHOLE_SPAN if whole else _BLOCK_SPAN, whole)
        self._mean = np.maximum(self._length, 0).mean(axis=0)
        told = [index.about["classes"] for index in indexes if "classes" in index.about]
        named = {tuple(names) for names in told if isinstance(names, list) and all(isinstance(name, str) for name in names)}
        self.classes = named.pop() if len(named) == 1 else ()
        sums = [index.crc for index in indexes]
        self._crc = None if any(crc is None for crc in sums) else self._joined([crc for crc in sums if crc is not None], 0)
        self._table = RecordTable(self._start, self._length, self._crc, self._ends, self.seal)
        self._files = HeldFiles(self.blobs)
        self._seeks = seek_tables(indexes, self._ends) if seek else {}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __copy__(self: _Records) -> _Records:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __getstate__(self) -> dict[str, Any]:
        keys = self._keys if isinstance(self._keys, KeysOfShards) else KeysOfShards(self._keys)
        state = {**self.__dict__, "_fingerprint": self.fingerprint(), "_keys": keys, "indexes": (), "_ahead": None}
        # What was fetched ahead into the memory of this process, others do not have.
        return state if self._ahead is None else {**state, "foresight": None, "waits": True}

    def key(self, index: int) -> str:
        key = self.stored_key(index)
        if key is not None:
            return printable(key)
        shard = self.shard_of(index)
        return f"{self.blobs[shard].name}#{index - int(self._firsts[shard])}"

    def stored_key(self, index: int) -> bytes | None:
        """The key that a record is stored under; None: records have none."""
        shard = self.shard_of(index)
        keys = self._keys[shard]
        return None if keys is None else keys[index - int(self._firsts[shard])]

    def origin(self, index: int) -> str:
        here = self._start[index][self._length[index] >= 0]
        return f"{self.blobs[self.shard_of(index)].url}, byte {int(here.min(initial=np.iinfo(np.int64).max)):,}"

    @property
    def origins(self) -> int:
        return len(self.blobs)

    def origins_of(self, indices: Ints) -> Ints:
        return self.shards_of(indices)

    def origin_name(self, number: int) -> str:
        return self.blobs[number].name

    def shard_of(self, index: int) -> int:
        """The number of the shard that contains a record."""
        return int(np.searchsorted(self._ends, index, side="right"))

    def shards_of(self, indices: Ints) -> Ints:
        """The same for many."""
        return np.searchsorted(self._ends, indices, side="right") if len(self.blobs) > 1 else np.zeros(len(indices), np.int64)

    def ahead(self: _Records, limit: int, wanted: Collection[str], first: Callable[[int], Ints]) -> _Records:
        blobs = [blob for blob in self.blobs if isinstance(blob, RemoteBlob)]
        if len(blobs) < len(self.blobs):
            return self
        fields = self._fetched(wanted)
        count = max(1, min(_MOST_AHEAD, int(_AHEAD_SHARE * limit / max(1.0, float(self._mean[fields].sum())))))
        indices = first(count)
        spans = self.shards_of(indices), *self._extents(indices, fields)
        ahead = next((fits for block in BLOCKS if (fits := ReadAhead(blobs, limit, block)).holds(*spans)), None)
        if ahead is None:
            return self
        made = copy(self)
        made._ahead, made._foreseen, made.waits = ahead, fields, False
        made.foresight = ForesightSpan(count, whole=False, shared=False)
        return made

    def requests(self, wanted: Collection[str], first: Callable[[int], Ints]) -> Requests | None:
        if not all(isinstance(blob, RemoteBlob) for blob in self.blobs):
            return None
        indices, fields, blocks = first(_MOST_AHEAD), self._fetched(wanted), self._ahead
        starts, ends = self._extents(indices, fields)
        count = max(1, len(indices))
        if blocks is None:
            return Requests("samples are asked for one by one", 1.0, int((ends - starts).sum()) / count)
        asked, nbytes = blocks.cost(self.shards_of(indices), starts, ends)
        return Requests(f"blocks of {show_bytes(blocks.block)} are fetched ahead", asked / count, nbytes / count)

    def traffic(self) -> Traffic:
        return reduce(Traffic.and_also, (blob.traffic for blob in self.blobs if isinstance(blob, RemoteBlob)), Traffic())

    def _fetched(self, wanted: Collection[str]) -> list[int]:
        """The numbers of the stored fields that are read for these; all, where they are parts of a record."""
        names = {part for name in wanted for part in name.split(";")}
        return [at for at, name in enumerate(self.stored) if name in names] or [*range(len(self.stored))]

    def _extents(self, indices: Ints, fields: Sequence[int]) -> tuple[Ints, Ints]:
        """Where these fields of records begin and end, in their shards."""
        if len(fields) == 1:
            starts, lengths = self._start[indices, fields[0]], self._length[indices, fields[0]]
            return starts, starts + np.maximum(lengths, 0)
        where = (indices[:, None], np.asarray(fields, np.int64))
        start, length = self._start[where], self._length[where]
        has = length >= 0
        ends = (start + length).max(axis=1, where=has, initial=0)
        return np.minimum(start.min(axis=1, where=has, initial=np.iinfo(np.int64).max), ends), ends

    def foresee(self, indices: Ints, decoded: bool, lead: int = 0) -> None:
        shards = self.shards_of(indices)
        if self._ahead is not None:
            self._ahead.foresee(shards, *self._extents(indices, self._foreseen), lead)
            return
        cache = self._cached[0].cache
        if cache.block is None:
            changes = np.flatnonzero(np.diff(shards, prepend=-1))
            # Where all shards are needed all the time, it is enough to say so once.
            order = shards[changes].tolist() if len(changes) <= 4 * len(self.blobs) else _in_order(shards)
            units = [unit for shard in order for unit in (*self._tail_units(shard, decoded), *self._units(shard))]
        else:
            starts, ends = self._extents(indices, range(len(self.stored)))
            units = [
                unit
                for shard, start, end in zip(shards.tolist(), starts.tolist(), ends.tolist())
                for unit in self._units(shard, start, end - start)
            ]
        cache.foresee(units)

    def fetch_ahead(self, stop: threading.Event) -> None:
        (self._ahead or self._cached[0].cache).fetch_ahead(stop)

    def _units(self, shard: int, *span: int) -> Sequence[Any]:
        blob = self.blobs[shard]
        return blob.entries(*span) if isinstance(blob, CachedBlob) else ()

    def _tail_units(self, shard: int, decoded: bool) -> Sequence[Any]:
        """What the cache is to hold of a shard's seek indices: not every pipeline decodes."""
        tail = self._tails.get(shard) if decoded and self._seeks else None
        return tail.blob.entries(tail.at) if tail is not None and isinstance(tail.blob, CachedBlob) else ()

    def size_of(self, field: str) -> int:
        if field in self.stored:
            return int(self._mean[self.stored.index(field)])
        return int(self._mean.sum()) // max(1, len(self.fields))  # a part of a record that is parsed: all parts alike

    def outsized(self, times: float, most: int) -> Ints:
        if len(self) > _MOST_WEIGHED:
            return numbers(0)
        nbytes = np.maximum(self._length, 0).sum(axis=1)
        found = np.flatnonzero(nbytes >= times * max(1.0, float(nbytes.mean())))
        return found[np.argsort(-nbytes[found], kind="stable")[:most]]

    def seeks(self, field: str) -> int:
        return self._seeks[field].count if field in self._seeks else 0

    def _with_seeks(self, columns: Mapping[str, Column], indices: Ints) -> None:
        """Pictures among the columns of these records get the way to their seek indices."""
        for name, table in self._seeks.items():
            column = columns.get(name)
            if isinstance(column, BytesColumn):
                column.seeks = Seeks((table,), indices)

    def fingerprint(self) -> str:
        """Covers the places of records, their names and their checksums; not where the shards are, so that data may be moved."""
        if self._fingerprint:
            return self._fingerprint
        parts: list[str | int | bytes] = [*self._identity()]
        for blob, index in zip(self.blobs, self.indexes):
            value = crc32c(np.ascontiguousarray(index.length).view(np.uint8).reshape(-1))
            if index.crc is not None:
                value = crc32c(np.ascontiguousarray(index.crc).view(np.uint8).reshape(-1), value)
            if index.keys is not None:
                value = crc32c(index.keys.data, value)
            parts += [blob.name, len(index), index.size, value, *index.fields]
        self._fingerprint = digest(self.kind, *parts)
        return self._fingerprint

    def version(self) -> str:
        # Where the index holds no checksums of records, a shard of the same size may be another.
        unchecked = [blob.stat().version for blob, index in zip(self.blobs, self.indexes) if index.crc is None]
        return digest("versions", self.fingerprint(), *unchecked) if unchecked else self.fingerprint()

    def describe(self) -> str:
        return f"{self._told()}: {counted(len(self), 'sample')} in {counted(len(self.blobs), 'shard')}"

    @abstractmethod
    def _identity(self) -> tuple[str, ...]:
        """What of the source's options changes its samples."""

    def _told(self) -> str:
        first, last = self.blobs[0].url, self.blobs[-1].url
        return f"{self.kind}({first}{f' … {last}' if len(self.blobs) > 1 else ''})"

    def _read(self, indices: Ints, fields: Sequence[int], scratch: Scratch) -> Read:
        """The stored fields of some records, and `after` bytes more of each, checked against the index's checksums."""
        held = self._hold(indices, fields, scratch)
        if held is not None:
            try:
                columns, arena = np.asarray(fields, np.int64), scratch.arena
                at, lengths, status = self._table.read(held.fds, indices, columns, arena, self.after, LocalBlob.gap, held.blocks)
            finally:
                held.release()
            if not status.any():
                return Read(arena.buffer, at, lengths, {}, arena, True)
        return self._read_carefully(indices, fields, scratch)

    def _located(
        self,
        field: str,
        names: tuple[str, ...],
        indices: Ints,
        scratch: Scratch,
        finish: Callable[[RecordInput], Rows],
        examples: ExampleColumns | None = None,
        parsing: Parsing | None = None,
        boxes: Boxes | None = None,
    ) -> Located | None:
        """The pictures of a stored field, read together with the others that are named; `finish` makes rows of what was read.

        Of `examples` they are features, and go to the memory of `parsing`.
        """
        known = self._seeks.get(field)
        seeks = None if known is None else known.stored(scratch)
        fields = [0] if examples is not None else [self.stored.index(name) for name in names]
        held = self._hold(indices, fields, scratch) if known is None or seeks is not None else None
        if held is None:
            return None

        def make() -> RecordInput:
            return RecordInput(
                self._table, fields, names.index(field), scratch.arena, behind=self.after, gap=LocalBlob.gap, seeks=seeks,
                examples=examples is not None, pixels=None if examples is None else examples.pixels(field),
            )  # fmt: skip

        records: RecordInput = scratch.keep((self, field, names), make)
        records.tell(held.fds, indices, boxes, parsing, held.blocks)
        waited_s = 0.0 if held.ahead is None else held.ahead.waited_s
        return Located([(records, None)], lambda _: finish(records) if records.complete else None, held.release, waited_s)

    def _located_record(self, field: str, indices: Ints, scratch: Scratch) -> Located | None:
        """Records that are nothing but pictures."""

        def finish(records: RecordInput) -> Rows:
            return Rows({}, encoded=whole(records, scratch.arena).column(0).__getitem__)

        return self._located(field, self.stored, indices, scratch, finish)

    def _located_feature(
        self,
        examples: ExampleColumns,
        field: str,
        names: tuple[str, ...],
        indices: Ints,
        out: Mapping[str, NDArray[Any]],
        scratch: Scratch,
        box: str | None,
    ) -> Located | None:
        """The pictures of a feature of the Examples that records hold."""
        parsing = examples.parsing(names, len(indices), out)
        boxes = None if box is None else parsing.columns[names.index(box)][0]

        def finish(records: RecordInput) -> Rows:
            arena, errors, sound = scratch.arena, dict[int, Exception](), not records.wrong
            data = arena.buffer
            work = Extraction(data, arena, out, errors)
            columns = examples.columns(parsing.finished(data), names, work, field, sound)
            self._with_seeks(columns, indices)
            if errors:
                errors = {row: self._placed(error, int(indices[row])) for row, error in errors.items()}
            if examples.features[field].raw:
                return Rows(columns, errors)
            starts, lengths = parsing.columns[names.index(field)]
            return Rows(columns, errors, BytesColumn(data, starts, lengths).__getitem__)

        return self._located(field, names, indices, scratch, finish, examples, parsing, boxes)

    def _placed(self, error: Exception, index: int) -> RecordError:
        """What is wrong with a record, and where that is."""
        return RecordError(f"{self.origin(index)}: {error}")

    def _hold(self, indices: Ints, fields: Sequence[int], scratch: Scratch) -> _Held | None:
        """Descriptors of the files these records lie in, or their bytes in memory; None when some are not on this machine."""
        if self._ahead is not None:
            starts, ends = self._extents(indices, fields)
            with scratch.aside():  # a task that decodes on a device holds blocks while it waits for its turn
                blocks = self._ahead.hold(self.shards_of(indices), starts, ends + self.after)
            return None if blocks is None else _Held(_NO_FILES, (), blocks)
        fds = self._files.descriptors()
        if fds is not None:
            return _Held(fds, ())
        if len(self._cached) < len(self.blobs) or not len(indices):
            return None
        held = _Held(np.full(len(self.blobs), -1, np.int32), [])
        for shard in _in_order(self.shards_of(indices)):
            held.add(shard, self.blobs[shard])
        return held

    def _read_carefully(self, indices: Ints, fields: Sequence[int], scratch: Scratch) -> Read:
        """The same for whatever has no descriptor, or failed: which span failed, and why, is found out."""
        where = (indices[:, None], np.asarray(fields, np.int64))
        start, length = self._start[where], self._length[where]
        shards = np.broadcast_to(self.shards_of(indices)[:, None], start.shape)
        spans = np.where(length < 0, 0, length + self.after).ravel()
        got = fetch(self.blobs, shards.ravel(), start.ravel(), spans, scratch.arena, self.each)
        width = max(1, len(fields))
        errors: dict[int, Exception] = {}
        for span, error in got.errors.items():
            errors.setdefault(span // width, error)
        if self._crc is not None:
            wrong = crc32c_spans(got.data, got.at, length.ravel()) != self._crc[where].ravel()
            for span in np.flatnonzero(wrong).tolist():
                if length.flat[span] >= 0:
                    errors.setdefault(span // width, self._wrong_sum(int(indices[span // width]), fields[span % width]))
        return Read(got.data, got.at.reshape(start.shape), length, errors, scratch.arena, False)

    def _wrong_sum(self, index: int, field: int) -> RecordError:
        blob = self.blobs[self.shard_of(index)]
        return RecordError(
            f"{blob.url}: the {self.stored[field]!r} of sample {self.key(index)!r} at byte {int(self._start[index, field]):,} "
            "does not match the checksum in the shard's index: it was damaged, or changed after it was indexed; fetch it again, "
            f"or, if it was changed on purpose, `stoker index --force {blob.url}`"
        )

    def _joined(self, columns: list[Any], missing: int) -> Any:
        """The columns of all shards, with the stored fields in one order."""
        if len(columns) == 1:
            return columns[0]
        joined = np.full((len(self), len(self.stored)), missing, columns[0].dtype)
        for index, column, first, end in zip(self.indexes, columns, self._firsts.tolist(), self._ends.tolist()):
            if end > first:
                joined[first:end, [self.stored.index(name) for name in index.fields]] = column
        return joined
