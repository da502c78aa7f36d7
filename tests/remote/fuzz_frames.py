"""Changed messages for trainers, workers and pools: each must be taken in or refused, and nothing else may come of it.

Real messages of all directions are changed, in their bytes or in what they say, and heard by a trainer's exchange, a worker and
a pool as they are, but for the sockets. What is not refused as a `FrameError` is a failure; so is a byte that is written outside
the rows of a task, or before its result counts, and memory that grows. Messages that were answered in a new way are changed
further.

    python -m tests.remote.fuzz_frames --seconds 1800
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import random
import re
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec
import numpy as np

import stoker
from stoker import Pipeline
from stoker.batch.slab import Slab, plain_memory
from stoker.engine.executor import Outcome, Task
from stoker.errors import WorkerRefused
from stoker.loader.batch_units import BatchPart
from stoker.loader.build import compile_work, layout_of
from stoker.loader.remote_work import carrier_of, handshake_of, pool_service, stoker_version, worker_service
from stoker.remote import remote_executor
from stoker.remote.carrier import make_results
from stoker.remote.frames import (
    PROTOCOL,
    Beat,
    Bye,
    Call,
    End,
    FrameError,
    Freed,
    GivenBack,
    Hello,
    MemoryAt,
    Refused,
    Results,
    Stranger,
    Tasks,
    Unsendable,
    Unwanted,
    Welcome,
    from_trainer,
    packed,
)
from stoker.remote.parcel_ledger import Parcel
from stoker.remote.remote_executor import RemoteSetting
from stoker.remote.worker_service import Stuck, WorkerService
from stoker.storage.scratch import Scratch

from ..loader.runs import PIPELINES

#: kinds of pipelines whose rows are sent: columns of every type, rows left out, samples numbered again
KINDS = ("pad", "list", "bad samples left out", "flat_map", "filter, bad samples left out")
SERIAL, WORKER, UNTOUCHED = 7, b"worker", 0xA5
#: messages that are changed further, rows that a worker is let make, and megabytes that all of it may take
MOST_KEPT, MOST_ROWS, MOST_MB = 2000, 64, 512
#: seconds that a thousand messages may take
PATIENCE_S = 120

Message = list[bytes]


def mixed_values(sample: dict[str, Any]) -> dict[str, Any]:
    x = int(sample["x"])
    return {"x": x, "t": {"a": [x, (1.5, None)], "b": np.arange(x % 3), "s": "text"}, "raw": b"\0" * (x % 4), "u": np.str_("u")}


def failing(sample: dict[str, Any]) -> dict[str, Any]:
    raise KeyError("no such thing", int(sample["x"]))


def pipelines() -> Iterator[Pipeline]:
    for kind in KINDS:
        yield PIPELINES[kind](7)
    source = stoker.arrays(x=np.arange(60)).shuffle(seed=1)
    yield source.map(mixed_values).batch(7, pad=dict.fromkeys(("t", "raw", "u"), list))
    yield source.map(failing).batch(7)


class Trainer:
    """A trainer without a socket: one worker has joined, and has one task."""

    def __init__(self, pipeline: Pipeline, pooled: bool) -> None:
        plan = pipeline.plan
        final, segments = compile_work(plan, layout_of(plan, 1))
        work: Any = segments[0] if segments else final
        carrier = carrier_of(plan, work)
        assert carrier is not None and plan.order is not None
        identity = handshake_of(plan)
        setting = RemoteSetting(_NoPort, stoker_version(), identity, lambda _: carrier, shy=True, pooled=pooled)
        with mock.patch.object(_Still, "_run", lambda *_: None):
            self._exchange = _Still(1, Scratch, setting)
        self._exchange.ledger.home = 0  # nobody there does anything
        self._line: Any = remote_executor._RemoteChannel(self._exchange, work)
        self._hello = packed(Hello(PROTOCOL, stoker_version(), identity, 2, "host", 1))
        self._slab = Slab(final.layout, plain_memory(final.layout.nbytes + 64)[0])
        places = plan.order.places(np.arange(3, 8), 0)
        self._content: Any = places if segments else BatchPart(places, 1, self._slab)
        self._asked = carrier.asked(self._content)
        assert self._asked is not None
        results, buffers = make_results(carrier, [self._asked], Scratch())
        self._outside = [0, *range(6, final.layout.rows)] if not segments else [*range(final.layout.rows)]
        self.seeds: list[Message] = [
            [packed(Results(SERIAL, results, 1, 0.0)), *(bytes(buffer) for buffer in buffers)],
            [self._hello],
            [packed(Beat())],
            [packed(GivenBack([SERIAL]))],
            [packed(Bye())],
            [packed(Unsendable(SERIAL, "an object"))],
            [packed(Refused("why"))],
            [packed(Stranger())],
            [packed(Hello(PROTOCOL, stoker_version(), identity, 2, "host", 1, 5, MemoryAt(os.getpid(), 0, bytes(32))))],
            [packed(Results(SERIAL, results, 1, 0.0, [(0, 100)] * len(buffers)))],
        ]
        self.tasks = packed(Tasks(SERIAL, carrier.kind, [self._asked], freed=[SERIAL - 1]))

    def hear(self, message: Message) -> str:
        """What came of a message; raises where it is not one of what may."""
        exchange, ledger = self._exchange, self._exchange.ledger
        exchange.port.said.clear()
        if WORKER not in ledger.workers:
            exchange._hear(WORKER, self._hello, [])
        worker = ledger.workers[WORKER]
        parcel = Parcel(self._line, [Task(0, 0, self._content)], [self._asked], 1000, serial=SERIAL)
        ledger.open[SERIAL] = parcel
        ledger._send(worker, parcel, 0.0)
        self._line.travels = True
        for array in self._slab.arrays.values():
            array.reshape(-1).view(np.uint8)[...] = UNTOUCHED
        exchange.port.said.clear()
        exchange._hear(WORKER, message[0], message[1:])
        exchange.refusal = None  # which the consumer would be told
        outcomes = self._line.collect(0)
        for outcome in outcomes:
            if outcome.fault is not None:
                outcome.fault.error()
        done = any(outcome.result is not None for outcome in outcomes)
        for name, array in self._slab.arrays.items():
            spared = array[self._outside] if done else array
            assert (np.ascontiguousarray(spared).view(np.uint8) == UNTOUCHED).all(), f"{name}: written where nothing belongs"
        assert worker.most >= 2
        ledger.drop(self._line)
        said = exchange.port.said[0] if exchange.port.said else b""
        return f"{len(outcomes)} {done} {re.sub(r'[^a-z ]+', '', said.decode('utf-8', 'replace'))[:80]}"

    def close(self) -> None:
        self._exchange.close()


class _Still(remote_executor._Exchange):
    """An exchange whose thread does nothing."""

    port: Any


class _NoPort:
    """What an exchange says goes nowhere."""

    address = "nowhere"

    def __init__(self, *_: Any) -> None:
        self.said: list[bytes] = []

    def send(self, address: Any, header: bytes, buffers: Any = ()) -> bool:
        self.said.append(header)
        return True

    def close(self) -> None:
        pass


class _QuietWorker(WorkerService):
    """A worker that is not connected, and makes rows in the thread that asks."""

    def _connect(self) -> None:
        self._start_over()

    def _send(self, parts: list[Any]) -> None:
        pass


class Worker:
    """A worker without a socket, which a trainer has welcomed."""

    def __init__(self, pipeline: Pipeline) -> None:
        plan, said = pipeline.plan, list[str]()
        self._said, self._scratch = said, Scratch()
        with mock.patch("stoker.loader.remote_work.WorkerService", _QuietWorker):
            self._service: Any = worker_service(plan, "tcp://127.0.0.1:1", None, 1, None, said.append)
        self._service._channel = self  # jobs come here
        self._welcome = Welcome(0.5, 5.0)
        self._jobs: list[Any] = []
        self.seeds: list[Message] = [
            [packed(message)]
            for message in (
                self._welcome,
                Refused("why"),
                Refused("why", stuck=True),
                Unwanted([SERIAL]),
                Stranger(),
                End(),
                Beat(),
            )
        ]

    def submit(self, tasks: list[Any], first: bool = False) -> None:
        self._jobs += [task.content for task in tasks]

    def hear(self, message: Message) -> str:
        service = self._service
        self._said.clear()
        self._jobs.clear()
        service._welcome = self._welcome
        try:
            heard = from_trainer(message[0])
            service._hear(heard)
            service._keep_time(time.monotonic())
        except WorkerRefused:
            return "refused"
        except Stuck:
            return "stuck"
        except FrameError as error:
            return re.sub(r"[^a-z ]+", "", str(error))[:80]
        for job in self._jobs:
            if sum(task.rows for task in job.asked.tasks) <= MOST_ROWS:
                answer = service._make(job, self._scratch)
                return f"{type(heard).__name__} {type(answer[0]).__name__ if answer else None}"
        return type(heard).__name__

    def close(self) -> None:
        self._service._executor.close()
        self._service._context.term()
        self._service._wake.close()


class Pool:
    """A pool without a socket, for which a trainer has called."""

    def __init__(self, pipeline: Pipeline) -> None:
        plan = pipeline.plan
        with mock.patch("stoker.remote.pool_service.ListeningPort", _NoPort):
            self._service: Any = pool_service({"p": plan}, "tcp://127.0.0.1:0", None, 1, 1 << 20, {}, lambda _: None)
        call = packed(Call(PROTOCOL, stoker_version(), handshake_of(plan), "host", os.getpid(), bytes(16)))
        self._greetings = call, packed(Welcome(0.5, 5.0, True))
        self._service._channel = self  # jobs come here
        self._jobs: list[Any] = []
        self._scratch = Scratch()
        self.seeds: list[Message] = [[header] for header in self._greetings]
        self.seeds += [[packed(message)] for message in (Unwanted([SERIAL]), Freed([SERIAL]), End(), Beat(), Refused("why"))]

    def submit(self, tasks: list[Any]) -> None:
        self._jobs += tasks

    def hear(self, message: Message) -> str:
        service = self._service
        for address in [*service._trainers]:
            service._hear(address, packed(End()))
        for header in self._greetings:
            service._hear(WORKER, header)
        service._port.said.clear()
        service._hear(WORKER, message[0])
        service._look_after(time.monotonic())
        service._hand_out(time.monotonic())
        while self._jobs:
            task = self._jobs.pop()
            small = task.content.task.rows <= MOST_ROWS
            result = service._make(task.content, self._scratch) if small else "too many rows for a test"
            service._finish(Outcome(task, result=result))
            service._hand_out(time.monotonic())
        assert not service._running
        said = service._port.said[0] if service._port.said else b""
        return re.sub(r"[^a-z ]+", "", bytes(said[:200]).decode("utf-8", "replace"))[:80]

    def close(self) -> None:
        self._service._close()


# ---- changes ---------------------------------------------------------------------------------------------------------------

_ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 255, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 0.0, -0.0, 1e300),
    *(float("nan"), float("inf"), "", "x", "a" * 300, b"", bytes(8), b"\xff" * 8, b"\xff" * 9, bytes(800)),
    *([], {}, [[]], [0] * 40, [1 << 40, 1 << 40], ["a", "<i8", [1], 8], {"a": 0, "<i8": 0, "x": 0, 8: 0}, ["b", 1 << 40]),
    *("|O", "<i8", ">f4", "<M8[s]", "<U4", "1U,i4", "|V8", "array", "rows", "strings", "values", "fault", "results", "hello"),
    *("KeyError", "SystemExit", "OSError", "UnicodeDecodeError", "ExceptionGroup", "args", "__class__", "errno"),
    *(["l", [["l", []]]], ["d", [["k", 1]]], ["t", []], ["T", "<i8", [1], 8], ["g", "<i8", [], 8], msgspec.msgpack.Ext(5, b"x")),
]


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(made) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(made):
            made[at] = chance.choice((0, 0x7F, 0x80, 0x90, 0xC0, 0xC1, 0xC4, 0xCB, 0xD9, 0xDD, 0xDF, 0xFF, chance.randrange(256)))
        elif kind == 2:
            del made[at : at + chance.choice((1, 2, 8, 100))]
        elif kind == 3:
            made[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
        else:
            start = chance.randrange(len(made) + 1)
            made[at:at] = made[start : start + chance.choice((1, 4, 30))]
    return bytes(made)


def changed_tree(tree: Any, chance: random.Random) -> Any:
    """The same with one node replaced, left out, doubled or exchanged."""
    nodes: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in [*node] if isinstance(node, dict) else range(len(node)):
            nodes.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    if not isinstance(tree, (dict, list)) or not tree:
        return chance.choice(_ODD)
    walk(tree)
    for _ in range(chance.choice((1, 1, 2, 3))):
        node, key = chance.choice(nodes)
        if (key not in node) if isinstance(node, dict) else key >= len(node):
            continue
        kind = chance.randrange(6)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, list):
            node.insert(key, node[key])
        elif kind == 2 and isinstance(node, dict):
            node[chance.choice([*node, "more", ""])] = node.pop(key)
        elif kind == 3 and isinstance(node[key], int) and not isinstance(node[key], bool):
            node[key] = max(-(1 << 63), min((1 << 64) - 1, node[key] + chance.choice((-1, 1, 8, -8, 1 << 20, 1 << 40))))
        elif kind == 4 and isinstance(node[key], (bytes, str)) and node[key]:
            node[key] = node[key][: chance.randrange(len(node[key]))]
        else:
            other, its = chance.choice(nodes)
            fits = (its in other) if isinstance(other, dict) else its < len(other)
            # A value from elsewhere goes in as a copy: a tree that held itself could not be packed.
            elsewhere = fits and chance.random() < 0.4
            node[key] = msgspec.msgpack.decode(_encode(other[its])) if elsewhere else chance.choice(_ODD)
    return tree


def _encode(tree: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(tree)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return b"\xc0"


def changed(message: Message, others: list[Message], chance: random.Random) -> Message:
    header, buffers = message[0], list(message[1:])
    kind = chance.random()
    if kind < 0.55:
        try:
            header = _encode(changed_tree(msgspec.msgpack.decode(header, strict=False), chance))
        except (msgspec.DecodeError, RecursionError, ValueError, TypeError):
            header = changed_bytes(header, chance)
    elif kind < 0.85:
        header = changed_bytes(header, chance)
    elif kind < 0.9:
        header, buffers = header[: chance.randrange(len(header) + 1)], chance.choice(others)[1:]
    if kind > 0.9 or chance.random() < 0.1:
        at = chance.randrange(len(buffers) + 1)
        change = chance.randrange(4)
        if change == 0:
            buffers.insert(at, chance.choice((b"", b"x", bytes(64), chance.randbytes(40))))
        elif buffers:
            at = min(at, len(buffers) - 1)
            if change == 1:
                del buffers[at]
            elif change == 2:
                buffers[at] = buffers[at][: chance.randrange(len(buffers[at]) + 1)]
            else:
                buffers[at] = changed_bytes(buffers[at], chance)
    return [header, *buffers]


# ---- the run ---------------------------------------------------------------------------------------------------------------


@contextmanager
def peers() -> Iterator[list[tuple[Callable[[Message], str], list[Message]]]]:
    """Everybody who hears, and the messages that are meant for them."""
    made: list[Any] = []
    try:
        for pipeline in pipelines():
            trainer, worker, pool = Trainer(pipeline, pooled=False), Worker(pipeline), Pool(pipeline)
            worker.seeds.append([trainer.tasks])
            pool.seeds.append([trainer.tasks])
            made += [trainer, Trainer(pipeline, pooled=True), worker, pool]
        yield [(peer.hear, peer.seeds) for peer in made]
    finally:
        for peer in made:
            peer.close()


def fuzz(seed: int, count: int, seconds: float = float("inf"), tick: Callable[[], Any] = lambda: None) -> tuple[int, int]:
    """How many messages were heard, and in how many ways they were answered. Raises what went wrong, and names the message."""
    chance, deadline, done = random.Random(seed), time.monotonic() + seconds, 0
    with peers() as heard, mock.patch.object(logging.getLogger("stoker"), "disabled", True):
        known: list[set[str]] = [{hear(message) for message in seeds} for hear, seeds in heard]
        kept = [list(seeds) for _, seeds in heard]
        while done < count and time.monotonic() < deadline:
            which = done % len(heard)
            hear, messages = heard[which][0], kept[which]
            message = changed(chance.choice(messages), messages, chance)
            try:
                answer = hear(message)
            except BaseException as error:
                told = f"message {done} of seed {seed}: {message!r}"
                error.args = (f"{error}\n{told[:20_000]}",)
                raise
            if answer not in known[which] and len(messages) < MOST_KEPT:
                known[which].add(answer)
                messages.append(message)
            done += 1
            if done % 1000 == 0:
                tick()
    return done, sum(map(len, known))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.fuzz_frames", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, help="begin with this one")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 40)
    print(f"changed messages from seed {seed}", flush=True)
    warnings.simplefilter("error")
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    done, ways = fuzz(seed, sys.maxsize, options.seconds, lambda: faulthandler.dump_traceback_later(PATIENCE_S, exit=True))
    faulthandler.cancel_dump_traceback_later()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{done:,} messages were taken in or refused, in {ways:,} ways; {used} MB of memory")
    return int(used > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
