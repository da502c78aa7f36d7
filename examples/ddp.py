"""Two ranks on one machine, gloo: python examples/ddp.py PHOTOS

Each rank loads its part of every global batch; both take the same number of steps and see no sample twice. The processes are
started as in PyTorch's tutorials; `.shard()` asks their process group when a loader is made. Under torchrun, drop `mp.spawn`.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

WORLD = 2


def make_pipeline(photos: str) -> stoker.Pipeline:
    crop = RandomResizedCrop(32), HorizontalFlip()
    return stoker.files(photos).shuffle(seed=7).shard().image("image", *crop, out="float32", layout="chw").batch(4)


def fit(pipeline: stoker.Pipeline) -> tuple[int, list[str]]:
    """One epoch on this rank: its steps, and the keys of its samples."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, len(pipeline.classes)))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    keys: list[str] = []
    steps = 0
    with pipeline.loader(format="torch", threads=1) as batches:
        for batch in batches:
            images, labels = batch
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # waits for the other rank: unequal step counts would hang here
            optimizer.step()
            keys += batch.sample_keys
            steps += 1
    return steps, keys


def train(rank: int, photos: str, folder: str) -> None:
    # The ranks meet at a file. Between machines: MASTER_ADDR and MASTER_PORT in the environment, and no init_method.
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    everyone: list[tuple[int, list[str]]] = [(0, [])] * WORLD
    dist.all_gather_object(everyone, fit(make_pipeline(photos)))
    if rank == 0:
        seen = [set(names) for _, names in everyone]
        print(f"steps on each rank: {[count for count, _ in everyone]}")
        print(f"samples on each rank: {[len(names) for names in seen]}, seen by both: {len(seen[0] & seen[1])}")
    dist.barrier()  # nobody leaves while another is still talking
    dist.destroy_process_group()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("photos", help="a folder of class folders of images; `stoker demo --keep demo` makes demo/train")
    photos = words.parse_args().photos
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(photos, folder), nprocs=WORLD)
