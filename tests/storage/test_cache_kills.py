"""Processes that share a cache and are killed: at every instruction that changes the folder, and at random."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.storage.cache import Cache, room_for
from stoker.storage.http import HttpRemote
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from ..support import until
from .conftest import fork
from .server import Server
from .test_cache import FakeBlob, bytes_in, content, folder_of, parts_in, read, units_in

SIZE = 200_000
LIMIT = room_for([SIZE] * 3)


def kill_at(call: int) -> None:
    """From now on this process dies at its `call`-th change of a file."""
    left = call

    def counted(real: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return wrapper

    for owner, names in [
        (os, ["open", "close", "pwrite", "ftruncate", "fsync", "utime", "posix_fallocate", "write"]),
        (Path, ["rename", "unlink", "mkdir"]),
        (fcntl, ["flock"]),
    ]:
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))


def test_a_kill_at_any_change_leaves_nothing_wrong(tmp_path: Path) -> None:
    """Ten units through room for three: with claims, evictions and publications, each killed at each of its steps."""
    folder = tmp_path / "cache"
    shards = {str(number): content(number, SIZE) for number in range(5)}

    def work(call: int) -> Callable[[], None]:
        def run() -> None:
            kill_at(call)
            cache = Cache(folder, LIMIT)
            for name in "01234":
                assert read(cache.wrap(FakeBlob(name, shards[name])), 0, SIZE) == shards[name]

        return run

    for call in range(1000):
        status = os.waitpid(fork(work(call)), 0)[1]
        if os.path.isdir(folder):
            assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= LIMIT
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        cache = Cache(folder, LIMIT)
        for name in ("2", "0"):
            assert read(cache.wrap(FakeBlob(name, shards[name])), 0, SIZE) == shards[name]
        assert cache.counts().past == 0 and parts_in(cache) == []
        books = json.loads((folder_of(cache) / "books").read_bytes())
        assert books["total"] == sum(path.stat().st_size for path in units_in(cache)) and books["parts"] == {}
        cache.close()
    assert call > 60, "there were that many steps to die at"


@pytest.mark.parametrize("block", [None, "64KiB"])
def test_three_processes_of_which_one_is_killed_again_and_again(block: str | None, tmp_path: Path, server: Server) -> None:
    shards = {f"/{number}.tar": content(number, SIZE) for number in range(6)}
    urls = {path: server.put(path, data) for path, data in shards.items()}
    stop = tmp_path / "stop"
    wrong = tmp_path / "wrong"

    def reader(seed: int) -> Callable[[], None]:
        def run() -> None:
            cache = Cache(tmp_path / "cache", LIMIT, block)
            cache._note_s = 0.01
            blobs = {path: cache.wrap(RemoteBlob(HttpRemote(url), Patience())) for path, url in urls.items()}
            rng = random.Random(seed)
            while not stop.exists():
                path, start = rng.choice(list(shards)), rng.randrange(SIZE)
                end = min(SIZE, start + rng.choice([1, 1000, 100_000]))
                if read(blobs[path], start, end) != shards[path][start:end]:
                    wrong.write_text(f"{path} {start} {end}")
                    raise AssertionError

        return run

    most, watching = [0, 0], threading.Event()

    def watch() -> None:
        cache = Cache(tmp_path / "cache")
        while not watching.wait(0.001):
            if folder_of(cache).exists():
                most[0] = max(most[0], bytes_in(cache))
                most[1] += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    rng = random.Random(7)
    steady = [fork(reader(seed)) for seed in (1, 2)]
    try:
        for seed in range(40):
            victim = fork(reader(100 + seed))
            time.sleep(rng.uniform(0.005, 0.12))
            os.kill(victim, signal.SIGKILL)
            assert os.WTERMSIG(os.waitpid(victim, 0)[1]) == signal.SIGKILL
        until(lambda: most[1] > 20 and most[0] > LIMIT // 2)
    finally:
        stop.write_text("")
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in steady]
        watching.set()
        watcher.join(30)
    assert codes == [0, 0] and not wrong.exists()
    assert most[1] > 20 and LIMIT // 2 < most[0] <= LIMIT
    cache = Cache(tmp_path / "cache", LIMIT, block)
    for path, url in urls.items():
        assert read(cache.wrap(RemoteBlob(HttpRemote(url))), 0, SIZE) == shards[path]
    assert parts_in(cache) == [] and cache.counts().past == 0 and bytes_in(cache) <= LIMIT
    cache.close()
