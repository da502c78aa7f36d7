"""Boxes follow the geometry of their image: what `.image(boxes=...)` does to the fields it names.

A box goes where its pixels went: its four corners by the row's matrix, then the smallest upright box around them, clipped to the
new image. A box that ends up outside has no area and is at the border; a box with a NaN in it becomes all NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sizes import short
from ..source.chunk import Column

Floats = NDArray[np.float64]

#: in place of infinity, which times nothing is not a number
_FAR = 1e30


def move_column(
    column: Column, rows: NDArray[np.void], relative: bool, out: NDArray[Any] | None = None
) -> tuple[Column, dict[int, str]]:
    """The boxes of every row moved as `rows` (`ROW_DTYPE`) say, as float32, and what is wrong with the rest: row -> message.

    An array of boxes, (rows, 4) or (rows, k, 4), stays one, in `out` where that fits. Lists may have any number of boxes a row.
    """
    if isinstance(column, np.ndarray) and column.ndim >= 2 and column.shape[-1] == 4 and column.dtype.kind in "iuf":
        boxes = column.reshape(len(column), -1, 4)
        if out is None or out.shape != column.shape or out.dtype != np.float32:
            out = np.empty(column.shape, np.float32)
        counts = np.full(len(column), boxes.shape[1])
        out[...] = _move(boxes.reshape(-1, 4), rows, counts, relative).reshape(column.shape)
        return out, {}
    return _move_list(column, rows, relative) if len(rows) else (column, {})


def _move_list(column: Column, rows: NDArray[np.void], relative: bool) -> tuple[Column, dict[int, str]]:
    given, wrong = [], {}
    for row in range(len(rows)):
        try:
            given.append(_boxes(column[row]))
        except (TypeError, ValueError):
            given.append(np.zeros((0, 4)))
            wrong[row] = f"{short(column[row], 80)} is neither a box (ymin, xmin, ymax, xmax) nor a list of them"
    counts = [boxes.size // 4 for boxes in given]
    joined = np.concatenate([boxes.reshape(-1, 4) for boxes in given])
    moved = _move(joined, rows, counts, relative).astype(np.float32)
    parts = np.split(moved, np.cumsum(counts)[:-1])
    # A copy: a view would hold the boxes of the whole chunk for as long as one row of it is kept.
    return [part.reshape(boxes.shape).copy() for part, boxes in zip(parts, given)], wrong


def _boxes(value: Any) -> Floats:
    """One box (4,), or any number of them (k, 4)."""
    if isinstance(value, (bytes, str)):
        raise TypeError("text is not a box")
    boxes = np.asarray(value, np.float64)
    if boxes.size == 0:
        return np.zeros((0, 4))
    if boxes.ndim not in (1, 2) or boxes.shape[-1] != 4:
        raise ValueError("not four numbers")
    return boxes


def _move(boxes: NDArray[Any], rows: NDArray[np.void], counts: Any, relative: bool) -> Floats:
    """Boxes (n, 4), of which each row has `counts`."""
    at = np.repeat(np.arange(len(rows)), counts)
    ymin, xmin, ymax, xmax = boxes.astype(np.float64).clip(-_FAR, _FAR).T
    if relative:
        width, height = rows["width"][at], rows["height"][at]
        xmin, xmax, ymin, ymax = xmin * width, xmax * width, ymin * height, ymax * height
    matrix = rows["matrix"][at]
    left, right = _extent(matrix[:, :3], (xmin, xmax), (ymin, ymax))
    top, bottom = _extent(matrix[:, 3:], (xmin, xmax), (ymin, ymax))
    width, height = rows["out_width"][at], rows["out_height"][at]
    edges = [edge.clip(0, side) for edge, side in ((top, height), (left, width), (bottom, height), (right, width))]
    if relative:  # the sides of a row that failed are 0
        edges = [edge / np.maximum(side, 1) for edge, side in zip(edges, (height, width, height, width))]
    return np.stack(edges, axis=1)


def _extent(line: Floats, x: tuple[Floats, Floats], y: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The least and the most of ``a x + b y + c`` over a box: each term is least, and most, at one of its edges."""
    a, b = (line[:, 0] * x[0], line[:, 0] * x[1]), (line[:, 1] * y[0], line[:, 1] * y[1])
    return np.minimum(*a) + np.minimum(*b) + line[:, 2], np.maximum(*a) + np.maximum(*b) + line[:, 2]
