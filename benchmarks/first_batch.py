"""How long until the first batch, and until the second?

First: from the start of the process, including imports, and from `loader()` alone. Second: if the size of a field is known only
when it is made (`decode`, torchvision's transforms in `map`), so that the distance to look ahead is unknown. Each time a new
Python runs the few lines that a user would write; compared with torch's DataLoader with two workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import data
from measure import BenchmarkParser, PeakMemory, available, median, note, ratio, report

STOKER = """
import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

files = stoker.files(folder, labels=None)
pipeline = files.shuffle(seed=7).image("image", RandomResizedCrop(224), HorizontalFlip()).batch(size)
ready = time.perf_counter()
batches = pipeline.loader()
"""
TORCH = """
from pathlib import Path
from peers.torch_images import image_loader, {decode}

loader = image_loader(Path(folder), size, 2, {decode})
ready = time.perf_counter()
batches = loader
"""
#: fields whose size is not known beforehand, beside a label, whose size is
DECODE = """
import stoker

files = stoker.files(folder, labels=lambda path: 0)
pipeline = files.repeat(passes).decode("image").batch(size)
ready = time.perf_counter()
batches = pipeline.loader({options})
"""
COMPOSE = """
from peers.torchvision_images import transforms
v2 = transforms()
import torch
compose = v2.Compose([
    v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)
])
"""
STOKER_COMPOSE = f"""
import stoker
{COMPOSE}
files = stoker.files(folder, labels=lambda path: 0)
pipeline = files.repeat(passes).decode("image", format="pil").map(image=compose).batch(size)
ready = time.perf_counter()
batches = pipeline.loader(format="torch"{{options}})
"""
TORCH_COMPOSE = f"""
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from data import paths_of
{COMPOSE}
paths = paths_of(__import__("pathlib").Path(folder)) * passes

class Images(Dataset):
    def __len__(self):
        return len(paths)

    def __getitem__(self, index):
        with Image.open(paths[index]) as image:
            return compose(image.convert("RGB")), 0

ready = time.perf_counter()
batches = DataLoader(Images(), size, num_workers=2, drop_last=True)
"""
BEFORE = "import sys, time; folder, size, count, passes = sys.argv[1], *map(int, sys.argv[2:])"
#: perf_counter is one clock for all processes of the machine
AFTER = """
import json
times = []
for batch in batches:
    times.append(time.perf_counter())
    if len(times) == count:
        break
if hasattr(batches, "close"):
    batches.close()
print(json.dumps([ready, times]), flush=True)
"""
FIRST = {
    "stoker": (STOKER, ()),
    "torch-pillow": (TORCH.format(decode="with_pillow"), ("torch", "PIL")),
    "torch-opencv": (TORCH.format(decode="with_opencv"), ("torch", "simplejpeg", "cv2")),
}
SECOND = {
    "decode": (DECODE.format(options=""), ()),
    "decode, ahead=4": (DECODE.format(options="ahead=4"), ()),
    "compose": (STOKER_COMPOSE.format(options=""), ("torch", "torchvision")),
    "compose, ahead=4": (STOKER_COMPOSE.format(options=", ahead=4"), ("torch", "torchvision")),
    "compose, torch": (TORCH_COMPOSE, ("torch", "torchvision")),
}
PEERS = tuple(FIRST)[1:]
#: passes over the pictures in the first epoch of SECOND, and the rows of its batches
PASSES, SIZE = 4, 32


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a script: seconds from the start of the process to its loader, from there to each batch, and peak memory."""

    until_ready_s: float
    batches_s: list[float]
    peak: int | None


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.peers(PEERS)
    return parser.parse_args()


def run(script: str, folder: Path, size: int, count: int, passes: int) -> Run:
    """Take `count` batches of `size` rows."""
    here = str(Path(__file__).resolve().parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]])}
    words = [str(folder), str(size), str(count), str(passes)]
    start = time.perf_counter()
    command = [sys.executable, "-c", f"{BEFORE}\n{script}\n{AFTER}", *words]
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        PeakMemory(process.pid) as memory,
    ):
        out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a script ended with {process.returncode}")
    ready, times = json.loads(out)
    return Run(ready - start, [at - ready for at in times], memory.peak)


def take_turns(scripts: dict[str, str], rounds: int, *arguments: object) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in scripts}
    for number in range(rounds):
        for name, script in list(scripts.items())[:: -1 if number % 2 else 1]:
            done = run(script, *arguments)  # type: ignore[arg-type]
            runs[name].append(done)
            told = ", ".join(f"{seconds:.3f}" for seconds in [*done.batches_s[:2], *done.batches_s[2:][-1:]])
            note(f"round {number + 1}/{rounds}  {name:18} ready at {done.until_ready_s:.3f} s; batches after {told} s")
    return runs


def chosen(scripts: dict[str, tuple[str, tuple[str, ...]]], names: list[str]) -> dict[str, str]:
    """The scripts that can run here."""
    return {name: scripts[name][0] for name in names if available(name, scripts[name][1])}


def second_figures(runs: dict[str, list[Run]]) -> dict[str, object]:
    """What is told of the second batch: by name, and what was asked for (got, wanted, met)."""
    figures = {
        name: {
            "first_s": median(done.batches_s[0] for done in each),
            "second_s": median(done.batches_s[1] for done in each),
            "epoch_s": median(done.batches_s[-1] for done in each),
            "peak_mb": median((done.peak or 0) / 1e6 for done in each),
        }
        for name, each in runs.items()
    }
    targets = {}
    for name in ("decode", "compose"):
        if name in runs:
            later = ratio([done.batches_s[1] for done in runs[name]], [done.batches_s[0] for done in runs[name]])
            targets[f"{name}: second batch over first"] = (later, 2.0, later <= 2.0)
            memory = ratio([done.peak or 1 for done in runs[name]], [done.peak or 1 for done in runs[f"{name}, ahead=4"]])
            targets[f"{name}: peak memory over ahead=4"] = (memory, 1.25, memory <= 1.25)
    if "compose, torch" in runs:
        faster = ratio(*([done.batches_s[-1] for done in runs[name]] for name in ("compose, torch", "compose")))
        targets["compose: first epoch faster than torch by"] = (faster, 1.0, faster >= 1.0)
    return {"second": figures, "targets": targets}


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    size = min(256, len(paths))
    first = take_turns(
        chosen(FIRST, ["stoker", *options.peers]),
        options.rounds,
        folder,
        size,
        1,
        1,
    )
    names = [name for name in SECOND if options.peers or not name.startswith("compose")]
    rows = min(SIZE, max(1, len(paths) // 4))
    passes = 1 if options.quick else PASSES
    second = take_turns(chosen(SECOND, names), options.rounds, folder, rows, len(paths) * passes // rows, passes)
    report(
        "first_batch",
        options,
        images=len(paths),
        batch=size,
        from_process_start_s={name: median(r.until_ready_s + r.batches_s[0] for r in each) for name, each in first.items()},
        from_loader_s={name: median(r.batches_s[0] for r in each) for name, each in first.items()},
        **second_figures(second),
    )


if __name__ == "__main__":
    main()
