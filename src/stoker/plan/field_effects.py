"""The effect of a verb on fields, as a value; and the size and type of pictures, known before the first byte moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy as np

from ..errors import ConfigError
from ..image.fusion import last_write, passes
from ..image.geometry import CropBox
from ..image.operation import Operation, Size
from ..source.chunk import OBJECT, FieldSpec, array_spec

if TYPE_CHECKING:
    from .nodes import Blend, Decode, Image

#: fields by name; None when a user's function decides them
Specs = Union[Mapping[str, FieldSpec], None]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a verb does to the fields of a sample, or of a batch. All that asks about verbs loops over this.

    A verb either works on values (`reads`, `makes`, `whole`), or only on names (`only`, `renames`, `drops`); the latter are gone
    when a plan is made, see columns.py.
    """

    reads: tuple[str, ...] = ()  # fields it looks at
    makes: tuple[str, ...] = ()  # those of them that it gives new values
    varying: tuple[str, ...] = ()  # those of them that then hold images whose size only the samples tell
    whole: bool = False  # it looks at all fields
    opaque: bool = False  # and decides which there are after it
    only: tuple[str, ...] | None = None  # keeps these, in this order
    renames: tuple[tuple[tuple[str, ...], str], ...] = ()  # the first of several that is there gets a new name, the rest go
    drops: tuple[str, ...] = ()

    @property
    def arranges(self) -> bool:
        """Whether it works on names alone."""
        return self.only is not None or bool(self.renames or self.drops)

    @property
    def names(self) -> set[str]:
        """All fields it names, by their names before and after it."""
        renamed = [name for olds, new in self.renames for name in (*olds, new)]
        return {*self.reads, *self.makes, *(self.only or ()), *renamed, *self.drops}


class Verb:
    """What every node that works on fields says of itself; nodes.py."""

    __slots__ = ()

    @property
    def effect(self) -> Effect:
        return Effect()

    def made(self, specs: Mapping[str, FieldSpec]) -> Mapping[str, FieldSpec]:
        """The types of the fields it makes, given the fields before it (`specs`); raises if it cannot accept their types."""
        return {}

    def advice(self, name: str, known: Iterable[str]) -> str:
        """What may have been meant by `name`, which is not a field."""
        return ""


class OpaqueVerb(Verb):
    """One that runs a function over whole samples, or batches."""

    __slots__ = ()

    @property
    def effect(self) -> Effect:
        return Effect(whole=True, opaque=True)


def crop_fields(node: Image) -> tuple[str, ...]:
    """Fields whose boxes an image stage crops to."""
    return tuple(op.field for op in node.ops if isinstance(op, CropBox))


def image_fields(node: Image, specs: Mapping[str, FieldSpec]) -> dict[str, FieldSpec]:
    """What an image stage makes: pictures, and boxes that follow them."""
    given = specs[node.field]
    _check_pixels(f"image({node.field!r})", given)
    check_size(node, given)
    for name in node.boxes:
        held = specs[name]
        is_box = held.kind == "object" or (held.kind == "array" and held.shape[-1:] in ((4,), (None,)))
        if not is_box:
            raise ConfigError(
                f"image({node.field!r}, boxes={name!r}): the field holds {held}; a box is four numbers (ymin, xmin, ymax, xmax), "
                "and a field holds one or a list of them"
            )
    boxes = {name: specs[name] for name in node.boxes}
    return {
        **{name: array_spec("float32", *spec.shape) if spec.kind == "array" else spec for name, spec in boxes.items()},
        node.field: image_spec(node, given),
    }


def image_spec(node: Image, given: FieldSpec | None = None) -> FieldSpec:
    """What an image stage leaves of `given`: fixed in size when its operations fix both sides, or those of pixels are known."""
    height, width = size_after(node.ops, pixels_size(given))
    channels = 1 if node.color == "gray" else 3
    shape = (height, width, channels) if node.layout == "hwc" else (channels, height, width)
    return array_spec(node.out, *shape)


def passes_told(node: Image, given: FieldSpec | None = None) -> list[str]:
    """What an image stage does with `given` in one go, a line each; the last one is the write to the batch."""
    told = []
    for done in passes(node.ops, given is not None and given.kind == "array" and len(given.shape) > 1):
        names = ", ".join(type(op).__name__ for op in done.operations)
        surveys = ", ".join(dict.fromkeys(type(op).__name__ for op in done.surveys))
        told.append(f"{names}: {done.work.value}{f', and a look at the whole image for {surveys}' if surveys else ''}")
    return [*told, f"last write: {last_write(node.ops, node.layout, node.out)}"]


