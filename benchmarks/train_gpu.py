"""How much of a GPU's speed is left when Stoker feeds it?

ResNet-18 and ResNet-50 train in bf16, channels last, on one batch that stays on the GPU, and in turn on what Stoker makes of JPEG
files, and of tar shards with a seek index of every JPEG. The figure is the share of the first rate. `delivered` is what reaches
the GPU without training. ``--executors default,threads=16,threads=14,feeder`` compares executors: the loader's own choice, a
number of threads, or one process with a thread for each core. With ``--scaling`` the loader and the kernel alone are measured at
several numbers of threads before that (as in `scaling.py`). It needs only torch and NumPy, and Pillow if pictures must be made.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import data
import scaling
import stoker
from measure import SEED, BenchmarkParser, available, compare, median, note, ratio, report, usable_cores
from ours import CLASSES, OPS, SIDE, pack_indexed

MODELS = "resnet18,resnet50"
#: mean and standard deviation of ImageNet's channels, of 255
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
#: the share of the rate on synthetic data that is to be left
ASKED = {"resnet18": 0.95}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    data.add_arguments(parser)
    parser.add_argument("--models", help=f"which to train, or 'none' ({MODELS}; with --quick, the first)")
    parser.add_argument("--sources", default="files,indexed", help="what to read (files,indexed)")
    parser.add_argument("--executors", default="default", help="who works: default, threads=N, processes=N, feeder (default)")
    parser.amount("--batch", 256, 8, "images in a batch")
    parser.amount("--steps", 60, 1, "batches that are timed in a round")
    parser.amount("--warm-up", 20, 1, "batches before the clock starts, in every round")
    parser.amount("--settle-s", 4.0, 0.0, "and at least so many seconds, because workers may still be starting")
    parser.add_argument("--ahead", type=int, help="batches that the loader prepares ahead (default: its own choice)")
    parser.add_argument("--device", help="where to train (default: cuda; with --quick, the CPU where there is no GPU)")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--scaling", action="store_true", help="first, images/s without training at several numbers of threads")
    parser.add_argument("--scaling-threads", default="1,2,4,8,16", help="which (1,2,4,8,16)")
    options = parser.parse_args()
    options.models = options.models or (MODELS.split(",")[0] if options.quick else MODELS)
    options.width = 16 if options.quick else 64  # channels of the first stage; with 8, torch 2.13 crashes on the CPU
    return options


# ---- what feeds the model ----------------------------------------------------------------------------------------------


class Feed(NamedTuple):
    """Batches of (images, labels) on the device without end, and what limits them."""

    batches: Iterator[Any]
    why: Callable[[], str | None]


@contextmanager
def synthetic(options: argparse.Namespace) -> Iterator[Feed]:
    """The same batch again and again, on the device."""
    import torch

    shape = (options.batch, SIDE, SIDE, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=options.device)
    labels = torch.randint(0, CLASSES, (options.batch,), device=options.device)
    yield Feed(iter(lambda: (images, labels), None), lambda: None)


@contextmanager
def fed(pipeline: stoker.Pipeline, executor: str, options: argparse.Namespace) -> Iterator[Feed]:
    """Stoker's loader."""
    device = None if options.device == "cpu" else options.device
    with pipeline.loader(**workers_of(executor), ahead=options.ahead, format="torch", device=device) as batches:
        yield Feed(iter(batches), batches.why)


def workers_of(executor: str) -> dict[str, int]:
    """The options of a loader that say who works."""
    if executor == "default":
        return {}
    if executor == "feeder":
        return {"processes": 1, "threads": usable_cores()}
    name, _, count = executor.partition("=")
    if name not in ("threads", "processes") or not count.isdigit():
        raise SystemExit(f"--executors: {executor!r} is none of default, feeder, threads=N, processes=N")
    return {name: int(count)}


def label_of(path: str) -> int:
    """Some class for a file."""
    return crc32(str(path).encode()) % CLASSES


def pipelines(folder: Path, shards: str | None, batch: int) -> dict[str, stoker.Pipeline]:
    """What Stoker reads: by name, images and labels without end."""
    files = stoker.files(folder, labels=label_of).shuffle(seed=SEED).repeat()
    found = {"files": files.image("image", *OPS).select("image", "label").batch(batch)}
    if shards is not None:
        packed = stoker.tar(shards).shuffle(seed=SEED).repeat()
        found["indexed"] = packed.image("jpg", *OPS).select("jpg", "cls").batch(batch)
    return found


# ---- training ----------------------------------------------------------------------------------------------------------


