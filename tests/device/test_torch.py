"""Batches as torch tensors: the same memory, the same values."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.device import torch_output
from stoker.errors import BatchError, ConfigError

from ..loader.runs import numbers, tokens
from .emulated_cuda import EmulatedCuda, EmulatedCudaOutput, EmulatedStream, Module
from .emulated_cuda import recorded as recorded
from .emulated_gpu import driver_library as driver_library
from .emulated_gpu import emulated as emulated

torch = pytest.importorskip("torch")


def test_numbers_become_tensors_and_the_rest_stays() -> None:
    mixed = numbers(8).map(lambda s: {"n": s["x"], "f": 0.5, "b": True, "text": "t", "raw": b"r", "list": [1], "c": 1j})
    batch = next(iter(mixed.batch(4).loader(format="torch")))
    kinds = {name: value.dtype if isinstance(value, torch.Tensor) else type(value) for name, value in batch.items()}
    assert kinds == {
        "n": torch.int64, "f": torch.float64, "b": torch.bool, "text": list, "raw": list, "list": list, "c": torch.complex128,
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y[::-1],
        lambda y: y[:, ::-2],
        lambda y: y.astype(">f4"),
        lambda y: np.broadcast_to(y[0], y.shape),
        lambda y: y[:, 1:3],
    ],
    ids=["backwards", "strided", "big-endian", "read-only", "cut"],
)
def test_arrays_of_any_layout_become_tensors(change: Any) -> None:
    pipeline = numbers().batch(4).map_batch(lambda c: {"y": change(c["y"])})
    for array, tensor in zip(pipeline.loader(), pipeline.loader(format="torch")):
        assert np.array_equal(array["y"], tensor["y"].numpy())
        tensor["y"].add_(1)  # it can be written to


def test_a_type_torch_does_not_have_is_named() -> None:
    pipeline = numbers().batch(4).map_batch(lambda c: {"y": c["y"].astype(np.longdouble)})
    with pipeline.loader(format="torch") as loader:
        iterator = iter(loader)
        with pytest.raises(BatchError, match=r"float128|longdouble"):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)


def test_a_device_implies_torch_and_the_cpu_is_one() -> None:
    batch = next(iter(numbers().batch(4).loader(format="torch", device="cpu")))
    assert batch["x"].device.type == "cpu"
    for device in ("cpu", torch.device("cpu")):
        assert isinstance(next(iter(numbers().batch(4).loader(device=device)))["x"], torch.Tensor), "a device implies torch"
    meta = next(iter(numbers().map(tokens).batch(4, pad={"t": list}).loader(device="meta")))
    assert meta["x"].device.type == "meta" and {tensor.device.type for tensor in meta["t"]} == {"meta"}


def test_a_list_of_arrays_is_a_list_of_tensors_and_other_lists_stay() -> None:
    def ragged(sample: dict[str, Any]) -> dict[str, Any]:
        n = int(sample["x"])
        arrays = {"boxes": np.full((n % 3, 4), n, np.float32), "still": np.broadcast_to(np.int16(n), (2,))}
        return {
            **arrays,
            "tensor": torch.full((n,), n),
            "mixed": np.ones(1) if n else "none",
            "texts": np.array(["t"]),
            "list": [n],
        }

    names = ("boxes", "still", "tensor", "mixed", "texts", "list")
    pipeline = numbers(6).map(ragged).batch(3, pad=dict.fromkeys(names, list))
    first = next(iter(pipeline.loader(format="torch")))
    assert [boxes.tolist() for boxes in first["boxes"]] == [[], [[1.0] * 4], [[2.0] * 4] * 2]
    assert [(boxes.dtype, boxes.shape[1]) for boxes in first["boxes"]] == [(torch.float32, 4)] * 3
    assert [still.add_(1).tolist() for still in first["still"]] == [[1, 1], [2, 2], [3, 3]]
    assert [tensor.tolist() for tensor in first["tensor"]] == [[], [1], [2, 2]]
    kinds = {name: {type(value) for value in first[name]} for name in names[3:]}
    assert kinds == {"mixed": {str, np.ndarray}, "texts": {np.ndarray}, "list": {list}}
    moved = next(iter(pipeline.loader(device="meta")))
    assert {tensor.device.type for name in names[:3] for tensor in moved[name]} == {"meta"}


@pytest.mark.parametrize("out", ["uint8", "float32"])
def test_whole_images_can_be_decoded_to_tensors(image_folder: Path, out: str) -> None:
    arrays = next(iter(stoker.files(image_folder).decode("image", out=out).batch(3)))
    tensors = next(iter(stoker.files(image_folder).decode("image", format="torch", out=out).batch(3, pad={"image": list})))
    for array, tensor in zip(arrays["image"], tensors["image"]):
        assert np.array_equal(array.transpose(2, 0, 1), tensor.numpy())


def test_sparse_tensors_which_do_not_know_their_size_pass_through() -> None:
    made = torch.eye(4).to_sparse()
    listed = numbers(8).map(lambda sample: {"x": made}).batch(4, pad={"x": list})
    for pipeline in (listed, numbers(8).batch(4).map_batch(lambda columns: {"x": made})):
        for format in ("numpy", "torch"):
            with pipeline.loader(format=format) as loader:
                assert [batch.rows for batch in loader] == [4, 4] and loader.stats().batches == 2


@pytest.mark.parametrize("closed", [True, False])
def test_memory_that_is_still_copied_is_nobody_elses_when_its_loader_goes(
    recorded: list[int], monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    class Slow(EmulatedStream):
        def query(self) -> bool:
            return False

        def synchronize(self) -> None:
            seen.append([ref() is not None for ref in slabs])

    seen: list[list[bool]] = []
    slabs: list[weakref.ref[Any]] = []
    allocate = EmulatedCudaOutput.allocate

    def allocated(output: EmulatedCudaOutput, nbytes: int) -> Any:
        memory = allocate(output, nbytes)
        slabs.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(EmulatedCuda, "Stream", Slow)
    monkeypatch.setattr(EmulatedCudaOutput, "allocate", allocated)
    loader = stoker.arrays(x=np.arange(32.0)).batch(16).loader(device="cuda", executor="inline", ahead=1)
    list(loader)
    if closed:
        loader.close()
    del loader
    gc.collect()
    assert seen == [[True, True]] * 2 and all(ref() is None for ref in slabs)


def test_pinned_memory_is_the_hosts_whatever_the_default_device_is() -> None:
    def empty(*arguments: Any, pin_memory: bool, **options: Any) -> Any:
        assert pin_memory  # which takes a GPU
        return torch.empty(*arguments, **options)

    emulated = Module(cuda=EmulatedCuda(), empty=empty, uint8=torch.uint8)
    torch.set_default_device("meta")
    try:
        memory = torch_output.CudaOutput(emulated, torch.device("cpu")).allocate(8)
    finally:
        torch.set_default_device(None)
    assert memory.shape == (8,) and memory.dtype == np.uint8


class QueuedStream(EmulatedStream):
    """A stream on which whatever is queued is done when somebody waits for it."""

    queued = 0

    def query(self) -> bool:
        return not self.queued

    def synchronize(self) -> None:
        self.queued = 0


def torch_memory() -> tuple[torch_output.TorchMemory, QueuedStream]:
    """Memory of a device, whose stream torch queues something on when it makes a tensor; and that stream."""
    stream = QueuedStream(None)

    def empty(*arguments: Any, **options: Any) -> Any:
        stream.queued += 1
        return torch.empty(*arguments, **options)

    cuda = SimpleNamespace(Stream=lambda device: stream, stream=lambda stream: nullcontext())
    names = ("uint8", "float32", "from_numpy", "inference_mode")
    emulated = Module(cuda=cuda, empty=empty, **{name: getattr(torch, name) for name in names})
    return torch_output.TorchMemory(emulated, torch.device("cpu"), lambda nbytes: np.empty(nbytes, np.uint8)), stream


def test_memory_of_a_device_may_be_written_to_at_once() -> None:
    memory, stream = torch_memory()
    memory.rows((3, 4), "uint8")
    assert stream.query(), "what torch fills new memory with would overwrite what others write to it"


def test_a_batch_that_is_made_while_the_training_infers_can_be_trained_with() -> None:
    memory, _ = torch_memory()
    with torch.inference_mode():
        made = memory.rows((3, 4), "float32")
        made = made, memory.taken(made, np.array([2, 0]))
    weights = torch.ones(4, requires_grad=True)
    for batch in made:
        (batch * weights).sum().backward()


class TwoGpus:
    """As much of torch as chooses a device, on a machine with two."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: True, device_count=lambda: 2, current_device=lambda: 1, Stream=lambda device: device
        )
        self.accelerator = SimpleNamespace(empty_host_cache=lambda: self.asked.append("new"))
        self._C = SimpleNamespace(_host_emptyCache=lambda: self.asked.append("old"))

    device = staticmethod(torch.device)


