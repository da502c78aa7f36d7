"""Policies as data: which effects, how likely, how strong. `lower.py` hands them to the kernel as a table of choices.

Effects, magnitudes and probabilities are those of torchvision's RandAugment, TrivialAugmentWide and AutoAugment. What an effect
does is in ``stoker.h`` (``stk_augment_kind``); magnitudes here are final numbers: tangents, shares of a side, pixels, degrees,
differences of a factor from 1, bits, levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from ..kernel.native import Augment, AugmentKind
from . import checks
from .autoaugment import POLICIES
from .checks import put
from .operation import Operation

#: up to two effects, one after the other
Choice = tuple[Augment, Augment]
#: bins of magnitudes in AutoAugment's tables
AUTO_BINS = 10

_IDENTITY = Augment(AugmentKind.IDENTITY)
_MOVES = (AugmentKind.TRANSLATE_X, AugmentKind.TRANSLATE_Y)
#: what RandAugment and TrivialAugment choose from; AutoAugment's tables name INVERT too
_EFFECTS = tuple(kind for kind in AugmentKind if kind != AugmentKind.INVERT)
#: effects whose sign is drawn
_MIRRORED = frozenset(range(AugmentKind.SHEAR_X, AugmentKind.SHARPNESS + 1))


@dataclass(frozen=True, slots=True)
class Space:
    """The strongest magnitude of each effect; bin b of n has the share b / (n - 1) of it."""

    shear: float
    translate: float
    rotate: float
    factor: float
    bits: int
    relative: bool

    def magnitude(self, kind: int, bin: int, bins: int) -> float:
        """How strong an effect is in bin `bin` of `bins`."""
        share = bin / (bins - 1)
        if kind in (AugmentKind.SHEAR_X, AugmentKind.SHEAR_Y):
            return self.shear * share
        if kind in _MOVES:
            return self.translate * share if self.relative else float(int(self.translate * share))
        if kind == AugmentKind.ROTATE:
            return self.rotate * share
        if kind == AugmentKind.POSTERIZE:
            return float(round(8 - self.bits * share))
        if kind == AugmentKind.SOLARIZE:
            return 255 * (bins - 1 - bin) / (bins - 1)  # whole numbers stay whole: a level is inverted from there on
        return self.factor * share if kind in _MIRRORED else 0.0

    def effect(self, kind: int, bin: int, bins: int, fill: int, probability: float = 1.0) -> Augment:
        """One effect as the kernel takes it."""
        relative = self.relative and kind in _MOVES
        return Augment(int(kind), kind in _MIRRORED, relative, fill, probability, self.magnitude(kind, bin, bins))


#: RandAugment's and AutoAugment's
NARROW = Space(shear=0.3, translate=150 / 331, rotate=30, factor=0.9, bits=4, relative=True)
#: TrivialAugmentWide's
WIDE = Space(shear=0.99, translate=32, rotate=135, factor=0.99, bits=6, relative=False)


class Policy(Operation, ABC):
    """An operation that chooses among effects: `times` times one of `choices`, all equally likely."""

    __slots__ = ()

    @property
    def times(self) -> int:
        """How often one is chosen and applied."""
        return 1

    @abstractmethod
    def choices(self) -> tuple[Choice, ...]:
        """What is chosen from."""


@dataclass(frozen=True, slots=True)
class RandAugment(Policy):
    """`n` times one of 14 effects, each equally likely, at bin `magnitude` of `bins`; signs are drawn.

    What comes in from outside has the gray level `fill`.
    """

    n: int = 2
    magnitude: int = 9
    bins: int = 31
    fill: int = 0

    def __post_init__(self) -> None:
        put(self, n=checks.whole(self, "n", self.n, 0, 64), bins=checks.whole(self, "bins", self.bins, 2, 1000))
        put(self, magnitude=checks.whole(self, "magnitude", self.magnitude, 0, self.bins - 1))
        put(self, fill=checks.level(self, "fill", self.fill))

    @property
    def times(self) -> int:
        return self.n

    def choices(self) -> tuple[Choice, ...]:
        return _single(NARROW.effect(kind, self.magnitude, self.bins, self.fill) for kind in _EFFECTS)


@dataclass(frozen=True, slots=True)
class TrivialAugment(Policy):
    """One of 14 effects at one of `bins` magnitudes, all equally likely; signs are drawn (TrivialAugmentWide).

    What comes in from outside has the gray level `fill`.
    """

    bins: int = 31
    fill: int = 0

    def __post_init__(self) -> None:
        put(self, bins=checks.whole(self, "bins", self.bins, 2, 1000), fill=checks.level(self, "fill", self.fill))

    def choices(self) -> tuple[Choice, ...]:
        bins = range(self.bins)
        return _single(WIDE.effect(kind, bin, self.bins, self.fill) for kind in _EFFECTS for bin in bins)


@dataclass(frozen=True, slots=True)
class AutoAugment(Policy):
    """One of 25 pairs of effects learned on a data set: ``"imagenet"``, ``"cifar10"`` or ``"svhn"``.

    Each effect of the pair happens with a probability of its own; signs are drawn. What comes in from outside has the gray
    level `fill`.
    """

    policy: str = "imagenet"
    fill: int = 0

    def __post_init__(self) -> None:
        checks.choice(self, "policy", self.policy, tuple(POLICIES))
        put(self, fill=checks.level(self, "fill", self.fill))

    def choices(self) -> tuple[Choice, ...]:
        made = []
        for pair in POLICIES[self.policy]:
            first, second = (NARROW.effect(kind, bin, AUTO_BINS, self.fill, chance) for kind, chance, bin in pair)
            made.append((first, second))
        return tuple(made)


def _single(effects: Iterable[Augment]) -> tuple[Choice, ...]:
    return tuple((effect, _IDENTITY) for effect in effects)
