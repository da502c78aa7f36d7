"""What one worker keeps between tasks: an arena for encoded bytes and a decoder. Made on first use, freed with the worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from ..errors import KernelError
from ..kernel import native


@dataclass(slots=True)
class Notes:
    """What happened to pictures since somebody last asked, and where one of them is; and what was tried again.

    Seek indices that were used, and that did not fit; damaged pictures that were decoded all the same; those that Pillow decoded.
    Samples that `cache` had, and had not. Pictures that a GPU decoded, and those it gave back; the seconds its work was under way
    for these, and the memory it took, added up.
    """

    seeks_used: int = 0
    seeks_unfit: int = 0
    unfit: str = ""
    damaged: int = 0
    damage: str = ""
    pillow: int = 0
    retried: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    device_images: int = 0
    device_refused: int = 0
    device_s: float = 0.0
    device_bytes: int = 0


#: nothing happened; one for all, because mostly nothing does
NO_NOTES = Notes()


#: a worker looks closely at what a task takes so often at most
_LOOK_S = 0.005
#: and asks so often how long it had no core
_ASK_S = 0.01


class Looks:
    """How closely the workers of this process look at what tasks take."""

    everything: ClassVar[set[int]] = set()  # who wants to know of every task; changed in single steps, by any thread


class Scratch:
    """The private memory of one worker; never shared between threads."""

    __slots__ = (
        "_arena", "_asked_s", "_decoder", "_kept", "_looks", "_notes", "_queued_s", "_schedule", "again", "aside", "device",
        "slow", "tried_s",
    )  # fmt: skip

    def __init__(self) -> None:
        #: whether the task at hand could be run again: its rows are read from the source, and no function has seen them before
        self.again = False
        #: within it others use the core: for who waits for what another task holds
        self.aside: Callable[[], AbstractContextManager[None]] = nullcontext
        #: who decodes pictures of the task at hand on a device (`DeviceRows` of the image stage); None: nobody does
        self.device: Any = None
        #: rows of the task at hand that took a function much longer than others: their slots, and seconds
        self.slow: list[tuple[int, float]] = []
        #: when it was last tried how long the interpreter lock takes to get
        self.tried_s = 0.0
        self._notes: Notes | None = None
        self._looks: dict[int, tuple[float, int]] = {}  # by kind of work: when to look closely again, tasks not looked at
        self._asked_s = self._queued_s = 0.0
        self._schedule: int | None = None  # a file that tells how long this thread waited for a core; -1: there is none
        self._arena: native.Arena | None = None
        self._decoder: native.Decoder | None = None
        self._kept: dict[Any, Any] = {}

    @property
    def arena(self) -> native.Arena:
        if self._arena is None:
            self._arena = native.Arena()
        return self._arena

    @property
    def decoder(self) -> native.Decoder:
        if self._decoder is None:
            self._decoder = native.Decoder()
        return self._decoder

    def keep(self, owner: Any, make: Callable[[], Any]) -> Any:
        """What `make()` gave the first time, for this worker and this owner."""
        if owner not in self._kept:
            self._kept[owner] = make()
        return self._kept[owner]

    def weight(self, kind: Any) -> int:
        """How many tasks the one that begins now stands for, where it is looked at closely; 0: it is not.

        Looking costs some microseconds. Of tasks that take longer than that a hundred times each is looked at; of shorter ones
        as many as are worth it.
        """
        now, number = time.monotonic(), id(kind)
        due, unseen = self._looks.get(number, (0.0, 0))
        if now < due and not Looks.everything:
            self._looks[number] = due, unseen + 1
            return 0
        self._looks[number] = now + _LOOK_S, 0
        return unseen + 1

    def queued_s(self, now: float | None = None) -> float:
        """How long the worker's thread was ready to run, ever, and had no core; 0 where the system does not say.

        With `now` (monotonic) it may be what was so shortly before: asking lets the interpreter lock go.
        """
        if now is not None and now < self._asked_s + _ASK_S:
            return self._queued_s
        if self._schedule is None:
            try:
                self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._schedule = -1
        self._asked_s = time.monotonic() if now is None else now
        if self._schedule >= 0:
            with suppress(OSError, IndexError, ValueError):  # the thread it began with is gone
                self._queued_s = int(os.pread(self._schedule, 64, 0).split()[1]) * 1e-9
        return self._queued_s

    @property
    def notes(self) -> Notes:
        """Where to note what happens."""
        if self._notes is None:
            self._notes = Notes()
        return self._notes

    def take_notes(self) -> Notes:
        """What was noted since the last call."""
        notes, self._notes = self._notes, None
        return NO_NOTES if notes is None else notes

    def __reduce__(self) -> NoReturn:
        raise KernelError("a worker's scratch memory cannot be pickled or copied: every worker makes its own")

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
        if self._schedule is not None and self._schedule >= 0:
            os.close(self._schedule)
        self._arena = self._decoder = self._schedule = None
        self._kept.clear()
