"""`stoker.lmdb`: an LMDB database as a list of records, in the order of its keys.

The database file is read with `pread` by a reader of our own that trusts nothing in it. The usual library maps the file into
memory, and a damaged or truncated file then ends the process; here it is an error with its place. There is no lock and no
shared reader table either, so any number of processes may read, before and after a fork. A database must not be read while it
is written.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, CorruptShard, RecordError, SourceNotFound
from ...kernel.example_columns import Parsed
from ...kernel.records import RecordTable, Seal, crc32c, crc32c_spans, walk_lmdb
from ...sizes import a_type
from ...storage.local import LocalBlob
from ...storage.scratch import Scratch
from ..chunk import BYTES, OBJECT, Column, FieldSpec, Ints, array_spec
from ..paths import NOT_PLAIN, AnyPath, inside, is_file, is_folder, is_there, path_bytes, printable
from ..sniff import LMDB_FILE, seen_at
from ..source import Located, Rows, Targets
from .codecs import decode_field
from .examples import ExampleColumns, Extraction
from .feature import Feature
from .record_source import Read, RecordSource
from .shard_index import Keys, ShardIndex

#: in front of every value we write: a mark and the CRC-32C of key and payload
MAGIC = b"SKR1"
_MARK = len(MAGIC) + 4
#: the entry that says what the fields are, and how many records there must be
ABOUT = b"__stoker__"
#: the entry in which tensorpack keeps the list of keys
TENSORPACK_KEYS = b"__keys__"
VALUE = "value"


class LmdbSource(RecordSource):
    """Records of one LMDB file (or folder with a ``data.mdb``).

    What `stoker.write_lmdb` wrote is read back unchanged, every record checked. In tensorpack's databases the components of a
    datapoint are the fields, named ``"0"``, ``"1"`` ... or as given by `fields`, if they are plain msgpack; pickles are refused.
    In any other database the single field ``value`` holds the bytes.
    """

    kind = "lmdb"

    def __init__(self, path: AnyPath, fields: Collection[str] | None = None) -> None:
        self._given = path_bytes(path)
        blob = LocalBlob(_file_of(self._given))
        table, keys = _walk(blob)
        self._form: _Form
        if TENSORPACK_KEYS in keys and ABOUT not in keys:
            self._form, rows = _tensorpack(blob, table, keys, fields)
        elif fields is not None:
            raise ConfigError(
                "lmdb(fields=...) is only for databases written by tensorpack, whose components have no names; omit it"
            )
        elif ABOUT in keys:
            self._form, rows = _ours(blob, table, keys)
        else:
            self._form, rows = _plain_values(blob, table, keys)
        names = Keys.of([keys[row] for row in rows.tolist()])
        start, length = table.starts[rows][:, None], table.lengths[rows][:, None]
        super().__init__([blob], [ShardIndex(self.kind, (VALUE,), start, length, None, names, blob.stat().size)])
        self.fields: dict[str, FieldSpec] = self._form.fields
        if isinstance(self._form, _Ours):
            self._table = RecordTable(self._start, self._length, self._form.key_sums, self._ends, Seal.FRONT)

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        read = self._read(indices, (0,), scratch)
        problems: dict[int, Exception] = {}
        columns = self._form.columns(read, indices, tuple(wanted), out, problems)
        for row, error in problems.items():
            read.errors.setdefault(row, self._placed(error, int(indices[row])))
        return Rows(columns, read.errors)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        return self._form.why_not_located(field, box)

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        if isinstance(self._form, _Ours):
            return self._located_feature(self._form.examples, field, tuple(wanted), indices, out, scratch, box)
        return self._located_record(field, indices, scratch)

    def _placed(self, error: Exception, index: int) -> RecordError:
        return RecordError(f"{self.origin(index)}: sample {self.key(index)!r}: {error}")

    def _identity(self) -> tuple[str, ...]:
        return tuple(self.fields)

    def _told(self) -> str:
        return f"{self.kind}({printable(self._given)})"


class _Form(ABC):
    """How values become fields."""

    fields: dict[str, FieldSpec]

    @abstractmethod
    def why_not_located(self, field: str, box: str | None) -> str | None:
        """See `Source.why_not_located`."""

    @abstractmethod
    def columns(
        self, read: Read, indices: Ints, wanted: tuple[str, ...], out: Mapping[str, NDArray[Any]], problems: dict[int, Exception]
    ) -> dict[str, Column]:
        """The wanted columns of what was read; what cannot be made of it is noted in `problems`."""


class _Plain(_Form):
    """Bytes, as they are."""

    def __init__(self) -> None:
        self.fields = {VALUE: BYTES}

    def why_not_located(self, field: str, box: str | None) -> str | None:
        return None

    def columns(
        self, read: Read, indices: Ints, wanted: tuple[str, ...], out: Mapping[str, NDArray[Any]], problems: dict[int, Exception]
    ) -> dict[str, Column]:
        return {name: read.column(0) for name in wanted}


class _Ours(_Form):
    """What `stoker.write_lmdb` wrote: a checksum, then an Example; the fields' types stand in the `ABOUT` entry."""

    def __init__(self, about: Mapping[str, Any], key_sums: NDArray[np.uint32]) -> None:
        self.key_sums = key_sums[:, None]  # as the table takes them, so that both are one array
        self.examples = _FieldColumns({name: dict(entry) for name, entry in about["fields"].items()})
        self.fields = self.examples.fields

    def why_not_located(self, field: str, box: str | None) -> str | None:
        return self.examples.why_not_located(field, box)

    def columns(
        self, read: Read, indices: Ints, wanted: tuple[str, ...], out: Mapping[str, NDArray[Any]], problems: dict[int, Exception]
    ) -> dict[str, Column]:
        starts, lengths = read.at[:, 0], read.lengths[:, 0]
        if not read.checked:
            good = _right_rows(read.data, starts, lengths, self.key_sums[indices, 0])
            for row in np.flatnonzero(~good).tolist():
                problems[row] = RecordError("does not match its checksum; it is damaged: make or fetch the database again")
            for row in read.errors:
                good[row] = False
            starts, lengths = starts + _MARK, np.where(good, lengths - _MARK, 0)
        return self.examples.parse(starts, lengths, wanted, Extraction(read.data, read.arena, out, problems))


