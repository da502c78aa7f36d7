"""Hand-over: batches as arrays of NumPy, torch, JAX, TensorFlow, or for any `from_dlpack`, in host or device memory."""

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
        "jax": ("stoker.device.jax_output", "choose_jax_output", "jax"),
        "tensorflow": ("stoker.device.tensorflow_output", "choose_tensorflow_output", "tensorflow"),
        "dlpack": ("stoker.device.dlpack_output", "choose_dlpack_output", ""),
    },
)


def choose_output(format: str, device: Any, sharding: Any = None) -> Output:
    """The hand-over for ``loader(format=..., device=..., sharding=...)``. A sharding implies JAX, a device JAX or torch."""
    if sharding is not None:
        if format not in ("numpy", "jax") or device is not None:
            name, value = ("format", format) if device is None else ("device", device)
            raise ConfigError(f"loader(sharding=..., {name}={value!r}): sharding already determines the devices; omit {name}")
        format, device = "jax", sharding
    name = format
    if format == "numpy" and device is not None:
        name = "jax" if type(device).__module__.partition(".")[0] in ("jax", "jaxlib") else "torch"
    return OUTPUTS.get(name, f"loader(format={format!r})")(device)


def check_batches(call: str, batches: Any) -> None:
    """Raise where `batches` is not a form that batches come in."""
    if not isinstance(batches, str) or batches not in ("tuple", "dict"):
        raise ConfigError(f"{call}(batches={batches!r}): must be 'tuple' or 'dict'")
