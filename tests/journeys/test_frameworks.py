"""Every framework, on one process and two, stopped and started again: it trains on every sample of every epoch exactly once."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from .framework_runs import EPOCHS, EXAMPLES, RUNS, SAMPLES, TORCH, run_frameworks

pytest.importorskip("torch")

#: what each run needs beside torch
NEEDS = {
    "Lightning": "pytorch_lightning",
    "Fabric": "lightning_fabric",
    "Accelerate": "accelerate",
    "Trainer": "transformers",
    "timm": "timm",
    "Keras": "keras",
    "JAX and Orbax": "orbax.checkpoint",
    "TensorFlow": "tensorflow",
    "tf.data": "tensorflow",
}

thorough = [pytest.mark.faults, pytest.mark.thorough]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many images as the other examples have points."""
    root = tmp_path_factory.mktemp("timm")
    for number in range(SAMPLES):
        (root / f"class{number % 4}").mkdir(exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"class{number % 4}" / f"{number}.jpg")
    return root


def check(names: list[str], world: int, folder: Path, photos: Path) -> None:
    for name, seen in run_frameworks(names, world, folder, photos).items():
        assert len(seen) == SAMPLES * EPOCHS, (name, world)
        assert set(seen.values()) == {1}, f"{name}: {[sample for sample, times in seen.items() if times > 1]} more than once"
        assert Counter(epoch for epoch, _ in seen) == dict.fromkeys(range(EPOCHS), SAMPLES), name


@pytest.mark.parametrize(
    ("names", "world"),
    [
        pytest.param(["PyTorch"], 2),
        pytest.param(["JAX and Orbax"], 2),
        pytest.param(["Keras"], 2),
        *(pytest.param(["TensorFlow", "tf.data"], world, marks=thorough) for world in (1, 2)),
        pytest.param(["Keras"], 1, marks=thorough),
        pytest.param(["JAX and Orbax"], 1, marks=thorough),
        *(pytest.param([name], world, marks=thorough) for name in TORCH for world in (1, 2) if (name, world) != ("PyTorch", 2)),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, list) else str(value),
)
def test_every_sample_comes_exactly_once_before_and_after_a_resume(
    names: list[str], world: int, tmp_path: Path, photos: Path
) -> None:
    for name in names:
        if (
            find_spec(NEEDS.get(name, "torch").partition(".")[0]) is None
        ):  # not imported here: some need torchvision, as others have it
            pytest.skip(f"{name} is not installed")
    check(names, world, tmp_path, photos)


def test_every_example_is_a_run_of_these() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} - {"points.py"} == {words[0] for words in RUNS.values()}
