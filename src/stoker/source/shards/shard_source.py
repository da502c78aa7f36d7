"""Makes a list of shards from what a user writes: one path or URL, braces, globs, a folder, ``::``, or a list of these."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Union

from ...errors import ConfigError, SourceEmpty, SourceNotFound
from ...storage.names import file_url_path, is_file_url
from ..paths import AnyPath
from ..sniff import seen_at
from .shard_index import SUFFIX

Spec = Union[AnyPath, Sequence[AnyPath]]

#: no spec may name more shards than this: a slip such as {0..999999999} is reported, not tried
MAX_SHARDS = 1_000_000
_MAX_BRACES = 100
_RANGE = re.compile(r"(-?\d{1,30})\.\.(-?\d{1,30})(?:\.\.(-?\d{1,30}))?|([a-zA-Z])\.\.([a-zA-Z])")


def expand(spec: Spec, what: str, endings: tuple[str, ...]) -> list[str]:
    """The shards that a spec names, in its order; globs and folders in the order of their names.

    `what` is the call, for messages; `endings` say which files of a folder count.
    """
    if isinstance(spec, (str, bytes, os.PathLike)):
        parts: list[AnyPath] = [spec]
    elif isinstance(spec, Iterable) and not isinstance(spec, (bytearray, memoryview)):
        parts = list(spec)
    else:
        raise ConfigError(f"{what}() takes paths and URLs, got {type(spec).__name__}")
    if not parts:
        raise ConfigError(f"{what}() got an empty list of shards")
    found: list[str] = []
    for part in parts:
        if not isinstance(part, (str, bytes, os.PathLike)):
            raise ConfigError(f"{what}() takes paths and URLs, got {type(part).__name__} in the list")
        text = os.fsdecode(part)
        # Not within the brackets of an IPv6 address, and not in the name of a file that is there.
        for single in [text] if os.path.lexists(text) else re.split(r"::(?![^\[]*\])", text):
            found += _expand_one(single, what, endings)
            if len(found) > MAX_SHARDS:
                raise ConfigError(f"{what}() got more than {MAX_SHARDS:,} shards; use fewer, larger ones")
    return found


def is_remote(url: str) -> bool:
    """Whether it names a place on a network."""
    return "://" in url and not is_file_url(url)


def braces(text: str) -> list[str]:
    """What a text with braces stands for: ``{0000..0147}``, ``{0..9..3}``, ``{a..e}``, ``{train,val}``, also nested.

    >>> braces("s-{08..10}.tar")
    ['s-08.tar', 's-09.tar', 's-10.tar']
    """
    if text.count("{") > _MAX_BRACES:
        raise ConfigError(f"a name with {text.count('{'):,} braces, and at most {_MAX_BRACES} are allowed: {text[:60]!r}...")
    if (count := _count(text)) > MAX_SHARDS:
        raise ConfigError(f"{text!r} stands for {count:,} names, and at most {MAX_SHARDS:,} are allowed; check the braces")
    return list(_expanded(text))


def _expand_one(part: str, what: str, endings: tuple[str, ...]) -> list[str]:
    if part == "-":
        return [part]
    if not part:
        raise ConfigError(f"{what}() got an empty name")
    if is_remote(part):
        if "*" in part:
            raise ConfigError(
                f"{part}: remote folders cannot be listed; write the shards with braces, as in name-{{0000..0147}}.tar"
            )
        return braces(part)
    if is_file_url(part):
        part = os.fsdecode(file_url_path(part))
    folder = os.path.isdir(part)  # noqa: PTH112  pathlib raises when a name is too long
    if os.path.lexists(part) and not folder:
        return [part]  # also when its name holds braces or stars
    if folder:
        return _in_folder(part, what, endings)
    names: list[str] = []
    for name in braces(part):
        names += _matching(name) if glob.has_magic(name) else [name]
    return names


def _in_folder(folder: str, what: str, endings: tuple[str, ...]) -> list[str]:
    found = (entry.name for entry in os.scandir(folder))
    names = sorted(name for name in found if name.lower().endswith(endings) and not name.startswith("."))
    if not names:
        known = seen_at(what, os.fsencode(folder)) or f"{what}() takes a glob for other names"
        raise SourceEmpty(f"{folder}: no file in this folder ends in {' or '.join(endings)}; {known}")
    return [os.path.join(folder, name) for name in names]  # noqa: PTH118  names may be any bytes


def _matching(pattern: str) -> list[str]:
    found = sorted(name for name in glob.glob(pattern, recursive=True) if not name.endswith(SUFFIX))  # noqa: PTH207
    if not found:
        raise SourceNotFound(f"{pattern}: no file matches; check the spelling and the folder you are in ({Path.cwd()})")
    return found


def _parts(text: str) -> tuple[str, list[str], str] | None:
    """Text before the first group of braces, its alternatives, and what follows; None without one."""
    start = text.find("{")
    while start >= 0:
        depth, cuts = 0, [start]
        for at in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if text[at] == "," and depth == 1:
                cuts.append(at)
            if not depth:
                inside = text[start + 1 : at]
                if len(cuts) > 1:
                    cuts.append(at)
                    return text[:start], [text[a + 1 : b] for a, b in pairwise(cuts)], text[at + 1 :]
                if _RANGE.fullmatch(inside):
                    return text[:start], [inside], text[at + 1 :]
                break
        start = text.find("{", start + 1)
    return None


def _count(text: str) -> int:
    parts = _parts(text)
    if parts is None:
        return 1
    _, alternatives, rest = parts
    numbers = _range(alternatives[0]) if len(alternatives) == 1 else None
    return (_length(numbers) if numbers is not None else sum(map(_count, alternatives))) * _count(rest)


def _length(numbers: range) -> int:
    """How many there are; `len` gives up at 2^63."""
    return abs(numbers.stop - numbers.start) // abs(numbers.step) + bool((numbers.stop - numbers.start) % numbers.step)


def _expanded(text: str) -> Iterator[str]:
    parts = _parts(text)
    if parts is None:
        yield text
        return
    before, alternatives, rest = parts
    tails = list(_expanded(rest))
    for middle in _alternatives(alternatives):
        for tail in tails:
            yield before + middle + tail


def _alternatives(alternatives: list[str]) -> Iterator[str]:
    numbers = _range(alternatives[0]) if len(alternatives) == 1 else None
    if numbers is None:
        for alternative in alternatives:
            yield from _expanded(alternative)
        return
    first, last, _, letter, _ = _RANGE.fullmatch(alternatives[0]).groups()  # type: ignore[union-attr]
    padded = not letter and any(len(end.lstrip("-")) > 1 and end.lstrip("-")[0] == "0" for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    for number in numbers:
        yield chr(number) if letter else f"{number:0{width}d}"


def _range(text: str) -> range | None:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last, step, letter, last_letter = found.groups()
    low, high = (ord(letter), ord(last_letter)) if letter else (int(first), int(last))
    by = max(1, abs(int(step or 1)))
    return range(low, high + 1, by) if low <= high else range(low, high - 1, -by)
