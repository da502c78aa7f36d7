"""Policies as data: which effects, how likely, how strong. `lower.py` hands them to the kernel as a table of choices.

Effects, magnitudes and probabilities are those of torchvision's RandAugment, TrivialAugmentWide and AutoAugment. What an effect
does is in ``stoker.h`` (``stk_augment_kind``); magnitudes here are final numbers: tangents, shares of a side, pixels, degrees,
differences of a factor from 1, bits, levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..kernel.native import Augment, AugmentKind, OpKind
from . import checks
from .autoaugment import POLICIES, Step
from .checks import put
from .operation import Lowered, RandomOperation

#: up to two effects, one after the other
Choice = tuple[Augment, Augment]
#: bins of magnitudes in AutoAugment's tables
AUTO_BINS = 10
#: one effect or two, one after the other: name, probability, bin
Line = Sequence[tuple[str, float, "int | None"]]
Lines = Sequence[Line]
_MOST_LINES = 1000

_IDENTITY = Augment(AugmentKind.IDENTITY)
_MOVES = (AugmentKind.TRANSLATE_X, AugmentKind.TRANSLATE_Y)
#: what RandAugment and TrivialAugment choose from; AutoAugment's tables name INVERT too
_EFFECTS = tuple(kind for kind in AugmentKind if kind != AugmentKind.INVERT)
#: effects whose sign is drawn
_MIRRORED = frozenset(range(AugmentKind.SHEAR_X, AugmentKind.SHARPNESS + 1))
#: effects that may be stronger or weaker
_STRONG = _MIRRORED | {AugmentKind.POSTERIZE, AugmentKind.SOLARIZE}
_NAMES = {kind.name.replace("_", "").lower(): kind for kind in AugmentKind}


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


class Policy(RandomOperation, ABC):
    """An operation that chooses among effects: `times` times one of `choices`, all equally likely."""

    __slots__ = ()

    @property
    def times(self) -> int:
        """How often one is chosen and applied."""
        return 1

    @abstractmethod
    def choices(self) -> tuple[Choice, ...]:
        """What is chosen from."""

    def lowered(self) -> Lowered:
        return ((OpKind.POLICY, (0, len(self.choices()), self.times)),)


@dataclass(frozen=True, slots=True, repr=False)
class RandAugment(Policy):
    """`n` times one of 14 effects, each equally likely, at bin `magnitude` of `bins`; signs are drawn.

    Pixels outside the image get the gray level `fill`.
    """

    n: int = 2
    magnitude: int = 9
    bins: int = 31
    fill: int = 0

    def check(self) -> None:
        put(self, n=checks.whole(self, "n", self.n, 0, 64), bins=checks.whole(self, "bins", self.bins, 2, 1000))
        put(self, magnitude=checks.whole(self, "magnitude", self.magnitude, 0, self.bins - 1))
        put(self, fill=checks.level(self, "fill", self.fill))

    @property
    def times(self) -> int:
        return self.n

    def choices(self) -> tuple[Choice, ...]:
        return _single(NARROW.effect(kind, self.magnitude, self.bins, self.fill) for kind in _EFFECTS)


@dataclass(frozen=True, slots=True, repr=False)
class TrivialAugment(Policy):
    """One of 14 effects at one of `bins` magnitudes, all equally likely; signs are drawn (TrivialAugmentWide).

    Pixels outside the image get the gray level `fill`.
    """

    bins: int = 31
    fill: int = 0

    def check(self) -> None:
        put(self, bins=checks.whole(self, "bins", self.bins, 2, 1000), fill=checks.level(self, "fill", self.fill))

    def choices(self) -> tuple[Choice, ...]:
        bins = range(self.bins)
        return _single(WIDE.effect(kind, bin, self.bins, self.fill) for kind in _EFFECTS for bin in bins)


@dataclass(frozen=True, slots=True, repr=False)
class AutoAugment(Policy):
    """One of 25 pairs of effects learned on a data set: ``"imagenet"``, ``"cifar10"`` or ``"svhn"``; or one of your own.

    Each effect of the pair happens with a probability of its own; signs are drawn. Pixels outside the image get the gray level
    `fill`. A policy of your own is a list of such pairs, or single effects, each (name, probability, bin of 0 to 9); the bin is
    None for effects without a strength.

    >>> AutoAugment([[("Posterize", 0.4, 8), ("Rotate", 0.6, 9)], [("Invert", 0.1, None)]]).policy[1]
    (('invert', 0.1, 0),)
    """

    policy: str | Lines = "imagenet"
    fill: int = 0

    def check(self) -> None:
        put(self, policy=self._checked(), fill=checks.level(self, "fill", self.fill))

    def choices(self) -> tuple[Choice, ...]:
        made = []
        for line in self._steps():
            effects = [NARROW.effect(kind, bin, AUTO_BINS, self.fill, chance) for kind, chance, bin in line]
            made.append((effects[0], effects[1] if len(effects) == 2 else _IDENTITY))
        return tuple(made)

    def _steps(self) -> Sequence[Sequence[Step]]:
        if isinstance(self.policy, str):
            return POLICIES[self.policy]
        return [[(AugmentKind[name.upper()], chance, bin or 0) for name, chance, bin in line] for line in self.policy]

    def _checked(self) -> str | Lines:
        """The policy in normal form."""
        if isinstance(self.policy, str):
            return checks.choice(self, "policy", self.policy, tuple(POLICIES))
        lines = checks.row_of(self.policy) or ()
        if not 1 <= len(lines) <= _MOST_LINES:
            known = ", ".join(map(repr, POLICIES))
            raise checks.wrong(self, "policy", self.policy, f"one of {known}, or a list of 1 to {_MOST_LINES:,} pairs of effects")
        return tuple(self._line(line) for line in lines)

    def _line(self, given: Any) -> Line:
        effects = checks.row_of(given) or ()
        if not 1 <= len(effects) <= 2:
            allowed = "one effect or two, each (name, probability, bin)"
            raise checks.wrong(self, "policy", self.policy, f"a policy, and {given!r} is not {allowed}")
        return tuple(self._effect(effect) for effect in effects)

    def _effect(self, given: Any) -> tuple[str, float, int]:
        name, chance, bin = (*(checks.row_of(given) or ()), None, None, None)[:3]
        kind = _kind(name)
        weak = kind not in _STRONG
        likely = checks.is_number(chance) and 0 <= chance <= 1
        strong = (weak and bin is None) or (checks.is_whole(bin) and 0 <= bin < AUTO_BINS)
        if kind is None or not likely or not strong or len(given) != 3:
            names = ", ".join(each.name.lower() for each in AugmentKind)
            allowed = f"(name, probability from 0 to 1, bin from 0 to {AUTO_BINS - 1}), with a name of {names}"
            raise checks.wrong(self, "policy", self.policy, f"a policy, and {given!r} is not an effect {allowed}")
        return kind.name.lower(), float(chance), 0 if weak else int(bin)


def _kind(name: Any) -> AugmentKind | None:
    """The effect of this name, however it is written: ``"ShearX"``, ``"shear_x"``, ``"shear-x"``."""
    return _NAMES.get(name.replace("_", "").replace("-", "").lower()) if isinstance(name, str) else None


def _single(effects: Iterable[Augment]) -> tuple[Choice, ...]:
    return tuple((effect, _IDENTITY) for effect in effects)
