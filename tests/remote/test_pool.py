"""A pool for several trainers: the same batches as alone, made once for all who ask for them, whatever happens to the others."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

import stoker
from stoker import Pipeline
from stoker.engine import shared_memory
from stoker.errors import ConfigError, WorkerRefused
from stoker.image import RandomResizedCrop
from stoker.loader import Loader
from stoker.loader.remote_work import handshake_of, pool_service, stoker_version
from stoker.remote import pool_service as pool_service_module
from stoker.remote import remote_executor
from stoker.remote.curve_keys import make_keys
from stoker.remote.frames import PROTOCOL, Call, FrameError, Freed, MemoryAt, RowsTask, Tasks, Welcome, numbers_of, packed
from stoker.remote.pool_memory import PoolMemory, SeenMemory, has_ended
from stoker.remote.pool_service import PoolService

from ..contract.test_executors import expected, picky, pipeline_named
from ..loader.runs import PIPELINES, ROOT, SINGLES, epochs_of, hash_of, numbers, sha_of_run
from ..support import together
from .serving import DEADLINE_S, HERE, executor_of, impatient, until, workers_of

__all__ = ["impatient"]
NAME = "tests.remote.test_pool:slow"


@contextmanager
def pool(*pipelines: Pipeline, at: str = HERE, threads: int = 2, memory: int = 1 << 28, **options: Any) -> Iterator[PoolService]:
    """A pool in a thread of this process."""
    plans = {f"p{number}": pipeline.plan for number, pipeline in enumerate(pipelines)}
    keys = options.pop("keys", None)
    service = pool_service(plans, at, keys, threads, memory, {}, options.pop("say", lambda text: None), **options)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.leave()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@contextmanager
def trainer(pipeline: Pipeline, at: Any, **options: Any) -> Iterator[Loader]:
    """A loader whose pools have answered."""
    with pipeline.loader(pool=at, **options) as loader:
        until(lambda: workers_of(loader) == (1 if isinstance(at, str) else len(at)), "the pools to answer")
        yield loader


def sha_pooled(pipeline: Pipeline, at: str, epochs: int = 3, **options: Any) -> str:
    with trainer(pipeline, at, **options) as loader:
        return hashlib.sha256(repr(epochs_of(loader, epochs)).encode()).hexdigest()


def slow() -> Pipeline:
    from .test_worker_faults import slow as dawdling

    return dawdling()


def pixels(seed: int = 5, samples: int = 256, size: int = 32) -> Pipeline:
    """Rows that are large enough to be seen in memory."""
    images = np.arange(samples * 12 * 16 * 3, dtype=np.uint32).astype(np.uint8).reshape(samples, 12, 16, 3)
    return stoker.arrays(x=np.arange(samples), image=images).shuffle(seed=seed).map(x=noisy, rng=True).batch(size)


def noisy(x: Any, rng: np.random.Generator) -> Any:
    return int(x) + int(rng.integers(1000))


# ---- the same batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in (*PIPELINES, *SINGLES) if "stream" not in kind])
def test_batches_of_a_pool_are_those_made_here(kind: str) -> None:
    pipeline = pipeline_named(kind)
    with pool(pipeline) as service:
        assert sha_pooled(pipeline, service.address) == expected(kind)
        assert service.made > 0


def test_pictures_and_byte_strings_of_a_pool_are_those_made_here(image_folder: Any) -> None:
    files = stoker.files(image_folder).shuffle(seed=2)
    for pipeline in (files.image("image", RandomResizedCrop(32)).batch(5), files.decode("image").batch(5), files.batch(5)):
        with pool(pipeline) as service:
            assert sha_pooled(pipeline, service.address) == sha_of_run(pipeline, executor="inline")


def test_rows_that_are_sent_are_those_that_are_seen_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where trainers cannot see the memory of the pool, as in other containers."""
    alone = sha_of_run(pixels(), executor="inline")
    with pool(pixels()) as service:
        with trainer(pixels(), service.address) as loader:
            assert executor_of(loader)._exchange._seen, "its memory is seen"
        assert sha_pooled(pixels(), service.address) == alone
        monkeypatch.setattr(SeenMemory, "open", lambda at: None)
        assert sha_pooled(pixels(), service.address) == alone


