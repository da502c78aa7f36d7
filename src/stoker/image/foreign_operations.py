"""Image operations of other libraries and their equivalents here: for names imported from the wrong place, for objects passed to
`image(...)`, and for transforms that Stoker replaces (`stoker.torch`). No other library is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, NamedTuple

from .colour import (
    AutoContrast,
    ColorJitter,
    Equalize,
    GaussianBlur,
    Grayscale,
    Invert,
    Posterize,
    Sharpness,
    Solarize,
)
from .erase import Cutout, RandomErasing
from .geometry import Affine, CenterCrop, HorizontalFlip, Pad, RandomCrop, RandomResizedCrop, Resize, Rotate, VerticalFlip
from .normalize import Normalize, ToFloat
from .operation import Operation
from .policies import AutoAugment, RandAugment, TrivialAugment


class Pixels(IntEnum):
    """What a transform of torchvision's works on; a recipe goes from one to a later one."""

    PICTURE = 0  # an image of Pillow's
    BYTES = 1  # a tensor of uint8
    FLOATS = 2  # a tensor of floats from 0 to 1
    NORMALIZED = 3


class Ours(NamedTuple):
    """What does the same: an operation, an argument of `image(...)`, or both; neither where there is nothing to do.

    `takes` names the parameters of the other one that ours is made with, in order: ``"size"``, by name ``"pad=padding"``, or a
    text in quotes. `only` tests parameters of the other one: where one fails, ours would do something else, and `otherwise` is
    what comes nearest. With ``same=False`` it is what to write instead, and gives other pixels.

    It is the same on the pixels `since` to `until`, which are then at least `becomes`. `there` has tests of further parameters,
    by the pixels from which on they matter.
    """

    operation: type[Operation] | None = None
    takes: str = ""
    option: str = ""
    note: str = ""
    only: Mapping[str, Callable[[Any], bool]] = {}
    otherwise: Ours | None = None
    same: bool = True
    since: Pixels = Pixels.PICTURE
    until: Pixels = Pixels.BYTES
    becomes: Pixels = Pixels.PICTURE
    there: Mapping[Pixels, Mapping[str, Callable[[Any], bool]]] = {}


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values or str(value) in values


def _is_level(value: Any) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value <= 255)


def _is_colour(value: Any) -> bool:
    return _is_level(value) or (isinstance(value, tuple) and len(value) == 3 and all(map(_is_level, value)))


#: arguments of `image`
GRAY, PLANES = "color='gray'", "layout='chw'"
_NONE = _one_of(None)
_ZERO = _one_of(None, 0)
#: levels of 255 here, and shares of one there
_BLACK = {Pixels.FLOATS: {"fill": _ZERO}}
_BORDER = _one_of("constant", "edge", "reflect")
_BILINEAR = "interpolation is bilinear"
_BEFORE = "it comes before Normalize, so the value 0 is black and not the mean"
_WARPED = {"fill": _is_level, "center": _NONE, "expand": _one_of(False)}
_SQUARE = {"kernel_size": lambda size: not isinstance(size, tuple)}


def _scaled(operation: type[Operation], takes: str, **only: Callable[[Any], bool]) -> Ours:
    """One that resizes: Pillow always smooths what it shrinks, tensors are smoothed with `antialias`."""
    only = {"interpolation": _one_of("bilinear", 2), "antialias": _one_of(True, None, "warn"), **only}
    return Ours(operation, takes, only=only, until=Pixels.FLOATS, there={Pixels.BYTES: {"antialias": _one_of(True)}})


def _warped(operation: type[Operation], takes: str, until: Pixels = Pixels.FLOATS) -> Ours:
    """One that turns or shears: bilinear here, where torchvision's default is the nearest pixel."""
    other = Ours(operation, takes, note=_BILINEAR, only={"interpolation": _one_of("nearest", 0), **_WARPED}, same=False)
    only = {"interpolation": _one_of("bilinear", 2), **_WARPED}
    return Ours(operation, takes, note=_BILINEAR, only=only, otherwise=other, until=until, there=_BLACK)


