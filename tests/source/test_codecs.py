"""Fields by their extension: bytes to values and back, and nothing that runs code."""

from __future__ import annotations

import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import ConfigError, RecordError, StokerError
from stoker.source.chunk import BYTES, OBJECT
from stoker.source.shards.codecs import JSONS, NUMBERS, PICKLES, TEXTS, decode_field, encode_field, kind_of, spec_of


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def npy_of(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy file with any header whatever."""
    text = header.encode("latin-1")
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text + data


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    return type(one) is type(other) and one == other


# ---- what is decoded -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "kind"),
    [("cls", "cls"), ("CLS", "cls"), ("seg.png", "png"), ("a.b.JSON", "json"), ("", ""), (".", ""), ("x.", "")],
)
def test_the_last_part_of_a_field_is_its_kind(field: str, kind: str) -> None:
    assert kind_of(field) == kind


@pytest.mark.parametrize(
    ("field", "data", "value"),
    [
        ("cls", b"7", 7),
        ("index", b" -12\n", -12),
        ("cls", b"9223372036854775807", 2**63 - 1),
        ("id", b"-9223372036854775808", -(2**63)),
        ("json", b'{"a": [1, null, "\xc3\xa9"]}', {"a": [1, None, "é"]}),
        ("meta.json", b"[]", []),
        ("txt", b"caf\xc3\xa9\n", "café\n"),
        ("txt", b"", ""),
        ("jpg", b"\xff\xd8\xff", b"\xff\xd8\xff"),
        ("png", b"", b""),
        ("ten", b"anything", b"anything"),
        ("", b"x", b"x"),
    ],
)
def test_fields_are_decoded_by_their_extension(field: str, data: bytes, value: Any) -> None:
    assert same(decode_field(field, data), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.int16).reshape(3, 4),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(2.5, np.float32),
        np.zeros((0, 5), np.uint8),
        np.array(["a", "bcd"]),
        np.array([(1, 2.0)], dtype=[("x", "<i4"), ("y", "<f8")]),
        np.array([True, False]),
        np.array([1 + 2j], ">c16"),
    ],
    ids=str,
)
def test_arrays_come_back_as_they_were(array: Any) -> None:
    assert same(decode_field("npy", npy(array)), array)
    assert same(decode_field("npy", encode_field("npy", array)), array)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cls", 7),
        ("cls", -(2**63)),
        ("json", {"a": [1, 2.5, None, True, "é \\ \n"]}),
        ("json", "just text"),
        ("txt", "naïve\n"),
        ("jpg", b"\xff\xd8"),
        ("anything", b""),
    ],
)
def test_what_is_encoded_is_decoded_to_the_same(field: str, value: Any) -> None:
    assert same(decode_field(field, encode_field(field, value)), value)


def test_numpy_numbers_are_numbers() -> None:
    assert encode_field("cls", np.int32(5)) == encode_field("cls", np.array(5, np.uint8)) == b"5"
    assert encode_field("jpg", bytearray(b"ab")) == encode_field("jpg", memoryview(b"ab")) == b"ab"


def test_specs_say_what_decoding_gives() -> None:
    assert all(str(spec_of(name)) == "int64[]" for name in NUMBERS)
    assert all(spec_of(f"a.{name.upper()}") is OBJECT for name in [*TEXTS, *JSONS, *PICKLES, "npy"])
    assert all(spec_of(name) is BYTES for name in ("jpg", "png", "bin", "", "mp4"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("jpg", "text"),
        ("jpg", np.zeros((4, 4, 3), np.uint8)),
        ("cls", "7"),
        ("cls", 1.5),
        ("cls", True),
        ("cls", np.zeros(3, int)),
        ("txt", 5),
        ("json", {1, 2}),
        ("json", b"x".__add__),
        ("npy", "text"),
        ("npy", np.array([{}], object)),
        ("npy", [object()]),
        ("pkl", {"a": 1}),
        ("pth", [1]),
        ("bin", 5),
        ("x", None),
    ],
)
def test_what_has_no_bytes_of_its_own_is_refused_with_a_remedy(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"field {field!r}"):
        encode_field(field, value)


def test_endless_json_is_refused_not_crashed_on() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ConfigError, match="json"):
        encode_field("json", loop)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("cls", b""),
        ("cls", b"cat"),
        ("cls", b"1.5"),
        ("cls", b"1_0"),
        ("cls", b"0x10"),
        ("cls", b"9223372036854775808"),
        ("cls", b"9" * 5000),
        ("cls", b"\xd9\xa1"),  # an Arabic digit
        ("json", b""),
        ("json", b"{'a': 1}"),
        ("json", b"\xff\xfe"),
        ("json", b"[" * 100_000),
        ("json", b"1" * 5000),
        ("txt", b"\xff"),
        ("npy", b""),
        ("npy", b"\x93NUMPY"),
        ("npy", b"PK\x03\x04"),
        ("npy", npy(np.arange(4))[:-1]),
        ("npy", npy(np.arange(4)) + b"x"),
        ("npy", npy_of("{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}")),
        ("npy", npy_of("{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}", b"\0" * 8)),
        ("npy", npy_of("{'descr': '<i8', 'fortran_order': False, 'shape': (-1, -2)}", b"\0" * 16)),
        ("npy", npy_of("{'descr': '|V0', 'fortran_order': False, 'shape': (2 ** 80,)}")),
        ("npy", npy_of("{'descr': '|O', 'fortran_order': False, 'shape': ()}")),
        ("npy", npy_of("(")),
        ("npy", npy_of("'''")),
        ("npy", npy_of("  x\n y")),
        ("npy", npy_of("{[]: 1}")),
        ("npy", npy_of("{'descr': '<i8', 'fortran_order': False, 'shape': (1L,)}", b"\0" * 8)),
        ("npy", npy_of("[" * 5000)),
        ("npy", npy_of("-" * 9000 + "1")),
        ("npy", npy_of("{'descr': [('x', '<i8'), ('x', '<i8')], 'fortran_order': False, 'shape': ()}", b"\0" * 16)),
        ("npy", npy_of("{'descr': 5, 'fortran_order': False, 'shape': ()}")),
        ("npy", npy_of("{'descr': 'M8[x]', 'fortran_order': False, 'shape': ()}", b"\0" * 8)),
        ("npy", npy_of("{}", version=(9, 0))),
    ],
    ids=lambda part: repr(part)[:40],
)  # fmt: skip
def test_bytes_that_are_not_what_their_extension_says_are_told(field: str, data: bytes) -> None:
    with pytest.raises(RecordError, match=f"field {field!r}"):
        decode_field(field, data)


def test_long_bytes_are_quoted_in_part() -> None:
    with pytest.raises(RecordError) as caught:
        decode_field("json", b"<html>" + b"x" * 100_000)
    assert len(str(caught.value)) < 300 and "<html>" in str(caught.value)


def test_every_flip_and_every_cut_of_an_array_is_an_array_or_a_named_error() -> None:
    for array in (np.arange(3, dtype=np.int32), np.zeros((2, 2))):
        data = npy(array)
        for at in range(len(data)):
            for value in (data[at] ^ 1, data[at] ^ 0x80, 0, ord("("), ord("'"), ord("L"), ord("\n")):
                bad = data[:at] + bytes([value]) + data[at + 1 :]
                try:
                    assert isinstance(decode_field("npy", bad), np.ndarray)
                except StokerError as error:
                    assert isinstance(error, RecordError)
            with pytest.raises(RecordError):
                decode_field("npy", data[:at])


# ---- pickles ---------------------------------------------------------------------------------------------------------


class Canary:
    """Unpickling one of these makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("field", [*sorted(PICKLES), "npy", "jpg", "cls", "json", "txt", "x.pkl", "PKL", "bin"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_runs_in_no_field(field: str, protocol: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for data in (pickle.dumps(Canary(canary), protocol), npy(np.array([Canary(canary)], object), allow_pickle=True)):
        try:
            value = decode_field(field, data)
            assert value in (data, data.decode("latin-1"))  # left alone
        except RecordError:
            pass
        assert not canary.exists()
    if kind_of(field) in PICKLES:
        with pytest.raises(RecordError, match="allow_pickle"):
            decode_field(field, pickle.dumps(1))


def test_json_is_read_back_by_any_reader() -> None:
    assert json.loads(encode_field("json", {"é": 1})) == {"é": 1}
