"""Which items of a data set make which batch of an epoch.

In sequence, or shuffled, that is arithmetic: any batch can be asked for. Whatever a sampler gives is enumerated, in the program's
own process, as far as batches are begun.
"""

from __future__ import annotations

import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler

from ..plan.nodes import Shuffle
from ..plan.order import Order
from ..plan.seeds import key_of
from ..stage.global_random import ALL, SeededTurn

#: how long a sampler may keep functions of other loaders waiting that draw from the same generators
_PATIENCE_S = 60.0
#: the second time that an index comes, its key is this much more, and so on: longer than any data set is
_AGAIN = 1 << 40
_MASK = (1 << 62) - 1


class EpochSampler(RandomSampler):  # type: ignore[misc]
    """Stands where torch's RandomSampler would for ``shuffle=True``: the loader shuffles, and looks here which epoch is next.

    So whoever calls `set_epoch` on samplers, as trainers do, chooses the epoch.
    """

    def __init__(self, data_source: Any, generator: Any = None) -> None:
        super().__init__(data_source, generator=generator)
        self.epoch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration of the loader epoch `epoch`."""
        self.epoch = int(epoch)


@dataclass(slots=True)
class Pick:
    """The items of one batch: their indices, and for each a number that its random choices depend on."""

    epoch: int
    number: int  # of the batch in its epoch
    indices: list[Any]
    keys: list[int]
    items: int = 0  # of the epoch, up to the end of this batch
    sampler: Any = None  # the state of a sampler that has one, after this batch


@dataclass(frozen=True, slots=True)
class Start:
    """Where in an epoch to begin: after so many batches, with so many items, and the state of the sampler there if it has one."""

    epoch: int = 0
    batches: int = 0
    items: int = 0
    sampler: Any = None


class IndexOrder(ABC):
    """The batches of an epoch after another."""

    #: what a saved state calls it
    name: str

    @abstractmethod
    def picks(self, start: Start) -> Iterator[Pick]:
        """The batches of an epoch from there on."""

    def after(self, start: Start, batches: int) -> Start | None:
        """Where to begin so many batches later; None: there are fewer."""
        passed = list(itertools.islice(self.picks(start), batches))
        if len(passed) < batches:
            return None
        last = passed[-1] if passed else None
        return start if last is None else Start(last.epoch, last.number + 1, last.items, last.sampler)


class CountedOrder(IndexOrder):
    """All items in sequence, or shuffled by a seed, `size` at a time."""

    def __init__(self, data_source: Any, size: int, drop_last: bool, seed: int | None) -> None:
        self._data_source, self._size, self._drop_last = data_source, size, drop_last
        self._verbs = () if seed is None else (Shuffle(seed),)
        self.name = "in sequence" if seed is None else "shuffled"

    def picks(self, start: Start) -> Iterator[Pick]:
        rows, size = len(self._data_source), self._size  # asked each time: a data set may grow
        order = Order(self._verbs, rows)
        for number in range(start.batches, self._batches(rows)):
            positions = np.arange(number * size, min((number + 1) * size, rows))
            indices = order.resolve(positions, start.epoch).tolist()
            yield Pick(start.epoch, number, indices, indices, int(positions[-1]) + 1)

    def after(self, start: Start, batches: int) -> Start | None:
        rows, there = len(self._data_source), start.batches + batches
        return Start(start.epoch, there, min(there * self._size, rows)) if there <= self._batches(rows) else None

    def _batches(self, rows: int) -> int:
        return rows // self._size if self._drop_last else -(-rows // self._size)


class StreamOrder(IndexOrder):
    """Items of an iterable data set come as they come: a batch has a number and nothing else."""

    name = "as they come"

    def picks(self, start: Start) -> Iterator[Pick]:
        for number in itertools.count(start.batches):
            yield Pick(start.epoch, number, [], [])

    def after(self, start: Start, batches: int) -> Start:
        return Start(start.epoch, start.batches + batches)


class SampledOrder(IndexOrder):
    """What a sampler gives, or one that gives whole batches.

    It draws as if it were alone in the program: from generators that an epoch's number and the seed begin, which it leaves as it
    finds them. So it gives the same in a program that resumes.
    """

    def __init__(self, sampler: Any, batched: bool, length: int, seed: int) -> None:
        self._sampler, self._batched, self._length, self._seed = sampler, batched, length, seed
        chain = [sampler, getattr(sampler, "sampler", None), getattr(sampler, "batch_sampler", None)]
        self._stateful = next((each for each in chain if callable(getattr(each, "state_dict", None))), None)
        self._with_epoch = next((each for each in chain if callable(getattr(each, "set_epoch", None))), None)
        generators = {
            id(found): found for each in chain if isinstance(found := getattr(each, "generator", None), torch.Generator)
        }
        self._generators = [(generator, generator.initial_seed()) for generator in generators.values()]
        self.name = "as the batch sampler says" if batched else "as the sampler says"

    @property
    def sampler_epoch(self) -> int | None:
        """The epoch that was said to the sampler; None: it has none."""
        epoch = getattr(self._with_epoch, "epoch", None)
        return epoch if isinstance(epoch, int) else None

    def say_epoch(self, epoch: int) -> None:
        """Say an epoch to the sampler, as was done before a state was saved."""
        if self._with_epoch is not None:
            self._with_epoch.set_epoch(epoch)

    def picks(self, start: Start) -> Iterator[Pick]:
        random = _SamplerRandom(key_of(self._seed, start.epoch), self._generators, start.epoch)
        placed = None if start.sampler is None else self._stateful
        keys = _Keys(self._length, self._stateful is not None, start.items if placed is not None else 0)
        with random.turn():
            if placed is not None:
                placed.load_state_dict(start.sampler)
            given = iter(self._sampler)
        for number in itertools.count(start.batches if placed is not None else 0):
            with random.turn():
                try:
                    each = next(given)
                except StopIteration:
                    return
                state = None if self._stateful is None else self._stateful.state_dict()
            indices = list(each) if self._batched else [each]
            made = keys.of(indices)
            if number >= start.batches:
                yield Pick(start.epoch, number, indices, made, keys.items, state)


class _Keys:
    """Numbers for indices, by which random choices are made: another one each time that an index comes in an epoch.

    A sampler that resumes by a state of its own does not say what it gave before that: then the place in the epoch counts.
    """

    def __init__(self, length: int, by_place: bool, items: int) -> None:
        self.items = items
        self._by_place = by_place
        self._seen = bytearray(length)
        self._again: dict[Any, int] = {}

    def of(self, indices: list[Any]) -> list[int]:
        return [self._key(index) for index in indices]

    def _key(self, index: Any) -> int:
        self.items += 1
        number = index if type(index) is int else _number(index)
        if number is not None and 0 <= number < len(self._seen):
            if self._by_place:
                return key_of(number, self.items) & _MASK
            if not self._seen[number]:
                self._seen[number] = 1
                return number
            times = self._again[number] = self._again.get(number, 0) + 1
            return number + times * _AGAIN
        name = repr(index)
        if self._by_place or " at 0x" in name:  # its name is that of the object, and not of the item
            return key_of(self.items) & _MASK
        times = self._again[name] = self._again.get(name, 0) + 1
        return key_of(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"), times) & _MASK


def _number(index: Any) -> int | None:
    """The number that an index of another type is, such as NumPy's or torch's; None: it is not a number."""
    try:
        return operator.index(index)
    except (TypeError, RuntimeError, ValueError):
        return None


class _SamplerRandom:
    """The generators that a sampler draws from: those of the process, and its own; each left as it is found."""

    def __init__(self, key: int, generators: list[tuple[Any, int]], epoch: int) -> None:
        self._key, self._generators = key, [generator for generator, _ in generators]
        self._own = [_seeded_state(generator, key_of(seed, epoch)) for generator, seed in generators]
        self._states: list[Any] | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        turn = SeededTurn(ALL, False, _PATIENCE_S)
        found = [generator.get_state() for generator in self._generators]
        try:
            turn.begin()
            if self._states is None:
                turn.seed(self._key)
            else:
                turn.go_on(self._states)
            for generator, state in zip(self._generators, self._own):
                generator.set_state(state)
            yield
            self._states = turn.left()
            self._own = [generator.get_state() for generator in self._generators]
        finally:
            for generator, state in zip(self._generators, found):
                generator.set_state(state)
            turn.end()


def _seeded_state(generator: Any, key: int) -> Any:
    """The state that a seed gives to a generator of this kind."""
    seeded = torch.Generator(generator.device)
    seeded.manual_seed(key & _MASK)
    return seeded.get_state()
