"""`decode`: every format and kind of pixel to RGB or gray, 8 bits or floats, for NumPy, Pillow or torch; or a clear error."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import stoker
from stoker.errors import ConfigError, CorruptImage, ImageError, ImageTooLarge, TruncatedImage, UnsupportedImage
from stoker.image import Resize

from ..support import image_bytes, picture

GRAY = picture(12, 9, channels=1)[:, :, 0]
RGB = picture(12, 9)
WIDE = GRAY.astype(np.uint16) * 257 - (GRAY > 0)  # the lower byte is not the upper one


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def npy(array: NDArray[Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def png16(pixels: NDArray[np.uint16]) -> bytes:
    """A PNG of 16 bits a channel, which Pillow reads but does not write."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b"")


def gray_tiff(pixels: NDArray[Any], bits: int) -> bytes:
    """A TIFF of one channel with any number of bits, most significant first, each line from a byte on; Pillow writes 8 and 16."""
    height, width = pixels.shape
    digits = pixels[:, :, None] >> np.arange(bits - 1, -1, -1) & 1
    strip = np.packbits(digits.astype(np.uint8).reshape(height, width * bits), axis=1).tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 273: 8 + 2 + 9 * 12 + 4, 277: 1, 278: height, 279: len(strip)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, number) for tag, number in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + strip


def decoded(data: bytes, **options: Any) -> Any:
    return next(iter(stoker.stream(lambda: [{"image": data}]).decode("image", **options)))["image"]


def gray_of(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(pixels).convert("L"))[:, :, None]


#: what is stored -> (bytes, the RGB pixels it means)
SAME: dict[str, tuple[bytes, NDArray[np.uint8]]] = {
    "PNG": (saved(Image.fromarray(RGB), "PNG"), RGB),
    "WebP": (saved(Image.fromarray(RGB), "WEBP", lossless=True), RGB),
    "PPM": (saved(Image.fromarray(RGB), "PPM"), RGB),
    "PPM as text": (b"P3\n1 1\n255\n10 20 30\n", np.array([[[10, 20, 30]]], np.uint8)),
    "BMP": (saved(Image.fromarray(RGB), "BMP"), RGB),
    "TIFF": (saved(Image.fromarray(RGB), "TIFF"), RGB),
    "TIFF, LZW": (saved(Image.fromarray(RGB), "TIFF", compression="tiff_lzw"), RGB),
    "npy": (npy(RGB), RGB),
    "npy in Fortran's order": (npy(np.asfortranarray(RGB)), RGB),
    "npy of four channels": (npy(np.dstack([RGB, GRAY])), RGB),
    "gray PNG": (saved(Image.fromarray(GRAY), "PNG"), np.dstack([GRAY] * 3)),
    "gray npy": (npy(GRAY), np.dstack([GRAY] * 3)),
    "gray npy of one channel": (npy(GRAY[:, :, None]), np.dstack([GRAY] * 3)),
    "RGBA": (saved(Image.fromarray(np.dstack([RGB, GRAY])), "PNG"), RGB),
    "gray with alpha": (saved(Image.fromarray(GRAY).convert("LA"), "PNG"), np.dstack([GRAY] * 3)),
    "16 bit gray PNG": (png16(WIDE[:, :, None]), np.dstack([WIDE >> 8] * 3).astype(np.uint8)),
    "16 bit gray TIFF": (saved(Image.fromarray(WIDE), "TIFF"), np.dstack([WIDE >> 8] * 3).astype(np.uint8)),
    "12 bit gray TIFF": (gray_tiff(WIDE >> 4, 12), np.dstack([WIDE >> 8] * 3).astype(np.uint8)),
    "16 bit gray JPEG 2000": (
        saved(Image.fromarray(WIDE), "JPEG2000", irreversible=False),
        np.dstack([WIDE >> 8] * 3).astype(np.uint8),
    ),
    "16 bit PGM": (b"P5 12 9 65535\n" + WIDE.astype(">u2").tobytes(), np.dstack([WIDE >> 8] * 3).astype(np.uint8)),
    "16 bit RGB PNG": (png16(np.dstack([WIDE] * 3)), np.dstack([WIDE >> 8] * 3).astype(np.uint8)),
    "16 bit RGBA PNG": (png16(np.dstack([WIDE] * 4)), np.dstack([WIDE >> 8] * 3).astype(np.uint8)),
    "palette": (
        saved(Image.fromarray(RGB).quantize(16), "PNG"),
        np.asarray(Image.fromarray(RGB).quantize(16).convert("RGB")),
    ),
    "palette with a transparent colour": (
        saved(Image.fromarray(RGB).quantize(16), "PNG", transparency=3),
        np.asarray(Image.fromarray(RGB).quantize(16).convert("RGB")),
    ),
    "1 bit": (saved(Image.fromarray(GRAY).convert("1"), "PNG"), np.asarray(Image.fromarray(GRAY).convert("1").convert("RGB"))),
    "PBM": (saved(Image.fromarray(GRAY).convert("1"), "PPM"), np.asarray(Image.fromarray(GRAY).convert("1").convert("RGB"))),
    "CMYK TIFF": (saved(Image.fromarray(RGB).convert("CMYK"), "TIFF"), RGB),
    "animated WebP": (
        saved(Image.fromarray(RGB), "WEBP", lossless=True, save_all=True, append_images=[Image.fromarray(255 - RGB)]),
        RGB,
    ),
    "animated PNG": (saved(Image.fromarray(RGB), "PNG", save_all=True, append_images=[Image.fromarray(255 - RGB)]), RGB),
    "animated GIF": (
        saved(Image.fromarray(GRAY), "GIF", save_all=True, append_images=[Image.fromarray(255 - GRAY)]),
        np.dstack([GRAY] * 3),
    ),
    "TIFF of two pages": (saved(Image.fromarray(RGB), "TIFF", save_all=True, append_images=[Image.fromarray(255 - RGB)]), RGB),
}


