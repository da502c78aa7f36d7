"""From operations to one kernel program: geometry in order, normalisation folded into the last write."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ConfigError
from ..kernel.native import MAX_OPS, Op, OpKind, Program
from .limits import MAX_PIXELS, MAX_SCANS
from .ops import CenterCrop, CropBox, HorizontalFlip, Normalize, Operation, RandomResizedCrop, Resize


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
) -> Program:
    """One program for all of `ops`; operation i draws from random stream ``stream + i``."""
    channels = 1 if color == "gray" else 3
    kernel_ops: list[Op] = []
    normalize: Normalize | None = None
    boxes: set[str] = set()
    for number, op in enumerate(ops):
        if isinstance(op, CropBox):
            boxes.add(op.field)
        if isinstance(op, Normalize) and normalize is not None:
            raise ConfigError(f"{op} is the second Normalize of this stage: give one")
        if len(boxes) > 1:
            raise ConfigError(f"one image stage crops to one field, not to {' and '.join(sorted(boxes))}; use two stages")
        if isinstance(op, Normalize):
            normalize = op
        elif normalize is not None:
            raise ConfigError(
                f"{op} stands behind Normalize; pixels are moved first and normalised last: put Normalize at the end"
            )
        else:
            kernel_ops.append(_kernel_op(op, stream + number))
    if len(kernel_ops) > MAX_OPS:
        raise ConfigError(f"an image stage holds at most {MAX_OPS} operations, not {len(kernel_ops)}; use two image stages")
    scale, bias = _affine(normalize, channels)
    return Program(
        ops=tuple(kernel_ops),
        seed=seed,
        channels=channels,
        planar=layout == "chw",
        as_float=out == "float32",
        scale=scale,
        bias=bias,
        exact=not fast,
        max_pixels=max_pixels,
        max_scans=MAX_SCANS,
        orient=orient,
    )


def _affine(normalize: Normalize | None, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """pixel * scale + bias for float output: 0 to 1, or normalised."""
    if normalize is None:
        return (1 / 255,) * 3, (0.0,) * 3
    mean, std = (values * 3 if len(values) == 1 else values for values in normalize.channels)
    if channels == 1 and (len(set(mean)) > 1 or len(set(std)) > 1):
        raise ConfigError(f"{normalize} has three channels, but color='gray' gives one: use one mean and one std")
    return tuple(1 / (255 * s) for s in std), tuple(-m / s for m, s in zip(mean, std))


def _kernel_op(op: Operation, stream: int) -> Op:
    if isinstance(op, RandomResizedCrop):
        return Op(OpKind.RANDOM_RESIZED_CROP, stream, (*_sides(op.size), *op.scale, *op.ratio))
    if isinstance(op, Resize):
        if isinstance(op.size, int):
            return Op(OpKind.RESIZE_SHORT, stream, (op.size,))
        return Op(OpKind.RESIZE, stream, _sides(op.size))
    if isinstance(op, CenterCrop):
        return Op(OpKind.CENTER_CROP, stream, _sides(op.size))
    if isinstance(op, CropBox):
        return Op(OpKind.CROP_BOX, stream, (float(op.relative),))
    if isinstance(op, HorizontalFlip):
        return Op(OpKind.HFLIP, stream, (op.p,))
    raise ConfigError(f"{op!r} is not an image operation; see stoker.image")


def _sides(size: int | tuple[int, int]) -> tuple[float, float]:
    height, width = (size, size) if isinstance(size, int) else size
    return float(height), float(width)
