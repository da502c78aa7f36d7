"""torchvision's transforms as operations of the kernel, where they give the same pixels, or the same distribution of them.

What counts as the same is in the table of `image/foreign_operations.py`. Operations here work on 8 bits, and floats are made in
the last write; so a transform after `ToTensor` is lowered only where it gives the same on floats and on bytes, within a level. No
other library is imported: where there is a transform that can be lowered, its library is there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..image import (
    CenterCrop,
    Grayscale,
    HorizontalFlip,
    Normalize,
    Operation,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    ToFloat,
    VerticalFlip,
)
from ..image.foreign_operations import GRAY, Ours, Pixels, counterpart, made_like, parameter, shown, with_parameters
from ..image.lower import lower


class NotLowered(NamedTuple):
    """Something stays as it is; `why` is a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a list of transforms does, as one image stage: equal recipes do equal things.

    `channels` is what an image has in the end, 1 or 3; until then it has three.
    """

    ops: tuple[Operation, ...]
    out: str
    channels: int
    notes: tuple[str, ...] = field(compare=False)


#: torchvision's own, and of torch itself a list of transforms, and nothing to do
_KNOWN = ("torchvision.transforms.", "torch.nn.modules.container.Sequential", "torch.nn.modules.linear.Identity")
_LISTS = ("Compose", "Sequential")
#: what an instance may have of its own, so that it does something else than its class says
_METHODS = ("forward", "get_params", "make_params", "transform")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_RESIZES = (Resize, RandomResizedCrop)
_PAUSE = Pad(0)
_ON = {
    Pixels.PICTURE: "on a Pillow image",
    Pixels.BYTES: "on a tensor of uint8",
    Pixels.FLOATS: "on a tensor of floats",
    Pixels.NORMALIZED: "after Normalize",
}


def lower_transforms(transform: Any) -> Recipe | NotLowered:
    """The recipe of a transform, or of a list of them, that is given images of Pillow's; or why there is none."""
    try:
        return _Lowering().lowered(transform)
    except _NoCounterpart as error:
        return NotLowered(str(error))
    except ConfigError as error:  # a parameter that the operation here does not take
        return NotLowered(f"its transforms have a counterpart in stoker.image that does not take their parameters: {error}")


class _NoCounterpart(Exception):
    """Why a transform is not lowered."""

    def __init__(self, what: str, why: str = "has no counterpart in stoker.image") -> None:
        super().__init__(f"{what} {why}")