@pytest.mark.parametrize("kind", SAME)
def test_every_kind_of_image_is_rgb_gray_and_floats(kind: str) -> None:
    data, expected = SAME[kind]
    np.testing.assert_array_equal(decoded(data), expected)
    gray = decoded(data, color="gray")
    assert gray.shape == (*expected.shape[:2], 1) and np.abs(gray.astype(int) - gray_of(expected)).max() <= 1
    np.testing.assert_array_equal(decoded(data, out="float32"), expected.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(decoded(data, orient=True), expected)


@pytest.mark.parametrize("kind", SAME)
def test_image_takes_them_all_too(kind: str) -> None:
    data, expected = SAME[kind]
    (sample,) = stoker.stream(lambda: [{"image": data}]).image("image", Resize(expected.shape[:2]))
    np.testing.assert_array_equal(sample["image"], expected)


@pytest.mark.parametrize("kind", ["PNG", "npy"])
def test_an_encoded_file_may_be_an_array_or_a_tensor(kind: str) -> None:
    import torch

    data, expected = SAME[kind]
    read = np.frombuffer(data, np.uint8).copy()
    for given in (read, torch.from_numpy(read)):
        source = stoker.stream(lambda given=given: [{"image": given}])
        for pipeline in (source.image("image", Resize(expected.shape[:2])), source.decode("image", orient=True)):
            np.testing.assert_array_equal(next(iter(pipeline))["image"], expected)


@pytest.mark.parametrize("kind", ["PNG", "npy", "16 bit PGM", "palette"])
def test_pillow_and_torch_get_what_they_expect(kind: str) -> None:
    import torch

    data, expected = SAME[kind]
    image = decoded(data, format="pil")
    assert isinstance(image, Image.Image) and image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), expected)
    assert decoded(data, format="pil", color="gray").mode == "L"
    tensor = decoded(data, format="torch")
    assert tensor.dtype == torch.uint8 and tensor.is_contiguous()
    np.testing.assert_array_equal(tensor.numpy(), expected.transpose(2, 0, 1))
    floats = decoded(data, format="torch", out="float32", color="gray")
    assert floats.dtype == torch.float32 and floats.shape == (1, *expected.shape[:2]) and 0 <= floats.min() <= floats.max() <= 1


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "1", "CMYK", "YCbCr", "HSV", "LAB", "I;16"])
def test_images_of_pillow_that_functions_give_mean_their_colours_whatever_their_mode(mode: str) -> None:
    image = Image.fromarray(WIDE) if mode == "I;16" else Image.fromarray(RGB).convert(mode)
    expected = np.dstack([WIDE >> 8] * 3) if mode == "I;16" else np.asarray(image.convert("RGB"))
    given = stoker.stream(lambda: [{"image": image}])
    for stage in (given.image("image"), given.decode("image"), given.image("image", Resize((9, 12)))):
        np.testing.assert_array_equal(next(iter(stage))["image"], expected)
    gray = next(iter(given.image("image", color="gray")))["image"]
    assert np.abs(gray.astype(int) - gray_of(expected.astype(np.uint8))).max() <= 1


def test_an_image_of_pillow_that_is_none_is_an_error_of_its_sample() -> None:
    half = saved(Image.fromarray(RGB), "PNG")[:200]
    opened = stoker.stream(lambda: [{"image": half}]).map(image=lambda data: Image.open(io.BytesIO(data)))
    for stage in (opened.image("image"), opened.decode("image")):
        with pytest.raises(TruncatedImage, match="Pillow cannot decode it"):
            list(stage)
    for image, told in ((Image.new("F", (2, 2)), "no defined range"), (Image.new("RGB", (0, 2)), "no pixel")):
        with pytest.raises(UnsupportedImage, match=told):
            list(stoker.stream(lambda image=image: [{"image": image}]).image("image"))


