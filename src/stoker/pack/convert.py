"""Any source into shards: what `stoker pack` does, without the talking.

Which sample goes into which shard is settled before anything is written, from sizes that are known or asked of the disk. So a shard
is a pure function of source, options and its number: shards can be written in any order, side by side, and again after a crash, with
the same bytes. How a shard was made stands in its index (`about`); a shard whose index says the same is whole, and is kept.

There are no threads here. What can run in parallel goes through an `Ordered` map, which the caller gives.
"""
# names are any bytes, which pathlib takes only as text
# ruff: noqa: PTH

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import ConfigError, CorruptIndex, DataLossError, SampleError, StokerError, WriteError
from ..kernel import native
from ..kernel.library import Bytes
from ..source.base import Source, digest
from ..source.chunk import BYTES, Ints
from ..source.files import LabelledFiles
from ..source.index import SUFFIX, ShardIndex
from ..source.paths import absolute, printable
from ..source.records import RecordSource
from ..source.stream import KEY, StreamSource
from ..source.tar import TarSource
from ..source.tfrecord import RECORD, TfrecordSource
from ..storage.local import LocalBlob
from ..storage.scratch import Scratch
from ..units import counted
from .atomic import AtomicFile, sync_folder
from .fields import Kept, choose_fields, other_kinds, own_key
from .keys import UniqueKeys, key_reader, safe_key
from .lmdb import write_lmdb
from .pictures import picture_kind, shrink
from .shards import Pattern, Written
from .tar import BLOCK, TarWriter, write_tar
from .tar import RECORD as TAR_RECORD
from .target import MakeIndex, _is_index
from .tfrecord import RecordEncoder, TfrecordWriter, write_tfrecord

Thing, Result = TypeVar("Thing"), TypeVar("Result")

#: what the recipe in an index means; another number makes all shards anew
VERSION = 1
#: samples prepared together: at most so many bytes and so many
_CHUNK_BYTES, _CHUNK_SAMPLES = 1 << 22, 512
#: samples looked at to find out what fields hold
_LOOKED = 32
#: names asked of the disk at once
_BLOCK_NAMES = 4096
#: bytes of a TFRecord around a record and around a feature, at most
_AROUND_RECORD, _AROUND_FEATURE = 32, 32


class Ordered(Protocol):
    """A map that may run ahead on several threads, and gives the results in order."""

    def __call__(self, work: Callable[[Thing], Result], things: Iterable[Thing]) -> Iterable[Result]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """What a conversion does, beside where it reads and writes. Equal options give equal shards."""

    format: str = "tar"
    max_bytes: int | None = 10**9
    max_samples: int | None = None
    seed: int | None = None  # of the shuffle; None: the source's order
    resize_max: int | None = None
    quality: int = 90
    fields: str | None = None
    by_content: bool = False
    keys: bool = True  # whether a TFRecord has a feature with the sample's key


@dataclass(frozen=True, slots=True)
class Bad:
    """A sample that could not be read or made smaller."""

    key: str
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Shard:
    """What became of a shard: written now, or kept from before. Without a `path`, bad samples kept it from being written."""

    number: int
    path: str
    samples: int
    bytes: int
    kept: bool = False
    bad: tuple[Bad, ...] = ()


@dataclass(slots=True)
class Moved:
    """How far a shard is: hears of samples and bytes as they are written, and may say that all is to stop."""

    add: Callable[[int, int], None] = lambda samples, nbytes: None
    stopped: Callable[[], bool] = lambda: False


class Stopped(Exception):
    """Raised within a shard when the whole conversion is given up."""


