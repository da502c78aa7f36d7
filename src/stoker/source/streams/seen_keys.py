"""Notices duplicate keys in a shard that is read in sequence, as making an index would."""

from __future__ import annotations

import numpy as np

from ...errors import CorruptShard
from ..paths import printable

#: keys kept as they are before they become hashes: so many, or so great a part of all
_RECENT, _PART = 4096, 64
#: hashes that are kept; later keys are compared with these
MOST = 1 << 24


class SeenKeys:
    """The keys of a shard so far: the latest unchanged, earlier ones as 64-bit hashes, eight bytes each, in one sorted array.

    So a key that came a little earlier is noticed at once, and any other when the latest are merged into the rest: at the latest
    by `check` at the end of the shard. Python's hashes of bytes have a secret, so nobody can construct a collision; in a shard of
    ten million samples one happens by chance once in 400,000 shards.
    """

    def __init__(self, told: str) -> None:
        self._told = told
        self._recent: set[bytes] = set()
        self._hashes = np.empty(0, np.int64)

    def add(self, key: bytes) -> None:
        """The next sample's key."""
        if key in self._recent:
            raise self._twice(key)
        self._recent.add(key)
        if len(self._recent) >= max(_RECENT, len(self._hashes) // _PART):
            self.check()

    def check(self) -> None:
        """Compare the latest keys with all that came before."""
        keys = list(self._recent)
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        order = np.argsort(hashes)
        fresh = hashes[order]
        at = np.searchsorted(self._hashes, fresh)
        known = np.flatnonzero(at < len(self._hashes))
        known = known[self._hashes[at[known]] == fresh[known]]
        if len(known):
            raise self._twice(keys[int(order[known[0]])])
        if len(self._hashes) < MOST:
            self._hashes = np.insert(self._hashes, at, fresh)
        self._recent.clear()

    def _twice(self, key: bytes) -> CorruptShard:
        return CorruptShard(
            f"{self._told}: the key {printable(key)!r} appears twice; the files of a sample must be adjacent: write the shard "
            "sorted (`stoker tar sort`)",
            shard=self._told,
        )
