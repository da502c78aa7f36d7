"""Compiles the verbs a user wrote into a plan that the loader can run.

A plan consists of a source, an order over it, *segments* (runs of stages that change the number of samples, so that their
results must be renumbered), the stages after the last segment, and the batch. Most pipelines have no segment; then the rows of
a batch are known by arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Union, cast

from ..errors import ConfigError
from ..source.chunk import OBJECT
from ..source.source import Source, digest
from .columns import NO_WORK, AnySource, AnyStep, View, Work, renamed, resolve, varying_fields, view_of, work_of
from .deal import Deal
from .field_effects import Specs
from .nodes import (
    RAGGED,
    Batch,
    Blend,
    Cached,
    Drop,
    Filter,
    FinishNode,
    FlatMap,
    Map,
    MapBatch,
    MapFields,
    Mix,
    NameNode,
    Node,
    OnError,
    OrderNode,
    Regroup,
    Rename,
    Repeat,
    Retry,
    Select,
    Shard,
    Shuffle,
    Skip,
    SkipPolicy,
    StageNode,
    Take,
    Unbatch,
    describe,
    verb_of,
    written,
)
from .order import Order
from .random_streams import draws, streams_of

#: verbs over samples that must be counted as they come
TailNode = Union[Take, Skip, Shuffle]


@dataclass(frozen=True, slots=True)
class Segment:
    """Stages after which samples are numbered again, and the counting verbs that follow them.

    `unit` is how many samples a task must take (the size of an inner batch); 0: any number. `work` is what is left of the nodes
    when names are resolved.
    """

    nodes: tuple[StageNode, ...]
    unit: int = 0
    tail: tuple[TailNode, ...] = ()
    work: Work = NO_WORK


@dataclass(frozen=True, slots=True)
class Steps:
    """What is left of the batches of one pass over the data, and how many passes make an epoch."""

    begin: int = 0
    end: int | None = None
    passes: int | None = 1
    verbs: tuple[OrderNode, ...] = ()  # as they were written, for messages


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is known before running; equal plans behave equally."""

    source: AnySource
    order: Order | None  # None: the source cannot be indexed
    pass_rows: int | None  # samples of one pass over the order; None: without end, or unknown
    segments: tuple[Segment, ...]
    stages: tuple[StageNode, ...]
    batch: Batch | None
    finish: tuple[FinishNode, ...]
    steps: Steps
    shard: Shard | None
    policy: SkipPolicy | None
    retries: int  # of input and output
    seed: int
    specs: Specs  # of the fields before `finish`
    wanted: tuple[str, ...]  # fields read from the source
    work: Work  # what is left of `stages` when names are resolved
    finishing: Work  # and of `finish`

    @property
    def works(self) -> tuple[Work, ...]:
        """What is left of the segments, and of the stages after them."""
        return (*(segment.work for segment in self.segments), self.work)

    @property
    def counted(self) -> bool:
        """Whether every batch's rows are known by arithmetic."""
        return self.order is not None and not self.segments

    @property
    def functions(self) -> bool:
        """Whether functions of the user run in it."""
        steps = [step for work in (*self.works, self.finishing) for step in work.steps]
        return any(isinstance(step.node, (Map, MapFields, Filter, FlatMap, MapBatch)) for step in steps)

    @property
    def varying(self) -> set[str]:
        """Fields with images whose size is known only from the samples; a batch is a list unless all its images have one size."""
        varying = varying_fields([node for segment in self.segments for node in segment.nodes] + list(self.stages))
        return {name for name in varying if self.specs is None or name not in self.specs or not self.specs[name].fixed}

    @property
    def replays(self) -> bool:
        """Whether resuming within an epoch has to run its beginning again (exact, but not at once)."""
        return self.order is None or len(self.segments) > 1 or any(s.unit or s.tail for s in self.segments)

    def deal(self, rank: int, world: int) -> Deal:
        """How rows are dealt to this rank; a plan does not know its rank, so that all ranks have the same."""
        size, drop_last = (self.batch.size, self.batch.drop_last) if self.batch else (1, True)
        return Deal(size, rank, world, self.shard.remainder if self.shard else "drop", drop_last)

    def identity(self) -> dict[str, str]:
        """What a saved state must agree with, by name. Ranks, workers and batch size are not part of it."""
        order: Sequence[Node] = self.order.verbs if self.order else ()
        stages: list[Node] = [node for segment in self.segments for node in (*segment.nodes, *segment.tail)]
        stages = [node for node in (*stages, *self.stages, *self.finish) if not isinstance(node, Cached)]
        return {
            "source": self.source.fingerprint(),
            "order": digest("order", *map(describe, order)),
            "stages": digest("stages", *map(describe, stages)),
        }


