"""Image operations of other libraries, and what to write here: names that are imported from the wrong place, and objects that are
given to `image(...)`. No other library is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from .operation import Operation


class Ours(NamedTuple):
    """What to write: an operation, an argument of `image(...)`, or both. `{p}` stands for the parameter `p` of the other one."""

    call: str
    option: str = ""
    note: str = ""


_FLIPS = Ours("HorizontalFlip({p})", note="VerticalFlip for the other axis")
_FIRST = Ours("", "layout='chw'")
_CUTOUT = Ours("Cutout(size)")

_NAMES = {
    "AutoAugment": Ours("AutoAugment('imagenet')", note="or 'cifar10', 'svhn'"),
    "CenterCrop": Ours("CenterCrop({size})"),
    "CoarseDropout": _CUTOUT,
    "ColorJiggle": Ours("ColorJitter(brightness, contrast, saturation, hue)"),
    "ColorJitter": Ours("ColorJitter(brightness={brightness}, contrast={contrast}, saturation={saturation}, hue={hue})"),
    "ConvertImageDtype": Ours("ToFloat()"),
    "CutOut": _CUTOUT,
    "Flip": _FLIPS,
    "GaussianBlur": Ours("GaussianBlur({kernel_size}, {sigma})"),
    "Grayscale": Ours("", "color='gray'"),
    "HFlip": Ours("HorizontalFlip({p})"),
    "Normalize": Ours("Normalize({mean}, {std})"),
    "PILToTensor": _FIRST,
    "Pad": Ours("Pad({padding}, {padding_mode!r})"),
    "RandAugment": Ours("RandAugment({num_ops}, {magnitude})"),
    "RandomAdjustSharpness": Ours("Sharpness({sharpness_factor}, {p})"),
    "RandomAffine": Ours("Affine({degrees}, translate={translate}, scale={scale}, shear={shear})"),
    "RandomAutocontrast": Ours("AutoContrast({p})"),
    "RandomBrightnessContrast": Ours("ColorJitter(brightness, contrast)"),
    "RandomCrop": Ours("RandomCrop({size})", note="padding=4 is pad=4, pad_mode='constant' here"),
    "RandomCutout": _CUTOUT,
    "RandomEqualize": Ours("Equalize({p})"),
    "RandomErasing": Ours("RandomErasing({p}, {scale}, {ratio})", note="it stands before Normalize"),
    "RandomFlip": _FLIPS,
    "RandomGrayscale": Ours("Grayscale({p})"),
    "RandomHorizontalFlip": Ours("HorizontalFlip({p})"),
    "RandomInvert": Ours("Invert({p})"),
    "RandomPosterize": Ours("Posterize({bits}, {p})"),
    "RandomResizedCrop": Ours("RandomResizedCrop({size}, {scale}, {ratio})"),
    "RandomRotation": Ours("Rotate({degrees})"),
    "RandomSolarize": Ours("Solarize({threshold}, {p})"),
    "RandomVerticalFlip": Ours("VerticalFlip({p})"),
    "Resize": Ours("Resize({size})"),
    "SmallestMaxSize": Ours("Resize({max_size})"),
    "ToDtype": Ours("ToFloat()", note="for float32"),
    "ToImage": _FIRST,
    "ToTensor": Ours("ToFloat()", "layout='chw'"),
    "ToTensorV2": _FIRST,
    "TrivialAugmentWide": Ours("TrivialAugment()"),
    "VFlip": Ours("VerticalFlip({p})"),
}
#: operations over whole batches
_BLENDS = {"CutMix": "CutMix", "Cutmix": "CutMix", "MixUp": "MixUp", "Mixup": "MixUp"}
_LISTS = ("Compose", "Sequential")
_UNSET = re.compile(r"\b\w+=None, |, \w+=None\b")
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
    missing = [part for part in parts if _class_of(part).__name__ not in _NAMES]
    if missing:
        return (
            f"it is {library}'s, and {_class_of(missing[0]).__name__} has no counterpart here: "
            f"use .decode({field!r}, as_='pil') and .map({field}=transform)"
        )
    ours = [_NAMES[_class_of(part).__name__] for part in parts]
    return f"it is {library}'s; from stoker.image, use {_written(ours, parts, repr(field))}"


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
    if any(call.startswith("Normalize") for call in calls):
        calls = [call for call in calls if call != "ToFloat()"]  # Normalize gives floats already
    options = dict.fromkeys(one.option for one in ours if one.option)
    notes = "; ".join(one.note for one in ours if one.note)
    return f"image({', '.join([field, *calls, *options])}){f' ({notes})' if notes else ''}"


class _Parameters(dict[str, str]):
    """The parameters of another library's operation, as text, found when they are asked for."""

    def __init__(self, op: Any) -> None:
        self._op = op

    def __missing__(self, name: str) -> str:
        if self._op is None or isinstance(self._op, type):
            return name
        value = getattr(self._op, name, None)
        if isinstance(value, (list, tuple)) and (len(value) == 1 or name == "kernel_size"):  # kernels are square here
            value = value[0]
        return str(_rounded(value))


def _rounded(value: Any) -> Any:
    """Numbers as people write them: four digits of 4 / 3."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return tuple(map(_rounded, value)) if isinstance(value, (list, tuple)) else value
