"""Any source into shards: the work of `stoker pack`, without its output.

Which sample goes into which shard is settled before anything is written. So a shard is a pure function of source, options and
its number: shards can be written in any order, in parallel, and again after a crash, with the same bytes. The index of a shard
says how it was made; a shard whose index says the same is complete, and is kept.

There are no threads here. What may run in parallel goes through `each`, which the caller passes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ...errors import ConfigError, DataLossError, SampleError, StokerError, WriteError
from ...sizes import counted
from ...source.chunk import BYTES, Ints
from ...source.sample_names import KEY, key_text
from ...source.shards.tar_source import TarSource
from ...source.shards.tfrecord_source import RECORD, TfrecordSource
from ...source.source import Source, digest
from ...source.streams.stream import StreamSource
from ...source.streams.tfrecord_stream import TfrecordStream
from ...storage.fetch import Each
from ...storage.local import LocalBlob
from ...storage.scratch import Scratch
from ..values.field_choice import FieldChoice, choose_fields, own_key, picture_kinds, spec_of
from ..values.jpegs import SeekMaker
from ..values.stored_images import picture_kind, shrink
from ..writers import WRITERS
from ..writers.keys import UniqueKeys, key_reader, safe_key
from ..writers.lmdb_writer import write_lmdb
from ..writers.shard_writer import Pattern, WrittenShards, numbered, told_paths
from ..writers.tar_writer import BLOCK, TarWriter
from ..writers.tar_writer import RECORD as TAR_RECORD
from ..writers.tfrecord_writer import RecordEncoder, TfrecordWriter
from .notes import noted
from .planning import CHUNK_BYTES, CHUNK_SAMPLES, Moved, Options, field_lengths, gathered, shuffled, split, stored_sizes, unheard
from .rawtar import is_absent, raw_tar
from .spares import Spares

#: what the recipe in an index means; another number makes all shards again
VERSION = 1
#: the entry of an index's `about` that says how a shard was made
NOTE = "pack"
#: class names go into the index too, unless they are longer than this altogether
_CLASSES_BYTES = 100_000
#: samples looked at to find out what fields hold
_LOOKED = 32
#: bytes of a TFRecord around a record and around a feature, at most
_AROUND = 32


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that could not be read, decoded or made smaller."""

    key: str
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """What became of a shard: written now, or kept from before. Without a `path`, bad samples kept it from being written."""

    number: int
    path: str
    samples: int
    bytes: int
    kept: bool = False
    bad: tuple[BadSample, ...] = ()


