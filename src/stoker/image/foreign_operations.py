"""Image operations of other libraries, and what to write here: names that are imported from the wrong place, and objects that are
given to `image(...)`. No other library is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from .operation import Operation


class Ours(NamedTuple):
    """What to write: an operation, an argument of `image(...)`, or both. `{p}` stands for the parameter `p` of the other one.

    `only` tests parameters of the other one: where one fails, the call would do something else, and `otherwise` is to be written.
    """

    call: str
    option: str = ""
    note: str = ""
    only: Mapping[str, Callable[[Any], bool]] = {}
    otherwise: Ours | None = None


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values or str(value) in values


def _is_level(value: Any) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value <= 255)


def _is_colour(value: Any) -> bool:
    return _is_level(value) or (isinstance(value, tuple) and len(value) == 3 and all(map(_is_level, value)))


_FLIPS = Ours("HorizontalFlip({p})", note="VerticalFlip for the other axis")
_FIRST = Ours("", "layout='chw'")
_CUTOUT = Ours("Cutout(size)")
_NONE = _one_of(None)
_BORDER = _one_of("constant", "edge", "reflect")
_SCALED = {"interpolation": _one_of("bilinear"), "antialias": _one_of(True, None, "warn")}
_WARPED = {"interpolation": _one_of("bilinear", "nearest"), "fill": _is_level, "center": _NONE, "expand": _one_of(False)}
_BILINEAR = "interpolation is bilinear"
_BEFORE = "it comes before Normalize, so the value 0 is black and not the mean"
_FLOAT = Ours(
    "ToFloat()",
    only={"dtype": _one_of("torch.float32"), "scale": _one_of(True)},
    otherwise=Ours("", only={"dtype": _one_of("torch.uint8")}),  # as pixels are already
)

_NAMES = {
    "AutoAugment": Ours("AutoAugment({policy}, fill={fill})", note=_BILINEAR, only=_WARPED),
    "CenterCrop": Ours("CenterCrop({size})"),
    "CoarseDropout": _CUTOUT,
    "ColorJiggle": Ours("ColorJitter(brightness, contrast, saturation, hue)"),
    "ColorJitter": Ours("ColorJitter(brightness={brightness}, contrast={contrast}, saturation={saturation}, hue={hue})"),
    "ConvertImageDtype": _FLOAT,
    "CutOut": _CUTOUT,
    "Flip": _FLIPS,
    "GaussianBlur": Ours("GaussianBlur({kernel_size}, {sigma})", only={"kernel_size": lambda size: not isinstance(size, tuple)}),
    "Grayscale": Ours(
        "",
        "color='gray'",
        only={"num_output_channels": _one_of(1)},
        otherwise=Ours("Grayscale()"),
    ),
    "HFlip": Ours("HorizontalFlip({p})"),
    "Normalize": Ours("Normalize({mean}, {std})"),
    "PILToTensor": _FIRST,
    "Pad": Ours("Pad({padding}, {padding_mode}, fill={fill})", only={"padding_mode": _BORDER, "fill": _is_colour}),
    "RandAugment": Ours("RandAugment({num_ops}, {magnitude}, {num_magnitude_bins}, fill={fill})", note=_BILINEAR, only=_WARPED),
    "RandomAdjustSharpness": Ours("Sharpness({sharpness_factor}, {p})"),
    "RandomAffine": Ours(
        "Affine({degrees}, translate={translate}, scale={scale}, shear={shear}, fill={fill})", note=_BILINEAR, only=_WARPED
    ),
    "RandomAutocontrast": Ours("AutoContrast({p})"),
    "RandomBrightnessContrast": Ours("ColorJitter(brightness, contrast)"),
    "RandomCrop": Ours(
        "RandomCrop({size}, pad={padding}, pad_mode={padding_mode})",
        only={"padding_mode": _BORDER, "pad_if_needed": _one_of(False), "fill": _one_of(0, None)},
    ),
    "RandomCutout": _CUTOUT,
    "RandomEqualize": Ours("Equalize({p})"),
    "RandomErasing": Ours(
        "RandomErasing({p}, {scale}, {ratio})",
        note=_BEFORE,
        only={"value": _one_of(0)},
        otherwise=Ours("RandomErasing({p}, {scale}, {ratio}, 'random')", only={"value": _one_of(None, "random")}),
    ),
    "RandomFlip": _FLIPS,
    "RandomGrayscale": Ours("Grayscale({p})"),
    "RandomHorizontalFlip": Ours("HorizontalFlip({p})"),
    "RandomInvert": Ours("Invert({p})"),
    "RandomPosterize": Ours("Posterize({bits}, {p})"),
    "RandomResizedCrop": Ours("RandomResizedCrop({size}, {scale}, {ratio})", only=_SCALED),
    "RandomRotation": Ours("Rotate({degrees}, fill={fill})", note=_BILINEAR, only=_WARPED),
    "RandomSolarize": Ours("Solarize({threshold}, {p})", note="the threshold is a level from 0 to 255"),
    "RandomVerticalFlip": Ours("VerticalFlip({p})"),
    "Resize": Ours("Resize({size})", only={**_SCALED, "max_size": _NONE}),
    "SmallestMaxSize": Ours("Resize({max_size})"),
    "ToDtype": _FLOAT,
    "ToImage": _FIRST,
    "ToTensor": Ours("ToFloat()", "layout='chw'"),
    "ToTensorV2": _FIRST,
    "TrivialAugmentWide": Ours("TrivialAugment({num_magnitude_bins}, fill={fill})", note=_BILINEAR, only=_WARPED),
    "VFlip": Ours("VerticalFlip({p})"),
}
#: operations over whole batches
_BLENDS = {"CutMix": "CutMix", "Cutmix": "CutMix", "MixUp": "MixUp", "Mixup": "MixUp"}
_LISTS = ("Compose", "Sequential")
_UNSET = re.compile(r"\b\w+=None, |, \w+=None\b|, fill=0\b")
#: what makes floats, which is done last here
_FLOATS = ("ToFloat(", "Normalize(")
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
        advice = "operations are given one by one: image(field, Resize(224), HorizontalFlip())"
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
        return "give several one by one: image(field, *ops)"
    library, name = _class_of(op).__module__.partition(".")[0], _class_of(op).__name__
    if library not in _LIBRARIES:
        return f"use .decode({field!r}) and .map({field}=fn) for a function"
    if name in _BLENDS:
        return f"it is {library}'s; {_blend_advice(name)}"
    parts = _parts(op)
    ours = [_counterpart(part) for part in parts]
    if None in ours:
        return (
            f"it is {library}'s, and {_shown(parts[ours.index(None)])} has no counterpart here: "
            f"use .decode({field!r}, format='pil') and .map({field}=transform)"
        )
    found = [one for one in ours if one is not None]
    return f"it is {library}'s; from stoker.image, use {_written(found, parts, repr(field))}"


def _counterpart(op: Any) -> Ours | None:
    """What to write for an operation; None where nothing here does the same."""
    ours = _NAMES.get(_class_of(op).__name__)
    while ours is not None and _odd(ours, op):
        ours = ours.otherwise
    return ours


def _odd(ours: Ours, op: Any) -> list[str]:
    """The parameters that would be lost."""
    return [name for name, test in ours.only.items() if _has(op, name) and not test(_parameter(op, name))]


def _shown(op: Any) -> str:
    """An operation's name, and the parameters it has no counterpart for."""
    name = _class_of(op).__name__
    odd = _odd(_NAMES[name], op) if name in _NAMES else []
    return f"{name}({', '.join(f'{each}={_parameter(op, each)!r}' for each in odd)})" if odd else name