class _FieldColumns(ExampleColumns):
    """Fields as their kinds in the `ABOUT` entry say: some are texts that Python decodes."""

    def __init__(self, kinds: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__({name: _feature_of(entry) for name, entry in kinds.items()})
        self.fields = {name: _spec_of(entry, self.fields[name]) for name, entry in kinds.items()}
        self._converters = {name: _CONVERTERS[entry["kind"]] for name, entry in kinds.items() if entry["kind"] in _CONVERTERS}

    def why_not_located(self, field: str, box: str | None) -> str | None:
        return f"{field!r} is decoded by Python" if field in self._converters else super().why_not_located(field, box)

    def columns(
        self, parsed: Parsed, names: Sequence[str], work: Extraction, rendered: str | None = None, sound: bool = False
    ) -> dict[str, Column]:
        columns = super().columns(parsed, names, work, rendered, sound)
        for name in columns.keys() & self._converters.keys():
            columns[name] = _converted(columns[name], self._converters[name], work.errors)
        return columns


class _Tensorpack(_Form):
    """A msgpack list of components a datapoint, arrays as msgpack-numpy writes them."""

    def __init__(self, fields: dict[str, FieldSpec]) -> None:
        self.fields = fields

    def why_not_located(self, field: str, box: str | None) -> str | None:
        return "its records are msgpack, which Python decodes"

    def columns(
        self, read: Read, indices: Ints, wanted: tuple[str, ...], out: Mapping[str, NDArray[Any]], problems: dict[int, Exception]
    ) -> dict[str, Column]:
        column, places = read.column(0), {name: at for at, name in enumerate(self.fields)}
        values: dict[str, list[Any]] = {name: [] for name in wanted}
        for row in range(len(column)):
            parts: list[Any] = [0] * len(places)
            if row not in read.errors:
                try:
                    parts = _components(column[row], len(places))
                except RecordError as error:
                    problems[row] = error
            for name in wanted:
                values[name].append(parts[places[name]])
        return {name: list(column) for name, column in values.items()}


# ---- opening -----------------------------------------------------------------------------------------------------------


def _file_of(path: bytes) -> bytes:
    if is_folder(path):
        file = inside(path) + LMDB_FILE.encode()
        if not is_file(file) and (known := seen_at("lmdb", path)):
            raise SourceNotFound(f"{printable(path)}: {known}")
        return file
    if not is_file(path):
        told = NOT_PLAIN if is_there(path) else "there is no such database; check the spelling, and that the disk is mounted"
        raise SourceNotFound(f"{printable(path)}: {told}")
    return path


def _walk(blob: LocalBlob) -> tuple[Any, _KeyList]:
    size = blob.stat().size
    fd = blob.pin()
    try:
        table = walk_lmdb(fd, size)
    except CorruptShard as error:
        known = seen_at("lmdb", blob.path)
        raise CorruptShard(f"{blob.url}: {known or error}", shard=blob.url, offset=error.offset) from error
    finally:
        blob.release(fd)
    return table, _KeyList(table.key_data, table.key_ends)


class _KeyList(Keys):
    """Keys in ascending order, so that one is found quickly."""

    __slots__ = ()

    def find(self, key: bytes) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle] < key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self[low] == key else -1

    def __contains__(self, key: bytes) -> bool:
        return self.find(key) >= 0


