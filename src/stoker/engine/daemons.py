"""The threads of the engine, and how they end with the program.

How a program must end (anything else is a bug): Python waits for the user's threads that are not daemons, and lets them finish.
Then one `atexit` hook stops every thread of the engine: first all are signalled, then all are waited for, about a second in
total, and no time at all if they are idle. So native calls have returned before anything they use is freed.

A thread that does not stop (a user's function that sleeps, a read from a disk that hangs) is left alone, and must not crash the
process. Python halts it where it next wants the interpreter and never clears its frames, so whatever they hold stays in memory.
Hence two rules. What a native call uses is held by the frames of the call. And nothing that a thread may be using is freed
because the process exits, but only by `close` or garbage collection: a `weakref.finalize` of such a thing has ``atexit =
False``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..errors import ClosedError, ConfigError
from ..turns import TURNS

_EXIT_S = 1.0
#: threads that still compute by then are waited for so much longer: up to Python 3.13 they are ended by unwinding their stacks,
#: and libraries in C++, torch for one, abort the process when that happens
_BUSY_S, _LOOK_S = 60.0, 0.1
#: looks in which a thread must have done nothing, and not wanted to, until it is left alone
_IDLE_LOOKS = 5

#: every thread of the engine that is alive and may still be waited for. It is changed and copied in single steps, and so needs
#: no lock, which a fork or a finalizer could meet held
_running: dict[threading.Thread, Daemons] = {}
_hooked = False
_ending = False
#: what else is to be ended with the program
_enders: list[Callable[[], None]] = []


class Daemons:
    """Daemon threads that one function stops.

    `tell` makes them return soon and does not block; it may be called by a finalizer. It must not reference the owner of these
    threads, so that an owner without references is collected, and can stop them then.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.stopped = False
        self._tell = tell
        self._process = os.getpid()
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._threads)

    def start(self, what: str, name: str, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        """Run ``work(*arguments)`` in a new thread; raises ConfigError, which names it `what`, where none can be started."""
        thread = threading.Thread(target=self._run, args=(work, arguments), name=name, daemon=True)
        try:
            if _ending:
                raise RuntimeError("the program is ending")
            _hook_in()
            _running[thread] = self
            thread.start()
        except (RuntimeError, MemoryError) as error:  # a limit on threads or memory, or an interpreter that is about to end
            _running.pop(thread, None)
            why = str(error) or type(error).__name__
            raise ConfigError(
                f"{what} could not be started ({why}); use fewer threads, as in loader(threads=2) or -j 2, or none "
                "with loader(executor='inline'), or raise the limit (`ulimit -u`)"
            ) from error
        self._threads.append(thread)
        return thread

    def stop(self) -> None:
        """Signal them to stop, without waiting; idempotent. A forked child has none of them, and does not touch their locks."""
        if not self.stopped and self._process == os.getpid():
            self.stopped = True
            self._tell()

    def close(self, wait_s: float) -> None:
        """Stop them, and wait `wait_s` at most; idempotent. The end of the program does not wait again for one that is stuck."""
        self.stop()
        with TURNS.aside():
            _join(self._threads, wait_s)
        for thread in self._threads:
            _running.pop(thread, None)
            if thread.is_alive():
                TURNS.forget(thread.ident)  # it must not keep others waiting
        self._threads = []

    def _run(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        finally:
            _running.pop(threading.current_thread(), None)


def at_end(end: Callable[[], None]) -> None:
    """Call this when the program ends and the threads have been signalled.

    It is registered when the first thread that must end exists.
    """
    if end not in _enders:
        _enders.append(end)
    _hook_in()


def ended() -> BaseException:
    """What to raise if threads that were stopped are asked for something.

    A daemon thread of the user may still run when the program ends, and nobody is left to handle an error: it ends silently.
    """
    if not _ending:
        return ClosedError("the loader was closed while a batch was awaited")
    if threading.current_thread().daemon:
        return SystemExit()
    return ClosedError(
        "the program is ending and the workers of this loader have been stopped; "
        "take batches before the end, or use loader(executor='inline')"
    )


def _hook_in() -> None:
    # With the first thread and not with the import: callbacks run last in, first out, and what was registered before there were
    # threads, to remove a folder of data say, comes after their end. In a child again: `multiprocessing` may drop all callbacks.
    global _hooked
    if not _hooked:
        _hooked = True
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)


def _stop_all() -> None:
    global _ending
    _ending = True
    running = _running.copy()
    try:
        for daemons in running.values():
            daemons.stop()
        TURNS.end_all()
        for end in _enders:
            end()
        _join(running, _EXIT_S)
        _join_busy(running)
    except KeyboardInterrupt:
        return  # a user who presses Ctrl-C now has waited long enough; the rules above hold without waiting


def _join(threads: Iterable[threading.Thread], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _join_busy(threads: Iterable[threading.Thread]) -> None:
    """Wait for threads as long as they compute, or would if they had a core; one that sleeps or hangs is left alone."""
    deadline = time.monotonic() + _BUSY_S
    seen = dict.fromkeys(threads, (-1.0, 0))  # how long it was on a core, and looks since it was busy
    while seen and time.monotonic() < deadline:
        for thread, (last, idle) in list(seen.items()):
            seconds = _core_seconds(thread)
            idle = 0 if seconds > last or _wants_core(thread) else idle + 1
            if seconds < 0 or idle >= _IDLE_LOOKS:
                del seen[thread]
            else:
                seen[thread] = seconds, idle
        _join(seen, _LOOK_S)


def _core_seconds(thread: threading.Thread) -> float:
    """How long a thread was on a core; -1 where that cannot be known, or it has ended."""
    if not thread.is_alive() or thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return -1.0
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:
        return -1.0


def _wants_core(thread: threading.Thread) -> bool:
    """Whether a thread is ready to run: on a busy machine it may have to wait for a core for longer than a look."""
    try:
        about = Path(f"/proc/self/task/{thread.native_id}/stat").read_bytes()
    except OSError:
        return False
    return about.rpartition(b")")[2].split()[:1] == [b"R"]


def _start_over() -> None:
    global _hooked
    _running.clear()
    _hooked = False


os.register_at_fork(after_in_child=_start_over)
