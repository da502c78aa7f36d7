"""How long until the first batch?

From the start of the process, imports included, and from `loader()` alone. Each time a new Python, running the few lines that a
user would write; beside it torch's DataLoader with two workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import data
from measure import available, make_parser, median, note, report

STOKER = """
import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

files = stoker.files(folder, labels=None)
pipeline = files.shuffle(seed=7).image("image", RandomResizedCrop(224), HorizontalFlip()).batch(size)
ready = time.perf_counter()
with pipeline.loader() as batches:
    next(iter(batches))
    done = time.perf_counter()
"""
TORCH = """
from pathlib import Path
from peers.torch_images import image_loader, {decode}

loader = image_loader(Path(folder), size, 2, {decode})
ready = time.perf_counter()
next(iter(loader))
done = time.perf_counter()
"""
BEFORE = "import sys, time; folder, size = sys.argv[1], int(sys.argv[2])"
#: perf_counter is one clock for all processes of the machine
AFTER = "import json; print(json.dumps([ready, done]), flush=True)"
SCRIPTS = {
    "stoker": (STOKER, ()),
    "torch-pillow": (TORCH.format(decode="with_pillow"), ("torch", "PIL")),
    "torch-opencv": (TORCH.format(decode="with_opencv"), ("torch", "simplejpeg", "cv2")),
}
PEERS = tuple(SCRIPTS)[1:]


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--peers", default=",".join(PEERS), help="which to run, or 'none' (default: all that are installed)")
    options = parser.parse_args()
    options.rounds = min(options.rounds, 2) if options.quick else options.rounds
    return options


def first_batch(script: str, folder: Path, size: int) -> tuple[float, float]:
    """Seconds from the start of the process, and from the start of the loader."""
    here = str(Path(__file__).resolve().parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]])}
    command = [sys.executable, "-c", f"{BEFORE}\n{script}\n{AFTER}", str(folder), str(size)]
    start = time.perf_counter()
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    ready, done = json.loads(out)
    return done - start, done - ready


def chosen(options: argparse.Namespace) -> dict[str, str]:
    """The scripts that can run here."""
    names = ["stoker", *(options.peers.split(",") if options.peers != "none" else [])]
    return {name: SCRIPTS[name][0] for name in names if available(name, SCRIPTS[name][1])}


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    data.warm(paths)
    size = min(256, len(paths))
    scripts = chosen(options)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in scripts}
    for number in range(options.rounds):
        for name, script in scripts.items():
            times[name].append(first_batch(script, folder, size))
            note(f"round {number + 1}/{options.rounds}  {name:14} {times[name][-1][0]:.3f} s, {times[name][-1][1]:.3f} s")
    report(
        "first_batch",
        options,
        images=len(paths),
        batch=size,
        from_process_start_s={name: median(a for a, _ in pairs) for name, pairs in times.items()},
        from_loader_s={name: median(b for _, b in pairs) for name, pairs in times.items()},
    )


if __name__ == "__main__":
    main()
