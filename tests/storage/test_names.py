"""Names as text, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.names import printable, spelled, unprintable


@given(st.binary())
def test_a_name_comes_back_from_its_text(name: bytes) -> None:
    text = printable(name)
    assert text.isprintable() and unprintable(text) == name
    assert spelled(text).encode("utf-8", "surrogateescape") == name


def test_a_plain_name_is_spelled_as_it_is() -> None:
    assert [spelled(name) for name in ("jpg", "seg.png", "é", r"a\\b", r"\xff")] == ["jpg", "seg.png", "é", r"a\b", "\udcff"]
