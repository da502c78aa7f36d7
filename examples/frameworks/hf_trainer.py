"""Hugging Face's Trainer: it makes the DataLoader and shares samples among ranks, so the pipeline has neither batch nor shard.

torchrun --standalone --nproc-per-node 2 examples/frameworks/hf_trainer.py run --stop-after 4
torchrun --standalone --nproc-per-node 2 examples/frameworks/hf_trainer.py run
"""

import torch
from points import Record, arguments, make_points
from transformers import Trainer, TrainerCallback, TrainingArguments


class Classifier(torch.nn.Module):
    def __init__(self, record: Record) -> None:
        super().__init__()
        self.layer, self.record, self.epoch = torch.nn.Linear(2, 2), record, 0

    def forward(self, x, y, id):
        self.record(self.epoch, id)
        return {"loss": torch.nn.functional.cross_entropy(self.layer(x), y)}


class Epochs(TrainerCallback):
    def __init__(self, model: Classifier) -> None:
        self.model = model

    def on_epoch_begin(self, args, state, control, **_):
        self.model.epoch = int(state.epoch)


def main() -> None:
    given = arguments(__doc__)
    dataset = make_points().torch_dataset(batches="dict")
    settings = TrainingArguments(
        str(given.folder / "checkpoints"),
        per_device_train_batch_size=4,
        num_train_epochs=given.epochs,
        max_steps=given.stop_after or -1,
        save_strategy="steps",
        save_steps=given.stop_after or 1000,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    model = Classifier(Record(given.folder, None))
    trainer = Trainer(model, settings, train_dataset=dataset, callbacks=[Epochs(model)])
    trainer.train(resume_from_checkpoint=(given.folder / "checkpoints").exists() and not given.stop_after)


if __name__ == "__main__":
    main()
