"""What an operation drew for one image: the same numbers the kernel uses, computed again. For `explain` and the reference.

Which draw means what is said at each operation in ``native/include/stoker.h``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..kernel import native
from ..kernel.native import Augment, AugmentKind, Op, OpKind
from .geometry import Rotate
from .lower import Step, is_effect
from .operation import Size
from .policies import Choice

#: an effect's probability is drawn from the last block of four
_CHANCE = 4 * 255
_TRIES = 10

Drawn = dict[str, Any]


class Place:
    """One sample's place in the data: its randomness is a function of it."""

    def __init__(self, seed: int, epoch: int, position: int) -> None:
        self._seed = seed & (1 << 64) - 1
        self._epochs, self._positions = np.array([epoch], np.uint32), np.array([position], np.int64)

    def uniforms(self, stream: int, count: int) -> list[float]:
        """The first `count` numbers of a random stream; four are a block."""
        drawn: list[float] = native.uniforms(self._seed, self._epochs, self._positions, stream, count)[0].tolist()
        return drawn

    def happens(self, op: Op) -> bool:
        """Whether an effect is to happen."""
        chance = op.params[native.MAX_PARAMS - 1]
        return chance >= 1 or self.uniforms(op.stream, _CHANCE + 1)[_CHANCE] < chance


def drawn(place: Place, op: Op, size: Size, choices: Sequence[Choice] = ()) -> Drawn | None:
    """An operation's parameters for an image of `size`; None where it does not happen.

    What depends on the size is left out where that is not known.
    """
    if op.kind == OpKind.POLICY:
        return {"effects": policy(place, op, choices)}
    if is_effect(op) and not place.happens(op):
        return None
    draw = _DRAWS.get(op.kind)
    return {} if draw is None else draw(place, op, size)


def policy(place: Place, op: Op, choices: Sequence[Choice]) -> list[Augment]:
    """The effects a policy chose, in order, with the signs they drew; those that do not happen are left out."""
    first, count, times = (int(p) for p in op.params[:3])
    u, made = place.uniforms(op.stream, 12 * times), []
    for at in range(0, 12 * times, 12):
        pair = choices[first + min(int(u[at] * count), count - 1)]
        for effect, chance, sign in zip(pair, (u[at + 4], u[at + 8]), (u[at + 5], u[at + 9])):
            if effect.kind != AugmentKind.IDENTITY and chance < effect.probability:
                made.append(effect._replace(magnitude=-effect.magnitude) if effect.mirrored and sign < 0.5 else effect)
    return made


def told(step: Step, place: Place, size: Size, choices: Sequence[Choice]) -> Drawn | None:
    """What an operation drew, under its users' names, as plain data; None where there was nothing to draw.

    >>> from stoker.image import Rotate
    >>> from stoker.image.lower import steps_of
    >>> steps, _ = steps_of([Rotate((5, 5))])
    >>> told(steps[0], Place(0, 0, 0), (32, 32), ())
    {'operation': 'Rotate', 'degrees': 5.0}
    """
    made: Drawn | None = {}
    for op in step.ops:
        if op.kind == OpKind.PAD:
            size = padded(op, size)
            continue
        if op.kind not in _DRAWS and op.kind != OpKind.POLICY and not (is_effect(op) and op.params[-1] < 1):
            return None
        made = drawn(place, op, size, choices)
    name = type(step.operation).__name__
    if made is None:
        return {"operation": name, "applied": False}
    if isinstance(step.operation, Rotate):
        made = {"degrees": -made["degrees"]}
    if "effects" in made:
        made = {"effects": [_effect_told(effect) for effect in made["effects"]]}
    return {"operation": name, **{key: _rounded(value) for key, value in made.items()}}


def padded(op: Op, size: Size) -> Size:
    """The size behind PAD."""
    left, top, right, bottom = (int(p) for p in op.params[:4])
    height, width = size
    return (None if height is None else height + top + bottom, None if width is None else width + left + right)


def _effect_told(effect: Augment) -> Drawn:
    name = AugmentKind(effect.kind).name.lower()
    plain = effect.kind in (AugmentKind.AUTO_CONTRAST, AugmentKind.EQUALIZE, AugmentKind.INVERT)
    return {"effect": name} if plain else {"effect": name, "magnitude": _rounded(effect.magnitude)}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4) + 0.0 if isinstance(value, float) else value


def _between(low: float, high: float, u: float) -> float:
    return low + (high - low) * u


# ---- one kind ------------------------------------------------------------------------------------------------------------


