"""Functions are told apart by what can be seen of them, and the same ones are the same in every process."""

from __future__ import annotations

from functools import partial
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
