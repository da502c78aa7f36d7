"""Tar shards by the conventions of WebDataset: the files of a sample are adjacent, and each is called ``key.field``.

The same samples always give the same bytes: every member is read-only, belongs to uid and gid 0, and dates from 1970. The
format is POSIX ustar, which every tar reads. A name that does not fit gets a PAX header, or, if it is not UTF-8, which a PAX
header must be, a GNU one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConfigError
from ...kernel.records import crc32c, crc32c_spans
from ...source.paths import AnyPath, printable
from ...source.shards.codecs import name_bytes
from ...source.shards.shard_index import Keys, SeekStrings, ShardIndex, seek_columns
from ..values.encode import encode_value
from ..values.jpegs import SeekMaker
from ..values.written_samples import split_sample, told_sample
from .shard_writer import ShardWriter, WrittenShards, write_shards
from .target import Target, open_target

BLOCK = 512
#: GNU tar writes in records of this size, and the file is a whole number of them
RECORD = 20 * BLOCK
#: bytes gathered before they are written
_GATHER = 1 << 21
#: readers refuse longer names, and shards of more different fields
MAX_NAME, MAX_FIELDS = 1 << 16, 64
#: eleven octal digits
_MAX_SIZE = 8**11 - 1

_OWNER = b"0000444\x00" + b"0000000\x00" * 2
_TIME = b"00000000000\0"
_MIDDLE = b"\0" * 100 + b"ustar\x0000" + b"\0" * 64 + b"0000000\0" * 2
_CHECKSUM = sum(_OWNER) + sum(_TIME) + sum(_MIDDLE) + 8 * ord(" ")
#: what fills a member up to a whole block, or a shard with its two empty blocks up to a whole record
_ZEROS = bytes(RECORD + 2 * BLOCK)


class Encoded(NamedTuple):
    """A sample as the pieces it is written as."""

    key: bytes
    members: dict[bytes, tuple[bytes, bytes]]  # headers and content of each field
    size: int
    seeks: Mapping[bytes, bytes] = MappingProxyType({})  # seek indices of those that are JPEGs


class TarWriter(ShardWriter[Encoded]):
    """Write samples to one tar shard, which appears, complete and with its index, when the writer is closed.

    `target` is a path; or ``"-"`` for standard output, or a file object: these get no index and are not atomic. A sample is a
    mapping of field names to values with its key as ``__key__`` (numbered when missing); values are bytes, or what the field's
    extension requires: ``cls`` a number, ``json``, ``txt``, ``npy`` an array, ``jpg`` or ``png`` pixels or a Pillow image (JPEG
    at quality 100). If the ``with`` block ends with an exception, no file appears. An existing file is an error unless
    ``overwrite=True``. For one thread at a time.

    `about` is JSON stored in the index, which then appears before the shard: class names as ``{"classes": [...]}``, or how the
    shard was made. With `seek` the index gets seek indices of all JPEGs, so that crops of them are decoded faster. Without an
    index keys are not remembered: a duplicate key is noticed only if the two samples are adjacent.

    >>> import tempfile
    >>> with TarWriter(tempfile.mkdtemp() + "/train.tar") as shard:
    ...     shard.write({"__key__": "cat/1", "jpg": b"...", "cls": 0})
    >>> shard.samples
    1
    """

    def __init__(
        self,
        target: Target,
        *,
        index: bool = True,
        overwrite: bool = False,
        about: Mapping[str, Any] | None = None,
        seek: bool = False,
    ) -> None:
        super().__init__(open_target(target, index=index, overwrite=overwrite, about=about))
        self._table = _Table(seek) if self._target.indexed else _LastKey()
        self._seeks = SeekMaker() if seek and self._target.indexed else None
        self._gathered = 0

    @property
    def size(self) -> int:
        """Bytes the shard would have if it were closed now."""
        return _ended(self._size)

    def size_with(self, encoded: Encoded) -> int:
        """Bytes the shard would have with one more sample."""
        return _ended(self._size + encoded.size)

    def write(self, sample: Any) -> None:
        """Append a sample. One that cannot be written raises ConfigError, and the shard is as if it had not been tried."""
        self.add(self.encode(sample, self.samples, self._seeks))

    @staticmethod
    def encode(sample: Any, number: int, seeks: SeekMaker | None = None) -> Encoded:
        """What a sample is written as; `number` is its key when it has none. `seeks` makes the seek indices of its JPEGs."""
        key, fields = split_sample(sample, stem=True)  # in a tar the extension belongs to the field
        try:
            checked = b"%09d" % number if key is None else _check_key(key)
            if not fields:
                raise ConfigError("it has no fields, and a tar cannot hold a sample without one")
            members: dict[bytes, tuple[bytes, bytes]] = {}
            size = 0
            for name, value in fields:
                field = _check_field(name)
                if field in members:
                    raise ConfigError(f"the field {name!r} appears twice; names that differ only in case count as the same")
                data = _encoded(name, value, fields)
                headers = member_headers(_check_length(checked + b"." + field), len(data))
                members[field] = headers, data
                size += len(headers) + len(data) + -len(data) % BLOCK
        except ConfigError as error:
            raise ConfigError(f"{told_sample(number, key)}: {error}") from error
        if seeks is None:
            return Encoded(checked, members, size)
        made = ((field, seeks(data)) for field, (_, data) in members.items())
        return Encoded(checked, members, size, {field: seek for field, seek in made if seek})

    def add(self, encoded: Encoded) -> None:
        """Append an encoded sample."""
        self._check_open()
        self._table.begin(encoded.key, encoded.members.keys(), self.path)
        try:
            for field, (headers, data) in encoded.members.items():
                self._member(field, headers, data)
            for field, seek in encoded.seeks.items():
                self._table.seek(field, seek)
        except BaseException:
            self.abandon()  # half a sample may be out
            raise
        self.samples += 1

    def _end(self) -> None:
        self._pieces.append(_ZEROS[: self.size - self._size])
        self._flush()

    def _index(self, size: int, mtime_ns: int) -> ShardIndex:
        return self._table.index(size, mtime_ns)

    def _member(self, field: bytes, headers: bytes, data: bytes) -> None:
        start = self._size + len(headers)
        padding = -len(data) % BLOCK
        self._size = start + len(data) + padding
        if len(data) < _GATHER // 2:
            self._table.add(field, start, len(data))
            self._pieces += (headers, data, _ZEROS[:padding])
            self._gathered += len(headers) + len(data) + padding
            if self._gathered >= _GATHER:
                self._flush()
            return
        self._pieces.append(headers)  # a large member is written from where it is
        self._flush()
        self._table.add(field, start, len(data), crc32c(data))
        self._target.write(data)
        self._target.write(_ZEROS[:padding])

    def _flush(self) -> None:
        """Write what was gathered, in one go, and checksum its members in one call."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._gathered = 0
        if data:
            self._table.checksum(data)
            self._target.write(data)