def _seed_of(verb: OrderNode) -> int | None:
    """The seed a verb brings with it: a shuffle's own, or that of the first shuffle in a mix."""
    if isinstance(verb, Mix):
        inner = [_seed_of(inner) for member in verb.members for inner in member.verbs]
        return next((seed for seed in inner if seed is not None), None)
    return verb.seed if isinstance(verb, Shuffle) else None


def resolve_names(source: Source, nodes: Sequence[NameNode]) -> tuple[Source, dict[str, str]]:
    """A source after verbs over names: itself, or one with columns they ask for, and {name: column}."""
    work = _Compiler(source)
    _, view = resolve(nodes, view_of(source.fields), work._either)
    assert isinstance(work.source, Source)
    return work.source, {name: held.column for name, held in (view or {}).items()}


def compile_plan(source: AnySource, nodes: Sequence[Node]) -> Plan:
    """Check a pipeline and lay it out; every mistake that can be known before running is found here."""
    work = _Compiler(source)
    rest = list(nodes)
    while rest:
        node = rest.pop(0)
        if isinstance(node, Batch) and any(isinstance(later, Unbatch) for later in rest):
            cut = next(i for i, later in enumerate(rest) if isinstance(later, Unbatch))
            work.regroup(node, rest[:cut])
            rest = rest[cut + 1 :]
        else:
            work.add(node)
    return work.plan()


