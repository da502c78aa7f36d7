"""torch: tensors over the slab's own memory, the copy to a device, and `torch_dataset()`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch.fields import Batch
from ..errors import ConfigError, MissingExtra


def import_torch(wanted_by: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"{wanted_by} needs PyTorch: pip install 'stoker[torch]'") from error
    return torch


def torch_output(device: Any) -> Any:
    """Batches whose columns are tensors.

    A tensor shares the slab's memory and keeps its lease: the memory is not used again while the tensor lives. With a device,
    the copy has been made when the batch is handed over.
    """
    torch = import_torch("loader(as_='torch')")
    target = None if device is None else torch.device(device)
    if target is not None and target.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"loader(device={device!r}): torch sees no CUDA device here")

    def output(batch: Batch) -> Batch:
        return batch.with_values({name: to_tensor(torch, column, target) for name, column in batch.items()})

    return output


def to_tensor(torch: Any, column: Any, device: Any) -> Any:
    """A column as a tensor where it can be one (numbers); text, bytes and lists stay as they are."""
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "biufc":
        return column
    if not column.dtype.isnative:
        column = column.astype(column.dtype.newbyteorder("="))
    tensor = torch.from_numpy(column if column.flags.writeable else column.copy())
    return tensor if device is None else tensor.to(device)
