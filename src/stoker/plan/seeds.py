"""Keys: seed, epoch and purpose as one 64-bit number. Randomness is a function of place, never of who computed it."""

from __future__ import annotations

from typing import Any

import numpy as np

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """splitmix64's finaliser: every bit of the result depends on every bit of the value."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def key_of(*numbers: int) -> int:
    """One 64-bit key from a row of numbers; another order gives another key."""
    key = len(numbers)
    for number in numbers:
        key = mix(key ^ mix(number & _MASK))
    return key


class SampleRandom:
    """NumPy generators for users' functions, keyed by (seed, epoch, position, stream).

    One Philox generator is re-keyed for every sample: making a new one costs ten times as much. A worker owns its
    `SampleRandom`; the generator handed out is valid until the next call.
    """

    __slots__ = ("_bits", "_generator", "_key", "_state", "_stream")

    def __init__(self, seed: int, stream: int) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._state: Any = dict(self._bits.state)
        self._key, self._stream = key_of(seed), stream

    def at(self, epoch: int, position: int) -> np.random.Generator:
        # Counter word 0 counts draws; words 1 to 3 are the place, so no two samples share a block.
        state = self._state
        state["state"] = {
            "counter": np.array([0, position & _MASK, epoch & _MASK, self._stream], np.uint64),
            "key": np.array([self._key, 0], np.uint64),
        }
        state["buffer_pos"] = 4
        state["has_uint32"] = 0
        self._bits.state = state
        return self._generator
