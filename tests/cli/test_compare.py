"""`stoker bench --compare`: one loop fed in series and in parallel, and both timelines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

QUICK = ("--compare", "--seconds", 0.1, "--size", 32, "--batch", 8, "--threads", 2)


def test_both_are_measured_with_the_same_step(stoker_json: Any, image_folder: Path) -> None:
    found = stoker_json("bench", image_folder, *QUICK, "--step", 0.003)
    serial, parallel = found["serial"], found["parallel"]
    assert found["step_s"] == 0.003 and found["times"] == pytest.approx(parallel["samples_per_s"] / serial["samples_per_s"])
    for side in (serial, parallel):
        assert len(side["rounds"]) == 5 and side["deviation"] >= 0 and 0 < side["wait_share"] < 1
        assert side["batch_s"] >= 0.003 and side["stall_s"] <= side["batch_s"]
        assert {bar["name"] for bar in side["timeline"]["rows"][0]["bars"]} <= {"wait", "step"}
    assert [row["name"] for row in serial["timeline"]["rows"]] == ["loop", "same thread"]
    assert {row["name"] for row in parallel["timeline"]["rows"]} <= {"loop", "worker 0", "worker 1"}
    assert serial["timeline"]["length_s"] == parallel["timeline"]["length_s"] > 0


def test_without_a_step_it_takes_as_long_as_a_batch(stoker_json: Any, image_folder: Path) -> None:
    assert stoker_json("bench", image_folder, *QUICK)["step_s"] > 0


def test_the_picture_and_the_text_show_both(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    result = stoker("bench", image_folder, *QUICK, "--html", tmp_path / "compare.html")
    assert result.exit_code == 0
    for words in ("serial", "parallel, 2 workers", "same thread", "loop waits", "only waits", "verdict"):
        assert words in result.stdout
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1 and "same thread" in page and re.search(r"worker \d", page)
    assert not re.search(r"<script|src=|href=", page)


def test_figures_are_not_lost_with_a_page_that_cannot_be_written(stoker: Any, image_folder: Path) -> None:
    result = stoker("bench", image_folder, *QUICK, "--html", "/dev/full")
    assert result.exit_code == 74 and "/dev/full" in result.stderr and "serial" in result.stdout


def test_what_belongs_to_the_comparison_needs_it(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    for words in (
        ("--html", tmp_path / "a.html"),
        ("--step", 1),
        ("--compare", "--step", "inf"),
        ("--compare", "--against", "none"),
    ):
        result = stoker("bench", image_folder, *words)
        assert result.exit_code == 2 and ("--compare" in result.stderr or "--step" in result.stderr)
