"""Lightning Fabric: the loop is your own, and `fabric.save` takes the loader along with the model.

torchrun --standalone --nproc-per-node 2 examples/frameworks/fabric_loop.py run --stop-after 4
torchrun --standalone --nproc-per-node 2 examples/frameworks/fabric_loop.py run
"""

import os

import torch
from lightning_fabric import Fabric
from points import Record, arguments, make_points


def main() -> None:
    given = arguments(__doc__)
    record, checkpoint = Record(given.folder, given.stop_after), given.folder / "checkpoint.ckpt"
    fabric = Fabric(accelerator="cpu", devices=int(os.environ.get("WORLD_SIZE", "1")), strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(2, 2)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with make_points().shard().batch(4).loader(format="torch") as batches:  # not through fabric.setup_dataloaders()
        state = {"model": model, "optimizer": optimizer, "data": batches}
        if checkpoint.exists():
            fabric.load(checkpoint, state)
        train(fabric, model, optimizer, batches, record, given.epochs)
        fabric.save(checkpoint, state)


def train(fabric, model, optimizer, batches, record, epochs: int) -> None:
    for epoch in range(batches.epoch, epochs):
        for x, y, ids in batches:
            optimizer.zero_grad()
            fabric.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            if record(epoch, ids):
                return


if __name__ == "__main__":
    main()
