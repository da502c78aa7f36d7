"""What a scenario of the fault lab uses within its own process: batches as numbers and hashes, words to the lab, a last account.

`tests/system/fault_lab.py` starts such processes, and judges them.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import Pipeline
from stoker.errors import StokerError

from .lab_oracle import digest

DATA = Path(os.environ.get("FAULT_LAB_DATA", "."))


# ---- what is loaded ----------------------------------------------------------------------------------------------------------


def turned(data: Any) -> bytes:
    """A function that holds the GIL for a while, twice done nothing."""
    return bytes(data)[::-1][::-1]


def as_array(data: Any) -> Any:
    return np.frombuffer(bytes(data), np.uint8).copy()


#: pipelines over the lab's data set, by what their batches are made of
KINDS: dict[str, Callable[[Pipeline], Pipeline]] = {
    "records": lambda samples: samples,
    "function": lambda samples: samples.map(bin=turned),
    "arrays": lambda samples: samples.map(bin=as_array),
    "filter": lambda samples: samples.filter(lambda sample: True),
}


def pipeline(kind: str = "function", batch: int = 10, seed: int = 3) -> Pipeline:
    """Shuffled samples of the lab's data set."""
    samples = KINDS[kind](stoker.tar(str(DATA / "*.tar")).shuffle(seed=seed))
    return samples.batch(batch, drop_last=False, pad={"bin": list})


# ---- what came ---------------------------------------------------------------------------------------------------------------


def contents(batch: Any) -> list[tuple[int, str]]:
    """(number, hash of its bytes) of every sample of a batch."""
    return [
        (int(number), digest(data.tobytes() if isinstance(data, np.ndarray) else bytes(data)))
        for number, data in zip(batch["cls"], batch["bin"])
    ]


def taken(batches: Any) -> list[tuple[int, str]]:
    """All of an epoch."""
    return [row for batch in batches for row in contents(batch)]


def account_of(error: BaseException) -> dict[str, Any]:
    """What an error says and carries."""
    fields = ("key", "origin", "position", "shard", "offset")
    return {
        "type": type(error).__name__,
        "ours": isinstance(error, StokerError),
        "text": str(error),
        "cause": None if error.__cause__ is None else type(error.__cause__).__name__,
        **{name: getattr(error, name) for name in fields if hasattr(error, name)},
    }


# ---- words to the lab --------------------------------------------------------------------------------------------------------


def say(word: str, **values: Any) -> None:
    """Tell the lab, which waits for such words."""
    os.write(int(os.environ["FAULT_LAB_WORDS"]), (json.dumps([word, values]) + "\n").encode())


def in_use() -> dict[str, int]:
    """Descriptors, threads and children of this process, those of the start left out."""
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "children": len(children.read_text().split()) if children.exists() else 0,
    }


BASELINE = in_use()


def leave(deadline_s: float = 20.0, **values: Any) -> None:
    """Give the last account: what the scenario found, and what it still uses beyond what it began with (H4)."""
    deadline = time.monotonic() + deadline_s
    while True:
        gc.collect()
        left = {name: count - BASELINE[name] for name, count in in_use().items() if count > BASELINE[name]}
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    if left.get("descriptors"):
        left["open"] = sorted(_target(name) for name in os.listdir("/proc/self/fd"))  # type: ignore[assignment]
    say("account", left=left, **values)


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return ""


def once(name: str) -> bool:
    """True for the first process of the scenario that asks, whichever that is."""
    try:
        os.close(os.open(Path(os.environ["FAULT_LAB_NOTES"]) / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


# ---- who dies ----------------------------------------------------------------------------------------------------------------


def workers() -> list[int]:
    """The worker processes of this one that are alive, oldest first."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(stat[1]) == os.getpid() and stat[0] not in "ZX":
                found.append((int(stat[19]), int(entry)))
    return [pid for _, pid in sorted(found)]


class Killer:
    """Sends signals to random workers, from a seed."""

    def __init__(self, seed: int, signals: tuple[int, ...] = (signal.SIGKILL,)) -> None:
        self.chance = random.Random(seed)
        self.signals = signals
        self.sent = 0

    def strike(self) -> bool:
        """Hit one worker, if there is one; False where there was none."""
        if not (alive := workers()):
            return False
        victim = self.chance.choice(alive)
        try:
            for sent in self.signals:
                os.kill(victim, sent)
                if len(self.signals) > 1:
                    time.sleep(self.chance.random() * 0.02)
        except ProcessLookupError:
            return False
        self.sent += 1
        return True

    def harass(self, batches: Any, strikes: int, of: int) -> Iterator[Any]:
        """The batches of an epoch of `of`; meanwhile so many strikes, each at a random time after a random batch."""
        at = sorted(self.chance.randrange(of) for _ in range(strikes))
        for number, batch in enumerate(batches):
            yield batch
            while at and at[0] <= number:
                at.pop(0)
                time.sleep(self.chance.random() * 0.01)
                self.strike()
