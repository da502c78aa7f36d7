"""One picture many times, as an augmentation makes it: by a user's pipeline, or by the usual recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import stoker

from ..batch.batch_pictures import BatchPicture, batch_pictures
from ..errors import ConfigError, StokerError
from ..image.geometry import HorizontalFlip, RandomResizedCrop
from ..loader import Loader, LoaderOptions
from ..pipeline import Pipeline
from ..plan.nodes import Batch, written
from ..source.source import Source

#: pictures in a row
TIMES = 8
RECIPE = "RandomResizedCrop(224), HorizontalFlip()"


@dataclass(frozen=True, slots=True)
class AugmentedRow:
    """What became of one sample, time after time; `problem` says why nothing did."""

    pictures: tuple[BatchPicture, ...] = ()
    problem: str = ""


def usual_row(data: bytes, boxes: Any, row: int) -> AugmentedRow:
    """A picture by the usual recipe, and its boxes (in pixels; None: it has none) with it; every row has other crops."""
    given: Mapping[str, Any] = {"image": data, **({} if boxes is None else {"box": boxes})}
    copies = stoker.stream(lambda: iter([dict(given)] * TIMES))
    crops = copies.image("image", RandomResizedCrop(224), HorizontalFlip(), boxes=() if boxes is None else "box")
    try:
        with crops.batch(TIMES).loader(executor="inline", batches="dict", epoch=row) as batches:
            return AugmentedRow(tuple(batch_pictures(next(iter(batches)), TIMES)))
    except StokerError as error:
        return AugmentedRow(problem=str(error))


def countable_source(pipeline: Pipeline, name: str) -> Source:
    """The source of a pipeline whose samples can be had again and again."""
    plan = pipeline.plan
    if not plan.counted or not isinstance(plan.source, Source):
        raise ConfigError(
            f"--augment {name}: its samples cannot be counted (it has filter, flat_map, unbatch or a stream), so none can be "
            "shown several times; use a pipeline without these"
        )
    return plan.source


def pipeline_rows(pipeline: Pipeline, name: str, indices: Sequence[int]) -> tuple[str, list[AugmentedRow]]:
    """What a pipeline does to a sample, as it is written, and some samples of it in the first epochs."""
    plan = pipeline.plan
    alone = Pipeline(plan.source, (*plan.stages, Batch(1)))
    rows = [_epochs(alone, index) for index in indices]
    if not any(row.pictures or row.problem for row in rows):
        raise ConfigError(f"--augment {name}: its samples have no picture field; decode one with .image(...)")
    return ", ".join(map(written, plan.stages)), rows


def _epochs(pipeline: Pipeline, index: int) -> AugmentedRow:
    """A sample as each epoch has it."""
    pictures: list[BatchPicture] = []
    try:
        for epoch in range(TIMES):
            options = LoaderOptions(executor="inline", ahead=1, epoch=epoch)
            with Loader(pipeline.plan, options, row=index, once=True) as batches:
                pictures += batch_pictures(next(iter(batches))._asdict(), 1)
    except StokerError as error:
        return AugmentedRow(tuple(pictures), str(error))
    return AugmentedRow(tuple(pictures))
