"""EXIF orientation: read from headers, followed when asked, the same pixels whoever decodes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import stoker
from stoker.image import CenterCrop, CropBox, Resize
from stoker.image.orient import upright
from stoker.kernel import native

from ..support import picture

WIDTH, HEIGHT = 48, 32
FORMATS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95, "subsampling": 0},
    "JPEG progressive": {"quality": 95, "progressive": True},
    "PNG": {},
    "WEBP": {"lossless": True},
    "TIFF": {},
}


def turned_file(kind: str, orientation: int, mode: str = "RGB") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    Image.fromarray(picture(WIDTH, HEIGHT)).convert(mode).save(out, kind.split()[0], exif=exif, **FORMATS[kind])
    return out.getvalue()


def as_pillow(data: bytes, mode: str = "RGB") -> Any:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert(mode))


def folder(tmp_path: Path, kind: str) -> Path:
    (tmp_path / "a").mkdir()
    for orientation in range(1, 9):
        (tmp_path / "a" / f"{orientation}.img").write_bytes(turned_file(kind, orientation))
    return tmp_path


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_is_pillows(orientation: int) -> None:
    pixels = picture(WIDTH, HEIGHT)
    image = Image.fromarray(pixels)
    image.getexif()[0x0112] = orientation
    np.testing.assert_array_equal(upright(pixels, orientation), np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("kind", FORMATS)
def test_decode_turns_images_upright_when_asked(kind: str, tmp_path: Path) -> None:
    root = folder(tmp_path, kind)
    for color in ("rgb", "gray"):
        for sample in stoker.files(root, "**/*.img").decode("image", color=color, orient=True):
            data = (root / sample.key).read_bytes()
            expected = as_pillow(data, "RGB" if color == "rgb" else "L")
            assert sample["image"].shape[:2] == expected.shape[:2]
            difference = np.abs(sample["image"].squeeze().astype(int) - expected)
            assert difference.mean() < 1 and (not kind.startswith("JPEG") or difference.max() <= 6)
            assert sample["image"].flags.c_contiguous


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "TIFF"])
def test_it_is_ignored_unless_asked_for(kind: str, tmp_path: Path) -> None:
    root = folder(tmp_path, kind)
    for sample in stoker.files(root, "**/*.img").decode("image"):
        assert sample["image"].shape == (HEIGHT, WIDTH, 3)


def test_a_tiff_is_always_upright(tmp_path: Path) -> None:
    root = folder(tmp_path, "TIFF")
    for orient in (False, True):
        for sample in stoker.files(root, "**/*.img").decode("image", orient=orient):
            np.testing.assert_array_equal(sample["image"], as_pillow((root / sample.key).read_bytes()))


@pytest.mark.parametrize("kind", FORMATS)
def test_image_turns_before_its_operations(kind: str, tmp_path: Path) -> None:
    """By every way: read and decoded in one call, from bytes in memory, and with sizes that vary."""
    root = folder(tmp_path, kind)
    files = stoker.files(root, "**/*.img")
    ops = (CenterCrop((20, 28)),)
    drawn = files.image("image", *ops, orient=True, fast=False)
    held = files.map(image=bytes).image("image", *ops, orient=True, fast=False)
    varying = files.image("image", orient=True, fast=False)
    for a, b, c in zip(drawn, held, varying):
        whole = as_pillow((root / a.key).read_bytes())
        top, left = round((whole.shape[0] - 20) / 2), round((whole.shape[1] - 28) / 2)
        expected = whole[top : top + 20, left : left + 28].astype(int)
        assert np.abs(a["image"] - expected).mean() < 1 and np.abs(a["image"] - expected).max() <= 6
        np.testing.assert_array_equal(a["image"], b["image"])
        assert c["image"].shape == whole.shape


def test_boxes_count_pixels_of_the_upright_image(tmp_path: Path) -> None:
    root = folder(tmp_path, "PNG")
    boxed = stoker.files(root, "**/*.img").map(lambda s: {**s, "box": (2, 3, 12, 20)})
    for sample in boxed.image("image", CropBox(), orient=True):
        expected = as_pillow((root / f"a/{sample.key.split('/')[-1]}").read_bytes())[2:12, 3:20]
        np.testing.assert_array_equal(sample["image"], expected)


def test_explain_tells_the_upright_size(tmp_path: Path) -> None:
    pipeline = stoker.files(folder(tmp_path, "JPEG"), "**/*.img").image("image", Resize((8, 8)), orient=True).batch(8)
    with pipeline.loader(executor="inline") as loader:
        sizes = {row["key"].split("/")[-1]: row["image image"]["size"] for row in loader.explain(0)}
    assert sizes["3.img"] == [HEIGHT, WIDTH] and sizes["6.img"] == [WIDTH, HEIGHT]
    assert "orient=True" in pipeline.explain()


@pytest.mark.parametrize("orientation", [*range(10), 65535])
def test_the_header_tells_an_orientation_that_there_is(orientation: int) -> None:
    told = native.jpeg_header(turned_file("JPEG", orientation)).orientation
    assert told == (orientation if 1 <= orientation <= 8 else 0)


def test_exif_that_is_damaged_means_nothing(tmp_path: Path) -> None:
    data = turned_file("JPEG", 6)
    at = data.index(b"Exif")
    (tmp_path / "a").mkdir()
    for cut in range(4, int.from_bytes(data[at - 2 : at], "big") - 2):
        damaged = bytearray(data)
        damaged[at + cut] ^= 0xFF
        (tmp_path / "a" / f"{cut:02}.jpg").write_bytes(bytes(damaged))
    for sample in stoker.files(tmp_path).decode("image", orient=True):
        assert sample["image"].shape in ((HEIGHT, WIDTH, 3), (WIDTH, HEIGHT, 3))


def test_a_cmyk_jpeg_is_turned_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(turned_file("JPEG", 8, mode="CMYK"))
    (sample,) = stoker.files(tmp_path).decode("image", orient=True)
    np.testing.assert_array_equal(sample["image"], as_pillow((tmp_path / "a" / "x.jpg").read_bytes()))


def test_damage_in_a_turned_jpeg_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    data = turned_file("JPEG", 6)
    (tmp_path / "a" / "x.jpg").write_bytes(data[: len(data) * 2 // 3])
    for pipeline in (stoker.files(tmp_path).decode("image", orient=True), stoker.files(tmp_path).image("image", orient=True)):
        with pytest.raises(stoker.errors.TruncatedImage, match=r"x\.jpg"):
            list(pipeline)
