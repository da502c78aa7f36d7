"""The page on lowering says what the code does: every transform in its tables is tried."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stoker.image.foreign_operations import _NAMES
from stoker.torch.lowered_transforms import NotLowered, Recipe, lower_transforms

from ..image.vision import BILINEAR, torch, v1, v2
from .test_docs import DOCS

PAGE = (DOCS / "explanation" / "lowering.md").read_text(encoding="utf-8")
NAMES = {**vars(v2), **vars(v1), "torch": torch, "BILINEAR": BILINEAR, "BICUBIC": v2.InterpolationMode.BICUBIC}
FLOATS, NORMALIZED = [v1.ToTensor()], [v1.ToTensor(), v1.Normalize([0.5], [0.5])]


def rows(after: str) -> list[list[str]]:
    """The rows of the first table after some words of the page, without its head."""
    table = PAGE.split(after)[1].split("\n|---", 1)[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[1:]]


def made(text: str) -> list[Any]:
    """The transforms in a cell."""
    found = eval(f"[{text.strip('`')}]", NAMES)  # noqa: S307  a text of ours
    assert isinstance(found, list)
    return found


def lowered(*transforms: Any) -> Recipe | NotLowered:
    return lower_transforms(v1.Compose(list(transforms)))


LOWERED = rows("## Transforms")
REFUSED = rows("## What is not lowered, and why")


@pytest.mark.parametrize(("cell", "becomes", "floats", "normalized"), LOWERED, ids=[row[0] for row in LOWERED])
def test_a_transform_becomes_what_the_page_says_where_it_says_so(cell: str, becomes: str, floats: str, normalized: str) -> None:
    [transform] = made(cell)
    for recipe in ([transform, v1.ToTensor()], [v1.PILToTensor(), transform]):
        found = lowered(*recipe)
        assert isinstance(found, Recipe), found
        assert type(found.ops[0]).__name__ == becomes.split("`")[1]
        assert found.channels == (1 if "one channel" in becomes else 3)
    assert isinstance(lowered(*FLOATS, transform), Recipe) == (floats == "yes")
    assert isinstance(lowered(*NORMALIZED, transform), Recipe) == (normalized == "yes")


@pytest.mark.parametrize(("cell", "told"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_the_page_says_is_not_lowered_is_not_for_the_reason_it_says(cell: str, told: str) -> None:
    transforms = made(cell)
    ending = [] if any(type(each).__name__ in ("ToTensor", "ToImage") for each in transforms) else [v1.ToTensor()]
    found = lowered(*transforms, *ending)
    assert isinstance(found, NotLowered)
    assert found.why == f"{told} has no counterpart in stoker.image"


def test_every_transform_that_is_lowered_is_on_the_page() -> None:
    ends = rows("These end a recipe, or convert the pixels:")
    shown = {name for row in LOWERED + ends for name in re.findall(r"(\w+)\(", row[0])}
    known = {name for name, ours in _NAMES.items() if ours.same and hasattr(v2, name)}
    assert len(known) > 30
    assert shown - {"RandomApply"} == known


def test_the_page_names_the_data_sets_that_are_lowered() -> None:
    named = re.findall(r"`(?:torch|torchvision)\.[\w.]*?(\w+)`", " ".join(row[0] for row in rows("## Data sets")))
    assert named == ["ImageFolder", "TensorDataset", "Subset", "ConcatDataset"]
