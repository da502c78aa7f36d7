"""Hand-over: batches as NumPy arrays or torch tensors, in host or device memory."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from .framework_output import Output

__all__ = ["Output", "check_batches", "choose_output"]


def choose_output(format: str, device: Any) -> Output:
    """The hand-over for ``loader(format=..., device=...)``. A device implies torch."""
    if format == "torch" or (format == "numpy" and device is not None):
        from .torch_output import choose_torch_output

        return choose_torch_output(device)
    if format == "numpy":
        return Output()
    raise ConfigError(f"loader(format={format!r}): choose 'numpy' or 'torch'")


def check_batches(call: str, batches: Any) -> None:
    """Raise where `batches` is not a form that batches come in."""
    if not isinstance(batches, str) or batches not in ("tuple", "dict"):
        raise ConfigError(f"{call}(batches={batches!r}): must be 'tuple' or 'dict'")
