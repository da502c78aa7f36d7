"""The contact sheet shows every operation, and shows it as the kernel does it today."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

import stoker.image

from ..support import jpeg_bytes

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "contact_sheet.py"
REMEDY = "make it anew: python docs/contact_sheet.py docs/images/contact-sheet.png"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contact_sheet", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_operation_is_on_the_sheet(script: ModuleType) -> None:
    rows = [row for section in script.whole_sheet().values() for row in section]
    shown = {type(op).__name__ for row in rows for tile in row.tiles for op in tile.ops}
    assert shown == set(stoker.image.__all__) - {"Operation"}
    assert any("boxes" in tile.options for row in rows for tile in row.tiles)
    # A row that names an operation shows it, in every tile but those before and after it.
    for row in rows:
        name = row.name.partition(",")[0]
        assert name not in stoker.image.__all__ or any(type(op).__name__ == name for tile in row.tiles for op in tile.ops)


def test_the_sheet_in_the_documentation_is_what_the_kernel_does_now(script: ModuleType, tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path / "sheet.png"], check=True, timeout=100)
    now, kept = (np.asarray(Image.open(path)).astype(int) for path in (tmp_path / "sheet.png", DOCS / "images/contact-sheet.png"))
    assert now.shape == kept.shape, REMEDY
    sections = script.whole_sheet()
    rows = [row for section in sections.values() for row in section]
    for row, top in zip(rows, script.places(sections)[1], strict=True):
        band = np.s_[top : top + script.HEIGHT, script.LABEL :]  # captions are below: how letters look is Pillow's affair
        assert abs(now[band] - kept[band]).mean() < 0.05, f"{row.name}, {row.note}: {REMEDY}"


def test_a_picture_of_ones_own_fills_a_tile_whatever_its_shape(script: ModuleType) -> None:
    for width, height in ((300, 90), (90, 300), (1, 1)):
        assert script.one_picture(jpeg_bytes(width, height)).shape == (script.HEIGHT, script.WIDTH, 3)
