"""Opens what a user named as a source of records: shards are listed, examined and indexed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, Union

from ..errors import ConfigError, CorruptShard
from ..storage.blob import Blob
from ..storage.cache import Cache
from ..storage.fetch import Each
from ..storage.local import LocalBlob
from ..storage.once import Once
from ..storage.open import open_blob
from ..storage.open_files import descriptors_at_once
from ..storage.retry import Patience
from .shards.indexing import index_of
from .shards.record_source import RecordSource
from .shards.shard_index import ShardIndex
from .shards.shard_source import Spec, expand
from .shards.tar_source import TarSource
from .shards.tfrecord_source import TfrecordSource
from .sniff import BEGIN, PACKED_TAR, PACKINGS, TAR_ENDINGS, TFRECORD_ENDINGS, is_packed_tar, packing_by_content
from .streams.sequential import TarStream
from .streams.tar_stream import is_compressed
from .streams.tfrecord_stream import TfrecordStream
from .streams.unpack import packing_of

#: how many shards, or records, are asked for at once
_LOCAL, _REMOTE = 8, 64
Records = TypeVar("Records", bound=RecordSource)
CacheLike = Union[str, "os.PathLike[str]", Cache, None]


def open_tar(
    spec: Spec,
    *,
    index: str,
    interleave: int | None,
    defaults: Mapping[str, Any] | None,
    allow_pickle: Collection[str],
    decode: bool,
    cache: CacheLike,
    patience: Patience | None,
    seek: bool,
    crew: Callable[[int], Each],
) -> TarSource | TarStream:
    """The source of tar shards: random access through their indexes, or in sequence if that is not possible."""
    if index not in ("auto", "never"):
        raise ConfigError(f"tar(index={index!r}): choose 'auto' (read at random, through an index) or 'never' (in sequence)")
    several = isinstance(allow_pickle, Collection) and not isinstance(allow_pickle, str)
    if not several or not all(isinstance(name, str) for name in allow_pickle):
        raise ConfigError(f"tar(allow_pickle={allow_pickle!r}): must be a list of field names")
    if defaults is not None and not isinstance(defaults, Mapping):
        raise ConfigError(f"tar(defaults={defaults!r}): must be a mapping of fields to values, e.g. {{'cls': 0}}")
    urls = expand(spec, "tar", TAR_ENDINGS)
    if "-" in urls:
        if len(urls) > 1:
            raise ConfigError("tar(): '-' (standard input) cannot be mixed with other shards")
        return TarStream(None, 1, defaults, allow_pickle, decode)
    blobs = _blobs(urls, cache, patience)
    if index == "never" or any(is_compressed(blob.name) for blob in blobs):
        list(_at_once(blobs, crew)(lambda blob: blob.stat(), blobs))  # a missing shard is reported now
        return TarStream(blobs, 1 if interleave is None else interleave, defaults, allow_pickle, decode)
    if interleave is not None:
        raise ConfigError("tar(interleave=...) is for shards read in sequence; with an index, shuffle() mixes all shards")
    each = _at_once(blobs, crew)
    return _reading(TarSource(blobs, _indexes(blobs, "tar", each), defaults, allow_pickle, decode, seek), each)


def open_tfrecord(
    spec: Spec,
    *,
    features: Any,
    compression: str | None,
    interleave: int | None,
    cache: CacheLike,
    patience: Patience | None,
    seek: bool,
    crew: Callable[[int], Each],
) -> TfrecordSource | TfrecordStream:
    """The source of TFRecord files: random access through their indexes, or in sequence if some are compressed."""
    if compression not in (None, *PACKINGS):
        raise ConfigError(f"tfrecord(compression={compression!r}): choose 'gzip' or 'zlib', or omit it to detect it")
    urls = expand(spec, "tfrecord", TFRECORD_ENDINGS)
    if "-" in urls:
        raise ConfigError("tfrecord() needs files that can be read at random; standard input cannot")
    blobs = _blobs(urls, cache, patience)
    each = _at_once(blobs, crew)
    packings = list(each(lambda blob: compression or tfrecord_packing(blob), blobs))
    if any(packings):
        list(each(lambda blob: blob.stat(), blobs))  # a shard that is not there is named now
        return TfrecordStream(blobs, packings, 1 if interleave is None else interleave, features)
    if interleave is not None:
        raise ConfigError("tfrecord(interleave=...) is for compressed files; with an index, shuffle() mixes all files")
    return _reading(TfrecordSource(blobs, _indexes(blobs, "tfrecord", each), features, seek), each)


def tfrecord_packing(blob: Blob) -> str | None:
    """The compression of a TFRecord file: by its name or, if that is not conclusive, by its first bytes.

    Those of a remote file are not fetched for this, because a cache might fetch the whole file.
    """
    if is_packed_tar(blob.name):
        raise CorruptShard(f"{blob.url}: {PACKED_TAR}", shard=blob.url, offset=0)
    told = packing_of(blob.name)
    if told is not None or not isinstance(blob, LocalBlob):
        return told
    begin = bytearray(min(BEGIN, blob.stat().size))
    blob.read_into(0, memoryview(begin))
    return packing_by_content(bytes(begin))


def _at_once(blobs: list[Blob], crew: Callable[[int], Each]) -> Each:
    """Who looks at the shards: many at once over a network, a few on a disk."""
    return crew(_LOCAL if all(isinstance(blob, LocalBlob) for blob in blobs) else descriptors_at_once(_REMOTE))


def _reading(source: Records, each: Each) -> Records:
    """The source; one that waits for a network asks for many records at once."""
    if source.waits:
        source.each = each
    return source


def _indexes(blobs: list[Blob], kind: str, each: Each) -> list[ShardIndex]:
    once = Once()
    return list(each(lambda blob: index_of(blob, kind, once), blobs))


def _blobs(urls: list[str], cache: CacheLike, patience: Patience | None) -> list[Blob]:
    held = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    once = Once()
    return [open_blob(url, cache=held, patience=patience, once=once) for url in urls]