@pytest.mark.parametrize(("device", "number"), [("cuda", 1), ("cuda:0", 0), (torch.device("cuda", 1), 1)])
def test_a_loader_stays_on_the_gpu_that_was_the_current_one_when_it_was_made(
    monkeypatch: pytest.MonkeyPatch, device: Any, number: int
) -> None:
    gpus = TwoGpus()
    monkeypatch.setattr(torch_output, "needed", lambda *names: gpus)
    output = torch_output.choose_torch_output(device)
    gpus.cuda.current_device = lambda: 0
    memory = output.device_memory()
    assert memory is not None and memory.ordinal == number
    assert output._device == memory._stream == torch.device("cuda", number)  # type: ignore[attr-defined]


def test_memory_that_closed_loaders_leave_to_torch_is_of_use_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch gives what was freed only to the stream that had it."""
    gpus, made = TwoGpus(), []
    gpus.cuda.Stream = lambda device: made.append(device) or object()
    monkeypatch.setattr(torch_output, "needed", lambda *names: gpus)
    outputs = [torch_output.choose_torch_output(f"cuda:{number}") for number in (0, 1, 0, 0)]
    copies = [output._stream for output in outputs]  # type: ignore[attr-defined]
    memory = [output.device_memory()._stream for output in outputs]  # type: ignore[union-attr]
    assert [copies.index(each) for each in copies] == [memory.index(each) for each in memory] == [0, 1, 0, 0]
    assert not set(copies) & set(memory) and len(made) == 4


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_output, "needed", lambda *names: TwoGpus())
    with pytest.raises(
        ConfigError, match=r"loader\(device='cuda:2'\): torch finds 2 CUDA devices, numbered from 0; choose one of"
    ):
        torch_output.choose_torch_output("cuda:2")


def test_pinned_memory_is_given_back_by_whatever_name_torch_has_for_that() -> None:
    gpus = TwoGpus()
    memory = torch_output.TorchMemory(gpus, torch.device("cuda", 0), lambda nbytes: np.empty(nbytes, np.uint8))
    for older in (gpus.accelerator, gpus._C):
        memory.give_back()
        older.__dict__.clear()
    memory.give_back()  # which the oldest cannot
    assert gpus.asked == ["new", "old"]
