"""Finds, checks and makes the index of a shard."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import (
    ConfigError,
    CorruptIndex,
    CorruptShard,
    ReadError,
    RemoteError,
    ShardChanged,
    ShardError,
    SourceNotFound,
    WriteError,
)
from ...kernel.example_columns import ExampleStats
from ...kernel.records import MEMBER, TarScan
from ...sizes import show_bytes
from ...storage.blob import Blob
from ...storage.cache_blob import CachedBlob
from ...storage.home import index_home
from ...storage.local import LocalBlob
from ...storage.once import Once
from ..paths import printable
from ..sniff import BEGIN, PACKINGS, packing_by_content, seen_as, seen_at
from ..streams.tfrecord_stream import whole_records
from .feature import about_examples
from .shard_index import SUFFIX, IndexHeader, Keys, ShardIndex

Result = TypeVar("Result")

#: bytes read at once while making an index
PIECE = 1 << 21
#: how long to wait for another process that is indexing the same shard; then both do it
_LOCK_S = 600.0


def index_of(blob: Blob, kind: str, once: Once | None = None) -> ShardIndex:
    """The index of a shard: the one next to it or in the user's cache folder if it fits the shard, else made now and stored.

    A sealed index that does not fit raises ShardChanged; any other is only a cached result, and is made again. Shards that share
    `once` share their warnings.
    """
    once = Once() if once is None else once
    found = find_index(blob, kind)
    if found is not None:
        return found
    with _locked(blob):
        found = find_index(blob, kind)  # another process may have made it while we waited
        if found is not None:
            return found
        if not isinstance(blob, LocalBlob):
            once.warn(
                "%s has no index next to it: reading all of it (%s) to make one, as for every shard without an index; "
                "`stoker index` makes them once for all readers",
                blob.url,
                show_bytes(blob.stat().size),
            )
        index = build_index(blob, kind)
        try:
            keep_index(blob, index)
        except (ConfigError, WriteError):
            once.warn(
                "%s: its index can be written neither next to it nor as %s, so it is made again each time, and so is every index "
                "that cannot be written; set XDG_CACHE_HOME to a writable folder",
                blob.url,
                _home_of(blob),
            )
    return index


def find_index(blob: Blob, kind: str) -> ShardIndex | None:
    """An index that is there already and may be trusted; None: it has to be made."""
    index = _beside(blob, kind)
    if index is not None:
        return index
    # That in the cache folder is ours alone, and easily made again.
    header = _unless_bad(lambda: IndexHeader.read(LocalBlob(os.fsencode(_home_of(blob)))))
    return _unless_bad(header.load) if header is not None and header.kind == kind and _fits(header, blob) else None


def _unless_bad(read: Callable[[], Result]) -> Result | None:
    try:
        return read()
    except (ReadError, ShardError, SourceNotFound):
        return None


def keep_index(blob: Blob, index: ShardIndex) -> str:
    """Write an index where the next reader will find it; returns the path. Raises as `ShardIndex.keep` does."""
    return index.keep(blob.path + SUFFIX.encode() if isinstance(blob, LocalBlob) else None, _home_of(blob))


def _home_of(blob: Blob) -> Path:
    """Where an index is kept that cannot lie beside its shard; files of one name in two folders are two."""
    return index_home(printable(blob.path) if isinstance(blob, LocalBlob) else blob.url)


def build_index(blob: Blob, kind: str, *, sealed: bool = False) -> ShardIndex:
    """Read a whole shard and note where everything is. Strict: the first contradiction raises CorruptShard."""
    stat = blob.stat()
    if not stat.size:
        raise CorruptShard(f"{blob.url}: is empty (0 bytes); fetch or make it again", shard=blob.url, offset=0)
    try:
        index = _BUILDERS[kind](blob)
    except CorruptShard as error:
        if error.shard:
            raise
        known = _seen(kind, blob) if (error.offset or 0) < BEGIN else ""
        raise CorruptShard(f"{blob.url}: {known or error}", shard=blob.url, offset=error.offset) from error
    mtime = int(stat.version) if isinstance(blob, LocalBlob) else 0
    return replace(index, mtime_ns=mtime, etag="" if mtime else stat.version, sealed=sealed)


def _seen(kind: str, blob: Blob) -> str:
    """What a shard that is not of this kind seems to be, and what to do; "" when nothing is known."""
    begin = bytearray(min(BEGIN, blob.stat().size))
    blob.read_into(0, memoryview(begin))
    packing = packing_by_content(bytes(begin)) if kind == "tfrecord" else None
    if packing in PACKINGS:
        return f"is compressed ({packing}); read it with stoker.tfrecord(..., compression={packing!r})"
    return seen_at(kind, blob.path) if isinstance(blob, LocalBlob) else seen_as(kind, bytes(begin))


def _index_tar(blob: Blob) -> ShardIndex:
    scan, parts = TarScan(), []
    for piece in blob.stream(0, PIECE):
        members = scan.feed(piece)
        if len(members):
            parts.append(members)
    scan.finish()
    members = np.concatenate(parts) if parts else np.empty(0, MEMBER)
    key_data, key_ends = scan.keys()
    keys = Keys(key_data, key_ends)
    check_unique(keys, members, blob.url)
    shape = (len(keys), max(1, len(scan.fields)))
    start, length, crc = np.zeros(shape, np.int64), np.full(shape, -1, np.int64), np.zeros(shape, np.uint32)
    at = members["sample"], members["field"]
    start[at], length[at], crc[at] = members["start"], members["length"], members["crc"]
    about = {"ignored": scan.ignored, "ignored_names": [printable(name) for name in scan.ignored_names]} if scan.ignored else {}
    fields = tuple(printable(name) for name in scan.fields) or ("",)
    return ShardIndex("tar", fields, start, length, crc, keys, blob.stat().size, about=about)


def check_unique(keys: Keys, members: Any, told: str) -> None:
    """Raise if two samples of one shard have the same key, which means that the members of a sample are not adjacent."""
    names = keys.all()
    if len(set(names)) == len(names):
        return
    seen: dict[bytes, int] = {}
    for row, name in enumerate(names):
        if name in seen:
            first, second = (int(members["header"][members["sample"] == number][0]) for number in (seen[name], row))
            raise CorruptShard(
                f"{told}: the key {printable(name)!r} appears twice, at byte {first:,} and again at byte {second:,}; the files "
                "of a sample must be adjacent: write the shard sorted (`stoker tar sort`)",
                shard=told,
                offset=second,
            )
        seen[name] = row


def _index_tfrecord(blob: Blob) -> ShardIndex:
    stats = ExampleStats()
    starts, lengths = [], []
    for base, data, at, size in whole_records(blob.stream(0, PIECE), blob.stat().size):
        stats.add(data, at, size)
        starts.append(at + base)
        lengths.append(size)
    start, length = (np.concatenate([np.empty(0, np.int64), *parts])[:, None] for parts in (starts, lengths))
    about = about_examples(stats)
    return ShardIndex("tfrecord", ("record",), start, length, None, None, blob.stat().size, about=about)


_BUILDERS: dict[str, Callable[[Blob], ShardIndex]] = {"tar": _index_tar, "tfrecord": _index_tfrecord}


def _fits(index: IndexHeader, blob: Blob) -> bool:
    local, stat = isinstance(blob, LocalBlob), blob.stat()
    same = index.size == stat.size and (index.mtime_ns == int(stat.version) if local else index.etag in ("", stat.version))
    if same:
        return True
    if not index.sealed:
        return False
    if index.size == stat.size and local:
        return True  # copied, perhaps: the time differs, and every record is checked against its checksum when it is read
    why = f"{index.size:,} bytes then, {stat.size:,} now" if index.size != stat.size else "its ETag differs"
    raise ShardChanged(
        f"{blob.url}: is not the shard its index was made for ({why}); fetch both again, or, if it was replaced on purpose, "
        f"`stoker index --force {blob.url}`",
        shard=blob.url,
    )


def _beside(blob: Blob, kind: str) -> ShardIndex | None:
    """The index in the file beside a shard; None when there is none that fits."""
    blob.stat()  # of the shard itself, so that its faults are not reported for its index
    try:
        return _read_beside(blob, kind)
    except ShardChanged:
        return _read_beside(blob, kind)  # another process has just put a new one in its place
    except SourceNotFound:
        return None
    except RemoteError as error:
        if error.status in (401, 403, 404, 405, 410):  # object stores say "forbidden" of what is not there
            return None
        raise
    except ReadError as error:
        raise CorruptIndex(f"{blob.url + SUFFIX}: cannot be read: {error}", shard=blob.url) from error


def _read_beside(blob: Blob, kind: str) -> ShardIndex | None:
    other = blob.sibling(SUFFIX)
    try:
        header = IndexHeader.read(other)
        _check_kind(header, blob, kind)
        if not _fits(header, blob):
            return None
        index = header.load()
    except CorruptIndex as error:
        if isinstance(blob, LocalBlob) or error.offset != 0:
            raise
        return None  # some servers answer with a page of their own where there is no file
    finally:
        other.close()
    # What is read of a tail goes the way the shard goes: through its cache, if it has one.
    if isinstance(blob, CachedBlob) and index.tail.blob is not None:
        return replace(index, tail=replace(index.tail, blob=blob.cache.wrap(other)))
    return index


def _check_kind(header: IndexHeader, blob: Blob, kind: str) -> None:
    if header.kind == kind:
        return
    if known := _seen(kind, blob):  # then its index is as it should be
        raise CorruptShard(f"{blob.url}: {known}", shard=blob.url, offset=0)
    raise CorruptIndex(
        f"{header.told}: is the index of a {header.kind}, but the shard is read as {kind}; if that is right, make the index "
        f"again with `stoker index --force {blob.url}`",
        shard=header.told,
    )


@contextlib.contextmanager
def _locked(blob: Blob) -> Iterator[None]:
    """Hold the shard while its index is made, so that of several processes that start together only one reads it all.

    A local shard is locked by its own descriptor, one on a network by its byte of a file in the user's cache folder. Both leave
    nothing behind, and end with the process. Where a lock cannot be had the index is made all the same, perhaps twice.
    """
    fd = -1
    with contextlib.suppress(OSError):
        fd = os.open(blob.path, os.O_RDONLY | os.O_CLOEXEC) if isinstance(blob, LocalBlob) else _open_locks()
    place = None if isinstance(blob, LocalBlob) else int(_home_of(blob).stem[:15], 16)
    try:
        if fd >= 0:
            _wait_for(fd, place)
        yield
    finally:
        if fd >= 0:
            with contextlib.suppress(OSError):
                _lock(fd, place, fcntl.LOCK_UN)  # a child forked in the meantime has it open too
            os.close(fd)


def _open_locks() -> int:
    """The file whose bytes stand for shards on a network: one for all, since a file for each would be left behind."""
    folder = index_home("").parent
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / "locks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _lock(fd: int, place: int | None, kind: int) -> None:
    """Lock or unlock a file, or one byte of it, without waiting."""
    if place is None:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return
    # Of the open file, not of the process (as `lockf` would): then threads hold each other off too, and closing another
    # descriptor of the file lets go of nothing.
    set_lock = getattr(fcntl, "F_OFD_SETLK", None)
    if set_lock is None:
        raise OSError(errno.ENOTSUP, "no locks of open files")
    wanted = fcntl.F_UNLCK if kind == fcntl.LOCK_UN else fcntl.F_WRLCK
    fcntl.fcntl(fd, set_lock, struct.pack("@hhqqi", wanted, os.SEEK_SET, place, 1, 0))


def _wait_for(fd: int, place: int | None) -> None:
    deadline = time.monotonic() + _LOCK_S
    while time.monotonic() < deadline:
        try:
            _lock(fd, place, fcntl.LOCK_EX)
            return
        except (BlockingIOError, PermissionError):  # the two ways to say that another has it
            time.sleep(0.02)
        except OSError:
            return  # a file system without locks
