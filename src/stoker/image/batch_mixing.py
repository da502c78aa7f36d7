"""MixUp and CutMix: operations over finished batches, for `pipeline.blend`. Frozen values, and what they draw.

Definitions follow torchvision's: the partner of a row is the row before it, that of the first is the last; one share for the
whole batch, from Beta(alpha, alpha). Draws come from the counter-based generator, keyed by (seed, epoch, position of the batch's
first row, operation), so they do not depend on who makes the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernel import native
from . import checks

#: which draw of the batch's stream is for what; from _BETA on, pairs for tries to draw the share
_APPLY, _CHOOSE, _X, _Y, _BETA = 0, 1, 2, 3, 4
#: a try is taken with a probability of at least one half, so that 62 all failing is not going to happen; then the share is 1/2
_DRAWS = _BETA + 2 * 62
#: more classes than this are a mistake: a row of soft labels would take half a megabyte
_MOST_CLASSES = 1 << 17


class Mixture(NamedTuple):
    """What is done to one batch: row i becomes ``share`` of itself and the rest of its partner.

    `box` (top, left, bottom, right) is the part that is the partner's; None: all pixels are mixed.
    """

    share: float
    box: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class MixUp:
    """Mix every image and its label with those of the row before it: ``share * own + (1 - share) * other``.

    The share is drawn for a batch from Beta(`alpha`, `alpha`), the operation applied to a batch with probability `p`. Labels
    become `classes` numbers per row.
    """

    alpha: float = 0.2
    classes: int = 0
    p: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    def draw(self, uniforms: NDArray[np.float64], size: tuple[int, int]) -> Mixture:
        """The mixture of a batch of images of this height and width."""
        return Mixture(beta(self.alpha, uniforms[_BETA:]))


@dataclass(frozen=True, slots=True)
class CutMix:
    """Paste a box from the image of the row before into every image; labels are mixed by the share of the area.

    The box has the area 1 - share of the image, with the share from Beta(`alpha`, `alpha`), the image's aspect and a centre
    anywhere, clipped to the image. Applied to a batch with probability `p`. Labels become `classes` numbers per row.
    """

    alpha: float = 1.0
    classes: int = 0
    p: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    def draw(self, uniforms: NDArray[np.float64], size: tuple[int, int]) -> Mixture:
        """The mixture of a batch of images of this height and width; its share is that of the pixels which stay."""
        height, width = size
        half = 0.5 * math.sqrt(1.0 - beta(self.alpha, uniforms[_BETA:]))
        half_width, half_height = int(half * width), int(half * height)
        x, y = (min(int(u * side), side - 1) for u, side in ((uniforms[_X], width), (uniforms[_Y], height)))
        left, right = max(0, x - half_width), min(width, x + half_width)
        top, bottom = max(0, y - half_height), min(height, y + half_height)
        return Mixture(1.0 - (right - left) * (bottom - top) / (width * height), (top, left, bottom, right))


Mixing = MixUp | CutMix


def draw(
    ops: Sequence[Mixing], seed: int, epoch: int, position: int, stream: int, size: tuple[int, int]
) -> tuple[Mixing, Mixture] | None:
    """What is done to the batch whose first row is at `position`: one of `ops`, each as likely; None where nothing is."""
    told = np.array([epoch & 0xFFFFFFFF], np.uint32), np.array([position], np.int64)
    uniforms = native.uniforms(seed & (1 << 64) - 1, *told, stream, _DRAWS)[0]
    op = ops[min(int(uniforms[_CHOOSE] * len(ops)), len(ops) - 1)]
    return (op, op.draw(uniforms, size)) if uniforms[_APPLY] < op.p else None


def beta(alpha: float, uniforms: NDArray[np.float64]) -> float:
    """A number from Beta(alpha, alpha), made of uniform numbers: by Joehnk's method up to 1, by Cheng's BB above."""
    values = uniforms.tolist()
    pairs = zip(values[::2], values[1::2])
    return next(_joehnk(alpha, pairs) if alpha <= 1 else _cheng(alpha, pairs), 0.5)


def _joehnk(alpha: float, pairs: Iterator[tuple[float, float]]) -> Iterator[float]:
    for u, v in pairs:
        # x = u^(1/alpha) and y = v^(1/alpha), taken when x + y <= 1. In logarithms: small alphas make both vanish.
        log_x, log_y = math.log(u) / alpha, math.log(v) / alpha
        most = max(log_x, log_y)
        x, y = math.exp(log_x - most), math.exp(log_y - most)
        if most + math.log(x + y) <= 0:
            yield x / (x + y)


def _cheng(alpha: float, pairs: Iterator[tuple[float, float]]) -> Iterator[float]:
    slope = 1 / math.sqrt(alpha)
    for u, v in pairs:
        logit = slope * math.log(u / (1 - u))
        w = alpha * math.exp(min(logit, 700.0))
        r = (alpha + 1 / slope) * logit - math.log(4)
        if r + 2 * alpha * math.log(2 * alpha / (alpha + w)) >= math.log(u * u * v):
            yield w / (alpha + w)


def _check(op: Any) -> None:
    if not checks.is_number(op.alpha) or not 0 < op.alpha <= 1e6:
        raise checks.wrong(op, "alpha", op.alpha, "a number above 0, at most 1,000,000")
    classes = checks.whole(op, "classes", op.classes, 1, _MOST_CLASSES, "the number of classes, an integer")
    checks.put(op, alpha=float(op.alpha), classes=classes, p=checks.probability(op))
