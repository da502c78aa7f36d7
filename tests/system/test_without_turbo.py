"""A build without libjpeg-turbo: every image still comes out right, and every limit and error is what it is with it."""

from __future__ import annotations

import base64
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.errors import ImageTooLarge, TruncatedImage, UnsupportedImage
from stoker.image import CenterCrop, HorizontalFlip, RandomResizedCrop, Resize
from stoker.kernel import library, native
from stoker.kernel.native import DecoderKind, Program
from stoker.pack.values.stored_images import check_picture
from stoker.storage.scratch import Scratch

from ..support import jpeg_bytes

ROOT = Path(__file__).resolve().parents[2]
#: 24 x 16 pixels with arithmetic coding, which Pillow reads and does not write
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAYEBQYFBAYGBQYHBwYIChAKCgkJChQODwwQFxQYGBcUFhYaHSUfGhsjHBYWICwgIyYnKSopGR8tMC0oMCUoKSj/"
    "2wBDAQcHBwoIChMKChMoGhYaKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCj/yQARCAAQABgDASIAAhEBAxEB/8wA"
    "CgAQEAUBEBEF/9oADAMBAAIRAxEAPwD/ALsPQLvEmXqcUIVtyATk9XsgwnDONlSbwC9NeINCFn9u0/WlafwbgJL7Dp3qicGK7VbNIP/Z"
)
PROGRESSIVE = jpeg_bytes(60, 44, progressive=True)
KINDS: dict[str, bytes] = {
    "420": jpeg_bytes(60, 44),
    "444": jpeg_bytes(60, 44, subsampling=0),
    "arithmetic": ARITHMETIC,
    "cmyk": jpeg_bytes(60, 44, mode="CMYK"),
    "cmyk progressive": jpeg_bytes(60, 44, mode="CMYK", progressive=True),
    "gray": jpeg_bytes(60, 44, mode="L"),
    "gray progressive": jpeg_bytes(60, 44, mode="L", progressive=True),
    "progressive": PROGRESSIVE,
    "restarts": jpeg_bytes(60, 44, restart_marker_blocks=3),
}


def tool(*names: str) -> str | None:
    """A program on the path, or installed beside this Python."""
    beside = str(Path(sys.executable).parent)
    return next((found for name in names if (found := shutil.which(name) or shutil.which(name, path=beside))), None)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> library.Library:
    """The native library, built from these sources without libjpeg-turbo."""
    cmake, ninja, make = tool("cmake"), tool("ninja"), tool("make", "gmake")
    if not cmake or not (ninja or make) or not tool("cc", "gcc", "clang"):
        pytest.skip("it takes cmake, ninja or make, and a C compiler")
    folder = tmp_path_factory.mktemp("without-turbo")
    how = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}") if ninja else ("-G", "Unix Makefiles", f"-DCMAKE_MAKE_PROGRAM={make}")
    run(cmake, "-S", str(ROOT), "-B", str(folder), *how, "-DSTOKER_TURBO=OFF")
    run(cmake, "--build", str(folder), "--parallel", "2", "--target", "stoker")
    return library.Library(next(folder.glob("libstoker.*")))