class Conversion:
    """Samples of a source on their way into shards.

    Making one looks at all keys and sizes, and reads a few samples to learn what the fields hold; nothing is written.

    >>> import tempfile, numpy as np
    >>> from stoker.source.arrays import ArraysSource
    >>> numbers = Conversion(ArraysSource({"n": np.arange(5)}), tempfile.mkdtemp() + "/{:02d}.tar", Options(max_samples=2))
    >>> [numbers.write(shard).samples for shard in range(numbers.shards)]
    [2, 2, 1]
    """

    def __init__(self, source: Source, pattern: str, options: Options, each: Ordered = map, overwrite: bool = False) -> None:
        self.source, self.names, self.options = _as_stored(source, options), Pattern(pattern), options
        self.overwrite = overwrite
        self._raw = isinstance(self.source, TarSource)
        self._records = isinstance(self.source, TfrecordSource) and RECORD in self.source.fields and options.format == "tfrecord"
        looked = _look(self.source)
        self.kept = choose_fields(
            self.source.fields, looked, options.format, raw=self._raw, chosen=options.fields, by_content=options.by_content
        )
        #: formats of pictures among the samples looked at, by field
        self.pictures = {kept.target: other_kinds(looked.get(kept.source, ())) for kept in self.kept if not self._raw}
        self._wanted = tuple(dict.fromkeys([kept.source for kept in self.kept] + ([KEY] if KEY in self.source.fields else [])))
        self.keys = UniqueKeys(len(source), key_reader(source))
        self.sizes, versions = stored_sizes(self.source, each)
        self._order = None if options.seed is None else shuffled(len(source), options.seed)
        planned = self._planned()
        self._bounds = split(planned if self._order is None else planned[self._order], self._limit(), options.max_samples)
        if options.format == "lmdb":
            self._bounds = np.array([0, len(source)], np.int64)
        if self.names.single and self.shards > 1:
            raise _several(self.names.text, self.shards)
        self.recipe = self._fingerprint(versions)
        self._records_encoder = RecordEncoder(key=KEY if options.keys and not self._records else None)
        self._free: list[Scratch] = []

    @property
    def shards(self) -> int:
        """How many there will be."""
        return len(self._bounds) - 1

    def samples(self, shard: int) -> Ints:
        """The samples of a shard, by their index in the source."""
        first, stop = int(self._bounds[shard]), int(self._bounds[shard + 1])
        return np.arange(first, stop, dtype=np.int64) if self._order is None else self._order[first:stop]

    def standing(self) -> dict[int, Shard]:
        """The shards that are there already, made by the same recipe; anything else in the way raises WriteError.

        Nothing is read of them but their index: a shard appears whole or not at all.
        """
        found: dict[int, Shard] = {}
        strangers: list[str] = []
        inputs = {os.path.realpath(blob.path) for blob in getattr(self.source, "blobs", ()) if isinstance(blob, LocalBlob)}
        for number in range(self.shards):
            path = self.names.name(number)
            if os.path.realpath(os.fsencode(path)) in inputs:
                raise ConfigError(f"{path}: is read and would be written; give the shards another name")
            if not os.path.lexists(path):
                continue
            shard = self._found(number, path)
            if shard is not None:
                found[number] = shard
            elif not self.overwrite:
                strangers.append(path)
        more = self.names.existing(self.shards)
        if strangers:
            raise WriteError(
                f"{_told(strangers)} there already, and made otherwise (of other data, with other options, or not by `stoker pack`); "
                "give another name, or --overwrite"
            )
        if more:
            raise WriteError(
                f"{_told(more)} there already, and would be read with the {counted(self.shards, 'shard')} written now; give another "
                "name, or delete what you do not want"
            )
        return found

    def write(self, number: int, *, ordered: Ordered = map, moved: Moved | None = None, skip_bad: bool = False) -> Shard:
        """Make a shard appear, whole.

        Unless `skip_bad`, a bad sample keeps its shard from being written; the rest of the shard is still read, to find them all.
        """
        moved = moved or Moved()
        path = self.names.name(number)
        chunks = list(self._chunks(self.samples(number)))
        prepared = ordered(self._encode if self.options.format != "lmdb" else self._sample_rows, chunks)
        with contextlib.ExitStack() as stack:
            if hasattr(prepared, "close"):
                stack.callback(prepared.close)
            told = _Stream(prepared, moved, skip_bad)
            if self.options.format == "lmdb":
                return self._write_lmdb(number, path, told)
            return self._write_shard(number, path, told)

    # ---- planning -----------------------------------------------------------------------------------------------------------

    def _limit(self) -> int | None:
        most = self.options.max_bytes
        if most is None or self.options.format != "tar":
            return most
        return max(1, most // TAR_RECORD * TAR_RECORD - 2 * BLOCK)  # what is left beside the end

    def _planned(self) -> Ints:
        """Bytes each sample will take, at most; with other fields than the source's, or smaller pictures, about."""
        kept = len(self.kept)
        if self.options.format != "tar":
            names = sum(len(field.target) + _AROUND_FEATURE for field in self.kept)
            return self.sizes + self.keys.lengths + names + _AROUND_RECORD
        if isinstance(self.source, TarSource):
            lengths = _lengths(self.source)[:, [self.source.stored.index(field.source) for field in self.kept]]
            sizes = np.where(lengths < 0, 0, BLOCK - (-lengths // BLOCK * BLOCK)).sum(axis=1)
        else:
            sizes = BLOCK - (-self.sizes // BLOCK * BLOCK) + (2 * kept - 2) * BLOCK
        longest = max(len(field.target) for field in self.kept) + 6
        named = self.keys.lengths + longest
        extended = (named > 100) | ~self.keys.plain
        return sizes + np.where(extended, kept * (3 * BLOCK + named), 0)

    def _fingerprint(self, versions: str) -> str:
        options = asdict(self.options)
        del options["max_bytes"], options["max_samples"]  # the bounds say what came of them
        pillow = _pillow_version() if self.options.resize_max else ""
        fields = [f"{field.source}>{field.target}" for field in self.kept]
        return digest(
            "pack",
            VERSION,
            self.source.fingerprint(),
            versions,
            repr(sorted(options.items())),
            pillow,
            *fields,
            self._bounds.tobytes(),
        )

    def _found(self, number: int, path: str) -> Shard | None:
        """A shard of this very recipe; None: it is something else."""
        try:
            with open(path + SUFFIX, "rb") as file:
                index = ShardIndex.from_bytes(file.read(), path + SUFFIX)
            size = os.stat(path).st_size
        except (OSError, CorruptIndex):
            return None
        about = index.about.get("pack")
        if (
            not isinstance(about, dict)
            or about.get("recipe") != self.recipe
            or about.get("shard") != number
            or index.size != size
        ):
            return None
        bad = tuple(Bad(*map(str, entry)) for entry in about.get("bad", ()))
        return Shard(number, path, len(index), size, kept=True, bad=bad)

    # ---- preparing ----------------------------------------------------------------------------------------------------------

    def _chunks(self, samples: Ints) -> Iterator[Ints]:
        ends = np.cumsum(self.sizes[samples])
        at = 0
        while at < len(samples):
            before = int(ends[at - 1]) if at else 0
            stop = min(max(at + 1, int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))), at + _CHUNK_SAMPLES)
            yield samples[at:stop]
            at = stop

    def _encode(self, indices: Ints) -> list[Any]:
        """Some samples as their writer takes them, each as (encoded, bytes read), or Bad."""
        return [
            row if isinstance(row, Bad) else (self._encoded(row[0], int(index)), row[1])
            for row, index in zip(self._sample_rows(indices), indices.tolist())
        ]

    def _encoded(self, sample: Any, number: int) -> Any:
        return TarWriter.encode(sample, number) if self.options.format == "tar" else self._records_encoder.encode(sample, number)

    def _sample_rows(self, indices: Ints) -> list[Any]:
        """Some samples as mappings, each with the bytes read for it, or Bad."""
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = Scratch()
        try:
            rows = self.source.read(indices, self._wanted, {}, scratch)
            return [self._row(int(index), rows.errors.get(row), rows.columns, row) for row, index in enumerate(indices.tolist())]
        finally:
            self._free.append(scratch)

    def _row(self, index: int, error: Exception | None, columns: Mapping[str, Any], row: int) -> Any:
        try:
            if error is not None:
                raise error
            values = {name: columns[name][row] for name in self._wanted}
            if self._records:
                return values[RECORD], len(values[RECORD])
            return self._sample(index, values), int(self.sizes[index])
        except ConfigError as wrong:
            raise ConfigError(f"{self.source.origin(index)}: sample {self.source.key(index)!r}: {wrong}") from wrong
        except StokerError as bad:  # of this sample alone, or of its whole shard
            return Bad(self.source.key(index), self.source.origin(index), str(bad))

    def _sample(self, index: int, values: Mapping[str, Any]) -> dict[str, Any]:
        own = own_key(values)
        sample: dict[str, Any] = {KEY: self.keys[index] if own is None else safe_key(own)}
        return sample | shape_sample(self.kept, values, self.options)

    # ---- writing ------------------------------------------------------------------------------------------------------------

    def _write_shard(self, number: int, path: str, stream: _Stream) -> Shard:
        about = {"recipe": self.recipe, "shard": number, "shards": self.shards}
        target = _Output(path, about, self.overwrite)
        writer = TarWriter(io.BytesIO()) if self.options.format == "tar" else TfrecordWriter(io.BytesIO())
        writer._target = target  # type: ignore[assignment]
        try:
            for encoded in stream:
                writer.add(encoded)
            bad = tuple(stream.bad)
            if bad and not stream.skip_bad:
                writer.abandon()
                return Shard(number, "", 0, 0, bad=bad)
            if not writer.samples:
                raise DataLossError(
                    f"{path}: all of its {counted(len(bad), 'sample')} are bad, e.g. {bad[0].key}: {bad[0].reason}"
                )
            if bad:
                about["bad"] = [[entry.key, entry.origin, entry.reason] for entry in bad]
            writer.close()
        except BaseException:
            writer.abandon()
            raise
        return Shard(number, path, writer.samples, writer.size, bad=bad)

    def _write_lmdb(self, number: int, path: str, stream: _Stream) -> Shard:
        try:
            written = write_lmdb(path, stream.whole(), overwrite=self.overwrite)
        except _Spoiled:
            return Shard(number, "", 0, 0, bad=tuple(stream.bad))
        return Shard(number, path, written.samples, written.bytes, bad=tuple(stream.bad))


def convert_stream(
    source: StreamSource,
    pattern: str,
    options: Options,
    *,
    ordered: Ordered = map,
    moved: Moved | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> tuple[Written, tuple[Bad, ...]]:
    """Write what comes in sequence, from a pipe or from packed shards: one writer, shards as they fill, nothing to resume.

    The source must give a tar's fields as bytes (`TarStream(..., decode=False)`).
    """
    if options.seed is not None:
        raise ConfigError(
            "--shuffle needs samples that can be read at random, and these come in sequence; pack them first, then shuffle"
        )
    moved = moved or Moved()
    naming = _StreamNaming(options)
    stream = _Stream(ordered(naming.rows, _gathered(source)), moved, skip_bad)
    try:
        if options.format == "lmdb":
            written = write_lmdb(pattern, stream.whole(), overwrite=overwrite)
        elif options.format == "tfrecord":
            written = write_tfrecord(
                pattern, stream.whole(), options.max_bytes, options.max_samples, overwrite, key=KEY if options.keys else None
            )
        else:
            written = write_tar(pattern, stream.whole(), options.max_bytes, options.max_samples, overwrite)
    except _Spoiled:
        return Written((), 0, 0), tuple(stream.bad)
    return written, tuple(stream.bad)


class _StreamNaming:
    """Names fields by what the first sample has, as a tar in sequence is checked to have."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._kept: tuple[Kept, ...] = ()

    def rows(self, samples: list[Mapping[str, Any]]) -> list[Any]:
        return [self._row(sample) for sample in samples]

    def _row(self, sample: Mapping[str, Any]) -> Any:
        key = bytes(sample[KEY])
        if not self._kept:
            fields = dict.fromkeys((name for name in sample if name != KEY), BYTES)
            self._kept = choose_fields(fields, {}, self._options.format, raw=True, chosen=self._options.fields)
        try:
            made = {KEY: safe_key(key)} | shape_sample(self._kept, sample, self._options)
        except SampleError as error:
            return Bad(printable(key), printable(key), str(error))
        return made, sum(map(len, sample.values()))


def shape_sample(kept: Sequence[Kept], values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """The fields of a sample as they are written; those it has not are left out."""
    made: dict[str, Any] = {}
    for field_ in kept:
        value = values[field_.source]
        if value is None:
            continue
        if options.resize_max is not None and isinstance(value, bytes):
            value = shrink(value, options.resize_max, options.quality)
        name = field_.target
        if field_.picture and (kind := picture_kind(value)):
            name = f"{name.rpartition('.')[0]}.{kind}".lstrip(".")
        made[name] = field_.convert(value)
    return made


def split(sizes: Ints, most: int | None, count: int | None) -> Ints:
    """Where shards begin, and the end: as many samples in each as fit, but one at least.

    >>> split(np.array([4, 4, 4, 9, 1]), 8, None).tolist(), split(np.ones(5, np.int64), None, 2).tolist()
    ([0, 2, 3, 4, 5], [0, 2, 4, 5])
    """
    bounds, ends = [0], np.cumsum(sizes)
    while bounds[-1] < len(sizes):
        at = bounds[-1]
        stop = len(sizes) if most is None else int(np.searchsorted(ends, (int(ends[at - 1]) if at else 0) + most, side="right"))
        bounds.append(max(at + 1, stop if count is None else min(stop, at + count)))
    return np.array(bounds, np.int64)


def shuffled(count: int, seed: int) -> Ints:
    """All numbers below `count` in an order that depends on the seed alone."""
    key = int.from_bytes(hashlib.blake2b(b"pack %d" % seed, digest_size=8).digest(), "little")
    return native.permute(count, key, np.arange(count, dtype=np.int64))


def stored_sizes(source: Source, each: Ordered = map) -> tuple[Ints, str]:
    """Bytes each sample takes where it is stored, and a text that changes when a stored file does; nothing of them is read."""
    if isinstance(source, LabelledFiles):
        blocks = [range(at, min(at + _BLOCK_NAMES, len(source))) for at in range(0, len(source), _BLOCK_NAMES)]
        told = np.concatenate(list(each(lambda block: _asked(source, block), blocks)))
        return np.ascontiguousarray(told[:, 0]), digest("files", told.tobytes())
    if isinstance(source, RecordSource):
        return np.maximum(_lengths(source), 0).sum(axis=1), ""
    each_bytes = sum(spec.nbytes for spec in source.fields.values())
    return np.full(len(source), each_bytes, np.int64), ""


def _asked(source: LabelledFiles, block: range) -> Ints:
    """Size and time of change of some files; of one that is not there, nothing: reading it will say so."""
    told = np.zeros((len(block), 2), np.int64)
    for row, index in enumerate(block):
        with contextlib.suppress(OSError):
            about = os.stat(source._paths.path(index))
            told[row] = about.st_size, about.st_mtime_ns
    return told


def _lengths(source: RecordSource) -> Ints:
    """The length of every field of every record; -1: there is none."""
    lengths = np.full((len(source), len(source.stored)), -1, np.int64)
    first = 0
    for index in source.indexes:
        if len(index):
            lengths[first : first + len(index), [source.stored.index(name) for name in index.fields]] = index.length
        first += len(index)
    return lengths


def _as_stored(source: Source, options: Options) -> Source:
    """The source such that what need not change is not taken apart: a tar's fields as bytes, records whole where they stay so."""
    if isinstance(source, TarSource):
        return TarSource(source.blobs, source.indexes, dict.fromkeys(source.stored), decode=False)
    if isinstance(source, TfrecordSource) and options.format == "tfrecord" and not options.resize_max and not options.fields:
        return TfrecordSource(source.blobs, source.indexes, "raw")
    return source


def _look(source: Source) -> dict[str, list[Any]]:
    """Values of some samples from all over the source."""
    indices = np.unique(np.linspace(0, len(source) - 1, min(_LOOKED, len(source))).astype(np.int64))
    if isinstance(source, TarSource):
        return {}  # extensions say what fields are
    rows = source.read(indices, tuple(source.fields), {}, Scratch())
    good = [row for row in range(len(indices)) if row not in rows.errors]
    return {name: [column[row] for row in good] for name, column in rows.columns.items()}


def _gathered(source: StreamSource) -> Iterator[list[Mapping[str, Any]]]:
    """Samples in chunks of some megabytes."""
    chunk: list[Mapping[str, Any]] = []
    held = 0
    for sample in source.open():
        chunk.append(sample)
        held += sum(map(len, sample.values()))
        if held >= _CHUNK_BYTES or len(chunk) >= _CHUNK_SAMPLES:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


class _Spoiled(Exception):
    """Samples were bad, and none may be: what was written of the database is given up."""


class _Stream:
    """Good samples of prepared chunks, in order; the bad ones are gathered. After the first bad one nothing is given, unless skipped."""

    def __init__(self, chunks: Iterable[list[Any]], moved: Moved, skip_bad: bool) -> None:
        self._chunks, self._moved, self.skip_bad = chunks, moved, skip_bad
        self.bad: list[Bad] = []

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._chunks:
            if self._moved.stopped():
                raise Stopped
            done = 0
            for row in chunk:
                if isinstance(row, Bad):
                    self.bad.append(row)
                    continue
                done += row[1]
                if self.skip_bad or not self.bad:
                    yield row[0]
            self._moved.add(len(chunk), done)

    def whole(self) -> Iterator[Any]:
        """The same; but when some were bad, and none may be, it does not just end."""
        yield from self
        if self.bad and not self.skip_bad:
            raise _Spoiled


class _Output:
    """Where a shard's bytes go: its index appears first and says how the shard was made, then the shard.

    So a shard that is there has an index; killed in between, there is an index without a shard, which the next try replaces.
    """

    def __init__(self, path: str, about: dict[str, Any], overwrite: bool) -> None:
        self._file = AtomicFile(path, overwrite=overwrite)
        self.told, self._about, self._overwrite = self._file.told, about, overwrite
        try:
            _is_index(self._beside)
        except BaseException:
            self._file.abandon()
            raise

    @property
    def _beside(self) -> bytes:
        return self._file.path + SUFFIX.encode()

    def write(self, data: Bytes) -> None:
        self._file.write(data)

    def close(self, make_index: MakeIndex) -> None:
        """Make index and shard appear, or neither."""
        about = self._file.finish()
        index = make_index(about.st_size, about.st_mtime_ns)
        with contextlib.ExitStack() as undo:
            undo.callback(self._file.abandon)
            beside = AtomicFile(self._beside, overwrite=True, clean=False)
            undo.callback(beside.abandon)
            beside.write(replace(index, about={**index.about, "pack": self._about}).to_bytes())
            if self._overwrite:  # first: the new index must never lie beside the old shard
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._file.path)
                sync_folder(os.path.dirname(self._file.path))
            beside.publish()
            self._file.publish()

    def abandon(self) -> None:
        self._file.abandon()


def _several(name: str, shards: int) -> ConfigError:
    stem, dot, ending = name.rpartition(".")
    numbered = f"{stem}-{{:06d}}.{ending}" if dot and "/" not in ending else f"{name}-{{:06d}}"
    return ConfigError(f"{name}: {shards:,} shards are needed; name them {numbered!r}, or raise --max-bytes or --max-samples")


def _told(paths: list[str]) -> str:
    first = printable(os.fsencode(paths[0]))
    return f"{first} is" if len(paths) == 1 else f"{first} and {len(paths) - 1:,} more like it are"


def _pillow_version() -> str:
    import PIL

    return str(PIL.__version__)
