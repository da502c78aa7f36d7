"""What the fields of a source become in another format, so that they keep their meaning.

In a tar a field gets an extension that says what it is: a single picture is ``jpg`` (``png``, ``webp`` ..., by content),
``label`` is ``cls``, other integers are ``name.cls``, arrays ``name.npy``, text ``name.txt``, the rest ``name.json``. Numbers
of a tar are read as numbers. An Example holds bytes, integers and 32-bit floats, in lists without shape: what does not fit is
stored as the bytes of its extension. LMDB takes everything as it is.

Names are settled once for all samples: if some samples had a ``jpg`` and the others a ``png``, each would lack a field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...source.chunk import BYTES, OBJECT, FieldSpec, array_spec
from ...source.sample_names import KEY
from ...source.shards.codecs import JSONS, NUMBERS, PICKLES, TEXTS, decode_field, encode_field, kind_of
from ...storage.names import spelled
from .stored_images import EXTENSIONS, picture_kind

#: field of the source -> some of its values, as far as they could be read
Looked = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """A field on its way: its name in the source, its name in what is written, and how its values get there."""

    source: str
    target: str
    convert: Callable[[Any], Any]
    by_content: bool = False  # whether its values, pictures, are named each for itself


def choose_fields(
    fields: Mapping[str, FieldSpec],
    looked: Looked,
    format: str,
    *,
    raw: bool,
    chosen: str | None = None,
    by_content: bool = False,
) -> tuple[FieldChoice, ...]:
    """Which fields are written, under which names.

    `raw` says that all values are the bytes a tar holds. `chosen` is what a user wrote: names or ``new=old``, with commas.
    """
    wanted = _wanted(fields, chosen)
    if format == "tar":
        names = _tar_names(fields, looked, wanted, raw)
        kept = [_to_tar(old, names[old], raw, by_content and _is_picture(looked.get(old, ()))) for old in wanted]
    elif format == "tfrecord":
        kept = [_to_example(old, new, fields[old], looked.get(old, ()), raw) for old, new in wanted.items()]
    else:
        kept = [FieldChoice(old, new or old, _from_tar(old) if raw else _plain) for old, new in wanted.items()]
    _check_names(kept)
    return tuple(kept)


def _wanted(fields: Mapping[str, FieldSpec], chosen: str | None) -> dict[str, str]:
    """Field of the source -> the name a user gave it, or nothing."""
    if chosen is None:
        found = {name: "" for name in fields if not (name.startswith("__") and name.endswith("__"))}
    else:
        found = {}
        for part in chosen.split(","):
            new, equals, old = part.strip().rpartition("=")
            if old not in fields or (equals and not new):
                raise ConfigError(f"--fields {chosen}: there is no field {old!r}; this source has {', '.join(fields)}")
            found[old] = new
    if not found:
        raise ConfigError(f"no field is left to write; this source has {', '.join(fields)}")
    return found


def _check_names(kept: Sequence[FieldChoice]) -> None:
    twice = [name for name, count in Counter(field.target for field in kept).items() if count > 1]
    if twice:
        both = " and ".join(repr(field.source) for field in kept if field.target == twice[0])
        raise ConfigError(
            f"{both} would both be written as {twice[0]!r}; choose other names, as in --fields new={kept[0].source},..."
        )


# ---- tar --------------------------------------------------------------------------------------------------------------------


def _tar_names(fields: Mapping[str, FieldSpec], looked: Looked, wanted: Mapping[str, str], raw: bool) -> dict[str, str]:
    if raw:
        return {old: new or old for old, new in wanted.items()}
    pictures = [old for old in wanted if _is_picture(looked.get(old, ()))]
    names = {}
    for old, new in wanted.items():
        plain = old.replace("/", ".").strip(".").lower()
        found = plain if kind_of(plain) in EXTENSIONS else ""
        if not found and old in pictures:
            kind = _kind_of_pictures(looked[old])
            found = kind if len(pictures) == 1 and kind not in wanted else f"{plain}.{kind}"
        names[old] = new or found or _named_after(plain, fields[old], looked.get(old, ()), taken=wanted.keys())
    return names


def _named_after(name: str, spec: FieldSpec, values: Sequence[Any], taken: Any) -> str:
    kind = kind_of(name)
    if spec.kind == "array" and spec.shape == () and np.dtype(spec.dtype).kind in "iu":
        return name if kind in NUMBERS else "cls" if name == "label" and "cls" not in taken else f"{name}.cls"
    if spec.kind == "array" or (values and all(isinstance(value, (np.ndarray, np.generic)) for value in values)):
        return name if kind == "npy" else f"{name}.npy"
    if spec.kind == "bytes" or (values and all(isinstance(value, bytes) for value in values)):
        return f"{name}.bin" if kind in NUMBERS else name
    if values and all(isinstance(value, str) for value in values):
        return name if kind in TEXTS else f"{name}.txt"
    return name if kind in JSONS else f"{name}.json"


def renaming(sample: Mapping[str, Any]) -> dict[str, str]:
    """The names a tar needs to hold a sample's values for what they are; those that say it already are left out.

    >>> renaming({"image": b"\\xff\\xd8\\xff...", "label": 3, "txt": "a cat"})
    {'image': 'jpg', 'label': 'cls'}
    """
    specs = {name: spec_of(value) for name, value in sample.items()}
    names = _tar_names(specs, {name: [value] for name, value in sample.items()}, dict.fromkeys(specs, ""), raw=False)
    return {old: new for old, new in names.items() if new != old}


def spec_of(value: Any) -> FieldSpec:
    """What a value is, as a source says it of a field."""
    if isinstance(value, (np.ndarray, np.generic)):
        return array_spec(value.dtype, *value.shape)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return array_spec(np.int64) if whole else BYTES if isinstance(value, bytes) else OBJECT


def _to_tar(old: str, new: str, raw: bool, by_content: bool) -> FieldChoice:
    target = spelled(new)
    if raw:
        return FieldChoice(old, target, bytes)
    return FieldChoice(old, target, lambda value: encode_field(new, _for_extension(new, value)), by_content)


def _for_extension(name: str, value: Any) -> Any:
    """A value as its extension wants it."""
    value = _plain(value)
    return value.tolist() if kind_of(name) in JSONS and isinstance(value, (np.ndarray, np.generic)) else value


# ---- tf.train.Example -------------------------------------------------------------------------------------------------------


def _to_example(old: str, new: str, spec: FieldSpec, values: Sequence[Any], raw: bool) -> FieldChoice:
    if raw:
        return FieldChoice(old, new or old, _from_tar(old) if kind_of(old) in NUMBERS else bytes)
    kind = kind_of(old)
    if spec.kind == "bytes" or _holds_lists(spec) or (values and all(map(_is_list, values))):
        return FieldChoice(old, new or old, lambda value: value if isinstance(value, list) else _plain(value))
    if values and all(isinstance(value, str) for value in values):
        return FieldChoice(old, new or old, lambda value: encode_field("txt", value))
    if spec.kind == "array" or (values and all(isinstance(value, (np.ndarray, np.generic)) for value in values)):
        name = new or (old if kind == "npy" else f"{old}.npy")
        return FieldChoice(old, name, lambda value: encode_field("npy", _plain(value)))
    name = new or (old if kind in JSONS else f"{old}.json")
    return FieldChoice(old, name, lambda value: encode_field("json", _for_extension("json", value)))


def _holds_lists(spec: FieldSpec) -> bool:
    """Whether a feature holds such arrays without loss: no shape, whole numbers or 32-bit floats."""
    if spec.kind != "array" or len(spec.shape) > 1:
        return False
    dtype = np.dtype(spec.dtype)
    return dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8) or dtype == np.float32


def _is_list(value: Any) -> bool:
    """The same for a value whose kind was not known before: bytes, or a list of bytes."""
    return isinstance(value, bytes) or (isinstance(value, list) and all(isinstance(part, bytes) for part in value))


# ---- values -----------------------------------------------------------------------------------------------------------------


def _from_tar(field: str) -> Callable[[Any], Any]:
    """What turns the bytes of a tar's field into its value; pickles stay bytes."""
    return bytes if kind_of(field) in PICKLES else lambda data: decode_field(field, data)


