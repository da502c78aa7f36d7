"""Bad images: each is told by name, none is silently gray, none crashes."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from PIL import Image

from stoker.errors import CorruptImage, ImageTooLarge, TruncatedImage, UnsupportedImage
from stoker.kernel import native
from stoker.kernel.native import Program, Status

from .images import KINDS, crop_box, difference, jpeg, opened, picture, resize, run

THUMBNAIL = Program(ops=(resize(20, 20),))
LENIENT = Program(ops=(resize(20, 20),), lenient=True)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_cut_anywhere_is_an_error(kind: str) -> None:
    data = jpeg(120, 90, kind=kind)
    cuts = np.linspace(0, len(data) - 1, 40).astype(int).tolist()
    _, rows = run(THUMBNAIL, [data[:cut] for cut in cuts], 20, 20)
    assert (rows["status"] != Status.OK).all()
    assert rows["status"][0] == Status.EMPTY
    late = [i for i, cut in enumerate(cuts) if cut > len(data) // 2]
    assert (rows["status"][late] == Status.TRUNCATED).all()
    assert all(0 <= rows["where"][i] <= cuts[i] for i in late)
    assert all(rows["message"][i] for i in range(40))


def test_a_cut_behind_the_crop_is_an_error_too() -> None:
    data = jpeg(200, 200)
    _, rows = run(Program(ops=(crop_box(),)), [data[:-50]], 10, 10, boxes=[(0, 0, 10, 10)])
    assert rows["status"][0] == Status.TRUNCATED


def test_lenience_keeps_what_is_there_and_counts_what_is_not() -> None:
    data = jpeg(120, 90)
    cuts = [len(data) * k // 10 for k in (5, 7, 9)]
    out, rows = run(LENIENT, [data, *(data[:cut] for cut in cuts)], 20, 20)
    assert (rows["status"] == Status.OK).all()
    assert rows["warnings"][0] == 0 and (rows["warnings"][1:] > 0).all()
    assert difference(out[0][:4], out[3][:4]).max() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_end_in_pixels_or_a_named_error(kind: str) -> None:
    data, rng, damaged = jpeg(60, 50, kind=kind), np.random.default_rng(5), []
    for _ in range(200):
        bad = bytearray(data)
        bad[rng.integers(len(bad))] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(bad))
    _, strict = run(THUMBNAIL, damaged, 20, 20)
    _, again = run(THUMBNAIL, damaged, 20, 20)
    _, lenient = run(LENIENT, damaged, 20, 20)
    assert np.array_equal(strict, again)
    allowed = {Status.OK, Status.UNSUPPORTED, Status.TRUNCATED, Status.CORRUPT, Status.LIMIT}
    assert set(strict["status"].tolist()) | set(lenient["status"].tolist()) <= allowed
    told = (strict["status"] == Status.CORRUPT) & (lenient["status"] == Status.OK)
    assert (lenient["warnings"][told] > 0).all()


def test_no_bytes_and_other_formats_are_told_apart() -> None:
    image = Image.fromarray(picture(30, 30))
    others = [b"", encoded(image, "PNG"), encoded(image, "GIF"), b"hello", b"\xff", encoded(image.convert("CMYK"), "JPEG")]
    _, rows = run(THUMBNAIL, others, 20, 20)
    assert rows["status"].tolist() == [
        Status.EMPTY,
        Status.UNSUPPORTED,
        Status.UNSUPPORTED,
        Status.UNSUPPORTED,
        Status.TRUNCATED,
        Status.UNSUPPORTED,
    ]


def patched(data: bytes, height: int, width: int) -> bytes:
    """The same JPEG with another size in its frame header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


