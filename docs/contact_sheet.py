"""Draw every image operation at several strengths: python docs/contact_sheet.py [--image FILE] [--overview] OUT.png

All pictures are made by pipelines as users write them. What an operation draws at random stands below its picture, as
`loader.explain` tells it. The scene is drawn here; `--image` shows a picture of your own instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import stoker
from stoker.image import (
    Affine,
    AutoAugment,
    AutoContrast,
    CenterCrop,
    ColorJitter,
    CropBox,
    CutMix,
    Cutout,
    Equalize,
    GaussianBlur,
    Grayscale,
    HorizontalFlip,
    Invert,
    MixUp,
    Normalize,
    Pad,
    Posterize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    Rotate,
    Sharpness,
    Solarize,
    ToFloat,
    TrivialAugment,
    VerticalFlip,
)

Pixels = NDArray[np.uint8]

HEIGHT, WIDTH = 78, 104
COLUMNS = 5
LABEL, GAP, CAPTION, HEADING, TITLE = 158, 8, 28, 34, 62
#: room beside a tile for its caption
BESIDE = 32
#: parts of the scene (ymin, xmin, ymax, xmax), as shares: the sun, the house
BOXES = ((0.06, 0.06, 0.36, 0.30), (0.28, 0.47, 0.86, 0.91))
NO_BOXES = np.empty((0, 4), np.float32)
PAPER, INK, PALE, BOX = (255, 255, 255), (24, 24, 24), (96, 96, 96), (255, 0, 200)


class Tile(NamedTuple):
    """One picture: what is done, and what stands below it; None: what was drawn."""

    caption: str | None
    ops: tuple[Any, ...]
    position: int = 0  # of the sample: another one draws other numbers
    options: Mapping[str, Any] = MappingProxyType({})


class Row(NamedTuple):
    """One operation."""

    name: str
    note: str
    tiles: list[Tile]


class Picture(NamedTuple):
    """A tile as it came out of the pipeline."""

    pixels: Pixels
    caption: str
    boxes: NDArray[np.float32]  # in pixels


# ---- what is shown -------------------------------------------------------------------------------------------------------


def each(template: str, values: Sequence[Any], make: Any) -> list[Tile]:
    """One tile a strength."""
    return [Tile(template.format(value), tuple(ops) if isinstance(ops := make(value), list) else (ops,)) for value in values]


def draws(op: Any, *positions: int) -> list[Tile]:
    """The same at several places of the data."""
    return [Tile(None, (op,), position) for position in positions or range(COLUMNS)]


def chances(kind: Any, *positions: int) -> list[Tile]:
    """Never, three times perhaps, always."""
    return [Tile("p=0", (kind(0),)), *draws(kind(0.5), *positions), Tile("p=1", (kind(1),))]


def whole_sheet() -> dict[str, list[Row]]:
    """Every operation of `stoker.image`, by section of docs/reference/image.md."""
    return {
        "Crops, sizes, flips": crops(),
        "Warps": warps(),
        "Colours": colours(),
        "Erasing": erasing(),
        "Policies": policies(),
        "Floats": floats(),
        "Batches": batches(),
        "Boxes": boxes(),
    }


def crops() -> list[Row]:
    size = (HEIGHT, WIDTH)
    return [
        Row("RandomResizedCrop", "size, scale=(s, s)", [
            Tile(f"scale {scale}", (RandomResizedCrop(size, (scale, scale), (4 / 3, 4 / 3)),), position)
            for position, scale in enumerate((1.0, 0.7, 0.4, 0.2, 0.08))
        ]),
        Row("RandomResizedCrop", "the default, drawn", draws(RandomResizedCrop(size))),
        Row("Resize", "shorter side, or (h, w)", each("{}", (78, 39, 20, (78, 52), (26, 104)), Resize)),
        Row("CenterCrop", "black where too small", [
            *each("{}", (78, 52, 26, (39, 104)), CenterCrop),
            Tile("(78, 104) of 39 x 52", (Resize(39), CenterCrop(size))),
        ]),
        Row("RandomCrop", "size, pad, pad_mode", [
            *(Tile(f"pad=16, '{mode}'\n", (RandomCrop(size, pad=16, pad_mode=mode),), position)
              for position, mode in enumerate(("reflect", "edge", "constant"))),
            *(Tile("52\n", (RandomCrop(52),), position) for position in (3, 4)),
        ]),
        Row("Pad", "padding, mode, fill", [
            Tile(name, (Resize((46, 60)), op))
            for name, op in {
                "16": Pad(16),
                "(24, 4),\nfill=(40, 90, 200)": Pad((24, 4), fill=(40, 90, 200)),
                "16, 'edge'": Pad(16, "edge"),
                "16, 'reflect'": Pad(16, "reflect"),
                "(0, 32, 0, 0), 'reflect'": Pad((0, 32, 0, 0), "reflect"),
            }.items()
        ]),
        Row("CropBox", "to a box, then ...", [
            Tile("as it is", (CropBox("box", relative=True),)),
            Tile("Resize((78, 104))", (CropBox("box", relative=True), Resize(size))),
            Tile("Resize((78, 36))", (CropBox("box", relative=True), Resize((78, 36)))),
            Tile("CenterCrop(32)", (CropBox("box", relative=True), CenterCrop(32))),
            Tile("HorizontalFlip(1)", (CropBox("box", relative=True), HorizontalFlip(1))),
        ]),
        Row("HorizontalFlip", "p=0, 0.5 drawn, 1", chances(HorizontalFlip, 0, 1, 2)),
        Row("VerticalFlip", "p=0, 0.5 drawn, 1", chances(VerticalFlip, 0, 1, 2)),
    ]  # fmt: skip


def warps() -> list[Row]:
    still = (0, 0)
    return [
        Row("Rotate", "counter-clockwise", each("{} degrees", (-45, -15, 5, 15, 45), lambda v: Rotate((v, v)))),
        Row("Rotate", "fill", each("30 degrees, fill={}", (0, 64, 128, 192, 255), lambda v: Rotate((30, 30), v))),
        Row("Affine, degrees", "clockwise", each("{} degrees", (-45, -15, 5, 15, 45), lambda v: Affine((v, v)))),
        Row("Affine, translate", "(0.3, 0.3), drawn", draws(Affine(0, translate=(0.3, 0.3)))),
        Row("Affine, scale", "(s, s)", each("scale {}", (0.4, 0.7, 0.9, 1.3, 2.0), lambda v: Affine(0, scale=(v, v)))),
        Row("Affine, shear", "along x, in degrees",
            each("shear x {}", (-40, -20, 5, 20, 40), lambda v: Affine(0, shear=(v, v)))),
        Row("Affine, shear", "along y, in degrees",
            each("shear y {}", (-40, -20, 5, 20, 40), lambda v: Affine(0, shear=(*still, v, v)))),
    ]  # fmt: skip


def colours() -> list[Row]:
    def jitter(name: str) -> Any:
        return lambda value: ColorJitter(**{name: (value, value)})

    dull, dark = ColorJitter(contrast=(0.3, 0.3)), ColorJitter(brightness=(0.3, 0.3))

    def mended(op: Any) -> list[Tile]:
        name = type(op).__name__
        return [
            Tile(name, (op,)),
            Tile("contrast 0.3", (dull,)),
            Tile(f"contrast 0.3,\nthen {name}", (dull, op)),
            Tile("brightness 0.3", (dark,)),
            Tile(f"brightness 0.3,\nthen {name}", (dark, op)),
        ]

    return [
        Row("ColorJitter", "brightness", each("{}", (0, 0.4, 0.8, 1.4, 2.0), jitter("brightness"))),
        Row("ColorJitter", "contrast", each("{}", (0, 0.4, 0.8, 1.4, 2.5), jitter("contrast"))),
        Row("ColorJitter", "saturation", each("{}", (0, 0.4, 0.8, 1.5, 3.0), jitter("saturation"))),
        Row("ColorJitter", "hue, in turns", each("{}", (-0.33, -0.1, 0.1, 0.33, 0.5), jitter("hue"))),
        Row("ColorJitter", "(0.4, 0.4, 0.4, 0.1), drawn", draws(ColorJitter(0.4, 0.4, 0.4, 0.1))),
        Row("Grayscale", "p=0, 0.5 drawn, 1", chances(Grayscale, 4, 5, 6)),
        Row("color='gray'", "one channel", [
            Tile("no operation", (), 0, {"color": "gray"}),
            Tile("Rotate(15)", (Rotate((15, 15)),), 0, {"color": "gray"}),
            Tile("Equalize", (Equalize(1),), 0, {"color": "gray"}),
            Tile("contrast 2", (ColorJitter(contrast=(2, 2)),), 0, {"color": "gray"}),
            Tile("GaussianBlur(9, 2)", (GaussianBlur(9, 2),), 0, {"color": "gray"}),
        ]),
        Row("GaussianBlur", "(13, sigma)", each("sigma {}", (0.3, 0.7, 1.2, 2.0, 4.0), lambda v: GaussianBlur(13, v))),
        Row("Sharpness", "factor", each("{}", (0, 0.5, 2, 4, 8), lambda v: Sharpness(v, p=1))),
        Row("Solarize", "threshold", each("{}", (255, 200, 128, 64, 0), lambda v: Solarize(v, p=1))),
        Row("Posterize", "bits", each("{}", (8, 4, 3, 2, 1), lambda v: Posterize(v, p=1))),
        Row("Equalize", "a fade is undone", mended(Equalize(1))),
        Row("AutoContrast", "a fade is undone", mended(AutoContrast(1))),
        Row("Invert", "p=0, 0.5 drawn, 1", chances(Invert, 4, 5, 6)),
    ]  # fmt: skip


def erasing() -> list[Row]:
    return [
        Row("Cutout", "size, fill", [
            Tile(f"{size}, fill={fill}", (Cutout(size, fill),), position)
            for position, (size, fill) in enumerate(((12, 0), (24, 128), (40, 255), ((16, 70), 0), (56, (200, 30, 60))))
        ]),
        Row("RandomErasing", "scale=(s, s), p=1", [
            Tile(f"{scale}, value={value!r}", (RandomErasing(1, scale=(scale, scale), value=value),), position)
            for position, (scale, value) in enumerate(((0.02, 0), (0.1, 128), (0.2, "random"), (0.33, (30, 160, 60)),
                                                       (0.5, 255)))
        ]),
        Row("RandomErasing", "the default, drawn", draws(RandomErasing(), 3, 4, 5, 6, 7)),
    ]  # fmt: skip


def policies() -> list[Row]:
    def stronger(position: int) -> list[Tile]:
        return [Tile(None, (RandAugment(2, magnitude),), position) for magnitude in (0, 5, 9, 15, 30)]

    return [
        Row("RandAugment", "2 effects; magnitudes\n0, 5, 9, 15, 30 of 31 bins", stronger(18)),
        Row("RandAugment", "the same, another sample", stronger(21)),
        Row("RandAugment", "(2, 9), drawn", draws(RandAugment(2, 9), 0, 3, 8, 15, 24)),
        Row("TrivialAugment", "drawn", draws(TrivialAugment(), 0, 1, 3, 8, 10)),
        Row("TrivialAugment", "drawn", draws(TrivialAugment(), 13, 15, 18, 22, 24)),
        Row("AutoAugment", "'imagenet', drawn", draws(AutoAugment("imagenet"), 0, 2, 4, 10, 11)),
        Row("AutoAugment", "'cifar10', drawn", draws(AutoAugment("cifar10"), 0, 2, 6, 10, 17)),
        Row("AutoAugment", "'svhn', drawn", draws(AutoAugment("svhn"), 0, 2, 5, 20, 22)),
    ]


def floats() -> list[Row]:
    imagenet = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    return [
        Row("ToFloat", "0 black, 1 white", [
            Tile("no operation before", (ToFloat(),)),
            Tile("brightness 0.5", (ColorJitter(brightness=(0.5, 0.5)), ToFloat())),
            Tile("Invert", (Invert(1), ToFloat())),
            Tile("color='gray'", (ToFloat(),), 0, {"color": "gray"}),
            Tile("layout='chw': 3 planes", (Resize((26, WIDTH)), ToFloat(),), 0, {"layout": "chw"}),
        ]),
        Row("Normalize", "-3 black, 0 gray, 3 white", [
            Tile("(0, 1)", (Normalize(0, 1),)),
            Tile("(0.5, 0.5)", (Normalize(0.5, 0.5),)),
            Tile("(0.5, 0.25)", (Normalize(0.5, 0.25),)),
            Tile("ImageNet's", (imagenet,)),
            Tile("ImageNet's, 'chw'", (Resize((26, WIDTH)), imagenet), 0, {"layout": "chw"}),
        ]),
    ]  # fmt: skip


def batches() -> list[Row]:
    return [
        Row("MixUp", "alpha=1, drawn", [Tile(None, (MixUp(1.0, classes=2),))]),
        Row("CutMix", "alpha=1, drawn", [Tile(None, (CutMix(1.0, classes=2),))]),
    ]


def boxes() -> list[Row]:
    told = {"boxes": "box", "relative_boxes": True}
    moves: dict[str, tuple[Any, ...]] = {
        "no operation": (),
        "HorizontalFlip(1)": (HorizontalFlip(1),),
        "RandomResizedCrop": (RandomResizedCrop((HEIGHT, WIDTH), (0.5, 0.5)),),
        "Rotate 20": (Rotate((20, 20)),),
        "Affine, shear 25": (Affine(0, shear=(25, 25)),),
    }
    more: dict[str, tuple[Any, ...]] = {
        "CenterCrop(52)": (CenterCrop(52),),
        "Pad(16),\nResize((60, 80))": (Pad(16), Resize((60, 80))),
        "VerticalFlip(1),\nRotate -20": (VerticalFlip(1), Rotate((-20, -20))),
        "Affine, 10 degrees,\nscale 0.6": (Affine((10, 10), scale=(0.6, 0.6)),),
        "TrivialAugment": (TrivialAugment(),),
    }
    return [
        Row("boxes='box'", "two boxes go along", [Tile(name, ops, 0, told) for name, ops in moves.items()]),
        Row("boxes='box'", "whatever moves them", [Tile(name, ops, 18, told) for name, ops in more.items()]),
    ]


# ---- how it is made ------------------------------------------------------------------------------------------------------


def pictures_of(row: Row, picture: Pixels, partner: Pixels) -> list[Picture]:
    """A row's tiles, through the pipeline."""
    for op in row.tiles[0].ops:
        if isinstance(op, (MixUp, CutMix)):
            return mixed(op, picture, partner)
    return [made(tile, picture) for tile in row.tiles]


