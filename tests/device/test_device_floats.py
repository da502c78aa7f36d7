"""Floats that the device makes of the pixels it is sent are the CPU's, byte for byte; on a device that the processor plays."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.batch.batch import Batch
from stoker.device import cuda_driver, kernel_compiler
from stoker.errors import DeviceError
from stoker.image import (
    CenterCrop,
    ColorJitter,
    CropBox,
    HorizontalFlip,
    MixUp,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    ToFloat,
)
from stoker.loader import Loader

from ..support import picture
from .emulated_cuda import EmulatedCudaOutput, EmulatedStream
from .emulated_cuda import recorded as recorded
from .emulated_gpu import Emulation
from .emulated_gpu import driver_library as driver_library
from .emulated_gpu import emulated as emulated
from .test_device_decode import SAMPLES, damage, make_folder

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("recorded")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("photos"))


def pictures(root: Path, *ops: Any, layout: str = "chw", **options: Any) -> Pipeline:
    return stoker.files(root).shuffle(seed=3).image("image", *ops, layout=layout, **options)


def training(root: Path, size: int = 7) -> Pipeline:
    return pictures(root, RandomResizedCrop(48), HorizontalFlip(), Normalize(MEAN, STD)).batch(size)


def plain(value: Any) -> Any:
    """What a value is, to the last byte, whatever library it is of."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        array = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        return array.dtype.str, array.shape, array.tobytes()
    return value


def told(batch: Batch) -> tuple[Any, ...]:
    return batch._fields, batch.sample_keys, batch.valid.tolist(), [plain(value) for value in batch]


def batches(loader: Loader, epochs: int = 2) -> list[Any]:
    return [told(batch) for _ in range(epochs) for batch in loader]


def expected(pipeline: Pipeline, epochs: int = 2) -> list[Any]:
    """What the CPU makes, for the CPU."""
    with pipeline.loader(threads=2) as loader:
        return batches(loader, epochs)


def sent_bytes(loader: Loader) -> int:
    output = loader._output
    assert isinstance(output, EmulatedCudaOutput)
    return output.sent_bytes


# ---- the same bytes ----------------------------------------------------------------------------------------------------------


