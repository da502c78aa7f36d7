"""The boxes of a stored sample: in a field of that name, or in four fields, as in TFRecords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.batch_pictures import NO_BOXES, boxes_as_shares

_SIDES = ("ymin", "xmin", "ymax", "xmax")


def sample_boxes(values: Mapping[str, Any], width: int, height: int) -> NDArray[np.float64]:
    """Boxes (ymin, xmin, ymax, xmax) as fractions of the sample's picture; none if no field fits."""
    for given in _candidates(values):
        found = boxes_as_shares([given], [(height, width)])
        if found is not None and len(found[0]):
            return found[0]
    return NO_BOXES


def _candidates(values: Mapping[str, Any]) -> list[Any]:
    named = [value for name, value in values.items() if "box" in name.lower() and _is_numbers(value)]
    prefixes = [name.removesuffix("ymin") for name in values if name.lower().endswith("ymin")]
    for prefix in prefixes:
        given = [values.get(f"{prefix}{side}") for side in _SIDES]
        sides = [np.asarray(side).reshape(-1) for side in given if _is_numbers(side)]
        if len(sides) == len(_SIDES) and len({side.size for side in sides}) == 1:
            named.append(np.stack(sides, axis=1))
    return named


def _is_numbers(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, int, float)) and np.asarray(value).dtype.kind in "iuf"
