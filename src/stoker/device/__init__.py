"""Hand-over: batches as NumPy arrays or torch tensors, in host or device memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ConfigError
from ..registry import Registry
from .framework_output import Output

__all__ = ["OUTPUTS", "Output", "check_batches", "choose_output"]

#: what makes the hand-over for a device, by the name of the framework
OUTPUTS: Registry[Callable[[Any], Output]] = Registry(
    "output",
    {
        "numpy": ("stoker.device.framework_output", "choose_numpy_output", ""),
        "torch": ("stoker.device.torch_output", "choose_torch_output", "torch"),
    },
)


def choose_output(format: str, device: Any) -> Output:
    """The hand-over for ``loader(format=..., device=...)``. A device implies torch."""
    name = "torch" if format == "numpy" and device is not None else format
    return OUTPUTS.get(name, f"loader(format={format!r})")(device)


def check_batches(call: str, batches: Any) -> None:
    """Raise where `batches` is not a form that batches come in."""
    if not isinstance(batches, str) or batches not in ("tuple", "dict"):
        raise ConfigError(f"{call}(batches={batches!r}): must be 'tuple' or 'dict'")
