"""Sizes, counts and types as people write and read them: ``"2GB"``, ``"512 MiB"``, ``"1 sample"``."""

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
_SIZE = re.compile(r"\s*((?:[0-9]{1,19}\.?[0-9]*|\.[0-9]+)(?:e\+?[0-9]{1,2})?)\s*([kmgt]i?)?b?\s*")


def parse_bytes(value: int | str, name: str) -> int:
    """A number of bytes from a number or a text such as ``"2GB"``.

    >>> parse_bytes("1.5GB", "memory"), parse_bytes("1e9", "memory")
    (1500000000, 1000000000)
    """
    size: object = value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.lower())):
        number, unit = found[1], _UNITS[found[2] or ""]
        size = int(number) * unit if number.isdigit() else int(float(number) * unit)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 62:
        raise ConfigError(f"{name}={value!r} is not a size; use a number of bytes, or a text such as '2GB' or '512MiB'")
    return size


def a_type(value: object) -> str:
    """The type of a value with its article.

    >>> a_type(1), a_type({})
    ('an int', 'a dict')
    """
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


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


def short(value: object, most: int = 60) -> str:
    """A value as text of one line, cut where it is longer than that."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[:most]}..."


def counted(number: int, thing: str, several: str | None = None) -> str:
    """A number of things; `several` is the plural where it takes more than an s.

    >>> counted(1, "sample"), counted(2000, "sample"), counted(2, "class", "classes")
    ('1 sample', '2,000 samples', '2 classes')
    """
    return f"{number:,} {thing if number == 1 else several or thing + 's'}"
