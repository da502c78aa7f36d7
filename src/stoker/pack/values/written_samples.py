"""What writers take: mappings of field names to values, each with a key or without one."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Any

from ...errors import ConfigError
from ...sizes import a_type
from ...source.paths import printable
from ...source.sample_names import KEY
from ...source.shards.codecs import name_bytes
from ..writers.keys import safe_key

_EXAMPLE = "give mappings of field names to values, as {'__key__': 'cat/0001', 'jpg': ..., 'cls': 3}"
#: the extension of a file's name, which may be followed by the number of an object in it
_EXTENSION = re.compile(r"(?<=[^/])\.[^./#]+(?=(#\d+)?$)")


def split_sample(sample: Any, *, stem: bool = False) -> tuple[bytes | None, list[tuple[str, Any]]]:
    """The key of a sample (None without one) and its fields, in its order.

    The key is its ``__key__``, or that of a pipeline's sample. The latter often names a file, ``/data/cat/0001.jpg``; with
    `stem` it is made a name that a tar can hold, without the extension: ``data/cat/0001``. Other
    names such as ``__url__`` are notes that other tools make about a sample, and not written.
    """
    if not hasattr(sample, "items"):
        raise ConfigError(f"a sample cannot be {a_type(sample)}; {_EXAMPLE}")
    if hasattr(type(sample), "sample_keys"):
        raise ConfigError("a batch is not a sample; omit .batch(...), or put .unbatch() after it")
    key, fields = None, []
    for name, value in sample.items():
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is not the name of a field; field names are str")
        if not (name.startswith("__") and name.endswith("__")):
            fields.append((name, value))
        elif name == KEY:
            key = value
    if key is not None:
        return _key_bytes(key), fields
    # Of a user's own class, `key` may be anything; a pipeline's samples have it as a property.
    own = getattr(sample, "key", None) if isinstance(getattr(type(sample), "key", None), property) else None
    stored = _key_bytes(_EXTENSION.sub("", own) if own and stem else own)
    return safe_key(stored) if stored and stem else stored, fields


def told_sample(number: int, key: bytes | None) -> str:
    """A sample in a message."""
    return f"sample {number:,}" + ("" if key is None else f" (key {printable(key)!r})")


def each(samples: Iterable[Any]) -> Generator[Any, None, None]:
    """The samples one by one. An iterator made here, such as a pipeline's, is closed with this one; a user's own is not."""
    if isinstance(samples, (str, bytes)) or not hasattr(samples, "__iter__") or hasattr(samples, "keys"):
        raise ConfigError(f"samples cannot be {a_type(samples)}; use an iterable of them, or a pipeline")
    iterator = iter(samples)
    try:
        for sample in iterator:  # noqa: UP028  `yield from` would close a user's generator too
            yield sample
    finally:
        if iterator is not samples and hasattr(iterator, "close"):
            iterator.close()


def _key_bytes(key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return name_bytes(key, f"the key {key!r}")
    raise ConfigError(f"the key {key!r} is {a_type(key)}; keys are str or bytes")