def test_a_size_bomb_is_refused_at_once() -> None:
    bomb = patched(jpeg(16, 16), 65500, 65500)
    start = time.thread_time()
    _, rows = run(THUMBNAIL, [bomb], 20, 20)
    assert rows["status"][0] == Status.LIMIT and b"65500x65500" in rows["message"][0]
    with native.Decoder() as decoder, pytest.raises(ImageTooLarge):
        decoder.decode(Program(), bomb)
    assert time.thread_time() - start < 0.5


def test_the_pixel_limit_is_exact() -> None:
    data = jpeg(50, 40)
    for limit, status in [(2000, Status.OK), (1999, Status.LIMIT)]:
        _, rows = run(Program(ops=(resize(20, 20),), max_pixels=limit), [data], 20, 20)
        assert rows["status"][0] == status


def test_a_size_of_zero_is_corrupt() -> None:
    data = jpeg(16, 16)
    _, rows = run(THUMBNAIL, [patched(data, 0, 16), patched(data, 16, 0)], 20, 20)
    assert (rows["status"] == Status.CORRUPT).all()


def scans(data: bytes) -> list[int]:
    return [i for i in range(len(data) - 1) if data[i : i + 2] == b"\xff\xda"]


def test_a_bomb_of_scans_is_refused_at_once() -> None:
    data = jpeg(200, 200, kind="progressive")
    last = data[scans(data)[-1] : -2]
    bomb = data[:-2] + last * 1000 + b"\xff\xd9"
    start = time.thread_time()
    _, rows = run(THUMBNAIL, [bomb], 20, 20)
    assert rows["status"][0] == Status.LIMIT and b"scans" in rows["message"][0]
    assert time.thread_time() - start < 0.5


def test_the_header_tells_size_kind_and_scans() -> None:
    info = native.jpeg_header(jpeg(123, 45))
    assert (info.width, info.height, info.components, info.scans) == (123, 45, 3, 1)
    assert info.supported and not info.progressive
    data = jpeg(123, 45, kind="progressive")
    info = native.jpeg_header(np.frombuffer(data, np.uint8))
    assert info.progressive and info.scans == len(scans(data)) > 5
    assert native.jpeg_header(jpeg(9, 9, kind="gray")).components == 1
    cmyk = native.jpeg_header(encoded(Image.fromarray(picture(9, 9)).convert("CMYK"), "JPEG"))
    assert cmyk.components == 4 and not cmyk.supported


@pytest.mark.parametrize(
    "data, error",
    [
        (b"", TruncatedImage),
        (b"GIF89a", UnsupportedImage),
        (b"\xff\xd8\xff\xd9", CorruptImage),
        (b"\xff\xd8\xff", TruncatedImage),
    ],
)
def test_a_header_that_cannot_be_read_raises(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        native.jpeg_header(data)


def test_bytes_after_the_end_do_no_harm() -> None:
    data = jpeg(60, 50)
    padded = [data + b"\0" * 1000, data + b"trailing", data + jpeg(30, 30), data]
    out, rows = run(THUMBNAIL, padded, 20, 20)
    assert (rows["status"] == Status.OK).all() and (rows["warnings"] == 0).all()
    assert all(np.array_equal(out[i], out[3]) for i in range(3))


def test_an_image_without_its_tables_does_not_borrow_its_neighbours() -> None:
    whole = jpeg(60, 50)
    headless = whole.replace(b"\xff\xdb", b"\xff\xef")
    _, rows = run(THUMBNAIL, [whole, headless], 20, 20)
    assert rows["status"].tolist() == [Status.OK, Status.CORRUPT]


def test_decoding_a_damaged_image_raises_what_is_wrong_with_it() -> None:
    data = jpeg(60, 50)
    with native.Decoder() as decoder:
        with pytest.raises(TruncatedImage, match="end"):
            decoder.decode(Program(), data[:-100])
        with pytest.raises(UnsupportedImage):
            decoder.decode(Program(), encoded(Image.fromarray(picture(9, 9)).convert("CMYK"), "JPEG"))
        assert difference(decoder.decode(Program(exact=True), data), opened(data)).max() <= 1
