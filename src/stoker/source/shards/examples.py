"""tf.train.Example records as columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordError
from ...kernel.example_columns import Parsed, Parsing, parse_into
from ...kernel.file_reads import Arena
from ...kernel.native import Images
from ...kernel.records import gather_bytes
from ..chunk import BytesColumn, Column, FieldSpec, Ints
from .feature import Feature

_NONE: Ints = np.empty(0, np.int64)
_WHY = {2: "is of another type than {told}", 3: "has another number of values"}


@dataclass(frozen=True, slots=True)
class Extraction:
    """The bytes that hold Examples, `out` for columns that have their memory already, and what went wrong, by row."""

    data: NDArray[np.uint8]
    arena: Arena | None
    out: Mapping[str, NDArray[Any]]
    errors: dict[int, Exception]


class ExampleColumns:
    """Turns the bytes of Examples into columns, one per feature; failures are reported row by row."""

    def __init__(self, features: Mapping[str, Feature], stored: Callable[[str], bytes] = str.encode) -> None:
        """`stored` gives the name a field has in the Examples."""
        self.features = dict(features)
        self.fields: dict[str, FieldSpec] = {name: feature.spec for name, feature in features.items()}
        self._wanted = {name: feature.wanted(stored(name)) for name, feature in features.items()}

    def parse(self, starts: Ints, lengths: Ints, wanted: Collection[str], work: Extraction) -> dict[str, Column]:
        """The wanted columns; fixed ones in `out` if that is given. Bytes stay in `data`."""
        names = list(wanted)
        parsed = parse_into(self.parsing(names, len(starts), work.out), work.data, starts, lengths)
        return self.columns(parsed, names, work)

    def columns(
        self, parsed: Parsed, names: Sequence[str], work: Extraction, rendered: str | None = None, sound: bool = False
    ) -> dict[str, Column]:
        """The features of what was parsed; the pictures of `rendered` are only looked at. `sound`: nothing is wrong with any."""
        for row in () if sound else np.flatnonzero(parsed.bad >= 0).tolist():
            work.errors.setdefault(
                row, RecordError(f"not a tf.train.Example: nonsense at byte {int(parsed.bad[row])} of the record")
            )
        columns: dict[str, Column] = {}
        all_there = sound or not parsed.status.any()
        for at, name in enumerate(names):
            absent = _NONE if all_there else self._note(parsed.status[:, at], name, work.errors)
            got = parsed.columns[at]
            if name != rendered:
                columns[name] = self._column(name, got, absent, work)
            elif self.features[name].raw and not sound:
                self._note_sizes(name, got[1], got[1] == self.fields[name].nbytes, absent, work.errors)
        return columns

    def why_not_located(self, field: str, box: str | None) -> str | None:
        """See `Source.why_not_located`."""
        feature = self.features[field]
        if feature.default is not None:
            return f"{field!r} may be missing: it has a default"
        if feature.raw and self.pixels(field) is None:
            return f"{field!r} does not hold uint8 images with 1, 3 or 4 channels"
        if not feature.raw and (feature.type is not bytes or feature.shape != ()):
            return f"{field!r} is not one value of bytes"
        if box is None:
            return None
        boxes = self.features[box]
        known = boxes.type is float and boxes.shape == (4,) and boxes.default is None
        return None if known else f"its boxes, {box!r}, are not four floats of every record"

    def pixels(self, field: str) -> Images | None:
        """An image like those in `field`, if records hold raw pixels; else None."""
        feature = self.features[field]
        image = np.zeros((1, *(feature.shape or ())), np.uint8)
        return Images(image) if feature.raw and np.dtype(feature.dtype) == np.uint8 and Images.fit(image) else None

    def parsing(self, names: Sequence[str], rows: int, out: Mapping[str, NDArray[Any]]) -> Parsing:
        """Memory for these features, in the form the kernel needs; numbers among them go to `out` if possible."""
        targets = [None if self.features[name].raw else self._target(name, rows, out) for name in names]
        return Parsing([self._wanted[name] for name in names], rows, targets)

    def numbers(self, name: str, got: NDArray[Any], out: NDArray[Any] | None, absent: Ints = _NONE) -> NDArray[Any]:
        """A column of numbers, a fixed count a record, in the shape of the feature."""
        feature = self.features[name]
        column = got.reshape(len(got), *feature.shape) if feature.shape and len(feature.shape) > 1 else got
        if len(absent):
            column[absent] = feature.default
        return out if out is not None and np.shares_memory(out, column) else column

    def _target(self, name: str, rows: int, out: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
        feature, target = self.features[name], out.get(name)
        if target is None or not target.flags.c_contiguous or feature.shape is None or feature.cast is not None:
            return None
        return target.reshape(rows, -1) if len(feature.shape) > 1 else target

    def _note(self, status: NDArray[np.uint8], name: str, errors: dict[int, Exception]) -> Ints:
        """Tell what is wrong with a feature; returns the rows where it is missing and may be."""
        feature = self.features[name]
        lenient = feature.shape is None or feature.default is not None
        for row in np.flatnonzero(status).tolist():
            code = int(status[row])
            if code == 1 and lenient:
                continue
            why = _WHY.get(code, "is missing").format(told=feature.type.__name__)
            errors.setdefault(row, RecordError(f"the feature {name!r} {why}; {_remedy(name, feature, code)}"))
        return np.flatnonzero(status == 1) if lenient else _NONE

    def _column(self, name: str, got: Any, absent: Ints, work: Extraction) -> Column:
        feature, out, errors = self.features[name], work.out.get(name), work.errors
        if feature.raw:
            return self._raw(name, got, absent, work)
        if feature.type in (bytes, str):
            return _texts(feature, got, absent, work)
        if feature.shape is None:
            offsets, values = got
            values = _narrowed(name, feature, values, lambda at: np.searchsorted(offsets, at, side="right") - 1, errors)
            rows = [values[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist())]
            return _with_default(rows, feature.default, absent)
        column = self.numbers(name, got, out, absent)
        if feature.cast is None:
            return column
        column = _narrowed(name, feature, column, lambda at: at // math.prod(feature.shape or ()), errors)
        if out is None:
            return column
        out[...] = column
        return out

    def _raw(self, name: str, got: Any, absent: Ints, work: Extraction) -> Column:
        spec, out = self.fields[name], work.out.get(name)
        shape = (len(got[0]), *(extent or 0 for extent in spec.shape))
        column = out if out is not None and out.flags.c_contiguous else np.empty(shape, spec.dtype)
        self._note_sizes(name, got[1], gather_bytes(work.data, got[0], got[1], column), absent, work.errors)
        if len(absent):
            column[absent] = self.features[name].default
        return column

    def _note_sizes(self, name: str, lengths: Ints, right: NDArray[np.bool_], absent: Ints, errors: dict[int, Exception]) -> None:
        spec, gone = self.fields[name], set(absent.tolist())
        for row in np.flatnonzero(~right).tolist():
            if row not in gone:
                told = f"the feature {name!r} has {int(lengths[row]):,} bytes, and {spec} takes {spec.nbytes:,}"
                errors.setdefault(row, RecordError(told))


def _narrowed(
    name: str, feature: Feature, values: NDArray[Any], row_of: Callable[[Ints], Ints], errors: dict[int, Exception]
) -> NDArray[Any]:
    """Whole numbers in the type asked for, which has to hold them; `row_of` tells the rows of values by their places."""
    if feature.cast is None:
        return values
    least, most = int(np.iinfo(feature.cast).min), min(int(np.iinfo(feature.cast).max), int(np.iinfo(np.int64).max))
    outside = np.flatnonzero((values < least) | (values > most))
    rows, first = np.unique(row_of(outside), return_index=True)
    for row, at in zip(rows.tolist(), outside[first].tolist()):
        value = int(values.reshape(-1)[at])
        errors.setdefault(
            row, RecordError(f"the feature {name!r} has the value {value}, and {feature.cast} holds {least} to {most}")
        )
    return values.astype(feature.cast)


def _texts(feature: Feature, got: Any, absent: Ints, work: Extraction) -> Column:
    errors = work.errors
    if feature.shape == ():
        column = BytesColumn(work.data, got[0], got[1], work.arena)
        if feature.type is bytes and not len(absent):
            return column
        values: list[Any] = [_text(feature, value, row, errors) for row, value in enumerate(column.own())]
        return _with_default(values, feature.default, absent)
    offsets, starts, lengths = got
    parts = BytesColumn(work.data, starts, lengths).own()
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist())
    rows = [[_text(feature, value, row, errors) for value in parts[a:b]] for row, (a, b) in enumerate(bounds)]
    return _with_default(rows, feature.default, absent)


def _text(feature: Feature, value: bytes, row: int, errors: dict[int, Exception]) -> Any:
    if feature.type is bytes:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        errors.setdefault(row, RecordError(f"{value[:24]!r} is not UTF-8 text: {error}; ask for bytes instead of str"))
        return ""


def _with_default(values: list[Any], default: Any, absent: Sequence[int] | Ints) -> list[Any]:
    if default is not None:
        for row in absent:
            values[int(row)] = default
    return values


def _remedy(name: str, feature: Feature, code: int) -> str:
    told = feature.type.__name__
    if code == 1:
        return f"set a default, features={{{name!r}: stoker.Feature({told}, default=...)}}, or drop it with select()"
    if code == 3:
        return f"for any number of values write features={{{name!r}: [{told}]}}"
    return "look at the data with `stoker show`, and name the type it has"
