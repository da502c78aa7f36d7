"""Reads a list file: one path per line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from ...errors import ConfigError, SourceEmpty, SourceNotFound
from ..paths import printable
from ..sniff import seen_at
from .plain_file import read_plain

# A path, blanks, an integer, as in ImageNet's and PASCAL's lists ("n01440764/n01440764_18.JPEG 0", "000005 -1").
_NUMBERED = re.compile(rb"(.*\S)[ \t]+([+-]?[0-9]+)[ \t]*", re.DOTALL)
#: longer lists are not read: pack the files into shards
MAX_BYTES = 1 << 30
_MARK = b"\xef\xbb\xbf"  # what some editors put in front of UTF-8


class Lines:
    r"""The lines of a list file that name something: empty ones and those that begin with ``#`` are passed over.

    The file is kept as one array of bytes, which processes can share; a line is cut out of it when asked for.
    Lines end in ``\n`` or ``\r\n``.
    """

    __slots__ = ("_starts", "_text", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        text = _content(path)
        pieces = text.split(b"\n")
        starts = accumulate((len(piece) + 1 for piece in pieces), initial=0)
        named = [at for at, piece in zip(starts, pieces) if _names_something(piece)]
        if not named:
            raise SourceEmpty(f"{printable(path)}: none of its {len(pieces):,} lines is a path; write one path per line")
        self._text = np.frombuffer(text, np.uint8)
        if b"\0" in text:
            if known := seen_at("filelist", path):
                raise ConfigError(f"{printable(path)}: {known}")
            raise ConfigError(f"{self._told(text.index(0))} holds a NUL byte; save the list as UTF-8 text")
        self._starts = np.array(named, np.int64)
        if path.lower().endswith(b".csv") and b"," in self[0]:
            raise ConfigError(f"{printable(path)}: {seen_at('filelist', path)}")

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[bytes]:
        # As [0], [1], ..., but quicker.
        return (piece.removesuffix(b"\r") for piece in self._text.tobytes().split(b"\n") if _names_something(piece))

    def __getitem__(self, index: int) -> bytes:
        start, after = int(self._starts[index]), index + 1  # what is between two lines names nothing
        end = int(self._starts[after]) if 0 < after < len(self._starts) else self._text.size
        return self._text[start:end].tobytes().partition(b"\n")[0].removesuffix(b"\r")

    def place(self, index: int) -> str:
        """The place of a line, for messages."""
        return self._told(int(self._starts[index]))

    def _told(self, at: int) -> str:
        return f"line {np.count_nonzero(self._text[:at] == 10) + 1} of {printable(self.path)}"


def _names_something(line: bytes) -> bool:
    return line[:1] != b"#" and bool(line.strip())


def split_number(line: bytes) -> tuple[bytes, bytes | None]:
    """The path on a line, and the integer after it, if there is one."""
    found = _NUMBERED.fullmatch(line) if line.rstrip(b" \t")[-1:].isdigit() else None
    return (found[1], found[2]) if found else (line, None)


def _content(path: bytes) -> bytes:
    try:
        return read_plain(path, MAX_BYTES).removeprefix(_MARK)
    except OSError as exc:
        known = seen_at("filelist", path) or "check its path"
        raise SourceNotFound(f"{printable(path)}: the list cannot be read: {os.strerror(exc.errno or 0)}; {known}") from exc
    except ConfigError:
        raise
    except ValueError as exc:  # a NUL in the path
        raise SourceNotFound(f"{printable(path)}: no file has such a name; check the list's path") from exc
