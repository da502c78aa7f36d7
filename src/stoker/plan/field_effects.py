"""Fields and their shapes, known before the first byte moves: what each stage leaves, and what it needs of the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Union

import numpy as np

from ..errors import ConfigError
from ..foreign_names import image_spec_advice
from ..image.fusion import last_write, passes
from ..image.geometry import CropBox
from ..image.operation import Operation, Size
from ..source.chunk import OBJECT, FieldSpec, array_spec
from .nodes import Blend, Decode, Drop, Filter, FinishNode, Image, MapFields, Rename, Select, StageNode, verb_of, written

#: fields by name; None when a user's function decides them
Specs = Union[Mapping[str, FieldSpec], None]


def fields_after(node: StageNode | FinishNode, specs: Specs) -> Specs:
    """The fields behind a stage; raises when the stage names a field that is not there."""
    if isinstance(node, Select):
        return {name: _of(specs, name, node) for name in node.fields}
    if specs is None:
        return None
    if isinstance(node, (Image, Decode)):
        _check_image(node, _of(specs, node.field, node), specs)
        return {**specs, **_made(node, specs)}
    if isinstance(node, Blend):
        _check_blend(node, specs)
        return {**specs, node.label: array_spec("float32", node.ops[0].classes)}
    if isinstance(node, MapFields):
        for name, _ in node.fields:
            _of(specs, name, node)
        return {**specs, **{name: OBJECT for name, _ in node.fields}}
    if isinstance(node, Rename):
        return _renamed(node, specs)
    if isinstance(node, Drop):
        for name in node.fields:
            _of(specs, name, node)
        return {name: spec for name, spec in specs.items() if name not in node.fields}
    return specs if isinstance(node, Filter) else None


def all_after(nodes: Iterable[StageNode], specs: Specs) -> Specs:
    """The fields behind several stages."""
    for node in nodes:
        specs = fields_after(node, specs)
    return specs


def wanted_fields(nodes: Iterable[StageNode | FinishNode], specs: Mapping[str, FieldSpec]) -> tuple[str, ...]:
    """The source fields that some stage, or the user, will look at; the rest are never read."""
    need: set[str] | None = None  # None: all of them
    for node in reversed(list(nodes)):
        # What a select, rename or drop names must be there when it runs, though a later one may leave it out.
        if isinstance(node, Select):
            need = set(node.fields)
        elif isinstance(node, Rename) and need is not None:
            back = {new: old for old, new in node.names}
            need = {back.get(name, name) for name in need} | {old for old, _ in node.names}
        elif isinstance(node, Drop) and need is not None:
            need |= set(node.fields)
        elif isinstance(node, (Image, Decode)) and need is not None:
            # A decode nobody looks at still has to find bad images, so its field is always read.
            need |= {node.field, *boxes_of(node)}
        elif isinstance(node, Blend) and need is not None:
            need |= {node.image, node.label}
        elif isinstance(node, MapFields) and need is not None:
            need |= {name for name, _ in node.fields}
        elif not isinstance(node, (Select, Rename, Drop, Image, Decode, MapFields, Blend)):
            need = None
    return tuple(name for name in specs if need is None or name in need)


def fields_read(
    nodes: Iterable[StageNode], specs: Mapping[str, FieldSpec], source: Iterable[str], wanted: Iterable[str]
) -> Specs:
    """Of the fields behind the stages those that will be there: what was never read from the source is gone, under any name."""
    origins = {name: name for name in source}  # name here -> name in the source, as long as no function came between
    for node in nodes:
        if isinstance(node, Rename):
            names = dict(node.names)
            origins = {names.get(name, name): origin for name, origin in origins.items()}
        elif isinstance(node, Select):
            origins = {name: origin for name, origin in origins.items() if name in node.fields}
        elif isinstance(node, Drop):
            origins = {name: origin for name, origin in origins.items() if name not in node.fields}
        elif not isinstance(node, (Image, Decode, MapFields)) and not isinstance(node, Filter):
            origins = {}
    gone = {name for name, origin in origins.items() if origin not in set(wanted)}
    return {name: spec for name, spec in specs.items() if name not in gone}


def varying_fields(nodes: Iterable[StageNode]) -> set[str]:
    """Fields that hold images of varying size at the end, as far as the stages alone tell."""
    varying: set[str] = set()
    for node in nodes:
        if isinstance(node, Decode) or (isinstance(node, Image) and not image_spec(node).fixed):
            varying.add(node.field)
        elif isinstance(node, Image):
            varying.discard(node.field)
        elif isinstance(node, MapFields):
            varying -= {name for name, _ in node.fields}
        elif isinstance(node, Rename):
            names = dict(node.names)
            varying = {names.get(name, name) for name in varying}
        elif not isinstance(node, (Select, Drop, Filter)):
            varying = set()  # a user's function decides
    return varying


def boxes_of(node: StageNode) -> tuple[str, ...]:
    """Fields an image stage reads beside its own."""
    return (*crop_fields(node), *node.boxes) if isinstance(node, Image) else ()


def crop_fields(node: Image) -> tuple[str, ...]:
    """Fields whose boxes an image stage crops to."""
    return tuple(op.field for op in node.ops if isinstance(op, CropBox))


def _made(node: Image | Decode, specs: Mapping[str, FieldSpec]) -> dict[str, FieldSpec]:
    if isinstance(node, Decode):
        return {node.field: decode_spec(node)}
    boxes = {name: specs[name] for name in node.boxes}
    return {
        **{name: array_spec("float32", *spec.shape) if spec.kind == "array" else spec for name, spec in boxes.items()},
        node.field: image_spec(node, specs[node.field]),
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
        f"max_pixels={node.max_pixels:,}; ask for smaller ones, or raise max_pixels"
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


def decode_spec(node: Decode) -> FieldSpec:
    if node.format == "pil":
        return OBJECT
    channels = 1 if node.color == "gray" else 3
    return array_spec(node.out, channels, None, None) if node.format == "torch" else array_spec(node.out, None, None, channels)


def _of(specs: Specs, name: str, node: StageNode | FinishNode) -> FieldSpec:
    if specs is None:
        return OBJECT
    if name not in specs:
        raise ConfigError(
            f"{verb_of(node)} names the field {name!r}, but the fields here are {', '.join(specs) or 'none'}"
            f"{_instead(node, name, specs)}"
        )
    return specs[name]


def _instead(node: StageNode | FinishNode, name: str, known: Iterable[str]) -> str:
    """What was meant by a name that is not a field's."""
    if isinstance(node, MapFields):
        return "; a function over whole samples, which may add fields, is passed as map(fn)"
    if isinstance(node, Rename) and (new := dict(node.names)[name]) in known:
        return f"; the new name comes first: rename({name}={new!r})"
    return image_spec_advice(name, known) if isinstance(node, Decode) else ""


