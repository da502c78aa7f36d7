"""A trainer and workers on several machines, whose lines are cut, slow, or come late: the epoch is the same, and goes on."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.loader import Loader
from stoker.remote.curve_keys import make_keys, read_caller

from .hosts import Host, Network, network
from .serving import DEADLINE_S, executor_of, impatient, signal_process, until, workers_of
from .test_worker_faults import NAME, epoch, slow

__all__ = ["impatient", "network"]
#: a pipeline of larger rows, which a slow line takes long to carry
WIDE = "tests.remote.test_hosts:wide"


def widened(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "y": np.random.default_rng(int(sample["x"])).integers(0, 256, 20_000, np.uint8)}


def wide() -> Pipeline:
    return stoker.arrays(x=np.arange(320)).shuffle(seed=5).map(widened).batch(8)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No namespace outlives a test."""
    yield
    made = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    assert not [name for name in made if name.startswith(f"stoker-{os.getpid()}-")]


def local(pipeline: Pipeline) -> list[str]:
    with pipeline.loader(executor="inline") as loader:
        return epoch(loader)


def parcels_of(loader: Loader) -> int:
    return sum(worker.parcels for worker in executor_of(loader).remote_workers)


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
def test_machines_that_are_killed_cut_off_or_added_change_nothing(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = (network.host() for _ in range(3))
    with caplog.at_level(logging.INFO, "stoker"), network.loader(slow(), threads=0) as loader:
        killed, _ = (network.worker(host, loader, NAME, threads=2) for host in (first, second))
        until(lambda: workers_of(loader) == 2, "two workers")

        def add() -> None:
            network.worker(third, loader, NAME, threads=2)
            until(lambda: workers_of(loader) == 3, "a third")

        assert epoch(loader, {4: add, 8: killed.kill, 16: second.cut}) == local(slow())
        until(lambda: "lost its connection" in caplog.text, "the kill to be noticed")
        until(lambda: "no sign of life" in caplog.text, "the cut to be noticed")
        assert workers_of(loader) == 1 and parcels_of(loader) > 0


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
@pytest.mark.thorough
@pytest.mark.parametrize("threads", [0, 1])
def test_a_slow_line_changes_nothing(network: Network, threads: int, caplog: pytest.LogCaptureFixture) -> None:
    """One machine sends 30 KB per second, and a task gives 160: its workers are helped, or lost and back."""
    near, far = network.host(), network.host()
    far.slow("240kbit")
    with network.loader(wide(), threads=threads) as loader:
        for host in (near, far):
            network.worker(host, loader, WIDE)
        until(lambda: workers_of(loader) == 2, "two workers")
        assert epoch(loader) == local(wide())
        assert executor_of(loader).hedged > 0 or "no sign of life" in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
@pytest.mark.thorough
def test_a_trainer_with_nothing_but_a_slow_line_comes_to_an_end(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    far = network.host()
    far.slow("240kbit")
    with network.loader(wide(), threads=0) as loader:
        network.worker(far, loader, WIDE, threads=2)
        until(lambda: workers_of(loader) == 1, "a worker")
        assert epoch(loader) == local(wide())
        assert executor_of(loader).hedged > 0 or "no sign of life" in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
@pytest.mark.thorough
def test_workers_are_back_when_all_lines_were_cut_for_a_while(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    hosts = [network.host() for _ in range(3)]
    with caplog.at_level(logging.INFO, "stoker"), network.loader(slow(), threads=0) as loader:
        for host in hosts:
            network.worker(host, loader, NAME)
        until(lambda: workers_of(loader) == 3, "three workers")

        def cut() -> None:
            for host in hosts:
                host.cut()

        def mend() -> None:
            until(lambda: workers_of(loader) == 0, "all to be lost")
            for host in hosts:
                host.mend()
            until(lambda: workers_of(loader) == 3, "all to be back")
            before.append(parcels_of(loader))

        before: list[int] = []
        assert epoch(loader, {5: cut, 20: mend}) == local(slow())
        assert caplog.text.count("no sign of life") == 3
        assert parcels_of(loader) > before[0], "those who are back work"


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_to_machines_changes_nothing(network: Network, seed: int) -> None:
    """Eight things happen in an epoch, at batches and to machines that a seed chooses."""
    chance = random.Random(seed)
    hosts = [network.host() for _ in range(4)]
    with network.loader(slow(), threads=seed % 2) as loader:
        workers = {host: network.worker(host, loader, NAME, threads=2) for host in hosts[:3]}
        until(lambda: workers_of(loader) == 3, "three workers")

        def happens(host: Host, what: str) -> None:
            if what == "cut":
                host.cut()
            elif what == "mend":
                host.mend()
            elif what == "slow":
                host.slow("2mbit")
            elif what == "start":
                workers[host] = network.worker(host, loader, NAME, threads=2)
            elif host in workers:
                send = signal_process if chance.random() < 0.5 else subprocess.Popen.send_signal
                send(workers[host], getattr(signal, what))

        kinds = ["cut", "mend", "slow", "start", "SIGKILL", "SIGSTOP", "SIGCONT", "SIGTERM"]
        events = {at: partial(happens, chance.choice(hosts), chance.choice(kinds)) for at in chance.sample(range(50), 8)}
        assert epoch(loader, events) == local(slow())


@pytest.mark.faults
def test_a_machine_without_a_listed_key_gets_nothing(network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_keys(tmp_path / "foreign", ["worker"])
    honest, other = network.host(), network.host()
    unlisted = tmp_path / "foreign/worker.key"
    keys = json.loads(unlisted.read_text())
    unlisted.write_text(json.dumps({**keys, "listener": read_caller(network.keys / "worker.key").listener}))
    with caplog.at_level(logging.WARNING, "stoker"), network.loader(slow(), threads=0) as loader:
        stranger = network.worker(other, loader, NAME, keys=unlisted)
        until(lambda: "its key is not in the key file" in caplog.text, "the key to be noticed")
        network.worker(honest, loader, NAME, threads=2)
        until(lambda: workers_of(loader) == 1, "the honest one")
        assert epoch(loader) == local(slow())
        assert workers_of(loader) == 1
        stranger.kill()
        told, _ = stranger.communicate(timeout=DEADLINE_S)
        assert "does not know the key of this process" in told and "working for" not in told
