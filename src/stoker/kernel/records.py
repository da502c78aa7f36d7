"""Record files: checksums, reading of pieces, and the parsers of their formats. ``native/include/stoker.h`` is the manual.

Every parser here takes bytes from anywhere and either returns exactly what they say or raises `CorruptShard` with the offset at
which they contradict their format; its message ends without the shard's name, which the caller adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.file_reads import Arena
from stoker.kernel.library import BRIEF_BYTES, Bytes, Owned, Records, address, contiguous, library, place, reference, where
from stoker.kernel.structs import MEMBER as MEMBER
from stoker.kernel.structs import TAR_INFO

Ints: TypeAlias = NDArray[np.int64]


def as_bytes(data: Bytes) -> NDArray[np.uint8]:
    """Return `data` as one run of bytes, without a copy."""
    if isinstance(data, np.ndarray):
        if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
            raise KernelError(f"data must be one contiguous run of uint8, not {data.dtype}{data.shape}")
        return data
    return np.frombuffer(data, np.uint8)


def as_spans(starts: Ints, lengths: Ints) -> tuple[Ints, Ints, int]:
    """Return spans as the library takes them, and how many there are."""
    count = len(starts)
    return contiguous(starts, np.int64, count, "starts"), contiguous(lengths, np.int64, count, "lengths"), count


def cut(data: NDArray[np.uint8], ends: Ints) -> list[bytes]:
    """Return the strings of which `data` holds the bytes, back to back."""
    whole = data.tobytes()
    return [whole[start:end] for start, end in pairwise([0, *ends.tolist()])]


# ---- checksums ---------------------------------------------------------------------------------------------------------


def crc32c(data: Bytes, value: int = 0) -> int:
    """Return the CRC-32C of `data`, continuing from `value`.

    >>> hex(crc32c(b"123456789")), crc32c(b"789", crc32c(b"123456")) == crc32c(b"123456789")
    ('0xe3069283', True)
    """
    call = library().crc32c_brief if len(data) < BRIEF_BYTES else library().crc32c
    if isinstance(data, bytes):
        return call(data, len(data), value)  # ctypes takes bytes as they are
    array = as_bytes(data)
    return call(address(array), array.size, value)


def crc32c_spans(
    data: NDArray[np.uint8], starts: Ints, lengths: Ints, values: NDArray[np.uint32] | None = None
) -> NDArray[np.uint32]:
    """Return the CRC-32C of each ``data[start : start + length]``, continuing from `values`; a length below 0 is no bytes."""
    data, (starts, lengths, count) = as_bytes(data), as_spans(starts, lengths)
    out = np.zeros(count, np.uint32) if values is None else contiguous(values, np.uint32, count, "values").copy()
    library().crc32c_spans(address(data), data.size, address(starts), address(lengths), count, address(out))
    return out


@overload
def mask_crc(crc: int) -> int: ...
@overload
def mask_crc(crc: NDArray[np.uint32]) -> NDArray[np.uint32]: ...
def mask_crc(crc: int | NDArray[np.uint32]) -> int | NDArray[np.uint32]:
    """Return the masked form TFRecord files store, of one checksum or of an array of them."""
    if isinstance(crc, np.ndarray):
        wide = crc.astype(np.uint64)
        turned: NDArray[np.uint64] = wide >> np.uint64(15) | wide << np.uint64(17)
        masked: NDArray[np.uint64] = turned + np.uint64(0xA282EAD8)
        return masked.astype(np.uint32)
    one = int(crc)
    return (one >> 15 | one << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF


# ---- reading -----------------------------------------------------------------------------------------------------------


def read_spans(fds: NDArray[np.int32], offsets: Ints, lengths: Ints, buffer: NDArray[np.uint8], at: Ints) -> NDArray[np.int32]:
    """Read ``lengths[i]`` bytes at ``offsets[i]`` of file ``fds[i]`` into ``buffer[at[i]:]``, one read each, without the GIL.

    Returns for each 0, the errno that refused it, or -1: the file ends before the span does.
    """
    count = len(fds)
    fds = contiguous(fds, np.int32, count, "fds")
    offsets, lengths = contiguous(offsets, np.int64, count, "offsets"), contiguous(lengths, np.int64, count, "lengths")
    at = contiguous(at, np.int64, count, "at")
    if not as_bytes(buffer).flags.writeable:
        raise KernelError("the buffer is read-only")
    errors = np.zeros(count, np.int32)
    library().read_spans(
        address(fds), address(offsets), address(lengths), count, address(buffer), buffer.size, address(at), address(errors)
    )
    return errors


#: of spans: where in the buffer they lie, their lengths, their statuses
Spots: TypeAlias = tuple[Ints, Ints, NDArray[np.int32]]


class Seal(IntEnum):
    """What proves that a field of a record is whole."""

    TABLE = 0  #: its CRC-32C in the table, if there is one
    AFTER = 1  #: the four bytes after it: its CRC-32C, masked as in TFRecord files
    FRONT = 2  #: a mark in front of it, with a CRC-32C that goes on from the one in the table; it is not part of what is read


class Blocks:
    """Parts of files in memory, to be read in place of files: each `size` bytes of a file are a block.

    ``keys``, ascending, are the number of the file << 32 | that of the block in it; it is the ``lengths`` bytes at ``places``,
    which whoever made this holds.
    """

    __slots__ = ("_held", "at")

    def __init__(self, size: int, keys: Sequence[int], places: Sequence[int], lengths: Sequence[int]) -> None:
        count = len(keys)
        told = np.array([*keys, *places, *lengths], np.int64)
        first = place(told)
        struct = np.array([size, count, first, first + 8 * count, first + 16 * count], np.int64)
        self._held, self.at = (told, struct), place(struct)


class OpenTable:
    """A table with descriptors, or blocks, at one place in memory, `at`; it holds what it points to."""

    def __init__(self, table: RecordTable, fds: NDArray[np.int32], records: Records, blocks: Blocks | None = None) -> None:
        self._held = table, fds, records, blocks
        self.at = where(records)


class RecordTable:
    """Where the records of some files are, prepared once for many reads.

    `start`, `length` and `crc` (or None) are (records, fields); the records of file i end before record ``ends[i]``. `seal` says
    how the integrity of a field is checked.
    """

    def __init__(self, start: Ints, length: Ints, crc: NDArray[np.uint32] | None, ends: Ints, seal: Seal = Seal.TABLE) -> None:
        rows, fields = start.shape
        if length.shape != start.shape or (crc is not None and crc.shape != start.shape):
            raise KernelError(f"tables of {start.shape}, {length.shape} and {None if crc is None else crc.shape} do not agree")
        if not len(ends) or int(ends[-1]) != rows or bool((np.diff(ends) < 0).any()):
            raise KernelError(f"the files end at {ends}, and there are {rows} records")
        self._start, self._length = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(length, np.int64)
        self._crc = None if crc is None else np.ascontiguousarray(crc, np.uint32)
        self._ends = np.ascontiguousarray(ends, np.int64)
        sums = None if self._crc is None else self._crc.ctypes.data
        self._seal = seal
        self._known = (self._start.ctypes.data, self._length.ctypes.data, sums, seal, rows, fields, self._ends.ctypes.data)
        self._last: tuple[NDArray[np.int32], Records] | None = None  # descriptors, and the table with them

    def __len__(self) -> int:
        return len(self._start)

    def __reduce__(self) -> tuple[Any, ...]:
        # Addresses mean nothing elsewhere.
        return RecordTable, (self._start, self._length, self._crc, self._ends, self._seal)

    def read(
        self,
        fds: NDArray[np.int32],
        indices: Ints,
        fields: Ints,
        arena: Arena,
        behind: int = 0,
        gap: int = 0,
        blocks: Blocks | None = None,
    ) -> Spots:
        """Read columns `fields` of records `indices` into `arena.buffer`: places there, lengths (-1: none) and statuses.

        All three are (records, fields). A status is 0, an errno, -1 (the file ends first), -2 (another checksum) or -3 (`fds` has
        -1 for its file, or none of the `blocks` has the bytes).
        """
        count, width = len(indices), len(fields)
        indices, fields = contiguous(indices, np.int64, count, "indices"), contiguous(fields, np.int64, width, "fields")
        fds, table = self._with(fds, blocks)
        at, lengths = np.empty((count, width), np.int64), np.empty((count, width), np.int64)
        status, needed = np.empty((count, width), np.int32), np.zeros(1, np.int64)
        call = library().read_records
        while call(
            reference(table), address(indices), count, address(fields), width, behind, gap, address(arena.buffer),
            arena.buffer.size, address(at), address(lengths), address(status), address(needed),
        ):  # fmt: skip
            arena.grow(int(needed[0]), keep=0)
        return at, lengths, status

    def opened(self, fds: NDArray[np.int32], blocks: Blocks | None = None) -> OpenTable:
        """The table with these descriptors, or blocks, to be passed to another call."""
        return OpenTable(self, *self._with(fds, blocks), blocks)

    def _with(self, fds: NDArray[np.int32], blocks: Blocks | None) -> tuple[NDArray[np.int32], Records]:
        """The table with these descriptors; mostly they are the same as last time, and then it is too."""
        if blocks is not None:
            return fds, Records(*self._known, None, len(self._ends), blocks.at)
        last = self._last
        if last is None or last[0] is not fds:
            fds = contiguous(fds, np.int32, len(self._ends), "fds")
            last = self._last = fds, Records(*self._known, fds.ctypes.data, len(fds))
        return last


# ---- tar ---------------------------------------------------------------------------------------------------------------

_BLOCK = 512
_MAX_MEMBERS = 1 << 14
_KEYS, _FIELDS, _IGNORED = 0, 1, 2


class TarScan(Owned):
    """Reads a tar that is pushed into it piece by piece, and reports where each field of each sample is.

    Members are grouped to samples as WebDataset does: ``KEY.FIELD``, the key ending at the first dot of the name's last part. The
    contents of members are only checksummed, so memory does not depend on their size. Strict: anything a tar must not contain
    raises `CorruptShard` with its offset, and raises it again at every later call; the manual in ``stoker.h`` lists what. One
    thread at a time.
    """

    def __init__(self, *, checksums: bool = True, max_fields: int = 64) -> None:
        if not 1 <= max_fields <= 4096:
            raise KernelError(f"max_fields is {max_fields}, not 1 to 4096")
        super().__init__(library().tar_new(checksums, max_fields), library().tar_free, "tar scan")
        self._members = np.empty(16, MEMBER)
        self._counts = np.zeros(2, np.int64)
        self._found, self._used = self._counts[:1], self._counts[1:]
        self._about = np.zeros(1, TAR_INFO)
        self._fields: tuple[bytes, ...] = ()
        self._ask()

    def feed(self, data: Bytes) -> NDArray[np.void]:
        """Take the next bytes of the tar and return the members (`MEMBER`) that became complete, offsets counted in the tar."""
        array = as_bytes(data)
        if len(self._members) < (room := min(array.size // _BLOCK + 2, _MAX_MEMBERS)):
            self._members = np.empty(room, MEMBER)
        parts, at = [], 0
        try:
            while self._feed(array[at:]):
                parts.append(self._members[: self._found[0]].copy())
                at += int(self._used[0])
        finally:
            self._ask()
        parts.append(self._members[: self._found[0]].copy())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _feed(self, rest: NDArray[np.uint8]) -> int:
        members = self._members
        return library().tar_feed(
            self.handle, address(rest), rest.size, address(members), len(members), address(self._found), address(self._used)
        )

    def finish(self) -> None:
        """Say that the tar ends here; raises `CorruptShard` unless it ended with its two blocks of zeros."""
        library().tar_finish(self.handle)

    def _ask(self) -> None:
        library().tar_about(self.handle, address(self._about))

    def _told(self, name: str) -> int:
        return int(self._about[name][0])

    @property
    def position(self) -> int:
        """Bytes taken so far."""
        return self._told("position")

    @property
    def samples(self) -> int:
        """Samples begun so far; the last may still get fields."""
        return self._told("samples")

    @property
    def ended(self) -> bool:
        """Whether the blocks of zeros that end a tar have been seen; only zeros may follow."""
        return bool(self._told("ended"))

    @property
    def ignored(self) -> int:
        """How many members belonged to no sample."""
        return self._told("ignored")

    @property
    def ignored_names(self) -> tuple[bytes, ...]:
        """The names of the first 8 members that belonged to no sample."""
        return self._names(_IGNORED, self._told("names"), self._told("name_bytes"))

    @property
    def fields(self) -> tuple[bytes, ...]:
        """The names of the fields by number, as first met, in lower case."""
        if len(self._fields) < self._told("fields"):
            self._fields = self._names(_FIELDS, self._told("fields"), self._told("field_bytes"))
        return self._fields

    def keys(self, first: int = 0) -> tuple[NDArray[np.uint8], Ints]:
        """Return the keys of the samples from `first` on: their bytes back to back, and where each ends."""
        forgotten, samples = self._told("forgotten"), self.samples
        if not forgotten <= first <= samples:
            raise KernelError(f"no key {first}: there are those of samples {forgotten} to {samples}")
        return self._strings(_KEYS, first, samples - first, self._told("key_bytes"))

    def forget(self, before: int) -> None:
        """Free the keys of samples before this one, but never of the last: for endless streams."""
        library().tar_forget(self.handle, min(before, self.samples))
        self._ask()

    def _names(self, which: int, count: int, capacity: int) -> tuple[bytes, ...]:
        return tuple(cut(*self._strings(which, 0, count, capacity)))

    def _strings(self, which: int, first: int, count: int, capacity: int) -> tuple[NDArray[np.uint8], Ints]:
        data, ends = np.empty(capacity, np.uint8), np.empty(count, np.int64)
        library().tar_strings(self.handle, which, first, count, address(data), capacity, address(ends))
        return data[: int(ends[-1]) if count else 0], ends


# ---- TFRecord ----------------------------------------------------------------------------------------------------------

_LEAST_RECORD = 16
_MAX_RECORDS = 1 << 16


def scan_tfrecord(data: NDArray[np.uint8], offset: int = 0, *, verify: bool = True) -> tuple[Ints, Ints, int, int]:
    """Find the whole records in `data`, which lies `offset` bytes into its file.

    Returns where in `data` their payloads start, their lengths, how many bytes all of them take, and how many the next record
    needs in all (0: too few of its bytes are here to tell). A wrong checksum raises `CorruptShard` with its place in the file;
    those of the lengths are always checked, those of the payloads where `verify` is set.
    """
    data = as_bytes(data)
    room = min(data.size // _LEAST_RECORD + 1, _MAX_RECORDS)
    starts, lengths, told = np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(3, np.int64)
    found, used, needed = told[:1], told[1:2], told[2:]
    parts: list[tuple[Ints, Ints]] = []
    at, more = 0, True
    while more:
        rest = data[at:]
        more = library().tfrecord_scan(
            address(rest), rest.size, offset + at, verify, address(starts), address(lengths), room,
            address(found), address(used), address(needed),
        ) != 0  # fmt: skip
        count = int(found[0])
        parts.append((starts[:count] + at, lengths[:count].copy()))
        at += int(used[0])
    whole_starts, whole_lengths = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts))
    return whole_starts, whole_lengths, at, int(needed[0])


def verify_records(data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> NDArray[np.bool_]:
    """Return for each payload whether the 4 bytes after it are its masked CRC-32C."""
    data, (starts, lengths, count) = as_bytes(data), as_spans(starts, lengths)
    right = np.zeros(count, np.bool_)
    library().tfrecord_verify(address(data), data.size, address(starts), address(lengths), count, address(right))
    return right


# ---- values ------------------------------------------------------------------------------------------------------------


def decimals(data: NDArray[np.uint8], starts: Ints, lengths: Ints, out: Ints) -> bool:
    """Read the whole numbers that ``data[starts[i] : starts[i] + lengths[i]]`` hold in decimal into `out`.

    False when one of them is not 1 to 18 digits and nothing else; `out` then means nothing.
    """
    count, step = len(starts), starts.strides[0] // 8
    if starts.strides != lengths.strides or starts.dtype != np.int64 or lengths.dtype != np.int64 or step < 1:
        starts, lengths, count = as_spans(starts, lengths)
        step = 1
    if len(lengths) != count or out.shape != (count,) or out.dtype != np.int64 or not out.flags.carray:
        raise KernelError(f"{count} numbers do not fit {out.dtype}{out.shape}")
    data = as_bytes(data)
    told = library().decimals(address(data), data.size, starts.ctypes.data, lengths.ctypes.data, step, count, address(out))
    return told == count


def gather_bytes(data: NDArray[np.uint8], starts: Ints, lengths: Ints, out: NDArray[Any]) -> NDArray[np.bool_]:
    """Copy ``data[starts[i] : starts[i] + lengths[i]]`` over ``out[i]`` and return which rows had just the right length.

    The others become zeros.
    """
    data, (starts, lengths, count) = as_bytes(data), as_spans(starts, lengths)
    if len(out) != count or not out.flags.writeable or not (out.flags.c_contiguous or out[:1].flags.c_contiguous):
        raise KernelError(f"{count} rows do not fit {out.dtype}{out.shape}, or its rows are not contiguous")
    row_bytes = math.prod(out.shape[1:]) * out.itemsize
    stride = out.strides[0] if count > 1 else row_bytes
    right = np.zeros(count, np.bool_)
    library().gather_bytes(
        address(data), data.size, address(starts), address(lengths), count, address(out), row_bytes, stride, address(right)
    )
    return right


# ---- LMDB --------------------------------------------------------------------------------------------------------------


class LmdbTable(NamedTuple):
    """The entries of a database in the order of their keys: the keys' bytes back to back and where each ends, and where in the
    file each value lies."""

    key_data: NDArray[np.uint8]
    key_ends: Ints
    starts: Ints
    lengths: Ints


def walk_lmdb(fd: int, size: int) -> LmdbTable:
    """Find every entry of the main database of the ``data.mdb`` open as `fd`, which has `size` bytes.

    The file is read and not mapped, so one that shrinks or is damaged raises `CorruptShard`, with the offset of the page; so do
    databases with several values a key or with named databases inside.
    """
    walk, totals = Owned(library().lmdb_new(), library().lmdb_free, "walk"), np.zeros(2, np.int64)
    try:
        library().lmdb_walk(walk.handle, fd, size, address(totals))
        count, capacity = totals.tolist()
        keys, ends, starts, lengths = np.empty(capacity, np.uint8), *(np.empty(count, np.int64) for _ in range(3))
        library().lmdb_table(walk.handle, address(keys), capacity, address(ends), address(starts), address(lengths), count)
    finally:
        walk.close()
    return LmdbTable(keys, ends, starts, lengths)
