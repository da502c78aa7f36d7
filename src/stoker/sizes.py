"""Sizes and counts as people write and read them: ``"2GB"``, ``"512 MiB"``, ``"1 sample"``."""

from __future__ import annotations

import re

from .errors import ConfigError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}


def parse_bytes(value: int | str, name: str) -> int:
    """A number of bytes from a number or a text such as ``"2GB"``.

    >>> parse_bytes("1.5GB", "memory")
    1500000000
    """
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]i?)?b?\s*", value.lower())
        if found and found[1].count(".") <= 1 and found[1] != ".":
            value = int(float(found[1]) * _UNITS[found[2] or ""])
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ConfigError(f"{name}={value!r} must be a number of bytes, or text such as '2GB' or '512MiB'")
    return value


def show_bytes(count: float) -> str:
    """A number of bytes as people read it.

    >>> show_bytes(1_500_000_000)
    '1.5 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(number: int, thing: str, several: str | None = None) -> str:
    """A number of things; `several` is the plural where it takes more than an s.

    >>> counted(1, "sample"), counted(2000, "sample"), counted(2, "class", "classes")
    ('1 sample', '2,000 samples', '2 classes')
    """
    return f"{number:,} {thing if number == 1 else several or thing + 's'}"