def _nearly(operation: type[Operation], takes: str, note: str = "") -> Ours:
    """What to write for something of another library that is not quite the same."""
    return Ours(operation, takes, note=note, same=False)


_FLIPS = _nearly(HorizontalFlip, "p", "VerticalFlip for the other axis")
_CUTOUT = _nearly(Cutout, "size")
_FLOAT = Ours(
    ToFloat,
    only={"dtype": _one_of("torch.float32"), "scale": _one_of(True)},
    otherwise=Ours(only={"dtype": _one_of("torch.uint8")}, since=Pixels.BYTES),  # as pixels are already
    since=Pixels.BYTES,
    until=Pixels.FLOATS,
    becomes=Pixels.FLOATS,
)

_NAMES = {
    "AutoAugment": _warped(AutoAugment, "policy fill=fill", Pixels.BYTES),
    "CenterCrop": Ours(CenterCrop, "size", until=Pixels.FLOATS),
    "CoarseDropout": _CUTOUT,
    "ColorJiggle": _nearly(ColorJitter, "brightness contrast saturation hue"),
    "ColorJitter": Ours(
        ColorJitter, "brightness=brightness contrast=contrast saturation=saturation hue=hue", until=Pixels.FLOATS
    ),
    "ConvertImageDtype": _FLOAT,
    "CutOut": _CUTOUT,
    "Flip": _FLIPS,
    "GaussianBlur": Ours(GaussianBlur, "kernel_size sigma", only=_SQUARE, until=Pixels.FLOATS),
    "Grayscale": Ours(
        option=GRAY,
        only={"num_output_channels": _one_of(1)},
        otherwise=Ours(Grayscale, until=Pixels.FLOATS),
        until=Pixels.FLOATS,
    ),
    "HFlip": _nearly(HorizontalFlip, "p"),
    "Identity": Ours(until=Pixels.NORMALIZED),
    "Normalize": Ours(Normalize, "mean std", since=Pixels.FLOATS, until=Pixels.FLOATS, becomes=Pixels.NORMALIZED),
    "PILToTensor": Ours(option=PLANES, until=Pixels.PICTURE, becomes=Pixels.BYTES),
    "Pad": Ours(
        Pad,
        "padding padding_mode fill=fill",
        only={"padding_mode": _BORDER, "fill": _is_colour},
        until=Pixels.FLOATS,
        there=_BLACK,
    ),
    "RandAugment": _warped(RandAugment, "num_ops magnitude num_magnitude_bins fill=fill", Pixels.BYTES),
    "RandomAdjustSharpness": Ours(Sharpness, "sharpness_factor p", until=Pixels.FLOATS),
    "RandomAffine": _warped(Affine, "degrees translate=translate scale=scale shear=shear fill=fill"),
    "RandomAutocontrast": Ours(AutoContrast, "p"),
    "RandomBrightnessContrast": _nearly(ColorJitter, "brightness contrast"),
    "RandomCrop": Ours(
        RandomCrop,
        "size pad=padding pad_mode=padding_mode",
        only={"padding_mode": _BORDER, "pad_if_needed": _one_of(False), "fill": _ZERO},
        until=Pixels.NORMALIZED,
        there={Pixels.NORMALIZED: {"padding": _ZERO}},
    ),
    "RandomCutout": _CUTOUT,
    "RandomEqualize": Ours(Equalize, "p"),
    "RandomErasing": Ours(
        RandomErasing,
        "p scale ratio",
        note=_BEFORE,
        only={"value": _one_of(0)},
        otherwise=Ours(
            RandomErasing, "p scale ratio 'random'", note=_BEFORE, only={"value": _one_of(None, "random")}, same=False
        ),
        since=Pixels.BYTES,
        until=Pixels.NORMALIZED,
    ),
    "RandomFlip": _FLIPS,
    "RandomGrayscale": Ours(Grayscale, "p", until=Pixels.FLOATS),
    "RandomHorizontalFlip": Ours(HorizontalFlip, "p", until=Pixels.NORMALIZED),
    "RandomInvert": Ours(Invert, "p", until=Pixels.FLOATS),
    "RandomPosterize": Ours(Posterize, "bits p"),
    "RandomResizedCrop": _scaled(RandomResizedCrop, "size scale ratio"),
    "RandomRotation": _warped(Rotate, "degrees fill=fill"),
    "RandomSolarize": Ours(Solarize, "threshold p", note="the threshold is a level from 0 to 255"),
    "RandomVerticalFlip": Ours(VerticalFlip, "p", until=Pixels.NORMALIZED),
    "Resize": _scaled(Resize, "size", max_size=_NONE),
    "SmallestMaxSize": _nearly(Resize, "max_size"),
    "ToDtype": _FLOAT,
    "ToImage": Ours(option=PLANES, until=Pixels.NORMALIZED, becomes=Pixels.BYTES),
    "ToPureTensor": Ours(since=Pixels.BYTES, until=Pixels.NORMALIZED),
    "ToTensor": Ours(ToFloat, option=PLANES, until=Pixels.PICTURE, becomes=Pixels.FLOATS),
    "ToTensorV2": Ours(option=PLANES, same=False),
    "TrivialAugmentWide": _warped(TrivialAugment, "num_magnitude_bins fill=fill", Pixels.BYTES),
    "VFlip": _nearly(VerticalFlip, "p"),
}
#: operations over whole batches
_BLENDS = {"CutMix": "CutMix", "Cutmix": "CutMix", "MixUp": "MixUp", "Mixup": "MixUp"}
_LISTS = ("Compose", "Sequential")
_LIBRARIES = ("albumentations", "kornia", "torchvision")