def make_step(name: str, options: argparse.Namespace) -> Callable[[Any, Any], None]:
    """One step of training."""
    import torch
    from torch.nn.functional import cross_entropy

    from resnet import resnet

    torch.backends.cudnn.benchmark = True
    torch.manual_seed(SEED)
    device = torch.device(options.device)
    model: Any = resnet(name, CLASSES, options.width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    forward = torch.compile(model) if options.compile else model
    on_gpu = device.type != "cpu"
    dtype = torch.bfloat16 if on_gpu else torch.float32  # bf16 holds every integer up to 256: pixels lose nothing
    mean = torch.tensor(MEAN, device=device, dtype=dtype).view(1, 3, 1, 1)
    deviation = torch.tensor(DEVIATION, device=device, dtype=dtype).view(1, 3, 1, 1)

    def step(images: Any, labels: Any) -> None:
        x = (images.permute(0, 3, 1, 2).to(dtype) - mean) / deviation
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = cross_entropy(forward(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def rate_of(feed: Feed, step: Callable[[Any, Any], None], options: argparse.Namespace) -> float:
    """Images/s, the warm-up not counted. It also uses up what the loader has prepared before anybody trained."""
    settled, steps = time.perf_counter() + options.settle_s, 0
    while steps < options.warm_up or time.perf_counter() < settled:
        step(*next(feed.batches))
        steps += 1
        if not steps % options.warm_up:
            finish(options.device)  # else a loop that only launches would be seconds ahead of the device
    finish(options.device)
    start = time.perf_counter()
    for _ in range(options.steps):
        step(*next(feed.batches))
    finish(options.device)
    return float(options.steps * options.batch / (time.perf_counter() - start))


def finish(device: str) -> None:
    """Wait until the device has done all that it was told."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def only_look(images: Any, labels: Any) -> None:
    """What `delivered` does instead of a step: nothing."""


def in_turn(step: Callable[[Any, Any], None], feeds: dict[str, Any], options: argparse.Namespace, what: str) -> dict[str, Any]:
    """Rounds in which every feed has its turn, alone: a loader lives as long as its turn. Images/s, and the last verdicts."""
    rates: dict[str, list[float]] = {name: [] for name in feeds}
    why: dict[str, str] = {}
    for number in range(options.rounds):
        for name in list(feeds)[:: -1 if number % 2 else 1]:
            with feeds[name]() as feed:
                rates[name].append(rate_of(feed, step, options))
                if (verdict := feed.why()) is not None:
                    why[name] = verdict
            note(f"round {number + 1}/{options.rounds}  {what:10} {name:20} {rates[name][-1]:12,.0f}/s")
    return {"images_per_s": {name: median(found) for name, found in rates.items()}, "runs": rates, "why": why}


def train(name: str, feeds: dict[str, Any], options: argparse.Namespace, step: Callable[[Any, Any], None]) -> dict[str, Any]:
    """One model on every feed."""
    found = in_turn(step, {"synthetic": partial(synthetic, options), **feeds}, options, name)
    base = found["runs"]["synthetic"]
    shares = {feed: ratio(rates, base) for feed, rates in found["runs"].items() if feed != "synthetic"}
    return {**found, "of_synthetic": shares}


def targets(models: dict[str, Any]) -> dict[str, tuple[float, float, bool]]:
    """What was asked for, of loaders that choose by themselves: (got, asked, met)."""
    return {
        f"{name} from {feed}, of synthetic": (share, ASKED[name], share >= ASKED[name])
        for name in ASKED.keys() & models.keys()
        for feed, share in models[name]["of_synthetic"].items()
        if " " not in feed
    }


def measure_scaling(options: argparse.Namespace, folder: Path, shards: str | None) -> dict[str, Any]:
    """The loader and the kernel alone, in processes of their own, without a GPU."""
    counts = scaling.usable(options.scaling_threads)
    taking_part = scaling.sources(folder, shards)
    result = compare(scaling.entries(taking_part, counts, options.batch, 1 if options.quick else 4), options.rounds)
    return scaling.figures(result, list(taking_part), counts)


def choose_device(options: argparse.Namespace) -> str | None:
    """The device that was asked for or is there; None, with a note, where a run would take hours."""
    if not available("train_gpu", ("torch",)):
        return None
    import torch

    if options.device is not None:
        return str(options.device)
    if torch.cuda.is_available():
        return "cuda"
    if options.quick:
        return "cpu"
    note("train_gpu: left out, there is no GPU; --device cpu trains on the CPU all the same")
    return None


def describe(device: str | None) -> dict[str, Any]:
    """With what this was trained."""
    if device is None:
        return {"device": None}
    import torch

    name = "cpu" if device == "cpu" else torch.cuda.get_device_name(device)
    return {"device": name, "torch": torch.__version__}


def main() -> None:
    options = parse()
    options.device = choose_device(options)
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    note(f"{len(paths)} files, executors {options.executors}, device {options.device}")
    figures: dict[str, Any] = {"delivered": {}, "models": {}}
    with tempfile.TemporaryDirectory() as packed:
        plain = pack_indexed(folder, Path(packed) / "plain") if options.scaling else None
        shards = pack_indexed(folder, Path(packed) / "labelled", labels=True)
        if options.scaling:
            figures["scaling"] = measure_scaling(options, folder, plain)
        if options.device is not None:
            feeds = {
                name if executor == "default" else f"{name} {executor}": partial(fed, pipeline, executor, options)
                for name, pipeline in pipelines(folder, shards, options.batch).items()
                for executor in options.executors.split(",")
                if name in options.sources.split(",")
            }
            figures["delivered"] = in_turn(only_look, feeds, options, "delivered")
            for name in options.models.split(",") if options.models != "none" else []:
                figures["models"][name] = train(name, feeds, options, make_step(name, options))
    report(
        "train_gpu",
        options,
        images=len(paths),
        executors=options.executors,
        batch=options.batch,
        compiled=options.compile,
        **describe(options.device),
        targets=targets(figures["models"]),
        **figures,
    )


if __name__ == "__main__":
    main()
