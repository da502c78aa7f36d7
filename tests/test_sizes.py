"""Sizes as people write them."""

from __future__ import annotations

import pytest

from stoker.errors import ConfigError
from stoker.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500", 500), ("1e9", 10**9), ("1.5e3", 1500), (" 2 GB ", 2 * 10**9), ("512MiB", 512 << 20), (".5k", 500), ("3.b", 3),
        ("123456789012345678", 123456789012345678),
    ],
)  # fmt: skip
def test_a_size_is_a_number_perhaps_with_an_exponent_and_a_unit(text: str, size: int) -> None:
    assert parse_bytes(text, "--size") == size


@pytest.mark.parametrize("text", ["", ".", "1.2.3", "0", "0.5", "-1", "nan", "inf", "1e99", "9" * 400, "9" * 19, "1e", "GB", "٣"])
def test_what_is_not_a_size_is_wrong_usage(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_bytes(text, "--size")
