"""Values as torch tensors, sharing memory where torch can."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import BatchError
from ..registry import needed


def as_tensors(torch: Any, value: Any, done: Callable[[Any], Any]) -> Any:
    """Numbers as a tensor, a list of arrays of numbers as a list of tensors; text, bytes and other lists are unchanged.

    `done` is called with each tensor and returns the one to use, which may be elsewhere in memory.
    """
    if _is_numbers(torch, value):
        return done(_on_host(torch, value))
    if isinstance(value, list) and value and all(_is_numbers(torch, each) for each in value):
        return [done(_on_host(torch, each)) for each in value]
    return value


def moved(values: Iterable[Any], device: Any, non_blocking: bool) -> list[Any]:
    """The values as tensors on a device."""
    torch = needed("torch", "torch", "batch.to()")
    return [as_tensors(torch, value, lambda tensor: tensor.to(device, non_blocking=non_blocking)) for value in values]


def pinned(values: Iterable[Any]) -> list[Any]:
    """The values as tensors in pinned memory."""
    torch = needed("torch", "torch", "batch.pin_memory()")
    return [as_tensors(torch, value, lambda tensor: tensor.pin_memory()) for value in values]


def _is_numbers(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc")


def _on_host(torch: Any, value: Any) -> Any:
    """An array as a tensor over the same memory, where torch can have it so."""
    if isinstance(value, torch.Tensor):
        return value
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    if not value.flags.writeable or any(stride < 0 for stride in value.strides):
        value = value.copy()
    try:
        return torch.from_numpy(value)
    except TypeError as error:
        raise BatchError(f"torch has no tensors of {value.dtype}: {error}; convert the field with map_batch()") from error
