"""Whether two samples come from one distribution: Kolmogorov and Smirnov for numbers, chi-square for kinds.

Both at one in ten thousand. Seeds are fixed, so a test passes or fails for good.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike

_CHANCE = 1e-4
_DEVIATIONS = 3.719  # of a normal distribution, exceeded with that chance


def distance(one: ArrayLike, other: ArrayLike) -> float:
    """The largest distance of the two distribution functions, as a share of the largest that chance allows.

    >>> distance(range(1000), range(1000))
    0.0
    >>> distance(range(1000), range(100, 1100)) > 1
    True
    """
    a, b = np.sort(np.asarray(one, float)), np.sort(np.asarray(other, float))
    places = np.concatenate([a, b])
    apart = np.abs(np.searchsorted(a, places, "right") / len(a) - np.searchsorted(b, places, "right") / len(b)).max()
    allowed = math.sqrt(-math.log(_CHANCE / 2) / 2 * (1 / len(a) + 1 / len(b)))
    return float(apart) / allowed


def disparity(one: Iterable[Hashable], other: Iterable[Hashable]) -> float:
    """Chi-square of how often each kind came in two samples, as a share of the largest that chance allows.

    Kinds that are too rare to tell (fewer than ten in both) count as one kind.
    """
    a, b = Counter(one), Counter(other)
    common = [kind for kind in a.keys() | b.keys() if a[kind] + b[kind] >= 10]
    counts = [(a[kind], b[kind]) for kind in common]
    counts.append((a.total() - sum(x for x, _ in counts), b.total() - sum(y for _, y in counts)))
    up, down = math.sqrt(b.total() / a.total()), math.sqrt(a.total() / b.total())
    statistic = sum((up * x - down * y) ** 2 / (x + y) for x, y in counts if x + y)
    freedom = max(1, sum(1 for x, y in counts if x + y) - 1)
    ninth = 2 / (9 * freedom)  # Wilson and Hilferty: the cube root is nearly normal
    return float(statistic / (freedom * (1 - ninth + _DEVIATIONS * math.sqrt(ninth)) ** 3))
