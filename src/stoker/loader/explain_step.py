"""Explains a batch: its samples, crops and seeds, computed again from (epoch, step) alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..image.batch_mixing import Mixing, Mixture, draw
from ..plan.columns import AnyStep
from ..plan.deal import Deal, Share
from ..plan.field_effects import is_planar
from ..plan.nodes import Blend
from ..plan.plan import Plan
from ..source.chunk import Chunk
from ..source.source import Source
from ..stage.decode import DecodeStage
from ..stage.image import ImageStage
from ..stage.runner import Reader, make_stages
from ..stage.stage import Stage
from ..storage.scratch import Scratch
from .supply import ENDLESS


def explain_step(plan: Plan, deal: Deal, epoch: int, step: int) -> list[dict[str, Any]]:
    """One mapping for every row of batch `step`: position, index, key, origin, and what image stages did."""
    if not plan.counted or not isinstance(plan.source, Source) or plan.order is None:
        raise ConfigError(
            "explain() needs samples that can be counted, which is not possible after filter, flat_map or unbatch, or on a stream"
        )
    for name, value in (("step", step), ("epoch", epoch)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise ConfigError(f"explain({name}={value!r}): must be an integer")
    if epoch < 0:
        raise ConfigError(f"explain(epoch={epoch}): must be >= 0")
    share = _share(plan, deal, step)
    places = plan.order.places(share.rows(), epoch)
    told: list[dict[str, Any]] = [
        {
            "row": row,
            "position": int(position),
            "index": int(index),
            "key": plan.source.key(int(index)),
            "origin": plan.source.origin(int(index)),
        }
        for row, (position, index) in enumerate(zip(places.positions, places.indices))
    ]
    mixed = blends(plan, epoch, int(places.positions[0]), share.count - share.padded)
    for row in told:
        row.update(mixed)
    scratch = Scratch()
    try:
        chunk = Reader(plan.source, plan.wanted)(places, {}, scratch)
        chunk = _tell_images(plan, chunk, told, scratch)
        for number, error in chunk.failures.items():
            told[number]["error"] = str(error)
    finally:
        scratch.close()
    return told


def _tell_images(plan: Plan, chunk: Chunk, told: list[dict[str, Any]], scratch: Scratch) -> Chunk:
    """Add what image stages did, but for those whose fields a function has made: what it makes is not known here."""
    doing, unknown = list[tuple[AnyStep, Stage]](), set[str]()
    for step, stage in zip(plan.work.steps, make_stages(plan.work.steps, plan.seed)):
        if step.node.effect.whole:
            break
        if isinstance(stage, (DecodeStage, ImageStage)) and unknown.isdisjoint(step.reads):
            doing.append((step, stage))
        else:
            unknown |= step.reads
    while doing and not isinstance(doing[-1][1], ImageStage):
        doing.pop()
    fields: Counter[str] = Counter()
    for step, stage in doing:
        if isinstance(stage, ImageStage):
            field = step.node.effect.makes[0]
            fields[field] += 1
            again = f" {fields[field]}" if fields[field] > 1 else ""
            planned = stage.plan(chunk, scratch)
            drew = stage.draws_of(chunk, planned)
            for row in set(range(len(chunk))) - chunk.failures.keys():
                told[row][f"image {field}{again}"] = _told(planned[row], drew[row])
        if stage is not doing[-1][1]:
            chunk = stage.run(chunk, {}, scratch)
    return chunk


def blends(plan: Plan, epoch: int, position: int, rows: int) -> dict[str, Any]:
    """What `blend` does to the batch of so many real rows whose first is at `position`, by verb; None: it is left as it is.

    Nothing where the size is not known here.
    """
    told: dict[str, Any] = {}
    for step in plan.finishing.steps:
        node = step.node
        spec = step.given(node.image) if isinstance(node, Blend) else None
        if not isinstance(node, Blend) or spec is None or not spec.fixed:
            continue
        shape = tuple(n or 0 for n in spec.shape)
        size = (shape[1], shape[2]) if is_planar(shape, node) else (shape[0], shape[1])
        drawn = draw(node.ops, plan.seed, epoch, position, step.streams[0], size)
        name = "blend" if "blend" not in told else f"blend {len(told) + 1}"
        told[name] = None if drawn is None or rows < 2 else _mixture(*drawn)
    return told


def _mixture(op: Mixing, mixture: Mixture) -> dict[str, Any]:
    box = {} if mixture.box is None else {"box": dict(zip(("top", "left", "bottom", "right"), mixture.box))}
    return {"operation": type(op).__name__, "share": round(mixture.share, 6), **box}


def _share(plan: Plan, deal: Deal, step: int) -> Share:
    """The positions that are batch `step` of an epoch, verbs after `batch` included."""
    rows, steps = ENDLESS if plan.pass_rows is None else plan.pass_rows, plan.steps
    start = steps.begin * deal.stride
    stop = rows if steps.end is None else min(rows, steps.end * deal.stride)
    each = deal.steps(max(0, stop - start))
    total = None if steps.passes is None or stop == ENDLESS else each * steps.passes
    most = ENDLESS // deal.stride if total is None else total
    if not 0 <= step < most:
        whole = f"epoch {'without end' if total is None else f'of {total} batches'} (0 to {most - 1})"
        raise ConfigError(f"there is no batch {step} in an {whole}")
    base = step // each * rows
    return deal.share(step % each, base + start, base + stop)


def _told(row: Any, drew: list[dict[str, Any]]) -> dict[str, Any]:
    x0, y0, x1, y1 = (round(float(value), 3) for value in row["view"])
    return {
        "size": [int(row["height"]), int(row["width"])],
        "crop": {"top": y0, "left": x0, "bottom": y1, "right": x1},
        "flipped": _odd(drew, "HorizontalFlip"),
        "upside_down": _odd(drew, "VerticalFlip"),
        "output": [int(row["out_height"]), int(row["out_width"])],
        "drawn": drew,
    }


def _odd(drew: list[dict[str, Any]], operation: str) -> bool:
    """Whether an image was flipped, all flips of its stage taken together."""
    return sum(bool(each["flipped"]) for each in drew if each["operation"] == operation) % 2 == 1