def write_tar(
    pattern: AnyPath,
    samples: Iterable[Any],
    max_bytes: int | str | None = "1GB",
    max_samples: int | None = None,
    overwrite: bool = False,
    *,
    seek: bool = False,
) -> WrittenShards:
    """Write samples to tar shards, each with its index.

    `pattern` has a place for the shard's number: ``out-{:06d}.tar``, ``out-%06d.tar``, ``out-{}.tar`` (six digits); a plain name
    is one shard, and an error if one is not enough. A shard has at most `max_bytes` (None: no limit; a larger sample gets its own
    shard) and `max_samples`. `samples` is any iterable of mappings (see `TarWriter`), or a pipeline without `batch`. Every shard
    appears when it is full; if something fails, those before it are kept. Existing shards are an error unless ``overwrite=True``.
    With `seek` the indexes get seek indices of the JPEGs, which takes 0.4 ms per photograph.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_tar(folder + "/train-{}.tar", ({"txt": f"sample {n}"} for n in range(3)), max_samples=2).samples
    3
    """

    maker = SeekMaker() if seek else None

    def open_writer(path: str) -> TarWriter:
        return TarWriter(path, overwrite=overwrite, seek=seek)

    def encode(sample: Any, number: int) -> Encoded:
        return TarWriter.encode(sample, number, maker)

    return write_shards(pattern, samples, encode, open_writer, max_bytes=max_bytes, max_samples=max_samples, overwrite=overwrite)


