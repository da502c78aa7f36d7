"""Chooses some samples of a source to show: from all over it, or, if it comes in sequence, its first ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from ..errors import StokerError
from ..pack.jobs.rawtar import is_absent, raw_tar
from ..pack.values.stored_images import EXTENSIONS, picture_kind
from ..sizes import show_bytes
from ..source.chunk import FieldSpec, Ints
from ..source.sample_names import KEY
from ..source.shards.codecs import PICKLES, decode_field, kind_of, spec_of
from ..source.shards.record_source import RecordSource
from ..source.shards.tar_source import TarSource
from ..source.source import Source
from ..source.streams.sequential import TarStream
from ..source.streams.stream import StreamSource
from ..storage.scratch import Scratch

#: fields whose whole number is a label, also as the last part of a name: image/class/label
_LABELS = ("label", "cls")
#: characters of a value in JSON
_VALUE = 200


@dataclass(frozen=True, slots=True)
class ShownSample:
    """One sample as stored; `problem` says why it cannot be read, or is empty. A field it lacks is None.

    `opaque` fields hold no pictures, whatever they are called: raw pixels, for example.
    """

    index: int
    key: str
    values: Mapping[str, Any]
    problem: str = ""
    opaque: tuple[str, ...] = ()

    @property
    def pictures(self) -> list[str]:
        """The fields that hold pictures, by name or by content."""
        held = ((name, value) for name, value in self.values.items() if isinstance(value, bytes) and name not in self.opaque)
        return [name for name, value in held if is_picture(name, value)]

    @property
    def label(self) -> int | None:
        """Its label, if a field holds one."""
        found = (value for name, value in self.values.items() if is_label(name))
        return next((int(value) for value in found if isinstance(value, (int, np.integer))), None)

    @property
    def labels(self) -> list[int]:
        """Its labels, one for each of its objects, if a field holds them."""
        found = (value for name, value in self.values.items() if is_label(name))
        several = (value for value in found if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu")
        return next((value.tolist() for value in several), [] if self.label is None else [self.label])

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return {"index": self.index, "key": self.key, "problem": self.problem, "fields": dict(map(_fact, self.values.items()))}

    def about(self, width: int) -> str:
        """All fields but pictures, label and boxes, in a line."""
        pictures = self.pictures
        left = [name for name in self.values if name not in pictures and not is_label(name) and "box" not in name.lower()]
        return ", ".join(f"{name} {told_value(self.values[name], width)}" for name in left)


def is_label(name: str) -> bool:
    """Whether a field holds labels, by its name."""
    return name.rpartition("/")[2] in _LABELS


def is_picture(name: str, value: bytes) -> bool:
    """Whether a field is a picture, or should be."""
    return bool(picture_kind(value)) or kind_of(name) in EXTENSIONS or name == "image"


def fields_of(source: Source) -> dict[str, FieldSpec]:
    """The fields that users see, even if the source was opened for its bytes."""
    return {name: spec_of(name) for name in source.fields} if isinstance(source, TarSource) else dict(source.fields)


def spread_indices(length: int, count: int) -> Ints:
    """Some of so many samples, spread evenly."""
    return np.unique(np.linspace(0, length - 1, min(count, length)).astype(np.int64))


def spread_samples(source: Source, count: int) -> list[ShownSample]:
    """Some samples, spread evenly over the source."""
    samples = samples_at(as_stored(source), spread_indices(len(source), count))
    opaque = _opaque(samples) if isinstance(source, RecordSource) else ()
    return [replace(sample, opaque=opaque) for sample in samples]


def as_stored(source: Source) -> Source:
    """A source to look at samples of: a tar's fields are their bytes."""
    return raw_tar(source.blobs, source.indexes) if isinstance(source, TarSource) else source


def samples_at(source: Source, indices: Ints) -> list[ShownSample]:
    """These samples of a source `as_stored`. Fields of a tar that cannot be decoded are the sample's problem."""
    raw = isinstance(source, TarSource)
    rows = source.read(indices, tuple(source.fields), {}, Scratch())
    samples = []
    for row, index in enumerate(indices.tolist()):
        if row in rows.errors:
            samples.append(ShownSample(index, source.key(index), {}, str(rows.errors[row])))
            continue
        values = {name: None if is_absent(value := rows.columns[name][row]) else value for name in source.fields}
        samples.append(
            _decoded(ShownSample(index, source.key(index), values)) if raw else ShownSample(index, source.key(index), values)
        )
    return samples


def _opaque(samples: Sequence[ShownSample]) -> tuple[str, ...]:
    """Fields of records that are pictures by their name, but not by the content of a single sample."""
    names = {name for sample in samples for name in sample.pictures if kind_of(name) not in EXTENSIONS}
    seen = {name for name in names for sample in samples if picture_kind(_bytes(sample.values.get(name)))}
    return tuple(sorted(names - seen))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def first_samples(source: StreamSource, count: int) -> list[ShownSample]:
    """The first samples of what comes in sequence; a tar is opened for its bytes."""
    samples = []
    for index, sample in enumerate(islice(source.open(), count)):
        values = {name: value for name, value in sample.items() if name != KEY}
        found = ShownSample(index, source.key(sample, index), values)
        samples.append(_decoded(found) if isinstance(source, TarStream) else found)
    return samples


def told_value(value: Any, width: int) -> str:
    """A value as one line of limited length."""
    if value is None:
        return "—"
    if isinstance(value, (bytes, bytearray)):
        text = _short_text(bytes(value)) if len(value) <= width else ""
        return text or show_bytes(len(value))
    if isinstance(value, np.ndarray) and value.ndim:
        text = f"{value.dtype}{list(value.shape)}"
        return f"{text} {_rounded(value)}"[:width] if 0 < value.size <= 4 else text
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_of_bytes)
    line = "".join(character if character.isprintable() else " " for character in text[: width + 1])
    return line if len(line) <= width else line[: width - 1] + "…"


def _rounded(value: np.ndarray[Any, Any]) -> str:
    floats = value.dtype.kind == "f"
    return f"[{', '.join(f'{each:.4g}' if floats else str(each) for each in value.reshape(-1).tolist())}]"


def _short_text(data: bytes) -> str:
    """Bytes that are text, as text; nothing of others."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


def _decoded(sample: ShownSample) -> ShownSample:
    """The sample with a tar's fields decoded by their extension."""
    values: dict[str, Any] = {}
    for name, data in sample.values.items():
        try:
            values[name] = data if data is None or kind_of(name) in PICKLES else decode_field(name, data)
        except StokerError as error:
            return ShownSample(sample.index, sample.key, sample.values, str(error))
    return ShownSample(sample.index, sample.key, values, sample.problem)


def _fact(named: tuple[str, Any]) -> tuple[str, Any]:
    name, value = named
    if isinstance(value, (bytes, bytearray)):
        kind = picture_kind(bytes(value[:64]))
        return name, {"bytes": len(value), **({"picture": kind} if kind else {})}
    return name, None if value is None else {"value": told_value(value, _VALUE)}


def _of_bytes(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
