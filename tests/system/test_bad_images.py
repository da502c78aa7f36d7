"""Bad and odd images through whole pipelines: the right pixels, or an error that names the file. Never grey, never silent."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import Pipeline
from stoker.errors import CorruptImage, ImageError, ImageTooLarge, ReadError, SampleError, TruncatedImage
from stoker.image import CenterCrop, CropBox, HorizontalFlip, RandomResizedCrop, Resize
from stoker.kernel import native

from ..support import image_bytes, jpeg_bytes

OPERATIONS: dict[str, list[Any]] = {
    "random crop": [RandomResizedCrop(16), HorizontalFlip()],
    "resize": [Resize((16, 16))],
    "centre": [Resize(20), CenterCrop(16)],
}


def bomb(width: int = 65_500, height: int = 65_500) -> bytes:
    """A small JPEG whose header says it is large."""
    data = bytearray(jpeg_bytes(16, 16))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(data)


BAD: dict[str, bytes] = {
    "zero bytes": b"",
    "one byte": b"\xff",
    "text": b"<html>404 Not Found</html>" * 20,
    "zeros": bytes(5000),
    "only a header": jpeg_bytes(64, 64)[:20],
    "65,500 x 65,500": bomb(),
    "20,000 x 20,000": bomb(20_000, 20_000),
    "truncated PNG": image_bytes(64, 64, format="PNG")[:600],
    "PNG with a torn middle": image_bytes(64, 64, format="PNG")[:200] + bytes(300) + image_bytes(64, 64, format="PNG")[500:],
    "JPEG with an empty scan": jpeg_bytes(64, 64)[: jpeg_bytes(64, 64).index(b"\xff\xda") + 14] + b"\xff\xd9",
}


def folder(tmp_path: Path, **bad: bytes) -> Path:
    """Eight good images in two classes, and the bad ones among them."""
    root = tmp_path / "images"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for number in range(4):
            (root / name / f"good_{number}.jpg").write_bytes(jpeg_bytes(40 + number, 50, seed=number))
    for name, data in bad.items():
        (root / "a" / name).write_bytes(data)
    return root


def pipelines(root: Path) -> dict[str, Pipeline]:
    files = stoker.files(root)
    made = {name: files.image("image", *ops).batch(4, drop_last=False) for name, ops in OPERATIONS.items()}
    made["full size"] = files.decode("image").batch(4, drop_last=False)
    made["full size, behind filter"] = files.filter(lambda s: True).decode("image", color="gray").batch(4, drop_last=False)
    made["pil"] = files.decode("image", format="pil").batch(4, drop_last=False)
    return made


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_an_error_that_names_the_file_or_is_left_out(name: str, tmp_path: Path) -> None:
    root = folder(tmp_path, **{"broken.jpg": BAD[name]})
    listed = tmp_path / "bad.jsonl"
    for kind, pipeline in pipelines(root).items():
        with pipeline.loader(threads=2) as loader, pytest.raises(SampleError, match=r"broken\.jpg") as caught:
            list(loader)
        assert isinstance(caught.value, ImageError), kind
        assert "broken.jpg" in caught.value.key and "on_error" in str(caught.value)
        skipping = pipeline.on_error("skip", budget=1, quarantine=str(listed))
        with skipping.loader(threads=2) as loader:
            batches = list(loader)
            assert [key for batch in batches for key in batch.sample_keys].count("a/broken.jpg") == 0
            assert sum(batch.rows for batch in batches) == 8, kind
            assert loader.stats().skipped == 1
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert all(line["shard"].endswith("broken.jpg") for line in lines)
    assert sorted(line["stage"] for line in lines) == ["decode('image')", "image('image')"], "each stage's once"


def test_a_huge_header_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    root = folder(tmp_path, **{"bomb.jpg": bomb()})
    for kind, pipeline in pipelines(root).items():
        with pipeline.loader(threads=2) as loader, pytest.raises(ImageTooLarge, match=r"65500|65,500"):
            list(loader)
            raise AssertionError(kind)


@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_thousands_of_scans_are_refused_whoever_would_decode_them(mode: str, tmp_path: Path) -> None:
    whole = jpeg_bytes(64, 64, mode=mode, progressive=True)
    root = folder(tmp_path, **{"scans.jpg": whole[:-2] + whole[whole.rindex(b"\xff\xda") : -2] * 2000 + b"\xff\xd9"})
    for kind, pipeline in pipelines(root).items():
        with pipeline.loader(threads=2) as loader, pytest.raises(ImageTooLarge, match=r"scans\.jpg.*scans"):
            list(loader)
            raise AssertionError(kind)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_cut_anywhere_is_an_error_and_never_grey(progressive: bool, tmp_path: Path) -> None:
    whole = jpeg_bytes(97, 83, seed=3, progressive=progressive)
    cuts = np.linspace(1, len(whole) - 3, 40).astype(int)
    root = tmp_path / "cut"
    (root / "c").mkdir(parents=True)
    for number, cut in enumerate(cuts):
        (root / "c" / f"cut_{number:02d}.jpg").write_bytes(whole[:cut])
    (root / "c" / "whole.jpg").write_bytes(whole)
    every = stoker.files(root).image("image", Resize((32, 32)))
    for number in range(40):
        with pytest.raises(ImageError, match=f"cut_{number:02d}.jpg"):
            every.sample(number)
    left = list(every.on_error("skip", budget=40))
    assert [sample.key for sample in left] == ["c/whole.jpg"]
    full = list(stoker.files(root).decode("image").on_error("skip", budget=40))
    assert len(full) == 1


def test_a_crop_that_does_not_need_the_torn_end_may_still_be_right(tmp_path: Path) -> None:
    """Whatever is decided, it is decided alike for every crop of the file, run after run."""
    whole = jpeg_bytes(200, 200, seed=3)
    root = folder(tmp_path, **{"cut.jpg": whole[: len(whole) // 2]})
    pipeline = stoker.files(root).shuffle(seed=1).image("image", RandomResizedCrop(16)).on_error("skip", budget=9).batch(9)
    with pipeline.loader(executor="inline") as a, pipeline.loader(threads=4) as b:
        for _ in range(10):
            assert [batch.sample_keys for batch in a] == [batch.sample_keys for batch in b]


def test_a_webp_that_is_cut_may_also_be_one_without_memory() -> None:
    cut = image_bytes(60, 44, format="WEBP")[:100]  # Pillow says the same of both
    with pytest.raises(CorruptImage, match="it is damaged, or there is not enough memory"):
        list(stoker.stream(lambda: [{"image": cut}]).decode("image"))


def picture_of(data: bytes, mode: str) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


def headers(data: bytes) -> list[int]:
    """Where the headers of a JPEG begin, up to that of its first scan."""
    places = [2]
    while data[places[-1] + 1] != 0xDA:
        places.append(places[-1] + 2 + int.from_bytes(data[places[-1] + 2 : places[-1] + 4], "big"))
    return places


def later_headers(data: bytes) -> list[int]:
    """Where those begin that follow the data of its first scan."""
    return [found.start() for found in re.finditer(rb"\xff[\xc4\xda]", data) if found.start() > headers(data)[-1]]


PROGRESSIVE = pytest.param(
    {"progressive": True},
    marks=pytest.mark.skipif(native.build_info().startswith("no libjpeg-turbo"), reason="left to Pillow, which is not as strict"),
)
STRAY = [b"\0", b"stray", b"\xff\0", b"\xff\xff\xff", b"\1\xff\0\xff\xff\0\2"]


@pytest.mark.parametrize("kind", [{}, {"optimize": True}, {"mode": "L"}, PROGRESSIVE, {"restart_marker_blocks": 2}], ids=str)
def test_stray_bytes_between_the_headers_of_a_jpeg_change_nothing(kind: dict[str, Any]) -> None:
    data = jpeg_bytes(60, 44, **kind)
    odd = [data[:at] + stray + data[at:] for at in headers(data) for stray in STRAY]
    stored = stoker.stream(lambda: [{"image": data} for data in [data, *odd]])
    for stage in (stored.decode("image"), stored.image("image", Resize((20, 20)), lenient=True)):
        first, *others = (sample["image"] for sample in stage)
        assert len(others) == len(odd) and all(np.array_equal(first, other) for other in others)
        with stage.batch(1).loader(executor="inline") as loader:
            assert sum(batch.rows for batch in loader) == len(odd) + 1 and loader.stats().damaged == 0


@pytest.mark.parametrize("kind", [{"optimize": True}, PROGRESSIVE], ids=str)
def test_bytes_that_belong_to_the_image_data_or_hide_a_table_are_damage(kind: dict[str, Any]) -> None:
    data = jpeg_bytes(60, 44, **kind)
    table, scan = (data.index(marker) for marker in (b"\xff\xc4", b"\xff\xda"))
    damaged = [data[:table] + b"\0" + data[table + 1 :]]
    if "progressive" in kind:
        after = data.index(b"\xff\xc4", scan)
        damaged.append(data[:after] + bytes(99) + data[after:])  # libjpeg has read a few bytes ahead, and does not miss those
        later = data.index(b"\xff\xda", after)
        damaged.append(data[:later] + b"stray" + data[later:])
    for bad in damaged:
        with pytest.raises(CorruptImage):
            list(stoker.stream(lambda bad=bad: [{"image": bad}]).decode("image"))


@pytest.mark.parametrize("kind", [{}, {"restart_marker_blocks": 2}, {"mode": "L"}, {"mode": "CMYK"}, PROGRESSIVE], ids=str)
def test_no_flipped_bit_in_a_marker_of_a_jpeg_is_a_picture_of_other_pixels(kind: dict[str, Any]) -> None:
    data = jpeg_bytes(60, 44, optimize=True, quality=95, **kind)
    single = [1 << bit for bit in range(8)]
    alone = [1, *range(0xD0, 0xD8)]  # markers without a length: what follows them is no header any more
    odd = [data]
    for at in headers(data) + later_headers(data):
        odd += [data[:at] + bytes([0xFF ^ bit]) + data[at + 1 :] for bit in single]
        odd += [data[: at + 1] + bytes([code]) + data[at + 2 :] for code in {*alone, *(data[at + 1] ^ bit for bit in single)}]
    stored = stoker.stream(lambda: [{"image": data} for data in odd]).decode("image")
    first, *others = (sample["image"] for sample in stored.on_error("skip", budget=len(odd)))
    assert len(others) < len(odd) / 5 and all(np.array_equal(first, other) for other in others)


ODD: dict[str, bytes] = {
    "png named jpeg.JPEG": image_bytes(60, 44, format="PNG"),
    "webp named jpg.jpg": image_bytes(60, 44, format="WEBP", lossless=True),
    "cmyk.jpg": jpeg_bytes(60, 44, mode="CMYK"),
    "grey.jpg": jpeg_bytes(60, 44, mode="L"),
    "grey.png": image_bytes(60, 44, mode="L", format="PNG"),
    "palette.png": image_bytes(60, 44, mode="P", format="PNG"),
    "alpha.png": image_bytes(60, 44, mode="RGBA", format="PNG"),
    "progressive.jpg": jpeg_bytes(60, 44, progressive=True),
    "444.jpg": jpeg_bytes(60, 44, subsampling=0),
    "1 wide.jpg": jpeg_bytes(1, 40),
    "1 high.jpg": jpeg_bytes(40, 1),
    "1 x 1.jpg": jpeg_bytes(1, 1),
    "trailing bytes.jpg": jpeg_bytes(60, 44) + b"and more" * 100,
}


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_odd_images_have_the_right_pixels(color: str, tmp_path: Path) -> None:
    root = folder(tmp_path, **ODD)
    mode = "RGB" if color == "rgb" else "L"
    found = {s.key: s["image"] for s in stoker.files(root).decode("image", color=color)}
    for name, data in ODD.items():
        expected = picture_of(data, mode)
        pixels = found[f"a/{name}"] if color == "rgb" else found[f"a/{name}"][:, :, 0]
        assert pixels.shape == expected.shape, name
        assert np.abs(pixels.astype(int) - expected).mean() <= 2.0, name


@pytest.mark.parametrize("kind", OPERATIONS)
def test_odd_images_come_through_every_kind_of_crop(kind: str, tmp_path: Path) -> None:
    root = folder(tmp_path, **ODD)
    for batch in stoker.files(root).image("image", *OPERATIONS[kind]).batch(7):
        assert batch["image"].shape == (7, 16, 16, 3)
        assert all(image.std() > 0 or "1 x 1" in key or "1 " in key for image, key in zip(batch["image"], batch.sample_keys)), (
            "not grey"
        )


def test_a_centre_crop_larger_than_the_image_is_padded_with_zeros(tmp_path: Path) -> None:
    root = folder(tmp_path, **{"tiny.png": image_bytes(10, 6, format="PNG")})
    (sample,) = [s for s in stoker.files(root).image("image", CenterCrop(16), fast=False) if "tiny" in s.key]
    image = sample["image"]
    assert image.shape == (16, 16, 3)
    assert np.array_equal(image[5:11, 3:13], picture_of(image_bytes(10, 6, format="PNG"), "RGB"))
    image = image.copy()
    image[5:11, 3:13] = 0
    assert not image.any()


def test_boxes_outside_the_image_are_errors_and_those_across_its_edge_are_clipped() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 20, 30, 3), np.uint8)
    boxes = np.array([[2, 3, 10, 20], [-5, -5, 8, 8], [15, 25, 99, 99], [40, 40, 50, 50]], np.float32)
    pipeline = stoker.arrays(image=pixels, box=boxes).image("image", CropBox("box"), Resize((4, 4)))
    with pytest.raises(stoker.errors.BoxError) as caught:
        list(pipeline)
    assert caught.value.key == "3"
    assert len(list(pipeline.on_error("skip", budget=1))) == 3
    with pytest.raises(stoker.errors.BoxError):
        list(stoker.arrays(image=pixels, box=boxes[:, ::-1] * np.nan).image("image", CropBox("box"), Resize((4, 4))))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path, **{"locked.jpg": jpeg_bytes(20, 20)})
    (root / "a" / "locked.jpg").chmod(0)
    with pytest.raises(ReadError, match=r"locked\.jpg"):
        list(stoker.files(root).image("image", Resize((8, 8))).batch(4))


def test_a_folder_in_place_of_a_file_and_a_file_that_vanished_are_named(tmp_path: Path) -> None:
    root = folder(tmp_path, **{"gone.jpg": jpeg_bytes(20, 20), "turned.jpg": jpeg_bytes(20, 20)})
    pipeline = stoker.files(root).image("image", Resize((8, 8))).batch(10)
    (root / "a" / "gone.jpg").unlink()
    (root / "a" / "turned.jpg").unlink()
    (root / "a" / "turned.jpg").mkdir()
    with pytest.raises(ReadError, match=r"gone\.jpg"):
        list(pipeline)
    with pipeline.on_error("skip", budget=2).loader() as loader:
        assert [batch.rows for batch in loader] == [8]


def test_names_that_are_no_text_are_shown_and_kept(tmp_path: Path) -> None:
    root = os.fsencode(folder(tmp_path))
    with open(os.path.join(root, b"a", b"caf\xe9\xff.jpg"), "wb") as file:
        file.write(b"not an image")
    listed = tmp_path / "bad.jsonl"
    pipeline = stoker.files(root).image("image", Resize((8, 8))).batch(9)
    with pytest.raises(ImageError) as caught:
        list(pipeline)
    caught.value.key.encode("utf-8"), str(caught.value).encode("utf-8")
    assert "caf\\xe9\\xff.jpg" in str(caught.value)
    list(pipeline.on_error("skip", budget=1, quarantine=str(listed)))
    assert "caf\\xe9\\xff.jpg" in json.loads(listed.read_text())["key"]


def test_bad_images_on_any_number_of_threads_are_the_same(tmp_path: Path) -> None:
    bad = {f"{number}_{name}.jpg": data for number, (name, data) in enumerate(BAD.items())}
    pipeline = stoker.files(folder(tmp_path, **bad)).shuffle(seed=2).image("image", RandomResizedCrop(16)).batch(6)
    told = set()
    for how in ({"executor": "inline"}, {"threads": 1}, {"threads": 8}):
        with pipeline.loader(**how) as loader, pytest.raises(ImageError) as caught:  # type: ignore[arg-type]
            list(loader)
        told.add(str(caught.value))
        with pipeline.on_error("skip", budget=10).loader(**how) as loader:  # type: ignore[arg-type]
            told.add(repr([batch.sample_keys for batch in loader]))
    assert len(told) == 2


def test_a_truncated_image_says_where_it_ends(tmp_path: Path) -> None:
    whole = jpeg_bytes(200, 200)
    root = folder(tmp_path, **{"cut.jpg": whole[: len(whole) // 2]})
    with pytest.raises(TruncatedImage, match=rf"cut\.jpg.*{len(whole) // 2:,}"):
        list(stoker.files(root).image("image", Resize((16, 16))).batch(3))