def _parts(op: Any) -> list[Any]:
    """The transforms in a list of transforms, nested ones included; of a single one, itself."""
    if _class_of(op).__name__ not in _LISTS:
        return [op]
    return [part for inner in getattr(op, "transforms", ()) for part in _parts(inner)]


def _class_of(op: Any) -> type:
    return op if isinstance(op, type) else type(op)


def _blend_advice(name: str) -> str:
    return f"use .blend({_BLENDS[name]}(alpha, classes=...)) after batch(), from stoker.image"


def _written(ours: Sequence[Ours], others: Sequence[Any], field: str = "field") -> str:
    """A call of `image` with these operations, and the parameters of the other ones; those of a class, or of None, by name."""
    calls = [_UNSET.sub("", one.call.format_map(_Parameters(other))) for one, other in zip(ours, others) if one.call]
    floats = list(dict.fromkeys(call for call in calls if call.startswith(_FLOATS)))
    if len(floats) > 1:
        floats = [call for call in floats if call != "ToFloat()"]  # Normalize gives floats already
    calls = [call for call in calls if not call.startswith(_FLOATS)]
    options = dict.fromkeys(one.option for one in ours if one.option)
    notes = "; ".join(dict.fromkeys(one.note for one in ours if one.note))
    return f"image({', '.join([field, *calls, *floats, *options])}){f' ({notes})' if notes else ''}"


class _Parameters(dict[str, str]):
    """The parameters of another library's operation, as text, found when they are asked for."""

    def __init__(self, op: Any) -> None:
        self._op = op

    def __missing__(self, name: str) -> str:
        return repr(_parameter(self._op, name)) if _has(self._op, name) else name


def _has(op: Any, name: str) -> bool:
    """Whether it is an operation, not just its class, and has such a parameter."""
    return not isinstance(op, type) and hasattr(op, name)


def _parameter(op: Any, name: str) -> Any:
    """A parameter as it is written here: numbers, texts, and tuples of several."""
    value = getattr(op, name)
    value = getattr(value, "value", value)  # of an enumeration
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, (list, tuple)):
        return value
    same = name == "kernel_size" and len(set(value)) == 1  # kernels are square here
    return value[0] if len(value) == 1 or same else tuple(value)
