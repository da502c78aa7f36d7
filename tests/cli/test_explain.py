"""`stoker explain`: the plan, and what made a batch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from stoker.cli.pipelines import load_pipeline


def test_without_a_step_the_plan_is_told(stoker: Any, stoker_json: Any, module: Path) -> None:
    result = stoker("explain", f"{module}:train")
    assert result.exit_code == 0
    assert "RandomResizedCrop" in result.stdout and "24 files" in result.stdout
    assert stoker_json("explain", f"{module}:train")["plan"] == result.stdout.splitlines()


def test_the_rows_are_those_of_the_batch(stoker_json: Any, module: Path) -> None:
    told = stoker_json("explain", f"{module}:train", "--epoch", 2, "--step", 3)
    with load_pipeline(f"{module}:train").loader(epoch=2) as loader:
        batch = list(loader)[3]
    assert [row["key"] for row in told["batch"]] == batch.sample_keys
    assert (told["seed"], told["epoch"], told["step"], told["rows"]) == (5, 2, 3, 6)


def test_text_shows_crops_and_says_how_to_see_more(stoker: Any, module: Path) -> None:
    result = stoker("explain", f"{module}:train", "--step", 0, "-n", 2)
    assert result.exit_code == 0
    assert "crop from" in result.stdout and "32 x 32" in result.stdout and "4 more rows" in result.stdout


def test_a_step_that_is_not_there_is_wrong_usage(stoker: Any, module: Path) -> None:
    result = stoker("explain", f"{module}:train", "--step", 4)
    assert result.exit_code == 2 and "0 to 3" in result.stderr


def test_mixed_batches_and_bad_samples_are_shown_too(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(image_folder, tmp_path / "photos"))
    min(folder.rglob("*.jpg")).write_bytes(b"<html>")
    (tmp_path / "mixed.py").write_text(
        "import stoker\nfrom stoker.image import MixUp, Resize\n"
        f"train = stoker.files({str(folder)!r}).image('image', Resize((8, 8))).batch(6).blend(MixUp(0.2, classes=3))\n"
    )
    result = stoker("explain", f"{tmp_path / 'mixed.py'}:train", "--step", 0)
    assert result.exit_code == 0 and result.stdout.count("8 x 8") == 5
    assert "blend: MixUp(share=" in result.stdout
    assert "row 0: " in result.stdout and "it begins with b'<html>' and is not a supported image" in result.stdout


def test_text_tells_what_every_operation_drew(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "drawn.py").write_text(
        "import stoker\nfrom stoker.image import *\n"
        f"train = stoker.files({str(image_folder)!r}).image('image', RandomResizedCrop(16), HorizontalFlip(), RandAugment(2, 9), "
        "ColorJitter(hue=0.1), Invert(0)).image('image', Rotate((5, 5)), CenterCrop(16)).batch(23, drop_last=False)"
        ".blend(CutMix(1.0, classes=3), layout='hwc')\n"
    )
    told = stoker("explain", f"{tmp_path / 'drawn.py'}:train", "--step", 0, "-n", 2).stdout
    assert told.count("RandAugment(") == told.count("order=(") == told.count("no Invert") == 2
    assert told.count("image('image') 2: Rotate(degrees=5.0)") == 2 and "blend: CutMix(share=0." in told and "box=(top=" in told
    assert "RandomResizedCrop(" not in told, "the table has it"
    alone = stoker("explain", f"{tmp_path / 'drawn.py'}:train", "--step", 1).stdout
    assert ": 1 row\n" in alone and "blend: nothing" in alone, "a single row has no partner"
