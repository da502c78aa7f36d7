"""ARCHITECTURE.md and CONTRIBUTING.md say what is so: their table of layers is the tests' own, and the files they name exist."""

from __future__ import annotations

import re
from pathlib import PurePath

import pytest

from ..loader.runs import ROOT
from .test_layers import MAY_IMPORT

#: what every layer may import, and the page leaves out
EVERYWHERE = {"errors", "sizes"}
#: where files named in short may be
FOLDERS = ("", "src/stoker", "src/stoker/*", "native", "native/*", "tests", "tests/*", "docs", "benchmarks")


def test_the_table_of_layers_is_the_one_that_imports_are_held_to() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/?` \|.*\|([^|]*)\|$", text.split("## Layers")[1].split("\n## ")[0], re.MULTILINE)
    table = {package: set(re.findall(r"\w+", others)) for package, others in rows}
    assert table == {package: others - EVERYWHERE for package, others in MAY_IMPORT.items()}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_is_there(page: str) -> None:
    named = set(re.findall(r"`([\w./*-]+\.(?:py|c|h|md))`", (ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 2
    assert [name for name in sorted(named) if not _exists(name)] == []


def _exists(name: str) -> bool:
    return any(any(ROOT.glob(str(PurePath(folder) / name))) for folder in FOLDERS)
