"""`stoker explain`: what a pipeline does, and what made one of its batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import Annotated, Any

from ..pipeline import Pipeline
from ..sizes import counted
from .pipelines import PipelineName, load_pipeline
from .screen import AsJson, amount, print_json, tell, tell_plan, tell_table

_ROWS = 20
#: operations whose draws the table shows
_TABLE = ("RandomResizedCrop", "HorizontalFlip")
#: what `loader.explain` calls an image stage
_STAGE = re.compile(r"^image (.*?)( \d+)?$")


def explain(
    pipeline: PipelineName,
    epoch: Annotated[int, amount("The epoch, starting at 0.", least=0)] = 0,
    step: Annotated[int | None, amount("The batch of that epoch, starting at 0. Without it: the whole plan.", least=0)] = None,
    rows: Annotated[int | None, amount("Number of rows to show.", "-n", "--rows", default="20; with --json, all")] = None,
    json: AsJson = False,
) -> None:
    """Explain what a pipeline does, or what made one of its batches.

    Without --step: the plan. With it: the samples, crops and random numbers of that batch. A batch is a function of pipeline,
    seed, epoch and step, so this can be computed at any time, on any machine that has the data; nothing has to be logged while
    training.

    Example: `stoker explain train.py:train --epoch 3 --step 120`
    """
    chosen = load_pipeline(pipeline)
    if step is None:
        _tell_plan(chosen, json)
        return
    with chosen.loader(executor="inline") as loader:
        told = loader.explain(step, epoch=epoch)
    shown = told[: rows or (len(told) if json else _ROWS)]
    seed = chosen.plan.seed
    if json:
        print_json({"pipeline": pipeline, "seed": seed, "epoch": epoch, "step": step, "rows": len(told), "batch": shown})
        return
    _tell_batch(f"epoch {epoch}, step {step}, seed {seed}: {counted(len(told), 'row')}", shown, len(told))


def _tell_plan(chosen: Pipeline, json: bool) -> None:
    if json:
        print_json({"plan": chosen.explain().splitlines(), "fingerprint": chosen.fingerprint()})
    else:
        tell_plan(chosen.explain())


def _tell_batch(title: str, shown: Sequence[dict[str, Any]], total: int) -> None:
    tell(title, style="bold")
    image = next((name for row in shown for name in row if name.startswith("image ")), None)
    numbers = ("row", "position", "index")
    geometry = ("image", "crop from", "to", "flipped") if image else ()
    cells = []
    for row in shown:
        made = _geometry(row[image]) if image in row else [""] * len(geometry)
        cells.append([*(f"{row[name]:,}" for name in numbers), row["key"], *made])
    tell_table((*numbers, "key", *geometry), cells, right=(*numbers, *geometry), least={"key": 12, "crop from": 14})
    if image:
        tell("image and crop: width x height, and the crop's left, top corner, in pixels of the stored image", style="dim")
    for row in shown:
        for line in _drawn(row, image):
            tell(f"row {row['row']}: {line}")
    for name, mixed in shown[0].items():
        if name.startswith("blend"):
            tell(f"{name}: {'nothing' if mixed is None else _call(mixed)}")
    for row in shown:
        if "error" in row:
            tell(f"row {row['row']}: {row['error']}", style="red")
    if len(shown) < total:
        tell(f"{total - len(shown):,} more rows; -n {total} shows them all", style="dim")


def _drawn(row: dict[str, Any], first: str | None) -> Iterator[str]:
    """What operations drew for a row, an image stage a line; crops and flips that begin the `first` are in the table."""
    for name, made in row.items():
        if name.startswith("image "):
            rest = dropwhile(lambda each: each["operation"] in _TABLE, made["drawn"]) if name == first else made["drawn"]
            told = ", ".join(_call(each) for each in rest)
            if told:
                yield told if name == first else f"{_STAGE.sub(_written, name)}: {told}"


def _written(name: re.Match[str]) -> str:
    """An image stage as it is written in the pipeline; the second of a field with its number."""
    return f"image({name[1]!r}){name[2] or ''}"


def _call(made: dict[str, Any]) -> str:
    """An operation with what it drew, as people write calls."""
    values = {name: value for name, value in made.items() if name != "operation"}
    if values.get("applied") is False:
        return f"no {made['operation']}"
    if "effects" in values:
        effects = [" ".join(str(value) for value in effect.values()) for effect in values["effects"]]
        return f"{made['operation']}({', '.join(effects) or 'nothing'})"
    return f"{made['operation']}({', '.join(f'{name}={_value(value)}' for name, value in values.items())})"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"({', '.join(f'{name}={each}' for name, each in value.items())})"
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else str(value)


def _geometry(made: dict[str, Any]) -> list[str]:
    """Stored size, crop, output size and flip, as people write them."""
    height, width = made["size"]
    crop = made["crop"]
    across, down = crop["right"] - crop["left"], crop["bottom"] - crop["top"]
    part = f"{across:g} x {down:g} at {crop['left']:g}, {crop['top']:g}"
    return [f"{width} x {height}", part, f"{made['output'][1]} x {made['output'][0]}", "yes" if made["flipped"] else "no"]