class _LastKey:
    """What is known of a shard that gets no index: its fields and its last key, however many samples go through."""

    def __init__(self) -> None:
        self._fields: dict[bytes, int] = {}
        self._last = b""

    def begin(self, key: bytes, fields: Iterable[bytes], told: str) -> None:
        """Begin a sample."""
        new = [field for field in fields if field not in self._fields]
        if len(self._fields) + len(new) > MAX_FIELDS:
            raise ConfigError(
                f"{told}: with the sample {printable(key)!r} the shard has more than {MAX_FIELDS} different fields; store "
                "values without fixed names in one field, e.g. json"
            )
        self._check_new(key, told)
        self._last = key
        for field in new:
            self._fields[field] = len(self._fields)

    def _check_new(self, key: bytes, told: str) -> None:
        if key == self._last:
            raise ConfigError(
                f"{told}: two samples with the key {printable(key)!r} follow each other and would be read as one; every sample "
                "needs its own key"
            )

    def add(self, field: bytes, start: int, length: int, crc: int | None = None) -> None:
        """Note a member of the last sample; without a checksum it waits for the next `checksum`."""

    def seek(self, field: bytes, seek: bytes) -> None:
        """Note the seek index of a member of the last sample."""

    def checksum(self, data: bytes) -> None:
        """Work out the checksums of the members in the next bytes of the shard."""

    def index(self, size: int, mtime_ns: int) -> ShardIndex:
        """The index, which is not requested if none is written."""
        raise AssertionError("an index was asked for where none is kept")


class _Table(_LastKey):
    """What the index will say: a line per member, in arrays, because there may be millions."""

    def __init__(self, seek: bool = False) -> None:
        super().__init__()
        self._seeks: dict[bytes, SeekStrings] | None = {} if seek else None
        self._key_data, self._key_ends = bytearray(), array("q")
        self._seen: set[bytes] | None = None
        self._rows, self._columns = array("q"), array("q")
        self._starts, self._lengths, self._crcs = array("q"), array("q"), array("I")
        self._flushed = 0  # bytes of the shard whose members have their checksums

    def begin(self, key: bytes, fields: Iterable[bytes], told: str) -> None:
        super().begin(key, fields, told)
        self._key_data += key
        self._key_ends.append(len(self._key_data))

    def _check_new(self, key: bytes, told: str) -> None:
        """No earlier sample may have the key. Keys that come in order need no more than a comparison; others are remembered."""
        if self._seen is None and key <= self._last:
            ends = [0, *self._key_ends]
            self._seen = {bytes(self._key_data[a:b]) for a, b in pairwise(ends)}
        if self._seen is not None:
            if key in self._seen:
                raise ConfigError(
                    f"{told}: a sample with the key {printable(key)!r} was written before; every sample needs its own key "
                    "(two samples of one key would be read as one)"
                )
            self._seen.add(key)

    def add(self, field: bytes, start: int, length: int, crc: int | None = None) -> None:
        self._rows.append(len(self._key_ends) - 1)
        self._columns.append(self._fields[field])
        self._starts.append(start)
        self._lengths.append(length)
        if crc is not None:
            self._crcs.append(crc)
            self._flushed = start + length + -length % BLOCK

    def seek(self, field: bytes, seek: bytes) -> None:
        if self._seeks is not None:
            self._seeks.setdefault(field, SeekStrings()).add(seek, len(self._key_ends) - 1)

    def checksum(self, data: bytes) -> None:
        known = len(self._crcs)
        starts = np.array(self._starts[known:], np.int64) - self._flushed
        lengths = np.array(self._lengths[known:], np.int64)
        self._crcs.extend(crc32c_spans(np.frombuffer(data, np.uint8), starts, lengths).tolist())
        self._flushed += len(data)

    def index(self, size: int, mtime_ns: int) -> ShardIndex:
        keys = Keys(np.frombuffer(bytes(self._key_data), np.uint8), np.array(self._key_ends, np.int64))
        fields = tuple(map(printable, self._fields)) or ("",)
        shape = (len(keys), len(fields))
        start, length, crc = np.zeros(shape, np.int64), np.full(shape, -1, np.int64), np.zeros(shape, np.uint32)
        at = np.array(self._rows, np.int64), np.array(self._columns, np.int64)
        start[at], length[at], crc[at] = self._starts, self._lengths, self._crcs
        index = ShardIndex("tar", fields, start, length, crc, keys, size, mtime_ns, sealed=True)
        if self._seeks is None:
            return index
        gathered = {printable(field): self._seeks[field] for field in self._fields if field in self._seeks}
        columns, tail = seek_columns(gathered, len(keys))
        return replace(index, seeks=columns, tail=tail)