@dataclass(slots=True)
class _Compiler:
    """Walks the verbs once, source first."""

    source: AnySource
    verbs: list[OrderNode] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    current: list[StageNode] = field(default_factory=list)
    unit: int = 0
    batch: Batch | None = None
    finish: list[FinishNode] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    shard: Shard | None = None
    policy: SkipPolicy | None = None
    retries: int = 0
    seed: int | None = None
    wanted: tuple[str, ...] = ()

    @property
    def ragged(self) -> bool:
        return bool(self.segments) or any(isinstance(node, RAGGED) for node in self.current)

    def add(self, node: Node) -> None:
        if isinstance(node, OnError):
            self.policy = node.policy
        elif isinstance(node, Retry):
            self.retries = node.times
        elif isinstance(node, Shard):
            if self.shard is not None:
                raise ConfigError("shard() appears twice; omit one of them")
            self.shard = node
        elif isinstance(node, (Shuffle, Take, Skip, Repeat, Mix)):
            self._add_order(node)
        elif isinstance(node, Batch):
            if self.batch is not None:
                raise ConfigError("batch() appears twice; put unbatch() between them, or omit one")
            self.batch = node
        elif isinstance(node, (MapBatch, Blend)):
            if self.batch is None:
                instead = ", or use map()" if isinstance(node, MapBatch) else ""
                raise ConfigError(f"{verb_of(node)}() needs a batch: put it after batch(){instead}")
            self.finish.append(node)
        elif self.batch is not None:
            if not isinstance(node, (Select, Rename, Drop)):
                verb = verb_of(node)
                instead = "" if isinstance(node, Cached) else ", or use map_batch()"
                raise ConfigError(f"{verb}() works on samples: put it before batch(){instead}")
            self.finish.append(node)
        else:
            if isinstance(node, Cached):
                self._check_cache(node)
            self.current.append(node)

    def _check_cache(self, node: Cached) -> None:
        """Raise where a sample is not the same each time, or is not one of the source's."""
        verb = written(node)
        if not isinstance(self.source, Source):
            raise ConfigError(
                f"{verb}: samples of a stream have no number and cannot be looked up; pack them into shards with `stoker "
                "pack`, or with "
                "stoker.write_tar"
            )
        if self.segments:
            raise ConfigError(
                f"{verb}: samples before it are counted or joined as they come (take, skip, shuffle(window=...) or an inner "
                "batch after filter, flat_map or unbatch); put cache() before that verb"
            )
        if any(isinstance(before, Cached) for before in self.current):
            raise ConfigError(f"{verb}: cache() appears twice; omit the first one, because the second is enough")
        random = next((before for before in self.current if draws(before)), None)
        if random is not None:
            raise ConfigError(
                f"{verb}: {written(random)} draws random numbers; put cache() before it, so that each epoch differs"
            )

    def _add_order(self, node: OrderNode) -> None:
        if self.seed is None:
            self.seed = _seed_of(node)
        if self.batch is not None:
            self._add_step(node)
        elif (not self.ragged and isinstance(self.source, Source)) or self._commutes(node):
            self.verbs.append(node)
        elif isinstance(node, Repeat) and not isinstance(self.source, Source):
            raise ConfigError("a stream cannot be repeated: let its function yield the samples as often as needed")
        elif isinstance(node, Repeat):
            raise ConfigError(
                "repeat() must come before take, skip, a window shuffle or an inner batch, or right after the source"
            )
        elif isinstance(node, Shuffle) and node.window is None:
            raise ConfigError(
                "shuffle() over the whole data set needs samples that can be counted in advance: "
                "put it before flat_map, unbatch or batch, or give it a window (a stream needs one)"
            )
        else:
            assert not isinstance(node, Mix)  # always the first verb
            self._close(node)

    def _commutes(self, node: OrderNode) -> bool:
        """Whether the verb may act on the source's order although stages that change the count came before it.

        Repeating or shuffling the source and then filtering gives the same samples as the other way round.
        """
        if not isinstance(self.source, Source) or self.segments:
            return False
        if isinstance(node, Repeat):
            return not self.unit
        whole = isinstance(node, Shuffle) and node.window is None
        return whole and all(isinstance(n, Filter) for n in self.current if isinstance(n, RAGGED))

    def _add_step(self, node: OrderNode) -> None:
        steps, verbs = self.steps, (*self.steps.verbs, node)
        repeated = steps.passes != 1
        if isinstance(node, Take) and not repeated:
            end = steps.begin + node.count
            self.steps = Steps(steps.begin, end if steps.end is None else min(end, steps.end), verbs=verbs)
        elif isinstance(node, Skip) and not repeated:
            self.steps = Steps(steps.begin + node.count, steps.end, verbs=verbs)
        elif isinstance(node, Repeat) and not repeated:
            self.steps = Steps(steps.begin, steps.end, node.count, verbs)
        else:
            verb = verb_of(node)
            raise ConfigError(f"{verb}() cannot come after batch() here: put it before batch()")

    def _close(self, *tail: TailNode) -> None:
        """End the current segment: what follows sees samples numbered again."""
        if not self.current and self.segments and not self.unit:
            last = self.segments.pop()
            self.segments.append(Segment(last.nodes, last.unit, last.tail + tail))
            return
        self.segments.append(Segment(tuple(self.current), self.unit, tail))
        self.current, self.unit = [], 0

    def regroup(self, batch: Batch, inner: list[Node]) -> None:
        """`batch ... unbatch`: an inner batch, whose functions may change its number of rows."""
        for node in inner:
            if not isinstance(node, (MapBatch, Select, Rename, Drop)):
                verb = verb_of(node)
                raise ConfigError(f"{verb}() is between batch() and unbatch(); only map_batch, select, rename and drop can")
        if self.ragged or not isinstance(self.source, Source):
            self._close()
        self.unit = batch.size
        self.current.append(Regroup(batch, tuple(cast("list[MapBatch | NameNode]", inner))))
        self._close()

    def plan(self) -> Plan:
        if any(isinstance(node, RAGGED) for node in self.current):
            # A cache after them is theirs: it keeps what became of a sample of the source.
            last = max(i for i, node in enumerate(self.current) if isinstance(node, (*RAGGED, Cached)))
            self._check_skipping(self.current[: last + 1])
            self.segments.append(Segment(tuple(self.current[: last + 1]), self.unit))
            self.current = self.current[last + 1 :]
        if not isinstance(self.source, Source) and not self.segments:
            self.segments.append(Segment(()))
        if self.segments and self.steps != Steps():
            raise ConfigError("take, skip and repeat after batch() need samples that can be counted: put them before batch()")
        works, finishing, specs = self._resolved()
        order = Order(tuple(self.verbs), len(self.source)) if isinstance(self.source, Source) else None
        pass_rows = order.length if order else None
        if order and self.steps.passes != 1:
            if pass_rows is None:
                raise ConfigError(
                    "repeat() after batch() repeats passes over the data, but a repeat() before it never ends its first pass: "
                    "give that one a count, or omit one of them"
                )
            order = Order((*order.verbs, Repeat(self.steps.passes)), order.source_length)
        return Plan(
            source=self.source,
            order=order,
            pass_rows=pass_rows,
            segments=tuple(replace(segment, work=work) for segment, work in zip(self.segments, works)),
            stages=tuple(self.current),
            batch=self.batch,
            finish=tuple(self.finish),
            steps=self.steps,
            shard=self.shard,
            policy=self.policy,
            retries=self.retries,
            seed=self.seed or 0,
            specs=specs,
            wanted=self.wanted,
            work=works[-1],
            finishing=finishing,
        )

    def _check_skipping(self, nodes: Sequence[StageNode]) -> None:
        """Raise where a sample would be left out before batches are cut with a cache, and after that without it."""
        ragged = max(i for i, node in enumerate(nodes) if isinstance(node, RAGGED))
        between = [node for node in nodes[ragged + 1 : -1] if not isinstance(node, (Select, Rename, Drop))]
        if self.policy is not None and isinstance(nodes[-1], Cached) and between:
            verb, later = verb_of(nodes[ragged]), verb_of(between[0])
            raise ConfigError(
                f"{written(nodes[-1])}: with on_error('skip'), {later}() must not be between {verb}() and cache(), because a "
                f"bad sample would be skipped in other batches than without the cache; put {later}() before {verb}() or "
                "after cache()"
            )

    def _resolved(self) -> tuple[list[Work], Work, Specs]:
        """What is left of segments and stages, and of what follows `batch`, when names are columns; and the batch's fields.

        What nobody looks at later is left out, and not read in the first place; a stream gives all it has.
        """
        view, runs = view_of(self.source.fields), list[tuple[list[AnyStep], View]]()
        parts = [*(segment.nodes for segment in self.segments), self.current]
        streams = iter(streams_of([node for nodes in (*parts, self.finish) for node in nodes]))
        for nodes in parts:
            steps, view = resolve(nodes, view, None if any(steps for steps, _ in runs) else self._either, streams)
            runs.append((steps, view))
            view = renamed(view)
        specs = None if view is None else {name: held.spec for name, held in view.items()}
        padded = dict(self.batch.pad) if self.batch else {}
        if specs is not None and (unknown := [name for name in padded if name not in specs]):
            raise ConfigError(f"batch(pad=...) names the field {unknown[0]!r}, but the fields here are {', '.join(specs)}")
        given = view_of(specs and {**specs, **dict.fromkeys(padded, OBJECT)})
        finishing, need = work_of(*resolve(self.finish, given, streams=streams), None)
        if specs is not None:
            specs = {name: spec for name, spec in specs.items() if need is None or name in need}
        if specs is not None and finishing.columns is not None and list(finishing.columns) != list(specs):
            finishing = replace(finishing, moves=True)  # to another order
        works: list[Work] = []
        for steps, view in reversed(runs):
            work, need = work_of(steps, view, need)
            works.insert(0, work)
        fields = self.source.fields or ()
        if isinstance(self.source, Source):
            self.wanted = tuple(name for name in fields if need is None or name in need)
        else:
            self.wanted, works[0] = tuple(fields), replace(works[0], moves=works[0].columns is not None)
        return works, finishing, specs

    def _either(self, columns: tuple[str, ...]) -> str:
        """One column of the source in place of several."""
        self.source, column = self.source.either(columns)
        return column
