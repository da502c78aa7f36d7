"""The order of samples: which source index is at a position of an epoch.

Every verb maps positions to positions, so an order is a composition of pure functions over int64 arrays: no shuffle list, O(1)
memory at a billion samples, and any position can be computed alone. Verbs are listed as the user wrote them, source first;
positions are resolved from the last verb back to the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..kernel import native
from ..source.chunk import Ints
from .mix_pattern import drawn, mixed_rows
from .nodes import Member, Mix, OrderNode, Repeat, Shuffle, Skip, Take
from .seeds import key_of

#: the longest order that the permutation supports
MAX_LENGTH = 1 << 40


@dataclass(frozen=True, slots=True)
class Places:
    """Positions of an epoch, and the source indices at these positions."""

    positions: Ints
    indices: Ints
    epoch: int
    stores: NDArray[np.bool_] | None = None  # which of them a full cache has room for; None: it is not full

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, first: int, stop: int) -> Places:
        whole = stop - first == len(self.positions)
        return self if whole else self.take(slice(first, stop))

    def take(self, rows: Ints | slice) -> Places:
        """Some of them."""
        stores = None if self.stores is None else self.stores[rows]
        return Places(self.positions[rows], self.indices[rows], self.epoch, stores)


@dataclass(frozen=True, slots=True)
class Order:
    """The verbs over a source of `source_length` samples."""

    verbs: tuple[OrderNode, ...]
    source_length: int

    def __post_init__(self) -> None:
        if self.source_length > MAX_LENGTH:
            raise ConfigError(f"{self.source_length:,} samples are more than the 2^40 an order can hold")
        for at, verb in enumerate(self.verbs):
            if isinstance(verb, Shuffle):
                _check_shuffled(_length(self.verbs[:at], self.source_length))

    @property
    def length(self) -> int | None:
        """Samples in one epoch; None: without end."""
        return _length(self.verbs, self.source_length)

    @property
    def each_once(self) -> bool:
        """Whether samples come in passes, each with every sample of the source once."""
        kinds = [type(verb) for verb in self.verbs]
        first = kinds.index(Repeat) if Repeat in kinds else len(kinds)
        return set(kinds[:first]) <= {Shuffle} and set(kinds[first:]) <= {Repeat}

    def places(self, positions: Ints, epoch: int) -> Places:
        """The samples at these positions: computed once for a whole batch, then divided among its tasks."""
        return Places(positions, self.resolve(positions, epoch), epoch)

    def resolve(self, positions: Ints, epoch: int) -> Ints:
        """The source index at each position of an epoch."""
        return _resolve(self.verbs, self.source_length, positions, epoch) if len(positions) else positions


def _check_shuffled(n: int | None) -> None:
    if n is None:
        raise ConfigError("shuffle after an endless repeat would never see the end of its samples: put shuffle before repeat")
    if n > MAX_LENGTH:
        raise ConfigError(f"shuffle over {n:,} samples is more than the 2^40 an order can hold: put shuffle before repeat")


def _length(verbs: tuple[OrderNode, ...], n: int | None) -> int | None:
    for verb in verbs:
        if isinstance(verb, Mix):
            n = mixed_rows(verb.pattern, [_length(member.verbs, member.length) for member in verb.members], verb.until)
        elif isinstance(verb, Take):
            n = verb.count if n is None else min(n, verb.count)
        elif isinstance(verb, Skip):
            n = None if n is None else max(0, n - verb.count)
        elif isinstance(verb, Repeat) and n:  # repeating nothing gives nothing
            n = None if verb.count is None else n * verb.count
    return n


def _resolve(verbs: tuple[OrderNode, ...], source_length: int, positions: Ints, epoch: int) -> Ints:
    while verbs:
        verbs, verb = verbs[:-1], verbs[-1]
        if isinstance(verb, Mix):
            return _resolve_mix(verb, positions, epoch)
        if isinstance(verb, Take):
            continue
        if isinstance(verb, Skip):
            positions = positions + verb.count
            continue
        n = _length(verbs, source_length)
        if n is None:
            continue  # the order is endless already; an Order with an endless shuffle cannot be made
        if isinstance(verb, Shuffle):
            positions = shuffle(positions, n, verb, epoch)
        else:
            passes, within = np.divmod(positions, n)
            resolve = partial(_resolve_pass, verbs, source_length, epoch)
            return _by_group(passes, within, resolve)
    return positions


def _resolve_pass(verbs: tuple[OrderNode, ...], source_length: int, epoch: int, positions: Ints, number: int) -> Ints:
    # Every pass has a new order, also in nested repeats: so the pass number is hashed into the epoch, not added to it.
    return _resolve(verbs, source_length, positions, key_of(epoch, number))


def _resolve_mix(mix: Mix, positions: Ints, epoch: int) -> Ints:
    members, numbers = drawn(mix.pattern, positions)

    def each(within: Ints, number: int) -> Ints:
        return _resolve_member(mix.members[number], within, epoch)

    return _by_group(members, numbers, each)


def _resolve_member(member: Member, numbers: Ints, epoch: int) -> Ints:
    length = _length(member.verbs, member.length)
    if length is None:
        return member.first + _resolve(member.verbs, member.length, numbers, epoch)
    # A member without samples left starts again in a new order, as with `repeat`.
    passes, within = np.divmod(numbers, length)
    return member.first + _by_group(passes, within, partial(_resolve_pass, member.verbs, member.length, epoch))


def shuffle(positions: Ints, n: int, verb: Shuffle, epoch: int) -> Ints:
    """The positions before shuffling of the samples at `positions` of a shuffled epoch."""
    epoch = verb.epoch_of(epoch)
    if verb.window is None:
        return native.permute(n, key_of(verb.seed, epoch), positions)
    return window_shuffle(positions, n, verb.window, verb.seed, epoch)


def window_shuffle(positions: Ints, n: int, window: int, seed: int, epoch: int) -> Ints:
    """A shuffle in which no sample moves `window` places or more, so that reading stays nearly sequential.

    Two passes over blocks of half a window, the second shifted by half a block: samples cross block borders, and every position
    can still be computed alone. A reservoir was rejected: its result depends on everything before.
    """
    for block, shift, key in window_blocks(window, seed, epoch):
        positions = _shuffle_blocks(positions, n, block, shift, key)
    return positions


def window_blocks(window: int, seed: int, epoch: int) -> list[tuple[int, int, int]]:
    """The passes of a window shuffle, from the result back to the source: (block length, shift, key)."""
    if window < 4:  # too small for two passes: half a window would be a single sample
        return [(window, 0, key_of(seed, epoch, 2))]
    block = window // 2
    return [(block, block - block // 2, key_of(seed, epoch, 1)), (block, 0, key_of(seed, epoch, 2))]


def _shuffle_blocks(positions: Ints, n: int, block: int, shift: int, key: int) -> Ints:
    """Permute within blocks; the first is shortened by `shift`."""

    def permute(within: Ints, number: int) -> Ints:
        first = max(0, number * block - shift)
        last = min(n, (number + 1) * block - shift)
        return first + native.permute(last - first, key_of(key, number), within - first)

    return _by_group((positions + shift) // block, positions, permute)


def _by_group(groups: Ints, values: Ints, each: Callable[[Ints, int], Ints]) -> Ints:
    """Apply `each(values, group)` to every group of equal numbers; a chunk usually has one or two groups."""
    if not len(groups):
        return values
    first = int(groups[0])
    if first == int(groups[-1]) and bool((groups == first).all()):
        return each(values, first)
    result = np.empty_like(values)
    for group in sorted(set(groups.tolist())):
        rows = groups == group
        result[rows] = each(values[rows], group)
    return result