def unknown_operation(module: str, name: str, known: Iterable[str]) -> Exception:
    """The error for a name that a module of operations does not have; to be raised by its `__getattr__`.

    ``from stoker.image import X`` replaces the text of an AttributeError by its own, so there it is an ImportError; `hasattr` and
    `getattr` must get an AttributeError.
    """
    close = get_close_matches(name, known, 1)
    if name in _NAMES:
        advice = f"use {_written([_NAMES[name]], [None])}"
    elif name in _BLENDS:
        advice = _blend_advice(name)
    elif name in _LISTS:
        advice = "operations are passed separately: image(field, Resize(224), HorizontalFlip())"
    elif close:
        advice = f"did you mean {close[0]}?"
    else:
        advice = "use .decode(field) and .map(field=fn) for a function"
    importing = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
    return (ImportError if importing else AttributeError)(f"{module} has no {name}; {advice}")


def instead_of(op: Any, field: str) -> str:
    """What to write for something that is given to `image(field, ...)` and is not an operation."""
    if isinstance(op, type) and issubclass(op, Operation):
        return f"that is its class: write {op.__name__}(...)"
    if isinstance(op, (list, tuple)):
        return "pass several separately: image(field, *ops)"
    if not callable(op):
        return f"pass operations, as in image({field!r}, RandomResizedCrop(224), HorizontalFlip())"
    library, name = _class_of(op).__module__.partition(".")[0], _class_of(op).__name__
    if library not in _LIBRARIES:
        return f"use .decode({field!r}) and .map({field}=fn) for a function"
    if name in _BLENDS:
        return f"it is {library}'s; {_blend_advice(name)}"
    parts = _parts(op)
    ours = [counterpart(part, same=False) for part in parts]
    if None in ours:
        return (
            f"it is {library}'s, and {shown(parts[ours.index(None)], same=False)} has no counterpart here: "
            f"use .decode({field!r}, format='pil') and .map({field}=transform)"
        )
    found = [one for one in ours if one is not None]
    return f"it is {library}'s; from stoker.image, use {_written(found, parts, repr(field))}"


def counterpart(op: Any, same: bool = True) -> Ours | None:
    """What does the same as an operation of another library, or what to write for it; None where there is nothing."""
    return next((ours for ours in _alternatives(op, same) if not _odd(ours, op)), None)


def shown(op: Any, same: bool = True) -> str:
    """An operation's name, and the parameters that it has no counterpart for."""
    name = _class_of(op).__name__
    odd = min((_odd(ours, op) for ours in _alternatives(op, same)), key=len, default=[])
    return with_parameters(op, odd) if odd else name


