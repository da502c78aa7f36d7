"""From the verbs a user wrote to a plan the loader can run.

A plan is: a source, an order over it, *segments* (runs of stages that change the number of samples, so that what they give must
be numbered anew), the stages behind the last of these, and the batch. Most pipelines have no segment at all; then a batch's rows
are known by arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Union, cast

from ..errors import ConfigError
from ..source.chunk import OBJECT, FieldSpec
from ..source.source import Source, digest
from ..source.streams.stream import StreamSource
from .deal import Deal
from .field_effects import Specs, all_after, fields_after, fields_read, varying_fields, wanted_fields
from .nodes import (
    RAGGED,
    Batch,
    Blend,
    Drop,
    Filter,
    FinishNode,
    MapBatch,
    Mix,
    Node,
    OnError,
    OrderNode,
    Regroup,
    Rename,
    Repeat,
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
)
from .order import Order
from .random_streams import streams_of

AnySource = Union[Source, StreamSource]
#: verbs over samples that have to be counted as they come
TailNode = Union[Take, Skip, Shuffle]


@dataclass(frozen=True, slots=True)
class Segment:
    """Stages after which samples are numbered anew, and the counting verbs that follow them.

    `unit` is how many samples a task must take (the size of an inner batch); 0: any number.
    """

    nodes: tuple[StageNode, ...]
    unit: int = 0
    tail: tuple[TailNode, ...] = ()


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
    seed: int
    specs: Specs  # of the fields in front of `finish`
    wanted: tuple[str, ...]  # fields read from the source

    @property
    def counted(self) -> bool:
        """Whether every batch's rows are known by arithmetic."""
        return self.order is not None and not self.segments

    @property
    def streams(self) -> tuple[tuple[int, ...], ...]:
        """The random streams of each node of the segments, of the stages and of what happens to batches, one after the other."""
        return streams_of([*(node for segment in self.segments for node in segment.nodes), *self.stages, *self.finish])

    @property
    def varying(self) -> set[str]:
        """Fields that hold images whose size only the samples tell; a batch is a list unless all of its images have one size."""
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
        stages += [*self.stages, *self.finish]
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
    seed: int | None = None

    @property
    def ragged(self) -> bool:
        return bool(self.segments) or any(isinstance(node, RAGGED) for node in self.current)

    def add(self, node: Node) -> None:
        if isinstance(node, OnError):
            self.policy = node.policy
        elif isinstance(node, Shard):
            if self.shard is not None:
                raise ConfigError("a pipeline is sharded once: shard() appears twice")
            self.shard = node
        elif isinstance(node, (Shuffle, Take, Skip, Repeat, Mix)):
            self._add_order(node)
        elif isinstance(node, Batch):
            if self.batch is not None:
                raise ConfigError("batch() appears twice; put unbatch() between, or batch once")
            self.batch = node
        elif isinstance(node, (MapBatch, Blend)):
            if self.batch is None:
                instead = ", or use map()" if isinstance(node, MapBatch) else ""
                raise ConfigError(f"{verb_of(node)}() needs a batch: put it behind batch(){instead}")
            self.finish.append(node)
        elif self.batch is not None:
            if not isinstance(node, (Select, Rename, Drop)):
                verb = verb_of(node)
                raise ConfigError(f"{verb}() works on samples: put it before batch(), or use map_batch()")
            self.finish.append(node)
        else:
            self.current.append(node)

    def _add_order(self, node: OrderNode) -> None:
        if self.seed is None:
            self.seed = _seed_of(node)
        if self.batch is not None:
            self._add_step(node)
        elif (not self.ragged and isinstance(self.source, Source)) or self._commutes(node):
            self.verbs.append(node)
        elif isinstance(node, Repeat) and not isinstance(self.source, Source):
            raise ConfigError("a stream cannot be repeated: let its function give the samples as often as you want them")
        elif isinstance(node, Repeat):
            raise ConfigError(
                "repeat() must stand before take, skip, a window shuffle or an inner batch, or right behind the source"
            )
        elif isinstance(node, Shuffle) and node.window is None:
            raise ConfigError(
                "shuffle() over the whole data set needs samples that can be counted beforehand: "
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
            raise ConfigError(f"{verb}() cannot stand here behind batch(): put it before batch()")

    def _close(self, *tail: TailNode) -> None:
        """End the current segment: what follows sees samples numbered anew."""
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
                raise ConfigError(f"{verb}() stands between batch() and unbatch(); only map_batch, select, rename and drop can")
        if self.ragged or not isinstance(self.source, Source):
            self._close()
        self.unit = batch.size
        self.current.append(Regroup(batch, tuple(cast("list[MapBatch | Select | Rename | Drop]", inner))))
        self._close()

    def plan(self) -> Plan:
        if any(isinstance(node, RAGGED) for node in self.current):
            last = max(i for i, node in enumerate(self.current) if isinstance(node, RAGGED))
            self.segments.append(Segment(tuple(self.current[: last + 1]), self.unit))
            self.current = self.current[last + 1 :]
        indexed = isinstance(self.source, Source)
        if not indexed and not self.segments:
            self.segments.append(Segment(()))
        if self.segments and self.steps != Steps():
            raise ConfigError("take, skip and repeat behind batch() need samples that can be counted: put them before batch()")
        source_specs: dict[str, FieldSpec] | None = None if self.source.fields is None else dict(self.source.fields)
        stages = [node for segment in self.segments for node in segment.nodes] + self.current
        specs = all_after(stages, source_specs)
        padded = {name for name, _ in self.batch.pad} if self.batch else set()
        finish_fields: Specs = specs and {name: OBJECT if name in padded else spec for name, spec in specs.items()}
        for finisher in self.finish:
            finish_fields = None if isinstance(finisher, MapBatch) else fields_after(finisher, finish_fields)
        for name, _ in self.batch.pad if self.batch else ():
            if specs is not None and name not in specs:
                raise ConfigError(f"batch(pad=...) names the field {name!r}, but the fields here are {', '.join(specs)}")
        # Select and drop behind batch() narrow what is read just as before it; a batch function may look at everything.
        narrowing = [] if any(isinstance(node, MapBatch) for node in self.finish) else self.finish
        wanted = tuple(source_specs or ())
        if indexed and source_specs is not None:  # a stream gives all it has
            wanted = wanted_fields([*stages, *narrowing], source_specs)
        order = Order(tuple(self.verbs), len(self.source)) if isinstance(self.source, Source) else None
        pass_rows = order.length if order else None
        if order and self.steps.passes != 1:
            if pass_rows is None:
                raise ConfigError(
                    "repeat() after batch() repeats passes over the data, but a repeat() before it never ends its first pass: "
                    "give that one a count, or leave one of them out"
                )
            order = Order((*order.verbs, Repeat(self.steps.passes)), order.source_length)
        return Plan(
            source=self.source,
            order=order,
            pass_rows=pass_rows,
            segments=tuple(self.segments),
            stages=tuple(self.current),
            batch=self.batch,
            finish=tuple(self.finish),
            steps=self.steps,
            shard=self.shard,
            policy=self.policy,
            seed=self.seed or 0,
            specs=specs if specs is None or source_specs is None else fields_read(stages, specs, source_specs, wanted),
            wanted=wanted,
        )
