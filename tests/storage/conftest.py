"""What the tests of storage share."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from stoker.storage.retry import Clock, Patience

from .server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A web server that does what it is told."""
    with Server() as running:
        yield running


@pytest.fixture
def quick() -> Patience:
    """Little patience: pauses of a millisecond, silence and slowness noticed after a fraction of a second."""
    return Patience(
        connect_s=2,
        silence_s=0.25,
        least_bytes_per_s=1000,
        rate_window_s=0.25,
        first_delay_s=0.001,
        longest_delay_s=0.002,
        longest_retry_after_s=0.05,
        budget_s=3,
    )


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """After each test this process has no more descriptors than before it."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


class FakeClock(Clock):
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float, stop: threading.Event) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def chance(self) -> float:
        return 1.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
