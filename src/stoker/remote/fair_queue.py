"""Whose turn it is: work that several ask for, shared out so that each gets the same time. No I/O, no clock, no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

J = TypeVar("J")


class _Share(Generic[J]):
    def __init__(self, had_s: float) -> None:
        self.had_s = had_s
        self.urgent: deque[J] = deque()
        self.usual: deque[J] = deque()

    def __bool__(self) -> bool:
        return bool(self.urgent or self.usual)


class FairQueue(Generic[J]):
    """Jobs of several. Who has had the least time is next; who had nothing to do meanwhile gets no credit for it.

    The same job may be put by several. `open` says of a job whether somebody still has to do it.
    """

    def __init__(self, open_job: Callable[[J], bool]) -> None:
        self._open = open_job
        self._shares: dict[Hashable, _Share[J]] = {}
        self._now_s = 0.0  # what whoever was served last had had

    def put(self, who: Hashable, job: J, first: bool = False) -> None:
        """One more job; with `first` before those that `who` has put without."""
        share = self._shares.setdefault(who, _Share(self._now_s))
        if not share:
            share.had_s = max(share.had_s, self._now_s)
        (share.urgent if first else share.usual).append(job)

    def next(self) -> tuple[Hashable, J] | None:
        """The job to do now, and on whose account; None: there is none."""
        while waiting := [(share.had_s, number, who) for number, (who, share) in enumerate(self._shares.items()) if share]:
            had_s, _, who = min(waiting)
            share = self._shares[who]
            job = (share.urgent or share.usual).popleft()
            if self._open(job):
                self._now_s = had_s
                return who, job
        return None

    def charge(self, who: Hashable, seconds: float) -> None:
        """What a job took."""
        if who in self._shares:
            self._shares[who].had_s += seconds

    def leave(self, who: Hashable) -> None:
        """Forget what somebody has put."""
        self._shares.pop(who, None)
