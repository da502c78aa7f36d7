"""The arguments of `pipeline.loader()`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..device import OUTPUTS, check_batches
from ..engine.executor_names import EXECUTORS
from ..errors import ConfigError
from ..plan.cursor import MOST_EPOCHS
from ..sizes import parse_bytes
from ..storage.names import AnyPath
from .decode_place import DEVICE_MEMORY

#: what batches in the making may take, unless the user says
MEMORY = "2GB"
#: what a page and a report show, where it was given
_SHOWN = (
    "threads", "processes", "executor", "memory", "ahead", "format", "batches", "device", "epoch", "ray_address", "workers_at",
    "pool",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """The arguments of `pipeline.loader()`, which documents them."""

    threads: int | None = None
    processes: int | None = None
    executor: str = "auto"
    memory: int | str = MEMORY
    ahead: int | None = None
    format: str = "numpy"
    batches: str = "tuple"
    device: Any = None
    sharding: Any = None
    decode_on: str = "cpu"
    device_memory: int | str = DEVICE_MEMORY
    pinned_memory: int | str | None = None
    epoch: int = 0
    watchdog_s: float = 60.0
    ray_address: str | None = None
    workers_at: str | None = None
    worker_keys: AnyPath | None = None
    pool: str | Sequence[str] | None = None
    pool_keys: AnyPath | None = None
    memory_bytes: int = field(init=False)
    device_memory_bytes: int = field(init=False)
    pinned_memory_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        EXECUTORS.check(self.executor, f"loader(executor={self.executor!r})")
        OUTPUTS.check(self.format, f"loader(format={self.format!r})")
        for name in ("threads", "processes", "ahead"):
            if getattr(self, name) is not None:
                # Beside remote workers there may be no threads at home: then these only put batches together.
                least = 0 if name == "threads" and self.workers_at is not None else 1
                check_count(f"loader({name}=", getattr(self, name), least)
        check_count("loader(epoch=", self.epoch, 0, MOST_EPOCHS)
        if not isinstance(self.watchdog_s, (int, float)) or self.watchdog_s is True or not self.watchdog_s > 0:
            raise ConfigError(f"loader(watchdog_s={self.watchdog_s!r}): must be a number of seconds above 0")
        for name in ("memory", "device_memory", "pinned_memory"):
            given = getattr(self, name)
            object.__setattr__(self, f"{name}_bytes", 0 if given is None else parse_bytes(given, f"loader: {name}"))
        check_batches("loader", self.batches)
        if self.worker_keys is not None and self.workers_at is None:
            raise ConfigError("loader(worker_keys=...): needs an address; add workers_at='tcp://HOST:PORT'")
        if self.pool_keys is not None and self.pool is None:
            raise ConfigError("loader(pool_keys=...): needs a pool; add pool='tcp://HOST:PORT'")
        if self.pool is not None and self.workers_at is not None:
            raise ConfigError("loader(pool=..., workers_at=...): use a pool or remote workers, not both; omit one of them")

    @property
    def elsewhere(self) -> bool:
        """Whether other programs make rows."""
        return self.workers_at is not None or self.pool is not None

    def shown(self) -> dict[str, Any]:
        """What there is to show of them."""
        names = _SHOWN if self.decode_on == "cpu" else (*_SHOWN, "decode_on", "device_memory", "pinned_memory")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def check_count(call: str, value: Any, least: int, most: int = 1 << 62) -> None:
    """Refuse what is no integer from `least` on; `call` is what was called, up to the value."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not least <= value < most:
        raise ConfigError(f"{call}{value!r}): must be an integer >= {least}{'' if most == 1 << 62 else f' and < {most:,}'}")
