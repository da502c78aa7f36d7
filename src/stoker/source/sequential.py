"""`stoker.tar` where there is no random access: pipes, compressed shards, and shards read without an index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..errors import ConfigError, CorruptShard, RecordError, SourceEmpty
from ..storage.blob import Blob
from ..units import counted
from .base import digest
from .codecs import PICKLES, decode_field, kind_of
from .named import KEY
from .paths import printable
from .stream import StreamSource
from .tarstream import TarSample, check_unpacker, open_pieces, standard_input, tar_samples


class TarStream(StreamSource):
    """Samples of tar shards in the order they are stored, numbered as they come.

    With `interleave` that many shards are open at once and give a sample each in turn, in the order of the list; so a window
    shuffle mixes samples of several shards. Every sample must have the fields the first one has, but those in `defaults`.
    `blobs` None: standard input, which can be read once only.
    """

    def __init__(
        self,
        blobs: Sequence[Blob] | None,
        interleave: int = 1,
        defaults: Mapping[str, Any] | None = None,
        allow_pickle: Collection[str] = (),
        decode: bool = True,
    ) -> None:
        super().__init__(self._samples)
        if not isinstance(interleave, int) or interleave < 1:
            raise ConfigError(f"tar(interleave={interleave!r}): give the number of shards to read at once, from 1 on")
        for blob in blobs or ():
            check_unpacker(blob)
        self._blobs, self._interleave = blobs, interleave
        self._defaults, self._pickles, self._decode = dict(defaults or {}), frozenset(allow_pickle), decode
        self._spent = False

    @property
    def title(self) -> str:
        if not self._blobs:
            return "tar(standard input)"
        first, last = self._blobs[0].url, self._blobs[-1].url
        return f"tar({first}{f' … {last}' if len(self._blobs) > 1 else ''})"

    def fingerprint(self) -> str:
        shards = [part for blob in self._blobs or () for part in (blob.name, blob.stat().size)]
        return digest("tarstream", self._interleave, self._decode, repr(sorted(self._defaults.items())), *shards)

    def describe(self) -> str:
        count = counted(len(self._blobs), "shard") if self._blobs else "one pass"
        return f"{self.title}: {count}, read in sequence, length unknown"

    def _samples(self) -> Iterator[dict[str, Any]]:
        if self._blobs is None:
            if self._spent:
                raise ConfigError("standard input has been read to its end and cannot be read again; give a file for more epochs")
            self._spent = True
        norm: list[frozenset[str]] = []
        for told, sample in self._in_turn():
            yield self._whole(told, sample, norm)
        if not norm:
            raise SourceEmpty(f"{self.title}: not a single sample; check what wrote it")

    def _in_turn(self) -> Iterator[tuple[str, TarSample]]:
        """Samples of up to `interleave` shards, one of each in turn; a shard that ends is replaced by the next."""
        waiting = iter(self._opened())
        active = list(islice(waiting, self._interleave))
        while active:
            for place, (told, samples) in enumerate(list(active)):
                sample = next(samples, None)
                if sample is not None:
                    yield told, sample
                elif (following := next(waiting, None)) is not None:
                    active[place] = following
                else:
                    active[place] = ("", iter(()))
            active = [shard for shard in active if shard[0]]

    def _opened(self) -> Iterable[tuple[str, Iterator[TarSample]]]:
        if self._blobs is None:
            yield "standard input", tar_samples(standard_input(), "standard input")
        for blob in self._blobs or ():
            yield blob.url, tar_samples(open_pieces(blob), blob.url)

    def _whole(self, told: str, sample: TarSample, norm: list[frozenset[str]]) -> dict[str, Any]:
        fields = frozenset(sample.fields) | self._defaults.keys()
        if not norm:
            norm.append(fields)
        if fields != norm[0]:
            odd = sorted(fields ^ norm[0])[0]
            verb = "has no" if odd in norm[0] else "has a field others have not,"
            raise CorruptShard(
                f"{told}: sample {printable(sample.key)!r} at byte {sample.offset:,} {verb} {odd!r}; write it again whole, or "
                f"give tar(..., defaults={{{odd!r}: ...}})",
                shard=told,
                offset=sample.offset,
            )
        values = {**self._defaults, **{name: self._value(told, sample, name) for name in sample.fields}}
        return {name: values[name] for name in sorted(values)} | {KEY: sample.key}

    def _value(self, told: str, sample: TarSample, name: str) -> Any:
        data = sample.fields[name]
        if not self._decode:
            return data
        try:
            if name in self._pickles and kind_of(name) in PICKLES:
                from .unpickle import decode_pickle

                return decode_pickle(name, data)
            return decode_field(name, data)
        except RecordError as error:
            error.message = f"{told}, byte {sample.offset:,}: sample {printable(sample.key)!r}: {error.message}"
            error.key, error.origin = printable(sample.key), f"{told}, byte {sample.offset:,}"
            raise
