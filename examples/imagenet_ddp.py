"""Train a ResNet with DDP on class folders, a list of files or tar shards, stop anywhere, resume exactly there.

    python examples/small_data.py small
    torchrun --standalone --nproc-per-node 2 examples/imagenet_ddp.py small/photos --checkpoint run.pt

Ctrl-C saves and stops; the same command again continues with the very next batch. --compare trains first with a serial, then with
a parallel pipeline, and prints the rates of both. --profile LOGDIR writes what `tensorboard --logdir LOGDIR` shows. GPUs are used
where there are any; without torchrun it runs in one process.
"""

import argparse
import json
import math
import os
import signal
import statistics
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stoker
from stoker import observe
from stoker.image import HorizontalFlip, RandomResizedCrop


def make_pipeline(data: str, size: int, batch: int) -> stoker.Pipeline:
    """Crops of photographs and their labels: this rank's part of every global batch."""
    if ".tar" in data:
        photos = stoker.tar(data).rename(image="jpg;jpeg;png", label="cls").select("image", "label")
    else:
        photos = stoker.filelist(data) if data.endswith(".txt") else stoker.files(data)
    return photos.shuffle(seed=7).shard().image("image", RandomResizedCrop(size), HorizontalFlip()).batch(batch)


class Normalize(nn.Module):
    """Bytes, channels last, become floats, channels first. On the device: bytes are copied there four times as fast."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean, std = (images.new_tensor(levels, dtype=torch.float32) for levels in ((124, 116, 104), (58, 57, 57)))
        return ((images - mean) / std).permute(0, 3, 1, 2)


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        first = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
        second = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        around = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)] if before != after else []
        self.through, self.around = nn.Sequential(*first, *second), nn.Sequential(*around)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.through(x) + self.around(x))


def make_model(name: str, classes: int) -> nn.Module:
    """The small ResNet of this file, or any model of torchvision: resnet50, ..."""
    if name != "small":
        import torchvision

        return nn.Sequential(Normalize(), torchvision.models.get_model(name, num_classes=classes))
    head = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    body = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
    return nn.Sequential(Normalize(), *head, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class Training:
    """A model, its optimizer, and its place in the data."""

    def __init__(self, given: argparse.Namespace, device: torch.device, serial: bool) -> None:
        self.given = given
        self.rates: list[float] = []  # images/s of all ranks, from one line that is printed to the next
        self.step = 0
        pipeline = make_pipeline(given.data, given.size, given.batch)
        torch.manual_seed(0)  # the same model on every rank
        model = make_model(given.model, given.classes or len(pipeline.classes)).to(device, memory_format=torch.channels_last)
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=given.lr, momentum=0.9)
        # Serial: every batch is made in this thread, when the loop asks for it.
        self.batches = pipeline.loader(device=device, executor="inline" if serial else "auto")
        # Ctrl-C, or SIGTERM as job schedulers send it, ends the run after a step: see `report`.
        self.asked_to_end = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.end)

    def end(self, *_: object) -> None:
        self.asked_to_end = True

    def save(self) -> None:
        path = self.given.checkpoint
        if path is None or dist.get_rank() != 0:
            return
        state = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "data": json.dumps(self.batches.state_dict()),  # the same on every rank
        }
        part = path.with_name(f"{path.name}.part")
        torch.save(state, part)
        part.replace(path)  # it is there whole, or not at all
        print(f"saved step {self.step} in {path}", flush=True)

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.batches.load_state_dict(json.loads(state["data"]))

    def run(self, profiler: torch.profiler.profile | None) -> None:
        steps = self.given.steps or math.inf
        if self.step >= steps:
            return
        since, began = self.step, time.perf_counter()
        for epoch in range(self.batches.epoch, self.given.epochs):
            for images, labels in self.batches:
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.optimizer.zero_grad()
                loss.backward()  # waits for the other ranks, which take as many steps as this one
                self.optimizer.step()
                self.step += 1
                if profiler:
                    profiler.step()
                over = self.step >= steps
                if over or self.step % self.given.every == 0:
                    mean_loss, asked = self.report(loss)
                    now = time.perf_counter()
                    self.rates.append((self.step - since) * self.given.batch * dist.get_world_size() / (now - began))
                    say(f"step {self.step} epoch {epoch} loss {mean_loss:.6f}, {self.rates[-1]:,.0f} images/s")
                    since, began = self.step, now
                    over = over or asked
                if over:
                    return self.save()
                if self.step % self.given.save == 0:
                    self.save()
        self.save()

    def report(self, loss: torch.Tensor) -> tuple[float, bool]:
        """The mean loss of all ranks, and whether one was asked to end: then all do, after the same step."""
        both = torch.stack([loss.detach(), torch.full_like(loss, self.asked_to_end)])
        dist.all_reduce(both)
        loss_sum, asked = both.tolist()
        return loss_sum / dist.get_world_size(), asked > 0


def say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


def make_profiler(logdir: Path) -> torch.profiler.profile:
    """Records three steps, after one that is skipped and one to warm up, and writes a file for TensorBoard."""
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(str(logdir)),
    )


def main(given: argparse.Namespace) -> None:
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))), "nccl"
        torch.cuda.set_device(device)
    if "RANK" in os.environ:  # torchrun started this process, and others
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())
    table = [f"{'pipeline':10} {'images/s, mean':>15} {'std. deviation':>15} {'waited for data':>16}"]
    for name in ("serial", "parallel") if given.compare else ("parallel",):
        training = Training(given, device, serial=name == "serial")
        if given.checkpoint and given.checkpoint.exists():
            training.load(given.checkpoint)
            say(f"resumed after step {training.step}")
        profiler = None
        if given.profile and dist.get_rank() == 0:
            profiler = make_profiler(given.profile / name)
            observe.tensorboard(given.profile, training.batches, name=name)  # rates, waits, pictures, the verdict
        with training.batches, profiler or nullcontext():
            training.run(profiler)
        rates = training.rates[given.warmup :]
        if len(rates) > 1:
            waited = observe.gather(training.batches.stats()).wait_share
            table.append(f"{name:10} {statistics.mean(rates):15,.0f} {statistics.stdev(rates):15,.0f} {waited:16.0%}")
        else:
            table.append(f"{name:10} too few steps for a mean: it takes {given.every * (given.warmup + 2)} in one run")
        say(training.batches.why())
    say("\n".join(table))
    dist.destroy_process_group()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument(
        "data", help="a folder of class folders, a .txt file of paths in such folders, or 'train-{0000..0147}.tar'"
    )
    words.add_argument("--classes", type=int, help="number of classes; needed with tar shards")
    words.add_argument("--model", default="small", help="'small', or a model of torchvision: resnet50 (default: small)")
    words.add_argument("--size", type=int, default=64, help="side of the crops in pixels; 224 for ImageNet (default: 64)")
    words.add_argument("--batch", type=int, default=16, help="images per rank and step (default: 16)")
    words.add_argument("--lr", type=float, default=0.02, help="learning rate (default: 0.02)")
    words.add_argument("--epochs", type=int, default=3, help="(default: 3)")
    words.add_argument("--steps", type=int, help="stop after this many steps, over all runs")
    words.add_argument("--every", type=int, default=2, metavar="STEPS", help="print loss and rate every STEPS steps (default: 2)")
    words.add_argument(
        "--warmup", type=int, default=2, metavar="LINES", help="first printed lines that the mean leaves out (default: 2)"
    )
    words.add_argument("--checkpoint", type=Path, help="save here, and resume from here")
    words.add_argument(
        "--save", type=int, default=1000, metavar="STEPS", help="save every STEPS steps (default: 1000), and at the end"
    )
    words.add_argument("--compare", action="store_true", help="train twice, with a serial and a parallel pipeline")
    words.add_argument("--profile", type=Path, metavar="LOGDIR", help="write a profile, rates and pictures for TensorBoard")
    given = words.parse_args()
    if given.compare and given.checkpoint:
        words.error("--compare trains two models and saves none: give it without --checkpoint")
    if ".tar" in given.data and not given.classes:
        words.error("tar shards hold the number of a class, not how many there are: give --classes, 1000 for ImageNet")
    main(given)
