"""Asks the kernel what a program does to images: its draws and its passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.kernel.library import address, library
from stoker.kernel.native import MAX_OPS, OpKind, Program, image_table
from stoker.kernel.status import PassKind

#: numbers an operation draws at most, one more for whether it happens; a policy draws three each time
_MOST_DRAWN = 9


def draws(
    program: Program,
    widths: NDArray[np.int32],
    heights: NDArray[np.int32],
    boxes: NDArray[np.float32] | None,
    epochs: NDArray[np.uint32],
    positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """What every operation draws for images of these sizes: (image, operation, number), as ``stk_draws`` says."""
    about, count = image_table(widths, heights, boxes, epochs, positions), len(positions)
    room = max([_MOST_DRAWN, *(1 + 3 * int(op.params[2]) for op in program.ops if op.kind == OpKind.POLICY)])
    out = np.zeros((count, len(program.ops), room), np.float64)
    library().draws(address(program._struct), *map(address, about), count, room, address(out))
    return out


class KernelPass(NamedTuple):
    """What is done at once: operations up to `stop`; bit k of `surveys`: operation k first looks at the whole image."""

    kind: PassKind
    stop: int
    surveys: int


def passes(program: Program, pixels: bool) -> list[KernelPass]:
    """The passes over an image, encoded or `pixels` in memory."""
    made, count = np.zeros((MAX_OPS, 3), np.int32), np.zeros(1, np.int32)
    library().passes(address(program._struct), pixels, address(made), address(count))
    return [KernelPass(PassKind(kind), stop, surveys) for kind, stop, surveys in made[: count[0]].tolist()]