def test_what_a_function_gives_that_is_no_image_is_named_as_people_name_it() -> None:
    with pytest.raises(UnsupportedImage, match=r"sample '0': a tuple is neither .*inhomogeneous"):
        list(stoker.stream(lambda: [{"image": (RGB, 1)}]).image("image"))
    for value, told in (
        ("cat.jpg", "a str is neither"),
        (RGB.transpose(2, 0, 1), "expected channels last"),
        ({}, "a dict is neither"),
    ):
        with pytest.raises(UnsupportedImage, match=told):
            list(stoker.stream(lambda value=value: [{"image": value}]).image("image"))


def test_jpegs_are_near_to_pillows() -> None:
    for mode in ("RGB", "L", "CMYK"):
        data = image_bytes(40, 30, mode=mode, format="JPEG", quality=95)
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.abs(decoded(data).astype(int) - expected).max() <= 4


def test_npy_fields_of_a_shard_are_decoded_already(tmp_path: Path) -> None:
    import torch

    stoker.write_tar(tmp_path / "x.tar", [{"__key__": "a", "npy": RGB}, {"__key__": "b", "npy": GRAY}])
    first, second = stoker.tar(tmp_path / "x.tar").decode("npy", format="torch", color="gray")
    assert first["npy"].dtype == torch.uint8 and first["npy"].shape == second["npy"].shape == (1, 9, 12)
    np.testing.assert_array_equal(first["npy"].numpy()[0], gray_of(RGB)[:, :, 0])


def npy_of(dtype: str, shape: str) -> bytes:
    """A header of this dtype and shape, with hardly anything behind it."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"abc"


BAD: dict[str, tuple[bytes, type[ImageError], str]] = {
    "npy of floats": (npy(RGB / 255.0), UnsupportedImage, r"float64\[9, 12, 3\] is not an image"),
    "npy of 16 bits": (npy(WIDE), UnsupportedImage, "uint16"),
    "npy of one dimension": (npy(GRAY.ravel()), UnsupportedImage, "not an image"),
    "npy of two channels": (npy(RGB[:, :, :2]), UnsupportedImage, "not an image"),
    "npy of no pixels": (npy(RGB[:0]), CorruptImage, "no pixel"),
    "npy of objects": (npy_of("|O", "(1, 1)"), UnsupportedImage, "object"),
    "npy cut short": (npy(RGB)[:-1], TruncatedImage, "say|says"),
    "npy that is too long": (npy(RGB) + b"\0", CorruptImage, "say|says"),
    "npy without a header": (npy(RGB)[:20], CorruptImage, "header"),
    "npy of a version unknown": (npy(RGB).replace(b"NUMPY\x01", b"NUMPY\x09", 1), CorruptImage, "header"),
    "npy that is a bomb": (npy_of("|u1", f"({10**9}, {10**9}, 3)"), ImageTooLarge, "more than"),
    "npy that is negative": (npy_of("|u1", "(-9, -9, 3)"), CorruptImage, "no pixel"),
    "32 bit TIFF": (saved(Image.fromarray(GRAY.astype(np.float32)), "TIFF"), UnsupportedImage, "32 bits"),
    "32 bit integer TIFF": (saved(Image.fromarray(GRAY.astype(np.int32)), "TIFF"), UnsupportedImage, "32 bits"),
    "10 bit TIFF": (gray_tiff(WIDE >> 6, 10), UnsupportedImage, "not a supported image"),
    "14 bit TIFF": (gray_tiff(WIDE >> 2, 14), UnsupportedImage, "not a supported image"),
    "text": (b"hello, world", UnsupportedImage, "not a supported image"),
    "torn PNG": (SAME["PNG"][0][:60], ImageError, "Pillow cannot decode"),
    "torn WebP": (SAME["WebP"][0][:40], ImageError, "cannot decode|not a supported image"),
    "torn TIFF": (SAME["TIFF"][0][:40], ImageError, "cannot decode|not a supported image"),
    "torn BMP": (SAME["BMP"][0][:60], ImageError, "cannot decode|not a supported image"),
    "torn PPM": (SAME["PPM"][0][:60], ImageError, "cannot decode|not a supported image"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_image_is_an_error_that_says_why(kind: str) -> None:
    data, error, why = BAD[kind]
    for pipeline in (
        stoker.stream(lambda: [{"__key__": "it", "image": data}]).decode("image", orient=True),
        stoker.stream(lambda: [{"__key__": "it", "image": data}]).image("image", Resize((4, 4))),
    ):
        with pytest.raises(error, match=why):
            list(pipeline)


def test_an_npy_of_too_many_pixels_is_refused_by_its_header() -> None:
    with pytest.raises(ImageTooLarge, match="12 x 9 pixels"):
        decoded(npy(RGB), max_pixels=100)


def test_parameters_are_checked() -> None:
    numbers = stoker.arrays(image=np.zeros(3))
    wrong = {"format": "jax"}, {"color": "cmyk"}, {"out": "float16"}, {"format": "pil", "out": "float32"}, {"max_pixels": 0}
    for options in wrong:
        with pytest.raises(ConfigError, match="decode"):
            numbers.decode("image", **options)
    with pytest.raises(ConfigError, match="use encoded bytes"):
        numbers.decode("image").explain()
