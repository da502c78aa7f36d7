"""`stoker demo`: it learns, resumes exactly, and leaves nothing behind."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker as library
from stoker.cli.learners import ConvNet, Learner, Perceptron, make_learner
from stoker.cli.shapes import HUES, make_shapes

from ..observe.test_report import data_of


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_it_learns_resumes_and_cleans_up(stoker: Any, no_torch: None, temporary: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    result = stoker("demo", "--epochs", 4, "--json", "--html", report)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    accuracies = [row["accuracy"] for row in told["epochs"]]
    assert told["accuracy"] == accuracies[-1] > 0.5 > 2 * told["chance"] - 0.01
    assert told["epochs"][-1]["loss"] < told["epochs"][0]["loss"]
    assert told["resume"]["identical"] is True
    assert told["verdict"] and told["seconds"] < 60
    assert list(temporary.iterdir()) == []
    page = data_of(report.read_text(encoding="utf-8"))
    assert len(page["lesson"]) == 4 and page["verdict"]["text"] == told["verdict"] and len(page["pictures"]) == 12


def test_pictures_can_be_kept_and_text_tells_the_story(stoker: Any, no_torch: None, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = stoker("demo", "--epochs", 1, "--keep", kept)
    assert result.exit_code == 0, result.stderr
    assert "the next batch is identical" in result.stdout and "verdict" in result.stdout
    assert library.files(kept / "train").classes == tuple(sorted(HUES))
    assert stoker("demo", "--keep", kept).exit_code == 2  # it is not empty any more


def test_the_pictures_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_shapes(tmp_path / name, 8, seed=3)
    first, second = ([p.read_bytes() for p in sorted((tmp_path / name).rglob("*.jpg"))] for name in ("a", "b"))
    assert len(first) == 8 and first == second and len(set(first)) == 8


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_models_learn(kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    model: Learner = ConvNet(3) if kind == "torch" else Perceptron(3, 32)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 64)
    images = rng.normal(0, 0.5, (64, 32, 32, 3)).astype(np.float32)
    images[np.arange(64), :, :, labels] += 1  # the brightest channel is the class
    losses = [model.learn(images, labels) for _ in range(40)]
    assert losses[-1] < losses[0] / 2
    assert (model.classify(images) == labels).mean() > 0.9


def test_numpy_takes_over_where_torch_is_missing(no_torch: None) -> None:
    assert isinstance(make_learner(4, 64), Perceptron)
