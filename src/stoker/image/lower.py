"""From operations to one kernel program: geometry and effects in order, floats and normalisation folded into the last write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..kernel.native import MAX_OPS, MAX_PARAMS, Border, Op, OpKind, Program
from . import colour, erase, geometry
from .limits import MAX_PIXELS, MAX_SCANS
from .normalize import Normalize, ToFloat
from .operation import Operation
from .policies import Choice, Policy


class Step(NamedTuple):
    """An operation, and the kernel operations that do it."""

    operation: Operation
    ops: tuple[Op, ...]


def lower(
    ops: Iterable[Operation],
    *,
    seed: int,
    stream: int,
    color: str = "rgb",
    layout: str = "hwc",
    out: str = "uint8",
    fast: bool = True,
    max_pixels: int = MAX_PIXELS,
    orient: bool = False,
    lenient: bool = False,
) -> Program:
    """One program for all of `ops`; operation i draws from random stream ``stream + i``."""
    ops = tuple(ops)
    channels = 1 if color == "gray" else 3
    steps, choices = steps_of(ops, stream=stream)
    kernel_ops = tuple(op for step in steps for op in step.ops)
    if len(kernel_ops) > MAX_OPS:
        raise ConfigError(f"an image stage holds at most {MAX_OPS} operations, not {len(kernel_ops)}; use two image stages")
    if channels == 1:
        _refuse_colours(ops)
    scale, bias = _affine(ops, channels)
    return Program(
        ops=kernel_ops,
        seed=seed,
        channels=channels,
        planar=layout == "chw",
        as_float=out == "float32",
        scale=scale,
        bias=bias,
        exact=not fast,
        max_pixels=max_pixels,
        max_scans=MAX_SCANS,
        choices=choices,
        orient=orient,
        lenient=lenient,
    )


def steps_of(ops: Sequence[Operation], *, stream: int = 0) -> tuple[list[Step], tuple[Choice, ...]]:
    """What the kernel does for each operation up to the floats, and what its policies choose from."""
    _check_order(ops)
    steps: list[Step] = []
    choices: list[Choice] = []
    for number, op in enumerate(ops):
        if isinstance(op, Policy):
            made = op.choices()
            steps.append(Step(op, (_effect(OpKind.POLICY, stream + number, (len(choices), len(made), op.times)),)))
            choices += made
        elif not isinstance(op, (Normalize, ToFloat)):
            lowered = _LOWERING.get(type(op))
            if lowered is None:
                raise ConfigError(f"{op!r} is not an image operation; see stoker.image")
            steps.append(Step(op, lowered(op, stream + number)))
    return steps, tuple(choices)


def is_effect(op: Op) -> bool:
    """Whether a kernel operation works on finished pixels, and not on the way out of the decoder."""
    return op.kind >= OpKind.AFFINE


# ---- what may stand where ------------------------------------------------------------------------------------------------


def _check_order(ops: Sequence[Operation]) -> None:
    floats: Operation | None = None
    effect: Operation | None = None
    box: str | None = None
    for op in ops:
        if isinstance(op, Normalize) and isinstance(floats, Normalize):
            raise ConfigError(f"{op} is the second Normalize of this stage: give one")
        if floats is not None and not isinstance(op, Normalize):
            name = type(floats).__name__
            raise ConfigError(f"{op} stands behind {name}; pixels are changed first and made floats last: put {name} at the end")
        if isinstance(op, (Normalize, ToFloat)):
            floats = op
        elif isinstance(op, geometry.CropBox):
            if effect is not None:
                raise ConfigError(f"{op} stands behind {effect}; boxes are in pixels of the stored image: put CropBox in front")
            if box not in (None, op.field):
                names = " and ".join(sorted({str(box), op.field}))
                raise ConfigError(f"one image stage crops to one field, not to {names}; use two stages")
            box = op.field
        elif type(op) not in _LEADING:
            effect = op


def _refuse_colours(ops: Sequence[Operation]) -> None:
    """A gray image has one level a pixel."""
    for op in ops:
        for name in ("fill", "value"):
            if isinstance(getattr(op, name, None), tuple):
                raise ConfigError(f"{op} has a {name} of three channels, but color='gray' gives one: give one level")


def _affine(ops: Sequence[Operation], channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """pixel * scale + bias for float output: 0 to 1, or normalised."""
    normalize = next((op for op in ops if isinstance(op, Normalize)), None)
    if normalize is None:
        return (1 / 255,) * 3, (0.0,) * 3
    mean, std = (values * 3 if len(values) == 1 else values for values in normalize.channels)
    if channels == 1 and (len(set(mean)) > 1 or len(set(std)) > 1):
        raise ConfigError(f"{normalize} has three channels, but color='gray' gives one: use one mean and one std")
    return tuple(1 / (255 * s) for s in std), tuple(-m / s for m, s in zip(mean, std))


# ---- one operation ---------------------------------------------------------------------------------------------------------


def _effect(kind: OpKind, stream: int, params: Sequence[float] = (), p: float = 1.0) -> Op:
    """An effect has its probability as last parameter."""
    return Op(kind, stream, (*map(float, params), *(0.0,) * (MAX_PARAMS - 1 - len(params)), p))


def _random_resized_crop(op: geometry.RandomResizedCrop, stream: int) -> tuple[Op, ...]:
    return (Op(OpKind.RANDOM_RESIZED_CROP, stream, (*_sides(op.size), *op.scale, *op.ratio)),)


def _resize(op: geometry.Resize, stream: int) -> tuple[Op, ...]:
    if isinstance(op.size, int):
        return (Op(OpKind.RESIZE_SHORT, stream, (float(op.size),)),)
    return (Op(OpKind.RESIZE, stream, _sides(op.size)),)


def _center_crop(op: geometry.CenterCrop, stream: int) -> tuple[Op, ...]:
    return (Op(OpKind.CENTER_CROP, stream, _sides(op.size)),)


def _random_crop(op: geometry.RandomCrop, stream: int) -> tuple[Op, ...]:
    crop = Op(OpKind.RANDOM_CROP, stream, _sides(op.size))
    return (_padding(stream, op.padding, op.pad_mode, 0), crop) if any(op.padding) else (crop,)


def _pad(op: geometry.Pad, stream: int) -> tuple[Op, ...]:
    return (_padding(stream, op.sides, op.mode, op.fill),)


def _padding(stream: int, sides: tuple[int, ...], mode: str, fill: int | tuple[int, int, int]) -> Op:
    return Op(OpKind.PAD, stream, (*map(float, sides), float(Border[mode.upper()]), *_levels(fill)))


def _crop_box(op: geometry.CropBox, stream: int) -> tuple[Op, ...]:
    return (Op(OpKind.CROP_BOX, stream, (float(op.relative),)),)


def _rotate(op: geometry.Rotate, stream: int) -> tuple[Op, ...]:
    low, high = op.range
    # The kernel turns clockwise, as torchvision's affine does; its rotation, and ours, turn the other way.
    return (_effect(OpKind.AFFINE, stream, (-high, -low, 0, 0, 1, 1, 0, 0, 0, 0, op.fill), op.p),)


def _affine_op(op: geometry.Affine, stream: int) -> tuple[Op, ...]:
    return (_effect(OpKind.AFFINE, stream, (*op.ranges, op.fill), op.p),)


def _color_jitter(op: colour.ColorJitter, stream: int) -> tuple[Op, ...]:
    return (_effect(OpKind.COLOR_JITTER, stream, (*op.ranges, 1), op.p),)


def _blur(op: colour.GaussianBlur, stream: int) -> tuple[Op, ...]:
    return (_effect(OpKind.BLUR, stream, (op.kernel_size, *op.range), op.p),)


def _cutout(op: erase.Cutout, stream: int) -> tuple[Op, ...]:
    return (_effect(OpKind.ERASE, stream, (0, 0, 0, 0, *_sides(op.size), *_levels(op.fill)), op.p),)


def _random_erasing(op: erase.RandomErasing, stream: int) -> tuple[Op, ...]:
    noise = isinstance(op.value, str)
    levels = (0.0, 0.0, 0.0) if isinstance(op.value, str) else _levels(op.value)
    return (_effect(OpKind.ERASE, stream, (*op.scale, *op.ratio, 0, 0, *levels, noise), op.p),)


def _flip(kind: OpKind) -> Callable[[Any, int], tuple[Op, ...]]:
    return lambda op, stream: (Op(kind, stream, (op.p,)),)


def _plain(kind: OpKind, *names: str) -> Callable[[Any, int], tuple[Op, ...]]:
    """An effect whose parameters are fields of the operation, as they are."""
    return lambda op, stream: (_effect(kind, stream, [getattr(op, name) for name in names], op.p),)


def _sides(size: int | tuple[int, int]) -> tuple[float, float]:
    height, width = (size, size) if isinstance(size, int) else size
    return float(height), float(width)


def _levels(fill: int | tuple[int, int, int]) -> tuple[float, float, float]:
    red, green, blue = (fill, fill, fill) if isinstance(fill, int) else fill
    return float(red), float(green), float(blue)


#: operations of the one resampling
_LEADING: dict[type[Operation], Callable[[Any, int], tuple[Op, ...]]] = {
    geometry.RandomResizedCrop: _random_resized_crop,
    geometry.Resize: _resize,
    geometry.CenterCrop: _center_crop,
    geometry.RandomCrop: _random_crop,
    geometry.Pad: _pad,
    geometry.CropBox: _crop_box,
    geometry.HorizontalFlip: _flip(OpKind.HFLIP),
    geometry.VerticalFlip: _flip(OpKind.VFLIP),
}
_LOWERING: dict[type[Operation], Callable[[Any, int], tuple[Op, ...]]] = {
    **_LEADING,
    geometry.Rotate: _rotate,
    geometry.Affine: _affine_op,
    colour.ColorJitter: _color_jitter,
    colour.Grayscale: _plain(OpKind.GRAYSCALE),
    colour.GaussianBlur: _blur,
    colour.Solarize: _plain(OpKind.SOLARIZE, "threshold"),
    colour.Posterize: _plain(OpKind.POSTERIZE, "bits"),
    colour.Equalize: _plain(OpKind.EQUALIZE),
    colour.AutoContrast: _plain(OpKind.AUTO_CONTRAST),
    colour.Sharpness: lambda op, stream: (_effect(OpKind.SHARPNESS, stream, op.range, op.p),),
    colour.Invert: _plain(OpKind.INVERT),
    erase.Cutout: _cutout,
    erase.RandomErasing: _random_erasing,
}
