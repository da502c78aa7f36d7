"""Hand-over: batches as NumPy arrays or torch tensors, in host or device memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..batch.fields import Batch
from ..errors import ConfigError

#: a batch of NumPy columns to the batch the user gets
Output = Callable[[Batch], Batch]


def choose_output(as_: str, device: Any) -> tuple[Output, str]:
    """The hand-over for ``loader(as_=..., device=...)``, and its name. A device implies torch."""
    if as_ == "numpy" and device is not None and str(device) != "cpu":
        as_ = "torch"
    if as_ == "numpy":
        return (lambda batch: batch), "numpy"
    if as_ == "torch":
        from .torch import torch_output

        return torch_output(device), "torch"
    raise ConfigError(f"loader(as_={as_!r}): choose 'numpy' or 'torch'")
