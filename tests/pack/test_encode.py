"""What values become in a tar: by their field's extension, as WebDataset's writer has it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.errors import ConfigError
from stoker.pack.values.encode import FORMATS, QUALITY, encode_value
from stoker.pack.writers.tar_writer import TarWriter

from ..support import image_bytes, picture

PIXELS = picture(9, 7)
LOSSLESS = ["png", "seg.PNG", "ppm", "pnm", "tif", "tiff", "bmp"]


def decoded(data: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(data)))


def test_a_pillow_image_pixels_and_a_number_as_text_are_written_and_read_again(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as shard:
        shard.write({"__key__": "a", "png": Image.fromarray(PIXELS), "jpg": PIXELS, "cls": "3"})
    sample = stoker.tar(tmp_path / "a.tar").decode("png").decode("jpg").sample(0)
    assert np.array_equal(sample["png"], PIXELS) and sample["cls"] == 3 and sample.key == "a"
    assert sample["jpg"].shape == PIXELS.shape


@pytest.mark.parametrize("field", LOSSLESS)
@pytest.mark.parametrize(
    ("value", "pixels"),
    [
        (PIXELS, PIXELS),
        (PIXELS[:, :, :1], PIXELS[:, :, 0]),
        (PIXELS[:, ::2, 0], PIXELS[:, ::2, 0]),
        ((PIXELS / 255).astype(np.float32), PIXELS),
        (PIXELS / 255 + 1e-4, PIXELS),
        (Image.fromarray(PIXELS), PIXELS),
    ],
    ids=["colour", "one channel", "gray", "float32", "float64, a little off", "pillow"],
)
def test_pixels_come_back_as_they_were(field: str, value: Any, pixels: Any) -> None:
    assert np.array_equal(decoded(encode_value(field, value)), pixels)


def test_a_jpeg_is_pillows_of_the_stated_quality_and_bytes_are_not_touched() -> None:
    out = io.BytesIO()
    Image.fromarray(PIXELS).save(out, "JPEG", quality=QUALITY)
    stored = image_bytes(9, 7)
    assert encode_value("jpg", PIXELS) == encode_value("jpeg", Image.fromarray(PIXELS)) == out.getvalue()
    assert encode_value("png", stored) == encode_value("jpg", np.frombuffer(stored, np.uint8)) == stored
    assert all(encode_value(field, bytearray(b"as it is")) == b"as it is" for field in ("jpg", "cls", "pyd", "npz", "x"))


def test_alpha_and_16_bits_are_kept_where_the_format_has_them() -> None:
    alpha, deep = np.dstack([PIXELS, PIXELS[:, :, 0]]), np.arange(63, dtype=np.uint16).reshape(7, 9) * 1000
    assert np.array_equal(decoded(encode_value("png", alpha)), alpha)
    assert np.array_equal(decoded(encode_value("png", deep)), deep)


def test_every_picture_extension_gives_the_format_it_names() -> None:
    formats = {extension: Image.open(io.BytesIO(encode_value(extension, PIXELS))).format for extension in FORMATS}
    assert formats == FORMATS


def test_tensors_are_arrays_and_numbers() -> None:
    torch = pytest.importorskip("torch")
    assert np.array_equal(decoded(encode_value("png", torch.from_numpy(PIXELS))), PIXELS)
    assert encode_value("cls", torch.tensor(7)) == b"7"
    assert np.array_equal(np.load(io.BytesIO(encode_value("npy", torch.arange(3)))), np.arange(3))
    with pytest.raises(ConfigError, match="NumPy cannot make an array of this Tensor"):
        encode_value("npy", torch.zeros(2, requires_grad=True))


@pytest.mark.parametrize("value", ["3", 3, np.int8(3), np.array(3), "+3", " 3\n"], ids=repr)
def test_numbers_may_come_as_text(value: Any) -> None:
    assert encode_value("cls", value) == encode_value("my.index", value) == b"3"


def test_text_is_text_where_the_extension_says_nothing_else() -> None:
    assert encode_value("html", "grün") == encode_value("txt", "grün") == encode_value("caption", "grün") == "grün".encode()
    assert encode_value("json", "a") == b'"a"', "as any other value of a json field"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("jpg", PIXELS.transpose(2, 0, 1), r"got shape \[3, 7, 9\] \(channels first: CHW\); use array.transpose"),
        ("png", np.zeros((2, 2, 3, 1), np.uint8), "channels-last"),
        ("png", np.zeros((0, 4), np.uint8), "channels-last"),
        ("png", PIXELS.astype(np.float32), "must be between 0 and 1, but these are 0 to 255"),
        ("png", np.full((2, 2), np.nan), "must be between 0 and 1"),
        ("png", PIXELS.astype(np.int64), "type int64.*'png.npy'"),
        ("jpg", np.dstack([PIXELS, PIXELS[:, :, 0]]), r"mode RGBA as JPEG.*convert\('RGB'\)"),
        ("jpg", Image.fromarray(PIXELS).convert("P"), "mode P as JPEG"),
        ("jpg", "cat.jpg", r"got text.*read_bytes"),
        ("cls", "cat", "'cat' is not an integer.*'cls.txt'"),
        ("cls", "1_000", "not an integer"),
        ("cls", 3.0, "float"),
        ("cls", True, "bool"),
        ("pyd", {"a": 1}, "pickles are never written"),
        ("pth", np.zeros(2), "pickles are never written"),
        ("npz", {"a": np.zeros(2)}, "dict"),
        ("txt.gz", "packed?", "pass bytes"),
        ("image", PIXELS, "'image.npy' to store the array, or 'image.png'"),
        ("cls", 2**63, "9223372036854775808 does not fit 64 bits"),
        ("cls", -(2**63) - 1, "does not fit 64 bits"),
        ("index", np.uint64(2**63), "does not fit 64 bits"),
        ("cls", np.array(2**63, np.uint64), "does not fit 64 bits"),
        ("n.npy", [[1], [2, 3]], "use rows of equal length, or store it as json"),
        ("txt", "half \ud800", "at place 5 is a lone surrogate"),
        ("html", "\udbff", "at place 0 is a lone surrogate"),
        ("txt", "a\udc80", "at place 1 is a lone surrogate"),
        ("json", {"a": "\ud800"}, "as JSON: .* at place 6 is a lone surrogate"),
        ("json", {"a": "\udc80"}, "as JSON: .* at place 6 is a lone surrogate"),
        ("json", {"\udc80": 1}, "as JSON: .* at place 2 is a lone surrogate"),
    ],
)
def test_what_does_not_fit_its_extension_is_refused_with_key_field_and_remedy(
    tmp_path: Path, field: str, value: Any, why: str
) -> None:
    with TarWriter(tmp_path / "a.tar") as shard, pytest.raises(ConfigError, match=f"(?s)key 'k'.*field {field!r}: .*{why}"):
        shard.write({"__key__": "k", field: value})


def test_the_largest_numbers_are_read_as_they_were_written(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"cls": value} for value in (2**63 - 1, -(2**63))])
    assert [int(sample["cls"]) for sample in stoker.tar(tmp_path / "a.tar")] == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("write", [stoker.write_tar, stoker.write_tfrecord, stoker.write_lmdb])
def test_half_a_character_in_a_key_is_refused_with_its_place(tmp_path: Path, write: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"the key 'a\\ud800': '\\ud800' at place 1 is a lone surrogate.*replace it, or pass bytes"
    ):
        write(tmp_path / "a", [{"__key__": "a\ud800", "cls": 1}])
    with pytest.raises(ConfigError, match=r"a\\ud800"):
        write(tmp_path / "a", [{"a\ud800.cls": 1}])
    assert not list(tmp_path.iterdir())


def test_a_pipelines_single_sample_is_written_under_its_key(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "x/1", "txt": "a"}, {"__key__": "x/2", "txt": "b"}])
    with TarWriter(tmp_path / "b.tar") as shard:
        shard.write(stoker.tar(tmp_path / "a.tar").sample(1))
    assert [sample.key for sample in stoker.tar(tmp_path / "b.tar")] == ["x/2"]


def test_writing_bytes_does_not_import_pillow(tmp_path: Path) -> None:
    script = (
        f"import stoker, sys; stoker.write_tar({str(tmp_path / 'a.tar')!r}, [{{'jpg': b'x', 'cls': 3, 'txt': 'y'}}]); "
        "print('PIL' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
