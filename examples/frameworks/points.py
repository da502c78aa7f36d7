"""What the examples of this folder share: points to classify, the command line, and a record of what was trained on."""

import argparse
import json
import os
from pathlib import Path

import numpy as np

import stoker

RANK = int(os.environ.get("RANK", "0"))


def make_points(count: int = 48) -> stoker.Pipeline:
    """Points of a plane, in two classes, in another order each epoch; `id` names them."""
    x = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    return stoker.arrays(x=x, y=(x[:, 0] * x[:, 1] > 0).astype(np.int64), id=np.arange(count)).shuffle(seed=7)


def arguments(description: str | None, **more: object) -> argparse.Namespace:
    """The words of the command; `more` are further options with their defaults."""
    words = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path, help="where checkpoints go, and a record of the points that were trained on")
    words.add_argument("--epochs", type=int, default=2)
    words.add_argument("--stop-after", type=int, help="steps after which to save and stop; the same command resumes there")
    for name, default in more.items():
        words.add_argument(f"--{name}", type=type(default), default=default)
    given = words.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    return given


class Record:
    """Writes down which points a process has trained on; counts steps, and says when to stop."""

    def __init__(self, folder: Path, stop_after: int | None, rank: int = RANK) -> None:
        self._path, self._stop_after, self._steps = folder / f"seen-{rank}.jsonl", stop_after, 0

    def __call__(self, epoch: int, ids: object) -> bool:
        """Note a step; whether it is time to save and stop."""
        with self._path.open("a") as file:
            print(json.dumps([epoch, np.asarray(ids).tolist()]), file=file)
        self._steps += 1
        return self._steps == self._stop_after
