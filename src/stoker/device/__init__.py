"""Hand-over: batches as NumPy arrays or torch tensors, in host or device memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..registry import Registry
from .framework_output import Output

__all__ = ["OUTPUTS", "Output", "choose_output"]

#: what makes the hand-over for a device, by the name of the framework
OUTPUTS: Registry[Callable[[Any], Output]] = Registry(
    "output",
    {
        "numpy": ("stoker.device.framework_output", "choose_numpy_output", ""),
        "torch": ("stoker.device.torch_output", "choose_torch_output", "torch"),
    },
)


def choose_output(as_: str, device: Any) -> Output:
    """The hand-over for ``loader(as_=..., device=...)``. A device implies torch."""
    name = "torch" if as_ == "numpy" and device is not None else as_
    return OUTPUTS.get(name, f"loader(as_={as_!r})")(device)
