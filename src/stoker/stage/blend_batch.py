"""`blend`: MixUp and CutMix over a finished batch, in its own memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError
from ..image.batch_mixing import Mixture, draw
from ..kernel import blend_rows as kernel
from ..plan.columns import Step
from ..plan.field_effects import is_planar
from ..plan.nodes import Blend
from ..sizes import a_type

#: what a batch's random numbers are made of: seed, epoch, position of its first row, stream
RowSeed = tuple[int, int, int, int]


class ImagesElsewhere(Protocol):
    """Images of a batch in a device's memory, which are mixed there."""

    shape: tuple[int, ...]
    ndim: int
    dtype: np.dtype[Any]

    def __len__(self) -> int: ...

    def mix(self, rows: int, share: float, box: tuple[int, int, int, int] | None, planar: bool) -> None:
        """Mix the first so many images, in their own memory."""


def blend(
    step: Step[Blend], columns: dict[str, Any], seed: RowSeed, real: int, ours: Collection[int], keys: Callable[[], list[str]]
) -> dict[str, Any]:
    """The columns with images and labels mixed; `ours` are the ids of the columns that may be changed in place.

    Rows from `real` are padding: they keep their image, and are not mixed into others.
    """
    node, image, label = step.node, step.column(step.node.image), step.column(step.node.label)
    images = _images(node, _there(columns, image))
    soft = soft_labels(_there(columns, label), node, len(images), keys)
    planar = is_planar(images.shape[1:], node)
    height, width = images.shape[2:] if planar else images.shape[1:3]
    drawn = draw(node.ops, *seed, (height, width))
    if drawn is not None and real > 1:
        if not isinstance(images, np.ndarray):
            images.mix(real, *drawn[1], planar)
            _mix_labels(soft[:real], drawn[1].share)
            return {**columns, label: soft}
        if id(images) not in ours or not images.flags.carray or _shared(images, image, columns):
            images = np.array(images, order="C")  # what a function returned may be in use elsewhere
        _mix(images[:real], soft[:real], drawn[1], planar)
    return {**columns, image: images, label: soft}


def _mix(images: NDArray[Any], soft: NDArray[np.float32], mixture: Mixture, planar: bool) -> None:
    if mixture.box is None:
        kernel.blend(images, mixture.share)
    else:
        kernel.paste(images, mixture.box, planar)
    _mix_labels(soft, mixture.share)


def _mix_labels(soft: NDArray[np.float32], own: float) -> None:
    share = np.float32(own)
    other = np.roll(soft, 1, axis=0)
    other *= np.float32(1) - share
    soft *= share
    soft += other


def soft_labels(labels: Any, node: Blend, rows: int, keys: Callable[[], list[str]]) -> NDArray[np.float32]:
    """Whole numbers as rows with a 1 in their place; rows of numbers that are soft already, copied."""
    classes = node.ops[0].classes
    if isinstance(labels, np.ndarray) and labels.shape == (rows, classes) and labels.dtype.kind in "iuf":
        return labels.astype(np.float32)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.shape != (rows,):
        told = f"{labels.dtype}{list(labels.shape)}" if isinstance(labels, np.ndarray) else f"{a_type(labels)}"
        raise BatchError(
            f"blend(label={node.label!r}): the field holds {told}; it must hold one integer, or {classes} numbers, per row "
            "(classes=...)"
        )
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        raise BatchError(
            f"blend(label={node.label!r}): label {labels[bad[0]]} of sample {keys()[bad[0]]!r} is not a class: "
            f"classes={classes} are 0 to {classes - 1}"
        )
    soft = np.zeros((rows, classes), np.float32)
    soft[np.arange(rows), labels] = 1
    return soft


def _images(node: Blend, images: Any) -> NDArray[Any] | ImagesElsewhere:
    if not isinstance(images, np.ndarray) and not hasattr(images, "mix"):
        raise BatchError(
            f"blend(image={node.image!r}): the field is {a_type(images)}, not one array: images to be mixed must have "
            "the same size; crop or resize them first"
        )
    if images.dtype not in (np.uint8, np.float32) or images.ndim not in (3, 4):
        raise BatchError(
            f"blend(image={node.image!r}): the field holds {images.dtype}{list(images.shape)}; it takes uint8 or float32 images, "
            "(rows, height, width[, channels]) or (rows, channels, height, width)"
        )
    found: NDArray[Any] | ImagesElsewhere = images
    return found


def _there(columns: Mapping[str, Any], name: str) -> Any:
    if name not in columns:
        raise BatchError(f"blend names the field {name!r}, but the batch has {', '.join(columns) or 'no fields'}")
    return columns[name]


def _shared(images: NDArray[Any], name: str, columns: Mapping[str, Any]) -> bool:
    """Whether another field looks at the same memory."""
    others = (column for field, column in columns.items() if field != name and isinstance(column, np.ndarray))
    return any(np.may_share_memory(images, other) for other in others)
