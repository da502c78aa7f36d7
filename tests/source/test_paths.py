"""Names as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.source.paths import joined, parent_name, printable

#: names that have broken other loaders
NAMES = [
    b"plain.jpg",
    b"with space.jpg",
    "café.jpg".encode(),
    "猫.jpg".encode(),
    b"latin-1 caf\xe9.jpg",
    b"\xff\xfe.jpg",
    b"new\nline.jpg",
    b"car\rriage.jpg",
    b"tab\t.jpg",
    b"bell\x07.jpg",
    b"escape\x1b[31m.jpg",
    b"\\xff.jpg",
    b"back\\slash.jpg",
    "next line\u0085.jpg".encode(),
    b"\x85.jpg",
    "private \ue000.jpg".encode(),
    "right-to-left \u202e.jpg".encode(),
    b"\xed\xa0\x80 surrogate.jpg",
    b"-dash.jpg",
    b"'quote'\".jpg",
]


def unprintable(text: str) -> bytes:
    """The name a printable text stands for."""
    data = text.encode()
    return re.sub(rb"\\(\\|x(..))", lambda found: bytes.fromhex(found[2].decode()) if found[2] else b"\\", data)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_prints_and_can_be_turned_back(name: bytes) -> None:
    text = printable(name)
    assert text.isprintable()
    assert unprintable(text) == name


def test_names_that_look_alike_are_told_apart() -> None:
    assert len({printable(name) for name in NAMES}) == len(NAMES)


@given(st.binary())
def test_any_bytes_can_be_turned_back(name: bytes) -> None:
    assert unprintable(printable(name)) == name


def test_ordinary_names_are_left_as_they_are() -> None:
    assert printable("dir/größe 猫 (1).jpg".encode()) == "dir/größe 猫 (1).jpg"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"cat/1.jpg", b"cat"),
        (b"/a/b/1.jpg", b"b"),
        (b"a//1.jpg", b"a"),
        (b"1.jpg", b""),
        (b"./1.jpg", b""),
        (b"../1.jpg", b""),
    ],
)
def test_the_parent_is_the_last_folder_named(path: bytes, name: bytes) -> None:
    assert parent_name(path) == name


def test_absolute_paths_are_not_joined() -> None:
    assert (joined(b"/data", b"a/1"), joined(b"/data/", b"/b/1"), joined(b"/", b"c")) == (b"/data/a/1", b"/b/1", b"/c")
