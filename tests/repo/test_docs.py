"""Examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import stoker

PACKAGE = Path(stoker.__file__).parent


def modules() -> list[str]:
    """All of the package but the command, which needs more than NumPy."""
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
    names = [".".join(["stoker", *(part for part in path.parts if part != "__init__")]) for path in paths]
    return [name for name in names if not name.startswith("stoker.cli")]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    examples = [test for name in modules() for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len({test.name for test in examples}) >= 5
