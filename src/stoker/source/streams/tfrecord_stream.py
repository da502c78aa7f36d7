"""TFRecord files read from the first byte to the last: compressed ones, and plain ones read together with them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptShard, RecordError
from ...kernel.example_columns import ExampleStats
from ...kernel.records import scan_tfrecord
from ...sizes import counted, show_bytes
from ...storage.blob import Blob
from ..chunk import OBJECT, Ints
from ..paths import unprintable
from ..sample_names import KEY
from ..shards.examples import ExampleColumns, Extraction
from ..shards.feature import Feature, about_examples, found_features, read_features
from ..shards.tfrecord_source import RECORD
from ..sniff import BEGIN, seen_as
from . import unpack
from .sequential import ShardStream, StoredSample
from .unpack import Piece, check_unpacker, unpacked

#: bytes held at first, for whole records; more where one is larger
_HELD = 1 << 21
#: of a record in a plain file; protocol buffers end there too
MAX_RECORD = 1 << 31


class TfrecordStream(ShardStream):
    """TFRecord files in sequence, both checksums of every record checked.

    `packings` says what each is compressed with; None: it is plain. `features` is as for `TfrecordSource`; without it, they are
    what the first records hold, which are read for that: one whose number of values differs among them is a list in batches.
    """

    verb = "tfrecord"

    def __init__(self, blobs: Sequence[Blob], packings: Sequence[str | None], interleave: int = 1, features: Any = None) -> None:
        super().__init__(blobs, interleave)
        for blob, packing in zip(blobs, packings):
            check_unpacker(packing, blob.url)
        self._packings = tuple(packings)
        self._raw = isinstance(features, str) and features == "raw"
        self._features = None if self._raw or features is None else read_features(features)
        self._looked, found = (0, self._features) if features is not None else _first_features(blobs, packings)
        self._parsed = found
        if found is not None:
            self.fields = {name: OBJECT if self._looked and each.shape else each.spec for name, each in found.items()}
            self._parsed = {name: _loose(each) for name, each in found.items()} if self._looked else found

    def whole(self) -> TfrecordStream:
        """The same, each sample a record as stored."""
        return TfrecordStream(self._blobs, self._packings, self._interleave, "raw")

    def _identity(self) -> tuple[bytes | str | int, ...]:
        return self._raw, repr(self._features)

    def _opened(self) -> Iterator[Iterator[StoredSample]]:
        parser = _Parser(self._parsed, self._looked)
        for blob, packing in zip(self._blobs, self._packings):
            yield _shard(blob, packing, parser)


def _shard(blob: Blob, packing: str | None, parser: _Parser) -> Iterator[StoredSample]:
    for first, data, starts, lengths in _records(blob, packing):
        for number, sample in enumerate(parser.samples(data, starts, lengths, blob.url, first), first):
            sample.setdefault(KEY, f"{blob.name}#{number}")
            yield sample


def _records(blob: Blob, packing: str | None) -> Iterator[tuple[int, NDArray[np.uint8], Ints, Ints]]:
    """The records of a file, some at a time: the number of the first, bytes, and where in them the payloads lie."""
    size = blob.stat().size
    if not size:
        raise CorruptShard(f"{blob.url}: is empty (0 bytes); fetch or make it again", shard=blob.url, offset=0)
    pieces = unpacked(blob.stream(0, unpack.PIECE), packing, blob.url)
    number, begin = 0, b""
    try:
        first = next(pieces, b"")
        begin = bytes(first[:BEGIN])
        for _, data, starts, lengths in whole_records(chain([first], pieces), size if packing is None else None):
            yield number, data, starts, lengths
            number += len(starts)
    except CorruptShard as error:
        if error.shard:
            raise
        if not number and (known := seen_as("tfrecord", begin)):
            raise CorruptShard(f"{blob.url}: {known}", shard=blob.url, offset=0) from error
        where = "" if packing is None else f" (bytes counted in what the {packing} unpacks to)"
        told = f"{blob.url}, record {number:,}: {error}{where}"
        raise CorruptShard(told, shard=blob.url, offset=error.offset) from error


def _first_features(blobs: Sequence[Blob], packings: Sequence[str | None]) -> tuple[int, dict[str, Feature] | None]:
    """How many of the first records were looked at, and the features in them; None where they are not Examples."""
    for blob, packing in zip(blobs, packings):
        for _, data, starts, lengths in _records(blob, packing):
            if len(starts):
                stats = ExampleStats()
                stats.add(data, starts, lengths)
                return len(starts), found_features([(len(starts), about_examples(stats))]) or None
    return 0, None


class _Parser:
    """Records to samples, by their features; without any, a sample is the record's bytes."""

    def __init__(self, features: dict[str, Feature] | None, looked: int) -> None:
        """`looked` is how many records said which features there are; 0: they were named."""
        self._examples = None if features is None else ExampleColumns(features, unprintable)
        self._looked, self._stats = looked, ExampleStats()

    def samples(self, data: NDArray[np.uint8], starts: Ints, lengths: Ints, told: str, first: int) -> Iterator[StoredSample]:
        """The samples of some records, which lie in `data`; `first` is the number of the first of them in its file."""
        errors: dict[int, Exception] = {}
        columns: dict[str, Any] = {}
        if self._examples is not None:
            if self._looked and len(starts):
                self._check(self._examples.features, data, starts, lengths, told, first)
            columns = self._examples.parse(starts, lengths, self._examples.features, Extraction(data, None, {}, errors))
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist())):
            origin = f"{told}, record {first + row:,}"
            if row in errors:
                raise RecordError(f"{origin}: {errors[row]}", origin=origin) from errors[row]
            if self._examples is None:
                sample = StoredSample({RECORD: data[start : start + length].tobytes()})
            else:
                sample = StoredSample((name, column[row]) for name, column in columns.items())
            sample.origin = origin
            yield sample

    def _check(self, known: Collection[str], data: NDArray[np.uint8], starts: Ints, lengths: Ints, told: str, first: int) -> None:
        """What records have beside the features that were found in the first ones would be lost, and is an error."""
        self._stats.add(data, starts, lengths)
        if len(self._stats.features) <= len(known):
            return
        odd = {entry["name"] for entry in about_examples(self._stats)["features"] if entry["kind"]} - set(known)
        if odd:
            raise RecordError(
                f"{told}: a record between {first:,} and {first + len(starts) - 1:,} has the feature {min(odd)!r}, and the first "
                f"{counted(self._looked, 'record')} did not; list the features to read: tfrecord(..., features={{...}})"
            )


