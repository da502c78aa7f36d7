"""Functions are told apart by what can be seen of them, and the same ones are the same in every process."""

from __future__ import annotations

import copy
import importlib.util
import re
import sys
import threading
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stoker.plan.code_digest import function_text

from ..loader.runs import run_python


class Scale:
    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, value: Any) -> Any:
        return value * self.by

    def method(self, value: Any) -> Any:
        return value + self.by


def scaled(by: Any, more: int = 0) -> Any:
    def scale(value: Any, least: int = more) -> Any:
        return max(least, value * by)

    return scale


def test_functions_that_may_differ_have_texts_that_do() -> None:
    table = np.arange(5000.0)
    other = table.copy()
    other[2500] = 7
    functions = [
        lambda value: value + 1,
        lambda value: value + 2,
        scaled(1),
        scaled(2),
        scaled(1, 5),
        scaled(table),
        scaled(other),
        scaled({"a": [1, {2, 3}]}),
        scaled({"a": [1, {2, 4}]}),
        partial(scaled(1), least=3),
        partial(scaled(1), least=4),
        Scale(1),
        Scale(2),
        Scale(1).method,
        Scale(2).method,
        abs,
        len,
    ]
    texts = [function_text(function) for function in functions]
    assert len(set(texts)) == len(functions)
    again = [scaled(table.copy()), Scale(1), scaled({"a": [1, {3, 2}]})]
    assert {function_text(function) for function in again} <= set(texts)


@dataclass(slots=True)
class Slotted:
    by: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32(1), np.float32(2)),
        (Path("a"), Path("b")),
        (re.compile("a"), re.compile("b")),
        (itemgetter(0), itemgetter(1)),
        (Slotted(1), Slotted(2)),
        (range(3), range(4)),
        (np.dtype("f4"), np.dtype("f8")),
        (np.array([1, None]), np.array([2, None])),
        (Slotted, Scale),
    ],
    ids=lambda value: type(value).__name__,
)
def test_enclosed_values_of_any_type_count(one: Any, other: Any) -> None:
    assert function_text(scaled(one)) == function_text(scaled(copy.deepcopy(one))) != function_text(scaled(other))


def test_enclosed_tensors_count() -> None:
    torch = pytest.importorskip("torch")
    texts = [function_text(scaled(torch.full((3,), value, dtype=torch.bfloat16))) for value in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_what_cannot_be_taken_apart_counts_by_its_type() -> None:
    texts = [function_text(scaled(value)) for value in (threading.Lock(), threading.Lock(), iter(lambda: 0, 1))]
    assert texts[0] == texts[1] != texts[2]


MODULE = """
import functools
class Base:
    def inner(self, x): return 1
class Outer(Base):
    @property
    def named(self): return self.inner(3)
    def __call__(self, x): return self.named
LIMIT = 10
TABLE = {"a": [1, 2]}
def helper(x): return x + LIMIT
def wrapped(fn):
    @functools.wraps(fn)
    def call(x): return fn(x)
    return call
@wrapped
def decorated(x):
    try: return TABLE[x]
    except KeyError: return [helper(y) for y in x]
kept = functools.lru_cache(decorated)
method, instance, itself = Outer().__call__, Outer(), lambda x: itself(helper(x))
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("return 1", "return 2", {"method", "instance"}),
        ("inner(3)", "inner(4)", {"method", "instance"}),
        ("LIMIT = 10", "LIMIT = 11", {"decorated", "kept", "itself"}),
        ("[1, 2]", "[1, 3]", {"decorated", "kept"}),
        ("x + LIMIT", "x - LIMIT", {"decorated", "kept", "itself"}),
        ("KeyError", "LookupError", {"decorated", "kept"}),
        ("MODULE", "MODULE", set()),
    ],
)
def test_what_a_function_names_of_its_own_module_counts(
    old: str, new: str, changes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("decorated", "kept", "method", "instance", "itself")
    before, after = (
        [function_text(getattr(own_module(text, monkeypatch), name)) for name in names] for text in versions(old, new)
    )
    assert {name for name, one, other in zip(names, before, after) if one != other} == changes


def test_what_a_function_names_of_another_own_module_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for version in versions("x + LIMIT", "x - LIMIT"):
        helpers = own_module(version, monkeypatch)
        calls = own_module("def crop(x): return helpers.helper(x)", monkeypatch, "calls")
        calls.helpers = helpers
        texts.append(function_text(calls.crop))
    assert texts[0] != texts[1]


def versions(old: str, new: str) -> tuple[str, str]:
    return MODULE, MODULE.replace(old, new)


def own_module(text: str, monkeypatch: pytest.MonkeyPatch, name: str = "own") -> Any:
    module = ModuleType(name)
    module.__file__ = f"/somewhere/{name}.py"
    monkeypatch.setitem(sys.modules, name, module)
    exec(text, module.__dict__)  # noqa: S102  a module as a user would edit it
    return module


def test_values_that_hold_themselves_come_to_an_end() -> None:
    endless: list[Any] = []
    endless.append({"me": endless})
    recursive = scaled(endless)
    recursive.__dict__["me"] = recursive
    assert function_text(recursive) == function_text(recursive)


def test_a_text_is_the_same_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
from stoker.plan.code_digest import function_text
def scaled(by):
    return lambda value: value * by if value in {"a", "b", "c"} else None
print(function_text(scaled({"x", "y", "z"})))
"""
    texts = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        texts.add(run_python(script).stdout)
    assert len(texts) == 1 and texts != {""}


def test_a_file_that_is_the_main_script_and_one_that_is_imported_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is run, and its remote workers import it."""
    code = "class Scale:\n    by = 2\ndef helper(x):\n    return x * Scale.by\ndef work(x):\n    return helper(x)\n"
    digests = []
    for name, text in (("as_script", code), ("as_module", code), ("changed", code.replace("by = 2", "by = 3"))):
        (tmp_path / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        digests.append(function_text(module.work).split()[-1])
    assert digests[0] == digests[1] != digests[2]