class _Lowering:
    """A list of transforms on its way to a recipe: the operations so far, and what pixels are by then."""

    def __init__(self) -> None:
        self._ops: list[Operation] = []
        self._normalize: Normalize | None = None
        self._pixels = Pixels.PICTURE
        self._channels = 3
        self._notes: list[str] = []

    def lowered(self, transform: Any) -> Recipe:
        for each in () if transform is None else _flat(transform):
            self._add(each)
        if self._pixels is Pixels.PICTURE:
            raise _NoCounterpart("its items", "are Pillow images, which torch cannot join into batches")
        ops = tuple(_separated(self._ops))
        ops = ops if self._normalize is None else (*ops, self._normalize)
        out = "uint8" if self._pixels is Pixels.BYTES else "float32"
        lower(ops, layout="chw", out=out)  # raises where one stage does not hold them all
        return Recipe(ops, out, self._channels, tuple(self._notes))

    def _add(self, op: Any) -> None:
        often = 1.0
        if type(op).__name__ == "RandomApply":
            op, often = _only_one(op), float(op.p)
        ours = counterpart(op)
        if ours is None:
            raise _NoCounterpart(shown(op))
        self._check_pixels(ours, op)
        made = Grayscale() if ours.option == GRAY else made_like(ours, op)
        if often < 1:
            chance: Any = made  # one of the operations that have a probability
            if ours.option or not hasattr(chance, "p"):
                raise _NoCounterpart(f"RandomApply of {type(op).__name__}")
            made = replace(chance, p=chance.p * often)
        if type(op).__name__ == "Grayscale":
            self._channels = parameter(op, "num_output_channels")
        if isinstance(made, Normalize):
            if self._channels == 1 and max(map(len, made.channels)) > 1:
                raise _NoCounterpart(with_parameters(op, ("mean", "std")), "does not fit images of one channel")
            self._normalize = made
        elif made is not None and not isinstance(made, ToFloat):
            made = self._as_levels(made)
            self._ops.append(made)
        self._pixels = max(self._pixels, ours.becomes)
        self._notes.append(f"{type(op).__name__}: {_in_words(made, self._channels, self._pixels)}")

    def _check_pixels(self, ours: Ours, op: Any) -> None:
        where = _ON[self._pixels]
        if not ours.since <= self._pixels <= ours.until:
            raise _NoCounterpart(f"{type(op).__name__} {where}")
        tests = {name: test for since, group in ours.there.items() if self._pixels >= since for name, test in group.items()}
        odd = [name for name, test in tests.items() if not test(parameter(op, name))]
        if odd:
            raise _NoCounterpart(f"{with_parameters(op, odd)} {where}")

    def _as_levels(self, made: Operation) -> Operation:
        """What is erased after Normalize becomes 0, which is the mean; here it is erased before, in the level next to that."""
        if self._normalize is None or not isinstance(made, RandomErasing):
            return made
        mean = self._normalize.channels[0]
        if not all(0 <= each <= 1 for each in mean):
            raise _NoCounterpart(f"RandomErasing after {self._normalize}")
        levels = [round(255 * each) for each in mean]
        return replace(made, value=(levels[0], levels[1], levels[2]) if len(levels) == 3 else levels[0])


def _flat(op: Any) -> Iterator[Any]:
    """The transforms in lists of transforms, each of which is exactly what its class says."""
    name = f"{type(op).__module__}.{type(op).__qualname__}"
    if not name.startswith(_KNOWN):  # nor one that is derived from those
        told = getattr(op, "__name__", type(op).__name__)
        raise _NoCounterpart(told, "is not one of torchvision's transforms, so what it does is not known")
    own = vars(op)
    if any(each in own for each in _METHODS) or any(own.get(each) for each in _HOOKS):
        raise _NoCounterpart(type(op).__name__, "has overridden methods or hooks, so what it does is not known")
    if type(op).__name__ not in _LISTS:
        yield op
        return
    for inner in op.transforms if hasattr(op, "transforms") else op:
        yield from _flat(inner)


def _only_one(op: Any) -> Any:
    """The transform that is applied now and then."""
    inner = [part for each in op.transforms for part in _flat(each)]
    if len(inner) != 1:
        raise _NoCounterpart(f"RandomApply of {len(inner)} transforms together")
    return inner[0]


def _separated(ops: Sequence[Operation]) -> Iterator[Operation]:
    """The operations with a pause before a resize of what was resized, or may have been padded by a crop.

    Without it they were one resampling, which gives sharper pixels than two, and fails on images that are smaller than the crop.
    Padding by nothing ends a resampling: from there on operations work on finished pixels.
    """
    before: Operation | None = None
    for op in ops:
        if isinstance(op, _RESIZES) and before is not None:
            yield _PAUSE
            before = None
        if isinstance(op, (*_RESIZES, CenterCrop)):
            before = op
        elif not isinstance(op, (RandomCrop, HorizontalFlip, VerticalFlip)):
            before = None
        yield op


def _in_words(made: Operation | None, channels: int, pixels: Pixels) -> str:
    """What became of a transform."""
    if isinstance(made, Grayscale) and channels == 1:
        return f"{made}, of which one channel is kept"
    if made is not None and not isinstance(made, ToFloat):
        return str(made)
    return "floats in the last write" if pixels >= Pixels.FLOATS else "nothing to do"
