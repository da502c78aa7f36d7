"""Accelerate: the loader shares the samples, `prepare()` leaves it as it is, and `save_state()` includes it.

torchrun --standalone --nproc-per-node 2 examples/frameworks/accelerate_loop.py run --stop-after 4
torchrun --standalone --nproc-per-node 2 examples/frameworks/accelerate_loop.py run
"""

import torch
from accelerate import Accelerator
from points import Record, arguments, make_points


def main() -> None:
    given = arguments(__doc__)
    record, checkpoint = Record(given.folder, given.stop_after), given.folder / "checkpoint"
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with make_points().shard().batch(4).loader(format="torch") as batches:
        accelerator.register_for_checkpointing(batches)
        if checkpoint.exists():
            accelerator.load_state(str(checkpoint))
        train(accelerator, model, optimizer, batches, record, given.epochs)
        accelerator.save_state(str(checkpoint))
    accelerator.wait_for_everyone()
    accelerator.end_training()


def train(accelerator, model, optimizer, batches, record, epochs: int) -> None:
    for epoch in range(batches.epoch, epochs):
        for x, y, ids in batches:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            if record(epoch, ids):
                return


if __name__ == "__main__":
    main()
