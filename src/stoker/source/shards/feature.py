"""What a feature of a tf.train.Example holds, and how it becomes a field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ConfigError, CorruptIndex
from ...kernel.example_columns import BYTES as KIND_BYTES
from ...kernel.example_columns import FLOAT as KIND_FLOAT
from ...kernel.example_columns import INT as KIND_INT
from ...kernel.example_columns import ExampleStats, Wanted
from ..chunk import BYTES, OBJECT, FieldSpec, array_spec
from ..paths import printable

_KINDS: dict[Any, int] = {bytes: KIND_BYTES, str: KIND_BYTES, float: KIND_FLOAT, int: KIND_INT}
#: as an index names them
_KIND_NAMES = {-1: "mixed", 0: "", KIND_BYTES: "bytes", KIND_FLOAT: "float", KIND_INT: "int"}
_TYPES: dict[int, np.dtype[Any]] = {KIND_FLOAT: np.dtype(np.float32), KIND_INT: np.dtype(np.int64)}


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: its type (`int`, `float`, `bytes` or `str`), its shape, and its default value.

    `shape` is () for one value, a tuple for a fixed number of them, None for any number. With `dtype`, a `bytes` feature is the
    raw memory of an array of `shape`, and an `int` feature becomes integers of that type, which must be able to hold every
    value. Without a `default`, a sample that lacks the feature is an error, unless `shape` allows any number.

    >>> Feature(int, default=-1).spec, Feature(bytes, (32, 32, 3), dtype="uint8").spec.shape
    (FieldSpec(kind='array', dtype='<i8', shape=()), (32, 32, 3))
    """

    type: Any
    shape: tuple[int, ...] | None = ()
    default: Any = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, type) or self.type not in _KINDS:
            raise ConfigError(f"a feature must be int, float, bytes or str, not {self.type!r}")
        least = 0 if self.raw else 1
        if self.shape is not None and not (
            isinstance(self.shape, tuple) and all(isinstance(n, int) and n >= least for n in self.shape)
        ):
            raise ConfigError(f"a feature's shape must be a tuple of integers >= 1, or None for any number; not {self.shape!r}")
        if self.dtype is not None and (self.type not in (bytes, int) or (self.raw and self.shape is None)):
            raise ConfigError(
                "dtype= is for bytes features that hold the raw memory of an array, and needs its shape; or for int features"
            )
        if self.dtype is not None and not _is_plain(self.dtype):
            raise ConfigError(f"dtype={self.dtype!r} is not a numeric type; use one, such as 'float32'")
        if self.dtype is not None and not self.raw and np.dtype(self.dtype).kind not in "iu":
            raise ConfigError(
                f"Feature(int, dtype={self.dtype!r}): must be an integer type, such as 'uint8'; convert to other types with "
                ".map(field=fn)"
            )
        if self.default is not None and not self._holds(self.default):
            raise ConfigError(f"Feature(..., default={self.default!r}): the default does not fit the feature's type and shape")

    def _holds(self, value: Any) -> bool:
        """Whether a value may stand where one of this feature does."""
        if self.type in (bytes, str) and not self.raw:
            return isinstance(value, self.type) if self.shape == () else isinstance(value, list)
        dtype: Any = self._dtype
        try:
            array = np.asarray(value)
            np.broadcast_to(array, array.shape if self.shape is None else self.shape)
        except ValueError:
            return False
        if array.dtype.kind not in "biuf" or (self.shape is None and array.ndim != 1):
            return False
        return dtype.kind in "fc" or bool((array.astype(dtype) == array).all())

    @property
    def raw(self) -> bool:
        """Whether the bytes are the memory of an array."""
        return self.dtype is not None and self.type is bytes

    @property
    def cast(self) -> np.dtype[Any] | None:
        """What the whole numbers become; None: as they are stored."""
        return None if self.dtype is None or self.raw else np.dtype(self.dtype)

    @property
    def _dtype(self) -> np.dtype[Any]:
        """That of the values of an array or of numbers."""
        return _TYPES[_KINDS[self.type]] if self.dtype is None else np.dtype(self.dtype)

    @property
    def spec(self) -> FieldSpec:
        kind = _KINDS[self.type]
        if self.raw:
            return array_spec(self._dtype, *self.shape or ())
        if kind == KIND_BYTES:
            return BYTES if self.type is bytes and self.shape == () else OBJECT
        return array_spec(self._dtype, *((None,) if self.shape is None else self.shape))

    def wanted(self, name: bytes) -> Wanted:
        count = -1 if self.shape is None else 1 if self.raw else math.prod(self.shape)
        return Wanted(name, _KINDS[self.type], count)