class Conversion:
    """Samples of a source on their way into shards.

    Making one looks at all keys and sizes, and reads a few samples to learn what the fields hold; nothing is written. `looking`
    hears how many samples were looked at.

    >>> import tempfile, numpy as np
    >>> from stoker.source.arrays import ArraysSource
    >>> numbers = Conversion(ArraysSource({"n": np.arange(5)}), tempfile.mkdtemp() + "/{:02d}.tar", Options(max_samples=2))
    >>> [numbers.write(shard).samples for shard in range(numbers.shards)]
    [2, 2, 1]
    """

    def __init__(
        self,
        source: Source,
        pattern: str,
        options: Options,
        *,
        each: Each = map,
        overwrite: bool = False,
        looking: Callable[[int], None] = lambda done: None,
    ) -> None:
        self.source, self.names, self.options, self.overwrite = _as_stored(source, options), Pattern(pattern), options, overwrite
        named = source.classes and len(json.dumps(source.classes)) <= _CLASSES_BYTES
        self._classes = {"classes": list(source.classes)} if named else {}
        self._raw = isinstance(self.source, TarSource)
        looked = {} if self._raw else _look(self.source)
        self.kept = choose_fields(
            self.source.fields, looked, options.format, raw=self._raw, chosen=options.fields, by_content=options.by_content
        )
        #: formats of pictures among the samples looked at, by the name they are written under
        self.pictures = {kept.target: picture_kinds(looked.get(kept.source, ())) for kept in self.kept}
        own = [KEY] if KEY in self.source.fields else []
        self._wanted = tuple(dict.fromkeys([kept.source for kept in self.kept] + own))
        self.keys = UniqueKeys(len(source), key_reader(self.source), looking)
        self.sizes, versions = stored_sizes(self.source, each)
        self._order = None if options.seed is None else shuffled(len(source), options.seed)
        self._bounds = self._split()
        self.recipe = digest(
            "pack", VERSION, self.source.fingerprint(), versions, options.identity(),
            *(f"{kept.source}>{kept.target}" for kept in self.kept), self._bounds.tobytes(),
        )  # fmt: skip
        self._whole_records = RECORD in self.source.fields and options.format == "tfrecord"
        key = KEY if options.keys and not self._whole_records else None
        self._examples = RecordEncoder(key=key, seek=options.seek)
        self._seeks = SeekMaker() if options.seek else None
        self._spares = Spares()

    @property
    def shards(self) -> int:
        """How many there will be."""
        return len(self._bounds) - 1

    def samples(self, shard: int) -> Ints:
        """The samples of a shard, by their index in the source."""
        first, stop = int(self._bounds[shard]), int(self._bounds[shard + 1])
        return np.arange(first, stop, dtype=np.int64) if self._order is None else self._order[first:stop]

    def standing(self) -> dict[int, ShardOutcome]:
        """The shards that are there already, made by the same recipe; anything else in the way raises WriteError.

        Nothing is read of them but their index: a shard appears whole or not at all.
        """
        inputs = {os.path.realpath(blob.path) for blob in getattr(self.source, "blobs", ()) if isinstance(blob, LocalBlob)}
        found: dict[int, ShardOutcome] = {}
        strangers: list[str] = []
        for number in range(self.shards):
            path = self.names.name(number)
            if os.path.realpath(os.fsencode(path)) in inputs:
                raise ConfigError(f"{path}: would be read and written at the same time; use another name for the shards")
            if not os.path.lexists(path):
                continue
            shard = self._found(number, path)
            if shard is not None:
                found[number] = shard
            elif not self.overwrite:
                strangers.append(path)
        if strangers:
            raise WriteError(
                f"{told_paths(strangers)} already there, but made differently (from other data, with other options, or not by "
                "`stoker pack`); use another name, or --overwrite"
            )
        if more := self.names.existing(self.shards):
            raise WriteError(
                f"{told_paths(more)} already there, and would be read with the {counted(self.shards, 'shard')} of this run; use "
                "another name, or delete what you do not want"
            )
        return found

    def write(self, number: int, *, each: Each = map, moved: Moved = unheard, skip_bad: bool = False) -> ShardOutcome:
        """Make a shard appear, whole.

        Unless `skip_bad`, a bad sample keeps its shard from being written; the rest of the shard is still read, to find them all.
        """
        chunks = list(self._chunks(self.samples(number)))
        prepared = each(self._rows if self.options.format == "lmdb" else self._encoded_rows, chunks)
        try:
            stream = _Stream(prepared, moved, skip_bad)
            write = self._write_lmdb if self.options.format == "lmdb" else self._write_shard
            return write(number, self.names.name(number), stream)
        finally:
            if hasattr(prepared, "close"):
                prepared.close()

    # ---- planning -----------------------------------------------------------------------------------------------------------

    def _split(self) -> Ints:
        if self.options.format == "lmdb":
            return np.array([0, len(self.source)], np.int64)  # a database is one file
        sizes, most = self._planned(), self.options.max_bytes
        if most is not None and self.options.format == "tar":
            most = max(1, most // TAR_RECORD * TAR_RECORD - 2 * BLOCK)  # what is left besides its end
        bounds = split(sizes if self._order is None else sizes[self._order], most, self.options.max_samples)
        if self.names.single and len(bounds) > 2:
            name = self.names.text
            raise ConfigError(
                f"{name}: {len(bounds) - 1:,} shards are needed; name them {numbered(name)!r}, "
                "or raise --max-bytes or --max-samples"
            )
        return bounds

    def _planned(self) -> Ints:
        """Bytes each sample will take: at most, where values are stored as they are; about, where they are encoded again."""
        count, longest = len(self.kept), max(len(kept.target) for kept in self.kept)
        if self.options.format == "tfrecord":
            names = sum(len(kept.target) for kept in self.kept)
            return self.sizes + self.keys.lengths + names + _AROUND * (count + 2)
        if isinstance(self.source, TarSource):
            lengths = field_lengths(self.source)[:, [self.source.stored.index(kept.source) for kept in self.kept]]
            sizes: Ints = np.where(lengths < 0, 0, BLOCK + _padded(lengths)).sum(axis=1)
        else:
            sizes = BLOCK + _padded(self.sizes) + 2 * BLOCK * (count - 1)
        named = self.keys.lengths + longest + len(".jpeg")
        extended = (named > 100) | ~self.keys.plain  # such names need headers of their own
        return sizes + np.where(extended, count * (3 * BLOCK + named), 0)

    def _found(self, number: int, path: str) -> ShardOutcome | None:
        """A shard of this very recipe; None: it is something else."""
        told = noted(path, NOTE)
        if told is None or told[0].get("recipe") != self.recipe or told[0].get("shard") != number:
            return None
        note, index = told
        bad = tuple(BadSample(*map(str, entry)) for entry in note.get("bad", ()))
        return ShardOutcome(number, path, len(index), index.size, kept=True, bad=bad)

    # ---- preparing ----------------------------------------------------------------------------------------------------------

    def _chunks(self, samples: Ints) -> Iterator[Ints]:
        ends = np.cumsum(self.sizes[samples])
        at = 0
        while at < len(samples):
            before = int(ends[at - 1]) if at else 0
            stop = min(max(at + 1, int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))), at + CHUNK_SAMPLES)
            yield samples[at:stop]
            at = stop

    def _encoded_rows(self, indices: Ints) -> list[Any]:
        """Some samples as their writer takes them, each with the bytes read for it; or BadSample."""
        rows = zip(indices.tolist(), self._rows(indices))
        return [row if isinstance(row, BadSample) else (self._encoded(row[0], index), row[1]) for index, row in rows]

    def _encoded(self, sample: Any, index: int) -> Any:
        if self.options.format == "tar":
            return TarWriter.encode(sample, index, self._seeks)
        return self._examples.encode(sample, index)

    def _rows(self, indices: Ints) -> list[Any]:
        """Some samples as mappings, each with the bytes read for it; or BadSample."""
        try:
            with self._spares.one() as scratch:
                rows = self.source.read(indices, self._wanted, {}, scratch)
                return [self._row(index, rows.errors.get(row), rows.columns, row) for row, index in enumerate(indices.tolist())]
        except MemoryError:
            if len(indices) > 1:  # perhaps for one of them only
                return [row for at in range(len(indices)) for row in self._rows(indices[at : at + 1])]
            index = int(indices[0])
            return [BadSample(self.source.key(index), self.source.origin(index), "there is not enough memory to read it")]

    def _row(self, index: int, error: Exception | None, columns: Mapping[str, Any], row: int) -> Any:
        try:
            if error is not None:
                raise error
            values = {name: columns[name][row] for name in self._wanted}
            return (values[RECORD] if self._whole_records else self._sample(index, values)), int(self.sizes[index])
        except ConfigError as wrong:
            raise ConfigError(f"{self.source.origin(index)}: sample {self.source.key(index)!r}: {wrong}") from wrong
        except StokerError as bad:  # of this sample alone, or of the whole shard it is in
            return BadSample(self.source.key(index), self.source.origin(index), str(bad))

    def _sample(self, index: int, values: Mapping[str, Any]) -> dict[str, Any]:
        own = own_key(values)
        return {KEY: self.keys[index] if own is None else safe_key(own), **shape_sample(self.kept, values, self.options)}

    # ---- writing ------------------------------------------------------------------------------------------------------------

    def _write_shard(self, number: int, path: str, stream: _Stream) -> ShardOutcome:
        note: dict[str, Any] = {"recipe": self.recipe, "shard": number, "shards": self.shards}
        about = {NOTE: note, **self._classes}
        open_writer: Any = TarWriter if self.options.format == "tar" else TfrecordWriter
        writer = open_writer(path, overwrite=self.overwrite, about=about, seek=self.options.seek)
        try:
            for encoded in stream:
                writer.add(encoded)
            bad = tuple(stream.bad)
            if bad and not stream.skip_bad:
                writer.abandon()
                return ShardOutcome(number, "", 0, 0, bad=bad)
            if not writer.samples:
                raise DataLossError(f"{path}: every sample for it is bad, e.g. {bad[0].key}: {bad[0].reason}")
            if bad:
                note["bad"] = [[entry.key, entry.origin, entry.reason] for entry in bad]
            writer.close()
        except BaseException:
            writer.abandon()
            raise
        return ShardOutcome(number, path, writer.samples, writer.size, bad=bad)

    def _write_lmdb(self, number: int, path: str, stream: _Stream) -> ShardOutcome:
        try:
            written = write_lmdb(path, stream.whole(), overwrite=self.overwrite)
        except _Spoiled:
            return ShardOutcome(number, "", 0, 0, bad=tuple(stream.bad))
        return ShardOutcome(number, path, written.samples, written.bytes, bad=tuple(stream.bad))