@pytest.fixture(autouse=True)
def in_use(built: library.Library, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything in a test runs with that library in place of the installed one."""
    monkeypatch.setattr(library, "_library", built)
    yield


def pixels_of(data: bytes, mode: str = "RGB") -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


def files(tmp_path: Path, **named: bytes) -> Any:
    for name, data in named.items():
        path = tmp_path / "images" / "a" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return stoker.files(tmp_path / "images")


def scan_bomb(data: bytes) -> bytes:
    """The same progressive JPEG with its last scan repeated a thousand times: right pixels, if one reads them all."""
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * 1000 + b"\xff\xd9"


def test_the_build_says_what_it_lacks() -> None:
    assert native.build_info().startswith("no libjpeg-turbo, simd ")


def test_naming_the_decoder_that_is_not_there_is_refused() -> None:
    with native.Decoder() as decoder, pytest.raises(UnsupportedImage, match="libjpeg-turbo"):
        decoder.decode(Program(decoder=DecoderKind.TURBO), KINDS["420"])


def test_the_header_says_which_kinds_are_left_to_others() -> None:
    supported = {kind for kind, data in KINDS.items() if native.jpeg_header(data).supported}
    assert supported == {"420", "444", "gray", "restarts"}


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_whole_images_are_pillows(color: str, tmp_path: Path) -> None:
    samples = {sample.key: sample["image"] for sample in files(tmp_path, **KINDS).decode("image", color=color)}
    for kind, data in KINDS.items():
        expected = pixels_of(data, "RGB" if color == "rgb" else "L")
        found = samples[f"a/{kind}.jpg"]
        assert found.shape[:2] == expected.shape[:2]
        assert np.abs(found.squeeze().astype(int) - expected).mean() <= 1, kind


@pytest.mark.parametrize("threads", [1, 4])
def test_resized_images_are_pillows(threads: int, tmp_path: Path) -> None:
    pipeline = files(tmp_path, **KINDS).image("image", Resize((20, 18)), fast=False).batch(4, drop_last=False)
    with pipeline.loader(threads=threads) as loader:
        for batch in loader:
            for key, found in zip(batch.sample_keys, batch["image"].copy()):
                data = KINDS[Path(key).stem]
                expected = Image.fromarray(pixels_of(data)).resize((18, 20), Image.Resampling.BILINEAR)
                assert np.abs(found.astype(int) - np.asarray(expected)).max() <= 2, key


def test_random_crops_are_those_of_the_installed_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = files(tmp_path, **KINDS).shuffle(seed=3)
    pipeline = pipeline.image("image", RandomResizedCrop(16), HorizontalFlip(), fast=False).batch(len(KINDS))

    def crops() -> np.ndarray[Any, Any]:
        with pipeline.loader(threads=2) as loader:
            return next(iter(loader))["image"].astype(int)

    here = crops()
    monkeypatch.setattr(library, "_library", None)
    assert np.abs(here - crops()).max() <= 2


def test_a_plan_is_explained_and_a_picture_verified(tmp_path: Path) -> None:
    pipeline = files(tmp_path, **KINDS).image("image", Resize(30), CenterCrop(24)).batch(len(KINDS))
    with pipeline.loader() as loader:
        assert len(loader.explain(0)) == len(KINDS)
    for data in KINDS.values():
        check_picture(data, Scratch())


@pytest.mark.parametrize("kind", ["progressive", "gray progressive", "cmyk progressive"])
def test_limits_hold_for_what_pillow_decodes(kind: str, tmp_path: Path) -> None:
    pipeline = files(tmp_path, bomb=scan_bomb(KINDS[kind]))
    for stage in (pipeline.image("image", Resize((8, 8))), pipeline.image("image"), pipeline.decode("image")):
        with pytest.raises(ImageTooLarge, match=r"bomb\.jpg.*scans"):
            list(stage)
    pipeline = files(tmp_path, bomb=KINDS[kind])
    for stage in (pipeline.image("image", Resize((8, 8)), max_pixels=2639), pipeline.decode("image", max_pixels=2639)):
        with pytest.raises(ImageTooLarge, match=r"bomb\.jpg.*2,?639"):
            list(stage)
    assert len(list(pipeline.decode("image", max_pixels=2640))) == 1


def test_pillows_own_limit_does_not_lower_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    (sample,) = files(tmp_path, p=PROGRESSIVE).decode("image")
    assert sample["image"].shape == (44, 60, 3)


@pytest.mark.parametrize("kind", ["progressive", "gray progressive", "cmyk", "arithmetic"])
def test_a_file_cut_anywhere_is_truncated_and_can_be_left_out(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind]
    start = data.index(b"\xff\xda") + 20
    pipeline = files(
        tmp_path, **{f"{cut:05d}": data[:cut] for cut in np.linspace(start, len(data) - 2, 9).astype(int)}, whole=data
    )
    for stage in (pipeline.image("image", Resize((8, 8))), pipeline.decode("image")):
        for number in range(9):
            with pytest.raises(TruncatedImage, match=r"\d{5}\.jpg"):
                stage.sample(number)
        assert [sample.key for sample in stage.on_error("skip", budget=9)] == ["a/whole.jpg"]


def test_a_setting_of_pillow_does_not_make_a_cut_file_grey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(TruncatedImage):
        list(files(tmp_path, cut=PROGRESSIVE[: len(PROGRESSIVE) // 2]).decode("image"))


def test_a_kind_that_nobody_decodes_is_unsupported(tmp_path: Path) -> None:
    deep = bytearray(PROGRESSIVE)
    deep[deep.index(b"\xff\xc2") + 4] = 12
    with pytest.raises(UnsupportedImage, match="12-bit"):
        list(files(tmp_path, deep=bytes(deep)).decode("image"))
