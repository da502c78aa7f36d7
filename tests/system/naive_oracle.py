"""What a pipeline means, in lists and dicts: the slow, plain reading of the documentation that random pipelines are held to.

Nothing here uses what Stoker uses. The order of a shuffle is computed again, from its definition. Two things are looked up by the
simplest pipeline that shows them, and checked to be what the documentation says of them: the turns of a mix, and the numbers
that `map(rng=True)` draws.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

import stoker
from stoker import Pipeline

from .pipeline_specs import (
    ORDER,
    RAGGED,
    Add,
    Bad,
    Batch,
    Draw,
    Drop,
    Filter,
    FlatMap,
    Grow,
    InnerBatch,
    Mixed,
    Name,
    Rename,
    Repeat,
    Select,
    Shuffle,
    Skip,
    Spec,
    Stored,
    Take,
    Total,
    Unbatch,
    Verb,
    drawn,
)

#: the most samples a stage of a random pipeline may see
MOST_ROWS = 120
INLINE: dict[str, Any] = {"executor": "inline"}


@dataclass
class Row:
    """A sample: its key, its number in the source, its fields, and whether a function has failed on it."""

    key: str
    index: int
    values: dict[str, Any]
    bad: bool = False


#: (kind, n) -> its samples, in the order they are stored
RowsOf = Callable[[str, int], "list[Row]"]


# ---- the order of a shuffle: saved states depend on it, so it is defined once and for all ------------------------------------

_MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    value = (state + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def key_of(*numbers: int) -> int:
    key = len(numbers)
    for number in numbers:
        key = splitmix64(key ^ splitmix64(number))
    return key


@lru_cache(maxsize=10_000)
def permutation(n: int, key: int) -> list[int]:
    """The permutation that native/include/stoker.h defines, as a table."""
    bits = max(2, (n - 1).bit_length())
    left_bits = bits // 2
    right_bits = bits - left_bits
    keys = [splitmix64(key + number * 0x9E3779B97F4A7C15 & _MASK) for number in range(8)]

    def scrambled(value: int, key: int, width: int) -> int:
        value = (value + key) * 0x9E3779B97F4A7C15 & _MASK
        return ((value ^ value >> 32) * 0xD6E8FEB86659FD93 & _MASK) >> 64 - width

    def rounds(value: int) -> int:
        left, right = value >> right_bits, value & (1 << right_bits) - 1
        for even, odd in zip(keys[::2], keys[1::2]):
            left ^= scrambled(right, even, left_bits)
            right ^= scrambled(left, odd, right_bits)
        return left << right_bits | right

    table = [rounds(value) for value in range(1 << bits)]
    places = []
    for value in range(n):
        value = table[value]
        while value >= n:
            value = table[value]
        places.append(value)
    return places


def shuffled(verb: Shuffle, rows: list[Row], epoch: int, path: tuple[int, ...]) -> list[Row]:
    """`path` says which pass it is of each repeat around the shuffle, outermost first; every pass has an order of its own."""
    if not rows:
        return []
    if not verb.reshuffle:
        epoch, path = 0, ()
    for number in path:
        epoch = key_of(epoch, number)
    if verb.window is None:
        return [rows[place] for place in permutation(len(rows), key_of(verb.seed, epoch))]
    first, second = key_of(verb.seed, epoch, 2), key_of(verb.seed, epoch, 1)
    if verb.window < 4:
        return in_blocks(rows, verb.window, verb.window, first)
    half = verb.window // 2
    return in_blocks(in_blocks(rows, half, half, first), half // 2, half, second)


def in_blocks(rows: list[Row], first: int, size: int, key: int) -> list[Row]:
    """Rows that change places within blocks of `size`, the first of which has only `first`."""
    starts = [0, *range(first, len(rows), size)]
    out: list[Row] = []
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(rows)])):
        out += [rows[start + place] for place in permutation(stop - start, key_of(key, number))]
    return out


# ---- what cannot be guessed: looked up, and checked to be what the documentation says of it ----------------------------------


def whole_epoch(pipeline: Pipeline, field: str, rows: int, epoch: int = 0) -> list[Any]:
    """A field of all samples, as one batch."""
    with pipeline.batch(rows).loader(epoch=epoch, **INLINE) as batches:
        (batch,) = batches
        values: list[Any] = np.asarray(batch[field]).tolist()
        return values


@cache
def turns(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Which member gives a sample at each position, for one round."""
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    length = sum(weights) // math.gcd(*weights)
    members = [stoker.arrays(m=np.full(length, member)) for member in range(len(weights))]
    round_ = tuple(whole_epoch(stoker.mix(members, weights=weights).take(length), "m", length))
    for end in range(length + 1):
        had = Counter(round_[:end])
        assert all(abs(had[member] - share * end) < 1 for member, share in enumerate(shares)), "within one sample of its share"
    return round_


