"""A worker process, seen from within: does one task after the other, until nobody gives it any.

Tasks come down a pipe and answers go up another, as lines of JSON. The pipe of tasks is also its lifeline: when it closes,
because whoever gave them says so or is dead, the worker gives up what it does and ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from .daemons import Daemons
from .signals import watch

#: seconds that a worker may take to stop
STOP_S = 3.0
_STATUS = struct.Struct("<qqI")
_AT_BYTES = 1024


class WorkerStatus:
    """Where a worker is, in a file without a name that both processes have open: it can still be read when the worker is dead."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def fileno(self) -> int:
        return self._file.fileno()

    def put(self, samples: int, nbytes: int, at: bytes) -> None:
        """So much of its task is done, and this is the sample it is at."""
        os.pwrite(self._file.fileno(), _STATUS.pack(samples, nbytes, min(len(at), _AT_BYTES)) + at[:_AT_BYTES], 0)

    def counts(self) -> tuple[int, int]:
        samples, nbytes, _ = self._read()[0]
        return samples, nbytes

    def at(self) -> bytes:
        """The sample it is at."""
        head, at = self._read()
        return at[: head[2]]

    def close(self) -> None:
        self._file.close()

    def _read(self) -> tuple[tuple[int, int, int], bytes]:
        data = os.pread(self._file.fileno(), _STATUS.size + _AT_BYTES, 0)
        return (_STATUS.unpack_from(data), data[_STATUS.size :]) if len(data) >= _STATUS.size else ((0, 0, 0), b"")


#: makes what does tasks, from what was said about all of them
Maker = Callable[[dict[str, Any], WorkerStatus], Callable[..., dict[str, Any]]]


def work(maker: Maker, settings: dict[str, Any], tasks: int, answers: int, status: int) -> None:
    """The life of a worker: does the tasks it is given until there are no more."""
    do = maker(settings, WorkerStatus(os.fdopen(status, "r+b", buffering=0)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    watch()
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    ended = threading.Event()
    Daemons(ended.set).start("the thread that takes tasks", "stoker-lifeline", _listen, tasks, lines, ended)
    try:
        while (line := lines.get()) is not None:
            outcome = do(*json.loads(line))
            os.write(answers, json.dumps(outcome).encode() + b"\n")
        return
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # the shard in the making is given up
    # Not before the exception is gone: it may hold the last reference to a file that was just made, and goes with it. The
    # interpreter's own end could wait for threads of the user.
    os._exit(1)


def _listen(tasks: int, lines: queue.SimpleQueue[bytes | None], ended: threading.Event) -> None:
    """Pass tasks on. When their pipe closes, whoever gave them is gone, or wants no more: interrupt what runs."""
    with os.fdopen(tasks, "rb", buffering=0) as stream:
        for line in stream:
            lines.put(line)
    lines.put(None)
    if ended.wait(0.2):  # one that waits for tasks ends by itself
        return
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    if not ended.wait(STOP_S):
        os._exit(1)
