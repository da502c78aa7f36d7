"""What does a ranged read over HTTP cost, by Stoker's client and by urllib3?

One thread reads ranges of one file from a loopback server that answers at once, over a connection that is kept: the same ranges,
with the same headers, into the same buffer, and with the same looks at the answer (status, length, range, version). The two take
turns, and the order of turns is reversed from round to round.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measure import SEED, median, note, ratio
from slow_server import serving
from stoker.storage.http import HttpRemote
from stoker.storage.remote import RemoteBlob

_FILE_BYTES = 32 << 20
#: bytes of a read -> reads in a turn
READS = {16 << 10: 2000, 128 << 10: 2000, 4 << 20: 150}
#: fill a buffer with the bytes from a place on
Read = Callable[[int, memoryview], None]


def compare_clients(rounds: int, quick: bool) -> dict[str, Any] | None:
    """CPU time of a read and reads per second, by size; None where urllib3 is missing."""
    if find_spec("urllib3") is None:
        note("clients: urllib3 is missing")
        return None
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.bin").write_bytes(random.Random(SEED).randbytes(_FILE_BYTES))
        with serving(Path(name), 0) as server:
            clients = {"stoker": _stoker(f"{server}/a.bin"), "urllib3": _urllib3(f"{server}/a.bin")}
            return {str(size): _compare(clients, size, reads // 20 if quick else reads, rounds) for size, reads in READS.items()}


def _compare(clients: dict[str, Read], size: int, reads: int, rounds: int) -> dict[str, Any]:
    cpu_us: dict[str, list[float]] = {name: [] for name in clients}
    per_s: dict[str, list[float]] = {name: [] for name in clients}
    buffer = memoryview(bytearray(size))
    for turn in range(rounds + 1):
        for name in list(clients)[:: 1 if turn % 2 else -1]:
            cpu, start = time.process_time(), time.perf_counter()
            for number in range(reads):
                clients[name](number * 7919 * 64 % (_FILE_BYTES - size), buffer)
            if turn:  # the first makes connections
                cpu_us[name].append((time.process_time() - cpu) / reads * 1e6)
                per_s[name].append(reads / (time.perf_counter() - start))
    figures = {
        "cpu_us": {name: median(values) for name, values in cpu_us.items()},
        "reads_per_s": {name: median(values) for name, values in per_s.items()},
        "cpu_of_urllib3": ratio(cpu_us["stoker"], cpu_us["urllib3"]),
        "rate_over_urllib3": ratio(per_s["stoker"], per_s["urllib3"]),
    }
    note(f"{size >> 10:,} KiB: {figures['cpu_of_urllib3']:.2f} of the CPU, {figures['rate_over_urllib3']:.2f} times the reads")
    return figures


def _stoker(url: str) -> Read:
    return RemoteBlob(HttpRemote(url)).read_into


def _urllib3(url: str) -> Read:
    import urllib3

    pool = urllib3.PoolManager(maxsize=4)
    tag = pool.request("HEAD", url).headers["ETag"]

    def read(offset: int, view: memoryview) -> None:
        last = offset + len(view) - 1
        headers = {"Range": f"bytes={offset}-{last}", "If-Match": tag, "Accept-Encoding": "identity", "User-Agent": "stoker"}
        answer = pool.request("GET", url, headers=headers, preload_content=False, decode_content=False, retries=False)
        told = answer.headers
        if answer.status != 206 or told["Content-Length"] != str(len(view)) or told["ETag"] != tag:
            raise RuntimeError(f"HTTP {answer.status}")
        if told["Content-Range"] != f"bytes {offset}-{last}/{_FILE_BYTES}":
            raise RuntimeError("other bytes came")
        while view:
            count = answer.readinto(view)
            if not count:
                raise RuntimeError("the answer ended early")
            view = view[count:]
        answer.drain_conn()
        answer.release_conn()

    return read
