"""Hugging Face's Trainer around a data set: on two ranks every sample comes once, or the combination is refused on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError

from ..image.vision import torch  # makes torchvision importable, which Trainer imports
from .ranks import WORLD, run_ranks

pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def ids(n: int) -> Pipeline:
    return stoker.arrays(x=np.arange(n), noise=np.zeros((n, 2), np.float32)).shuffle(seed=3)


made: list[int] = []


def noted(x: Any) -> Any:
    made.append(int(x))
    return x


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Learns nothing and remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[int] = []

    def forward(self, x: Any, noise: Any) -> dict[str, Any]:
        assert noise.shape == (len(x), 2)
        self.seen += x.tolist()
        return {"loss": self.weight * x.sum()}


def train(dataset: Any, folder: Path, resume: str | None = None, **options: Any) -> list[int]:
    """The samples this rank saw in two epochs."""
    from transformers import Trainer, TrainingArguments

    quiet = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    arguments = TrainingArguments(str(folder), per_device_train_batch_size=4, num_train_epochs=2, **quiet, **options)
    model = Model()
    Trainer(model, arguments, train_dataset=dataset).train(resume_from_checkpoint=resume)
    return model.seen


REFUSED = {
    "sharded": (ids(24).shard(0, WORLD), "dict", "omit .shard()"),
    "batched": (ids(24).batch(4), "dict", "omit .batch()"),
    "named tuples": (ids(24), "tuple", "use torch_dataset(batches='dict')"),
}


def main(folder: Path) -> dict[str, Any]:
    """What a rank sees."""
    never = {"save_strategy": "no"}
    found: dict[str, Any] = {
        "exact": train(ids(24).torch_dataset(batches="dict"), folder, **never),
        "with workers": train(ids(24).torch_dataset(batches="dict"), folder, dataloader_num_workers=2, **never),
        "filled": train(ids(22).torch_dataset(batches="dict"), folder, **never),
        "saved": train(ids(24).torch_dataset(batches="dict"), folder / "saved", save_strategy="steps", save_steps=2),
    }
    for step in (2, 4):
        checkpoint = str(folder / "saved" / f"checkpoint-{step}")
        made.clear()
        found[f"resumed at {step}"] = train(ids(24).map(x=noted).torch_dataset(batches="dict"), folder, checkpoint, **never)
        found[f"made for {step}"] = len(made)
    for name, (pipeline, batches, _) in REFUSED.items():
        with pytest.raises(ConfigError) as refused:
            train(pipeline.torch_dataset(batches=batches), folder, **never)
        found[name] = str(refused.value)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks saw, all cases in one run: it takes seconds to start."""
    return run_ranks("tests.journeys.test_trainer", tmp_path_factory.mktemp("trainer"))


@pytest.mark.parametrize("name", ["exact", "with workers"])
def test_every_sample_comes_once_an_epoch_in_the_pipelines_order(name: str, ranks: list[dict[str, Any]]) -> None:
    with ids(24).loader() as samples:
        epochs = [[int(sample["x"]) for sample in samples] for _ in range(2)]
    steps = [[rank[name][at : at + 4] for rank in ranks] for at in range(0, 24, 4)]
    assert [x for step in steps for rank in step for x in rank] == [x for epoch in epochs for x in epoch]


def test_the_last_step_is_filled_up_with_samples_of_the_first(ranks: list[dict[str, Any]]) -> None:
    seen = [rank["filled"][at : at + len(rank["filled"]) // 2] for rank in ranks for at in (0, len(rank["filled"]) // 2)]
    for epoch in (seen[0] + seen[2], seen[1] + seen[3]):
        assert set(epoch) == set(range(22)) and len(epoch) <= 24


@pytest.mark.parametrize("step", [2, 4])
def test_a_run_goes_on_from_a_checkpoint_with_the_samples_that_were_left(step: int, ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["saved"] == rank["exact"]
        assert rank[f"resumed at {step}"] == rank["exact"][4 * step :]
    assert sum(rank[f"made for {step}"] for rank in ranks) == 48 - 8 * step, "what was trained on before is not made again"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_on_every_rank(name: str, ranks: list[dict[str, Any]]) -> None:
    assert all(REFUSED[name][-1] in rank[name] for rank in ranks)
