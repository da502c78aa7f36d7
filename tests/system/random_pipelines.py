"""Random pipelines, run in random ways and held to the naive oracle.

    python -m tests.system.random_pipelines --seed 17        the pipeline of one seed
    python -m tests.system.random_pipelines --seconds 600    new ones until the time is over, from a seed that is printed

A pipeline and all that is done with it are made from one number. One that fails is printed as code, and so is the smallest part
of it that still fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import Pipeline
from stoker.batch.batch import Batch as StokerBatch
from stoker.errors import ConfigError
from stoker.loader import Loader

from ..loader.runs import no_workers, workers
from .naive_oracle import INLINE, Given, Ranks, Step, TooMany, epoch_of, samples_of, steps_of
from .pipeline_specs import (
    ORDER,
    RAGGED,
    STREAMS,
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
)
from .stored_samples import IN_MEMORY, KINDS, SIZES, Shelf

#: parameters of a loader, none of which may change what is in a batch; a third is inline, which is fastest here
Way = tuple[tuple[str, Any], ...]
WAYS: tuple[Way, ...] = (
    tuple(INLINE.items()),
    tuple(INLINE.items()),
    (("threads", 1),),
    (("threads", 2), ("ahead", 1)),
    (("threads", 2), ("ahead", 5), ("memory", "1MB")),
    (("threads", 3),),
)

#: how many samples there are, or are taken: few numbers, so that what the oracle has looked up serves many pipelines
COUNTS = (0, 1, 2, 3, 5, 8, 13, 20, 33, 40)


@dataclass(frozen=True)
class Case:
    """A pipeline, and what is done with it."""

    spec: Spec
    ranks: Ranks
    shard_at: str  # "first", "last", or "nowhere"
    epoch: int
    ways: tuple[Way, Way]  # of one rank's first run, and of the resumed one; all others run inline
    stop: int  # after how many steps, or all, a state is saved
    before: bool  # whether it is the state before the last of them
    later: tuple[Ranks, int] | None  # other ranks and another batch size that go on from that state
    leave: bool  # whether the epoch is left there, and the next one begun

    def __str__(self) -> str:
        later = f", later {self.later[0].world} of batches of {self.later[1]} ({self.later[0].remainder})" if self.later else ""
        return (
            f"{self.spec}\n"
            f"{self.ranks.world} ranks ({self.ranks.remainder}, shard {self.shard_at}){later}; epoch {self.epoch}; stopped "
            f"{'before' if self.before else 'after'} step {self.stop}{', left early' if self.leave else ''}; "
            f"run with {dict(self.ways[0])}, resumed with {dict(self.ways[1])}"
        )


class Mismatch(AssertionError):
    """Stoker and the oracle disagree."""


# ---- making one --------------------------------------------------------------------------------------------------------------


def case_of(seed: int, shelf: Shelf) -> Case:
    """The case of a seed: the first of its tries that is small enough and has no batch of bad samples alone."""
    rng = random.Random(seed)
    while True:
        try:
            case = random_case(rng, shelf)
            if not hopeless(case, shelf):
                return case
        except TooMany:
            pass


def hopeless(case: Case, shelf: Shelf) -> bool:
    """Whether some batch has nothing but bad samples, which ends an epoch."""
    steps = [step for epoch in (0, 1) for step in steps_of(case.spec, case.ranks, shelf.rows, case.epoch + epoch)]
    if not case.spec.lenient or case.spec.batch is None:
        return False
    if case.later:
        spec, ranks = later_of(case)
        for row in {0, *(step.end for step in steps)}:
            steps += steps_of(spec, ranks, shelf.rows, case.epoch, row)
    return any(all(row.bad for row, _ in share) for step in steps for share in step.shares)


def random_case(rng: random.Random, shelf: Shelf) -> Case:
    spec = random_spec(rng, shelf)
    ranks = Ranks(rng.choice((1, 1, 1, 2, 2, 3, 4)), rng.choice(("drop", "pad", "keep")))
    placed = ranks != Ranks() or rng.random() < 0.5
    case = Case(
        spec=spec,
        ranks=ranks,
        shard_at=rng.choice(("first", "last")) if placed else "nowhere",
        epoch=rng.choice((0, 0, 0, 1, 70_000)),
        ways=(rng.choice(WAYS), rng.choice((*WAYS, *3 * WAYS[:1]))),
        stop=rng.choice((0, 1, 1, 2, 3, 4, 5, 100)),
        before=rng.random() < 0.2,
        later=random_later(rng, spec, ranks) if rng.random() < 0.35 else None,
        leave=rng.random() < 0.2,
    )
    return case


def random_later(rng: random.Random, spec: Spec, ranks: Ranks) -> tuple[Ranks, int] | None:
    world, remainder = rng.randint(1, 4), rng.choice(("drop", "pad", "keep"))
    if spec.batch is None:
        return None if spec.lenient else (Ranks(world, remainder), 1)
    if any(isinstance(verb, (Take, Skip)) for verb in spec.behind):  # batches of another size are counted in another way
        together = ranks.world * spec.batch.size
        return (Ranks(world, remainder), together // world) if together % world == 0 else None
    return Ranks(world, remainder), rng.randint(1, 6)


def random_spec(rng: random.Random, shelf: Shelf) -> Spec:
    source = random_source(rng)
    verbs = random_verbs(rng, Spec(source))
    verbs = with_draws(rng, Spec(source, tuple(verbs)))
    if rng.random() < 0.15:
        verbs.append(Grow())
    spec = with_fields(rng, Spec(source, tuple(verbs)), shelf)
    if rng.random() < 0.2:
        return spec
    fields = names_of(spec, shelf)
    pad = rng.choice((-1, list)) if "r" in fields else None
    spec = replace(spec, batch=Batch(rng.choice((1, 2, 2, 3, 4, 5, 7)), rng.random() < 0.5, pad))
    return replace(spec, **random_behind(rng, spec, fields))


def random_source(rng: random.Random) -> Stored | Mixed:
    if rng.random() < 0.15:
        return random_mix(rng, 2)
    return random_stored(rng, KINDS)


def random_stored(rng: random.Random, kinds: Sequence[str], most: int = 40) -> Stored:
    kind = rng.choice((*IN_MEMORY, *kinds)) if "stream" in kinds else rng.choice(kinds)
    return Stored(kind, SIZES.get(kind) or rng.choice([size for size in (1, 3, 8, 13, 20, 33) if size <= most]))


def random_mix(rng: random.Random, depth: int) -> Mixed:
    until = rng.choice(("first", "all"))
    count = rng.randint(1, 3)
    weights = tuple(rng.choice((1, 1, 2, 3, 5)) for _ in range(count))
    members = [random_member(rng, depth) for _ in range(count)]
    if until == "first" and count > 1 and rng.random() < 0.4:
        at = rng.randrange(count)
        members[at] = replace(members[at], verbs=(*members[at].verbs, Repeat(None)))
    return Mixed(tuple(members), weights, until)


def random_member(rng: random.Random, depth: int) -> Spec:
    if depth > 1 and rng.random() < 0.2:
        source: Stored | Mixed = random_mix(rng, depth - 1)
    else:
        source = random_stored(rng, [kind for kind in KINDS if kind not in STREAMS], most=12)
    verbs: list[Verb] = []
    if isinstance(source, Stored) and source.n > 5 and rng.random() < 0.2:
        verbs.append(Skip(3))
    if rng.random() < 0.6:
        verbs.append(random_shuffle(rng, whole=True))
    if rng.random() < 0.3:
        verbs.append(Take(rng.choice(COUNTS[1:6])))
    if rng.random() < 0.2:
        verbs.append(Repeat(rng.randint(1, 2)))
    if rng.random() < 0.2 and isinstance(source, Stored):
        verbs.append(Select(("x",)))
    return Spec(source, tuple(verbs))


def random_shuffle(rng: random.Random, whole: bool) -> Shuffle:
    window = None if whole and rng.random() < 0.6 else rng.choice((1, 2, 3, 4, 7, 12))
    return Shuffle(rng.randint(0, 2), window, rng.random() < 0.8)


def random_verbs(rng: random.Random, spec: Spec) -> list[Verb]:
    """Verbs in an order that the documentation allows."""
    verbs: list[Verb] = []
    for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4, 5))):
        ragged = [verb for verb in verbs if isinstance(verb, RAGGED)]
        unknown = spec.streams or bool(ragged)
        # What stands after a filter may still act on the source's order, unless samples were counted or joined meanwhile.
        closed = spec.streams or any(isinstance(verb, InnerBatch) for verb in ragged) or counts(verbs)
        whole = not spec.streams and (not ragged or (not closed and all(isinstance(verb, Filter) for verb in ragged)))
        choices: list[Verb] = [
            random_shuffle(rng, whole),
            random_shuffle(rng, whole),
            Take(rng.choice(COUNTS)),
            Skip(rng.choice(COUNTS[:6])),
            Filter(rng.randint(2, 4)),
            InnerBatch(rng.randint(1, 7), rng.random() < 0.5, rng.random() < 0.3),
            Add(rng.randint(1, 5)),
            Bad(rng.choice((7, 11))),
            Name(index=not any(isinstance(verb, InnerBatch) for verb in verbs)),
        ]
        if not any(isinstance(verb, (FlatMap, Unbatch)) for verb in verbs):
            choices += [FlatMap(rng.randint(2, 4), rng.random() < 0.5), Unbatch(rng.randint(2, 4))]
        if not unknown or (not spec.streams and not closed):
            choices.append(Repeat(rng.randint(1, 3)))
        if not unknown:
            choices.append(Repeat(None, rng.choice((1, 13, 40, 60))))
        verbs.append(rng.choice(choices))
    return verbs


def counts(verbs: Sequence[Verb]) -> bool:
    """Whether a verb that counts samples as they come stands after one that changes their number."""
    first = next((at for at, verb in enumerate(verbs) if isinstance(verb, RAGGED)), len(verbs))
    late = [verb for verb in verbs[first:] if isinstance(verb, ORDER)]
    return any(isinstance(verb, (Take, Skip)) or (isinstance(verb, Shuffle) and verb.window is not None) for verb in late)


def with_draws(rng: random.Random, spec: Spec) -> list[Verb]:
    """The verbs with some that draw, where the documentation says which position they draw for.

    After a verb that changes the number of samples that is only known where they have been numbered again: after a verb that
    counts them, or at the end.
    """
    verbs: list[Verb] = []
    numbered = True
    for verb in (*spec.verbs, None):
        if (numbered or verb is None) and rng.random() < 0.15:
            verbs.append(Draw())
        if verb is not None:
            verbs.append(verb)
            late = isinstance(verb, (Take, Skip)) or (isinstance(verb, Shuffle) and verb.window is not None)
            numbered = isinstance(verb, InnerBatch) or (numbered and not isinstance(verb, RAGGED)) or late
    return verbs


def with_fields(rng: random.Random, spec: Spec, shelf: Shelf) -> Spec:
    """The pipeline with fields selected, dropped or renamed somewhere; x stays."""
    if rng.random() < 0.6:
        return spec
    at = rng.randint(0, len(spec.verbs))
    fields = names_of(replace(spec, verbs=spec.verbs[:at]), shelf)
    if fields == ["x"] or "x" not in fields:
        return spec
    verb = fields_verb(rng, fields, keep="x")
    late = spec.verbs[at:]
    if ("d" in fields and any(isinstance(each, Draw) for each in late)) or any(isinstance(each, Grow) for each in spec.verbs):
        return spec
    return replace(spec, verbs=(*spec.verbs[:at], verb, *late))


def fields_verb(rng: random.Random, fields: list[str], keep: str = "") -> Verb:
    others = [name for name in fields if name != keep]
    chosen = rng.sample(others, rng.randint(0 if keep else 1, len(others)))
    if keep:
        chosen.insert(rng.randint(0, len(chosen)), keep)
    verbs: list[Verb] = [Select(tuple(chosen)), Rename(renamed := rng.choice(others), 2 * renamed)]
    if len(fields) > 1:
        verbs.append(Drop(rng.choice(others)))
    return rng.choice(verbs)


def names_of(spec: Spec, shelf: Shelf) -> list[str]:
    """The fields of the samples, or only x where there is no sample to show them."""
    return next((list(row.values) for row in samples_of(spec, shelf.rows, 0) if not row.bad), [])


def random_behind(rng: random.Random, spec: Spec, fields: list[str]) -> dict[str, Any]:
    """Verbs over batches, and an endless repeat before them where they end it."""
    behind: list[Verb] = []
    if "x" in fields and rng.random() < 0.2:
        behind.append(Total())
        fields = [*fields, "s"]
    if fields and "r" not in fields and rng.random() < 0.2:
        behind.append(fields_verb(rng, fields))
    if not spec.counted or rng.random() < 0.6:
        return {"behind": tuple(behind)}
    behind += rng.choice([[Take(rng.randint(1, 4))], [Skip(rng.randint(0, 3))], [Skip(1), Take(3)], [Take(4), Skip(1)], []])
    if behind and isinstance(behind[-1], Take) and rng.random() < 0.3:
        last = sum(verb.count for verb in behind if isinstance(verb, (Take, Skip)))
        assert spec.batch is not None
        endless = Repeat(None, None, enough=4 * spec.batch.size * last)
        return {"behind": tuple(behind), "verbs": (*spec.verbs, endless)}
    if rng.random() < 0.5:
        behind.append(Repeat(rng.randint(2, 3)))
    return {"behind": tuple(behind)}


# ---- checking one ------------------------------------------------------------------------------------------------------------


def check(case: Case, shelf: Shelf) -> None:
    """Run a case, and compare all that comes out of it with what the oracle says."""
    spec, ranks, rows_of = case.spec, case.ranks, shelf.rows
    epochs = [steps_of(spec, ranks, rows_of, case.epoch + number) for number in range(2)]
    if spec.counted and not epochs[0]:
        refused(case, shelf)
        return
    states = [run_of(case, shelf, rank, epochs) for rank in range(ranks.world)]
    same_for_all = spec.batch is not None or not spec.lenient
    if same_for_all:
        places = [{**state, "skipped": None} for state in states]  # of bad samples each rank counts its own
        agree("states of the ranks", places, [places[0]] * ranks.world)
        stop = stop_of(case, epochs[0])
        agree("the state's row", states[0]["row"], epochs[0][stop - 1].end if stop else 0)
    rank = case.stop % ranks.world
    resumed(case, shelf, rank, states[rank], epochs)
    if case.later and same_for_all:
        taken_over(case, shelf, states[-1])
    looked_up(case, shelf)


def pipeline_of(spec: Spec, shelf: Shelf, ranks: Ranks, rank: int, shard_at: str) -> Pipeline:
    pipeline = open_source(spec.source, shelf)
    if shard_at == "first":
        pipeline = pipeline.shard(rank, ranks.world, ranks.remainder)
    for verb in (*spec.verbs, *([spec.batch] if spec.batch else []), *spec.behind):
        pipeline = verb.on(pipeline)
    return pipeline.shard(rank, ranks.world, ranks.remainder) if shard_at == "last" else pipeline


def open_source(source: Stored | Mixed, shelf: Shelf) -> Pipeline:
    if isinstance(source, Stored):
        return shelf.open(source.kind, source.n)
    members = []
    for member in source.members:
        pipeline = open_source(member.source, shelf)
        for verb in member.verbs:
            pipeline = verb.on(pipeline)
        members.append(pipeline)
    return stoker.mix(members, weights=source.weights, until=source.until)


def loader_of(case: Case, shelf: Shelf, rank: int, way: Way, **options: Any) -> Loader:
    return pipeline_of(case.spec, shelf, case.ranks, rank, case.shard_at).loader(**dict(way), **options)


def refused(case: Case, shelf: Shelf) -> None:
    try:
        loader_of(case, shelf, 0, WAYS[0]).close()
    except ConfigError:
        return
    raise Mismatch("a pipeline that gives no batch at all should be refused")


def stop_of(case: Case, steps: list[Step]) -> int:
    """After how many steps the state is taken, on every rank."""
    taken = min(case.stop, *(len(epoch_of(case.spec, case.ranks, rank, steps)) for rank in range(case.ranks.world)))
    return max(0, taken - case.before)


def run_of(case: Case, shelf: Shelf, rank: int, epochs: list[list[Step]]) -> dict[str, Any]:
    """Run an epoch, and perhaps the next one; returns the state saved on the way."""
    wanted = [epoch_of(case.spec, case.ranks, rank, steps) for steps in epochs]
    stop = stop_of(case, epochs[0])
    way = case.ways[0] if rank == case.ranks.world - 1 else WAYS[0]
    with loader_of(case, shelf, rank, way, epoch=case.epoch if case.stop % 2 else 0) as loader:
        loader.set_epoch(case.epoch)
        check_length(case, loader, len(epochs[0]))
        saved, seen = loader.state_dict(), []
        for batch in loader:
            seen.append(plain_batch(batch))
            if len(seen) == stop + case.before:
                saved = loader.state_dict(before=case.before)
                if case.leave:
                    break
        agree(f"epoch {case.epoch} of rank {rank}", seen, wanted[0][: len(seen)] if case.leave else wanted[0])
        if rank == 0 and (case.leave or case.stop % 2):
            agree(f"epoch {case.epoch + 1} of rank {rank}", plain_epoch(loader), wanted[1])
    state: dict[str, Any] = json.loads(json.dumps(saved))
    return state


def check_length(case: Case, loader: Loader, steps: int) -> None:
    try:
        length: int | None = len(loader)
    except TypeError:
        length = None
    agree("len(loader)", length, steps if case.spec.counted else None)


def resumed(case: Case, shelf: Shelf, rank: int, state: dict[str, Any], epochs: list[list[Step]]) -> None:
    wanted = [epoch_of(case.spec, case.ranks, rank, steps) for steps in epochs]
    stop = stop_of(case, epochs[0])
    with loader_of(case, shelf, rank, case.ways[1]) as loader:
        if case.leave:  # a loader that was somewhere else before
            next(iter(loader), None)
        loader.load_state_dict(state)
        left: list[Given] = []
        if case.before and wanted[0][stop:]:  # one step, and from there once more
            left.append(plain_batch(next(iter(loader))))
            state = json.loads(json.dumps(loader.state_dict()))
            loader.load_state_dict(state)
        left += rest_of(case, loader, len(epochs[0]) > stop + len(left) or not state["row"])
        agree(f"rank {rank}, resumed after {stop} steps", left, wanted[0][stop:])
        if not case.leave:
            agree("the epoch after the resumed one", plain_epoch(loader), wanted[1])


def rest_of(case: Case, loader: Loader, more: bool) -> list[Given]:
    """What is left of the epoch; a state with nothing after it is the start of the next one, unless it is of an empty epoch."""
    if case.spec.batch or not case.spec.lenient:  # where bad samples come last, only the run shows that nothing follows
        agree("the epoch after loading", loader.epoch, case.epoch + (not more))
    return plain_epoch(loader) if loader.epoch == case.epoch else []


def later_of(case: Case) -> tuple[Spec, Ranks]:
    assert case.later is not None
    ranks, size = case.later
    return replace(case.spec, batch=replace(case.spec.batch, size=size) if case.spec.batch else None), ranks


def taken_over(case: Case, shelf: Shelf, state: dict[str, Any]) -> None:
    """Other ranks, with batches of another size, go on from a state."""
    spec, ranks = later_of(case)
    other = replace(case, spec=spec, ranks=ranks, shard_at="last")
    whole = steps_of(spec, ranks, shelf.rows, case.epoch)
    if spec.counted and not whole:
        refused(other, shelf)
        return
    if any(isinstance(verb, (Take, Skip)) for verb in spec.behind):
        steps = [step for step in whole if step.end > state["row"]]
    else:
        steps = steps_of(spec, ranks, shelf.rows, case.epoch, state["row"])
    for rank in range(ranks.world):
        with loader_of(other, shelf, rank, WAYS[0]) as loader:
            loader.load_state_dict(state)
            wanted = epoch_of(spec, ranks, rank, steps)
            agree(f"rank {rank} of {ranks.world}, taken over", rest_of(other, loader, bool(steps) or not state["row"]), wanted)


def looked_up(case: Case, shelf: Shelf) -> None:
    """Single samples by their number, and the explanation of a step."""
    spec = case.spec
    if spec.lenient:
        return
    rows = samples_of(spec, shelf.rows, 0, first=0)
    alone = not any(isinstance(verb, Repeat) for verb in spec.behind)
    if rows and alone and case.stop % 3 == 0:
        at = case.stop % len(rows)
        sample = pipeline_of(spec, shelf, case.ranks, 0, case.shard_at).sample(at)
        agree(f"sample {at}", (sample.key, {k: plain(v) for k, v in sample.items()}), (rows[at].key, rows[at].values))
    steps = steps_of(spec, case.ranks, shelf.rows, case.epoch)
    if spec.counted and case.stop % 3 == 1:
        at, rank = case.stop % len(steps), case.ranks.world - 1
        with loader_of(case, shelf, rank, WAYS[0]) as loader:
            explained = loader.explain(at, case.epoch)
        agree(f"explain({at})", [row["key"] for row in explained], [row.key for row, _ in steps[at].shares[rank]])


def agree(what: str, found: Any, wanted: Any) -> None:
    if found == wanted:
        return
    if isinstance(found, list) and isinstance(wanted, list):
        at = next((at for at, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        what = f"{what}, number {at} of {len(found)} (should be {len(wanted)})"
        found, wanted = found[at : at + 1], wanted[at : at + 1]
    raise Mismatch(f"{what}:\n  got    {found}\n  wanted {wanted}")


def plain_epoch(loader: Loader) -> list[Given]:
    return [plain_batch(batch) for batch in loader]


def plain_batch(batch: Any) -> Given:
    """A batch, or a sample as a batch of one, in lists."""
    if isinstance(batch, StokerBatch):
        return Given({name: plain(column) for name, column in batch.items()}, list(batch.sample_keys), batch.valid.tolist())
    return Given({name: [plain(value)] for name, value in batch.items()}, [batch.key])


def plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value if isinstance(value, (str, bytes, int, float)) else [plain(part) for part in value]


# ---- making a failure smaller ------------------------------------------------------------------------------------------------


def failure_of(case: Case, shelf: Shelf) -> Exception | None:
    try:
        check(case, shelf)
    except Exception as error:
        return error
    return None


def smallest(case: Case, shelf: Shelf, error: Exception) -> Case:
    """A case that fails in the same manner, of which nothing more can be left out."""
    for simpler in simpler_than(case):
        try:
            found = None if simpler.spec.endless or hopeless(simpler, shelf) else failure_of(simpler, shelf)
        except Exception:  # leaving this out makes no pipeline
            continue
        if found is not None and place_of(found) == place_of(error):
            return smallest(simpler, shelf, error)
    return case


def place_of(error: Exception) -> Any:
    """What was raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), last.filename, last.lineno


