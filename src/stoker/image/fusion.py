"""Which operations the kernel does together, in words: the passes over an image that a list of operations becomes.

The kernel reports them (``stk_passes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ..kernel import describe
from ..kernel.status import PassKind
from .lower import lower, steps_of
from .normalize import Normalize, ToFloat
from .operation import Operation


class PassWork(Enum):
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
class ImagePass:
    """One walk over the pixels, and the operations it does."""

    work: PassWork
    operations: tuple[Operation, ...]
    surveys: tuple[Operation, ...] = ()  # those that look at the whole image first


def passes(ops: Sequence[Operation], pixels: bool = False) -> list[ImagePass]:
    """The passes up to the last write, over what is encoded or `pixels`."""
    owners = [step.operation for step in steps_of(ops) for _ in step.ops]
    made, first = [], 0
    for kind, stop, surveys in describe.passes(lower(ops), pixels):
        work = PassWork.RESAMPLE_AGAIN if kind == PassKind.RESAMPLE and first else PassWork[kind.name]
        # An operation may be two of the kernel's, next to each other; two equal ones of the user's are still two.
        own = [at for at in range(first, stop) if at == first or owners[at] is not owners[at - 1]]
        surveyed = [owners[at] for at in range(first, stop) if surveys >> at & 1]
        made.append(ImagePass(work, tuple(owners[at] for at in own), tuple(surveyed)))
        first = stop
    return made


def last_write(ops: Sequence[Operation], layout: str, out: str) -> str:
    """What happens while the finished pixels are written to the batch."""
    if any(isinstance(op, Normalize) for op in ops):
        values = "normalised to float32"
    elif out == "float32" or any(isinstance(op, ToFloat) for op in ops):
        values = "float32 from 0 to 1"
    else:
        values = "uint8"
    return f"{values}, laid out as {layout}, straight into the batch"
