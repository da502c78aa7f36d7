"""Stoker's own JPEG decoder: which files it takes, how close its pixels are to a full decode, and what it says of bad ones."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stoker.kernel import native
from stoker.kernel.native import DecoderKind, Program, SeekUse, Spans, Status

from ..support import Simd
from .images import center_crop, crop_box, difference, hflip, jpeg, opened, picture, random_resized_crop, resize, run, span_rows

OWN: dict[str, dict[str, Any]] = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "gray": {"mode": "L"},
    "rgb": {"keep_rgb": True},
    "restarts": {"subsampling": 2, "restart_marker_blocks": 5},
    "row-restarts": {"subsampling": 0, "restart_marker_rows": 1},
    "optimised": {"subsampling": 2, "optimize": True},
}
THUMBNAIL = Program(ops=(resize(20, 20),))


def photograph(width: int, height: int, seed: int) -> NDArray[np.uint8]:
    """Shapes of all sizes with soft and hard edges, as in photographs: noise whose strength falls with its frequency."""
    rng = np.random.default_rng(seed)
    total = np.full((height, width, 3), 128.0)
    for cells, strength in [(2, 60.0), (5, 40.0), (12, 25.0), (30, 14.0), (80, 7.0)]:
        coarse = rng.normal(0, 1, (cells, cells, 3))
        for c, weight in enumerate((1.0, 0.8, 0.9)):
            layer = Image.fromarray((coarse[..., c] + 0.6 * coarse[..., 0]).astype(np.float32))
            total[..., c] += strength * weight * np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC))
    y, x = np.mgrid[:height, :width]
    disc = (x - width * 0.6) ** 2 + (y - height * 0.4) ** 2 < (0.2 * min(width, height)) ** 2
    total[disc] = 255 - total[disc]
    return (total + rng.normal(0, 2, total.shape)).clip(0, 255).astype(np.uint8)


def encoded(pixels: NDArray[np.uint8], kind: str, quality: int = 90) -> bytes:
    options = dict(OWN[kind])
    image = Image.fromarray(pixels).convert(options.pop("mode", "RGB"))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, **options)
    return out.getvalue()


def only_own(**options: Any) -> Program:
    return Program(decoder=DecoderKind.OWN, **options)


# ---- which files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OWN)
def test_everyday_files_are_decoded_by_the_own_decoder(kind: str) -> None:
    data = encoded(picture(64, 64), kind)
    for program in (THUMBNAIL, only_own(ops=(resize(20, 20),))):
        _, rows = run(program, [data], 20, 20)
        assert rows["status"][0] == Status.OK and rows["decoder"][0] == DecoderKind.OWN and rows["warnings"][0] == 0


def patched(data: bytes, at: int, value: int) -> bytes:
    frame = data.index(b"\xff\xc0")
    return data[: frame + at] + bytes([value]) + data[frame + at + 1 :]


def others() -> dict[str, bytes]:
    plain, cmyk = jpeg(40, 30), io.BytesIO()
    Image.fromarray(picture(40, 30)).convert("CMYK").save(cmyk, "JPEG")
    return {
        "progressive": jpeg(40, 30, kind="progressive"),
        "arithmetic": patched(plain, 1, 0xC9),
        "lossless": patched(plain, 1, 0xC3),
        "12-bit": patched(plain, 4, 12),
        "cmyk": cmyk.getvalue(),
    }


@pytest.mark.parametrize("kind", others())
def test_other_kinds_are_left_to_others_by_their_header(kind: str) -> None:
    data = others()[kind]
    _, rows = run(only_own(ops=(resize(20, 20),)), [data], 20, 20)
    assert rows["status"][0] == Status.UNSUPPORTED and rows["message"][0]
    _, rows = run(THUMBNAIL, [data], 20, 20)
    assert rows["decoder"][0] != DecoderKind.OWN
    with native.Decoder() as decoder:
        index, row = decoder.seek_index(Program(), data)
    assert index == b"" and row["status"] == Status.UNSUPPORTED


# ---- pixels ---------------------------------------------------------------------------------------------------------------


def through_pillow(data: bytes, row: np.void, size: int) -> NDArray[np.uint8]:
    """A full decode, the crop, an antialiased resize and the flip, as everybody else does it."""
    image = opened(data).crop(tuple(row["clip"].tolist())).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if row["flip"] else image)


@pytest.mark.parametrize("kind", OWN)
def test_exact_crops_are_those_of_a_full_decode_and_an_antialiased_resize(kind: str) -> None:
    images = [encoded(photograph(500, 375, i) if i % 2 else photograph(333, 500, i), kind) for i in range(4)]
    program = only_own(ops=(random_resized_crop(224, 224), hflip()), seed=4, exact=True)
    out, rows = run(program, images * 2, 224, 224)
    assert (rows["status"] == Status.OK).all() and (rows["shrink"] == 1).all()
    apart = [difference(pixels, through_pillow(data, row, 224)).mean() for data, pixels, row in zip(images * 2, out, rows)]
    assert max(apart) < 0.7


@pytest.mark.parametrize("kind", OWN)
def test_shrunken_crops_are_close_to_a_full_decode(kind: str) -> None:
    images = [encoded(photograph(900, 700, i), kind) for i in range(2)]
    out, rows = run(only_own(ops=(random_resized_crop(96, 96), hflip()), seed=4), images * 3, 96, 96)
    assert set(rows["shrink"].tolist()) - {1}, "no image was shrunk: the test tests nothing"
    for data, pixels, row in zip(images * 3, out, rows):
        assert difference(pixels, through_pillow(data, row, 96)).mean() < 2


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("exact", [False, True])
def test_every_simd_level_gives_the_same_bytes(kind: str, exact: bool, simd: Simd) -> None:
    images = [encoded(photograph(300 + 7 * i, 233, i), kind, quality=(60, 85, 100)[i]) for i in range(3)]
    program = only_own(ops=(random_resized_crop(112, 112), hflip()), seed=7, exact=exact)
    simd(0)
    expected, _ = run(program, images, 112, 112)
    for level in (1, 2):
        simd(level)
        out, rows = run(program, images, 112, 112)
        assert (rows["status"] == Status.OK).all() and np.array_equal(out, expected)


def with_seeks(program: Program, images: list[bytes], indices: list[bytes], size: int) -> tuple[NDArray[Any], NDArray[np.void]]:
    def spans(parts: list[bytes]) -> Spans:
        lengths = np.array([len(part) for part in parts], np.int64)
        return Spans(np.frombuffer(b"".join(parts) or b"\0", np.uint8), np.cumsum(lengths) - lengths, lengths)

    data, count = spans(images), len(images)
    out = np.zeros((count, *program.shape(size, size)), program.dtype)
    with native.Decoder() as decoder:
        rows = span_rows(
            decoder, program, data.data, data.starts, data.lengths, None, np.zeros(count, np.uint32),
            np.arange(count, dtype=np.int64), out, seeks=spans(indices),
        )  # fmt: skip
    return out, rows


@pytest.mark.parametrize("kind", ["444", "422", "420", "gray", "rgb"])
@pytest.mark.parametrize("step", [1, 16, 60000])
def test_a_seek_index_changes_no_pixel(kind: str, step: int) -> None:
    images = [encoded(photograph(400, 300, i), kind) for i in range(4)]
    with native.Decoder() as decoder:
        indices = [decoder.seek_index(Program(), image, step)[0] for image in images]
    assert all(native.seek_fits(image, index) for image, index in zip(images, indices))
    for program in (
        only_own(ops=(random_resized_crop(64, 64), hflip()), seed=2),
        only_own(ops=(resize(70, 90), center_crop(64, 64)), exact=True),
    ):
        plain, _ = run(program, images, 64, 64)
        sought, rows = with_seeks(program, images, indices, 64)
        assert (rows["seek"] == SeekUse.USED).all() and np.array_equal(plain, sought)
        swapped, rows = with_seeks(program, images, [indices[1], b"", indices[2][:-1], b"S\1junk"], 64)
        assert np.array_equal(plain, swapped)
        assert rows["seek"][0] == SeekUse.UNFIT and rows["seek"][1] == SeekUse.NONE and rows["seek"][3] == SeekUse.UNFIT


def test_an_index_reaches_what_the_filter_reads_beyond_the_crop() -> None:
    """Far down-scaled, a pixel at the rim of a crop reads many rows of MCUs outside of it."""
    images = [encoded(photograph(16, 4000, 1), "gray"), encoded(photograph(4000, 16, 2), "444")]
    with native.Decoder() as decoder:
        indices = [decoder.seek_index(Program(), image)[0] for image in images]
    for height, width in [(40, 40), (20, 20), (100, 100)]:
        program = only_own(ops=(resize(height, width), center_crop(18, 18)), exact=True)
        plain, _ = run(program, images, 18, 18)
        sought, rows = with_seeks(program, images, indices, 18)
        assert (rows["status"] == Status.OK).all() and np.array_equal(plain, sought)


# ---- damage ---------------------------------------------------------------------------------------------------------------

PLACE = re.compile(rb"MCU (\d+) of (\d+) \(row (\d+), column (\d+)\)")


def entropy_start(data: bytes) -> int:
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def test_corrupt_data_name_the_mcu_at_which_it_shows() -> None:
    data = encoded(photograph(160, 120, 3), "420")
    start, end = entropy_start(data), len(data) - 2
    cuts = [start + (end - start) * k // 10 for k in range(1, 10)]
    interrupted = [data[:cut] + b"\xff\xc8" + data[cut + 2 :] for cut in cuts]
    shortened = [data[:cut] + b"\xff\xd9" for cut in cuts]
    for images, status in [(interrupted, Status.CORRUPT), (shortened, Status.TRUNCATED)]:
        _, rows = run(only_own(ops=(resize(20, 20),)), images, 20, 20)
        assert (rows["status"] == status).all()
        places = [[int(n) for n in PLACE.search(row["message"]).groups()] for row in rows]  # type: ignore[union-attr]
        mcus = [place[0] for place in places]
        assert mcus == sorted(mcus) and len(set(mcus)) > 5
        assert all(total == 10 * 8 and row * 10 + column == mcu < total for mcu, total, row, column in places)
        assert all(start <= row["where"] <= cut + 2 for row, cut in zip(rows, cuts))


def with_dc_code(data: bytes, counts: list[int], symbols: list[int]) -> bytes:
    """The file with another DC table 0."""
    at = data.index(b"\xff\xc4")
    size = int.from_bytes(data[at + 2 : at + 4], "big")
    assert data[at + 4] == 0 and size == 2 + 17 + sum(data[at + 5 : at + 21]), "a segment of this table alone"
    table = bytes([0, *counts, *[0] * (16 - len(counts)), *symbols])
    return data[: at + 2] + (2 + len(table)).to_bytes(2, "big") + table + data[at + 2 + size :]


@pytest.mark.parametrize(
    "counts, symbols, sound",
    [
        ([1], [0], True),
        ([1, 1], [0, 1], True),
        ([2], [0, 1], False),  # all ones is no code
        ([1, 2], [0, 1, 2], False),
        ([1, 3], [0, 1, 2, 3], False),  # more codes than there are
        ([1, 1], [0, 16], False),  # no difference has 16 bits
        ([0, 0, 0, 0, 0, 0, 0, 200], [0] * 200, True),
        ([1, 0, 0, 0, 0, 0, 0, 200], [0] * 201, False),
    ],
)
def test_a_huffman_table_is_taken_as_libjpeg_takes_it(counts: list[int], symbols: list[int], sound: bool) -> None:
    flat = io.BytesIO()
    Image.new("L", (16, 16), 128).save(flat, "JPEG", optimize=True)
    _, rows = run(only_own(ops=(resize(20, 20),)), [with_dc_code(flat.getvalue(), counts, symbols)], 20, 20)
    assert (rows["status"][0] == Status.CORRUPT) == (not sound), rows["message"][0]


def test_a_code_that_does_not_exist_is_told_with_its_place() -> None:
    data = encoded(photograph(160, 120, 3), "444", quality=50)
    start = entropy_start(data)
    bad = data[: start + 40] + b"\xff\x00" * 20 + data[start + 80 :]  # 160 ones: no code has more than 15 of them
    _, rows = run(only_own(ops=(resize(20, 20),)), [bad], 20, 20)
    assert rows["status"][0] == Status.CORRUPT and PLACE.search(rows["message"][0])
    _, rows = run(only_own(ops=(resize(20, 20),), lenient=True), [bad], 20, 20)
    assert rows["status"][0] == Status.OK and rows["warnings"][0] > 0


def test_a_lenient_decode_goes_on_behind_the_next_restart_marker() -> None:
    clean = encoded(photograph(160, 120, 3), "restarts")
    at = clean.index(b"\xff\xd2")
    bad = clean[: at - 30] + clean[at:]
    ops = (crop_box(),)
    whole = [(0, 0, 120, 160)]
    right, _ = run(only_own(ops=ops), [clean], 120, 160, boxes=whole)
    _, rows = run(only_own(ops=ops), [bad], 120, 160, boxes=whole)
    assert rows["status"][0] in (Status.CORRUPT, Status.TRUNCATED)
    out, rows = run(only_own(ops=ops, lenient=True), [bad], 120, 160, boxes=whole)
    assert rows["status"][0] == Status.OK and rows["warnings"][0] > 0
    changed = difference(out[0], right[0]).max(axis=(1, 2)) > 0
    assert changed[:48].any() and not changed[48:].any()


def test_a_cut_behind_the_crop_is_told_by_the_missing_end() -> None:
    data = encoded(photograph(160, 120, 3), "420")
    _, rows = run(only_own(ops=(crop_box(),)), [data[:-20]], 8, 8, boxes=[(0, 0, 8, 8)])
    assert rows["status"][0] == Status.TRUNCATED
