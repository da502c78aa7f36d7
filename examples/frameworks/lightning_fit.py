"""Lightning: give `fit` the loader; every checkpoint has its state.

torchrun --standalone --nproc-per-node 2 examples/frameworks/lightning_fit.py run --stop-after 4
torchrun --standalone --nproc-per-node 2 examples/frameworks/lightning_fit.py run
"""

import os

import pytorch_lightning as lightning
import torch
from points import Record, arguments, make_points


class Save(lightning.Callback):
    """A checkpoint after some steps. It has to be made within `fit`: after it, Lightning has no state of the loader."""

    def __init__(self, path, step: int | None) -> None:
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, *_) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


class Classifier(lightning.LightningModule):
    def __init__(self, record: Record) -> None:
        super().__init__()
        self.layer, self.record = torch.nn.Linear(2, 2), record

    def training_step(self, batch, step: int):
        self.record(self.current_epoch, batch["id"])
        return torch.nn.functional.cross_entropy(self.layer(batch["x"]), batch["y"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    given = arguments(__doc__)
    checkpoint = given.folder / "last.ckpt"
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    world = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=world,
        strategy="ddp",
        max_epochs=given.epochs,
        max_steps=given.stop_after or -1,
        callbacks=[Save(checkpoint, given.stop_after)],
        **quiet,
    )
    with make_points().shard().batch(4).loader(format="torch") as batches:
        model = Classifier(Record(given.folder, None))
        trainer.fit(model, batches, ckpt_path=checkpoint if checkpoint.exists() else None)


if __name__ == "__main__":
    main()
