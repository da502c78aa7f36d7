"""Gives every file its label: from its folder's name, a mapping or list of names, a user's function, or one by one."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...errors import ConfigError, FunctionError, message_of
from ..chunk import Ints, fits
from ..paths import printable
from .typed_columns import Place, Values, is_list, typed_column

#: a word such as "folder", None, folder name -> label, class names, or path -> label
Rule: TypeAlias = "str | Mapping[str, Any] | Sequence[str] | Callable[[str], Any] | None"
#: labels, and the names of the classes where they have any
Labels = tuple[Values, tuple[str, ...]]


def check_rule(rule: Any, words: tuple[str, ...], call: str, listed: str = "a list of class names") -> None:
    """Refuse what cannot say a label; `listed` says what a list of labels holds."""
    if rule is None or isinstance(rule, Mapping) or callable(rule) or is_list(rule):
        return
    if not isinstance(rule, str) or rule not in words:
        told = ", ".join(map(repr, words))
        raise ConfigError(
            f"{call}(labels={rule!r}): use {told}, None, a dict of folder name -> label, {listed}, or a function of the path"
        )


def label_files(rule: Any, paths: Sequence[bytes], folders: list[bytes], call: str) -> Labels:
    """The label of every file, by any rule but a word of the source's own. `folders` name the files' classes."""
    if callable(rule):
        return label_paths(paths, rule, call), ()
    if isinstance(rule, Mapping):
        return _label_mapped(folders, rule, call)
    if is_list(rule):
        numbers = class_numbers(rule, call)
        return _looked_up(folders, numbers, call, "is not one of the classes in"), mapped_classes(numbers)
    return _label_folders(folders)


def label_values(given: Any, place: Place) -> Values:
    """Labels that a user gives one by one: integers as int64, Python's floats as float32, and texts."""
    labels = typed_column(given, place, np.float32)
    if labels.dtype == np.uint64 and bool((labels > np.iinfo(np.int64).max).any()):
        at = int(np.flatnonzero((labels > np.iinfo(np.int64).max).reshape(len(labels), -1).any(axis=1))[0])
        raise ConfigError(f"{place(at)}: a label must fit a signed 64-bit integer; use text")
    return labels.astype(np.int64, copy=False) if labels.dtype.kind in "biu" else labels


def label_paths(paths: Sequence[bytes], function: Callable[[str], Any], call: str) -> Values:
    """Ask a user's function about each path, as text."""
    answers = [_asked(function, path, call) for path in paths]
    return label_values(answers, lambda at: f"the labels function of {call}(), called with {printable(paths[at])}")


def class_numbers(names: Any, call: str) -> dict[str, int]:
    """Class names, each with its place among them: what `pipeline.classes` of another pipeline is."""
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        if not isinstance(name, str):
            raise ConfigError(
                f"{call}(labels=[...]): {name!r} ({type(name).__name__}) is not the name of a class; for a label per file, "
                "use files([paths], labels=[...])"
            )
        if numbers.setdefault(str(name), number) != number:
            raise ConfigError(f"{call}(labels=[...]) names the class {name!r} twice; remove one")
    return numbers


def check_mapping(mapping: Mapping[str, int]) -> dict[str, int]:
    """A user's mapping with plain integers for labels."""
    return {name: as_label(label, f"voc(labels={{{name!r}: ...}})") for name, label in mapping.items()}


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
        raise ConfigError(f"{place}: got {value!r} ({type(value).__name__}); a label must be an int") from None
    if not fits(label):
        raise ConfigError(f"{place}: got {label}; a label must fit a signed 64-bit integer")
    return label


def _label_folders(folders: list[bytes]) -> Labels:
    """Number the folders by their sorted names."""
    names = sorted(set(folders))
    return _numbered(folders, {name: number for number, name in enumerate(names)}), tuple(map(printable, names))


def _label_mapped(folders: list[bytes], mapping: Mapping[str, Any], call: str) -> Labels:
    """Look the folders up in a user's mapping."""
    names = list(mapping)
    values = label_values(list(mapping.values()), lambda at: f"{call}(labels={{{names[at]!r}: ...}})")
    rows = _looked_up(folders, {name: row for row, name in enumerate(names)}, call, "has no label in")
    plain = values.dtype == np.int64 and values.ndim == 1
    return values[rows], mapped_classes(dict(zip(names, values.tolist()))) if plain else ()


def _looked_up(folders: list[bytes], numbers: Mapping[str, int], call: str, missing: str) -> Ints:
    return _numbered(folders, {name: _number(name, numbers, call, missing) for name in sorted(set(folders))})


def _number(name: bytes, numbers: Mapping[str, int], call: str, missing: str) -> int:
    """The number of a name, which may be spelled as Python spells file names, or as `classes` shows it."""
    for spelling in (os.fsdecode(name), printable(name)):
        if spelling in numbers:
            return numbers[spelling]
    known = ", ".join(map(repr, list(numbers)[:5])) + (", ..." if len(numbers) > 5 else "")
    raise ConfigError(f"the folder {printable(name)!r} {missing} {call}(labels=...), which has {known or 'none'}; add it")


def _shown(name: str) -> str:
    return name if name.isprintable() else printable(os.fsencode(name))


def _numbered(folders: list[bytes], numbers: Mapping[bytes, int]) -> Ints:
    return np.fromiter(map(numbers.__getitem__, folders), np.int64, len(folders))


def _asked(function: Callable[[str], Any], path: bytes, call: str) -> Any:
    try:
        return function(os.fsdecode(path))
    except Exception as exc:
        told, raised = printable(path), f"{type(exc).__name__}({message_of(exc)})"
        raise FunctionError(f"the labels function of {call}() raised on {told}: {raised}; correct it", origin=told) from exc
