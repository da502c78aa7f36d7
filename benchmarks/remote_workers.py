"""What do remote workers cost? Rows of 224 x 224 x 3 made by two of them on this machine, beside the same work done here.

Crops of JPEGs, where decoding is the limit: two threads of this process against two workers with one thread each, and no rows
made at home. And rows that are only copied, where the hand-over is the limit: in GB/s, beside raw pyzmq, whose two senders send
as many bytes in frames as large, and whose receiver copies each to its place in a batch. `remote` is what users get on one
machine: rows lie in memory that the trainer sees. `tcp` sends them through the socket, as from another machine, over loopback.
tf.data service has two workers with one thread each, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import data
from measure import SEED, BenchmarkParser, Entry, Take, compare, endless, pull, report
from peers.tensorflow_service import tf_service

if TYPE_CHECKING:
    import stoker

SIDE, BATCH, WORKERS = 224, 64, 2
ROW = SIDE * SIDE * 3
#: rows in a frame of raw pyzmq: about what a task has
FRAME_ROWS = 16
_IMAGES, _ROWS = "STOKER_BENCH_IMAGES", "STOKER_BENCH_ROWS"


def crops() -> stoker.Pipeline:
    """What workers make of photographs."""
    import stoker
    from stoker.image import HorizontalFlip, RandomResizedCrop

    paths = data.paths_of(Path(os.environ[_IMAGES]))
    source = stoker.files(paths, labels=list(range(len(paths)))).shuffle(seed=SEED)
    return source.image("image", RandomResizedCrop(SIDE), HorizontalFlip()).batch(BATCH, drop_last=False).repeat()


def copies() -> stoker.Pipeline:
    """Rows that are only copied."""
    import stoker

    pixels = np.arange(int(os.environ[_ROWS]) * ROW, dtype=np.uint8).reshape(-1, SIDE, SIDE, 3)
    return stoker.arrays(image=pixels).shuffle(seed=SEED).batch(BATCH).repeat()


def _pipeline(name: str, where: str, rows: int) -> stoker.Pipeline:
    os.environ[_IMAGES], os.environ[_ROWS] = where, str(rows)
    return {"crops": crops, "copies": copies}[name]()


@contextmanager
def local(name: str, where: str, rows: int) -> Iterator[Take]:
    with _pipeline(name, where, rows).loader(threads=WORKERS) as loader:
        yield pull(endless(loader), BATCH)


@contextmanager
def remote(name: str, where: str, rows: int) -> Iterator[Take]:
    """Two workers, and no rows made at home."""
    with _pipeline(name, where, rows).loader(threads=0, workers_at="tcp://127.0.0.1:0") as loader:
        command = [sys.executable, "-m", "stoker", "worker", "--connect", str(loader.workers_at), "--threads", "1"]
        command += [f"{Path(__file__).resolve()}:{name}"]
        workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(WORKERS)]
        try:
            deadline = time.monotonic() + 60
            executor: Any = loader._machinery.executor
            while executor.remote.workers < WORKERS:
                if time.monotonic() > deadline:
                    raise TimeoutError("the workers did not connect")
                time.sleep(0.05)
            yield pull(endless(loader), BATCH)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


@contextmanager
def tcp(name: str, where: str, rows: int) -> Iterator[Take]:
    """The same, without memory that both see."""
    from stoker.remote.pool_memory import SeenMemory

    SeenMemory.open = lambda at: None  # type: ignore[method-assign, assignment]  # this process measures nothing else
    with remote(name, where, rows) as take:
        yield take


def send_raw(address: str) -> None:
    """A sender of raw pyzmq, until it is killed."""
    import zmq

    socket = zmq.Context().socket(zmq.PUSH)
    socket.sndhwm = 8
    socket.connect(address)
    rows = np.arange(FRAME_ROWS * ROW, dtype=np.uint8)
    while True:
        socket.send(rows, copy=False)


@contextmanager
def raw(rows: int) -> Iterator[Take]:
    """Frames of rows, each copied to its place in a batch."""
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = 8
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    command = [sys.executable, str(Path(__file__).resolve()), "--send-to", f"tcp://127.0.0.1:{port}"]
    senders = [subprocess.Popen(command) for _ in range(WORKERS)]
    batch = np.empty((BATCH // FRAME_ROWS, FRAME_ROWS * ROW), np.uint8)

    def take(batches: int) -> int:
        for _ in range(batches):
            for place in batch:
                place[...] = np.frombuffer(socket.recv(copy=False).buffer, np.uint8)
        return batches * BATCH

    try:
        yield take
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
        socket.close(0)
        context.term()


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.add_argument(
        "--peers", default="tf-service", help="'none': Stoker and pyzmq alone (default: tf-service, if installed)"
    )
    parser.add_argument("--send-to", metavar="ADDRESS", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.send_to:
        send_raw(options.send_to)
    where, rows = str(data.images_of(options)), 256 if options.quick else 2048
    batches, copied = (3, 20) if options.quick else (30, 200)

    def entries(name: str, count: int) -> list[Entry]:
        made = [
            Entry("local", local, (name, where, rows), count, 8),
            Entry("remote", remote, (name, where, rows), count, 8, ("zmq",)),
            Entry("tcp", tcp, (name, where, rows), count, 8, ("zmq",)),
        ]
        if options.peers == "tf-service":
            made.append(Entry("tf-service", tf_service, (name, where, BATCH, WORKERS), count, 16, ("tensorflow",)))
        return made

    decoded = compare(entries("crops", batches), options.rounds)
    handed = compare([*entries("copies", copied), Entry("raw-pyzmq", raw, (rows,), copied, 8, ("zmq",))], options.rounds)
    report(
        "remote_workers",
        options,
        row_bytes=ROW,
        workers=WORKERS,
        images_per_s=decoded.medians(),
        of_local={name: 1 / faster for name, faster in decoded.ratios("local").items()},
        hand_over_gb_per_s={name: rate * ROW / 1e9 for name, rate in handed.medians().items()},
        hand_over_of_others={name: handed.ratios(name) for name in ("remote", "tcp")},
        targets={"of_local": 0.85, "hand_over_gb_per_s": 1.5},
    )


if __name__ == "__main__":
    main()
