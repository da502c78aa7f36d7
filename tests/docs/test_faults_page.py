"""The page of faults names every scenario once, and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "explanation" / "faults.md").read_text()
ROWS = dict(re.findall(r"^\| (F\d+[bc]?) \| (.*) \|$", PAGE, re.MULTILINE))


@cache
def functions_of(name: str) -> set[str]:
    tree = ast.parse((TESTS / name).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_scenario_has_a_row() -> None:
    assert list(ROWS) == sorted([f"F{number:02d}" for number in range(1, 49)] + ["F10b", "F10c", "F13b", "F28b"])


@pytest.mark.parametrize("scenario", ROWS)
def test_a_row_says_what_is_done_and_names_tests_that_exist(scenario: str) -> None:
    fault, answer, shown = ROWS[scenario].split(" | ")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", shown)
    assert fault and answer and named and shown == " ".join(f"`{file}::{test}`" for file, test in named)
    assert not [f"{file}::{test}" for file, test in named if test not in functions_of(file)]