@cache
def draws(seed: int, epoch: int, stage: int) -> tuple[float, ...]:
    """What the drawing stage number `stage` draws at each position."""
    pipeline = stoker.arrays(x=np.zeros(MOST_ROWS)).shuffle(seed=seed)
    for _ in range(stage + 1):
        pipeline = pipeline.map(drawn, rng=True)
    numbers = tuple(drawn[-1] for drawn in whole_epoch(pipeline, "d", MOST_ROWS, epoch))
    assert len(set(numbers)) == MOST_ROWS, "every position draws numbers of its own"
    return numbers


# ---- the samples of an epoch -------------------------------------------------------------------------------------------------


def samples_of(spec: Spec, rows_of: RowsOf, epoch: int, path: tuple[int, ...] = (), first: int = 0) -> list[Row]:
    """All samples before `batch`, in order; those a function failed on keep their places where these are known beforehand.

    `path` and `first` are which pass over the data it is, and the number of its first sample, where batches are repeated.
    """
    order, stages = moved_forward(spec)
    rows = in_order(spec.source, tuple(order), rows_of, epoch, path)
    return staged(spec, stages, [replace(row, values=dict(row.values)) for row in rows], epoch, first)


def moved_forward(spec: Spec) -> tuple[list[Verb], list[Verb]]:
    """The verbs that act on the source's order, and all others: `explanation/ragged.md` says which are moved."""
    if spec.streams:
        return [], list(spec.verbs)
    order, stages, ragged = [], [], False
    for verb in spec.verbs:
        ragged = ragged or isinstance(verb, RAGGED)
        moves = isinstance(verb, Repeat) or (isinstance(verb, Shuffle) and verb.window is None)
        (order if isinstance(verb, ORDER) and (moves or not ragged) else stages).append(verb)
    return order, stages


@lru_cache(maxsize=1000)
def in_order(source: Stored | Mixed, verbs: tuple[Verb, ...], rows_of: RowsOf, epoch: int, path: tuple[int, ...]) -> list[Row]:
    """The source's samples in the order that the verbs make of it; nobody may change them."""
    if not verbs:
        return rows_of(source.kind, source.n) if isinstance(source, Stored) else mixed(source, rows_of, epoch, path)
    before, last = verbs[:-1], verbs[-1]
    if isinstance(last, Repeat):
        passes: list[Row] = []
        number = 0
        while number < last.count if last.count is not None else len(passes) < (last.take or last.enough):
            rows = in_order(source, before, rows_of, epoch, (*path, number))
            if not rows:
                break
            passes += rows
            number += 1
            check_size(passes)
        return passes[: last.take]
    rows = in_order(source, before, rows_of, epoch, path)
    return counted_verb(last, rows, epoch, path)


class TooMany(Exception):
    """A pipeline of more samples than a test has the time for."""


def check_size(rows: list[Row], first: int = 0) -> None:
    if first + len(rows) > MOST_ROWS:
        raise TooMany


def counted_verb(verb: Verb, rows: list[Row], epoch: int, path: tuple[int, ...] = ()) -> list[Row]:
    if isinstance(verb, Take):
        return rows[: verb.count]
    if isinstance(verb, Skip):
        return rows[verb.count :]
    assert isinstance(verb, Shuffle)
    return shuffled(verb, rows, epoch, path)


def mixed(mix: Mixed, rows_of: RowsOf, epoch: int, path: tuple[int, ...]) -> list[Row]:
    """Samples of the members in turn, until the first has none left, or until all have been seen."""
    endless = [Repeat(None) in member.verbs for member in mix.members]
    supplies = [member_samples(member, rows_of, epoch, path) for member in mix.members]
    lengths = [len(next(member_passes(member, rows_of, epoch, path))) for member in mix.members]
    offsets = [sum(source_length(member.source) for member in mix.members[:at]) for at in range(len(mix.members))]
    common = [name for name in fields_of(mix.members[0], rows_of) if all(name in fields_of(m, rows_of) for m in mix.members)]
    given, out = [0] * len(mix.members), []
    while True:
        member = turns(mix.weights)[len(out) % len(turns(mix.weights))]
        if mix.until == "first" and not endless[member] and given[member] == lengths[member]:
            return out
        row = next(supplies[member])
        out.append(Row(row.key, offsets[member] + row.index, {name: row.values[name] for name in common}))
        check_size(out)
        given[member] += 1
        if mix.until == "all" and all(had >= length for had, length in zip(given, lengths)):
            return out


