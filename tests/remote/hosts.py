"""Several machines on one: network namespaces, each with a line to that of the trainer. They are gone after the block.

Needs root, `ip` and `tc` (iproute2); tests that want them are skipped by name where that is not given.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stoker import Pipeline
from stoker.loader import Loader
from stoker.remote.curve_keys import make_keys

from .serving import DEADLINE_S, ended, start

_CLONE_NEWNET = 0x40000000
_numbers = count()


class Host:
    """A machine for workers. Its line to the trainer is `eth0`; the trainer is at `gateway`."""

    def __init__(self, name: str, gateway: str) -> None:
        self.name, self.gateway = name, gateway

    def cut(self) -> None:
        """Pull the plug: nothing comes through any more, and nobody is told."""
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", "eth0", "up")

    def slow(self, rate: str) -> None:
        """What leaves it goes as slowly as that, as in `2mbit`."""
        _run(
            "tc",
            "-n",
            self.name,
            "qdisc",
            "replace",
            "dev",
            "eth0",
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "16kb",
            "latency",
            "2s",
        )


class Network:
    """The trainer's machine, and others."""

    def __init__(self, folder: Path) -> None:
        self.keys, self._open, self._lines = folder, ExitStack(), count(1)
        make_keys(folder, ["worker"])
        self._trainer = self._machine()

    def host(self) -> Host:
        """One more machine."""
        number = next(self._lines)
        host = Host(self._machine(), f"10.0.{number}.1")
        _ip("link", "add", f"to{number}", "netns", self._trainer, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        for namespace, device, address in ((self._trainer, f"to{number}", host.gateway), (host.name, "eth0", f"10.0.{number}.2")):
            _ip("-n", namespace, "address", "add", f"{address}/30", "dev", device)
            _ip("-n", namespace, "link", "set", device, "up")
        return host

    def _machine(self) -> str:
        name = f"stoker-{os.getpid()}-{next(_numbers)}"
        _ip("netns", "add", name)
        self._open.callback(_ip, "netns", "delete", name)
        return name

    @contextmanager
    def loader(self, pipeline: Pipeline, **options: Any) -> Iterator[Loader]:
        """A trainer, which listens on its machine; it needs keys there."""
        with _inside(self._trainer):
            loader = pipeline.loader(workers_at="tcp://0.0.0.0:0", worker_keys=self.keys / "trainer.key", **options)
        with loader:
            yield loader

    def worker(self, host: Host, loader: Loader, name: str, threads: int = 1, keys: Path | None = None) -> subprocess.Popen[str]:
        """`stoker worker` on a machine; gone at the end."""
        address = f"tcp://{host.gateway}:{str(loader.workers_at).rpartition(':')[2]}"
        options = ("--keys", str(keys or self.keys / "worker.key"))
        within = ("ip", "netns", "exec", host.name)
        return self._open.enter_context(ended(start(loader, name, *options, threads=threads, at=address, before=within)))

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if why := _refusal():
        pytest.skip(f"no network namespaces here: {why}")
    made = Network(tmp_path / "keys")
    try:
        yield made
    finally:
        made.close()


@cache
def _refusal() -> str:
    """Why there can be no namespaces; "": there can."""
    name = f"stoker-{os.getpid()}-probe"
    try:
        _ip("netns", "add", name)
    except (OSError, subprocess.SubprocessError) as error:
        return str(getattr(error, "stderr", None) or error).strip()
    try:
        _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "other")
        Host(name, "").slow("1mbit")
    except (OSError, subprocess.SubprocessError) as error:
        return str(getattr(error, "stderr", None) or error).strip()
    finally:
        _ip("netns", "delete", name)
    return ""


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """This thread, and those it starts, open sockets there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{name}", "rb") as there:
        _enter(libc, there.fileno())
        try:
            yield
        finally:
            _enter(libc, home.fileno())


def _enter(libc: Any, descriptor: int) -> None:
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