def check_size(node: Image, given: FieldSpec | None = None) -> None:
    """Raise where images would become larger than `max_pixels`, as far as their size is known before anything runs."""
    before = pixels_size(given)
    height, width = size_after(node.ops, before)
    if height is None or width is None or height * width <= max(node.max_pixels, (before[0] or 0) * (before[1] or 0)):
        return
    raise ConfigError(
        f"image({node.field!r}): its operations make images of {height} x {width} pixels, more than "
        f"max_pixels={node.max_pixels:,}; make them smaller, or raise max_pixels"
    )


def pixels_size(given: FieldSpec | None) -> Size:
    """Height and width of a field that holds uint8 pixels of one size, as those of arrays are."""
    if given is None or not given.fixed or given.dtype != "|u1" or len(given.shape) not in (2, 3):
        return (None, None)
    return (given.shape[0], given.shape[1]) if given.shape[2:] in ((), (1,), (3,), (4,)) else (None, None)


def size_after(ops: Iterable[Operation], size: Size = (None, None)) -> Size:
    for op in ops:
        size = op.size_after(size)
    return size


def decode_fields(node: Decode, specs: Mapping[str, FieldSpec]) -> dict[str, FieldSpec]:
    """What a decode stage makes."""
    _check_pixels(f"decode({node.field!r})", specs[node.field])
    channels = 1 if node.color == "gray" else 3
    if node.format == "pil":
        return {node.field: OBJECT}
    shape = (channels, None, None) if node.format == "torch" else (None, None, channels)
    return {node.field: array_spec(node.out, *shape)}


def _check_pixels(verb: str, spec: FieldSpec) -> None:
    if spec.kind == "array" and (spec.dtype != "|u1" or not _is_image(spec.shape)):
        hint = ""
        if len(spec.shape) == 3 and spec.shape[0] in (1, 3, 4) and spec.dtype == "|u1":
            hint = "; expected channels last (height, width, channels), got them first"
        elif spec.dtype == "<i8" and spec.shape:  # as TFRecords hold arrays
            hint = "; pixels in a TFRecord's list of integers: stoker.Feature(int, (height, width, channels), dtype='uint8')"
        raise ConfigError(f"{verb}: the field holds {spec}; use encoded bytes or uint8 pixels (height, width[, 1, 3 or 4]){hint}")


def _is_image(shape: Sequence[int | None]) -> bool:
    """Whether bytes of this shape may be an encoded image, or pixels (height, width) or (height, width, channels)."""
    if len(shape) != 3:
        return len(shape) in (1, 2)
    return shape[2] in (1, 3, 4) or (shape[2] is None and shape[0] not in (1, 3, 4))


def blend_fields(node: Blend, specs: Mapping[str, FieldSpec]) -> dict[str, FieldSpec]:
    """What mixing makes: soft labels. What is known of the fields is checked; the rest is found when a batch is mixed."""
    image, label, classes = specs[node.image], specs[node.label], node.ops[0].classes
    if image.kind == "bytes":
        raise ConfigError(f"blend(image={node.image!r}): the field holds encoded bytes; decode it with .image(...) first")
    if image.kind == "array":
        if np.dtype(image.dtype) not in (np.uint8, np.float32) or len(image.shape) not in (2, 3):
            raise ConfigError(f"blend(image={node.image!r}): the field holds {image}; it takes uint8 or float32 images")
        if image.fixed:
            is_planar(tuple(n or 0 for n in image.shape), node)
    whole = label.kind == "array" and np.dtype(label.dtype).kind in "iu" and label.shape == ()
    soft = label.kind == "array" and np.dtype(label.dtype).kind in "iuf" and label.shape == (classes,)
    if label.kind != "object" and not whole and not soft:
        raise ConfigError(
            f"blend(label={node.label!r}): the field holds {label}; it must hold one integer, or {classes} numbers, per row"
        )
    return {node.label: array_spec("float32", classes)}


def is_planar(shape: Sequence[int], node: Blend) -> bool:
    """Whether images of this shape have their channels first, as `layout` says, or else as their shape does."""
    if len(shape) == 2:
        return False
    first, last = shape[0] in (1, 3, 4), shape[-1] in (1, 3, 4)
    if node.layout is not None:
        return node.layout == "chw"
    if first == last:
        raise ConfigError(
            f"blend(image={node.image!r}): images of shape {tuple(shape)} may have their channels first or last: choose with "
            "layout='hwc' or layout='chw'"
        )
    return first
