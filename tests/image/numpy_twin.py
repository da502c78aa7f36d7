"""The operations in plain NumPy: slow, short, and what the kernel is held to.

Draws and passes are the kernel's own, so that an image comes out as the kernel makes it, up to rounding: exact for crops,
padding, flips, erasing, brightness, contrast, gray and everything that is a table; within one level where the kernel blends in
fixed point (saturation, hue, blur, sharpness, resizing, warps). Resizes that follow each other are done one by one here and at
once there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BoxError
from stoker.image import Normalize, Operation, ToFloat
from stoker.image.draws import Drawn, named
from stoker.image.lower import lower
from stoker.kernel import describe
from stoker.kernel.native import Augment, AugmentKind, Border, Op, OpKind, Program
from stoker.kernel.status import PassKind
from stoker.plan.nodes import Image
from stoker.plan.random_streams import streams_of

from ..kernel import twins as kernel

Pixels = NDArray[np.uint8]
#: where pixels go: x' = m0 x + m1 y + m2, y' = m3 x + m4 y + m5
Matrix = NDArray[np.float64]

#: red, green and blue in the luminance, of 65536 (ITU-R 601, as Pillow has it)
_LUMA = np.array([19595, 38470, 7471])
#: a picture shrunk more than that is gone, and all is fill
_MAX_STEP = 4096


def apply(
    ops: Sequence[Operation],
    pixels: Pixels,
    seed: int = 0,
    epoch: int = 0,
    position: int = 0,
    *,
    streams: Iterable[int] | None = None,
    color: str = "rgb",
    box: Sequence[float] | None = None,
) -> NDArray[Any]:
    """What the image stage makes of `pixels` at this place: (height, width, channels), uint8, or float32 where the ops say so.

    `streams` are the operations' random streams, by default those of a pipeline with this one stage; `box` is the sample's, for
    `CropBox`.
    """
    floats = any(isinstance(op, (Normalize, ToFloat)) for op in ops)
    streams = streams_in_pipeline(ops) if streams is None else streams
    program = lower(ops, seed=seed, streams=streams, color=color, out="float32" if floats else "uint8")
    image, first = as_channels(pixels, program.channels), 0
    [drawn] = draws_at(program, image.shape[:2], epoch, [position], box)
    for kind, stop, _ in describe.passes(program, pixels=False):
        if kind == PassKind.WARP:
            image = _warped(image, program.ops[first:stop], drawn[first:stop])
        for op, made in zip(program.ops[first:stop], drawn[first:stop]):
            if kind == PassKind.WARP or (made is None and op.kind != OpKind.CROP_BOX):
                continue
            if op.kind == OpKind.POLICY:
                for effect in made["effects"]:
                    image = augment(image, effect)
            elif op.kind == OpKind.CROP_BOX:
                image = crop_box(image, box, bool(op.params[0]))
            elif op.kind == OpKind.ERASE:
                image = _erased(image, op, made, (seed, epoch, position))
            else:
                image = _STEPS[op.kind](image, op, made)
        first = stop
    if not floats:
        return image
    scale, bias = (np.array(values[: program.channels], np.float32) for values in (program.scale, program.bias))
    normalised: NDArray[np.float32] = image.astype(np.float32) * scale + bias
    return normalised


def streams_in_pipeline(ops: Sequence[Operation]) -> tuple[int, ...]:
    """The random streams of operations that are the only image stage of a pipeline."""
    return streams_of([Image("image", tuple(ops))])[0]


def draws_at(
    program: Program, size: tuple[int, ...], epoch: int, positions: Sequence[int], box: Sequence[float] | None = None
) -> list[list[Any]]:
    """What each kernel operation draws for images of `size` at some places, by name; None: it does not happen."""
    count = len(positions)
    boxes = np.full((count, 4), np.nan if box is None else box, np.float32)
    sides = np.full(count, size[1], np.int32), np.full(count, size[0], np.int32)
    drawn = describe.draws(program, *sides, boxes, np.full(count, epoch, np.uint32), np.array(positions, np.int64))
    return [[named(op, numbers, program.choices) for op, numbers in zip(program.ops, row)] for row in drawn.tolist()]


def as_channels(pixels: Pixels, channels: int) -> Pixels:
    """Any uint8 image as (height, width, channels): gray is repeated, a fourth channel dropped, colours become luminance."""
    image = pixels[:, :, None] if pixels.ndim == 2 else pixels[:, :, :3]
    if image.shape[2] == channels:
        return image
    return luma(image)[:, :, None] if channels == 1 else np.repeat(image, 3, axis=2)


# ---- crops, sizes, borders -----------------------------------------------------------------------------------------------


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """Bilinear, antialiased when shrinking, as Pillow."""
    rows, columns = image.shape[:2]
    if (rows, columns) == (height, width):
        return image
    return kernel.resize(image, (0, 0, columns, rows), (0, 0, columns, rows), (height, width))


def pad(image: Pixels, left: int, top: int, right: int, bottom: int, border: int, fill: Sequence[float] = (0, 0, 0)) -> Pixels:
    """More pixels on every side."""
    around = ((top, bottom), (left, right), (0, 0))
    if border != Border.CONSTANT:
        return np.pad(image, around, "reflect" if border == Border.REFLECT else "edge")
    out: Pixels = np.pad(image, around)
    height, width, channels = image.shape
    out[...] = np.array(fill[:channels], np.uint8)
    out[top : top + height, left : left + width] = image
    return out


def center_crop(image: Pixels, height: int, width: int) -> Pixels:
    """The centre; black around it where the image is smaller."""
    rows, columns = image.shape[:2]
    above, beside = max(0, height - rows), max(0, width - columns)
    image = pad(image, beside // 2, above // 2, beside - beside // 2, above - above // 2, Border.CONSTANT)
    top, left = round((image.shape[0] - height) / 2), round((image.shape[1] - width) / 2)
    return image[top : top + height, left : left + width]


def crop_box(image: Pixels, box: Sequence[float] | None, relative: bool) -> Pixels:
    """(ymin, xmin, ymax, xmax), rounded outwards and clipped."""
    if box is None or not all(map(math.isfinite, box)) or not (box[2] > box[0] and box[3] > box[1]):
        raise BoxError(f"the box {box} holds no pixel")
    height, width = image.shape[:2]
    down, across = (height, width) if relative else (1, 1)
    ymin, xmin, ymax, xmax = (np.float32(value) for value in box)
    top, bottom = math.floor(max(0.0, ymin * down)), math.ceil(min(float(height), ymax * down))
    left, right = math.floor(max(0.0, xmin * across)), math.ceil(min(float(width), xmax * across))
    cut = image[top:bottom, left:right]
    if not cut.size:
        raise BoxError(f"the box {box} holds no pixel of a {width}x{height} image")
    return cut


def _resize_short(image: Pixels, op: Op, made: Drawn) -> Pixels:
    size, (height, width) = int(op.params[0]), image.shape[:2]
    longer = int(size * max(height, width) / min(height, width))
    return resize(image, longer, size) if width <= height else resize(image, size, longer)


def _random_resized_crop(image: Pixels, op: Op, made: Drawn) -> Pixels:
    top, left = made["top"], made["left"]
    return resize(image[top : top + made["height"], left : left + made["width"]], int(op.params[0]), int(op.params[1]))


def _random_crop(image: Pixels, op: Op, made: Drawn) -> Pixels:
    height, width = int(op.params[0]), int(op.params[1])
    if not made:
        raise BoxError(f"a random crop of {width}x{height} does not fit into a {image.shape[1]}x{image.shape[0]} image")
    return image[made["top"] : made["top"] + height, made["left"] : made["left"] + width]


def _pad(image: Pixels, op: Op, made: Drawn) -> Pixels:
    left, top, right, bottom, border = (int(p) for p in op.params[:5])
    return pad(image, left, top, right, bottom, border, op.params[5:8])


# ---- warps -----------------------------------------------------------------------------------------------------------------


def affine_matrix(
    size: tuple[int, ...], degrees: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> Matrix:
    """Shear, scale, turn clockwise, all about the centre; then move: torchvision's affine."""
    turn, sx, sy = math.radians(degrees), math.radians(shear[0]), math.radians(shear[1])
    linear = scale * np.array([
        [math.cos(turn - sy) / math.cos(sy), -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)],
        [math.sin(turn - sy) / math.cos(sy), -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)],
    ])  # fmt: skip
    centre = np.array([size[1] / 2, size[0] / 2])
    return np.column_stack([linear, centre + np.asarray(translate) - linear @ centre])