def member_passes(member: Spec, rows_of: RowsOf, epoch: int, path: tuple[int, ...]) -> Iterator[list[Row]]:
    """A member's samples, again and again, each time in another order."""
    endless = Repeat(None)
    order = tuple(verb for verb in member.verbs if isinstance(verb, ORDER) and verb != endless)
    number = 0
    while True:
        rows = in_order(member.source, order, rows_of, epoch, (*path, number))
        fields = [verb for verb in member.verbs if not isinstance(verb, ORDER)]
        yield staged(member, fields, [replace(row, values=dict(row.values)) for row in rows], epoch, 0)
        number += 1


def member_samples(member: Spec, rows_of: RowsOf, epoch: int, path: tuple[int, ...]) -> Iterator[Row]:
    for rows in member_passes(member, rows_of, epoch, path):
        yield from rows


def source_length(source: Stored | Mixed) -> int:
    return source.n if isinstance(source, Stored) else sum(source_length(member.source) for member in source.members)


def fields_of(spec: Spec, rows_of: RowsOf) -> list[str]:
    """The fields of a member."""
    return list(next(member_passes(spec, rows_of, 0, ()))[0].values)


def seed_of(spec: Spec) -> int:
    """The seed of the first shuffle, that in a mix included."""

    def seeds(spec: Spec) -> Iterator[int]:
        if isinstance(spec.source, Mixed):
            for member in spec.source.members:
                yield from seeds(member)
        yield from (verb.seed for verb in spec.verbs if isinstance(verb, Shuffle))

    return next(seeds(spec), 0)


def staged(spec: Spec, stages: list[Verb], rows: list[Row], epoch: int, first: int) -> list[Row]:
    """What the stages make of the samples. Where their number may change, bad ones are left out and all are numbered again."""
    seed, drawing = seed_of(spec), 0
    known = not spec.streams
    for verb in stages:
        changes = isinstance(verb, (*RAGGED, *ORDER))
        if changes and not (known and isinstance(verb, InnerBatch)):
            rows = [row for row in rows if not row.bad]
        known = known and not changes
        if isinstance(verb, ORDER):
            rows = counted_verb(verb, rows, epoch)
        elif isinstance(verb, Filter):
            rows = [row for row in rows if row.values["x"] % verb.of]
        elif isinstance(verb, FlatMap):
            rows = [copy(row, part, verb.keyed) for row in rows for part in range(row.values["x"] % verb.of)]
        elif isinstance(verb, Unbatch):
            rows = [copy(row, part, False) for row in rows for part in range(row.values["x"] % verb.of)]
        elif isinstance(verb, InnerBatch):
            groups = [rows[at : at + verb.size] for at in range(0, len(rows), verb.size)]
            rows = [row for group in groups if len(group) == verb.size or not verb.drop_last for row in regrouped(verb, group)]
        else:
            check_size(rows, first)
            for position, row in enumerate(rows, first):
                if not row.bad:
                    mapped(verb, row, lambda: draws(seed, epoch, drawing)[position])
            drawing += isinstance(verb, Draw)
    return rows


def copy(row: Row, part: int, keyed: bool) -> Row:
    values = {**row.values, "x": row.values["x"] + 1000 * part}
    return Row(f"{row.key}/{part}" if keyed else row.key, row.index, values)


def regrouped(verb: InnerBatch, group: list[Row]) -> list[Row]:
    group = [row for row in group if not row.bad]
    if verb.shrinks:
        return [row for row in group if row.values["x"] % 2 == 0]
    return [Row(row.key, row.index, other.values) for row, other in zip(group, group[::-1])]  # keys stay with their places


def mapped(verb: Verb, row: Row, draw: Callable[[], float]) -> None:
    values = row.values
    if isinstance(verb, Add):
        values["x"] += verb.number
    elif isinstance(verb, Bad):
        row.bad = values["x"] % verb.of == 3
    elif isinstance(verb, Draw):
        values["d"] = [*values.get("d", ()), draw()]
    elif isinstance(verb, Name):
        values.update(k=row.key, i=row.index if verb.index else -1)
    elif isinstance(verb, Grow):
        values["r"] = list(range(values["x"] % 4))
    else:
        row.values = arranged(verb, values)


