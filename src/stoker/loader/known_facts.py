"""What the verdict is given besides measurements: where samples are stored, what could be cached, what the user chose."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..engine.machine import Machine
from ..image.operation import RandomOperation
from ..observe.facts import Facts
from ..plan.columns import AnyNode, AnySource, read_with
from ..plan.nodes import Filter, Image, Map, MapFields
from ..plan.plan import Plan
from ..source.arrays import ArraysSource
from ..source.concat import ConcatSource
from ..source.shards.record_source import RecordSource
from ..source.source import Source
from ..stage.runner import Runner
from ..storage.traffic import Traffic
from .idle_cores import IdleCores


def facts_of(
    plan: Plan,
    runner: Runner,
    *,
    draws: bool,
    idle: IdleCores | None,
    budget: int,
    memory_for_blocks: int,
    ahead: int | None,
    chosen: bool,
    device: bool,
    processes: bool,
) -> Facts:
    """The facts of a loader; `draws`: functions draw from random generators, so that they give something else each time."""
    source = plan.source
    disk_bytes = None if idle is None or processes else idle.disk_bytes()
    traffic = source.traffic() if isinstance(source, Source) and not processes else Traffic()
    return Facts(
        samples=len(source) if isinstance(source, Source) else 0,
        stored=stored_in(source),
        requests=traffic.requests,
        answer_s=traffic.answer_s / max(1, traffic.requests),
        receive_s=traffic.receive_s / max(1, traffic.requests),
        memory_for_blocks=memory_for_blocks,
        seekless=_seekless(plan),
        prefix=tuple(_prefix(plan, runner, draws)),
        memory_left=Machine.read().memory_left or 0,
        disk_bytes=disk_bytes,
        idle_cores=None if idle is None else idle.mean(),
        machine_cores=os.cpu_count() or 0,
        budget=budget,
        ahead=ahead,
        chosen=chosen,
        device=device,
    )


def stored_in(source: AnySource) -> str:
    """Where samples are, in a word."""
    if not isinstance(source, Source):
        return "stream"
    if source.remote:
        return "network"
    if isinstance(source, ConcatSource):
        kinds = {stored_in(each) for each in source.sources}
        return kinds.pop() if len(kinds) == 1 else ""
    return "memory" if isinstance(source, ArraysSource) else "shards" if isinstance(source, RecordSource) else "files"


def _seekless(plan: Plan) -> bool:
    """Whether crops of stored pictures are decoded without a seek index."""
    source = plan.source
    if not isinstance(source, Source) or stored_in(source) == "memory":
        return False
    steps = [step for work in plan.works for step in work.steps if isinstance(step.node, Image) and _random(step.node, False)]
    columns = [step.column(step.node.field) for step in steps]  # type: ignore[union-attr]
    return any(column in plan.wanted and not source.seeks(column) for column in columns)


def _prefix(plan: Plan, runner: Runner, draws: bool) -> Iterator[str]:
    """Names of the first steps that make the same of a sample in every epoch."""
    if not plan.counted or not isinstance(plan.source, Source):
        return
    yield "read"
    steps = list(plan.work.steps)
    first = read_with(steps, plan.source)
    if first is not None:
        steps.insert(0, steps.pop(first))
    for step, name in zip(steps, runner.steps[1:]):
        if _random(step.node, draws):
            return
        yield name


def _random(node: AnyNode, draws: bool) -> bool:
    if isinstance(node, Image):
        return any(isinstance(operation, RandomOperation) for operation in node.ops)
    return isinstance(node, (Map, MapFields, Filter)) and (draws or bool(getattr(node, "rng", False)))
