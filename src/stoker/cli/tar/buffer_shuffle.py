"""Shuffles passing samples within a buffer, the same way for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from ...plan.seeds import key_of, mix
from ...source.streams.tar_stream import TarSample
from ..screen import amount, option

Seed = Annotated[int, amount("Seed of the shuffle: the same seed produces the same order.", "--seed", least=None)]
Memory = Annotated[str, option("SIZE", "The buffer of --shuffle holds at most this many bytes.", "--memory")]


def shuffled(
    samples: Iterable[TarSample], most: int, seed: int, nbytes: int, tell: Callable[[str], None] = lambda _: None
) -> Iterator[TarSample]:
    """Each sample waits in a buffer of up to `most` samples and `nbytes` bytes; which one goes next depends on the seed alone.

    `tell` is called, once, if the limit on bytes keeps the buffer small.
    """
    buffer: list[TarSample] = []
    key, drawn, held, complained = key_of(seed, 0x5075), 0, 0, False
    for sample in samples:
        buffer.append(sample)
        held += _weight(sample)
        while len(buffer) >= max(2, most) or (held > nbytes and len(buffer) > 1):
            if len(buffer) < most and not complained:
                complained = True
                tell(f"--memory holds the buffer of --shuffle to about {len(buffer):,} samples")
            out = _draw(buffer, mix(key ^ drawn))
            drawn += 1
            held -= _weight(out)
            yield out
    while buffer:
        yield _draw(buffer, mix(key ^ drawn))
        drawn += 1


def permuted(names: list[str], seed: int) -> list[str]:
    """The names in an order that depends on the seed alone."""
    key = key_of(seed, 0x0DE4)
    return [names[at] for at in sorted(range(len(names)), key=lambda at: mix(key ^ at))]


def _draw(buffer: list[TarSample], number: int) -> TarSample:
    at = number % len(buffer)
    buffer[at], buffer[-1] = buffer[-1], buffer[at]
    return buffer.pop()


def _weight(sample: TarSample) -> int:
    return sum(map(len, sample.fields.values())) + len(sample.key)