def _random_resized_crop(place: Place, op: Op, size: Size) -> Drawn:
    _, _, least, most, narrow, wide = op.params[:6]
    height, width = size
    if height is None or width is None:
        return {}
    u = place.uniforms(op.stream, 4 * _TRIES)
    for t in range(0, 4 * _TRIES, 4):
        area = width * height * _between(least, most, u[t])
        aspect = math.exp(_between(math.log(narrow), math.log(wide), u[t + 1]))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return _rectangle(int(u[t + 2] * (height - h + 1)), int(u[t + 3] * (width - w + 1)), h, w)
    w, h = width, height
    if width / height < narrow:
        h = max(1, round(width / narrow))
    elif width / height > wide:
        w = max(1, round(height * wide))
    return _rectangle((height - h) // 2, (width - w) // 2, h, w)


def _random_crop(place: Place, op: Op, size: Size) -> Drawn:
    h, w = (int(p) for p in op.params[:2])
    height, width = size
    if height is None or width is None or height < h or width < w:
        return {}
    u = place.uniforms(op.stream, 2)
    return {"top": int(u[0] * (height - h + 1)), "left": int(u[1] * (width - w + 1))}


def _flip(place: Place, op: Op, size: Size) -> Drawn:
    return {"flipped": place.uniforms(op.stream, 1)[0] < op.params[0]}


def _affine(place: Place, op: Op, size: Size) -> Drawn:
    p, u = op.params, place.uniforms(op.stream, 6)
    height, width = size
    made: Drawn = {"degrees": _between(p[0], p[1], u[0])}
    if width is not None and height is not None:
        made["translate"] = [round(_between(-share * side, share * side, v)) for share, side, v in
                             ((p[2], width, u[1]), (p[3], height, u[2]))]  # fmt: skip
    made["scale"] = _between(p[4], p[5], u[3])
    made["shear"] = [_between(p[6], p[7], u[4]), _between(p[8], p[9], u[5])]
    return made


def _color_jitter(place: Place, op: Op, size: Size) -> Drawn:
    u, p = place.uniforms(op.stream, 7), op.params
    order = ["brightness", "contrast", "saturation", "hue"]
    made: Drawn = {name: _between(p[2 * at], p[2 * at + 1], u[at]) for at, name in enumerate(order)}
    for at in range(3 if p[8] else 0):
        chosen = at + int(u[4 + at] * (4 - at))
        order[at], order[chosen] = order[chosen], order[at]
    return {**made, "order": order}


def _one(name: str, at: int) -> Callable[[Place, Op, Size], Drawn]:
    """One number from a range, whose ends are parameters `at` and the next."""
    return lambda place, op, size: {name: _between(op.params[at], op.params[at + 1], place.uniforms(op.stream, 1)[0])}


def _erase(place: Place, op: Op, size: Size) -> Drawn:
    height, width = size
    if height is None or width is None:
        return {}
    if op.params[4]:
        return _cutout(place, op, height, width)
    least, most, flat, tall = op.params[:4]
    u = place.uniforms(op.stream, 4 * _TRIES)
    for t in range(0, 4 * _TRIES, 4):
        area = height * width * _between(least, most, u[t])
        aspect = math.exp(_between(math.log(flat), math.log(tall), u[t + 1]))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if h < height and w < width:
            return _rectangle(int(u[t + 2] * (height - h + 1)), int(u[t + 3] * (width - w + 1)), h, w)
    return _rectangle(0, 0, 0, 0)


def _cutout(place: Place, op: Op, height: int, width: int) -> Drawn:
    u, h, w = place.uniforms(op.stream, 2), int(op.params[4]), int(op.params[5])
    top, left = int(u[0] * height) - h // 2, int(u[1] * width) - w // 2
    bottom, right = min(top + h, height), min(left + w, width)
    top, left = max(top, 0), max(left, 0)
    return _rectangle(top, left, bottom - top, right - left)


def _rectangle(top: int, left: int, height: int, width: int) -> Drawn:
    return {"top": top, "left": left, "height": height, "width": width}


_DRAWS: dict[int, Callable[[Place, Op, Size], Drawn]] = {
    OpKind.RANDOM_RESIZED_CROP: _random_resized_crop,
    OpKind.RANDOM_CROP: _random_crop,
    OpKind.HFLIP: _flip,
    OpKind.VFLIP: _flip,
    OpKind.AFFINE: _affine,
    OpKind.COLOR_JITTER: _color_jitter,
    OpKind.BLUR: _one("sigma", 1),
    OpKind.SHARPNESS: _one("factor", 0),
    OpKind.ERASE: _erase,
}