def with_parameters(op: Any, names: Iterable[str]) -> str:
    """An operation's name, and some of its parameters."""
    return f"{_class_of(op).__name__}({', '.join(f'{name}={parameter(op, name)!r}' for name in names)})"


def made_like(ours: Ours, op: Any) -> Operation | None:
    """Our operation with the other one's parameters; raises `ConfigError` where ours does not take one of them."""
    if ours.operation is None:
        return None
    args = _arguments(ours, op)
    return ours.operation(*(value for name, value in args if not name), **{name: value for name, value in args if name})


def _parts(op: Any) -> list[Any]:
    """The transforms in a list of transforms, nested ones included; of a single one, itself."""
    if _class_of(op).__name__ not in _LISTS:
        return [op]
    return [part for inner in getattr(op, "transforms", ()) for part in _parts(inner)]


def _alternatives(op: Any, same: bool) -> Iterator[Ours]:
    ours = _NAMES.get(_class_of(op).__name__)
    while ours is not None:
        if ours.same or not same:
            yield ours
        ours = ours.otherwise


def _odd(ours: Ours, op: Any) -> list[str]:
    """The parameters that would be lost."""
    return [name for name, test in ours.only.items() if _has(op, name) and not test(parameter(op, name))]


def _class_of(op: Any) -> type:
    return op if isinstance(op, type) else type(op)


def _blend_advice(name: str) -> str:
    return f"use .blend({_BLENDS[name]}(alpha, classes=...)) after batch(), from stoker.image"


def _written(ours: Sequence[Ours], others: Sequence[Any], field: str = "field") -> str:
    """A call of `image` with these operations, and the parameters of the other ones; those of a class, or of None, by name."""
    pairs = [(one, _call(one, other)) for one, other in zip(ours, others) if one.operation is not None]
    calls = [call for one, call in pairs if one.operation not in (ToFloat, Normalize)]
    floats = list(dict.fromkeys(call for one, call in pairs if one.operation in (ToFloat, Normalize)))  # done last here
    if len(floats) > 1:
        floats = [call for call in floats if call != "ToFloat()"]  # Normalize gives floats already
    options = dict.fromkeys(one.option for one in ours if one.option)
    notes = "; ".join(dict.fromkeys(one.note for one in ours if one.note))
    return f"image({', '.join([field, *calls, *floats, *options])}){f' ({notes})' if notes else ''}"


def _call(ours: Ours, op: Any) -> str:
    """Our operation, as it is written with the other one's parameters."""
    assert ours.operation is not None
    args = [(name, value) for name, value in _arguments(ours, op) if (name, value) != ("fill", 0)]
    return f"{ours.operation.__name__}({', '.join(f'{name}={value!r}' if name else repr(value) for name, value in args)})"


def _arguments(ours: Ours, op: Any) -> list[tuple[str, Any]]:
    """The arguments of our operation, by name or, with an empty name, by position; named ones that are None are left out."""
    made: list[tuple[str, Any]] = []
    for each in ours.takes.split():
        name, _, other = each.rpartition("=")
        value = other[1:-1] if other.startswith("'") else parameter(op, other) if _has(op, other) else _Named(other)
        if not name or value is not None:
            made.append((name, value))
    return made


class _Named(str):
    """A parameter whose value is not known: it is written as its name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _has(op: Any, name: str) -> bool:
    """Whether it is an operation, not just its class, and has such a parameter."""
    return op is not None and not isinstance(op, type) and hasattr(op, name)


def parameter(op: Any, name: str) -> Any:
    """A parameter as it is written here: numbers, texts, and tuples of several."""
    value = getattr(op, name)
    value = getattr(value, "value", value)  # of an enumeration
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, (list, tuple)):
        return value
    if name == "padding" and _is_v2(op) and len(value) == 4 and _class_of(op).__name__ == "RandomCrop":
        left, right, top, bottom = value  # as its v2 keeps them
        return (left, top, right, bottom)
    same = name == "kernel_size" and len(set(value)) == 1  # kernels are square here
    return value[0] if len(value) == 1 or same else tuple(value)


def _is_v2(op: Any) -> bool:
    return _class_of(op).__module__.startswith("torchvision.transforms.v2")
