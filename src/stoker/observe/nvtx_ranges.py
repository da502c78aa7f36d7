"""NVTX ranges, which Nsight Systems shows next to the work of the GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..profiler_ranges import Record, record_with
from ..registry import needed
from .followers import ClosedByWith


class NvtxRanges(ClosedByWith):
    """Ranges being recorded; made by `stoker.observe.nvtx`."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def close(self) -> None:
        """Record no more; idempotent."""
        self._end()


def nvtx() -> NvtxRanges:
    """Have NVTX ranges of all loaders of this process from now on, until it is closed; Nsight Systems shows them.

    The ranges are the waits of the training loop ("stoker: wait for batch"), the hand-over of batches ("stoker: hand over"),
    and in worker threads the steps of each task ("stoker: image jpg"). Needs a torch that was built with CUDA, or the package
    `nvtx`. Within `torch.autograd.profiler.emit_nvtx()` it is not needed.
    """
    return NvtxRanges(record_with(_ranges()))


def _ranges() -> Record:
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda:
        push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    else:
        package: Any = needed("nvtx", "nvtx", "observe.nvtx()")
        push, pop = package.push_range, package.pop_range

    @contextmanager
    def record(name: str) -> Iterator[None]:
        push(name)
        try:
            yield
        finally:
            pop()

    return record