def simpler_than(case: Case) -> Iterator[Case]:
    spec = case.spec
    if isinstance(spec.source, Mixed):
        yield from (replace(case, spec=replace(spec, source=source)) for source in simpler_mixes(spec.source))
    for at in range(len(spec.verbs)):
        yield replace(case, spec=replace(spec, verbs=(*spec.verbs[:at], *spec.verbs[at + 1 :])))
    if spec.batch and spec.batch.pad is not None:
        even = tuple(verb for verb in spec.verbs if verb != Grow())
        yield replace(case, spec=replace(spec, verbs=even, batch=replace(spec.batch, pad=None)))
    for at in range(len(spec.behind)):
        yield replace(case, spec=replace(spec, behind=(*spec.behind[:at], *spec.behind[at + 1 :])))
    if isinstance(spec.source, Stored) and spec.source.n > 1:
        kind, n = spec.source.kind, spec.source.n
        sizes = (n // 2, n - 1) if kind in IN_MEMORY else (n,)
        plainer = "stream" if kind in STREAMS else "arrays"
        yield from (
            replace(case, spec=replace(spec, source=source))
            for source in (*(Stored(plainer, size) for size in sizes), *(Stored(kind, size) for size in sizes))
            if source != spec.source
        )
    changes: list[dict[str, Any]] = [
        {"ranks": Ranks(), "shard_at": "nowhere"},
        {"later": None},
        {"leave": False},
        {"before": False},
        {"epoch": 0},
        {"stop": 0},
        {"ways": (WAYS[0], WAYS[0])},
    ]
    yield from (changed for change in changes if (changed := replace(case, **change)) != case)


def simpler_mixes(mix: Mixed) -> Iterator[Stored | Mixed]:
    for at, member in enumerate(mix.members):
        before, after = mix.members[:at], mix.members[at + 1 :]
        yield member.source
        if len(mix.members) > 1:
            yield replace(mix, members=before + after, weights=mix.weights[:at] + mix.weights[at + 1 :])
        for number in range(len(member.verbs)):
            verbs = member.verbs[:number] + member.verbs[number + 1 :]
            yield replace(mix, members=(*before, replace(member, verbs=verbs), *after))


def report(seed: int, shelf: Shelf) -> str | None:
    """What is wrong with the case of a seed, with how to repeat it; None: nothing."""
    case = case_of(seed, shelf)
    error = failure_of(case, shelf)
    if error is None:
        return None
    small = smallest(case, shelf, error)
    return (
        f"seed {seed}: python -m tests.system.random_pipelines --seed {seed}\n"
        "(functions are those of tests/system/pipeline_specs.py, sources those of tests/system/stored_samples.py)\n\n"
        f"{case}\n\n{described(error)}\n\n"
        f"The smallest that fails:\n\n{small}\n\n{described(failure_of(small, shelf))}"
    )


def described(error: Exception | None) -> str:
    return str(error) if error is None or isinstance(error, Mismatch) else "".join(traceback.format_exception(error))


# ---- from a shell ------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.random_pipelines", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, help="run the pipeline of this seed only, or begin with it")
    parser.add_argument("--seconds", type=float, default=0.0, help="run one after another until the time is over")
    parser.add_argument("--count", type=int, default=0, help="run so many, one after another")
    options = parser.parse_args()
    endless = options.seconds > 0 or options.count > 0
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 40)
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    most = options.count or (sys.maxsize if endless else 1)
    print(f"random pipelines from seed {first}", flush=True)
    warnings.simplefilter("error")  # as in the suite
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        shelf = Shelf(Path(folder))
        while done < most and time.monotonic() < deadline:
            if not endless:
                print(case_of(first, shelf), flush=True)
            if (wrong := report(first + done, shelf)) is not None:
                print(wrong, file=sys.stderr)
                return 1
            done += 1
            if done % 1000 == 0:
                print(f"{done:,} pipelines", flush=True)
    if not no_workers():
        print(f"threads are left behind: {', '.join(workers())}", file=sys.stderr)
        return 1
    print(f"{done:,} pipelines, all as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
