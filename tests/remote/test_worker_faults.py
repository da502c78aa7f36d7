"""Workers that are killed, stopped, cut off or added, and whoever else connects: the epoch is the same, and goes on."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

import stoker
from stoker import Pipeline
from stoker.loader import Loader
from stoker.loader.remote_work import handshake_of, stoker_version
from stoker.remote import remote_executor
from stoker.remote.curve_keys import make_keys, read_caller
from stoker.remote.frames import PROTOCOL, Beat, Hello, Results, packed

from ..loader.runs import epochs_of, hash_of, sha_of_run
from . import serving as served
from .serving import HERE, command, executor_of, impatient, serving, signal_process, start, until, workers_of

__all__ = ["impatient"]
SAMPLES, SIZE = 480, 8
#: the pipeline as workers find it
NAME = "tests.remote.test_worker_faults:slow"


def dawdle(sample: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.002)
    return {"x": sample["x"], "y": np.full((16, 16), sample["x"], np.float32)}


def slow() -> Pipeline:
    return stoker.arrays(x=np.arange(SAMPLES)).shuffle(seed=5).map(dawdle).batch(SIZE)


def quick() -> Pipeline:
    return stoker.arrays(x=np.arange(SAMPLES)).shuffle(seed=5).batch(SIZE)


def epoch(loader: Loader, at: dict[int, Callable[[], Any]] | None = None) -> list[str]:
    """The hashes of an epoch's batches; at some of them, something happens."""
    hashes = []
    for number, batch in enumerate(loader):
        if at and number in at:
            at[number]()
        hashes.append(hash_of(batch))
    return hashes


@pytest.fixture(scope="module")
def oracle() -> list[str]:
    with slow().loader(executor="inline") as loader:
        return epoch(loader)


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
def test_killed_stopped_and_added_workers_change_nothing(oracle: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "stoker"),
        slow().loader(threads=1, workers_at=HERE) as loader,
        command(loader, NAME, count=3, threads=2) as workers,
        ExitStack() as later,
    ):
        until(lambda: workers_of(loader) == 3, "three workers")
        happens = {
            5: workers[0].kill,
            12: lambda: signal_process(workers[1], signal.SIGSTOP),
            20: lambda: later.enter_context(command(loader, NAME)),
        }
        assert epoch(loader, happens) == oracle
        until(lambda: "lost its connection" in caplog.text and "no sign of life" in caplog.text, "two of them to be lost")
        until(lambda: workers_of(loader) == 2, "the other and the added one")
        signal_process(workers[1], signal.SIGCONT)
        until(lambda: workers_of(loader) == 3, "the stopped one to be back")
        workers[2].terminate()
        assert workers[2].wait(served.DEADLINE_S) == 0
        until(lambda: workers_of(loader) == 2, "one to have left")
        assert len(epoch(loader)) == len(oracle)


