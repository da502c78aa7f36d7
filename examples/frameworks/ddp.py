"""PyTorch's DistributedDataParallel: every rank gets its part of each global batch, and one state serves all of them.

torchrun --standalone --nproc-per-node 2 examples/frameworks/ddp.py run --stop-after 4
torchrun --standalone --nproc-per-node 2 examples/frameworks/ddp.py run
"""

import torch
import torch.distributed as dist
from points import Record, arguments, make_points
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    given = arguments(__doc__)
    dist.init_process_group("gloo")
    record, checkpoint = Record(given.folder, given.stop_after), given.folder / "checkpoint.pt"
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make_points().shard().batch(4).loader(format="torch") as batches:
        if checkpoint.exists():
            saved = torch.load(checkpoint)
            model.module.load_state_dict(saved["model"])
            batches.load_state_dict(saved["data"])
        train(model, optimizer, batches, record, given.epochs)
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "data": batches.state_dict()}, checkpoint)
    dist.barrier()
    dist.destroy_process_group()


def train(model, optimizer, batches, record, epochs: int) -> None:
    for epoch in range(batches.epoch, epochs):
        for x, y, ids in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if record(epoch, ids):
                return


if __name__ == "__main__":
    main()
