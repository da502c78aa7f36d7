"""A loader given to Lightning as it is: whatever checkpoint a run goes on from, it sees the batches the first run would have."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError

from ..image.vision import torch  # makes torchvision importable, which Lightning imports
from ..loader.runs import no_workers, odd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # whatever Lightning's own imports deprecate
    lightning = pytest.importorskip("pytorch_lightning")

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
    pytest.mark.filterwarnings("ignore:The `srun` command is available on your system but is not used"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]

#: (Lightning's epoch, the batch's ids)
Seen = list[tuple[int, tuple[int, ...]]]


class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """Learns nothing and remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: Seen = []
        self.validated: Seen = []

    def training_step(self, batch: Any, step: int) -> Any:
        self.seen.append((self.current_epoch, tuple(batch["x"].tolist())))
        return self.weight * batch["x"].sum()

    def validation_step(self, batch: Any, step: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append((self.current_epoch, tuple(batch["x"].tolist())))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class SaveAlways(lightning.Callback):  # type: ignore[misc, name-defined]
    """A checkpoint wherever one can be made, and how many batches were trained by then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.saved: list[tuple[Path, int, str]] = []

    def save(self, trainer: Any, model: Model, when: str) -> None:
        path = self._folder / f"{len(self.saved)}.ckpt"
        trainer.save_checkpoint(path)
        self.saved.append((path, len(model.seen), when))

    def on_train_batch_end(self, trainer: Any, model: Model, *_: Any) -> None:
        self.save(trainer, model, "batch")

    def on_validation_end(self, trainer: Any, model: Model) -> None:
        if not trainer.sanity_checking:
            self.save(trainer, model, "validation")

    def on_train_epoch_end(self, trainer: Any, model: Model) -> None:
        self.save(trainer, model, "epoch")

    def on_train_end(self, trainer: Any, model: Model) -> None:
        self.save(trainer, model, "end")


def trainer_of(*callbacks: Any, **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", max_epochs=2, callbacks=list(callbacks), **quiet, **options)


def fit(pipeline: Pipeline, *callbacks: Any, ckpt_path: Path | None = None, epoch: int = 0, **options: Any) -> Model:
    model = Model()
    validation = stoker.arrays(x=np.arange(12)).shuffle(seed=5).batch(4)
    how: dict[str, Any] = {"format": "torch", "threads": 1}
    with pipeline.loader(epoch=epoch, **how) as batches, validation.loader(**how) as held_out:
        trainer_of(*callbacks, **options).fit(model, batches, held_out, ckpt_path=ckpt_path)
    return model


COUNTED = stoker.arrays(x=np.arange(21)).shuffle(seed=3).batch(4)
FILTERED = stoker.arrays(x=np.arange(42)).shuffle(seed=3).filter(odd).batch(4)


@pytest.mark.parametrize("pipeline", [COUNTED, FILTERED], ids=["counted", "filtered"])
@pytest.mark.parametrize("limits", [{}, {"limit_train_batches": 3}, {"limit_val_batches": 0}], ids=repr)
def test_a_run_goes_on_exactly_from_any_checkpoint(pipeline: Pipeline, limits: dict[str, Any], tmp_path: Path) -> None:
    save = SaveAlways(tmp_path)
    whole = fit(pipeline, save, **limits)
    steps = limits.get("limit_train_batches", 5)
    with pipeline.loader() as batches:
        expected = [[tuple(batch["x"].tolist()) for batch in batches][:steps] for _ in range(2)]
    assert whole.seen == [(epoch, ids) for epoch in range(2) for ids in expected[epoch]]
    assert {when for _, _, when in save.saved} >= {"batch", "epoch", "end"}
    for path, trained, when in save.saved:
        ahead = pipeline is FILTERED and "limit_train_batches" not in limits and when == "epoch" and trained == steps
        rest = fit(pipeline, ckpt_path=path, epoch=1 if ahead else 0, **limits)
        assert rest.seen == whole.seen[trained:], (when, trained)
        assert all(one in whole.validated for one in rest.validated)
    assert no_workers()


def test_a_batch_of_the_wrong_epoch_taken_ahead_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Where it cannot know the length, Lightning takes a batch before it says which epoch it is in."""
    save = SaveAlways(tmp_path)
    fit(FILTERED, save, limit_val_batches=0)
    path = next(path for path, _, when in save.saved if when == "epoch")
    with pytest.raises(
        ConfigError, match=r"starts epoch 1, but has already taken a batch of epoch 0.* create it with loader\(epoch=1\)"
    ):
        fit(FILTERED, ckpt_path=path, limit_val_batches=0)


def test_fitting_again_goes_on_with_the_trainers_epochs() -> None:
    model = Model()
    with COUNTED.loader(format="torch", threads=1) as batches, COUNTED.loader() as ours:
        every = [[tuple(batch["x"].tolist()) for batch in ours] for _ in range(4)]
        trainer = trainer_of()
        trainer.fit(model, batches)
        trainer.fit_loop.max_epochs = 4
        trainer.fit(model, batches)
        assert [ids for _, ids in model.seen] == [ids for epoch in every for ids in epoch]
        again = Model()
        trainer_of().fit(again, batches)  # a new trainer counts from 0, and so do the data
        assert again.seen == model.seen[:10]


def test_a_place_the_trainer_would_go_back_from_is_refused() -> None:
    refused = pytest.raises(ConfigError, match=r"set to epoch 3 .* starts epoch 0")
    with COUNTED.loader(format="torch", epoch=3) as batches, refused:
        trainer_of().fit(Model(), batches)
