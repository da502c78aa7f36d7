"""Whose turn it is to use what a process has only once: the random generators of Python, NumPy and PyTorch.

Users' functions that do not draw from them run in parallel; one that does runs alone. Nobody may wait for ever: a thread that
waits for other threads of Stoker in the middle of a function gives its turn up meanwhile (`aside`), and one that has had it for
long, perhaps because its function never returns, loses it to those who wait.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

#: how long a turn may last while others wait, unless it is known to need more; and how often these look at it
PATIENCE_S, _LOOK_S = 2.0, 0.5


class Turn:
    """A stretch of a thread's time, `alone` or beside others. Turns of one thread may lie within each other."""

    __slots__ = ("alone", "holds", "lasts", "lost", "outer", "patience_s", "since_s", "thread")

    def __init__(self, alone: bool, patience_s: float = PATIENCE_S) -> None:
        self.alone, self.patience_s = alone, patience_s
        self.holds = False  # whether others have to wait for it; not where it lies within one they wait for already
        self.lasts = False  # whether it has begun and neither ended nor was lost
        self.lost = False  # it was taken away
        self.outer: Turn | None = None
        self.thread = 0
        self.since_s = 0.0  # its last sign of life

    def pause(self) -> None:
        """It is about to be given up for a while."""

    def resume(self) -> None:
        """It goes on."""

    def surrender(self) -> None:
        """It is taken away, by another thread."""


class TurnTaking:
    """Many beside each other, or one alone. Who wants to be alone comes before those who do not."""

    def __init__(self) -> None:
        #: whether this process does nothing but run users' functions: nobody else draws from its generators
        self.private = False
        #: not 0 while the program waits for a batch, in its main thread; another number each time
        self.awaited = 0
        #: how many functions have returned that had lost a turn alone, and may have drawn in that of another
        self.intrusions = 0
        self._numbers = count(1)
        self._start_over()
        os.register_at_fork(after_in_child=self._start_over)

    def _start_over(self) -> None:
        self._main = threading.main_thread().ident
        self._lock = threading.Lock()  # of what follows
        self._changed = threading.Condition(self._lock)
        self._queue: dict[Turn, threading.Condition] = {}  # who wants to be alone, the first first
        self._beside: set[Turn] = set()
        self._alone: Turn | None = None
        self._innermost: dict[int, Turn] = {}  # by thread
        self._over = False

    def begin(self, turn: Turn) -> None:
        """Wait for the turn, and take it. `end` it in any case, also where this was interrupted."""
        turn.thread = thread = threading.get_ident()
        outer = turn.outer = self._innermost.get(thread)
        if outer is None or (turn.alone and not outer.alone):
            if outer is not None:
                outer.pause()
                self._release(outer)
            self._acquire(turn)
        turn.lasts = True
        self._innermost[thread] = turn

    def end(self, turn: Turn) -> None:
        outer = turn.outer
        if turn.lasts:
            turn.lasts = False
            if outer is None:
                self._innermost.pop(turn.thread, None)
            else:
                self._innermost[turn.thread] = outer
        elif turn.lost and turn.alone:
            self.intrusions += 1
        held = turn.holds
        self._release(turn)
        if held and outer is not None:
            self._acquire(outer)
            outer.resume()

    def forget(self, thread: int | None) -> None:
        """Take the turns of a thread away from it: nobody waits for it any more."""
        with self._lock:
            self._forget(thread or 0)

    def end_all(self) -> None:
        """The program is ending: threads that wait for a turn get none, and may be left alone."""
        with self._lock:
            self._over = True
            for condition in (self._changed, *self._queue.values()):
                condition.notify_all()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let other threads take their turns while this one waits in the middle of a function."""
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
        with self._lock:
            if turn.alone:
                queued = self._queue[turn] = threading.Condition(self._lock)
                while self._alone is not None or next(iter(self._queue)) is not turn:
                    self._look(queued)
                self._alone, turn.holds = turn, True
                del self._queue[turn]
                while self._beside:
                    self._look(self._changed)
            else:
                while self._alone is not None or self._queue:
                    self._look(self._changed)
                self._beside.add(turn)
                turn.holds = True
            turn.since_s = time.monotonic()

    def _look(self, condition: threading.Condition) -> None:
        """Wait for something to change."""
        if not condition.wait(_LOOK_S):
            self._hurry()
        if self._over and threading.get_ident() != self._main:
            raise SystemExit

    def _release(self, turn: Turn) -> None:
        with self._lock:
            self._let_go(turn)

    def _let_go(self, turn: Turn) -> None:
        """Give up the turn, or the place in the queue for it; wake whoever may have it now."""
        self._queue.pop(turn, None)
        self._beside.discard(turn)
        if self._alone is turn:
            self._alone = None
        turn.holds = False
        if self._alone is not None:
            if not self._beside:
                self._changed.notify_all()
        elif self._queue:
            next(iter(self._queue.values())).notify()
        elif turn.alone:
            self._changed.notify_all()

    def _hurry(self) -> None:
        """Take turns away that last for too long: others wait. One alone has begun when none beside it is left."""
        now = time.monotonic()
        alone = [] if self._alone is None else [self._alone]
        for turn in [*self._beside] or alone:
            if turn.lasts and now - turn.since_s > turn.patience_s:
                self._forget(turn.thread)

    def _forget(self, thread: int) -> None:
        turn = self._innermost.pop(thread, None)
        while turn is not None:
            turn.surrender()
            turn.lasts, turn.lost = False, True
            self._let_go(turn)
            turn = turn.outer


#: of this process
TURNS = TurnTaking()