def member_headers(name: bytes, size: int) -> bytes:
    """The blocks in front of a member: its header, and those that say what does not fit into it."""
    before, prefix, short = b"", b"", name
    records = [] if size <= _MAX_SIZE else [(b"size", b"%d" % size)]
    if len(name) > 100:
        prefix, short = _split_name(name)
    if not short or not name.isascii():
        if _is_utf8(name):
            records.append((b"path", name))
        elif not short:
            before = _extension(b"././@LongLink", b"L", name + b"\0")
        if not short:
            short = name[:100]
    if records:
        before = _extension(b"././@PaxHeader", b"x", b"".join(_pax_record(*record) for record in records)) + before
    return before + _header(short, prefix, size if size <= _MAX_SIZE else 0, b"0")


def _header(name: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    told = b"%011o\0" % size
    checksum = _CHECKSUM + sum(name) + sum(told) + sum(prefix) + kind[0]
    return b"".join((name.ljust(100, b"\0"), _OWNER, told, _TIME, b"%06o\0 " % checksum, kind, _MIDDLE, prefix.ljust(167, b"\0")))


def _extension(name: bytes, kind: bytes, data: bytes) -> bytes:
    return _header(name, b"", len(data), kind) + data + b"\0" * (-len(data) % BLOCK)


def _split_name(name: bytes) -> tuple[bytes, bytes]:
    """A long name in two, as ustar has it: at a slash, at most 155 bytes before and 100 after it; both empty where none fits."""
    at = name.find(b"/", len(name) - 101, 156)
    return (name[:at], name[at + 1 :]) if at > 0 else (b"", b"")


def _pax_record(key: bytes, value: bytes) -> bytes:
    """``length key=value``, where the length counts its own digits."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _ended(size: int) -> int:
    """Bytes of a shard with its end: two empty blocks, filled up to a whole record."""
    return -(-(size + 2 * BLOCK) // RECORD) * RECORD


def _check_key(key: bytes) -> bytes:
    """A key that every reader takes for what it is, and that leads out of no folder when the shard is unpacked."""
    parts = key.split(b"/")
    if not key:
        raise ConfigError("its key is empty; use a name, or omit __key__ to number the samples")
    if b"\0" in key or b"\n" in key:
        raise ConfigError("a key cannot hold a NUL or a newline; choose another name")
    if key[:1] == b"/":
        raise ConfigError("a key that begins with a slash would be unpacked outside of any folder; omit the slash")
    if b".." in parts or b"." in parts or b"" in parts:
        raise ConfigError("a key with the parts '.', '..' or an empty one could be unpacked anywhere; use a plain relative name")
    if b"." in parts[-1]:
        raise ConfigError(
            "the last part of a key cannot have a dot: a reader would take what follows it for the field; replace it, "
            "e.g. by key.replace('.', '_')"
        )
    return key


@lru_cache(maxsize=1024)
def _check_field(field: str) -> bytes:
    name = name_bytes(field, f"the field name {field!r}").lower()
    if not name or b"/" in name or b"\0" in name or b"\n" in name:
        raise ConfigError(f"{field!r} cannot be the name of a field: it becomes an extension, such as 'jpg', 'cls' or 'seg.png'")
    return name


def _encoded(name: str, value: Any, fields: list[tuple[str, Any]]) -> bytes:
    """The bytes a value is stored as. Where its field's name does not say how, the error tells how to rename all fields."""
    try:
        return encode_value(name, value)
    except ConfigError as error:
        from ..values.field_choice import renaming  # pictures are known there, which takes long to import

        new = renaming(dict(fields))
        try:
            encode_value(new[name], value)
        except (KeyError, ConfigError):
            raise error from None
        old = {after: before for before, after in new.items()}
        plain = all(map(str.isidentifier, old))
        words = ", ".join(f"{after}={before!r}" for after, before in old.items()) if plain else f"**{old}"
        raise ConfigError(f"{error}. In a pipeline: .rename({words})") from error


def _check_length(name: bytes) -> bytes:
    if len(name) > MAX_NAME:
        raise ConfigError(f"its name has {len(name):,} bytes, and readers allow {MAX_NAME:,}; use a shorter key")
    return name