def _check_image(node: Image | Decode, spec: FieldSpec, specs: Mapping[str, FieldSpec]) -> None:
    if spec.kind == "array" and (spec.dtype != "|u1" or not _is_image(spec.shape)):
        verb = verb_of(node)
        hint = ""
        if len(spec.shape) == 3 and spec.shape[0] in (1, 3, 4) and spec.dtype == "|u1":
            hint = "; its channels stand first, and have to be last"
        elif spec.dtype == "<i8" and spec.shape:  # as TFRecords hold arrays
            hint = "; pixels in a TFRecord's list of whole numbers: stoker.Feature(int, (height, width, channels), dtype='uint8')"
        raise ConfigError(
            f"{verb}({node.field!r}): the field holds {spec}; give encoded bytes or uint8 pixels (height, width[, 1, 3 or 4])"
            f"{hint}"
        )
    for name in boxes_of(node):
        _of(specs, name, node)
    if isinstance(node, Image):
        check_size(node, spec)
    for name in node.boxes if isinstance(node, Image) else ():
        held = specs[name]
        is_box = held.kind == "object" or (held.kind == "array" and held.shape[-1:] in ((4,), (None,)))
        if not is_box:
            raise ConfigError(
                f"image({node.field!r}, boxes={name!r}): the field holds {held}; a box is four numbers (ymin, xmin, ymax, xmax), "
                "and a field holds one or a list of them"
            )


def _is_image(shape: Sequence[int | None]) -> bool:
    """Whether bytes of this shape may be an encoded image, or pixels (height, width) or (height, width, channels)."""
    if len(shape) != 3:
        return len(shape) in (1, 2)
    return shape[2] in (1, 3, 4) or (shape[2] is None and shape[0] not in (1, 3, 4))


def _check_blend(node: Blend, specs: Mapping[str, FieldSpec]) -> None:
    """What is known of the fields before anything runs; the rest is found when a batch is mixed."""
    image, label, classes = _of(specs, node.image, node), _of(specs, node.label, node), node.ops[0].classes
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
            f"blend(label={node.label!r}): the field holds {label}; it takes one whole number a row, or {classes} numbers a row"
        )


def is_planar(shape: Sequence[int], node: Blend) -> bool:
    """Whether images of this shape have their channels first, as `layout` says, or else as their shape does."""
    if len(shape) == 2:
        return False
    first, last = shape[0] in (1, 3, 4), shape[-1] in (1, 3, 4)
    if node.layout is not None:
        return node.layout == "chw"
    if first == last:
        raise ConfigError(
            f"blend(image={node.image!r}): images of shape {tuple(shape)} may have their channels first or last: say which with "
            "layout='hwc' or layout='chw'"
        )
    return first


def _renamed(node: Rename, specs: Mapping[str, FieldSpec]) -> Specs:
    names = dict(node.names)
    for old in names:
        _of(specs, old, node)
    result = {names.get(name, name): spec for name, spec in specs.items()}
    if len(result) < len(specs):
        raise ConfigError(f"{written(node)} gives two fields the same name; the fields here are {', '.join(specs)}")
    return result