def arranged(verb: Verb, values: dict[str, Any]) -> dict[str, Any]:
    if isinstance(verb, Select):
        return {name: values[name] for name in verb.fields}
    if isinstance(verb, Drop):
        return {name: value for name, value in values.items() if name != verb.field}
    assert isinstance(verb, Rename)
    return {verb.new if name == verb.old else name: value for name, value in values.items()}


# ---- batches, and who gets them ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranks:
    """How many ranks share the batches, and what becomes of rows that do not fill one of each."""

    world: int = 1
    remainder: str = "drop"


@dataclass
class Step:
    """What every rank gets in one step, as (sample, whether it counts), and the rows of the epoch dealt by then."""

    shares: list[list[tuple[Row, bool]]]
    end: int


def steps_of(spec: Spec, ranks: Ranks, rows_of: RowsOf, epoch: int, row: int = 0) -> list[Step]:
    """The steps of an epoch; from the row `row` on, for a pipeline that does not count batches."""
    repeat = next((verb for verb in spec.behind if isinstance(verb, Repeat)), None)
    passes: list[list[Row]] = []
    while len(passes) < (repeat.count or 0 if repeat else 1):
        path = (len(passes),) if repeat else ()
        passes.append(samples_of(spec, rows_of, epoch, path, sum(map(len, passes))))
    steps: list[Step] = []
    for number, rows in enumerate(passes):
        base = sum(map(len, passes[:number]))
        skipped = min(max(0, row - base), len(rows))
        dealt = deal(rows[skipped:], spec.batch, ranks, base + skipped)
        for verb in spec.behind:
            if isinstance(verb, Take):
                dealt = dealt[: verb.count]
            elif isinstance(verb, Skip):
                dealt = dealt[verb.count :]
        steps += dealt
    return steps


def deal(rows: list[Row], batch: Batch | None, ranks: Ranks, base: int) -> list[Step]:
    """The global batch is `world * size` samples one after another, and rank r gets the r-th run of `size` of them."""
    world, size = ranks.world, batch.size if batch else 1
    together = world * size
    steps = []
    for start in range(0, len(rows) - together + 1, together):
        whole = [(row, True) for row in rows[start : start + together]]
        steps.append(Step([whole[rank * size : (rank + 1) * size] for rank in range(world)], base + start + together))
    rest = rows[len(steps) * together :]
    if rest and ranks.remainder == "pad":
        padded = [(rest[at % len(rest)], at < len(rest)) for at in range(together)]
        steps.append(Step([padded[rank * size : (rank + 1) * size] for rank in range(world)], base + len(rows)))
    elif rest and (ranks.remainder == "keep" or (batch and not batch.drop_last)):
        shares: list[list[tuple[Row, bool]]] = []
        left = [(row, True) for row in rest]
        for rank in range(world):
            count = len(rest) // world + (rank < len(rest) % world)
            shares.append(left[:count] or [(rest[0], False)])
            left = left[count:]
        steps.append(Step(shares, base + len(rows)))
    return steps


@dataclass
class Given:
    """What a step gives: fields with their values, row by row, the rows' keys, and which of them count."""

    fields: dict[str, list[Any]]
    keys: list[str]
    valid: list[bool] = field(default_factory=list)


def given(spec: Spec, share: list[tuple[Row, bool]], names: list[str]) -> Given:
    """A rank's share of a step, as a batch; `names` are the fields of samples."""
    rows = [(row, valid) for row, valid in share if not row.bad]
    fields = {name: [row.values[name] for row, _ in rows] for name in names}
    if spec.batch and isinstance(spec.batch.pad, int) and "r" in fields:
        longest = max(map(len, fields["r"]))
        fields["r"] = [[*value, *[spec.batch.pad] * (longest - len(value))] for value in fields["r"]]
    for verb in spec.behind:
        if isinstance(verb, Total):
            fields["s"] = [sum(fields["x"])] * len(rows)
        elif not isinstance(verb, ORDER):
            fields = arranged(verb, fields)
    return Given(fields, [row.key for row, _ in rows], [valid for _, valid in rows])


def epoch_of(spec: Spec, ranks: Ranks, rank: int, steps: list[Step]) -> list[Given]:
    """All that one rank gets in these steps. Without `batch` a sample that was left out is no step, nor is one that fills up."""
    shares = [step.shares[rank] for step in steps]
    names = next((list(row.values) for share in shares for row, _ in share if not row.bad), [])
    out = [given(spec, share, names) for share in shares]
    if spec.batch:
        return out
    counting = [each for each in out if each.keys and not (ranks.remainder == "keep" and not each.valid[0])]
    return [replace(each, valid=[]) for each in counting]  # a single sample does not say
