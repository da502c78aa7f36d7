"""Whose turn it is with what a process has only once: the random generators of Python, NumPy and PyTorch.

Users' functions that do not draw from them run beside each other; one that does runs alone. What runs beside others is short or
long, but never waits for a turn while it holds one: a thread that waits for other threads of Stoker gives its turn up meanwhile
(`aside`), and one that nobody waits for any more loses it (`forget`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class Turn:
    """A stretch of a thread's time, `alone` or beside others. Turns of one thread may lie within each other."""

    __slots__ = ("alone", "holds", "lasts", "outer")

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.holds = False  # whether others have to wait for it; not where it lies within one they wait for already
        self.lasts = False  # whether it has begun and was neither ended nor forgotten
        self.outer: Turn | None = None

    def pause(self) -> None:
        """It is about to be given up for a while."""

    def resume(self) -> None:
        """It goes on."""


class TurnTaking:
    """Many beside each other, or one alone. Who wants to be alone comes before those who do not."""

    def __init__(self) -> None:
        #: whether this process does nothing but run users' functions: nobody else draws from its generators
        self.private = False
        #: not 0 while the program waits for a batch, in its main thread; another number each time
        self.awaited = 0
        self._numbers = count(1)
        self._start_over()
        os.register_at_fork(after_in_child=self._start_over)

    def _start_over(self) -> None:
        self._main = threading.main_thread().ident
        self._queue = threading.Lock()  # of those who want to be alone: held by the one whose turn is next, or is
        self._lock = threading.Lock()  # of what follows
        self._changed = threading.Condition(self._lock)
        self._beside = 0
        self._alone: Turn | None = None
        self._innermost: dict[int, Turn] = {}  # by thread

    def begin(self, turn: Turn) -> None:
        """Wait for the turn, and take it. `end` it in any case, also where this was interrupted."""
        thread = threading.get_ident()
        outer = turn.outer = self._innermost.get(thread)
        if outer is None or (turn.alone and not outer.alone):
            if outer is not None:
                outer.pause()
                self._release(outer)
            self._acquire(turn)
        turn.lasts = True
        self._innermost[thread] = turn

    def end(self, turn: Turn) -> None:
        if turn.lasts:
            turn.lasts = False
            thread, outer = threading.get_ident(), turn.outer
            if outer is None:
                self._innermost.pop(thread, None)
            else:
                self._innermost[thread] = outer
        held = turn.holds
        self._release(turn)
        if held and turn.outer is not None:
            self._acquire(turn.outer)
            turn.outer.resume()

    def forget(self, thread: int | None) -> None:
        """Take the turns of a thread away from it: it is stuck, and nobody waits for it any more."""
        turn = self._innermost.pop(thread or 0, None)
        while turn is not None:
            turn.lasts = False
            self._release(turn)
            turn = turn.outer

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Wait for other threads of Stoker: who may need the turn that this thread has."""
        thread = threading.get_ident()
        turns: list[Turn] = []
        turn = self._innermost.pop(thread, None)
        while turn is not None:
            turn.pause()
            turns.append(turn)
            turn = turn.outer
        holders = [turn for turn in turns if turn.holds]
        for turn in holders:
            self._release(turn)
        try:
            yield
        finally:
            for turn in holders:
                self._acquire(turn)
            for turn in reversed(turns):
                turn.resume()
            if turns:
                self._innermost[thread] = turns[0]

    def wait(self) -> bool:
        """The program waits for a batch from now on, if this is its main thread; whether it did not before.

        Who was told so sets `awaited` to 0 when the batch is there.
        """
        if self.awaited or threading.get_ident() != self._main:
            return False
        self.awaited = next(self._numbers)
        return True

    def quiet(self) -> int:
        """Not 0 if the program draws nothing at this moment, because it waits, or runs this very function."""
        return -1 if self.private or threading.get_ident() == self._main else self.awaited

    def quiet_since(self, then: int) -> bool:
        """Whether that is so, and has been since `quiet` gave `then`."""
        return then == -1 or (then != 0 and then == self.awaited)

    def _acquire(self, turn: Turn) -> None:
        if not turn.alone:
            with self._lock:
                while self._alone is not None:
                    self._changed.wait()
                self._beside += 1
                turn.holds = True
            return
        self._queue.acquire()
        with self._lock:
            self._alone, turn.holds = turn, True
            while self._beside:
                self._changed.wait()

    def _release(self, turn: Turn) -> None:
        with self._lock:
            if not turn.holds:
                return
            turn.holds = False
            if turn.alone:
                self._alone = None
                self._queue.release()
            else:
                self._beside -= 1
            if turn.alone or (self._alone is not None and not self._beside):
                self._changed.notify_all()


#: of this process
TURNS = TurnTaking()
