"""Hand-over: batches as NumPy arrays or torch tensors, in host or device memory."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from .framework_output import Output

__all__ = ["Output", "choose_output"]


def choose_output(as_: str, device: Any) -> Output:
    """The hand-over for ``loader(as_=..., device=...)``. A device implies torch."""
    if as_ == "torch" or (as_ == "numpy" and device is not None):
        from .torch_output import choose_torch_output

        return choose_torch_output(device)
    if as_ == "numpy":
        return Output()
    raise ConfigError(f"loader(as_={as_!r}): choose 'numpy' or 'torch'")