def warp(image: Pixels, matrix: Matrix, fill: float) -> Pixels:
    """Move pixels by a matrix, bilinear; around the image lies the fill without end, and the border blends with it."""
    height, width, channels = image.shape
    back = np.linalg.inv(matrix[:, :2])
    if not np.abs(back).max() < _MAX_STEP:
        return np.full_like(image, round(fill))
    y, x = np.mgrid[:height, :width] + 0.5
    sx, sy = (back @ (np.stack([x.ravel(), y.ravel()]) - matrix[:, 2:]) - 0.5).clip(-2, max(height, width) + 1)
    sx, sy = sx.clip(-1, width), sy.clip(-1, height)
    framed = np.full((height + 4, width + 4, channels), fill, np.float64)
    framed[2:-2, 2:-2] = image
    x0, y0 = np.floor(sx).astype(int), np.floor(sy).astype(int)
    fx, fy = (sx - x0)[:, None], (sy - y0)[:, None]
    near = [framed[y0 + 2 + dy, x0 + 2 + dx] for dy in (0, 1) for dx in (0, 1)]
    mixed = (near[0] * (1 - fx) + near[1] * fx) * (1 - fy) + (near[2] * (1 - fx) + near[3] * fx) * fy
    return _nearest(mixed).reshape(image.shape)


