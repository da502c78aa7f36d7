"""What many tests need: pictures as bytes, the values of a chunk's rows, and a clock of their own."""

from __future__ import annotations

import io
import pickle
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stoker.source.chunk import Column
from stoker.source.source import Rows, Source
from stoker.storage.scratch import Scratch

_T = TypeVar("_T")

#: how long a test waits for what comes soon on an idle machine
DEADLINE_S = 60.0
#: what chooses a SIMD level, and says which it got
Simd = Callable[[int], int]

#: False in a free-threaded Python, which frees memory at other times
GIL = bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def until(happens: Callable[[], _T], name: str = "it", within_s: float = DEADLINE_S) -> _T:
    """Wait for something, and return it; fails where it does not come."""
    deadline = time.monotonic() + within_s
    while not (found := happens()):
        assert time.monotonic() < deadline, f"waited {within_s} s for {name}"
        time.sleep(0.005)
    return found


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` gave or raised in each of `count` threads that began at the same time; it is given their numbers."""
    results: list[Any] = [None] * count
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait(DEADLINE_S)
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return results


def process_id(pid: int) -> str:
    """A process by its number and when it began: a busy machine soon gives the number alone to another. "": it has ended."""
    try:
        state, *about = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else f"{pid}@{about[18]}"


def process_ended(process: str) -> bool:
    """Whether a process has ended, by its `process_id`."""
    return not process or process_id(int(process.partition("@")[0])) != process


class Passing:
    """Time that passes only when a task takes some: a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now, self._lock = 0.0, threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return 0.0

    def process_time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


def picture(width: int, height: int, *, seed: int = 0, channels: int = 3) -> NDArray[np.uint8]:
    """Gradients and noise, so that every pixel says where it is and no two seeds look alike."""
    rng = np.random.default_rng([seed, width, height])
    y, x = np.mgrid[0:height, 0:width]
    ramps = [255 * x / max(1, width - 1), 255 * y / max(1, height - 1), 255 * (x + y) / max(1, width + height - 2)]
    pixels = np.stack(ramps[:channels], axis=-1) + rng.normal(0, 12, (height, width, channels))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def image_bytes(width: int, height: int, *, seed: int = 0, mode: str = "RGB", format: str = "JPEG", **save: Any) -> bytes:
    """A picture as a file's bytes; `save` goes to Pillow (``quality=90``, ``progressive=True``, ``subsampling=0``)."""
    image = Image.fromarray(picture(width, height, seed=seed)).convert(mode)
    out = io.BytesIO()
    image.save(out, format, **save)
    return out.getvalue()


def jpeg_bytes(width: int = 120, height: int = 90, *, seed: int = 0, mode: str = "RGB", **save: Any) -> bytes:
    """A picture as a JPEG's bytes."""
    return image_bytes(width, height, seed=seed, mode=mode, format="JPEG", **{"quality": 90, **save})


def read(source: Source, indices: Any = None, wanted: Any = None, **out: NDArray[Any]) -> Rows:
    """Read some samples (all, unless told which) with a scratch of their own."""
    which = np.arange(len(source)) if indices is None else np.asarray(indices, np.int64)
    return source.read(which, tuple(source.fields) if wanted is None else wanted, out, Scratch())


def value(column: Column, row: int) -> Any:
    """A row's value in a form that ``==`` compares."""
    part: Any = column[row]
    return part.tolist() if isinstance(part, (np.ndarray, np.generic)) else part


def values(rows: Rows, row: int) -> dict[str, Any]:
    """A sample as a dict."""
    return {name: value(column, row) for name, column in rows.columns.items()}


def sent(thing: Any) -> tuple[Any, int]:
    """A value as another process gets it, over memory that cannot be written to, and how many bytes of it cannot be shared."""
    buffers: list[pickle.PickleBuffer] = []
    inner = pickle.dumps(thing, 5, buffer_callback=buffers.append)
    return pickle.loads(inner, buffers=[bytes(buffer.raw()) for buffer in buffers]), len(inner)  # noqa: S301 - its own bytes
