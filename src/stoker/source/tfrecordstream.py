"""TFRecord files read from the first byte to the last: compressed ones, and plain ones read together with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptShard, RecordError
from ..kernel.records import ExampleStats, scan_tfrecord
from ..storage.blob import Blob
from . import unpack
from .chunk import Ints
from .examples import ExampleColumns
from .feature import Feature, about_examples, found_features, read_features
from .paths import unprintable
from .sample_names import KEY
from .sequential import ShardStream, StoredSample
from .sniff import BEGIN, seen_as
from .tfrecord import RECORD
from .unpack import Piece, check_unpacker, unpacked

#: bytes held at first, for whole records; more where one is larger
_HELD = 1 << 21


class TfrecordStream(ShardStream):
    """TFRecord files in sequence, both checksums of every record checked.

    `packings` says what each is compressed with; None: it is plain. `features` is as for `TfrecordSource`; without it, they are
    what the first records hold.
    """

    verb = "tfrecord"

    def __init__(self, blobs: Sequence[Blob], packings: Sequence[str | None], interleave: int = 1, features: Any = None) -> None:
        super().__init__(blobs, interleave)
        for blob, packing in zip(blobs, packings):
            check_unpacker(packing, blob.url)
        self._packings = tuple(packings)
        self._raw = isinstance(features, str) and features == "raw"
        self._features = None if self._raw or features is None else read_features(features)

    def whole(self) -> TfrecordStream:
        """The same, each sample a record as it is stored."""
        return TfrecordStream(self._blobs, self._packings, self._interleave, "raw")

    def _identity(self) -> tuple[bytes | str | int, ...]:
        return self._raw, repr(self._features)

    def _opened(self) -> Iterator[Iterator[StoredSample]]:
        parser = _Parser(self._features, self._raw)
        for blob, packing in zip(self._blobs, self._packings):
            yield _shard(blob, packing, parser)


def _shard(blob: Blob, packing: str | None, parser: _Parser) -> Iterator[StoredSample]:
    size = blob.stat().size
    if not size:
        raise CorruptShard(f"{blob.url}: is empty (0 bytes); fetch or make it again", shard=blob.url, offset=0)
    pieces = unpacked(blob.stream(0, unpack.PIECE), packing, blob.url)
    number, begin = 0, b""
    try:
        first = next(pieces, b"")
        begin = bytes(first[:BEGIN])
        for _, data, starts, lengths in whole_records(chain([first], pieces), size if packing is None else None):
            for sample in parser.samples(data, starts, lengths, blob.url, number):
                sample.setdefault(KEY, f"{blob.name}#{number}")
                yield sample
                number += 1
    except CorruptShard as error:
        if error.shard:
            raise
        if not number and (known := seen_as("tfrecord", begin)):
            raise CorruptShard(f"{blob.url}: {known}", shard=blob.url, offset=0) from error
        where = "" if packing is None else f" (bytes counted in what the {packing} unpacks to)"
        told = f"{blob.url}, record {number:,}: {error}{where}"
        raise CorruptShard(told, shard=blob.url, offset=error.offset) from error


class _Parser:
    """Records to samples: by features that were named, or by those of the first records."""

    def __init__(self, features: dict[str, Feature] | None, raw: bool) -> None:
        self._examples = None if features is None else ExampleColumns(features, unprintable)
        self._raw = raw
        #: the features seen, where nobody named them
        self._stats = ExampleStats() if features is None and not raw else None
        self._looked = 0  # records that told which features there are

    def samples(self, data: NDArray[np.uint8], starts: Ints, lengths: Ints, told: str, first: int) -> Iterator[StoredSample]:
        """The samples of some records, which lie in `data`; `first` is the number of the first of them in its file."""
        if self._stats is not None and len(starts):
            self._learn(self._stats, data, starts, lengths, told, first)
        errors: dict[int, Exception] = {}
        columns: dict[str, Any] = {}
        if self._examples is not None:
            columns = self._examples.parse(data, starts, lengths, None, self._examples.features, {}, errors)
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

    def _learn(self, stats: ExampleStats, data: NDArray[np.uint8], starts: Ints, lengths: Ints, told: str, first: int) -> None:
        """The first records say which features there are; what later ones have beside those would be lost, and is an error."""
        if self._raw:
            return
        stats.add(data, starts, lengths)
        if self._examples is None:
            found = found_features([(len(starts), about_examples(stats))])
            self._looked, self._raw = len(starts), not found
            self._examples = ExampleColumns({name: _loose(each) for name, each in found.items()}, unprintable) if found else None
        elif len(stats.features) > len(self._examples.features):
            odd = {entry["name"] for entry in about_examples(stats)["features"]} - self._examples.features.keys()
            raise RecordError(
                f"{told}: a record between {first:,} and {first + len(starts) - 1:,} has the feature {min(odd)!r}, and the first "
                f"{self._looked:,} records have not; name what to read: tfrecord(..., features={{...}})"
            )


def _loose(feature: Feature) -> Feature:
    """So many values in each of the first records may be another number in later ones."""
    return feature if feature.shape == () else replace(feature, shape=None)


def whole_records(pieces: Iterator[Piece], size: int | None) -> Iterator[tuple[int, NDArray[np.uint8], Ints, Ints]]:
    """Pieces of a TFRecord file that end where a record does: place, bytes, and where in them the payloads lie.

    The bytes are overwritten by the next piece. What is left of one, the beginning of a record, moves to the front. `size` is
    that of the file, where it is known: a record that says it is longer is then found out at once. Memory grows with what comes,
    never with what a record says of itself.
    """
    buffer = np.empty(2 * _HELD, np.uint8)
    base, held, need = 0, 0, 0
    for piece in pieces:
        if held + len(piece) > buffer.size:
            buffer = np.concatenate([buffer[:held], np.empty(max(2 * buffer.size, held + len(piece)) - held, np.uint8)])
        buffer[held : held + len(piece)] = np.frombuffer(piece, np.uint8)
        held += len(piece)
        if held < need:
            continue
        data = buffer[:held]
        try:
            starts, lengths, used, need = scan_tfrecord(data, base)
        except CorruptShard as error:
            good = max(0, (error.offset or 0) - base)
            yield base, data, *scan_tfrecord(data[:good], base)[:2]  # so that the records before it can be counted
            raise
        if size is not None and need > size - base - used:
            raise CorruptShard(
                f"the record at byte {base + used:,} says it takes {need:,} bytes, and the file has {size - base - used:,} more: "
                "it is cut or damaged; fetch or make it again",
                offset=base + used,
            )
        yield base, data, starts, lengths
        buffer[: held - used] = buffer[used:held].copy()
        base, held = base + used, held - used
    if held:
        raise CorruptShard(f"the file ends within the record at byte {base:,}; fetch or make it again", offset=base)