VARIANTS: dict[str, Callable[[Path], Pipeline]] = {
    "planes": training,
    "channels last": lambda root: pictures(root, RandomResizedCrop(48), Normalize(MEAN, STD), layout="hwc").batch(7),
    "0 to 1": lambda root: pictures(root, RandomResizedCrop(40), ToFloat()).batch(7),
    "0 to 1, channels last": lambda root: pictures(root, RandomResizedCrop(40), layout="hwc", out="float32").batch(7),
    "one mean and one deviation": lambda root: pictures(root, RandomResizedCrop(40), Normalize(0.5, 0.25)).batch(7),
    "odd means and deviations": lambda root: pictures(
        root, RandomResizedCrop(40), Normalize((-3.7, 0, 9.99), (1e-6, 10, 0.3))
    ).batch(7),
    "gray": lambda root: pictures(root, RandomResizedCrop(40), Normalize(0.4, 0.3), color="gray").batch(7),
    "gray, channels last": lambda root: pictures(
        root, RandomResizedCrop(40), Normalize(0.4, 0.3), color="gray", layout="hwc"
    ).batch(7),
    "odd sizes": lambda root: pictures(root, RandomResizedCrop((37, 61)), Normalize(MEAN, STD)).batch(7),
    "one pixel": lambda root: pictures(root, RandomResizedCrop(1), Normalize(MEAN, STD)).batch(7),
    "as many pixels as a block takes": lambda root: pictures(root, RandomResizedCrop((32, 64)), Normalize(MEAN, STD)).batch(3),
    "one pixel more than a block takes": lambda root: pictures(root, RandomResizedCrop((3, 683)), ToFloat()).batch(3),
    "many blocks": lambda root: pictures(root, RandomResizedCrop(131), Normalize(MEAN, STD)).batch(3),
    "a border of zeros": lambda root: pictures(root, Resize(60), CenterCrop(300), Normalize(MEAN, STD)).batch(7),
    "exact": lambda root: pictures(root, RandomResizedCrop(40), Normalize(MEAN, STD), fast=False).batch(7),
    "batches of one": lambda root: training(root, 1),
    "the last batch kept": lambda root: pictures(root, RandomResizedCrop(40), Normalize(MEAN, STD)).batch(16, drop_last=False),
    "operations after the crop": lambda root: pictures(
        root, RandomResizedCrop(40), ColorJitter(brightness=0.4, saturation=0.3), RandomErasing(), Normalize(MEAN, STD)
    ).batch(7),
    "renamed before": lambda root: pictures(root, RandomResizedCrop(40), Normalize(MEAN, STD)).rename(pixels="image").batch(7),
    "renamed after": lambda root: training(root).rename(pixels="image").select("label", "pixels"),
    "a function of another field": lambda root: (
        pictures(root, RandomResizedCrop(40), Normalize(MEAN, STD)).map(label=lambda label: 2 * label).batch(7)
    ),
    "after a filter": lambda root: (
        stoker.files(root).filter(lambda s: s["label"] != 1).image("image", CenterCrop(40), Normalize(MEAN, STD)).batch(4)
    ),
    "after a cache": lambda root: (
        stoker.files(root).cache("memory").image("image", RandomResizedCrop(40), Normalize(MEAN, STD)).batch(7)
    ),
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_floats_of_the_device_are_the_cpus(photos: Path, kind: str) -> None:
    pipeline = VARIANTS[kind](photos)
    with pipeline.loader(device="cuda", threads=2) as loader:
        found = batches(loader)
        assert loader._machinery.floats.told.endswith("on the GPU, after the pixels are copied as bytes")
    assert found == expected(pipeline) and found


def test_the_users_stream_waits_for_what_was_sent_and_the_batch_is_kept_until_then(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    sent = EmulatedCudaOutput._sent
    monkeypatch.setattr(EmulatedCudaOutput, "_sent", lambda output, tensor: did.append("send") or sent(output, tensor))
    monkeypatch.setattr(EmulatedStream, "record_event", lambda stream: did.append("note") or stream)
    monkeypatch.setattr(EmulatedStream, "wait_event", lambda stream, event: did.append("wait"))
    monkeypatch.setattr(EmulatedStream, "query", lambda stream: False)
    with training(photos).loader(device="cuda", threads=2) as loader:
        output = loader._output
        assert isinstance(output, EmulatedCudaOutput)
        handed = sum(len(batch["image"]) for batch in loader)
        kept = [batch for _, batch in output._copying]
    assert sum(len(batch[0]) for batch in kept) == handed == SAMPLES
    assert did == ["send", "send", "note", "wait"] * len(kept)


def test_a_quarter_of_the_bytes_is_sent(photos: Path) -> None:
    with training(photos).loader(device="cuda", threads=2) as loader:
        rows = sum(len(batch["image"]) for batch in loader)
        labels = 8 * rows
        assert sent_bytes(loader) == rows * 48 * 48 * 3 + labels
        assert loader._machinery.layout.nbytes < loader._machinery.layout.rows * (48 * 48 * 3 + 64), (
            "and a quarter is held in memory"
        )
        assert loader.stats().bytes == 4 * rows * 48 * 48 * 3 + labels, "what was delivered is floats"


def test_only_what_is_handed_over_is_the_users_streams(photos: Path, recorded: list[int]) -> None:
    with training(photos).loader(device="cuda", threads=2) as loader:
        batch = next(iter(loader))
    assert recorded[:2] == [value.untyped_storage().data_ptr() for value in batch], "and no pixels"


def test_two_fields_of_pictures_may_both_become_floats() -> None:
    root = {
        "a": np.stack([picture(40, 30, seed=n) for n in range(12)]),
        "b": np.stack([picture(25, 50, seed=n) for n in range(12)]),
        "c": np.stack([picture(25, 50, seed=n) for n in range(12)]),
    }
    pipeline = (
        stoker.arrays(**root)
        .image("a", RandomResizedCrop(20), Normalize(MEAN, STD), layout="chw")
        .image("b", Normalize(0.5, 0.1))
        .image("c", HorizontalFlip())
        .batch(5)
    )
    with pipeline.loader(device="cuda", threads=2) as loader:
        assert batches(loader) == expected(pipeline)
        assert loader._machinery.floats.told.startswith("a, b: on the GPU")


def test_pictures_beside_those_that_are_mixed_may_become_floats() -> None:
    images = np.stack([picture(40, 30, seed=n) for n in range(12)])
    pipeline = (
        stoker.arrays(image=images, teacher=images, label=np.arange(12) % 3)
        .image("image", RandomResizedCrop(20), Normalize(MEAN, STD), layout="chw")
        .image("teacher", RandomResizedCrop(30), Normalize(MEAN, STD), layout="chw")
        .batch(5)
        .blend(MixUp(0.4, classes=3), image="image", label="label")
    )
    with pipeline.loader(device="cuda", threads=2) as loader:
        assert batches(loader) == expected(pipeline)
        assert loader._machinery.floats.told.startswith("teacher: on the GPU")


def test_boxes_follow_their_pictures() -> None:
    images = np.stack([picture(40, 30, seed=n) for n in range(12)])
    corners = np.tile(np.array([[3, 4, 20, 30]], np.float32), (12, 1))
    pipeline = (
        stoker.arrays(image=images, box=corners, crop=corners)
        .image("image", CropBox("crop"), Resize((20, 20)), HorizontalFlip(), Normalize(MEAN, STD), layout="chw", boxes="box")
        .batch(5)
    )
    with pipeline.loader(device="cuda", threads=2) as loader:
        assert batches(loader) == expected(pipeline) and loader._machinery.floats.told


@pytest.mark.parametrize(
    "options", [{"executor": "inline"}, {"threads": 1}, {"threads": 5}, {"processes": 1, "threads": 2}, {"ahead": 1}, {}], ids=str
)
def test_it_does_not_matter_who_does_the_work(photos: Path, options: dict[str, Any]) -> None:
    pipeline = training(photos, 4)
    with pipeline.loader(device="cuda", **options) as loader:
        assert batches(loader, 3) == expected(pipeline, 3)
        assert loader._machinery.floats.told


@pytest.mark.parametrize("batches_as", ["tuple", "dict"])
def test_batches_that_are_kept_are_not_overwritten(photos: Path, batches_as: str) -> None:
    pipeline = training(photos, 4)
    with pipeline.loader(device="cuda", threads=3, ahead=1, batches=batches_as) as loader:
        kept = [dict(batch) for _ in range(3) for batch in loader]
    assert [[plain(value) for value in batch.values()] for batch in kept] == [each[3] for each in expected(pipeline, 3)]


def test_a_run_is_resumed_wherever_floats_are_made(photos: Path) -> None:
    pipeline = training(photos, 4)
    whole, got, state = expected(pipeline), [], None
    for device in ("cuda", None, "cuda"):
        with pipeline.loader(device=device, threads=2) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for number, batch in enumerate(loader, 1):
                got.append(told(batch))
                if number == 3:
                    break
            state = loader.state_dict()
    assert got == whole[: len(got)] and len(got) == 9


@pytest.mark.parametrize("fill", [None, "repeat"])
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_bad_pictures_are_skipped_or_filled_as_ever(tmp_path: Path, fill: str | None, executor: str) -> None:
    root = make_folder(tmp_path / "damaged", damage)
    pipeline = training(root).on_error("skip", budget=20, fill=fill)
    with pipeline.loader(device="cuda", executor=executor, threads=2) as loader:
        assert batches(loader) == expected(pipeline)
        assert loader.stats().skipped >= 5 and loader._machinery.floats.told


def test_rows_that_only_fill_up_are_not_valid(photos: Path) -> None:
    pipeline = training(photos, 8).shard(rank=1, world=2, remainder="pad")
    with pipeline.loader(device="cuda", threads=2) as loader:
        found = batches(loader)
    assert found == expected(pipeline) and not all(all(valid) for _, _, valid, _ in found)


# ---- where the CPU makes them --------------------------------------------------------------------------------------------------


AS_BEFORE: dict[str, Callable[[Path], Pipeline]] = {
    "bytes": lambda root: pictures(root, RandomResizedCrop(40)).batch(7),
    "a function of the pictures": lambda root: pictures(root, RandomResizedCrop(40), ToFloat()).map(image=np.negative).batch(7),
    "a function of samples": lambda root: (
        pictures(root, RandomResizedCrop(40), ToFloat()).map(lambda s: {"image": s["image"] * 2}).batch(7)
    ),
    "a function of batches": lambda root: training(root).map_batch(lambda batch: {"image": batch["image"] * 2}),
    "mixed": lambda root: training(root).blend(MixUp(0.4, classes=3), image="image", label="label"),
    "cached": lambda root: stoker.files(root).image("image", CenterCrop(40), ToFloat()).cache("memory").batch(7),
    "a list": lambda root: pictures(root, RandomResizedCrop(40), ToFloat()).batch(7, pad={"image": list}),
    "filtered": lambda root: pictures(root, CenterCrop(40), ToFloat()).filter(lambda s: s["image"][0, 0, 0] > 0.3).batch(7),
    "images of any size": lambda root: pictures(root, ToFloat()).batch(7),
    "single samples": lambda root: pictures(root, RandomResizedCrop(40), ToFloat()),
}


@pytest.mark.parametrize("kind", AS_BEFORE)
def test_what_somebody_looks_at_before_is_made_by_the_cpu(emulated: Emulation, photos: Path, kind: str) -> None:
    def all_of(loader: Loader) -> list[Any]:
        return [[plain(value) for value in step] for _ in range(2) for step in loader]

    pipeline, before = AS_BEFORE[kind](photos), emulated.counts().launches
    with pipeline.loader(device="cuda", threads=2) as loader, pipeline.loader(threads=2) as host:
        assert all_of(loader) == all_of(host)
        assert not loader._machinery.floats.told and "floats   " not in loader._explained()
    assert emulated.counts().launches == before


def test_other_arrays_are_as_they_were(emulated: Emulation) -> None:
    pipeline = stoker.arrays(x=np.arange(40, dtype=np.float32).reshape(10, 4)).batch(3)
    before = emulated.counts().modules
    with pipeline.loader(device="cuda", threads=2) as loader:
        assert batches(loader) == expected(pipeline)
    assert emulated.counts().modules == before


@pytest.mark.parametrize("further", [(), (ColorJitter(brightness=0.4),)])
def test_what_is_decoded_on_the_device_becomes_floats_there(photos: Path, further: tuple[Any, ...]) -> None:
    pipeline = pictures(photos, RandomResizedCrop(48), *further, Normalize(MEAN, STD), layout="chw").batch(7)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert batches(loader) == expected(pipeline)
        assert loader.stats().device_images and loader._machinery.floats.told


def test_auto_that_stays_on_the_cpu_lets_the_device_make_floats(photos: Path) -> None:
    pipeline = pictures(photos, ColorJitter(brightness=0.4), RandomResizedCrop(40), Normalize(MEAN, STD)).batch(7)
    with pipeline.loader(device="cuda", decode_on="auto", threads=2) as loader:
        assert batches(loader) == expected(pipeline)
        assert loader.stats().decode_reason.startswith("on the CPU, because ") and loader._machinery.floats.told


def test_other_programs_are_asked_for_floats(photos: Path) -> None:
    pytest.importorskip("zmq")
    pipeline = training(photos)
    with pipeline.loader(device="cuda", workers_at="tcp://127.0.0.1:0", threads=2) as loader:
        assert batches(loader) == expected(pipeline) and not loader._machinery.floats.told


def test_a_loader_goes_by_the_users_plan(photos: Path) -> None:
    pipeline = training(photos)
    with pipeline.loader(device="cuda", threads=2) as loader:
        assert loader._plan == pipeline.plan and loader._machinery.floats.plan != pipeline.plan
        assert loader._machinery.floats.plan.identity() == pipeline.plan.identity()
        with pipeline.loader() as host:
            assert loader.state_dict() == host.state_dict()


def test_explain_says_where_floats_are_made(photos: Path) -> None:
    with training(photos).loader(device="cuda", threads=2) as loader:
        assert "floats   image: on the GPU, after the pixels are copied as bytes" in loader._explained().splitlines()
        assert "image float32[3, 48, 48]" in loader._explained(), "what users get"
        assert loader.explain(0) == training(photos).loader().explain(0)


# ---- where it cannot be ------------------------------------------------------------------------------------------------------


def no_driver(emulated: Emulation, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libnothing.so.1")
    return "the CUDA driver library cannot be loaded"


def no_compiler(emulated: Emulation, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(kernel_compiler, "NAMES", ("libnothing.so",))
    return "NVRTC, which compiles the kernels, was not found"


def armed(function: str, code: int, said: str) -> Callable[[Emulation, pytest.MonkeyPatch], str]:
    def arm(emulated: Emulation, monkeypatch: pytest.MonkeyPatch) -> str:
        emulated.arm(function, code)
        return said

    return arm


MISSING = {
    "driver": no_driver,
    "compiler": no_compiler,
    "device": armed("cuInit", 100, "CUDA_ERROR_NO_DEVICE"),
    "a compiler that fails": armed("nvrtcCompileProgram", 6, "NVRTC 12.8 could not compile"),
    "a driver that takes no kernels": armed("cuModuleLoadData", 200, "CUDA_ERROR_INVALID_IMAGE"),
    "a kernel": armed("cuModuleGetFunction", 500, "CUDA_ERROR_NOT_FOUND"),
}


@pytest.mark.parametrize("what", MISSING)
def test_without_driver_or_compiler_the_cpu_makes_them_and_that_is_said_once(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    said = MISSING[what](emulated, monkeypatch)
    pipeline = training(photos)
    with caplog.at_level(logging.INFO, "stoker"), pipeline.loader(device="cuda", executor="threads") as loader:
        assert batches(loader) == expected(pipeline)
        assert sent_bytes(loader) > 4 * 48 * 48 * 3 * SAMPLES
        (line,) = (line for line in loader._explained().splitlines() if line.startswith("floats"))
        assert line.startswith("floats   image: on the CPU, because ") and said in line
    (message,) = (record.getMessage() for record in caplog.records if "floats" in record.getMessage())
    assert message.startswith("image: floats are made on the CPU, and four times as many bytes are copied") and said in message


def test_a_forked_child_does_without_the_driver(photos: Path) -> None:
    pipeline = training(photos)
    with pipeline.loader(device="cuda", executor="inline") as loader:
        next(iter(loader))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            said = "nothing"
            try:
                signal.alarm(20)
                said = pipeline.loader(device="cuda", executor="inline")._machinery.floats.told
            finally:
                os.write(writing, said.encode())
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            said = answer.read().decode()
        os.waitpid(child, 0)
    assert said.startswith("image: on the CPU, because cuInit") and "CUDA does not work in a forked process" in said


def test_a_kernel_that_fails_in_the_middle_ends_the_run_by_name(emulated: Emulation, photos: Path) -> None:
    with training(photos).loader(device="cuda", threads=2) as loader:
        emulated.arm("cuLaunchKernel", 700, 2)
        with pytest.raises(DeviceError, match="cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS"):
            batches(loader)
    assert emulated.depth == 0


def test_the_kernel_is_compiled_once_and_nothing_is_left(emulated: Emulation, photos: Path) -> None:
    before = emulated.counts()
    for _ in range(3):
        with training(photos).loader(device="cuda", threads=2) as loader:
            batches(loader, 1)
    del loader
    gc.collect()
    after = emulated.counts()
    assert (after.compilations - before.compilations, after.modules - before.modules) == (1, 1)
    assert after[:3] == before[:3] and emulated.depth == 0