def _value(blob: LocalBlob, table: Any, row: int, most: int = 1 << 62) -> bytes:
    size = min(most, int(table.lengths[row]))
    try:
        data = bytearray(size)
    except MemoryError as error:
        raise _damaged(blob, f"there is not enough memory for the {size:,} bytes of its entry {row:,}") from error
    blob.read_into(int(table.starts[row]), memoryview(data))
    return bytes(data)


def _ours(blob: LocalBlob, table: Any, keys: _KeyList) -> tuple[_Form, Ints]:
    """The form of a database of ours, and which entries are records, in order."""
    at = keys.find(ABOUT)
    value = _value(blob, table, at)
    told = int.from_bytes(value[len(MAGIC) : _MARK], "little")
    if len(value) < _MARK or value[: len(MAGIC)] != MAGIC or crc32c(value[_MARK:], crc32c(ABOUT)) != told:
        raise _damaged(blob, "the entry that describes it does not match its checksum")
    try:
        about = json.loads(value[_MARK:])
        version, records = int(about["version"]), int(about["records"])
        rows = np.delete(np.arange(len(keys)), at)
        form = _Ours(about, _key_sums(keys)[rows]) if version == 1 else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _damaged(blob, f"the entry that describes it cannot be understood ({error})") from error
    if form is None:
        raise ConfigError(f"{blob.url}: was written by a later version of Stoker (format {version}); update Stoker")
    if not form.fields or any(spec.nbytes > blob.stat().size for spec in form.fields.values()):
        raise _damaged(blob, "the entry that describes it has no fields, or fields that are larger than the file")
    if len(rows) != records:
        raise _damaged(blob, f"it has {len(rows):,} records, but {records:,} were written")
    return form, rows


def _plain_values(blob: LocalBlob, table: Any, keys: _KeyList) -> tuple[_Form, Ints]:
    """The same of a database of bytes."""
    # One of ours that has lost its description would come out as marks and numbers, and perhaps not whole.
    if any(_value(blob, table, row, len(MAGIC)) == MAGIC for row in range(min(2, len(keys)))):
        raise _damaged(
            blob, f"its records were written by stoker.write_lmdb, but the entry that describes them ({ABOUT.decode()}) is gone"
        )
    return _Plain(), np.arange(len(keys))


def _tensorpack(blob: LocalBlob, table: Any, keys: _KeyList, fields: Collection[str] | None) -> tuple[_Form, Ints]:
    """The same of a database of tensorpack."""
    at = keys.find(TENSORPACK_KEYS)
    try:
        names = _plain(_unpack(_value(blob, table, at)))
        if not isinstance(names, list):
            raise RecordError("it is not a list")
        rows = [keys.find(name if isinstance(name, bytes) else str(name).encode()) for name in names]
    except RecordError as error:
        raise CorruptShard(f"{blob.url}: its list of keys ('__keys__') cannot be read: {error}", shard=blob.url) from error
    if -1 in rows:
        raise _damaged(blob, f"its list of keys names {names[rows.index(-1)]!r}, which is not there")
    if not rows:
        return _Tensorpack({}), np.empty(0, np.int64)
    try:
        first = _components(_value(blob, table, rows[0]), None)
    except RecordError as error:
        raise CorruptShard(f"{blob.url}: {error}", shard=blob.url) from error
    chosen = [str(number) for number in range(len(first))] if fields is None else list(fields)
    if isinstance(fields, str) or len(set(chosen)) < len(chosen) or not all(isinstance(name, str) for name in chosen):
        raise ConfigError(f"lmdb(fields={fields!r}): must be a list of names, each only once")
    if len(chosen) != len(first):
        raise ConfigError(f"lmdb(fields={chosen}): a datapoint here has {len(first)} components")
    return _Tensorpack(dict.fromkeys(chosen, OBJECT)), np.asarray(rows, np.int64)


def _damaged(blob: LocalBlob, why: str) -> CorruptShard:
    return CorruptShard(f"{blob.url}: {why}; fetch or make the database again", shard=blob.url)


