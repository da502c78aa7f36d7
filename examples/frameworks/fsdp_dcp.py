"""FSDP, with checkpoints by torch.distributed.checkpoint: a loader is `Stateful`, so it is saved like a model.

torchrun --standalone --nproc-per-node 2 examples/frameworks/fsdp_dcp.py run --stop-after 4
torchrun --standalone --nproc-per-node 2 examples/frameworks/fsdp_dcp.py run
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from points import Record, arguments, make_points
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    given = arguments(__doc__)
    dist.init_process_group("gloo")
    record, checkpoint = Record(given.folder, given.stop_after), given.folder / "checkpoint"
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make_points().shard().batch(4).loader(format="torch") as batches:
        if checkpoint.exists():
            state = {"model": get_model_state_dict(model), "data": batches}
            dcp.load(state, checkpoint_id=checkpoint)
            set_model_state_dict(model, state["model"])
        train(model, optimizer, batches, record, given.epochs)
        dcp.save({"model": get_model_state_dict(model), "data": batches}, checkpoint_id=checkpoint)
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
