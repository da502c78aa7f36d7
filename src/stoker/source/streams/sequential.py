"""Shards without random access: pipes, compressed shards, and shards read without an index."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ...errors import ConfigError, CorruptShard, RecordError, SourceEmpty
from ...sizes import counted
from ...storage.blob import Blob
from ..paths import printable
from ..sample_names import KEY
from ..shards.codecs import PICKLES, check_alike, decode_field, kind_of, name_sample, with_first
from ..source import digest
from .seen_keys import SeenKeys
from .stream import Sample, StreamSource
from .tar_stream import TarSample, open_pieces, standard_input, tar_samples
from .unpack import Piece, check_unpacker, packing_of

_STDIN = "standard input"


class StoredSample(dict[str, Any]):
    """A sample that was read from somewhere."""

    __slots__ = ("origin",)

    origin: str


class ShardStream(StreamSource, ABC):
    """Samples of shards in the order they are stored, numbered as they come.

    With `interleave` that many shards are open at once and give a sample each in turn, in the order of the list; so a window
    shuffle mixes samples of several shards.
    """

    #: the function that makes such a source
    verb: str

    def __init__(self, blobs: Sequence[Blob], interleave: int) -> None:
        super().__init__(self._samples)
        if not isinstance(interleave, int) or interleave < 1:
            raise ConfigError(
                f"{self.verb}(interleave={interleave!r}): must be an integer >= 1, the number of shards to read at once"
            )
        self._blobs, self._interleave = blobs, interleave

    @property
    def title(self) -> str:
        first, last = self._blobs[0].url, self._blobs[-1].url
        return f"{self.verb}({first}{f' … {last}' if len(self._blobs) > 1 else ''})"

    def origin(self, sample: Sample, number: int) -> str:
        return sample.origin if isinstance(sample, StoredSample) else super().origin(sample, number)

    def fingerprint(self) -> str:
        shards = [part for blob in self._blobs for part in (blob.name, blob.stat().size)]
        return digest(f"{self.verb}stream", self._interleave, *self._identity(), *shards)

    def describe(self) -> str:
        return f"{self.title}: {counted(len(self._blobs), 'shard')}, read in sequence, length unknown"

    @abstractmethod
    def _identity(self) -> tuple[bytes | str | int, ...]:
        """What of the source's options changes its samples."""

    @abstractmethod
    def _opened(self) -> Iterator[Iterator[StoredSample]]:
        """The samples of each shard, opened when it is its turn."""

    def _samples(self) -> Iterator[StoredSample]:
        empty = True
        for sample in self._in_turn():
            empty = False
            yield sample
        if empty:
            raise SourceEmpty(f"{self.title}: contains no samples; check what wrote it")

    def _in_turn(self) -> Iterator[StoredSample]:
        """Samples of up to `interleave` shards, one of each in turn; a shard that ends is replaced by the next."""
        waiting = self._opened()
        active: list[Iterator[StoredSample] | None] = list(islice(waiting, self._interleave))
        while active:
            for place, samples in enumerate(active):
                sample = None if samples is None else next(samples, None)
                if sample is None:
                    active[place] = next(waiting, None)
                else:
                    yield sample
            active = [samples for samples in active if samples is not None]


class TarStream(ShardStream):
    """Tar shards in sequence. Every sample must have the fields of the first one, except those in `defaults`.

    `blobs` None: standard input, which can be read only once.
    """

    verb = "tar"

    def __init__(
        self,
        blobs: Sequence[Blob] | None,
        interleave: int = 1,
        defaults: Mapping[str, Any] | None = None,
        allow_pickle: Collection[str] = (),
        decode: bool = True,
    ) -> None:
        super().__init__(blobs or (), interleave)
        for blob in self._blobs:
            check_unpacker(packing_of(blob.name), blob.url)
        self._defaults, self._pickles, self._decode = dict(defaults or {}), frozenset(allow_pickle), decode
        self._piped, self._spent = blobs is None, False
        self._either: tuple[tuple[str, ...], ...] = ()

    @property
    def title(self) -> str:
        return f"tar({_STDIN})" if self._piped else super().title

    def describe(self) -> str:
        return f"{self.title}: one pass, read in sequence, length unknown" if self._piped else super().describe()

    def either(self, fields: tuple[str, ...]) -> tuple[StreamSource, str]:
        if self._decode:
            check_alike(fields)
        made = copy.copy(self)
        made._factory, made._either = made._samples, (*self._either, fields)
        made._defaults = with_first(self._defaults, fields, fields[0])
        if not self._pickles >= set(fields):  # what one field may do, another under its name may not
            made._pickles = self._pickles - {fields[0]}
        return made, fields[0]

    def _identity(self) -> tuple[bytes | str | int, ...]:
        return self._decode, repr(sorted(self._defaults.items()))

    def _opened(self) -> Iterator[Iterator[StoredSample]]:
        norm: dict[str, None] = {}  # the fields of the first sample in their order, once it is there
        if self._piped:
            if self._spent:
                raise ConfigError("standard input has been read to its end and cannot be read again; use a file for more epochs")
            self._spent = True
            yield self._shard(standard_input(), _STDIN, norm)
        for blob in self._blobs:
            yield self._shard(open_pieces(blob), blob.url, norm)

    def _shard(self, pieces: Iterator[Piece], told: str, norm: dict[str, None]) -> Iterator[StoredSample]:
        seen = SeenKeys(told)
        for sample in tar_samples(pieces, told):
            seen.add(sample.key)
            yield self._whole(told, replace(sample, fields=self._chosen(sample.fields)) if self._either else sample, norm)
        seen.check()

    def _chosen(self, fields: dict[str, bytes]) -> dict[str, bytes]:
        """Of alternatives the first that is there, under the first one's name, in the place of whichever is stored first."""
        for names in self._either:
            found = [name for name in names if name in fields]
            for place in [name for name in fields if name in found][:1]:
                new = {place: (names[0], fields[found[0]])}
                fields = dict(new.get(name, (name, data)) for name, data in fields.items() if name == place or name not in found)
        return fields

    def _whole(self, told: str, sample: TarSample, norm: dict[str, None]) -> StoredSample:
        if not norm:
            norm.update(dict.fromkeys([*sample.fields, *self._defaults]))
        fields = sample.fields.keys() | self._defaults.keys()
        if fields != norm.keys():
            odd = sorted(fields ^ norm.keys())[0]
            verb = "has no" if odd in norm else "has a field that others do not have,"
            lacks = " or ".join(map(repr, next((names for names in self._either if names[0] == odd), (odd,))))
            raise CorruptShard(
                f"{told}: sample {printable(sample.key)!r} at byte {sample.offset:,} {verb} {lacks}; write it again, or use "
                f"tar(..., defaults={{{odd!r}: ...}})",
                shard=told,
                offset=sample.offset,
            )
        values = {**self._defaults, **{name: self._value(told, sample, name) for name in sample.fields}}
        stored = StoredSample((name, values[name]) for name in norm)
        stored[KEY] = sample.key
        stored.origin = _origin(told, sample)
        return stored

    def _value(self, told: str, sample: TarSample, name: str) -> Any:
        data = sample.fields[name]
        if not self._decode:
            return data
        try:
            if name in self._pickles and kind_of(name) in PICKLES:
                from ..shards.unpickle import decode_pickle

                return decode_pickle(name, data)
            return decode_field(name, data)
        except RecordError as error:
            name_sample(error, printable(sample.key), _origin(told, sample))
            raise


def _origin(told: str, sample: TarSample) -> str:
    """Where a sample is stored, as `RecordSource.origin` says it."""
    return f"{told}, byte {sample.start:,}"