def convert_stream(
    source: StreamSource,
    pattern: str,
    options: Options,
    *,
    each: Each = map,
    moved: Moved = unheard,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> tuple[WrittenShards, tuple[BadSample, ...]]:
    """Write what comes in sequence, from a pipe or from packed shards: one writer, shards as they fill, nothing to resume.

    A tar's fields come as bytes (`TarStream(..., decode=False)`), those of compressed TFRecords as their values. When a sample is
    bad, and none may be, shards that were full before it stay, and what is returned says that nothing was written.
    """
    if options.seed is not None:
        raise ConfigError(
            "--shuffle needs samples that can be read at random, but these are read in sequence; pack them, then pack the "
            "result with --shuffle"
        )
    opened = source.whole() if isinstance(source, TfrecordStream) and _stay_whole(options) else source
    chunks = gathered(opened.open(), _size)
    first = next(chunks)
    rows = _StreamRows(options, first, raw=not isinstance(source, TfrecordStream))
    stream = _Stream(each(rows.rows, chain([first], chunks)), moved, skip_bad)
    wishes: dict[str, Any] = {"key": KEY if options.keys else None} if options.format == "tfrecord" else {}
    if options.format != "lmdb":
        wishes |= {"max_bytes": options.max_bytes, "max_samples": options.max_samples, "seek": options.seek}
    try:
        write = WRITERS.get(options.format, f"--format {options.format}")
        written: WrittenShards = write(pattern, stream.whole(), overwrite=overwrite, **wishes)
    except _Spoiled:
        written = WrittenShards((), 0, 0)
    return written, tuple(stream.bad)


def shape_sample(kept: Sequence[FieldChoice], values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """The fields of a sample as they are written; missing ones are omitted."""
    made: dict[str, Any] = {}
    for field in kept:
        value = values[field.source]
        if is_absent(value):
            continue
        if options.resize_max is not None and isinstance(value, bytes):
            value = shrink(value, options.resize_max, options.quality)
        name = field.target
        if field.by_content and (kind := picture_kind(value)):
            name = f"{name.rpartition('.')[0]}.{kind}".lstrip(".")
        made[name] = field.convert(value)
    return made


class _StreamRows:
    """Shapes samples that come in sequence; fields are named by the `first` ones, and all have to have these."""

    def __init__(self, options: Options, first: Sequence[Mapping[str, Any]], raw: bool) -> None:
        self._options = options
        fields = {name: BYTES if raw else spec_of(value) for name, value in first[0].items() if name != KEY}
        looked = {} if raw else {name: [sample[name] for sample in first[:_LOOKED]] for name in fields}
        self._kept = choose_fields(fields, looked, options.format, raw=raw, chosen=options.fields, by_content=options.by_content)
        self._whole_records = not raw and _stay_whole(options)

    def rows(self, samples: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [self._row(sample) for sample in samples]

    def _row(self, sample: Mapping[str, Any]) -> Any:
        if self._whole_records:
            return sample[RECORD], _size(sample)
        key = sample[KEY]
        own = {KEY: safe_key(key)} if isinstance(key, bytes) else {}  # a number of the writer's, where it has none of its own
        try:
            return {**own, **shape_sample(self._kept, sample, self._options)}, _size(sample)
        except SampleError as error:
            told = key_text(key)
            return BadSample(told, told, str(error))


def _as_stored(source: Source, options: Options) -> Source:
    """The source such that what need not change is not taken apart: a tar's fields as bytes, records whole where they stay so."""
    if isinstance(source, TarSource):
        return raw_tar(source.blobs, source.indexes)
    if isinstance(source, TfrecordSource) and _stay_whole(options):
        return TfrecordSource(source.blobs, source.indexes, "raw")
    return source


def _stay_whole(options: Options) -> bool:
    """Whether the records of a TFRecord file are written as they are."""
    return options.format == "tfrecord" and not options.resize_max and not options.fields


def _look(source: Source) -> dict[str, list[Any]]:
    """Values of some samples from all over the source, as far as they can be read."""
    indices = np.unique(np.linspace(0, len(source) - 1, min(_LOOKED, len(source))).astype(np.int64))
    rows = source.read(indices, tuple(source.fields), {}, Scratch())
    good = [row for row in range(len(indices)) if row not in rows.errors]
    return {name: [column[row] for row in good] for name, column in rows.columns.items()}


def _size(sample: Mapping[str, Any]) -> int:
    return sum(value.nbytes if isinstance(value, (np.ndarray, np.generic)) else len(value) for value in sample.values())


class _Spoiled(Exception):
    """Samples were bad, and none may be: what was written is given up."""


class _Stream:
    """The good samples of prepared chunks, in order; bad ones are gathered. Behind a bad one none comes, unless it is skipped."""

    def __init__(self, chunks: Iterable[list[Any]], moved: Moved, skip_bad: bool) -> None:
        self._chunks, self._moved, self.skip_bad = chunks, moved, skip_bad
        self.bad: list[BadSample] = []

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._chunks:
            done = 0
            for row in chunk:
                if isinstance(row, BadSample):
                    self.bad.append(row)
                    continue
                done += row[1]
                if self.skip_bad or not self.bad:
                    yield row[0]
            self._moved(len(chunk), done)

    def whole(self) -> Iterator[Any]:
        """The same; but when some were bad, and none may be, it does not just end."""
        yield from self
        if self.bad and not self.skip_bad:
            raise _Spoiled


def _padded(lengths: Ints) -> Ints:
    """Lengths rounded up to whole blocks."""
    return lengths + -lengths % BLOCK
