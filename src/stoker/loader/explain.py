"""What made a batch: samples, crops and seeds, computed again from (epoch, step) alone."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from ..plan.deal import Deal
from ..plan.plan import Plan
from ..source.base import Source
from ..source.chunk import Ints
from ..stage.fields import FieldsStage
from ..stage.image import ImageStage
from ..stage.runner import Reader, make_stages
from ..storage.scratch import Scratch


def explain_step(plan: Plan, deal: Deal, epoch: int, step: int) -> list[dict[str, Any]]:
    """One mapping for every row of batch `step`: position, index, key, origin, and what the image stage did."""
    if not plan.counted or not isinstance(plan.source, Source) or plan.order is None:
        raise ConfigError(
            "explain needs samples that can be counted; behind filter, flat_map, unbatch or on a stream they cannot"
        )
    positions = _positions(plan, deal, step)
    places = plan.order.places(positions, epoch)
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
    scratch = Scratch()
    try:
        chunk = Reader(plan.source, plan.wanted)(places, {}, scratch)
        for stage in make_stages(plan.stages, plan.seed, 0):
            if isinstance(stage, FieldsStage):
                chunk = stage.run(chunk, {}, scratch)
                continue
            if isinstance(stage, ImageStage) and not chunk.failures:
                planned = stage.plan(chunk, scratch)
                for row, geometry, drew in zip(told, planned, stage.draws_of(chunk, planned)):
                    row[stage.name] = {**_geometry(geometry), "drawn": drew}
            break  # stages behind the first image stage see its pixels, not the file's; what a function makes is not known here
    finally:
        scratch.close()
    return told


def _positions(plan: Plan, deal: Deal, step: int) -> Ints:
    """The positions that are batch `step` of an epoch, verbs behind `batch` included."""
    rows, steps = plan.pass_rows, plan.steps
    if rows is None:
        return deal.share(max(0, step), 0, 1 << 61).rows()
    start = steps.begin * deal.stride
    stop = rows if steps.end is None else min(rows, steps.end * deal.stride)
    each = deal.steps(max(0, stop - start))
    total = step + 1 if steps.passes is None else each * steps.passes
    if not 0 <= step < total:
        raise ConfigError(f"there is no batch {step} in an epoch of {total} batches (0 to {total - 1})")
    base = step // each * rows
    return deal.share(step % each, base + start, base + stop).rows()


def _geometry(row: Any) -> dict[str, Any]:
    x0, y0, x1, y1 = (round(float(value), 3) for value in row["view"])
    return {
        "size": [int(row["height"]), int(row["width"])],
        "crop": {"top": y0, "left": x0, "bottom": y1, "right": x1},
        "flipped": bool(row["flip"] & 1),
        "upside_down": bool(row["flip"] & 2),
        "output": [int(row["out_height"]), int(row["out_width"])],
    }
