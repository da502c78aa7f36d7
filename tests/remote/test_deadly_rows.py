"""A sample that ends the process which works on it: it ends workers elsewhere, and not the training program."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import WorkerError
from stoker.loader import Loader

from . import serving as served
from .serving import HERE, impatient, start, until, workers_of

__all__ = ["impatient"]
NAME = "tests.remote.test_deadly_rows:deadly"


def ends(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 17:
        if os.environ.get("TEST_AT_HOME") == str(os.getpid()):
            raise RuntimeError("never at home")
        os._exit(3)
    return sample


def deadly() -> Pipeline:
    return stoker.arrays(x=np.arange(40)).map(ends).batch(8)


class Supervisor:
    """Starts a worker again whenever one has ended, as systemd or Kubernetes does."""

    def __init__(self, loader: Loader, workers: int) -> None:
        self._loader, self._stop = loader, threading.Event()
        self.started = 0
        self._running: list[subprocess.Popen[str]] = [self._start() for _ in range(workers)]
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _start(self) -> subprocess.Popen[str]:
        self.started += 1
        return start(self._loader, NAME)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._running = [each if each.poll() is None else self._start() for each in self._running]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(served.DEADLINE_S)
        for each in self._running:
            each.kill()
            each.communicate(timeout=served.DEADLINE_S)


@pytest.mark.faults
@pytest.mark.thorough
@pytest.mark.usefixtures("impatient")
def test_a_sample_that_ends_its_workers_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AT_HOME", str(os.getpid()))
    with deadly().loader(threads=0, workers_at=HERE) as loader:
        crew = Supervisor(loader, 3)
        try:
            until(lambda: workers_of(loader) == 3, "three workers")
            with pytest.raises(WorkerError, match="17"):
                list(loader)
            assert crew.started <= 3 + 8
        finally:
            crew.close()
