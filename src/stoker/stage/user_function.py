"""Calls a user's function for the stages: alone and seeded if it draws from the process's generators, otherwise in parallel.

Nobody declares which functions draw. So the first call of each, in every process, is made alone and seeded, and what it drew from
is detected. The program waits for its first batch then, so its own random numbers are not disturbed. A function that has drawn is
always called like that afterwards; one that has not runs in parallel.

It may still draw for a later sample. If that is certain (in worker processes, in the program's own thread, and while the program
waits), and the rows can be had again, their task is done again with the function on trial. Elsewhere this is not checked: another
thread of the program may have drawn, and functions that draw nothing must not become slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..faults import RunAgain
from ..plan.nodes import Function
from ..plan.seeds import key_of, mix
from ..source.chunk import Chunk
from ..turns import PATIENCE_S, TURNS
from .global_random import ALL, NONE, SeededTurn, WatchedTurn
from .stage import each_row

#: chunks for which a function is called alone, once somebody drew while it ran; if it never does, it was not the one
_TRIALS = 16

#: what is done to a row
_Act = Callable[[int], Any]
#: runs some rows, and calls a function, if there is one, before each
Body = Callable[[range, "Callable[[int], None] | None"], list[Any]]


class UserFunction:
    """A function of a pipeline and its random stream. What is learned about it holds in this process."""

    def __init__(self, fn: Function, seed: int, stream: int, seeded: bool) -> None:
        self.fn = fn
        self._key = key_of(seed, stream)
        self._seeded = seeded
        self._drawn = NONE  # the generators it draws from
        self._new = seeded  # not called yet
        self._trials = 0  # chunks for which it is on trial
        self._patience_s = PATIENCE_S  # how long a call may keep others waiting
        self.usual_s = 0.0  # for a row

    def learn(self, row_s: float) -> None:
        """Rows of a chunk took so long each. What is much longer than usual hardly counts."""
        self.usual_s += 0.1 * (min(row_s, 4 * self.usual_s) - self.usual_s) if self.usual_s else row_s

    @property
    def draws(self) -> bool:
        """Whether it was seen drawing, so that only one of it can run at a time."""
        return self._drawn != NONE

    def each_row(self, chunk: Chunk, act: _Act, again: bool, patient: Callable[[_Act], _Act] | None = None) -> list[Any]:
        """`each_row` with this function in `act`; `again` says whether the chunk's task could be run again from its start.

        With `patient`, an act is done again when it failed; each time from the same random numbers.
        """
        if not self._seeded:
            return each_row(chunk, patient(act) if patient else act, self.fn)

        prepare: Callable[[int], None] | None = None
        positions: list[int] = []

        def seeded(row: int) -> Any:
            if prepare is not None:
                prepare(positions[row])
            return act(row)

        does = seeded if patient is None else patient(seeded)  # one patience for all rows

        def body(rows: range, before: Callable[[int], None] | None) -> list[Any]:
            nonlocal prepare, positions
            if before is None and patient is None:
                return each_row(chunk, act, self.fn, rows)
            prepare, positions = before, chunk.positions.tolist()
            return each_row(chunk, does, self.fn, rows)

        first = 0
        while first in chunk.failures:
            first += 1
        return self.run(body, len(chunk), min(first + 1, len(chunk)), chunk.epoch, again)

    def once(self, epoch: int, position: int, act: Callable[[], Any], again: bool) -> Any:
        """Call it for a whole batch, whose first row is at `position`."""
        if not self._seeded:
            return act()

        def body(rows: range, before: Callable[[int], None] | None) -> list[Any]:
            if before is not None:
                before(position)
            return [act()]

        return self.run(body, 1, 1, epoch, again)[0]

    def run(self, body: Body, rows: int, first: int, epoch: int, again: bool) -> list[Any]:
        """Run the rows; if the function is new, those up to `first` determine how the others are run."""
        results: list[Any] = []
        while len(results) < rows:
            new = self._new
            stop = first if new else rows
            alone = new or self._trials > 0 or self._drawn != NONE
            run = self._alone if alone else self._beside
            done = run(body, range(len(results), stop), epoch, again, new)
            if done is not None:
                results = results + done if results else done
        return results

    def _beside(self, body: Body, rows: range, epoch: int, again: bool, new: bool) -> list[Any] | None:
        quiet = TURNS.quiet() if again or TURNS.private else 0
        turn = WatchedTurn(quiet != 0)
        try:
            turn.begin()
            if self._trials or self._drawn:
                return None  # another thread has found out in the meantime
            done = body(rows, None)
            drawn = turn.drawn()
        finally:
            turn.end()
        if drawn and TURNS.quiet_since(quiet):
            self._trials = _TRIALS
            raise RunAgain
        return done

    def _alone(self, body: Body, rows: range, epoch: int, again: bool, new: bool) -> list[Any] | None:
        again, quiet = again or TURNS.private, TURNS.quiet()
        tries = new or self._trials > 0
        which = ALL if tries else self._drawn
        turn = SeededTurn(which, tries, self._patience_s)
        base = mix(self._key ^ mix(epoch))
        try:
            turn.begin()
            if new and not self._new:
                return None  # another thread was quicker
            intrusions = TURNS.intrusions
            done = body(rows, lambda position: turn.seed(mix(base ^ position)))
            drawn = turn.drawn()
        finally:
            turn.end()
        if turn.lost:
            self._patience_s *= 4  # others were waiting, but it may need as long each time
        if again and (turn.lost or turn.more or TURNS.intrusions != intrusions):
            raise RunAgain  # others drew in its turn, or torch was not there when it began
        if turn.lost:
            return done
        if tries:
            self._new = False
            self._trials = 0 if drawn else max(0, self._trials - 1)
            self._drawn |= drawn
        elif drawn and again and TURNS.quiet_since(quiet):
            self._drawn |= drawn
            raise RunAgain
        return done