# ---- values ------------------------------------------------------------------------------------------------------------


def _key_sums(keys: Keys) -> NDArray[np.uint32]:
    """The CRC-32C of every key, from which the checksum of its record goes on."""
    starts = np.concatenate([[0], keys.ends[:-1]]).astype(np.int64)
    return crc32c_spans(keys.data, starts, keys.ends - starts)


def _right_rows(data: NDArray[np.uint8], starts: Ints, lengths: Ints, key_sums: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which values begin with our mark and match their checksum."""
    long = lengths >= _MARK
    heads = data[np.where(long, starts, 0)[:, None] + np.arange(_MARK)]
    marked = (heads[:, : len(MAGIC)] == np.frombuffer(MAGIC, np.uint8)).all(axis=1)
    told = np.ascontiguousarray(heads[:, len(MAGIC) :]).view("<u4")[:, 0]
    sums = crc32c_spans(data, starts + _MARK, np.where(long, lengths - _MARK, 0), key_sums)
    right: NDArray[np.bool_] = long & marked & (sums == told)
    return right


def _feature_of(entry: Mapping[str, Any]) -> Feature:
    kind = entry["kind"]
    if kind == "int":
        return Feature(int)
    if kind == "array":
        return Feature(bytes, tuple(entry["shape"]), dtype=_safe_dtype(entry["dtype"]).str)
    if kind == "float":
        return Feature(bytes, (), dtype="<f8")
    if kind == "str":
        return Feature(str)
    if kind not in ("bytes", "json", "npy"):
        raise ValueError(f"a field of kind {kind!r}")
    return Feature(bytes)


def _spec_of(entry: Mapping[str, Any], spec: FieldSpec) -> FieldSpec:
    return OBJECT if entry["kind"] in _CONVERTERS else array_spec(np.float64) if entry["kind"] == "float" else spec


_CONVERTERS: dict[str, Callable[[bytes], Any]] = {
    "json": partial(decode_field, "json"),
    "npy": partial(decode_field, "npy"),
}


def _converted(column: Column, convert: Callable[[bytes], Any], problems: dict[int, Exception]) -> list[Any]:
    values: list[Any] = []
    for row in range(len(column)):
        value = None
        if row not in problems:
            try:
                value = convert(column[row])
            except RecordError as error:
                problems[row] = error
        values.append(value)
    return values


def _safe_dtype(text: Any) -> np.dtype[Any]:
    """A dtype of plain numbers. Names from data never reach NumPy's parser of structures."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    if (
        not isinstance(text, str)
        or len(text) > 8
        or text[:1] not in "<>|="
        or text[1:2] not in ("b", "i", "u", "f", "c")
        or not text[2:].isdigit()
    ):
        raise ValueError(f"a dtype {text!r}, which is not one of plain numbers")
    return np.dtype(text)


def _unpack(data: bytes) -> Any:
    import msgspec

    if data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise RecordError(
            "it is a pickle, which can run any code when it is read, and is refused; write it again with stoker.write_lmdb"
        )
    try:
        return msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RecordError(f"it is not plain msgpack ({error}); write it again with stoker.write_lmdb") from error


def _plain(value: Any) -> Any:
    """Arrays in the way msgpack-numpy writes them become arrays; everything else stays."""
    if isinstance(value, dict):
        about = {(name.decode("latin-1") if isinstance(name, bytes) else name): part for name, part in value.items()}
        return _array(about) if about.get("nd") is True or about.get("nd") is False else {k: _plain(v) for k, v in about.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _array(about: Mapping[str, Any]) -> Any:
    try:
        dtype = _safe_dtype(about["type"])
        array = np.frombuffer(about["data"], dtype)
        return array.reshape([int(extent) for extent in about["shape"]]) if about["nd"] else array[0]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise RecordError(f"an array that cannot be read: {error}") from error


def _components(data: bytes, count: int | None) -> list[Any]:
    try:
        parts = _plain(_unpack(data))
    except RecursionError as error:  # how deep msgpack may be nested differs between versions of Python
        raise RecordError(f"its values are nested too deep ({error}); write it again with stoker.write_lmdb") from error
    if not isinstance(parts, list) or (count is not None and len(parts) != count):
        told = f"{len(parts)} components" if isinstance(parts, list) else f"{a_type(parts)}"
        raise RecordError(
            f"a datapoint of {told}, not of {count}" if count is not None else f"a datapoint that is {told}, not a list"
        )
    return parts
