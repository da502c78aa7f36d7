"""What operations drew for an image, in their users' terms, for `explain`. The kernel reports the numbers (``stk_draws``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..kernel.native import Augment, AugmentKind, Op, OpKind
from .geometry import Rotate
from .lower import LoweredOperation, is_effect
from .policies import Choice

Drawn = dict[str, Any]

_RECTANGLE = ("top", "left", "height", "width")
_JITTER = ("brightness", "contrast", "saturation", "hue")
#: what an operation draws, in the order of ``stk_draws``; places and sides are whole numbers
_PLACES: dict[int, tuple[str, ...]] = {
    OpKind.RANDOM_RESIZED_CROP: _RECTANGLE,
    OpKind.ERASE: _RECTANGLE,
    OpKind.RANDOM_CROP: _RECTANGLE[:2],
}
_FACTORS = {OpKind.COLOR_JITTER: _JITTER, OpKind.BLUR: ("sigma",), OpKind.SHARPNESS: ("factor",)}
_FLIPS = (OpKind.HFLIP, OpKind.VFLIP)


def in_words(steps: Sequence[LoweredOperation], numbers: Sequence[Sequence[float]], choices: Sequence[Choice]) -> list[Drawn]:
    """What each operation that draws drew for an image, as plain data; `numbers` are those of each kernel operation."""
    made, at = [], -1
    for operation, ops in steps:
        at += len(ops)  # where there are two, padding comes first, which draws nothing
        drawn = named(ops[-1], numbers[at], choices)
        if isinstance(operation, Rotate) and drawn:
            drawn = {"degrees": -drawn["degrees"]}
        if drawn or (is_effect(ops[-1]) and ops[-1].params[-1] < 1):
            said = {"applied": False} if drawn is None else {name: _plain(value) for name, value in drawn.items()}
            made.append({"operation": type(operation).__name__, **said})
    return made


def named(op: Op, numbers: Sequence[float], choices: Sequence[Choice] = ()) -> Drawn | None:
    """What a kernel operation drew, by name; None: it does not happen."""
    happens, *values = numbers
    if op.kind in _FLIPS:
        return {"flipped": bool(happens)}
    if not happens:
        return None
    if op.kind == OpKind.POLICY:
        return {"effects": effects(op, values, choices)}
    if op.kind == OpKind.AFFINE:
        degrees, x, y, scale, *shear = values[:6]
        return {"degrees": degrees, "translate": [int(x), int(y)], "scale": scale, "shear": shear}
    if op.kind in _PLACES:
        return {} if math.isnan(happens) else dict(zip(_PLACES[op.kind], map(int, values)))
    made: Drawn = dict(zip(_FACTORS.get(op.kind, ()), values))
    return {**made, "order": [_JITTER[int(which)] for which in values[4:8]]} if op.kind == OpKind.COLOR_JITTER else made


def effects(op: Op, values: Sequence[float], choices: Sequence[Choice]) -> list[Augment]:
    """The effects a policy chose, in order, with the signs they drew; those that do not happen are left out."""
    made = []
    for at in range(0, 3 * int(op.params[2]), 3):
        for effect, magnitude in zip(choices[int(values[at])], values[at + 1 : at + 3]):
            if not math.isnan(magnitude):
                made.append(effect._replace(magnitude=magnitude))
    return made


def _plain(value: Any) -> Any:
    """Numbers with four digits; effects by name, with their strength where they have one."""
    if isinstance(value, Augment):
        name = AugmentKind(value.kind).name.lower()
        plain = value.kind in (AugmentKind.AUTO_CONTRAST, AugmentKind.EQUALIZE, AugmentKind.INVERT)
        return {"effect": name} if plain else {"effect": name, "magnitude": _plain(value.magnitude)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return round(value, 4) + 0.0 if isinstance(value, float) else value
