"""LMDB databases: one file, one record per sample, each with a checksum, which LMDB itself does not have.

A value is ``SKR1``, the CRC-32C of key and payload (4 bytes, little-endian), and the payload: a `tf.train.Example` with one
value per field. An Example has bytes, 64-bit integers and 32-bit floats only, so the entry ``__stoker__`` says, as JSON, what
each field was, and samples are read as they were written.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from ...errors import ConfigError, SourceEmpty, WriteError
from ...kernel.records import crc32c
from ...registry import needed
from ...sizes import parse_bytes
from ...source.paths import AnyPath, printable
from ...source.shards.lmdb_source import ABOUT, MAGIC
from ...storage.atomic import AtomicFile, write_error
from ..values.example import ExampleEncoder
from ..values.example_values import Field, field_of, loaded, merged, parse_example, stored
from ..values.written_samples import each, split_sample, told_sample
from .shard_writer import WrittenShards

#: LMDB is compiled with this limit
_MAX_KEY = 511
#: bytes of `MAGIC` and checksum
_MARK = 8
_MAX_RECORDS = 10**8
#: address space at the start; it is doubled when it is used up, and takes no room on the disk
_MAP_SIZE = 1 << 30
#: bytes gathered for one transaction
_GATHER = 1 << 24


def write_lmdb(
    path: AnyPath, samples: Iterable[Any], map_size: int | str | None = None, overwrite: bool = False
) -> WrittenShards:
    """Write samples to an LMDB database, a single file that appears when it is complete.

    `stoker.lmdb` reads them unchanged, in the same order: bytes, text, integers, 64-bit floats, arrays of any dtype, and JSON
    values (a tuple becomes a list). All samples must have the same fields. py-lmdb reads the file too: ``lmdb.open(path,
    subdir=False, lock=False)``.

    Keys are those of the samples, or their number in eight digits. LMDB sorts records by key; unless the keys are ascending, each
    is prefixed with a running number (``00000042-name``), which keeps the order of the samples. `map_size` is the initial address
    space; it grows as needed.

    >>> import tempfile
    >>> write_lmdb(tempfile.mkdtemp() + "/train.lmdb", [{"x": 1.5, "name": "a"}, {"x": 2.5, "name": "b"}]).samples
    2
    """
    lmdb = needed("lmdb", "lmdb", "write_lmdb()")
    size = _MAP_SIZE if map_size is None else parse_bytes(map_size, "map_size")
    database = _Database(_LmdbFile(lmdb, path, size, overwrite))
    try:
        with closing(each(samples)) as stream:
            for sample in stream:
                database.add(sample)
        return database.close(os.fsdecode(path))
    except BaseException:
        database.store.abandon()
        raise


class _Database:
    """Samples as entries of a store.

    What a field is, and whether keys ascend, is known for sure only at the end. It is taken to be as in the first sample; when a
    later one differs, what is written already is written again. That is rarely much: samples that differ mostly do so early.
    """

    def __init__(self, store: _LmdbFile) -> None:
        self.store = store
        self._fields: dict[str, Field] = {}
        self._examples = ExampleEncoder()
        self._count = 0
        self._last = b""
        self._numbered = False  # whether keys have their number in front

    def add(self, sample: Any) -> None:
        key, values = split_sample(sample)
        try:
            if self._count == _MAX_RECORDS:
                raise ConfigError(f"a database can hold at most {_MAX_RECORDS:,} records; write several")
            self._settle(dict(values))
            self._put(self._key(key), {name: stored(self._fields[name], value) for name, value in values})
        except ConfigError as error:
            raise ConfigError(f"{self.store.told}: {told_sample(self._count, key)}: {error}") from error
        self._count += 1

    def close(self, path: str) -> WrittenShards:
        if not self._count:
            raise SourceEmpty(f"{self.store.told}: there were no samples to write; check their source")
        about = {"version": 1, "records": self._count, "fields": {name: field.as_json() for name, field in self._fields.items()}}
        payload = json.dumps(about, separators=(",", ":")).encode()
        size = self.store.close(ABOUT, _marked(ABOUT, payload))
        return WrittenShards((path,), self._count, size)

    def _key(self, key: bytes | None) -> bytes:
        if key is None:
            key = b"%08d" % self._count
        if not key or key == ABOUT:
            raise ConfigError(f"{printable(key)!r} cannot be a key, because it is empty or reserved; choose another")
        if not self._numbered and key <= self._last:
            self._numbered = True
            self._rewrite(_number_key)
        self._last = key
        key = _number_key(self._count, key) if self._numbered else key
        if len(key) > _MAX_KEY:
            raise ConfigError(f"its key has {len(key):,} bytes, and LMDB allows {_MAX_KEY}; use shorter keys, or omit __key__")
        return key

    def _put(self, key: bytes, features: dict[str, bytes | int]) -> None:
        self.store.put(key, _marked(key, b"".join(self._examples.encode(features.items()))))

    def _settle(self, values: dict[str, Any]) -> None:
        """Make the fields such that they hold this sample too."""
        found = {name: field_of(name, value) for name, value in values.items()}
        if not self._count:
            if not found:
                raise ConfigError("it has no fields")
            self._fields = found
            return
        if found.keys() != self._fields.keys():
            odd = sorted(found.keys() ^ self._fields.keys())[0]
            has, others = ("has", "have not") if odd in found else ("has not", "have")
            raise ConfigError(
                f"it {has} the field {odd!r}, which those before {others}; all samples need the same fields, None if absent"
            )
        if found == self._fields:
            return
        settled = {name: merged(name, self._fields[name], field) for name, field in found.items()}
        changed = {name for name, field in settled.items() if field != self._fields[name]}
        old, self._fields = self._fields, settled
        if changed:
            self._examples = ExampleEncoder()
            self._rewrite(None, {name: old[name] for name in changed})

    def _rewrite(self, rename: Any = None, changed: dict[str, Field] | None = None) -> None:
        """Write all entries so far again, with other keys or with some fields stored in another way."""
        old, self.store = self.store, self.store.another()
        try:
            for number, (key, value) in enumerate(old.entries()):
                features = parse_example(value[_MARK:])
                for name, field in (changed or {}).items():
                    features[name] = stored(self._fields[name], loaded(field, features[name]))
                self._put(rename(number, key) if rename is not None else key, features)
        finally:
            old.abandon()


class _LmdbFile:
    """The database file: entries in ascending order of their keys, in transactions of some megabytes."""

    def __init__(self, lmdb: Any, path: AnyPath, map_size: int, overwrite: bool) -> None:
        self._lmdb, self._map_size, self._overwrite = lmdb, map_size, overwrite
        self._file = AtomicFile(path, overwrite=overwrite)
        self.path, self.told = self._file.path, self._file.told
        self._waiting: list[tuple[bytes, bytes]] = []
        self._gathered, self._written = 0, 0
        self._environment: Any = None
        with self._failing():
            # Nothing is flushed to the disk before the end: until then the file is invisible.
            self._environment = lmdb.open(
                self._file.temporary, map_size=map_size, subdir=False, lock=False, sync=False, metasync=False, max_dbs=0
            )

    def another(self) -> _LmdbFile:
        """An empty store for the same place."""
        return _LmdbFile(self._lmdb, self.path, self._map_size, self._overwrite)

    def put(self, key: bytes, value: bytes) -> None:
        """Add an entry after all others."""
        self._waiting.append((key, value))
        self._gathered += len(key) + len(value)
        if self._gathered >= _GATHER:
            self._flush(append=True)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, in order."""
        self._flush(append=True)
        with self._failing(), self._environment.begin() as transaction:
            yield from transaction.cursor()

    def close(self, key: bytes, value: bytes) -> int:
        """Add the last entry, wherever it belongs, and make the database appear; its size."""
        self._flush(append=True)
        self._waiting.append((key, value))
        self._flush(append=False)
        with self._failing():
            self._environment.sync(True)
            self._environment.close()
            self._environment = None
        size = self._file.finish().st_size
        self._file.publish()
        return size

    def abandon(self) -> None:
        """Give it up: nothing of it stays."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None
        self._file.abandon()

    def _flush(self, append: bool) -> None:
        with self._failing():
            while self._waiting:
                try:
                    with self._environment.begin(write=True) as transaction:
                        transaction.cursor().putmulti(self._waiting, append=append)
                except self._lmdb.MapFullError:
                    self._map_size = 2 * self._environment.info()["map_size"]
                    self._environment.set_mapsize(self._map_size)
                    continue
                self._waiting = []
        self._written += self._gathered
        self._gathered = 0

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except self._lmdb.Error as error:
            cause = self._trouble(error)
            self.abandon()
            if cause is None:
                told = f"{self.told}: cannot be written after {self._written:,} bytes: {error}. No part of it remains"
                raise WriteError(told) from error
            raise write_error(cause, self.told, os.path.dirname(self.path), self._written, self._gathered) from error  # noqa: PTH120

    def _trouble(self, error: Exception) -> OSError | None:
        """What the disk said, if it was the disk. To LMDB a write that was cut short is an I/O error; another one tells why."""
        try:
            for _ in range(2):
                os.pwrite(self._file.fileno(), bytes(1 << 16), os.fstat(self._file.fileno()).st_size)
        except OSError as cause:
            return cause
        code = next((code for code in _DISK_TROUBLE if os.strerror(code) in str(error)), None)
        return None if code is None else OSError(code, os.strerror(code))


_DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)


def _marked(key: bytes, payload: bytes) -> bytes:
    return MAGIC + crc32c(payload, crc32c(key)).to_bytes(4, "little") + payload


def _number_key(number: int, key: bytes) -> bytes:
    return b"%08d-" % number + key