def test_without_threads_of_its_own_a_trainer_waits_for_the_first_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that runs already takes a moment to connect, and what would end it would end the trainer."""
    monkeypatch.setattr(remote_executor, "_POOL_S", 120.0)
    with quick().loader(threads=0, workers_at=HERE) as loader, command(loader, "tests.remote.test_worker_faults:quick"):
        next(iter(loader))
        assert workers_of(loader) == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.faults
@pytest.mark.thorough
def test_what_a_stopped_worker_holds_is_done_by_others_and_its_late_rows_are_dropped(oracle: list[str]) -> None:
    with slow().loader(threads=0, workers_at=HERE) as loader, command(loader, NAME) as [worker]:
        until(lambda: workers_of(loader) == 1, "a worker")
        batches = iter(loader)
        hashes = [hash_of(next(batches))]
        signal_process(worker, signal.SIGSTOP)
        hashes += [hash_of(batch) for batch in batches]
        signal_process(worker, signal.SIGCONT)
        assert hashes == oracle
        until(lambda: workers_of(loader) == 1, "the worker to be back")


def test_a_worker_that_is_told_to_stop_gives_back_what_it_has_not_begun(oracle: list[str]) -> None:
    with slow().loader(threads=0, workers_at=HERE) as loader, command(loader, NAME, count=2) as workers:
        until(lambda: workers_of(loader) == 2, "two workers")
        assert epoch(loader, {9: workers[0].terminate}) == oracle
        assert workers[0].wait(served.DEADLINE_S) == 0
        until(lambda: workers_of(loader) == 1, "one to have left")


# ---- strangers -------------------------------------------------------------------------------------------------------------


def port_of(loader: Loader) -> tuple[str, int]:
    host, port = str(loader.workers_at).removeprefix("tcp://").split(":")
    return host, int(port)


@contextmanager
def peer(loader: Loader, **options: Any) -> Iterator[zmq.Socket[bytes]]:
    """Somebody who speaks ZeroMQ to a trainer."""
    context = zmq.Context()
    made = context.socket(zmq.DEALER)
    made.linger = 0
    for name, value in options.items():
        setattr(made, name, value)
    made.connect(str(loader.workers_at))
    try:
        yield made
    finally:
        made.close()
        context.term()


def garbage() -> list[bytes]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, size, np.uint8).tobytes() for size in (1, 10, 64, 500, 70_000)]


def test_garbage_on_the_port_changes_nothing() -> None:
    oracle = sha_of_run(quick(), executor="inline", epochs=1)
    with quick().loader(threads=1, workers_at=HERE) as loader, serving(quick(), loader), ExitStack() as open_:
        for data in [*garbage(), b"GET / HTTP/1.1\r\n\r\n", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(80)]:
            connection = open_.enter_context(socket.create_connection(port_of(loader)))
            connection.sendall(data)
        idle = [open_.enter_context(socket.create_connection(port_of(loader))) for _ in range(100)]
        with peer(loader) as stranger:
            for data in garbage():
                stranger.send(data)
                stranger.send_multipart([packed(Beat()), data, data])
                stranger.send_multipart([data] * 20)
            stranger.send(packed(Hello(PROTOCOL, "0.0", {}, 1, "host", 1)))
            until(lambda: stranger.poll(100) and b"refusal" in stranger.recv(), "a refusal")
            stranger.send(msgspec.msgpack.encode({"type": "hello", "protocol": 99, "version": "9.9", "more": [1]}))
            until(lambda: stranger.poll(100) and b"protocol 99" in stranger.recv(), "a refusal that names the protocol")
        assert len(idle) == 100
        assert hashlib.sha256(repr(epochs_of(loader, 1)).encode()).hexdigest() == oracle
        assert workers_of(loader) == 1


def rows_of(asked: dict[str, Any], column: dict[str, Any]) -> dict[str, Any]:
    """An answer with one column for each task."""
    report = {"seconds": [0.0], "cpu_s": [0.0], "nbytes": [0]}
    results = [{"type": "rows", "report": report, "columns": [column]} for _ in asked["tasks"]]
    return {"type": "results", "serial": asked["serial"], "results": results, "thread": 0, "waited_s": 0.0}


LIES: dict[str, Callable[[dict[str, Any]], list[bytes]]] = {
    "objects": lambda asked: [_pack(rows_of(asked, {"type": "array", "name": "x", "dtype": "|O", "shape": [8]})), bytes(64)],
    "huge": lambda asked: [_pack(rows_of(asked, {"type": "array", "name": "x", "dtype": "<i8", "shape": [1 << 40]})), bytes(64)],
    "other type": lambda asked: [_pack(rows_of(asked, {"type": "array", "name": "x", "dtype": "<f8", "shape": [8]})), bytes(64)],
    "no buffers": lambda asked: [_pack(rows_of(asked, {"type": "array", "name": "x", "dtype": "<i8", "shape": [8]}))],
    "no results": lambda asked: [packed(Results(asked["serial"], [], 0, 0.0))],
    "garbage": lambda asked: [b"\xc1\xc1\xc1"],
}


def _pack(answer: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(answer)


@pytest.mark.parametrize("lie", LIES)
def test_a_worker_that_sends_wrong_rows_is_dropped_and_they_are_made_again(lie: str, caplog: pytest.LogCaptureFixture) -> None:
    """One that has passed the handshake, and then answers every task with what it must not."""
    with quick().loader(executor="inline") as loader:
        oracle = epoch(loader)
    hello = packed(Hello(PROTOCOL, stoker_version(), handshake_of(quick().plan), 1, "evil", 1))
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        quick().loader(threads=0, workers_at=HERE) as loader,
        peer(loader) as evil,
    ):
        evil.send(hello)
        until(lambda: workers_of(loader) == 1, "it to join")
        thread = threading.Thread(target=_lie, args=(evil, LIES[lie]))
        thread.start()
        assert epoch(loader) == oracle
        thread.join(served.DEADLINE_S)
        assert not thread.is_alive()
        until(lambda: "sent an unreadable message" in caplog.text, "it to be dropped")
        assert workers_of(loader) == 0


def _lie(evil: zmq.Socket[bytes], lie: Callable[[dict[str, Any]], list[bytes]]) -> None:
    while evil.poll(1000 * int(served.DEADLINE_S)):
        message = msgspec.msgpack.decode(evil.recv())
        if message["type"] in ("refusal", "end"):
            return
        if message["type"] == "tasks":
            evil.send_multipart(lie(message))


# ---- keys ------------------------------------------------------------------------------------------------------------------


def test_only_who_has_a_listed_key_gets_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_keys(tmp_path / "mine", ["worker", "other"])
    make_keys(tmp_path / "foreign", ["worker"])
    trainer, mine, foreign = tmp_path / "mine/trainer.key", tmp_path / "mine/worker.key", tmp_path / "foreign/worker.key"
    right, wrong = read_caller(mine), read_caller(foreign)
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        quick().loader(threads=0, workers_at="tcp://127.0.0.1:0", worker_keys=trainer) as loader,
        peer(loader) as bare,
        peer(
            loader,
            curve_publickey=wrong.public.encode(),
            curve_secretkey=wrong.secret.encode(),
            curve_serverkey=right.listener.encode(),
        ) as unlisted,
        peer(
            loader,
            curve_publickey=right.public.encode(),
            curve_secretkey=right.secret.encode(),
            curve_serverkey=wrong.listener.encode(),
        ) as misled,
    ):
        for each in (bare, unlisted, misled):
            each.send(packed(Hello(PROTOCOL, "0", {}, 1, "x", 1)))
        until(lambda: "its key is not in the key file" in caplog.text, "the wrong key to be noticed")
        with serving(quick(), loader, keys=mine):
            assert len(epoch(loader)) == SAMPLES // SIZE
            assert sum(worker.parcels for worker in executor_of(loader).remote_workers) > 0
        assert not any(each.poll(0) for each in (bare, unlisted, misled)), "nobody else heard a word"


def test_who_tries_again_and_again_with_a_wrong_key_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_keys(tmp_path / "mine", ["worker"])
    make_keys(tmp_path / "foreign", ["worker"])
    right, wrong = read_caller(tmp_path / "mine/worker.key"), read_caller(tmp_path / "foreign/worker.key")
    keys = {"curve_publickey": wrong.public.encode(), "curve_secretkey": wrong.secret.encode()}
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        quick().loader(threads=1, workers_at=HERE, worker_keys=tmp_path / "mine/trainer.key") as loader,
    ):
        for _ in range(3):
            with peer(loader, **keys, curve_serverkey=right.listener.encode()) as stranger:
                monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
                until(lambda monitor=monitor: monitor.poll(0), "it to be refused")
                stranger.disable_monitor()
                monitor.close(linger=0)
    assert caplog.text.count("its key is not in the key file") == 1


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path, ["worker"])
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.key")} == {0o600}
    (tmp_path / "trainer.key").chmod(0o640)
    with pytest.raises(stoker.errors.ConfigError, match="chmod 600"):
        quick().loader(workers_at=HERE, worker_keys=tmp_path / "trainer.key")
    with pytest.raises(stoker.errors.ConfigError, match="needed here, that of the side which listens"):
        quick().loader(workers_at=HERE, worker_keys=tmp_path / "worker.key")
    with pytest.raises(stoker.errors.ConfigError, match="already exists"):
        make_keys(tmp_path, ["worker"])
    with pytest.raises(stoker.errors.ConfigError, match=r"trainer\.key is the file of the side that listens"):
        make_keys(tmp_path, ["trainer"])
    with pytest.raises(stoker.errors.ConfigError, match=r"this is a folder; .* trainer\.key"):
        quick().loader(workers_at=HERE, worker_keys=tmp_path)


@pytest.mark.parametrize("name", ["public", "secret", "worker"])
def test_a_key_that_was_spoilt_is_named(name: str, tmp_path: Path) -> None:
    make_keys(tmp_path, ["worker"])
    path = tmp_path / "trainer.key"
    path.write_text(re.sub(rf'("{name}": ").', r"\1'", path.read_text()))
    with pytest.raises(stoker.errors.ConfigError, match="a key has a character that keys do not have"):
        quick().loader(workers_at=HERE, worker_keys=path)


def test_nothing_is_left_after_closing(tmp_path: Path) -> None:
    def left() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    def run() -> None:
        with quick().loader(threads=1, workers_at=f"ipc://{tmp_path}/socket") as loader, serving(quick(), loader):
            next(iter(loader))

    run()
    before = left()
    run()
    until(lambda: left() <= before, "threads and descriptors to be gone")
    assert not list(tmp_path.iterdir())


def test_the_command_says_why_it_was_refused_and_ends(oracle: list[str]) -> None:
    with quick().loader(workers_at=HERE) as loader:
        process = start(loader, NAME)
        told, _ = process.communicate(timeout=served.DEADLINE_S)
        assert process.returncode == 1 and "refused this worker" in told and "stages" in told
        assert len(epoch(loader)) == SAMPLES // SIZE