def _loose(feature: Feature) -> Feature:
    """So many values in each of the first records may be another number in later ones."""
    return feature if feature.shape == () else replace(feature, shape=None)


def _check_record_size(size: int, at: int, packed: bool) -> None:
    """Raise CorruptShard where the record at byte `at` says that it is larger than any that is read."""
    most = unpack.MAX_MEMBER if packed else MAX_RECORD
    if size > most:
        raise CorruptShard(
            f"the record at byte {at:,} says it takes {size:,} bytes, and at most {show_bytes(most)} of one are read"
            f"{' from a packed file' if packed else ''}; if this is right, store it in parts",
            offset=at,
        )


def whole_records(
    pieces: Iterator[Piece], size: int | None, *, verify: bool = True
) -> Iterator[tuple[int, NDArray[np.uint8], Ints, Ints]]:
    """Pieces of a TFRecord file that end where a record does: place, bytes, and where in them the payloads lie.

    The bytes are overwritten by the next piece. What is left of one, the beginning of a record, moves to the front. `size` is
    that of the file, where it is known: a record that says it is longer is then found out at once. Memory grows with what comes,
    never with what a record says of itself; and of one that says it is larger than is read, nothing is held. Records before a bad
    place are given before it raises. Without `verify` the checksums of payloads are left to the caller.
    """
    buffer = np.empty(2 * _HELD, np.uint8)
    base, held, need = 0, 0, 0
    for piece in pieces:
        if held + len(piece) > buffer.size:
            buffer = _grown(buffer, held, held + len(piece), base)
        buffer[held : held + len(piece)] = np.frombuffer(piece, np.uint8)
        held += len(piece)
        if held < need:
            continue
        data = buffer[:held]
        try:
            starts, lengths, used, need = scan_tfrecord(data, base, verify=verify)
        except CorruptShard as error:
            good = max(0, (error.offset or 0) - base)
            yield base, data, *scan_tfrecord(data[:good], base, verify=verify)[:2]
            raise
        yield base, data, starts, lengths
        if size is not None and need > size - base - used:
            raise CorruptShard(
                f"the record at byte {base + used:,} says it takes {need:,} bytes, and the file has {size - base - used:,} more: "
                "it is cut or damaged; fetch or make it again",
                offset=base + used,
            )
        _check_record_size(need, base + used, packed=size is None)
        buffer[: held - used] = buffer[used:held].copy()
        base, held = base + used, held - used
    if held:
        raise CorruptShard(f"the file ends within the record at byte {base:,}; fetch or make it again", offset=base)


def _grown(buffer: NDArray[np.uint8], held: int, needed: int, base: int) -> NDArray[np.uint8]:
    try:
        return np.concatenate([buffer[:held], np.empty(max(2 * buffer.size, needed) - held, np.uint8)])
    except MemoryError as error:
        raise CorruptShard(
            f"there is not enough memory for the record at byte {base:,}, which has more than {held:,} bytes; write smaller ones",
            offset=base,
        ) from error
