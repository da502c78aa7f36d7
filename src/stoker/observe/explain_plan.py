"""Describes what a pipeline will do, as text: the path of the data from source to batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ..errors import ConfigError
from ..plan.columns import why_two_calls
from ..plan.field_effects import image_spec, passes_told
from ..plan.nodes import Cached, Image, StageNode, written
from ..plan.plan import Plan
from ..plan.ranks import one_of_several, rank_of
from ..sizes import counted, show_bytes
from ..source.chunk import FieldSpec
from ..source.source import Requests, Source


class Explanation(str):
    """What a plan will do, as text; IPython shows its lines, and not one string with escapes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def explain_plan(
    plan: Plan,
    threads: int,
    reason: str,
    moves: str,
    asked: Requests | None = None,
    decoding: str = "",
    floats: str = "",
) -> Explanation:
    """Source, order, stages, batch and the memory it takes, ranks; the default number of threads, with its reason, and when
    work moves elsewhere; what is asked of servers for each sample; where images are decoded, and their floats made.
    """
    lines = [f"source   {plan.source.describe()}"]
    if isinstance(plan.source, Source):
        fields = ", ".join(f"{name} {plan.source.fields[name]}" for name in plan.wanted)
        lines.append(f"         reads {fields or 'no field'}")
        lines += [f"         {told}" for told in _seeks(plan, plan.source)]
        lines += [f"         {_asking(plan, asked)}"] if asked is not None else []
    lines.append(f"order    {_order(plan)}")
    for number, segment in enumerate(plan.segments):
        lines += _stages(plan, segment.nodes, number)
        lines += [f"         {written(node)}" for node in segment.tail]
        lines.append("         samples are numbered again from here")
    lines += _stages(plan, plan.stages, len(plan.segments))
    lines.append(f"batch    {_batch(plan)}")
    lines += [f"         {told}" for told in _of_several_sizes(plan)]
    lines += [f"decode   {decoding}"] if decoding else []
    lines += [f"floats   {floats}"] if floats else []
    lines.append(f"ranks    {_ranks(plan)}")
    lines.append(f"threads  {threads}: {reason}")
    lines.append(f"executor auto: {moves}")
    lines += [f"finish   {written(node)}" for node in plan.finish]
    again = f"; input and output are retried up to {counted(plan.retries, 'time')}" if plan.retries else ""
    lines.append(f"errors   {'raise' if plan.policy is None else describe_policy(plan)}{again}")
    lines.append(f"resume   {'replays the epoch up to the cursor' if plan.replays else 'at once'}")
    return Explanation("\n".join(lines))


def _asking(plan: Plan, asked: Requests) -> str:
    """How samples come over a network."""
    length = plan.order.length if plan.order else None
    if length is None:
        return f"{asked.how}: about {asked.count:.2g} requests and {show_bytes(asked.nbytes)} per sample"
    world = 1
    with suppress(ConfigError):
        world = rank_of(plan.shard).world if plan.counted else 1
    mine = length / world
    requests = f"about {round(asked.count * mine):,} requests and {show_bytes(asked.nbytes * mine)} per epoch"
    return f"{asked.how}: {requests}{' on each rank' if world > 1 else ''}"


def _seeks(plan: Plan, source: Source) -> list[str]:
    """Which images are decoded with the help of seek indices: those whose bytes reach the image stage as they are stored."""
    told = []
    for step in [step for work in plan.works for step in work.steps]:
        node = step.node
        if isinstance(node, Cached):
            break  # what it keeps has none
        field = held.stored if isinstance(node, Image) and (held := step.held(node.field)) else None
        count = source.seeks(field) if field is not None and not node.effect.varying else 0
        if count:
            share = "all" if count == len(source) else f"{count:,} of {len(source):,}"
            told.append(f"seek index for {share} pictures in {field}")
    return told


def describe_policy(plan: Plan) -> str:
    assert plan.policy is not None
    budget = plan.policy.budget
    among = "per epoch" if plan.policy.window is None else f"among any {plan.policy.window:,}"
    amount = f"{budget:.2%} of samples" if budget < 1 else f"{budget:g} samples"
    within = f" {among}" if budget >= 1 or plan.policy.window else ""
    filled = ", each filled with a good row of its batch" if plan.policy.fill else ""
    listed = f", listed in {plan.policy.quarantine}" if plan.policy.quarantine else ""
    return f"skip up to {amount}{within}{filled}{listed}"


def _order(plan: Plan) -> str:
    if plan.order is None:
        return "in the order of the stream"
    verbs = ", ".join(written(verb) for verb in plan.order.verbs) or "as stored"
    length = plan.order.length
    told = "endless" if length is None else f"{counted(length, 'sample')} per epoch"
    return f"{verbs}: {told}"


def _ranks(plan: Plan) -> str:
    if plan.shard is None:
        several = one_of_several()
        return f"not sharded: this process is {several}, and every rank gets all samples; add .shard()" if several else "alone"
    try:
        rank = rank_of(plan.shard)
    except ConfigError as error:
        return f"not known: {error}"
    if not rank.where:
        return "alone: no process group and no launcher found, so shard() changes nothing"
    return f"{rank}, remainder {plan.shard.remainder}"


def _stages(plan: Plan, nodes: Iterable[StageNode], number: int) -> Iterator[str]:
    """The verbs of a segment, or those after the last, one after the other; and what is known of the steps they become."""
    before = [step for work in plan.works[:number] for step in work.steps]
    steps = [*before, *plan.works[number].steps]
    at = len(before)
    for node in nodes:
        told = [written(node)]
        if isinstance(node, Image):
            given = steps[at].given(node.field)
            told = [f"{told[0]}: {_decoding(node, given)}produces {image_spec(node, given)}", *passes_told(node, given)]
            why = why_two_calls(steps, at, plan.source)
            told.append(f"reading and decoding: {'one native call' if why is None else f'two calls, because {why}'}")
        at += at < len(steps) and steps[at].node is node
        yield from (f"{'stage' if row == 0 else '':9}{line}" for row, line in enumerate(told))


def _decoding(node: Image, given: FieldSpec | None) -> str:
    if given is not None and given.kind == "array":
        return ""  # pixels already
    return "decodes only what the crop needs; " if node.fast else "exact decode; "


def _batch(plan: Plan) -> str:
    if plan.batch is None:
        return "none: single samples"
    fields = plan.specs
    told = (
        "fields are known once samples have been read"
        if fields is None
        else ", ".join(f"{name} {spec}" for name, spec in fields.items())
    )
    nbytes = sum(spec.nbytes for spec in (fields or {}).values()) * plan.batch.size
    size = f"; {show_bytes(nbytes)} allocated in advance" if nbytes else ""
    last = "" if plan.batch.drop_last else ", the last one may be shorter"
    return f"{plan.batch.size} x ({told}){last}{size}"


def _of_several_sizes(plan: Plan) -> Iterator[str]:
    """The images of a batch that become a list, which few models take."""
    if plan.batch is None:
        return
    padded = {name for name, _ in plan.batch.pad}
    for name, spec in (plan.specs or {}).items():
        if name not in padded and spec.kind == "array" and len(spec.shape) == 3 and None in spec.shape:
            yield f"{name}: a list of images if their sizes differ; CenterCrop(n) or Resize((height, width)) gives one array"
