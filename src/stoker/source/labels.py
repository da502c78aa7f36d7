"""Give every file its label: from its folder's name, from a mapping of names, or from a user's function."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..errors import ConfigError, FunctionError
from .chunk import Ints
from .paths import printable

#: a word such as "folder", None, folder name -> label, or path -> label
Rule: TypeAlias = "str | Mapping[str, int] | Callable[[str], int] | None"
#: labels, and the names of the classes where they have any
Labels = tuple[Ints, tuple[str, ...]]


def check_rule(rule: Any, words: tuple[str, ...], call: str) -> None:
    """Refuse what cannot say a label."""
    if rule is None or rule in words or isinstance(rule, Mapping) or callable(rule):
        return
    told = ", ".join(map(repr, words))
    raise ConfigError(f"{call}(labels={rule!r}): use {told}, None, a dict of folder name -> int, or a function of the path")


def check_mapping(mapping: Mapping[str, int], call: str) -> dict[str, int]:
    """A user's mapping with plain integers for labels."""
    return {name: as_label(label, f"{call}(labels={{{name!r}: ...}})") for name, label in mapping.items()}


def label_folders(folders: list[bytes]) -> Labels:
    """Number the folders by their sorted names."""
    names = sorted(set(folders))
    return _numbered(folders, {name: number for number, name in enumerate(names)}), tuple(map(printable, names))


def label_mapped(folders: list[bytes], mapping: Mapping[str, int], call: str) -> Labels:
    """Look the folders up in a user's mapping."""
    checked = check_mapping(mapping, call)
    numbers = {name: _looked_up(name, checked, call) for name in sorted(set(folders))}
    return _numbered(folders, numbers), mapped_classes(checked)


def label_paths(paths: Iterable[bytes], function: Callable[[str], int], call: str) -> Labels:
    """Ask a user's function about each path, as text."""
    return np.fromiter((_asked(function, path, call) for path in paths), np.int64), ()


def mapped_classes(numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Class names in the order of their labels; none unless the labels are 0, 1, 2, ... once each."""
    names = {label: name for name, label in numbers.items()}
    if len(names) != len(numbers) or set(names) != set(range(len(names))):
        return ()
    return tuple(_shown(names[label]) for label in range(len(names)))


def as_label(value: Any, place: str) -> int:
    """An integer that fits 64 bits, or an error that names the place."""
    try:
        label = operator.index(value)
    except TypeError:
        raise ConfigError(f"{place} gave {value!r}, a {type(value).__name__}; a label is an int") from None
    if not fits(label):
        raise ConfigError(f"{place} gave {label}; a label fits 64 bits")
    return label


def fits(label: int) -> bool:
    """Whether a label fits 64 bits."""
    return -(1 << 63) <= label < 1 << 63


def _shown(name: str) -> str:
    return name if name.isprintable() else printable(os.fsencode(name))


def _numbered(folders: list[bytes], numbers: Mapping[bytes, int]) -> Ints:
    return np.fromiter(map(numbers.__getitem__, folders), np.int64, len(folders))


def _looked_up(name: bytes, mapping: Mapping[str, int], call: str) -> int:
    """The label of a name, which may be spelled as Python spells file names, or as `classes` shows it."""
    for spelling in (os.fsdecode(name), printable(name)):
        if spelling in mapping:
            return mapping[spelling]
    known = ", ".join(map(repr, list(mapping)[:5])) + (", ..." if len(mapping) > 5 else "")
    raise ConfigError(f"{call}(labels=...) has no label for the folder {printable(name)!r}, only for {known or 'none'}; add it")


def _asked(function: Callable[[str], int], path: bytes, call: str) -> int:
    try:
        answer = function(os.fsdecode(path))
    except Exception as exc:
        told = printable(path)
        raise FunctionError(f"the labels function of {call}() raised on {told}: {exc!r}; correct it", origin=told) from exc
    if type(answer) is int and fits(answer):
        return answer
    return as_label(answer, f"the labels function of {call}(), called with {printable(path)},")
