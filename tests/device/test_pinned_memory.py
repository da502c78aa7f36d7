"""Shared memory is pinned for a GPU where it lies, and no longer than it is used; with a stand-in for CUDA's library."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stoker.batch.slab import Layout, SlabPool
from stoker.device.torch_output import CudaOutput
from stoker.source.chunk import FieldSpec

from .emulated_cuda import Module

BIG = 1 << 20


class Cudart:
    """Keeps account of what is pinned."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.calls = status, 0
        self.pinned: dict[int, int] = {}

    def cudaHostRegister(self, place: int, nbytes: int, flags: int) -> int:
        self.calls += 1
        if not self.status:
            assert place not in self.pinned
            self.pinned[place] = nbytes
        return self.status

    def cudaHostUnregister(self, place: int) -> int:
        del self.pinned[place]
        return 0


def output_with(cudart: Cudart) -> CudaOutput:
    cuda = SimpleNamespace(Stream=lambda device: None, device=lambda device: nullcontext(), cudart=lambda: cudart)
    return CudaOutput(Module(cuda=cuda, zeros=lambda *args, **options: None), "cuda:0")


class Tensor:
    """Notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def pin_memory(self) -> Tensor:
        self.done.append("pinned")
        return self

    def to(self, device: Any, non_blocking: bool) -> Tensor:
        self.done.append("sent")
        return self

    def record_stream(self, user: Any) -> None:
        pass


def test_memory_is_pinned_in_place_and_let_go_with_its_last_reference() -> None:
    cudart = Cudart()
    output = output_with(cudart)
    memory = np.zeros(BIG, np.uint8)
    assert output.adopt(memory) is memory
    assert cudart.pinned == {memory.ctypes.data: BIG}
    part = memory[10:20].reshape(2, 5)
    del memory
    assert cudart.pinned, "somebody still has a part of it"
    del part
    assert not cudart.pinned
    sent = Tensor()
    output._copy(sent, None)
    assert sent.done == ["sent"], "straight from there"


def test_slabs_that_a_pool_lets_go_are_unpinned() -> None:
    cudart = Cudart()
    output = output_with(cudart)
    layout = Layout.of({"x": FieldSpec("array", "uint8", (BIG,))}, 2)
    pool = SlabPool(layout, 2, lambda nbytes: (output.adopt(np.zeros(nbytes, np.uint8)), None))
    slabs = [pool.take() for _ in range(3)]
    assert len(cudart.pinned) == 3
    del slabs
    assert not cudart.pinned


def test_where_pinning_is_refused_batches_go_through_other_pinned_memory_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cudart = Cudart(status=2)
    output = output_with(cudart)
    with caplog.at_level(logging.WARNING, "stoker"):
        for _ in range(3):
            output.adopt(np.zeros(BIG, np.uint8))
    assert (cudart.calls, len(caplog.records)) == (1, 1)
    assert "could not be pinned for the GPU (CUDA error 2)" in caplog.text and "ulimit -l" in caplog.text
    sent = Tensor()
    output._copy(sent, None)
    assert sent.done == ["pinned", "sent"]


def test_memory_that_shares_its_pages_with_others_is_left_as_it_is() -> None:
    cudart = Cudart()
    output_with(cudart).adopt(np.zeros(1000, np.uint8))
    assert not cudart.calls
