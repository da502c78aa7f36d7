"""Which operations the kernel does together: the passes over an image that a list of operations becomes.

The rules are those of the kernel (``effects.c``): everything that only chooses and scales a rectangle is one resampling of what
is stored; what follows works on finished pixels, and neighbours of one kind join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ..kernel.native import Op, OpKind
from .lower import is_effect, steps_of
from .normalize import Normalize, ToFloat
from .operation import Operation

_FLIPS = (OpKind.HFLIP, OpKind.VFLIP)
_RESIZES = (OpKind.RESIZE, OpKind.RESIZE_SHORT, OpKind.RANDOM_RESIZED_CROP)
#: colours that depend on those of other pixels
_NEIGHBOURS = (OpKind.BLUR, OpKind.SHARPNESS)


class Work(Enum):
    """What one pass does, in the words of `explain`."""

    RESAMPLE = "one resampling of the stored image"
    RESAMPLE_AGAIN = "one more resampling"
    MOVE = "whole pixels moved, one copy"
    WARP = "one bilinear warp"
    COLOURS = "one pass over the colours"
    NEIGHBOURS = "a pass over neighbouring pixels"
    ERASE = "erased in place"
    POLICY = "effects chosen for each image"


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the pixels, and the operations it does."""

    work: Work
    operations: tuple[Operation, ...]
    surveys: tuple[Operation, ...] = ()  # those that look at the whole image first


def passes(ops: Sequence[Operation], pixels: bool = False) -> list[Pass]:
    """The passes up to the last write, over what is encoded or `pixels`."""
    steps, _ = steps_of(ops)
    owners = [step.operation for step in steps for _ in step.ops]
    kernel_ops = [op for step in steps for op in step.ops]
    made = []
    for work, first, stop in runs(kernel_ops, pixels):
        # An operation may be two of the kernel's, next to each other; two equal ones of the user's are still two.
        own = [at for at in range(first, stop) if at == first or owners[at] is not owners[at - 1]]
        surveyed = [at for at in range(first, stop) if _surveys(kernel_ops[at])]
        made.append(Pass(work, tuple(owners[at] for at in own), tuple(owners[at] for at in surveyed)))
    return made


def runs(ops: Sequence[Op], pixels: bool = False) -> Iterator[tuple[Work, int, int]]:
    """Kernel operations that are done together: what it is, the first of them, and the first of the next."""
    at = 0
    while at < len(ops):
        work, stop = _joined(ops, at, pixels)
        yield work, at, stop
        at = stop


def last_write(ops: Sequence[Operation], layout: str, out: str) -> str:
    """What happens while the finished pixels are written to the batch."""
    if any(isinstance(op, Normalize) for op in ops):
        values = "normalised to float32"
    elif out == "float32" or any(isinstance(op, ToFloat) for op in ops):
        values = "float32 from 0 to 1"
    else:
        values = "uint8"
    return f"{values}, laid out as {layout}, straight into the batch"


def _joined(ops: Sequence[Op], first: int, pixels: bool) -> tuple[Work, int]:
    """What begins at operation `first`, and where the next pass begins."""
    kind = ops[first].kind
    if not is_effect(ops[first]):
        return _geometry(ops, first, pixels)
    if kind == OpKind.AFFINE:
        fill = ops[first].params[10]
        return Work.WARP, _run(ops, first, lambda op: op.kind in _FLIPS or (op.kind == kind and op.params[10] == fill))
    if kind == OpKind.POLICY:
        return Work.POLICY, first + 1
    if kind == OpKind.ERASE:
        return Work.ERASE, _run(ops, first, lambda op: op.kind == kind)
    if kind in _NEIGHBOURS:
        return Work.NEIGHBOURS, first + 1
    return Work.COLOURS, _run(ops, first, _is_colour)


def _geometry(ops: Sequence[Op], first: int, pixels: bool) -> tuple[Work, int]:
    """A crop, resize, flip or pad: part of a resampling where a resize follows, else whole pixels are moved."""
    scaled = _run(ops, first, lambda op: not is_effect(op) and op.kind != OpKind.PAD)
    if first == 0 and scaled and not (pixels and all(op.kind not in _RESIZES for op in ops[:scaled])):
        return Work.RESAMPLE, scaled
    moved = _run(ops, first, lambda op: not is_effect(op) and op.kind not in _RESIZES)
    if scaled > moved or moved == first:
        return Work.RESAMPLE_AGAIN, scaled
    return Work.MOVE, moved


def _is_colour(op: Op) -> bool:
    return OpKind.COLOR_JITTER <= op.kind <= OpKind.INVERT and op.kind not in _NEIGHBOURS


def _surveys(op: Op) -> bool:
    """Whether an effect needs the mean, the histogram or the extremes of the image as it is by then."""
    jitters_contrast = op.kind == OpKind.COLOR_JITTER and op.params[2:4] != (1.0, 1.0)
    return jitters_contrast or op.kind in (OpKind.EQUALIZE, OpKind.AUTO_CONTRAST)


def _run(ops: Sequence[Op], first: int, joins: Callable[[Op], bool]) -> int:
    stop = first
    while stop < len(ops) and joins(ops[stop]):
        stop += 1
    return stop
