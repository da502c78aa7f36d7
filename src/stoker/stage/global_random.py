"""The random generators that exist once per process and that users' functions draw from: `random`, `numpy.random` and PyTorch's.

PyTorch's is its CPU generator, and only if torch has been imported. Checking whether a generator was drawn from must cost next to
nothing, because it happens around every chunk of samples.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..turns import TURNS, Turn

#: what a Mersenne Twister consists of: 624 words, and the number of the next one
_WORDS = 625


class _Memory:
    """Where a Mersenne Twister keeps its words, for NumPy to look at."""

    def __init__(self, address: int) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": (_WORDS,), "typestr": "=u4", "version": 3}


def _words_at(address: int) -> NDArray[np.uint32]:
    return np.asarray(_Memory(address))


class Generator(ABC):
    """One of them."""

    @abstractmethod
    def look(self) -> Any:
        """Something that changes when it is drawn from; None while it does not exist."""

    def moved(self, before: Any) -> bool:
        """Whether it was drawn from since its state was `before`."""
        return bool(before != self.look())

    @abstractmethod
    def save(self) -> Any:
        """Its whole state."""

    @abstractmethod
    def restore(self, state: Any) -> None: ...

    @abstractmethod
    def seed(self, key: int) -> None:
        """Begin a sequence that 64 bits choose; each generator takes other ones of them, as several have the same algorithm."""


class _PythonRandom(Generator):
    def __init__(self) -> None:
        self._hidden: Any = random.seed.__self__  # type: ignore[attr-defined]  # the instance that the module's functions are of
        self._twister = self._words()

    def _words(self) -> NDArray[np.uint32] | None:
        """The generator's words where CPython keeps them, the number of the next one first; None where they are not there.

        `getstate()` makes 625 integers of them, which takes 8 us.
        """
        base, inner = object.__basicsize__, type(self._hidden).__base__
        if inner is None or inner.__basicsize__ < base + 4 * _WORDS:
            return None
        words = _words_at(id(self._hidden) + base)
        return words if (*words[1:].tolist(), words.item(0)) == random.getstate()[1] else None

    def look(self) -> Any:
        words = self._twister
        if words is None:
            return random.getstate()
        return words.item(0), words.item(1), self._hidden.gauss_next  # the second changes whenever all of them do

    def save(self) -> Any:
        return random.getstate()

    def restore(self, state: Any) -> None:
        random.setstate(state)

    def seed(self, key: int) -> None:
        random.seed(key)


class _NumpyRandom(Generator):
    """NumPy's global generator, unless the program has put one of another kind in its place: those cannot be seeded again.

    A number that `numpy.random.normal` keeps for its next call cannot be seen without copying the whole state. Seeding drops it.
    """

    def __init__(self) -> None:
        self._bits: Any = None
        self._words: NDArray[np.uint32] | None = None

    def look(self) -> Any:
        bits = np.random.get_bit_generator()  # type: ignore[attr-defined]
        if bits is not self._bits:
            twists = isinstance(bits, np.random.MT19937)
            self._words = _words_at(bits.ctypes.state_address) if twists else None
            self._bits = bits
        words = self._words
        return None if words is None else (words.item(624), words.item(0))

    def save(self) -> Any:
        return np.random.get_state(legacy=False)

    def restore(self, state: Any) -> None:
        np.random.set_state(state)

    def seed(self, key: int) -> None:
        if self.look() is not None:
            np.random.seed(key >> 32)


class _TorchRandom(Generator):
    """PyTorch's, one thread at a time.

    Its methods take a mutex of its own while they hold the GIL. A thread that has the mutex may let go of the GIL, when an object
    that it makes starts a garbage collection and that frees a tensor; one that took the GIL and wants the mutex would never end.
    """

    def __init__(self) -> None:
        self._renew_lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    @property
    def _generator(self) -> Any:
        return getattr(sys.modules.get("torch"), "default_generator", None)  # None: it is still being imported

    def look(self) -> Any:
        generator = self._generator
        if generator is None:
            return None
        with self._lock:
            return generator.get_state()

    def moved(self, before: Any) -> bool:
        now = self.look()
        return now is not None and before is not None and not now.equal(before)

    def save(self) -> Any:
        return self.look()

    def restore(self, state: Any) -> None:
        if state is not None:
            with self._lock:
                self._generator.set_state(state)

    def seed(self, key: int) -> None:
        generator = self._generator
        if generator is not None:
            with self._lock:
                generator.manual_seed(key)  # of these it uses the lower half; torch.manual_seed would seed the devices, too


#: of this process. A set of them is a number, with a bit for each
GENERATORS: tuple[Generator, ...] = (_PythonRandom(), _NumpyRandom(), _TorchRandom())
NONE, ALL = 0, 7
#: for each set, the bits and the generators in it
_CHOSEN = [tuple((1 << at, generator) for at, generator in enumerate(GENERATORS) if which >> at & 1) for which in range(ALL + 1)]


class Watch:
    """Which of some generators are drawn from."""

    __slots__ = ("_before", "_seen", "_which")

    def __init__(self, which: int) -> None:
        self._which, self._seen = _CHOSEN[which], NONE
        self.start()

    def start(self) -> None:
        """Look at them as they are now."""
        self._before = [generator.look() for _, generator in self._which]

    def stop(self) -> int:
        """Those that were drawn from between a `start` and the next `stop`."""
        for (bit, generator), before in zip(self._which, self._before):
            if generator.moved(before):
                self._seen |= bit
        return self._seen

    @property
    def more(self) -> bool:
        """Whether there is a generator now that was not there before: torch was imported."""
        return any(before is None and generator.look() is not None for (_, generator), before in zip(self._which, self._before))


class WatchedTurn(Turn):
    """A turn in parallel with others; with `watches`, it notes whether a generator is drawn from in that time."""

    __slots__ = ("_watch", "_watches")

    def __init__(self, watches: bool) -> None:
        super().__init__(False)
        self._watches = watches
        self._watch: Watch | None = None

    def begin(self) -> None:
        TURNS.begin(self)
        if self._watches:
            self._watch = Watch(ALL)

    def pause(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def resume(self) -> None:
        if self._watch is not None:
            self._watch.start()

    def drawn(self) -> int:
        """The generators that somebody drew from."""
        return NONE if self._watch is None else self._watch.stop()

    def end(self) -> None:
        TURNS.end(self)


class SeededTurn(Turn):
    """An exclusive turn, for a function that draws from the generators `which`; the others are watched.

    At the end, and while it pauses, the generators are restored, because they are the program's; worker processes need no
    restoring. With `tries`, it notes which of its own generators the function does draw from.
    """

    __slots__ = ("_bits", "_others", "_own", "_paused", "_saved", "_tries", "_which", "more")

    def __init__(self, which: int, tries: bool, patience_s: float) -> None:
        super().__init__(True, patience_s)
        self._which, self._tries = _CHOSEN[which], tries
        self._bits = which
        self._own: Watch | None = None
        self._others: Watch | None = None
        self._saved: list[Any] | None = None
        self._paused: list[Any] = []
        self.more = False  # whether torch was imported in the meantime, so that the function may have drawn unseeded numbers

    def begin(self) -> None:
        TURNS.begin(self)
        self._others = Watch(ALL & ~self._bits)
        if not TURNS.private or self.outer is not None:
            self._saved = self._states()

    def seed(self, key: int) -> None:
        """Begin the sequences of another sample."""
        if not self.lasts:
            return  # it was taken away, and others may be at the generators
        self.since_s = time.monotonic()
        if self._tries:
            self._stop()
        for _, generator in self._which:
            generator.seed(key)
        if self._tries:
            if self._own is None:
                self._own = Watch(self._bits)
            self._own.start()

    def pause(self) -> None:
        self._stop()
        assert self._others is not None
        self._others.stop()
        self._paused = self._states()
        self._restore(self._saved)

    def resume(self) -> None:
        if self._saved is not None:
            self._saved = self._states()
        self._restore(self._paused)
        assert self._others is not None
        self._others.start()
        if self._own is not None:
            self._own.start()

    def surrender(self) -> None:
        self._restore(self._saved)

    def drawn(self) -> int:
        """The generators that the function drew from, as far as that is looked at."""
        return self._stop() | (NONE if self._others is None else self._others.stop())

    def end(self) -> None:
        if self.lasts:
            self._restore(self._saved)
        TURNS.end(self)

    def go_on(self, states: list[Any]) -> None:
        """Continue sequences from these states."""
        if self.lasts:
            self._restore(states)

    def left(self) -> list[Any]:
        """The states that its sequences are at."""
        return self._states()

    def _stop(self) -> int:
        if self._own is None:
            return NONE
        self.more = self.more or self._own.more
        return self._own.stop()

    def _states(self) -> list[Any]:
        return [generator.save() for _, generator in self._which]

    def _restore(self, states: list[Any] | None) -> None:
        for (_, generator), state in zip(self._which, states or ()):
            generator.restore(state)
