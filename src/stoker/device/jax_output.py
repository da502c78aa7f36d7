"""JAX: arrays on one device or sharded over several, put there while the training works on the previous batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError, ConfigError
from ..registry import needed
from .framework_output import Handed, Output, is_numbers


def choose_jax_output(place: Any) -> Output:
    """`place` is a device, its name, a sharding, or a mapping of field names to shardings; None: JAX's default device."""
    jax = needed("jax", "jax", "loader(format='jax')")
    if isinstance(place, str):
        place = _device_of(jax, place)
    given = place.items() if isinstance(place, Mapping) else [("", place)]
    for name, each in given:
        known = isinstance(each, jax.sharding.Sharding) or (not name and (each is None or isinstance(each, jax.Device)))
        if not known:
            raise ConfigError(
                f"loader(format='jax'): {f'the sharding of {name!r}' if name else 'the device or sharding'} is {each!r}; pass a "
                "jax.Device or its name ('gpu', 'tpu:1'), a jax.sharding.Sharding, or a dict of field names and shardings"
            )
    return JaxOutput(jax, place)


def _device_of(jax: Any, name: str) -> Any:
    platform, _, number = name.partition(":")
    try:
        return jax.local_devices(backend=platform)[int(number or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"loader(device={name!r}): JAX has no such device here ({first_line})") from error


class JaxOutput(Output):
    """Arrays that JAX owns, or that are in the slab's own memory and keep its lease: on CPUs JAX copies nothing.

    JAX holds a NumPy array until it has copied it, or as long as an array in its memory exists. A sharding over devices of
    several processes makes one array of the batches of all: the global batch.
    """

    singly = looks_ahead = True

    def __init__(self, jax: Any, place: Any) -> None:
        self._jax, self._place = jax, place
        shardings = [each for each in (place.values() if isinstance(place, Mapping) else [place]) if each is not None]
        far = [each for each in shardings if not isinstance(each, jax.Device) and not each.is_fully_addressable]
        self.joins_ranks = bool(far)
        devices = [each for at in shardings for each in ([at] if isinstance(at, jax.Device) else at.device_set)]
        self.beside_device = any(each.platform != "cpu" for each in devices or jax.local_devices()[:1])

    def hand_over(self, batch: Handed) -> Handed:
        if isinstance(self._place, Mapping) and (unknown := [name for name in self._place if name not in batch]):
            raise BatchError(f"loader(sharding=...): there is no field {unknown[0]!r}; the fields are {', '.join(batch.keys())}")
        return batch.with_values(
            [self._put(name, self._narrowed(name, value)) if is_numbers(value) else value for name, value in batch.items()]
        )

    def _put(self, name: str, value: NDArray[Any]) -> Any:
        place = self._place.get(name) if isinstance(self._place, Mapping) else self._place
        try:
            if place is None or isinstance(place, self._jax.Device) or place.is_fully_addressable:
                return self._jax.device_put(value, place)
            return self._jax.make_array_from_process_local_data(place, value)
        except (ValueError, AssertionError) as error:  # the latter where there are fewer axes than the sharding has
            raise BatchError(
                f"field {name!r}: JAX cannot shard {value.dtype}{list(value.shape)}: {error}; rows of a batch must divide "
                "among the devices: use batch(drop_last=True), and a batch size that is a multiple of their number"
            ) from error
        except TypeError as error:
            raise BatchError(f"JAX has no arrays of {value.dtype}: {error}; convert the field {name!r} with map()") from error

    def _narrowed(self, name: str, value: Any) -> NDArray[Any]:
        """The numbers in the type that JAX has for them: of 32 bits without ``jax_enable_x64``, where integers must fit in."""
        array = np.asarray(value)
        dtype = self._jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("="))
        if array.dtype.kind in "iu" and dtype.itemsize < array.dtype.itemsize and array.size:
            limits = np.iinfo(dtype)
            if array.min() < limits.min or array.max() > limits.max:
                raise BatchError(
                    f"field {name!r} has integers that do not fit in {dtype}, which is what JAX makes of {array.dtype}; call "
                    "jax.config.update('jax_enable_x64', True), or convert the field with map()"
                )
        return array.astype(dtype, copy=False)
