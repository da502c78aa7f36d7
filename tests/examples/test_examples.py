"""The examples run as a reader would run them, and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..support import jpeg_bytes

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_without_its_arguments_says_what_it_needs(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2 and "required" in done.stderr and "Traceback" not in done.stderr


def test_a_folder_in_ten_lines(image_folder: Path) -> None:
    lines = run("folder.py", image_folder).splitlines()
    assert len(lines) == 2  # 24 images in batches of 16, the last one shorter
    assert lines[0].startswith("(16, 64, 64, 3) uint8")
    assert lines[1].startswith("(8, 64, 64, 3) uint8")
    code = [
        line
        for line in (EXAMPLES / "folder.py").read_text().splitlines()
        if line and not line.startswith(('"""', "import", "from"))
    ]
    assert len(code) <= 10


def test_training_resumes_with_the_very_next_batch(image_folder: Path, tmp_path: Path) -> None:
    whole = [line for line in run("train_torch.py", image_folder, tmp_path / "a.pt").splitlines() if "loss" in line]
    first = run("train_torch.py", image_folder, tmp_path / "b.pt", 4)
    assert "stopped after 4 steps" in first
    second = run("train_torch.py", image_folder, tmp_path / "b.pt")
    parts = [line for line in (first + second).splitlines() if "loss" in line]
    assert parts == whole  # same batches, same losses, to the last digit
    assert len(whole) == 9


def test_two_ranks_take_equal_steps_and_share_no_sample(image_folder: Path) -> None:
    out = run("ddp.py", image_folder)
    assert "steps on each rank: [3, 3]" in out
    assert "samples on each rank: [12, 12], seen by both: 0" in out


@pytest.fixture
def annotated(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "boxes").mkdir()
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / f"{name}.JPEG").write_bytes(jpeg_bytes(100, 80, seed=number))
        objects = "".join(
            f"<object><name>{name}</name><bndbox><xmin>{10 * k}</xmin><ymin>5</ymin>"
            f"<xmax>{10 * k + 40}</xmax><ymax>60</ymax></bndbox></object>"
            for k in range(number + 1)
        )
        xml = f"<annotation><size><width>100</width><height>80</height></size>{objects}</annotation>"
        (tmp_path / "boxes" / f"{name}.xml").write_text(xml)
    (tmp_path / "train.txt").write_text("cat\ndog\n")
    return tmp_path


def test_boxes_give_one_sample_an_object(annotated: Path) -> None:
    out = run("boxes.py", annotated / "train.txt", annotated / "images", annotated / "boxes")
    rows = re.findall(r"^(cat|dog) \(64, 64, 3\) \[5.0, (\d+).0, 60.0, (\d+).0\]$", out, re.MULTILINE)
    assert sorted(rows) == [("cat", "0", "40"), ("dog", "0", "40"), ("dog", "10", "50")]