def made(tile: Tile, picture: Pixels) -> Picture:
    """One tile: sample `position` of a data set that holds the same picture again and again."""
    copies = np.repeat(picture[None], tile.position + 1, axis=0)
    moved = "boxes" in tile.options
    given = np.array(BOXES if moved else BOXES[1], np.float32)
    data = stoker.arrays(image=copies, box=np.repeat(given[None], len(copies), axis=0))
    pipeline = data.image("image", *tile.ops, **tile.options)
    with pipeline.batch(1).loader(threads=1) as loader:
        drawn = loader.explain(tile.position)[0]["image image"]["drawn"]
    *_, sample = pipeline
    seen = shown(np.asarray(sample["image"]), tile)
    sides = np.array([*seen.shape[:2], *seen.shape[:2]], np.float32)
    caption = told(drawn) if tile.caption is None else tile.caption + (told(drawn) if tile.caption.endswith("\n") else "")
    return Picture(seen, caption, sample["box"] * sides if moved else NO_BOXES)


def mixed(op: MixUp | CutMix, picture: Pixels, partner: Pixels) -> list[Picture]:
    """Batches of two, mixed: of many, five in which less and less of the picture is left."""
    count = 160
    data = stoker.arrays(image=np.stack([picture, partner] * count), label=np.tile([0, 1], count))
    found = []
    with data.batch(2).blend(op).loader(threads=1) as loader:
        for step, batch in enumerate(loader):
            found.append((loader.explain(step)[0]["blend"]["share"], np.array(batch["image"][0]), batch["label"][0]))
    best = [min(found, key=lambda one: abs(one[0] - wanted)) for wanted in (0.95, 0.8, 0.6, 0.4, 0.25)]
    return [Picture(image, f"share {share:.2f}\nlabel {label[0]:.2f}, {label[1]:.2f}", NO_BOXES) for share, image, label in best]