def _warped(image: Pixels, ops: Sequence[Op], drawn: Sequence[Drawn | None]) -> Pixels:
    """A run of affine operations and flips as one warp."""
    whole, size = np.eye(3), image.shape[:2]
    for op, made in zip(ops, drawn):
        if made is None:
            continue
        if op.kind == OpKind.AFFINE:
            matrix = affine_matrix(size, made["degrees"], made["translate"], made["scale"], made["shear"])
        elif made["flipped"]:
            matrix = np.array([[-1, 0, size[1]], [0, 1, 0]] if op.kind == OpKind.HFLIP else [[1, 0, 0], [0, -1, size[0]]])
        else:
            continue
        whole = np.vstack([matrix, [0, 0, 1]]) @ whole
    return warp(image, whole[:2], ops[0].params[10])


# ---- colours ---------------------------------------------------------------------------------------------------------------


def luma(image: Pixels) -> Pixels:
    """ITU-R 601, rounded, as Pillow has it; of a gray image itself."""
    if image.shape[2] == 1:
        return image[:, :, 0]
    weighed: NDArray[np.int64] = (image.astype(np.int64) @ _LUMA + 32768) >> 16
    return weighed.astype(np.uint8)


def _nearest(values: NDArray[np.float64]) -> Pixels:
    rounded: Pixels = np.floor(values + 0.5).clip(0, 255).astype(np.uint8)
    return rounded


def blend(start: NDArray[Any] | float, image: Pixels, factor: float) -> Pixels:
    """From `start` (factor 0) over the image (1) and beyond, cut to a whole level: Pillow's Image.blend."""
    begin = np.float32(start)
    mixed: Pixels = (begin + np.float32(factor) * (image.astype(np.float32) - begin)).clip(0, 255).astype(np.uint8)
    return mixed


def brightness(image: Pixels, factor: float) -> Pixels:
    """Blend with black."""
    return blend(0, image, factor)


def contrast(image: Pixels, factor: float) -> Pixels:
    """Blend with the mean luminance, rounded."""
    return blend(int(luma(image).mean() + 0.5), image, factor)


def saturation(image: Pixels, factor: float) -> Pixels:
    """Blend with the gray image."""
    return blend(luma(image)[:, :, None], image, factor) if image.shape[2] == 3 else image


def hue(image: Pixels, turns: float) -> Pixels:
    """Turn every colour around the circle of hues; its largest and smallest component stay."""
    if image.shape[2] == 1 or turns == 0:
        return image
    red, green, blue = np.moveaxis(image.astype(np.float64), 2, 0)
    top, low = image.max(2).astype(np.float64), image.min(2).astype(np.float64)
    chroma = top - low
    safe = np.where(chroma == 0, 1, chroma)
    sixth = np.where(top == red, (green - blue) / safe, np.where(top == green, (blue - red) / safe + 2, (red - green) / safe + 4))
    sixth = (sixth + 6 * turns) % 6
    shares = [np.abs(sixth - 3) - 1, 2 - np.abs(sixth - 2), 2 - np.abs(sixth - 4)]
    mixed = np.stack([low + chroma * share.clip(0, 1) for share in shares], axis=2)
    return _nearest(mixed)


