"""From operations to one kernel program: geometry and effects in order, floats and normalisation folded into the last write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import ConfigError
from ..kernel.native import MAX_OPS, MAX_PARAMS, Op, OpKind, Program
from .geometry import CropBox
from .limits import MAX_PIXELS, MAX_SCANS
from .normalize import Normalize, ToFloat
from .operation import Operation
from .policies import Policy

#: the random streams of operations that are not part of a pipeline
ANY_STREAMS = range(1 << 32)


class LoweredOperation(NamedTuple):
    """An operation, and the kernel operations that do it."""

    operation: Operation
    ops: tuple[Op, ...]


def lower(
    ops: Iterable[Operation],
    *,
    seed: int = 0,
    streams: Iterable[int] = ANY_STREAMS,
    color: str = "rgb",
    layout: str = "hwc",
    out: str = "uint8",
    fast: bool = True,
    max_pixels: int = MAX_PIXELS,
    orient: bool = False,
    lenient: bool = False,
    as_pillow: bool = False,
) -> Program:
    """One program for all of `ops`; operation i draws from random stream ``streams[i]``."""
    ops = tuple(ops)
    channels = 1 if color == "gray" else 3
    kernel_ops = tuple(op for step in steps_of(ops, streams) for op in step.ops)
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
        choices=tuple(choice for op in ops if isinstance(op, Policy) for choice in op.choices()),
        orient=orient,
        lenient=lenient,
        as_pillow=as_pillow,
    )


def steps_of(ops: Sequence[Operation], streams: Iterable[int] = ANY_STREAMS) -> list[LoweredOperation]:
    """What the kernel does for each operation up to the floats; policies choose from one table, one after the other."""
    _check_order(ops)
    steps: list[LoweredOperation] = []
    choices = 0
    for op, stream in zip(ops, streams):
        made = []
        for kind, params in op.lowered():
            if kind == OpKind.POLICY:
                params, choices = (choices, *params[1:]), choices + int(params[1])
            if kind >= OpKind.AFFINE:  # an effect has its probability as last parameter
                params = (*params, *(0,) * (MAX_PARAMS - 1 - len(params)), getattr(op, "p", 1))
            made.append(Op(kind, stream, tuple(map(float, params))))
        if made:
            steps.append(LoweredOperation(op, tuple(made)))
    return steps


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
            raise ConfigError(f"{op} is the second Normalize of this stage: use one")
        if floats is not None and not isinstance(op, Normalize):
            name = type(floats).__name__
            raise ConfigError(f"{op} comes after {name}; floats must be made last: put {name} at the end")
        if isinstance(op, (Normalize, ToFloat)):
            floats = op
        elif isinstance(op, CropBox):
            if effect is not None:
                raise ConfigError(f"{op} comes after {effect}; its box is in pixels of the stored image: put CropBox first")
            if box not in (None, op.field):
                names = " and ".join(sorted({str(box), op.field}))
                raise ConfigError(f"an image stage can crop to one field only, not to {names}; use two stages")
            box = op.field
        elif any(kind >= OpKind.AFFINE for kind, _ in op.lowered()):
            effect = op


def _refuse_colours(ops: Sequence[Operation]) -> None:
    """A gray image has one level a pixel."""
    for op in ops:
        for name in ("fill", "value"):
            if isinstance(getattr(op, name, None), tuple):
                raise ConfigError(f"{op} has a {name} of three channels, but color='gray' has one: use one level")


def _affine(ops: Sequence[Operation], channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """pixel * scale + bias for float output: 0 to 1, or normalised."""
    normalize = next((op for op in ops if isinstance(op, Normalize)), None)
    if normalize is None:
        return (1 / 255,) * 3, (0.0,) * 3
    mean, std = (values * 3 if len(values) == 1 else values for values in normalize.channels)
    if channels == 1 and (len(set(mean)) > 1 or len(set(std)) > 1):
        raise ConfigError(f"{normalize} has three channels, but color='gray' has one: use one mean and one std")
    return tuple(1 / (255 * s) for s in std), tuple(-m / s for m, s in zip(mean, std))
