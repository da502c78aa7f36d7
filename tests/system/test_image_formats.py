"""Which formats are opened: the documented ones and no others, so that no image can start a program.

Pillow's plug-in for EPS runs Ghostscript on the bytes it is given. A canary stands in for `gs`.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import EpsImagePlugin, Image, features
from typer.testing import CliRunner

import stoker
from stoker import Pipeline
from stoker.cli.halfblocks import half_blocks
from stoker.cli.main import app
from stoker.cli.peers import PillowImages
from stoker.errors import UnsupportedImage
from stoker.image import Resize
from stoker.image.pillow import FORMATS, open_image
from stoker.pack.values.stored_images import shrink

from ..support import image_bytes

_TEXT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
#: the two ways in which an EPS file begins
EPS = {"text": _TEXT, "binary": struct.pack("<IIIIIIIH", 0xC6D3D0C5, 30, len(_TEXT), 0, 0, 0, 0, 0xFFFF) + _TEXT}


@pytest.fixture(params=EPS)
def eps(request: pytest.FixtureRequest) -> bytes:
    return EPS[request.param]


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is there as soon as anything has run `gs`; the test fails if it is there in the end."""
    sang, program = tmp_path / "sang", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n: > '{sang}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # where Pillow keeps what it once found
    yield sang
    assert not sang.exists(), "an image has started a program"


def folder(root: Path, data: bytes) -> Pipeline:
    (root / "data").mkdir()
    (root / "data" / "cat.jpg").write_bytes(data)
    return stoker.files(root / "data", labels=None)


def tar(root: Path, data: bytes) -> Pipeline:
    stoker.write_tar(root / "x.tar", [{"__key__": "cat", "jpg": data}])
    return stoker.tar(root / "x.tar").rename(image="jpg")


def tfrecord(root: Path, data: bytes) -> Pipeline:
    stoker.write_tfrecord(root / "x.tfrecord", [{"image": data}])
    return stoker.tfrecord(root / "x.tfrecord", features={"image": bytes})


def lmdb(root: Path, data: bytes) -> Pipeline:
    stoker.write_lmdb(root / "x.lmdb", [{"image": data}])
    return stoker.lmdb(root / "x.lmdb")


@pytest.mark.parametrize("source", [folder, tar, tfrecord, lmdb], ids=lambda source: source.__name__)
def test_eps_among_samples_is_unsupported_and_starts_nothing(
    source: Callable[[Path, bytes], Pipeline], eps: bytes, canary: Path, tmp_path: Path
) -> None:
    stored = source(tmp_path, eps)
    upright = stored.decode("image", format="pil", orient=True)
    for stage in (stored.decode("image"), upright, stored.image("image", Resize((4, 4)))):
        with pytest.raises(UnsupportedImage, match=r"not a supported image \(JPEG, JPEG 2000, PNG, .*TGA\)"):
            list(stage)


def test_eps_whose_size_is_asked_for_is_unsupported_and_starts_nothing(eps: bytes, canary: Path, tmp_path: Path) -> None:
    for name in ("images", "boxes"):
        (tmp_path / name).mkdir()
    (tmp_path / "images" / "cat.jpg").write_bytes(eps)
    (tmp_path / "boxes" / "cat.xml").write_text("<annotation></annotation>")
    (tmp_path / "list.txt").write_text("cat\n")
    stored = stoker.voc(tmp_path / "list.txt", images=tmp_path / "images", annotations=tmp_path / "boxes")
    with pytest.raises(UnsupportedImage, match=r"cat\.jpg: its annotation has no size.*not a supported image"):
        list(stored)


def test_the_command_shows_verifies_and_packs_eps_without_starting_anything(eps: bytes, canary: Path, tmp_path: Path) -> None:
    folder(tmp_path, eps)
    told = []
    for words in (
        ["show", "--json"],
        ["show", "--html", tmp_path / "page.html"],
        ["verify", "--decode", "--json"],
        ["pack", tmp_path / "out", "--resize-max", 4, "--json"],
    ):
        command, *options = map(str, words)
        told.append(CliRunner().invoke(app, [command, str(tmp_path / "data"), *options]).output)
    assert "not a supported image" in told[0] and "not a supported image" in told[2]


def test_whatever_else_opens_an_image_refuses_eps(eps: bytes, canary: Path, tmp_path: Path) -> None:
    assert shrink(eps, 4, 80) == eps
    (tmp_path / "cat.jpg").write_bytes(eps)
    with pytest.raises(UnsupportedImage):
        half_blocks(eps)
    with pytest.raises(UnsupportedImage):
        PillowImages([str(tmp_path / "cat.jpg")], 4)[0]


def test_the_canary_sings_where_pillow_alone_opens_eps(eps: bytes, canary: Path) -> None:
    """So that its silence above means something."""
    with Image.open(io.BytesIO(eps)) as image, pytest.raises(OSError):
        image.load()
    canary.unlink()


def test_the_documented_formats_are_opened_and_no_others() -> None:
    missing = {"WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}
    for format in FORMATS:
        if format in missing and not features.check(missing[format]):
            continue
        with open_image(image_bytes(32, 32, format=format)) as image:
            assert (image.format, image.size) == (format, (32, 32))
    for format in ("PCX", "SGI", "DDS", "EPS"):
        with pytest.raises(UnsupportedImage, match="not a supported image"):
            open_image(image_bytes(20, 16, format=format))


def test_the_page_of_image_formats_and_the_docstring_of_decode_name_them() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "image.md"
    for text in (page.read_text(), Pipeline.decode.__doc__ or ""):
        assert ", ".join(FORMATS.values()) in " ".join(text.split())