def test_an_error_in_a_pool_is_the_error_here() -> None:
    pipeline = numbers().map(picky).batch(6)
    with pool(pipeline) as service, trainer(pipeline, service.address) as loader:
        with pytest.raises(stoker.errors.FunctionError, match="no such thing") as caught:
            list(loader)
        assert caught.value.position == 31


def test_a_run_goes_on_where_it_stopped() -> None:
    with pixels().loader(executor="inline") as loader:
        oracle = [hash_of(batch) for batch in loader]
    with pool(pixels()) as service:
        with trainer(pixels(), service.address) as loader:
            batches = iter(loader)
            first = [hash_of(next(batches)) for _ in range(3)]
            state = loader.state_dict()
        with trainer(pixels(), service.address) as loader:
            loader.load_state_dict(state)
            assert first + [hash_of(batch) for batch in loader] == oracle


# ---- shared ----------------------------------------------------------------------------------------------------------------


def keys_made(service: PoolService, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which rows a pool makes; a loader goes on to an epoch that nobody takes, so counts differ."""
    keys: list[Any] = []
    finish = service._finish
    monkeypatch.setattr(service, "_finish", lambda outcome: (keys.append(outcome.task.content.key), finish(outcome)))
    return keys


def test_what_four_trainers_ask_for_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = sha_of_run(pixels(), executor="inline", epochs=2)
    with pool(pixels()) as service, ExitStack() as open_:
        made = keys_made(service, monkeypatch)
        loaders = [open_.enter_context(trainer(pixels(), service.address)) for _ in range(4)]
        found = together(4, lambda number: hashlib.sha256(repr(epochs_of(loaders[number], 2)).encode()).hexdigest())
        assert found == [oracle] * 4
        assert len({*made}) == len(made), "nothing is made twice"
        whole = [key for key in made if key[2] < 2]
        assert service.given >= 4 * len(whole)


def test_another_seed_has_its_own_rows_from_the_same_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    with pool(pixels(seed=5)) as service:
        made = keys_made(service, monkeypatch)
        for seed in (5, 6, -7):
            assert sha_pooled(pixels(seed), service.address, 1) == sha_of_run(pixels(seed), executor="inline", epochs=1)
        assert {key[0] for key in made} == {("p0", 5), ("p0", 6), ("p0", -7)}


def sharded() -> Pipeline:
    return stoker.arrays(x=np.arange(256)).shuffle(seed=1).shard().batch(16)


def test_ranks_use_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    with pool(sharded()) as service:
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", "2")
            with trainer(sharded(), service.address) as loader:
                seen += [int(x) for batch in loader for x in batch.x]
    assert sorted(seen) == list(range(256))


def test_several_pipelines_are_served_and_others_are_refused_with_the_reason() -> None:
    mine, other = pixels(), numbers().shuffle(seed=3).batch(7)
    with pool(mine, other) as service:
        assert sha_pooled(other, service.address, 1) == sha_of_run(other, executor="inline", epochs=1)
        with (
            numbers().map(picky).batch(7).loader(pool=service.address) as loader,
            pytest.raises(WorkerRefused, match=r"does not work for this program: .*it is not p1: its stages"),
        ):
            list(loader)


def test_two_pools_share_the_rows_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = sha_of_run(pixels(), executor="inline", epochs=1)
    with pool(pixels()) as first, pool(pixels()) as second:
        made = [keys_made(each, monkeypatch) for each in (first, second)]
        at = [first.address, second.address]
        with trainer(pixels(), at) as one, trainer(pixels(), at) as other:
            for loader in (one, other):
                assert hashlib.sha256(repr(epochs_of(loader, 1)).encode()).hexdigest() == oracle
        assert all(made) and len({*made[0], *made[1]}) == len(made[0]) + len(made[1]), "nothing is made twice"


def test_answers_are_kept_until_all_who_are_there_have_them() -> None:
    with pool(pixels()) as service, trainer(pixels(), service.address, ahead=2) as first:
        batches = iter(first)
        for _ in range(4):
            next(batches)
        assert not service._kept, "nobody else is there"
        with trainer(pixels(), service.address, ahead=2) as late, trainer(pixels(seed=6), service.address, ahead=2) as other:
            next(iter(other))
            next(batches)
            until(lambda: service._kept, "rows to be kept for the late one")
            list(late)
        list(batches), list(first)  # for this one is kept what the late one had first, of the next epoch too
        until(lambda: len(service._trainers) == 1 and not service._kept, "what was kept for those who left to be free")
        assert service._kept_bytes == 0


def test_answers_that_do_not_fit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pool(pixels(), memory=1) as service:
        made = keys_made(service, monkeypatch)
        with trainer(pixels(), service.address) as one, trainer(pixels(), service.address) as other:
            shas = [hashlib.sha256(repr(epochs_of(loader, 1)).encode()).hexdigest() for loader in (one, other)]
        assert shas == 2 * [sha_of_run(pixels(), executor="inline", epochs=1)]
        assert len({*made}) < len(made), "the second run has its rows made again"


def wordy(x: Any) -> str:
    return f"{x}" * 1000


def test_texts_count_among_the_bytes_that_are_kept() -> None:
    pipeline = stoker.arrays(x=np.arange(256)).map(x=wordy).batch(8)
    with pool(pipeline, memory=1 << 16) as service, trainer(pipeline, service.address):
        sha_pooled(pipeline, service.address, 1)
        assert service.made > 20 and 0 < len(service._kept) < 10


def test_the_first_trainers_wait_for_the_others() -> None:
    with pool(pixels(), wait_for=2) as service, trainer(pixels(), service.address) as first:
        batches, taken = iter(first), list[Any]()
        thread = threading.Thread(target=lambda: taken.append(next(batches)))
        thread.start()
        until(lambda: service._jobs, "the first to ask")
        assert service.made == 0 and not taken
        with trainer(pixels(), service.address) as second:
            assert hash_of(next(iter(second)))
            thread.join(DEADLINE_S)
            assert taken


# ---- what happens to others --------------------------------------------------------------------------------------------------


_TRAINER = """
import sys
from stoker.remote.remote_executor import RemoteSetting
from tests.remote.serving import hurried
from tests.remote.test_pool import pixels
RemoteSetting.__new__.__defaults__ = hurried()
with pixels(samples=2048).loader(pool=sys.argv[1]) as loader:
    batches = iter(loader)
    next(batches)
    print("has begun", flush=True)
    for batch in batches:
        sys.stdin.readline()
"""


@contextmanager
def trainer_process(at: str) -> Iterator[subprocess.Popen[str]]:
    """A trainer that takes one batch, and each further one when it is told to."""
    line = [sys.executable, "-c", _TRAINER, at]
    process = subprocess.Popen(
        line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "has begun\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_trainer_that_is_killed_or_stopped_holds_up_nobody(how: signal.Signals) -> None:
    said: list[str] = []
    pipeline = pixels(samples=2048)
    oracle = sha_of_run(pipeline, executor="inline", epochs=2)
    with pool(pipeline, say=said.append) as service, trainer_process(service.address) as other:
        other.send_signal(how)
        assert sha_pooled(pipeline, service.address, 2) == oracle
        lost = [f":{other.pid} lost its connection", f":{other.pid} gave no sign of life"]
        until(lambda: any(words in text for words in lost for text in said), "the other to be lost")
        if how == signal.SIGSTOP:
            other.send_signal(signal.SIGCONT)
            until(lambda: sum(f":{other.pid} connected" in text for text in said) == 2, "it to be back")
        else:
            until(lambda: not service._absent, "what it was lent to be free")


@contextmanager
def peer_of(service: PoolService, mapped: bool = True) -> Iterator[tuple[zmq.Socket[bytes], Any]]:
    """A socket that the pool takes for a trainer, and what the pool has said of its memory."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.connect(service.address)
        peer.send(packed(Call(PROTOCOL, stoker_version(), handshake_of(pixels().plan), "here", os.getpid(), bytes(16))))
        assert peer.poll(1000 * DEADLINE_S)
        hello = msgspec.msgpack.decode(peer.recv())
        peer.send(packed(Welcome(0.5, 0.6 if mapped else DEADLINE_S, mapped=mapped)))
        yield peer, hello["memory"]


def eight_rows(serial: int, freed: Sequence[int] = ()) -> bytes:
    order = pixels().plan.order
    assert order is not None
    places = order.places(np.arange(8), 0)
    task = RowsTask(0, numbers_of(places.positions), numbers_of(places.indices))
    return packed(Tasks(serial, "batch", [task], freed=[*freed]))


def answer_of(peer: zmq.Socket[bytes], kind: str) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    while answer.get("type") != kind:
        assert peer.poll(1000 * DEADLINE_S)
        answer = msgspec.msgpack.decode(peer.recv_multipart()[0])
    return answer


def test_what_a_lost_trainer_may_still_read_is_not_used_again() -> None:
    """One that is silent keeps its places in memory as long as its process lives."""
    with pool(pixels()) as service, peer_of(service) as (peer, memory):
        peer.send(eight_rows(0))
        answer = answer_of(peer, "results")
        seen = SeenMemory.open(msgspec.convert(memory, MemoryAt))
        assert seen is not None
        before = [bytes(buffer) for buffer in seen.buffers([tuple(place) for place in answer["places"]])]
        until(lambda: service._absent, "it to be taken for gone")
        sha_pooled(pixels(), service.address, 2)
        assert [bytes(buffer) for buffer in seen.buffers([tuple(place) for place in answer["places"]])] == before
        peer.send(packed(Call(PROTOCOL, stoker_version(), handshake_of(pixels().plan), "here", os.getpid(), bytes(16))))
        until(lambda: not service._absent, "it to call again")
        seen.close()


def test_what_a_trainer_has_taken_is_free_again_while_it_goes_on() -> None:
    with pool(pixels()) as service, trainer(pixels(), service.address, ahead=2) as loader:
        list(loader)
        until(lambda: not any(each.asked or each.lent for each in service._trainers.values()), "all that was lent to be free")
        assert len(service._trainers) == 1 and service.given > 0


def test_who_asks_for_ever_and_never_says_that_it_has_the_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could have the pool fill its memory, or that of the socket."""
    monkeypatch.setattr(pool_service_module, "_MOST_PARCELS", 20)
    with pool(pixels()) as service, peer_of(service, mapped=False) as (peer, _):
        for serial in range(20):
            peer.send(eight_rows(serial))
            answer_of(peer, "results")
        peer.send(packed(Freed([3])))
        peer.send(eight_rows(20))
        answer_of(peer, "results")
        peer.send(eight_rows(21, freed=[4]))
        answer_of(peer, "results")
        peer.send(eight_rows(22))
        assert "too much" in answer_of(peer, "refusal")["why"]


def test_processes_are_watched_however_many_files_are_open() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit := resource.getrlimit(resource.RLIMIT_NOFILE))[1:] * 2)
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            watch = fcntl.fcntl(low := os.pidfd_open(process.pid), fcntl.F_DUPFD_CLOEXEC, 1500)
            assert not has_ended(watch)
            process.communicate()
            until(lambda: has_ended(watch), "it to end")
        os.close(low)
        os.close(watch)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.usefixtures("impatient")
def test_a_trainer_goes_on_alone_and_with_the_next_pool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    at = f"ipc://{tmp_path}/pool"
    pipeline = slow()
    with pipeline.loader(executor="inline") as loader:
        oracle = [hash_of(batch) for batch in loader]
    with ExitStack() as open_, caplog.at_level(logging.WARNING, "stoker"):
        first = open_.enter_context(_process(at))
        loader = open_.enter_context(trainer(pipeline, at, ahead=3))  # so that something is left for the next pool
        batches = iter(loader)
        hashes = [hash_of(next(batches)) for _ in range(5)]
        first.kill()
        hashes += [hash_of(next(batches)) for _ in range(20)]
        assert "will run again" in caplog.text
        with pool(pipeline, at=at) as service:
            until(lambda: workers_of(loader) == 1, "the next pool")
            hashes += [hash_of(batch) for batch in batches]
            assert service.made > 0
    assert hashes == oracle


@contextmanager
def _process(at: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "stoker", "serve", "--at", at, "--threads", "1", NAME]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None and "trainers connect by" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def test_the_command_ends_when_it_is_told_to_and_leaves_nothing(tmp_path: Path) -> None:
    at = f"ipc://{tmp_path}/pool"
    with _process(at) as process:
        with trainer(slow(), at) as loader:
            next(iter(loader))
            process.terminate()
            told, _ = process.communicate(timeout=DEADLINE_S)
            until(lambda: workers_of(loader) == 0, "the pool to be gone")
        assert process.returncode == 0 and "tasks were made" in told
    assert not list(tmp_path.iterdir())


def test_a_trainer_lets_go_of_the_memory_of_a_pool_thathas_ended(tmp_path: Path) -> None:
    """It is large, and would stay as long as the trainer runs."""
    at = f"ipc://{tmp_path}/pool"
    with ExitStack() as open_:
        first = open_.enter_context(ExitStack())
        first.enter_context(pool(pixels(), at=at))
        loader = open_.enter_context(trainer(pixels(), at))
        assert executor_of(loader)._exchange._seen
        first.close()
        until(lambda: workers_of(loader) == 0, "the pool to be gone")
        until(lambda: not executor_of(loader)._exchange._seen, "its memory to be gone")


def test_without_a_pool_a_trainer_works_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(remote_executor, "_POOL_S", 0.2)
    pipeline = numbers().shuffle(seed=3).batch(7)
    with caplog.at_level(logging.WARNING, "stoker"):
        assert sha_of_run(pipeline, pool="tcp://127.0.0.1:1") == sha_of_run(pipeline, executor="inline")
    assert "no pool answers at tcp://127.0.0.1:1" in caplog.text


# ---- strangers -------------------------------------------------------------------------------------------------------------


def test_garbage_on_the_port_of_a_pool_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    with pool(pixels()) as service, zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.connect(service.address)
        for size in (0, 1, 10, 500, 70_000):
            peer.send(rng.integers(0, 256, size, np.uint8).tobytes())
            peer.send_multipart([packed(Welcome(0.5, 5.0)), b"x" * size])
        peer.send(msgspec.msgpack.encode({"type": "call", "protocol": 99, "version": "9.9"}))
        until(lambda: peer.poll(100) and b"protocol 99" in peer.recv(), "a refusal that names the protocol")
        identity = handshake_of(pixels().plan)
        for seed in ("x" * 9, "--5", "", "-", "\u0665", "9" * 25):
            peer.send(packed(Call(PROTOCOL, stoker_version(), {**identity, "seed": seed}, "here", 1, bytes(16))))
            until(lambda: peer.poll(100) and b"not a number" in peer.recv(), "a refusal")
        peer.send(packed(Call(PROTOCOL, stoker_version(), identity, "here", 1 << 40, bytes(16))))
        peer.send(packed(Welcome(0.5, 5.0, mapped=True)))  # of no process
        peer.send(msgspec.msgpack.encode({"type": "tasks", "serial": 0, "kind": "batch", "tasks": [{"epoch": 0}]}))
        until(lambda: peer.poll(100) and b"could not read" in peer.recv(), "to be dropped")
        assert sha_pooled(pixels(), service.address, 1) == sha_of_run(pixels(), executor="inline", epochs=1)


def test_only_who_has_a_listed_key_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(remote_executor, "_POOL_S", 0.5)
    make_keys(tmp_path / "mine", ["trainer"], "pool")
    make_keys(tmp_path / "foreign", ["trainer"], "pool")
    pipeline = numbers().shuffle(seed=3).batch(7)
    oracle = sha_of_run(pipeline, executor="inline")
    with pool(pipeline, keys=tmp_path / "mine/pool.key") as service, caplog.at_level(logging.WARNING, "stoker"):
        assert sha_of_run(pipeline, pool=service.address, pool_keys=tmp_path / "foreign/trainer.key") == oracle
        assert sha_of_run(pipeline, pool=service.address) == oracle
        assert service.made == 0
        assert sha_pooled(pipeline, service.address, pool_keys=tmp_path / "mine/trainer.key") == oracle
        assert service.made > 0


def test_memory_of_others_is_not_taken_for_the_pools() -> None:
    memory, other = PoolMemory(1 << 20), PoolMemory(1 << 20)
    assert memory.at is not None and other.at is not None
    seen = SeenMemory.open(memory.at)
    assert seen is not None
    data = memory.own(b"some bytes")
    place = memory.place(data)
    assert bytes(seen.buffers([place])[0]) == b"some bytes" and memory.place(memory.own(data)) == place
    with pytest.raises(FrameError, match="a place up to byte"):
        seen.buffers([(1 << 40, 10)])
    with pytest.raises((ValueError, TypeError)):
        seen.buffers([place])[0][:1] = b"x"
    wrong = MemoryAt(other.at.pid, other.at.descriptor, memory.at.token)
    assert SeenMemory.open(wrong) is None
    assert SeenMemory.open(MemoryAt(1 << 30, 3, memory.at.token)) is None
    shrinking = os.memfd_create("stoker")
    os.write(shrinking, memory.at.token)
    assert SeenMemory.open(MemoryAt(os.getpid(), shrinking, memory.at.token)) is None, "cut off, it would end who reads it"
    os.close(shrinking)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.at.descriptor, 0)
    with Path("/dev/null").open() as null:
        assert SeenMemory.open(MemoryAt(os.getpid(), null.fileno(), memory.at.token)) is None
    seen.close()
    memory.close()
    other.close()


def test_threads_find_what_they_have_taken_while_the_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are the first in new memory do not map it twice."""
    memory, both = PoolMemory(1 << 20), threading.Barrier(2)
    mapping = shared_memory.mmap.mmap

    def mapping_at_once(*arguments: Any, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):  # as it should be: the other waits for this one
            both.wait(0.2)
        return mapping(*arguments, **options)

    memory.allocate(7 << 20)  # so that there is no room for the next
    monkeypatch.setattr(shared_memory.mmap, "mmap", mapping_at_once)
    taken = together(2, lambda _: memory.own(memory.allocate(3 << 20)))
    assert [memory.place(data)[1] for data in taken] == [3 << 20] * 2
    memory.close()


def test_options_that_do_not_go_together_are_named() -> None:
    pipeline = numbers().batch(4)
    for wrong in ({"processes": 2}, {"executor": "inline"}):
        with pytest.raises(ConfigError, match="threads only"):
            pipeline.loader(pool=HERE, **wrong)
    with pytest.raises(ConfigError, match="not both"):
        pipeline.loader(pool=HERE, workers_at=HERE)
    with pytest.raises(ConfigError, match="add pool="):
        pipeline.loader(pool_keys="trainer.key")
    with pytest.raises(ConfigError, match="list of addresses is empty"):
        pipeline.loader(pool=[])
    with pytest.raises(ConfigError, match="stoker keys"):
        pipeline.loader(pool="tcp://10.0.0.1:8878")
    with pytest.raises(ConfigError, match="by the trainer itself"):
        pool_service({"p": pipeline_named("stream").plan}, HERE, None, 1, 1, {}, print)
    with pytest.raises(ConfigError, match=r"`stoker keys FOLDER --pool` and pass --keys FOLDER/pool\.key"):
        pool_service({"p": pipeline.plan}, "tcp://0.0.0.0:0", None, 1, 1, {}, print)


def test_nothing_is_left_after_closing(tmp_path: Path) -> None:
    def left() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    def run() -> None:
        with pool(pixels(), at=f"ipc://{tmp_path}/pool") as service, trainer(pixels(), service.address) as loader:
            next(iter(loader))

    run()
    before = left()
    run()
    until(lambda: left() <= before, "threads and descriptors to be gone")
    assert not list(tmp_path.iterdir())