def _is_plain(dtype: Any) -> bool:
    try:
        return not np.dtype(dtype).hasobject
    except TypeError:
        return False


def read_features(given: Any) -> dict[str, Feature]:
    """The features a user wrote: ``int``, ``[int]`` (any number), ``(float, 128)`` (so many), or `Feature`."""
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"tfrecord(features=...) is a mapping such as {{'image': bytes, 'label': int}}, not {given!r}")
    return {_name(name): _feature(name, value) for name, value in given.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"tfrecord(features=...) has the key {name!r}; names are str")
    return name


def _feature(name: str, given: Any) -> Feature:
    if isinstance(given, Feature):
        return given
    if isinstance(given, list) and len(given) == 1:
        return Feature(given[0], None)
    if isinstance(given, tuple) and len(given) == 2:
        return Feature(given[0], (given[1],) if isinstance(given[1], int) else tuple(given[1]))
    if isinstance(given, type) and given in _KINDS:
        return Feature(given)
    raise ConfigError(f"tfrecord(features={{{name!r}: {given!r}}}): write int, [int], (int, 3) or stoker.Feature(...)")


def about_examples(stats: ExampleStats) -> dict[str, Any]:
    """What an index says about records, for `found_features`: whether they are Examples, and of which features."""
    features = [
        {"name": printable(f.name), "kind": _KIND_NAMES[f.kind], "least": f.least, "most": f.most, "present": f.present}
        for f in sorted(stats.features)
    ]
    return {"examples": not stats.others, "features": features if not stats.others else []}


def check_about(about: Mapping[str, Any], size: int, told: str) -> None:
    """Raise unless what an index says of a shard's features is possible for `size` bytes; `told` names the shard."""
    features = about.get("features", [])
    for entry in features if isinstance(features, list) else [features]:
        try:
            good = isinstance(entry["name"], str) and entry["kind"] in ("", "mixed", "bytes", "float", "int")
            good = good and all(type(entry[count]) is int and 0 <= entry[count] <= size for count in ("least", "most", "present"))
        except (KeyError, TypeError):
            good = False
        if not good:
            raise CorruptIndex(
                f"{told}: its index describes a feature as {str(entry)[:80]}; make it again with `stoker index --force`",
                shard=told,
            )


def found_features(abouts: list[tuple[int, Mapping[str, Any]]]) -> dict[str, Feature] | None:
    """The features seen while the shards were indexed, as (records, about); None if some records are not Examples.

    One value in every record is a single value, equally many in each a fixed shape; a feature that varies, or is sometimes
    missing, is a list of any length.
    """
    if not all(about.get("examples") for count, about in abouts if count):
        return None
    total = sum(count for count, _ in abouts)
    merged: dict[str, dict[str, Any]] = {}
    for _, about in abouts:
        for entry in about.get("features", ()):
            known = merged.setdefault(entry["name"], dict(entry, present=0))
            known["present"] += entry["present"]
            known["least"], known["most"] = min(known["least"], entry["least"]), max(known["most"], entry["most"])
            if entry["kind"] and known["kind"] != entry["kind"]:
                known["kind"] = "mixed" if known["kind"] else entry["kind"]
    for name, entry in merged.items():
        if entry["kind"] == "mixed":
            raise ConfigError(
                f"tfrecord(): the feature {name!r} does not have the same type in all records; list the features to read: "
                "features={...}"
            )
    return {name: _found(entry, total) for name, entry in sorted(merged.items()) if entry["kind"] in ("bytes", "float", "int")}


def _found(entry: Mapping[str, Any], total: int) -> Feature:
    kind: Any = {"bytes": bytes, "float": float, "int": int}[entry["kind"]]
    if entry["present"] < total or entry["least"] != entry["most"] or not entry["most"]:
        return Feature(kind, None)
    return Feature(kind) if entry["most"] == 1 else Feature(kind, (int(entry["most"]),))