def _plain(value: Any) -> Any:
    """A value without the wrapping it was read in: whole numbers as int, lists of UTF-8 bytes as texts."""
    if isinstance(value, np.generic) and value.dtype.kind in "iu":
        return int(value)
    if isinstance(value, list) and value and all(isinstance(part, bytes) for part in value):
        try:
            return [part.decode() for part in value]
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"a list of bytes that are not UTF-8 text fits none of the formats ({error}); omit it with --fields"
            ) from error
    return value


def _is_picture(values: Sequence[Any]) -> bool:
    """Whether most of the values are pictures; a few may be damaged."""
    return sum(isinstance(value, bytes) and bool(picture_kind(value)) for value in values) * 2 > len(values)


def _kind_of_pictures(values: Sequence[bytes]) -> str:
    """What most of them are; of equally many the first in the alphabet."""
    counts = Counter(kind for value in values if (kind := picture_kind(value)))
    return min(counts, key=lambda kind: (-counts[kind], kind))


def picture_kinds(values: Sequence[Any]) -> Counter[str]:
    """How many pictures there are of each format."""
    return Counter(kind for value in values if isinstance(value, bytes) and (kind := picture_kind(value)))


def own_key(values: Mapping[str, Any]) -> bytes | None:
    """The key stored in a sample itself, as `write_tfrecord(key="__key__")` does."""
    key = values.get(KEY)
    return bytes(key) if isinstance(key, (bytes, bytearray)) and key else None
