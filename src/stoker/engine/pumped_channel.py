"""A channel of an executor in which the thread that asks one channel for outcomes receives for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from .executor import Channel, Outcome

C = TypeVar("C")
R = TypeVar("R")


class Pumping(Protocol):
    """An executor as its channels see it."""

    def pump(self, timeout_s: float, until: Callable[[], object]) -> None:
        """Receive until something is there, at most for so long; what comes is given to the channels' `answer`."""

    def drop(self, number: int) -> None:
        """The channel of this number has ended."""


class PumpedChannel(Channel[C, R]):
    """Keeps outcomes until they are collected; those that come after cancellation are dropped."""

    def __init__(self, executor: Pumping, number: int) -> None:
        self.number, self.cancelled = number, False
        self._pumping = executor
        self._done: deque[Outcome[C, R]] = deque()

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        self._pumping.pump(timeout_s, lambda: self._done or self.cancelled)
        outcomes: list[Outcome[C, R]] = []
        while self._done:
            outcomes.append(self._done.popleft())
        return outcomes

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._pumping.drop(self.number)

    def answer(self, outcome: Outcome[C, R]) -> None:
        """Take an outcome in, in the thread that pumps."""
        if not self.cancelled:
            self._done.append(outcome)