def shown(image: NDArray[Any], tile: Tile) -> Pixels:
    """What came out as bytes to look at: RGB, planes one below the other, floats as the row's note says."""
    if tile.options.get("layout") == "chw":
        image = image.reshape(-1, image.shape[2], 1)
    if image.dtype != np.uint8:
        normalised = any(isinstance(op, Normalize) for op in tile.ops)
        image = ((image + 3) / 6 if normalised else image).clip(0, 1) * 255 + 0.5
    return np.repeat(image, 3, axis=2).astype(np.uint8) if image.shape[2] == 1 else image.astype(np.uint8)


def told(drawn: list[dict[str, Any]]) -> str:
    """What `explain` says of a tile's operations, in a line or two."""
    return "\n".join(words for one in drawn for words in _words(one))


def _words(one: dict[str, Any]) -> Iterator[str]:
    name = one["operation"]
    if one.get("applied") is False:
        yield "not applied"
    elif "effects" in one:
        for effect in one["effects"]:
            yield effect["effect"].replace("_", " ") + (f" {effect['magnitude']:.3g}" if "magnitude" in effect else "")
        if not one["effects"]:
            yield "nothing"
    elif "flipped" in one:
        yield "flipped" if one["flipped"] else "not flipped"
    elif name == "ColorJitter":
        yield ", ".join(f"{what[0]} {one[what]:.2f}" for what in one["order"][:2])
        yield ", ".join(f"{what[0]} {one[what]:.2f}" for what in one["order"][2:])
    elif name == "Affine":
        yield f"{one['translate'][0]:+d}, {one['translate'][1]:+d} pixels"
    elif "height" in one:
        yield f"{one['height']} x {one['width']} at ({one['top']}, {one['left']})"
    elif "top" in one:
        yield f"at ({one['top']}, {one['left']})"
    else:
        yield "applied"