def color_jitter(image: Pixels, op: Op, made: Drawn) -> Pixels:
    """The four in the order drawn; a factor of 1 changes nothing."""
    change = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    for name in made["order"]:
        if made[name] != (0 if name == "hue" else 1):
            image = change[name](image, made[name])
    return image


def solarize(image: Pixels, threshold: float) -> Pixels:
    """Values from `threshold` on are inverted."""
    inverted: Pixels = np.where(image < threshold, image, 255 - image)
    return inverted


def posterize(image: Pixels, bits: int) -> Pixels:
    """The upper bits."""
    kept: Pixels = image & np.uint8(0xFF << (8 - bits) & 0xFF)
    return kept


def auto_contrast(image: Pixels) -> Pixels:
    """Every channel from 0 to 255; one of a single value stays."""
    out: Pixels = image.copy()
    for c in range(image.shape[2]):
        low, high = int(image[:, :, c].min()), int(image[:, :, c].max())
        if high > low:
            scale = 255.0 / (high - low)
            out[:, :, c] = (image[:, :, c] * scale + -low * scale).clip(0, 255).astype(np.uint8)
    return out


def equalize(image: Pixels) -> Pixels:
    """Every channel's histogram spread, in whole numbers as Pillow does; one of a single value stays."""
    out: Pixels = image.copy()
    for c in range(image.shape[2]):
        counts = np.bincount(image[:, :, c].ravel(), minlength=256)
        filled = counts[counts > 0]
        step = int(counts.sum() - filled[-1]) // 255 if len(filled) > 1 else 0
        if step:
            before = np.cumsum(counts) - counts
            out[:, :, c] = np.minimum((step // 2 + before) // step, 255).astype(np.uint8)[image[:, :, c]]
    return out


def gaussian_blur(image: Pixels, side: int, sigma: float) -> Pixels:
    """A separable Gaussian; the image is mirrored at its outermost pixels."""
    reach = side // 2
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    weights /= weights.sum()
    mixed: NDArray[np.float64] = image.astype(np.float64)
    for axis in (0, 1):
        around = [(0, 0)] * 3
        around[axis] = (reach, reach)
        wide, count = np.pad(mixed, around, "reflect"), mixed.shape[axis]
        mixed = np.zeros_like(mixed)
        for at, weight in enumerate(weights):
            mixed += weight * wide.take(range(at, at + count), axis)
    return _nearest(mixed)


def sharpness(image: Pixels, factor: float) -> Pixels:
    """Blend with a smoothed image (3 x 3, the centre five times); the outermost pixels stay."""
    height, width = image.shape[:2]
    if height < 3 or width < 3:
        return image
    wide = image.astype(np.int64)
    around = sum(wide[dy : height - 2 + dy, dx : width - 2 + dx] for dy in range(3) for dx in range(3))
    smooth = image.copy()
    smooth[1:-1, 1:-1] = (around + 4 * wide[1:-1, 1:-1] + 6) // 13
    return blend(smooth, image, factor)


# ---- erasing ---------------------------------------------------------------------------------------------------------------


def _erased(image: Pixels, op: Op, made: Drawn, key: tuple[int, int, int]) -> Pixels:
    if not made["height"] or not made["width"]:
        return image
    out: Pixels = image.copy()
    part = out[made["top"] : made["top"] + made["height"], made["left"] : made["left"] + made["width"]]
    part[...] = noise(part.shape, op.stream, *key) if op.params[9] else np.array(op.params[6 : 6 + image.shape[2]], np.uint8)
    return out


def noise(shape: tuple[int, ...], stream: int, seed: int, epoch: int, position: int) -> Pixels:
    """The bytes of an erased rectangle: those of Philox, sixteen at a time, keyed by a block of the operation's stream."""
    height, width, channels = shape
    place = np.array([[position & 0xFFFFFFFF, position >> 32 & 0xFFFFFFFF, epoch, 10]], np.uint32)
    w0, w1, w2, w3 = kernel.philox(place, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF ^ stream))[0].tolist()
    groups = -(-width * channels // 16)
    counter = np.array([[g, y, w2, w3] for y in range(height) for g in range(groups)], np.uint32)
    words = kernel.philox(counter, (w0, w1)).astype("<u4")
    rows: Pixels = words.view(np.uint8).reshape(height, groups * 16)[:, : width * channels]
    return rows.reshape(shape)


# ---- policies --------------------------------------------------------------------------------------------------------------


def augment(image: Pixels, effect: Augment) -> Pixels:
    """One effect of a policy, as strong as it says."""
    kind, m = effect.kind, effect.magnitude
    if AugmentKind.SHEAR_X <= kind <= AugmentKind.ROTATE:
        return warp(image, _augment_matrix(image.shape, effect), effect.fill)
    return _AUGMENTS[AugmentKind(kind)](image, m)


def _augment_matrix(size: tuple[int, ...], effect: Augment) -> Matrix:
    kind, m, matrix = effect.kind, effect.magnitude, np.eye(3)[:2]
    if kind == AugmentKind.ROTATE:
        return affine_matrix(size, -m, (0, 0), 1, (0, 0))
    if kind in (AugmentKind.TRANSLATE_X, AugmentKind.TRANSLATE_Y):
        axis = int(kind == AugmentKind.TRANSLATE_Y)
        pixels = m * size[1 - axis] if effect.relative else m
        matrix[axis, 2] = math.trunc(pixels * (1 + 1e-9))  # a hair below a whole number is that number
    else:
        matrix[(0, 1) if kind == AugmentKind.SHEAR_X else (1, 0)] = -m
    return matrix


_AUGMENTS: dict[AugmentKind, Callable[[Pixels, float], Pixels]] = {
    AugmentKind.IDENTITY: lambda image, m: image,
    AugmentKind.BRIGHTNESS: lambda image, m: brightness(image, 1 + m),
    AugmentKind.COLOR: lambda image, m: saturation(image, 1 + m),
    AugmentKind.CONTRAST: lambda image, m: contrast(image, 1 + m),
    AugmentKind.SHARPNESS: lambda image, m: sharpness(image, 1 + m),
    AugmentKind.POSTERIZE: lambda image, m: posterize(image, int(m)),
    AugmentKind.SOLARIZE: solarize,
    AugmentKind.AUTO_CONTRAST: lambda image, m: auto_contrast(image),
    AugmentKind.EQUALIZE: lambda image, m: equalize(image),
    AugmentKind.INVERT: lambda image, m: 255 - image,
}

_STEPS: dict[int, Callable[[Pixels, Op, Drawn], Pixels]] = {
    OpKind.RESIZE_SHORT: _resize_short,
    OpKind.RESIZE: lambda image, op, made: resize(image, int(op.params[0]), int(op.params[1])),
    OpKind.CENTER_CROP: lambda image, op, made: center_crop(image, int(op.params[0]), int(op.params[1])),
    OpKind.RANDOM_RESIZED_CROP: _random_resized_crop,
    OpKind.HFLIP: lambda image, op, made: image[:, ::-1] if made["flipped"] else image,
    OpKind.VFLIP: lambda image, op, made: image[::-1] if made["flipped"] else image,
    OpKind.PAD: _pad,
    OpKind.RANDOM_CROP: _random_crop,
    OpKind.COLOR_JITTER: color_jitter,
    OpKind.GRAYSCALE: lambda image, op, made: np.repeat(luma(image)[:, :, None], image.shape[2], axis=2),
    OpKind.BLUR: lambda image, op, made: gaussian_blur(image, int(op.params[0]), made["sigma"]),
    OpKind.SOLARIZE: lambda image, op, made: solarize(image, op.params[0]),
    OpKind.POSTERIZE: lambda image, op, made: posterize(image, int(op.params[0])),
    OpKind.EQUALIZE: lambda image, op, made: equalize(image),
    OpKind.AUTO_CONTRAST: lambda image, op, made: auto_contrast(image),
    OpKind.SHARPNESS: lambda image, op, made: sharpness(image, made["factor"]),
    OpKind.INVERT: lambda image, op, made: 255 - image,
}
