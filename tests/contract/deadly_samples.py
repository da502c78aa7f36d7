"""Pipelines with a sample that ends its worker, at every place where a function may be. Worker processes import this file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import stoker
from stoker import Pipeline
from tests.loader.runs import numbers, odd, samples, spread, two_of_three


def dies_at_31(die: Callable[[], Any], x: Any) -> Any:
    if np.any(np.asarray(x) == 31):
        die()
    return x


def fails_at_31() -> None:
    raise ValueError("no such thing")


def dies_with_31(act: Callable[[Any], Any], sample: dict[str, Any]) -> bool:
    return bool(act(sample["x"]) % 3)


def grown_with_31(act: Callable[[Any], Any], sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"x": act(sample["x"]), "part": part} for part in range(2)]


def grown_much(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"x": sample["x"] if part == 77 else -1} for part in range(100)]


def batch_with_31(act: Callable[[Any], Any], columns: dict[str, Any]) -> dict[str, Any]:
    return {**columns, "x": act(columns["x"])}


#: what a function does at sample 31 -> a pipeline with it at some place
DEADLY: dict[str, Callable[[Callable[[Any], Any]], Pipeline]] = {
    "batches": lambda act: numbers().map(x=act).batch(8),
    "shuffled, last kept": lambda act: numbers().shuffle(seed=2).map(x=act).batch(8, drop_last=False),
    "whole samples": lambda act: numbers().map(partial(batch_with_31, act)).batch(8, pad={"x": list}),
    "small batches made together": lambda act: numbers(400).map(x=act).batch(2),
    "before map_batch": lambda act: numbers().map(x=act).batch(8).map_batch(spread),
    "single": lambda act: numbers().map(x=act),
    "before filter": lambda act: numbers().map(x=act).filter(two_of_three).batch(4),
    "in filter": lambda act: numbers().shuffle(seed=1).filter(partial(dies_with_31, act)).batch(4),
    "behind filter": lambda act: numbers().filter(odd).map(x=act).batch(4),
    "flat_map, then window": lambda act: numbers().flat_map(partial(grown_with_31, act)).shuffle(seed=1, window=9).batch(4),
    "stream": lambda act: stoker.stream(samples).map(x=act).filter(two_of_three),
}
#: the same where samples cannot be told apart
DEADLY_TOGETHER: dict[str, Callable[[Callable[[Any], Any]], Pipeline]] = {
    "map_batch": lambda act: numbers().batch(8).map_batch(partial(batch_with_31, act)),
    "inner batch": lambda act: numbers().batch(8).map_batch(partial(batch_with_31, act)).unbatch().batch(4),
}
#: the same where tasks have many samples, and how many workers it ends until it is found
DEADLY_MANY: dict[str, tuple[Callable[[Callable[[Any], Any]], Pipeline], int]] = {
    "batches": (lambda act: numbers(2400).map(x=act).batch(1200), 4),
    "behind flat_map": (lambda act: numbers().flat_map(grown_much).take(5000).filter(partial(dies_with_31, act)).batch(100), 4),
}