# ---- the pictures --------------------------------------------------------------------------------------------------------

_LETTERS = {
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "K": "10001 10010 10100 11000 10100 10010 10001",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "R": "11110 10001 10001 11110 10100 10010 10001",
}


def scene() -> Pixels:
    """A house under the sun, letters, bars of colour, a fence and fine checks: nothing of it symmetrical."""
    height, width = 384, 512
    y, x = np.mgrid[:height, :width]
    image = np.empty((height, width, 3), np.int64)
    image[...] = np.stack([60 + y * 130 // height, 120 + y * 110 // height, 205 + y * 45 // height], axis=2)  # the sky
    away = (x - 92) ** 2 + (y - 80) ** 2
    glow = (100 - away // 64).clip(0, 100)[:, :, None]
    image[...] = (image * (100 - glow) + np.array([255, 236, 150]) * glow) // 100
    image[away < 46**2] = (255, 214, 40)
    hill = y > 236 + (x - 150) ** 2 // 900
    image[hill] = (70, 130, 58)
    image[y > 290] = (96, 160, 66)
    walls = (y > 190) & (y < 330) & (x > 260) & (x < 444)
    image[walls] = (226, 204, 170)
    roof = (y > 110) & (y <= 190) & (abs(x - 352) < (y - 110) * 118 // 80)
    image[roof] = (172, 48, 40)
    image[roof & (y // 12 % 2 == 0)] = (150, 36, 34)
    image[(y > 110) & (y < 160) & (x > 400) & (x < 424)] = (120, 70, 60)  # the chimney
    image[(y > 240) & (y < 330) & (x > 280) & (x < 324)] = (88, 52, 28)  # the door
    image[(y > 222) & (y < 282) & (x > 350) & (x < 420)] = (250, 250, 250)
    image[(y > 228) & (y < 276) & (x > 356) & (x < 414) & (abs(x - 385) > 3) & (abs(y - 252) > 3)] = (70, 100, 150)
    image[(y > 262) & (y < 318) & (x > 8) & (x < 164) & (x // 12 % 2 == 0)] = (150, 110, 70)  # a fence
    image[(y > 274) & (y < 282) & (x > 8) & (x < 164)] = (120, 84, 50)
    _write(image, "STOKER", top=182, left=16, dot=6, colour=(20, 24, 60))
    bars = ((230, 30, 30), (230, 210, 30), (40, 190, 50), (30, 200, 210), (40, 60, 220), (200, 50, 200))
    for number, colour in enumerate(bars):
        image[336:376, 8 + 36 * number : 8 + 36 * (number + 1)] = colour
    image[336:376, 232:360] = (np.arange(128) * 2)[None, :, None]  # from black to white
    image[336:376, 368:504] = np.where((x // 9 + y // 9) % 2 == 0, 235, 20)[336:376, 368:504, None]
    return one_picture(image.clip(0, 255).astype(np.uint8))


def night() -> Pixels:
    """What the scene is mixed with: a moon, a wood, and its mirror in water."""
    height, width = 384, 512
    y, x = np.mgrid[:height, :width]
    image = np.stack([20 + y * 60 // height, 16 + y * 30 // height, 60 + y * 60 // height], axis=2)
    image[(x - 390) ** 2 + (y - 86) ** 2 < 44**2] = (240, 240, 225)
    for number in range(9):
        tree = (y > 130) & (y < 300) & (abs(x - 30 - 57 * number) < (y - 130 - 20 * (number % 3)) // 6)
        image[tree] = (16, 70 + 10 * (number % 3), 50)
    image[y > 300] = (24, 48, 110)
    image[(y > 300) & (y // 8 % 2 == 0)] = (40, 70, 140)
    return one_picture(image.astype(np.uint8))


def one_picture(picture: Pixels | bytes) -> Pixels:
    """Pixels or a file's bytes as the sheet shows them: the middle, at the size of a tile."""
    whole = RandomResizedCrop((HEIGHT, WIDTH), scale=(1, 1), ratio=(WIDTH / HEIGHT, WIDTH / HEIGHT))
    (sample,) = stoker.stream(lambda: iter([{"image": picture}])).image("image", whole, fast=False)
    pixels: Pixels = np.array(sample["image"])
    return pixels


def _write(image: NDArray[np.int64], text: str, *, top: int, left: int, dot: int, colour: tuple[int, int, int]) -> None:
    for number, letter in enumerate(text):
        marks = np.array([[mark == "1" for mark in line] for line in _LETTERS[letter].split()])
        mask = marks.repeat(dot, axis=0).repeat(dot, axis=1)
        begin = left + number * 6 * dot
        image[top : top + 7 * dot, begin : begin + 5 * dot][mask] = colour


# ---- the sheet -----------------------------------------------------------------------------------------------------------


def places(sections: dict[str, list[Row]]) -> tuple[dict[str, int], list[int], int]:
    """Where headings and rows begin, from the top, and where the last one ends."""
    headings, tops, y = {}, [], TITLE + HEIGHT + CAPTION + GAP
    for name, rows in sections.items():
        headings[name] = y
        y += HEADING
        for _ in rows:
            tops.append(y)
            y += HEIGHT + CAPTION + GAP
    return headings, tops, y


def corner(pixels: Pixels, top: int, column: int) -> tuple[int, int]:
    """Where a tile is drawn: in the middle of its place, (left, top)."""
    return (
        LABEL + column * (WIDTH + GAP + BESIDE) + (WIDTH + BESIDE - pixels.shape[1]) // 2,
        top + (HEIGHT - pixels.shape[0]) // 2,
    )


def draw_sheet(picture: Pixels, partner: Pixels) -> Image.Image:
    """The whole of it."""
    sections = whole_sheet()
    headings, tops, bottom = places(sections)
    width = LABEL + COLUMNS * (WIDTH + GAP + BESIDE) + GAP
    sheet = Image.new("RGB", (width, bottom + GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    large, bold, plain = (ImageFont.load_default(size) for size in (19, 14, 12))
    pen.text((GAP, GAP), "The operations of stoker.image, as the kernel does them", INK, large)
    pen.text((GAP, GAP + 26), "Below a picture: the parameter, or what was drawn for it.", PALE, plain)
    for column, (pixels, name) in enumerate(((picture, "the picture"), (partner, "its partner in MixUp, CutMix"))):
        _put(sheet, pen, Picture(pixels, name, NO_BOXES), TITLE, column, plain)
    for name, y in headings.items():
        pen.line((GAP, y + 2, width - GAP, y + 2), (200, 200, 200))
        pen.text((GAP, y + 5), name, INK, large)
    rows = [row for section in sections.values() for row in section]
    for row, y in zip(rows, tops):
        pen.text((GAP, y + 4), row.name, INK, bold)
        pen.multiline_text((GAP, y + 24), row.note, PALE, plain, spacing=2)
        for column, tile in enumerate(pictures_of(row, picture, partner)):
            _put(sheet, pen, tile, y, column, plain)
    return sheet


#: on the front page each operation has one picture: of the first row with its name, this column; else the last
OVERVIEW = {
    "RandomResizedCrop": 2, "Resize": 3, "CenterCrop": 0, "RandomCrop": 2, "Pad": 3, "CropBox": 1, "Rotate": 3, "Affine": 3,
    "ColorJitter": 3, "GaussianBlur": 3, "Solarize": 1, "Posterize": 3, "Cutout": 2, "RandomErasing": 2, "MixUp": 2, "CutMix": 2,
    "ToFloat": 0, "Normalize": 0, "TrivialAugment": 2, "RandAugment": 2, "AutoAugment": 2,
}  # fmt: skip


def draw_overview(picture: Pixels, partner: Pixels) -> Image.Image:
    """One picture for each operation."""
    tiles: dict[str, Picture] = {}
    for row in (row for section in whole_sheet().values() for row in section):
        name = row.name.partition(",")[0]
        if name in stoker.image.__all__ and name not in tiles:
            tiles[name] = pictures_of(row, picture, partner)[OVERVIEW.get(name, -1)]
    columns = 7
    step, height = WIDTH + 2 * GAP, HEIGHT + CAPTION
    sheet = Image.new("RGB", (columns * step, -(-len(tiles) // columns) * height + GAP), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for number, (name, tile) in enumerate(tiles.items()):
        row, column = divmod(number, columns)
        pixels = tile.pixels[:HEIGHT, :WIDTH]
        left, top = column * step + (step - pixels.shape[1]) // 2, GAP + row * height + (HEIGHT - pixels.shape[0]) // 2
        sheet.paste(Image.fromarray(pixels), (left, top))
        pen.text((column * step + step / 2, GAP + row * height + HEIGHT + 3), name, INK, font, anchor="ma")
    return sheet


def _put(sheet: Image.Image, pen: ImageDraw.ImageDraw, tile: Picture, y: int, column: int, font: Any) -> None:
    left, top = corner(tile.pixels, y, column)
    sheet.paste(Image.fromarray(tile.pixels), (left, top))
    for ymin, xmin, ymax, xmax in tile.boxes.tolist():
        pen.rectangle((left + xmin, top + ymin, left + xmax - 1, top + ymax - 1), outline=BOX)
    middle = left + tile.pixels.shape[1] / 2
    pen.multiline_text((middle, y + HEIGHT), tile.caption, PALE, font, anchor="ma", align="center", spacing=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the PNG to write")
    parser.add_argument("--image", type=Path, help="a picture of your own instead of the scene")
    parser.add_argument("--overview", action="store_true", help="one picture for each operation only")
    given = parser.parse_args()
    picture = one_picture(given.image.read_bytes()) if given.image else scene()
    draw = draw_overview if given.overview else draw_sheet
    draw(picture, night()).save(given.out, optimize=True)


if __name__ == "__main__":
    main()
