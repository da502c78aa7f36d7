"""Mixing in exact proportions, by arithmetic: which member is at a position, and which of its samples.

Positions are cut into blocks of one fixed pattern, in which every member appears as often as its weight says, as evenly spread as
possible. So any position can be computed alone, and every prefix of an epoch keeps the proportions to within one sample each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..source.chunk import Ints

#: the longest pattern; weights that would need a longer one are rounded to this many parts
MAX_PATTERN = 10_000


def pattern_of(weights: Sequence[float]) -> tuple[int, ...]:
    """The members' numbers in one block.

    >>> pattern_of([0.75, 0.25])
    (0, 0, 1, 0)
    """
    counts = _counts(weights)
    total, members = sum(counts), range(len(counts))
    if len(counts) == 1:
        return (0,)
    # Tijdeman's rule for taking turns fairly: of the members that are owed at least 1/slack of a sample, the one that would
    # soonest be owed too much. It keeps everyone within 1 - 1/slack of its share. Whoever is owed most would be simpler, but lets
    # members of small weight wait for too long when there are many.
    slack = 2 * len(counts) - 2
    given = [0] * len(counts)
    pattern = []
    for place in range(1, total + 1):
        owed = [slack * (count * place - total * had) for count, had in zip(counts, given)]  # in parts of slack * total
        ready = (member for member in members if owed[member] >= total)
        member = min(ready, key=lambda m: (total * (slack - 1) - owed[m]) / counts[m])
        given[member] += 1
        pattern.append(member)
    return tuple(pattern)


def _counts(weights: Sequence[float]) -> list[int]:
    if not all(isinstance(w, (int, float)) and not isinstance(w, bool) and math.isfinite(w) and w > 0 for w in weights):
        raise ConfigError(f"mix(weights={list(weights)!r}): must be a number above 0 for each pipeline")
    parts = [Fraction(str(weight)) for weight in weights]
    shares = [part / sum(parts) for part in parts]
    counts = _in_whole_numbers(shares)
    if sum(counts) <= MAX_PATTERN:
        return counts
    if min(shares) * MAX_PATTERN < 1:
        raise ConfigError(
            f"mix(weights={list(weights)!r}): the smallest weight is less than 1/{MAX_PATTERN:,} of the sum; omit that pipeline"
        )
    counts = _in_whole_numbers([share.limit_denominator(MAX_PATTERN) for share in shares])  # 0.333333333 means a third
    if sum(counts) <= MAX_PATTERN:
        return counts
    rounded = [math.floor(share * MAX_PATTERN) for share in shares]
    for member in sorted(range(len(shares)), key=lambda m: rounded[m] - shares[m] * MAX_PATTERN)[: MAX_PATTERN - sum(rounded)]:
        rounded[member] += 1
    return rounded


def _in_whole_numbers(shares: Sequence[Fraction]) -> list[int]:
    """The smallest whole numbers in the same proportions."""
    common = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * common) for share in shares]
    divisor = math.gcd(*counts)
    return [count // divisor for count in counts]


@lru_cache(maxsize=64)
def _tables(pattern: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """Member at each place of a block, how many of that member came before it there, and how many each has in a block."""
    members = np.asarray(pattern, np.int64)
    counts = np.bincount(members).astype(np.int64)
    before = np.zeros(len(members), np.int64)
    for member in range(len(counts)):
        before[members == member] = np.arange(counts[member])
    return members, before, counts


def drawn(pattern: tuple[int, ...], positions: Ints) -> tuple[NDArray[np.int64], Ints]:
    """The member at each position, and how many of its samples were drawn before."""
    members, before, counts = _tables(pattern)
    block, place = np.divmod(positions, len(members))
    chosen = members[place]
    return chosen, block * counts[chosen] + before[place]


def mixed_rows(pattern: tuple[int, ...], lengths: Sequence[int | None], until: str) -> int | None:
    """How many positions there are until the first member is used up, or until all have been seen once; None: without end."""
    ends = [_position_of(pattern, member, length) for member, length in enumerate(lengths) if length is not None]
    if until == "all":
        # A member's last sample must be in it, so the end is right after that.
        return None if len(ends) < len(lengths) else max(_position_of(pattern, m, n - 1) + 1 for m, n in enumerate(lengths) if n)
    return min(ends, default=None)


def _position_of(pattern: tuple[int, ...], member: int, number: int) -> int:
    """Where the sample `number` of a member is drawn."""
    members, before, counts = _tables(pattern)
    block, rest = divmod(number, int(counts[member]))
    place = int(np.flatnonzero((members == member) & (before == rest))[0])
    return block * len(pattern) + place
