"""Batches are the same, byte for byte, wherever their pictures are decoded; on a device that the processor plays.

Pictures are of many kinds, some of which the device declines, and some are damaged.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.batch.batch import Batch
from stoker.device import cuda_driver, device_decode
from stoker.errors import ConfigError, DeviceError, ImageError
from stoker.image import (
    CenterCrop,
    ColorJitter,
    CutMix,
    Cutout,
    HorizontalFlip,
    Invert,
    MixUp,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Rotate,
    Solarize,
    ToFloat,
)
from stoker.kernel import device_load
from stoker.kernel.render import Input, Renderer
from stoker.kernel.status import Status
from stoker.loader import Loader
from stoker.loader.decode_policy import DecodePolicy
from stoker.pack.jobs.seeking import index_folder
from stoker.source.shards.sidecar import keep_sidecar
from stoker.storage.read_ahead import ReadAhead

from ..storage.server import Server
from ..support import image_bytes, jpeg_bytes
from . import emulated_gpu
from .emulated_gpu import Emulation
from .emulated_gpu import driver_library as driver_library
from .emulated_gpu import emulated as emulated

torch = pytest.importorskip("torch")

SAMPLES = 42
#: of these, pictures that the device takes
TAKEN = 30
#: a picture of each kind, in turn; the device takes the first five
KINDS: list[Callable[[int], bytes]] = [
    lambda n: jpeg_bytes(150 + n, 120, seed=n),
    lambda n: jpeg_bytes(130, 110 + n, seed=n, subsampling=0),
    lambda n: jpeg_bytes(133, 157, seed=n, mode="L"),
    lambda n: jpeg_bytes(310, 200, seed=n, optimize=True, quality=70),
    lambda n: jpeg_bytes(97, 203, seed=n, subsampling=1),
    lambda n: jpeg_bytes(120, 90, seed=n, progressive=True),
    lambda n: image_bytes(100, 80, seed=n, format="PNG"),
]


def make_folder(root: Path, change: Callable[[int, bytes], bytes] = lambda number, data: data, *, seek: bool = True) -> Path:
    """Pictures of all kinds in three classes; their seek index is that of the pictures before they were changed."""
    paths = [root / f"c{number % 3}" / f"{number:03d}.jpg" for number in range(SAMPLES)]
    data = [KINDS[number % len(KINDS)](number) for number in range(SAMPLES)]
    for path, picture in zip(paths, data):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
    if seek:
        keep_sidecar(os.fsencode(root), index_folder(os.fsencode(root)).index)
    for number, (path, picture) in enumerate(zip(paths, data)):
        if (changed := change(number, picture)) != picture:
            path.write_bytes(changed)
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    rows = [{"__key__": f"{n:03d}", "jpg": KINDS[n % len(KINDS)](n), "cls": n % 3, "txt": f"text {n}"} for n in range(SAMPLES)]
    stoker.write_tar(root / "t-{}.tar", rows, max_samples=16, seek=True)
    records = [{"image": row["jpg"], "label": row["cls"]} for row in rows]
    stoker.write_tfrecord(root / "r-{}.tfrecord", records, max_samples=16, seek=True)
    return root


def crops(root: Path, size: int = 7) -> Pipeline:
    return stoker.files(root).shuffle(seed=3).image("image", RandomResizedCrop(48), HorizontalFlip()).batch(size)


def digest(batches: Any) -> list[str]:
    """A hash of each batch, keys and `valid` included."""
    found = []
    for batch in batches:
        sha = hashlib.sha256(repr((batch._fields, batch.sample_keys, batch.valid.tolist())).encode())
        for value in batch:
            sha.update(repr(value).encode() if not isinstance(value, torch.Tensor) else value.numpy().tobytes())
            sha.update(str(getattr(value, "shape", "")).encode())
        found.append(sha.hexdigest())
    return found


def epochs(loader: Loader, count: int = 2) -> list[list[str]]:
    return [digest(loader) for _ in range(count)]


def expected(pipeline: Pipeline, count: int = 2) -> list[list[str]]:
    with pipeline.loader(device="cuda", executor="inline") as loader:
        return epochs(loader, count)


# ---- the same bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_batches_do_not_depend_on_where_pictures_are_decoded(emulated: Emulation, photos: Path, threads: int) -> None:
    pipeline = crops(photos)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=threads) as loader:
        assert epochs(loader) == expected(pipeline)
        stats = loader.stats()
    assert stats.device_images >= 2 * TAKEN and not stats.device_refused
    assert stats.device_bytes > 0 and stats.device_s > 0


def mixed(pipeline: Pipeline, image: str) -> Pipeline:
    return pipeline.blend(MixUp(0.4, classes=3, p=0.8), CutMix(classes=3), image=image, label="label")


VARIANTS: dict[str, Callable[[Path], Pipeline]] = {
    "as stored, last batch kept": lambda root: (
        stoker.files(root).image("image", Resize(60), CenterCrop(50)).batch(8, drop_last=False)
    ),
    "planes of floats": lambda root: (
        stoker.files(root)
        .image("image", RandomResizedCrop(33), Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), layout="chw")
        .batch(5)
    ),
    "gray": lambda root: stoker.files(root).image("image", RandomResizedCrop(40), color="gray").batch(6),
    "exact": lambda root: stoker.files(root).shuffle(seed=1).image("image", RandomResizedCrop(24), fast=False).batch(6),
    "renamed": lambda root: crops(root).rename(pixels="image"),
    "a small window, batches made together": lambda root: crops(root, 2),
    "mixed": lambda root: mixed(crops(root, 5).rename(pixels="image"), "pixels"),
    "mixed floats in planes, last batch kept": lambda root: mixed(
        stoker.files(root).image("image", RandomResizedCrop(32), ToFloat(), layout="chw").batch(8, drop_last=False), "image"
    ),
    "mixed gray": lambda root: mixed(stoker.files(root).image("image", RandomResizedCrop(40), color="gray").batch(6), "image"),
    "colours, a warp and a policy are left to the CPU": lambda root: (
        stoker.files(root)
        .shuffle(seed=5)
        .image(
            "image",
            RandomResizedCrop(40),
            ColorJitter(0.4, 0.4, 0.4, 0.1),
            HorizontalFlip(),
            Rotate(20),
            RandAugment(2, 9),
            Cutout(9),
        )
        .batch(6, drop_last=False)
    ),
    "floats in planes, after colours": lambda root: (
        stoker.files(root)
        .image(
            "image", RandomResizedCrop(33), ColorJitter(brightness=0.4), Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), layout="chw"
        )
        .batch(5)
    ),
    "gray, in another size between": lambda root: (
        stoker.files(root).image("image", Resize((40, 30)), Invert(), RandomCrop((40, 30), pad=4), color="gray").batch(5)
    ),
    "mixed floats, after colours": lambda root: mixed(
        stoker.files(root).image("image", RandomResizedCrop(32), Solarize(100, p=0.5), ToFloat(), layout="chw").batch(5), "image"
    ),
    "a function of another field": lambda root: (
        stoker.files(root).map(label=lambda x: x + 1).image("image", CenterCrop(64)).batch(6)
    ),
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_every_kind_of_output_is_the_same(emulated: Emulation, photos: Path, kind: str) -> None:
    pipeline = VARIANTS[kind](photos)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert epochs(loader, 1) == expected(pipeline, 1)
        assert loader.stats().device_images


@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
def test_pictures_of_shards_are_decoded_on_the_device_too(emulated: Emulation, shards: Path, kind: str) -> None:
    source = stoker.tar(str(shards / "t-*.tar")) if kind == "tar" else stoker.tfrecord(str(shards / "r-*.tfrecord"))
    pipeline = source.shuffle(seed=2).image("jpg" if kind == "tar" else "image", RandomResizedCrop(40)).batch(6)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=3) as loader:
        assert epochs(loader) == expected(pipeline)
        assert loader.stats().device_images >= 2 * TAKEN


# ---- what is left to the CPU ---------------------------------------------------------------------------------------------------


def coloured(root: Path, size: int = 7) -> Pipeline:
    return (
        stoker.files(root).shuffle(seed=3).image("image", RandomResizedCrop(48), ColorJitter(0.4, 0.4), RandAugment()).batch(size)
    )


def test_crops_that_are_finished_on_the_cpu_may_stay_be_given_back_and_come_in_small_loads(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.blame(3)
    monkeypatch.setattr(device_decode, "_PICTURES", 3)
    pipeline = coloured(photos, 20)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2, pinned_memory="50MB") as loader:
        assert epochs(loader, 3) == expected(pipeline, 3)
        stats = loader.stats()
    assert stats.device_images and stats.device_refused


def test_a_crop_for_which_there_is_no_memory_on_the_cpu_is_made_again(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(renderer: Renderer, slots: Any) -> Any:
        finish(renderer, slots[1:])
        renderer.rows["status"][slots[:1]] = Status.NOMEM
        return slots[:1]

    finish = Renderer.finish
    monkeypatch.setattr(Renderer, "finish", failing)
    pipeline = coloured(photos)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert epochs(loader, 1) == expected(pipeline, 1)
        assert loader.stats().device_refused


def test_boxes_follow_what_is_done_on_both_sides(emulated: Emulation, tmp_path: Path) -> None:
    records = [{"image": KINDS[n % 5](n), "box": np.array([0.1, 0.2, 0.5, 0.9], np.float32)} for n in range(12)]
    stoker.write_tfrecord(tmp_path / "r.tfrecord", records, seek=True)
    ops = RandomResizedCrop(48), Rotate(30), HorizontalFlip()
    pipeline = stoker.tfrecord(tmp_path / "r.tfrecord").image("image", *ops, boxes="box", relative_boxes=True).batch(6)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert epochs(loader, 1) == expected(pipeline, 1)
        assert loader.stats().device_images


def test_explain_says_what_is_left_to_the_cpu(emulated: Emulation, photos: Path) -> None:
    told = coloured(photos).explain(decode_on="cuda")
    assert "others on the CPU; ColorJitter and what follows it are done on the CPU, to crops that come back. All" in told


# ---- pictures that stay in pinned memory -------------------------------------------------------------------------------------


def of_kind(kind: str, photos: Path, shards: Path) -> Pipeline:
    if kind == "files":
        return crops(photos)
    return stoker.tar(str(shards / "t-*.tar")).shuffle(seed=3).image("jpg", RandomResizedCrop(48), HorizontalFlip()).batch(7)


@pytest.mark.parametrize("kind", ["files", "tar"])
@pytest.mark.parametrize("threads", [1, 3])
def test_pictures_that_stay_in_pinned_memory_give_the_same(
    emulated: Emulation, photos: Path, shards: Path, kind: str, threads: int
) -> None:
    pipeline, before = of_kind(kind, photos, shards), emulated.counts().fetches
    with pipeline.loader(device="cuda", decode_on="cuda", threads=threads, pinned_memory="50MB") as loader:
        assert epochs(loader, 3) == expected(pipeline, 3)
        assert loader.stats().device_images >= 3 * TAKEN
    assert emulated.counts().fetches - before >= 2 * TAKEN


def test_pictures_of_several_sources_that_stay_are_not_taken_for_each_other(
    emulated: Emulation, photos: Path, tmp_path: Path
) -> None:
    others = make_folder(tmp_path / "others", seek=False)
    for path in others.rglob("*.jpg"):
        path.write_bytes(jpeg_bytes(140, 100, seed=1000 + int(path.stem)))
    keep_sidecar(os.fsencode(others), index_folder(os.fsencode(others)).index)
    both = stoker.mix([stoker.files(photos), stoker.files(others)])
    pipeline, before = both.image("image", RandomResizedCrop(40)).batch(6), emulated.counts().fetches
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2, pinned_memory="50MB") as loader:
        assert epochs(loader, 3) == expected(pipeline, 3)
    assert emulated.counts().fetches - before >= 2 * (TAKEN + SAMPLES)


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_loads_are_on_the_device_than_its_memory_is_divided_among(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    lock, now, seen, launch = threading.Lock(), 0, 0, cuda_driver.DeviceStream.launch

    def launched(*arguments: Any) -> None:
        nonlocal now, seen
        with lock:
            now += 1
            seen = max(seen, now)
        time.sleep(0.0005)
        launch(*arguments)
        with lock:
            now -= 1

    monkeypatch.setattr(cuda_driver.DeviceStream, "launch", launched)
    budget = most * device_decode.LEAST_BYTES
    with crops(photos, 3).loader(device="cuda", decode_on="cuda", threads=6, device_memory=budget) as loader:
        epochs(loader, 3)
    assert 1 <= seen <= most


@pytest.mark.parametrize("kind", ["files", "tar"])
def test_pictures_that_stay_are_not_read_again(emulated: Emulation, tmp_path: Path, kind: str) -> None:
    rows = [{"__key__": f"{n:03d}", "jpg": KINDS[n % 5](n), "cls": n % 3} for n in range(20)]
    if kind == "files":
        for row in rows:
            (tmp_path / f"{row['__key__']}.jpg").write_bytes(row["jpg"])
        keep_sidecar(os.fsencode(tmp_path), index_folder(os.fsencode(tmp_path)).index)
        pipeline = stoker.files(tmp_path, labels=None).shuffle(seed=3).image("image", RandomResizedCrop(48)).batch(5)
    else:
        stoker.write_tar(tmp_path / "t.tar", rows, seek=True)
        pipeline = stoker.tar(str(tmp_path / "t.tar")).shuffle(seed=3).image("jpg", RandomResizedCrop(48)).select("jpg").batch(5)
    right = expected(pipeline, 3)
    with pipeline.loader(device="cuda", decode_on="cuda", executor="inline", pinned_memory="50MB") as loader:
        assert epochs(loader, 1) == right[:1]
        for path in tmp_path.glob("*.jpg" if kind == "files" else "*.tar"):
            path.write_bytes(bytes(path.stat().st_size))  # whoever reads them now finds nothing of use
        assert epochs(loader, 2) == right[1:]


def test_where_not_all_pictures_can_stay_the_others_are_read(emulated: Emulation, photos: Path) -> None:
    before = emulated.counts().fetches
    with crops(photos).loader(device="cuda", decode_on="cuda", executor="inline", pinned_memory="60kB") as loader:
        assert epochs(loader, 3) == expected(crops(photos), 3)
    assert 0 < emulated.counts().fetches - before < TAKEN


@pytest.mark.parametrize("kind", ["files", "tar"])
def test_pictures_that_stay_and_that_the_device_gives_back_are_decoded_here(
    emulated: Emulation, photos: Path, shards: Path, kind: str
) -> None:
    emulated.blame(3)
    pipeline = of_kind(kind, photos, shards)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2, pinned_memory="50MB") as loader:
        assert epochs(loader, 3) == expected(pipeline, 3)
        assert loader.stats().device_refused


def test_pictures_that_stay_and_find_no_room_in_a_load_wait_for_the_next(
    emulated: Emulation, photos: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_decode, "_PICTURES", 2)
    for pipeline in (of_kind("files", photos, shards), of_kind("tar", photos, shards)):
        with pipeline.loader(device="cuda", decode_on="cuda", threads=2, pinned_memory="50MB") as loader:
            assert epochs(loader, 3) == expected(pipeline, 3)


def test_a_driver_that_cannot_copy_many_pieces_at_once_copies_them_one_by_one(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_driver, "_BATCH_COPY", "cuNoSuchFunction")
    before = emulated.counts()
    with crops(photos).loader(device="cuda", decode_on="cuda", threads=2, pinned_memory="50MB") as loader:
        assert epochs(loader, 3) == expected(crops(photos), 3)
    assert emulated.counts().uploads - before.uploads > TAKEN and emulated.counts().fetches == before.fetches


def test_a_driver_that_refuses_to_copy_many_pieces_at_once_is_asked_once(
    emulated: Emulation, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = emulated.counts()
    with (
        caplog.at_level(logging.INFO, "stoker"),
        crops(photos).loader(device="cuda", decode_on="cuda", executor="inline", pinned_memory="50MB") as loader,
    ):
        emulated.arm("cuMemcpyBatchAsync", 801)
        assert epochs(loader, 3) == expected(crops(photos), 3)
    assert emulated.counts().uploads - before.uploads > TAKEN and emulated.counts().fetches == before.fetches
    told = [record.message for record in caplog.records if "one by one" in record.message]
    assert told == [
        "pictures that stay in pinned memory are copied one by one (cuMemcpyBatchAsync: CUDA_ERROR_NOT_SUPPORTED; "
        "update the driver, or use decode_on='cpu')"
    ]


def test_without_pinned_memory_pictures_are_read_and_that_is_told_once(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = emulated_gpu.EmulatedMemory.pinned

    def pinned(memory: Any, nbytes: int) -> Any:
        if nbytes == 1 << 26:
            raise RuntimeError("CUDA error: out of memory\nmore of that")
        return make(memory, nbytes)

    monkeypatch.setattr(emulated_gpu.EmulatedMemory, "pinned", pinned)
    with crops(photos).loader(device="cuda", decode_on="cuda", threads=2, pinned_memory=77_000_000) as loader:
        assert epochs(loader, 2) == expected(crops(photos), 2)
    told = (
        "no further 67.1 MB of memory could be pinned for pictures (CUDA error: out of memory); "
        "the others are read again in every epoch"
    )
    assert [record.message for record in caplog.records] == [told]


def test_who_keeps_pictures_hears_of_it_and_a_size_that_is_none_is_refused(emulated: Emulation, photos: Path) -> None:
    told = crops(photos).explain(decode_on="cuda", pinned_memory="2GB")
    assert "At most 2.0 GB of pictures stay in pinned memory after their first read" in told
    with pytest.raises(ConfigError, match="loader: pinned_memory='much' is not a size"):
        crops(photos).loader(device="cuda", decode_on="cuda", pinned_memory="much")


def test_where_the_cpu_decodes_memory_for_pictures_that_stay_is_refused(emulated: Emulation, photos: Path) -> None:
    for ask in (crops(photos).explain, partial(crops(photos).loader, device="cuda")):
        with pytest.raises(
            ConfigError, match=r"pinned_memory keeps pictures for the GPU to decode; use decode_on='cuda' or 'auto'"
        ):
            ask(pinned_memory="2GB")


def test_pinned_memory_is_never_more_than_was_given_although_torch_rounds_up(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_load, "_KEEP_BYTES", 1 << 15)
    pipeline = crops(photos)
    with pipeline.loader(device="cuda", decode_on="cuda", executor="inline", pinned_memory=50_000) as loader:
        device = loader._machinery.decoding.device
        assert device is not None and device.kept is not None
        assert epochs(loader, 3) == expected(pipeline, 3)
        kept = [len(memory) for _, memory in device.kept._parts]
    assert kept == [1 << 15, 1 << 14]


def test_no_memory_is_spent_on_pictures_of_records_that_are_parsed_anyway(emulated: Emulation, shards: Path) -> None:
    pipeline = stoker.tfrecord(str(shards / "r-*.tfrecord")).image("image", RandomResizedCrop(40)).batch(6)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2, pinned_memory="50MB") as loader:
        assert epochs(loader, 2) == expected(pipeline, 2)
        assert loader._machinery.decoding.device is not None and loader._machinery.decoding.device.kept is not None
        assert [int(part["used"][0]) for part, _ in loader._machinery.decoding.device.kept._parts] == [0]


# ---- threads -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cuda", "auto"])
def test_no_more_threads_compute_than_were_asked_for(emulated: Emulation, photos: Path, place: str) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def same(label: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.001)
        with lock:
            now -= 1
        return label

    pipeline = stoker.files(photos).map(label=same).image("image", RandomResizedCrop(48)).batch(3)
    with pipeline.loader(device="cuda", decode_on=place, threads=2) as loader:
        epochs(loader, 3)
        assert loader.stats().workers == 2
    assert 1 <= most <= 2


def test_who_waits_for_blocks_of_far_storage_lets_others_compute(
    emulated: Emulation, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who compute may hold the blocks."""
    hold, free = ReadAhead.hold, []

    def held(ahead: ReadAhead, *spans: Any) -> Any:
        turns = loader._machinery.decoding.cores._free  # type: ignore[union-attr]
        free.append(turns.acquire(timeout=20))  # at once, or when another is done; never, if this task has the only turn
        if free[-1]:
            turns.release()
        return hold(ahead, *spans)

    monkeypatch.setattr(ReadAhead, "hold", held)
    with Server() as server:
        server.put_all(shards.glob("t-*"))
        urls = [f"{server.origin}/{path.name}" for path in sorted(shards.glob("t-*.tar"))]
        pipeline = stoker.tar(urls).image("jpg", RandomResizedCrop(40)).batch(42)
        with pipeline.loader(device="cuda", decode_on="cuda", threads=1, ahead=1) as loader:
            assert epochs(loader, 2) == expected(
                stoker.tar(str(shards / "t-*.tar")).image("jpg", RandomResizedCrop(40)).batch(42)
            )
            loader.close()
    assert free and all(free)


def test_while_the_device_works_others_compute(emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait, free = cuda_driver.DeviceStream._wait, []

    def waited(stream: cuda_driver.DeviceStream) -> float:
        turns = loader._machinery.decoding.cores._free  # type: ignore[union-attr]
        free.append(turns.acquire(timeout=20))  # never, if this task has the only turn
        if free[-1]:
            turns.release()
        return wait(stream)

    pipeline = mixed(crops(photos), "image")  # loads, pictures of the CPU, and a whole batch
    with pipeline.loader(device="cuda", decode_on="cuda", threads=1, ahead=1) as loader:
        monkeypatch.setattr(cuda_driver.DeviceStream, "_wait", waited)
        assert epochs(loader, 1) == expected(pipeline, 1)
    assert len(free) > 6 and all(free)


def test_one_thread_alone_takes_no_turns_that_an_interruption_could_lose(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = expected(crops(photos), 2)
    monkeypatch.setattr(threading, "Semaphore", None)
    with crops(photos).loader(device="cuda", decode_on="cuda", executor="inline") as loader:
        launch = cuda_driver.DeviceStream.launch
        monkeypatch.setattr(cuda_driver.DeviceStream, "launch", lambda *arguments: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        monkeypatch.setattr(cuda_driver.DeviceStream, "launch", launch)
        loader.set_epoch(0)
        assert epochs(loader) == right


@pytest.mark.parametrize("when", ["queueing", "waiting"])
def test_who_is_interrupted_waits_for_what_is_queued(emulated: Emulation, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    stream, waited = cuda_driver.open_driver(0).stream(), []

    def wait(self: cuda_driver.DeviceStream) -> float:
        waited.append(True)
        if when == "waiting" and len(waited) == 1:
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setattr(cuda_driver.DeviceStream, "_wait", wait)
    with pytest.raises(KeyboardInterrupt), cuda_driver.open_driver(0).current(), stream.work():
        if when == "queueing":
            raise KeyboardInterrupt
    assert len(waited) == (2 if when == "waiting" else 1)


def test_a_batch_may_be_divided_between_device_and_cpu(emulated: Emulation, photos: Path) -> None:
    pipeline = crops(photos, 14)
    right = expected(pipeline, 4)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        for share, each in zip((0.25, 0.5, 0.75, 0.0), right):
            loader._machinery.decoding.device.share = share  # type: ignore[union-attr]
            assert epochs(loader, 1) == [each]
        assert 0 < loader.stats().device_images < 4 * TAKEN


# ---- loads -------------------------------------------------------------------------------------------------------------------


def test_loads_that_are_full_are_decoded_and_filled_again(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_decode, "_PICTURES", 2)
    pipeline = crops(photos, 14)
    with pipeline.loader(device="cuda", decode_on="cuda", executor="inline") as loader:
        before = emulated.counts().launches
        assert epochs(loader, 1) == expected(pipeline, 1)
        assert loader.stats().device_images >= TAKEN
    assert emulated.counts().launches - before >= 5 * TAKEN // 2


@pytest.mark.parametrize("threads", [1, 3])
def test_where_memory_runs_out_rows_go_one_by_one_and_not_to_the_device(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    right, add = expected(crops(photos), 1), Renderer.add

    def short(renderer: Renderer, source: Input, slots: Any = None) -> None:
        add(renderer, source, slots)
        if source.count > 1:
            raise MemoryError

    with crops(photos).loader(device="cuda", decode_on="cuda", threads=threads) as loader:
        monkeypatch.setattr(Renderer, "add", short)
        assert epochs(loader, 1) == right


def test_room_for_a_load_that_another_thread_takes_first_is_made(emulated: Emulation, photos: Path) -> None:
    class Taken(deque[Any]):
        def pop(self) -> Any:  # type: ignore[override]
            self.clear()
            return super().pop()

    with crops(photos).loader(device="cuda", decode_on="cuda", threads=2) as loader:
        device = loader._machinery.decoding.device
        assert device is not None
        device._rooms = Taken(maxlen=device.size.loads)
        assert epochs(loader) == expected(crops(photos))


def test_a_run_that_is_resumed_elsewhere_goes_on_with_the_same_batches(emulated: Emulation, photos: Path) -> None:
    pipeline = crops(photos, 4)
    whole = expected(pipeline, 2)
    places = ["cuda", "cpu", "auto", "cuda"]
    for cut in (1, 5, 9):
        state, got = None, []
        for place in places:
            with pipeline.loader(device="cuda", decode_on=place, threads=2) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                for number, batch in enumerate(loader, 1):
                    got += digest([batch])
                    if number == cut:
                        break
                state = loader.state_dict()
        flat = [each for epoch in whole for each in epoch]
        assert got == flat[: len(got)] and len(got) >= cut


def test_auto_moves_to_the_device_and_back_without_changing_a_byte(emulated: Emulation, photos: Path) -> None:
    shares: Iterator[float] = iter([1.0, 0.5, 0.0, 0.25, 1.0] * 100)
    pipeline = crops(photos, 4)
    with pipeline.loader(device="cuda", decode_on="auto", threads=2, ahead=2) as loader:
        assert not loader.stats().device_images and "until its cores are the limit" in loader.stats().decode_reason
        device = loader._machinery.decoding.device
        assert device is not None and device.share == 0
        got: list[list[str]] = []
        for _ in range(3):
            got.append([])
            for batch in loader:
                got[-1] += digest([batch])
                device.share = next(shares)
        assert got == expected(pipeline, 3)
        assert 0 < loader.stats().device_images < 3 * TAKEN


# ---- what the device does not take, or gives back ------------------------------------------------------------------------------


def test_pictures_that_the_device_gives_back_are_decoded_here(emulated: Emulation, photos: Path, shards: Path) -> None:
    emulated.blame(3)
    tar = stoker.tar(str(shards / "t-*.tar")).image("jpg", RandomResizedCrop(48)).batch(6)
    for pipeline in (crops(photos), tar):
        with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
            assert epochs(loader) == expected(pipeline)
            stats = loader.stats()
        assert stats.device_refused >= TAKEN * 2 // 7 and stats.device_images
        assert stats.device_refused + stats.device_images >= 2 * TAKEN


def test_pictures_that_are_read_before_they_are_decoded_may_come_back_too(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.blame(2)
    monkeypatch.setattr("stoker.source.files.labelled_files.LabelledFiles.locate", lambda *_: None)
    pipeline = crops(photos)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert epochs(loader) == expected(pipeline)


def test_without_a_seek_index_the_cpu_decodes_everything(emulated: Emulation, tmp_path: Path) -> None:
    pipeline = crops(make_folder(tmp_path / "photos", seek=False))
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert epochs(loader) == expected(pipeline)
        assert not loader.stats().device_images
        assert "no picture has a seek index, which the GPU needs; `stoker index --jpeg` makes one" in loader._explained()


def damage(number: int, data: bytes) -> bytes:
    """Some pictures are cut, one is nothing, one has other bytes in the middle, two that are declined anyway are cut."""
    if number == 7:
        return b"not a picture"
    if number in (0, 5, 6, 15):
        return data[: len(data) * 2 // 3]
    if number == 22:
        middle = len(data) // 2
        return data[:middle] + bytes(byte ^ 0x55 for byte in data[middle : middle + 40]) + data[middle + 40 :]
    return data


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("damaged"), damage)


@pytest.mark.parametrize("fill", [None, "repeat"])
def test_bad_pictures_are_skipped_or_filled_as_ever(emulated: Emulation, damaged: Path, fill: str | None, tmp_path: Path) -> None:
    emulated.blame(4)
    lists = []
    for place in ("cpu", "cuda"):
        bad = tmp_path / f"{place}.jsonl"
        pipeline = crops(damaged).on_error("skip", budget=20, fill=fill, quarantine=bad)
        with pipeline.loader(device="cuda", decode_on=place, threads=3) as loader:
            lists.append((epochs(loader), bad.read_text(), loader.stats().skipped))
    assert lists[0] == lists[1] and lists[0][2] >= 10


@pytest.mark.parametrize("fill", [None, "repeat"])
def test_what_is_left_of_batches_with_bad_pictures_is_mixed_as_ever(emulated: Emulation, damaged: Path, fill: str | None) -> None:
    pipeline = mixed(crops(damaged).on_error("skip", budget=20, fill=fill), "image")
    with pipeline.loader(device="cuda", decode_on="cuda", threads=3) as loader:
        assert epochs(loader) == expected(pipeline)
        assert loader.stats().device_images and loader.stats().skipped


def test_an_error_names_the_same_picture_in_the_same_words(emulated: Emulation, damaged: Path) -> None:
    told = []
    for place in ("cpu", "cuda"):
        with crops(damaged).loader(device="cuda", decode_on=place, threads=2) as loader, pytest.raises(ImageError) as caught:
            digest(loader)
        told.append((type(caught.value), str(caught.value), caught.value.key, caught.value.position))
    assert told[0] == told[1]


def test_an_index_that_lies_changes_no_pixel(emulated: Emulation, tmp_path: Path) -> None:
    """Indices of other pictures of the same size: what they say fits the file, and is wrong."""
    root = tmp_path / "photos"
    pictures = [jpeg_bytes(200, 150, seed=seed) for seed in range(8)]
    (root / "c").mkdir(parents=True)
    for number, data in enumerate(pictures):
        (root / "c" / f"{number}.jpg").write_bytes(data)
    keep_sidecar(os.fsencode(root), index_folder(os.fsencode(root)).index)
    index = next(path for path in root.rglob("*") if path.is_file() and path.suffix != ".jpg")
    good = expected(stoker.files(root).image("image", RandomResizedCrop(64)).batch(4))
    for number in range(8):  # pictures change places, their indices stay
        (root / "c" / f"{number}.jpg").write_bytes(pictures[(number + 1) % 8])
    assert index.exists()
    pipeline = stoker.files(root).image("image", RandomResizedCrop(64)).batch(4)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=2) as loader:
        got = epochs(loader)
    assert got == expected(pipeline) != good


# ---- what can go wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "code", "told"),
    [
        ("cuInit", 100, r"cuInit: CUDA_ERROR_NO_DEVICE; the driver sees no GPU here; use decode_on='cpu'"),
        ("cuDeviceGet", 101, r"CUDA_ERROR_INVALID_DEVICE; there is no GPU of this number"),
        ("cuModuleLoadData", 200, r"CUDA_ERROR_INVALID_IMAGE; the driver does not accept the compiled kernels; update"),
        ("cuModuleGetFunction", 500, r"cuModuleGetFunction: CUDA_ERROR_NOT_FOUND; the GPU cannot be used any more"),
        ("nvrtcCompileProgram", 6, r"NVRTC 12\.8 could not compile the kernels for sm_90; use decode_on='cpu', and report"),
        ("nvrtcGetSupportedArchs", 1, r"nvrtcGetSupportedArchs: NVRTC_ERROR; update NVRTC"),
    ],
)
def test_who_asks_for_the_gpu_hears_why_there_is_none(
    emulated: Emulation, photos: Path, function: str, code: int, told: str
) -> None:
    emulated.arm(function, code)
    threads = threading.active_count()
    with pytest.raises(DeviceError, match=told):
        crops(photos).loader(device="cuda", decode_on="cuda")
    assert threading.active_count() <= threads and emulated.counts().programs == 0
    emulated.arm(function, code)
    with crops(photos).loader(device="cuda", decode_on="auto", threads=2) as loader:
        assert epochs(loader) == expected(crops(photos))
        assert loader.stats().decode_reason.startswith("on the CPU, because")


@pytest.mark.parametrize(
    ("function", "code", "after"),
    [
        ("cuLaunchKernel", 700, 12),
        ("cuMemcpyHtoDAsync_v2", 700, 9),
        ("cuEventSynchronize", 700, 3),
        ("cuStreamCreateWithPriority", 2, 1),
        ("cuEventCreate", 2, 3),
    ],
)
def test_a_device_that_fails_in_the_middle_ends_the_run_by_name(
    emulated: Emulation, photos: Path, function: str, code: int, after: int
) -> None:
    before = set(threading.enumerate())
    with crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=2) as loader:
        emulated.arm(function, code, after)
        with pytest.raises(DeviceError, match=rf"{function}: CUDA_ERROR_(ILLEGAL_ADDRESS|OUT_OF_MEMORY)"):
            epochs(loader, 9)
        emulated.arm("", 0)
    del loader
    for thread in set(threading.enumerate()) - before:  # close() waits for tasks for some seconds only
        thread.join(100)
    gc.collect()
    assert emulated.counts()[:3] == (0, 0, 0) and emulated.depth == 0


def test_a_library_that_is_not_there_is_named(emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.device.cuda_driver.LIBRARY", "libnothing.so.1")
    with pytest.raises(DeviceError, match=r"cannot be loaded \(libnothing\.so\.1: .*install NVIDIA's driver, or use decode_on"):
        crops(photos).loader(device="cuda", decode_on="cuda")


def test_a_memory_budget_that_is_too_large_is_refused_with_a_remedy(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .emulated_gpu import EmulatedMemory

    rows = EmulatedMemory.rows

    def short(self: Any, shape: tuple[int, ...], dtype: str) -> Any:
        if len(shape) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return rows(self, shape, dtype)

    with (
        crops(photos).loader(device="cuda", decode_on="cuda", threads=2) as loader,
        monkeypatch.context() as patched,
        pytest.raises(DeviceError, match=r"CUDA out of memory.*use less, as in loader\(device_memory='250MB'\)"),
    ):
        patched.setattr(EmulatedMemory, "rows", short)
        epochs(loader)


@pytest.mark.parametrize(
    ("dimensions", "told"), [(1, "there is not enough memory for decoding on the device"), (4, "for another batch")]
)
def test_auto_stays_on_the_cpu_where_the_device_has_no_memory(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, dimensions: int, told: str
) -> None:
    from .emulated_gpu import EmulatedMemory

    rows = EmulatedMemory.rows

    def full(self: Any, shape: tuple[int, ...], dtype: str) -> Any:
        if len(shape) == dimensions:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return rows(self, shape, dtype)

    right = expected(crops(photos, 4), 5)
    monkeypatch.setattr(EmulatedMemory, "rows", full)
    monkeypatch.setattr(DecodePolicy, "see", lambda self, load: None if self._failed else 1.0)
    monkeypatch.setattr("stoker.loader.decode_watch._LOAD_S", 0.0)
    with crops(photos, 4).loader(device="cuda", decode_on="auto", threads=2, ahead=2) as loader:
        for now, each in enumerate(right):
            assert epochs(loader, 1) == [each]
            assert loader._meters.watch is not None
            loader._meters.watch(loader._meters, 1e9 + now)  # however quick this was
        reason = loader.stats().decode_reason
        assert not loader.stats().device_images
        assert reason.startswith("on the CPU, because there is no") and told in reason


def test_auto_goes_on_with_the_cpu_where_no_more_memory_can_be_pinned(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = emulated_gpu.EmulatedMemory.pinned

    def short(memory: Any, nbytes: int) -> Any:
        if nbytes > 1 << 20:
            raise RuntimeError("CUDA error: out of memory")
        return make(memory, nbytes)

    with crops(photos, 4).loader(device="cuda", decode_on="auto", threads=2) as loader:
        device = loader._machinery.decoding.device
        assert device is not None
        monkeypatch.setattr(emulated_gpu.EmulatedMemory, "pinned", short)
        device.take(1.0)
        assert epochs(loader, 2) == expected(crops(photos, 4), 2)
        assert device.share == 0 and not loader.stats().device_images


def test_memory_of_a_trial_that_failed_goes_back_to_the_training(emulated: Emulation, photos: Path) -> None:
    with crops(photos, 14).loader(device="cuda", decode_on="auto", threads=2, ahead=2) as loader:
        device = loader._machinery.decoding.device
        assert device is not None and not device._rooms
        device.take(1.0)
        assert len(device._rooms) == device.size.loads == 6
        epochs(loader, 2)
        assert loader.stats().device_images
        device.take(0.0)
        epochs(loader, 3)
        assert not device._rooms


def test_a_small_budget_is_divided_among_fewer_loads_and_one_of_none_is_refused(emulated: Emulation, photos: Path) -> None:
    pipeline = crops(photos)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=3, device_memory="40MB") as loader:
        device = loader._machinery.decoding.device
        assert device is not None and (device.size.loads, device.size.device_bytes) == (2, 20_000_000)
        assert epochs(loader) == expected(pipeline)
    with pytest.raises(ConfigError, match=r"loader\(device_memory=15000000\): must be at least 16\.0 MB"):
        pipeline.loader(device="cuda", decode_on="cuda", device_memory="15MB")


# ---- where it cannot be used --------------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[Path], Pipeline], dict[str, Any], str]] = {
    "processes": (crops, {"processes": 1}, "work runs in other processes; omit processes, and use executor='threads'"),
    "a filter": (lambda root: crops(root).unbatch().filter(len).batch(4), {}, "samples are filtered, expanded or streamed"),
    "single samples": (lambda root: stoker.files(root).image("image", CenterCrop(9)), {}, r"there is no batch\(\)"),
    "a function after it": (
        lambda root: stoker.files(root).image("image", CenterCrop(9)).map(image=np.negative).batch(4),
        {},
        r"map\(\) comes after image\('image'\) and looks at its pixels",
    ),
    "a batch function": (lambda root: crops(root).map_batch(dict), {}, r"map_batch\(\) comes after batch\(\)"),
    "a cache after it": (
        lambda root: stoker.files(root).image("image", CenterCrop(9)).cache("memory").batch(4),
        {},
        r"cache\(\) comes after image",
    ),
    "another size after colours": (
        lambda root: stoker.files(root).image("image", CenterCrop(9), ColorJitter(brightness=0.4), CenterCrop(5)).batch(4),
        {},
        r"in image\('image'\) operations from ColorJitter on set the size of the picture",
    ),
    "colours before the crop": (
        lambda root: stoker.files(root).image("image", ColorJitter(brightness=0.4), CenterCrop(5)).batch(4),
        {},
        r"in image\('image'\) operations from ColorJitter on set the size of the picture",
    ),
    "lenient": (
        lambda root: stoker.files(root).image("image", CenterCrop(9), lenient=True).batch(4),
        {},
        "which only the CPU does",
    ),
    "a rule of pad": (
        lambda root: stoker.files(root).image("image", CenterCrop(9)).batch(4, pad={"image": list}),
        {},
        r"batch\(pad=\.\.\.\) names the field 'image'",
    ),
    "images of any size": (lambda root: stoker.files(root).image("image", HorizontalFlip()).batch(4), {}, "vary in size"),
    "pixels": (
        lambda root: stoker.arrays(image=np.zeros((8, 9, 9, 3), np.uint8)).image("image", CenterCrop(4)).batch(4),
        {},
        "the field 'image' does not hold JPEGs as they are stored",
    ),
    "no images": (lambda root: stoker.arrays(x=np.arange(8)).batch(4), {}, r"no image\(\) decodes a field"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_decoded_on_a_device_is_refused_with_the_reason(emulated: Emulation, photos: Path, kind: str) -> None:
    make, options, told = REFUSED[kind]
    pipeline = make(photos)
    with pytest.raises(ConfigError, match=rf"loader\(decode_on='cuda'\): .*{told}.*; with 'auto' or 'cpu' the CPU decodes"):
        pipeline.loader(device="cuda", decode_on="cuda", **options)
    if not options:
        with pipeline.loader(device="cuda", decode_on="auto", threads=2) as loader:
            assert loader._machinery.decoding.device is None and "on the CPU, because" in loader.stats().decode_reason
        line = next(line for line in pipeline.explain(decode_on="auto").splitlines() if line.startswith("decode"))
        assert line.startswith("decode   on the CPU, because ")


def test_batches_that_stay_in_host_memory_are_decoded_there(image_folder: Path) -> None:
    pipeline = stoker.files(image_folder).image("image", CenterCrop(9)).batch(4)
    with pytest.raises(ConfigError, match=r"the GPU decodes only torch batches that are on it; use device='cuda'; with 'auto'"):
        pipeline.loader(decode_on="cuda")
    with pytest.raises(ConfigError, match=r"loader\(decode_on='gpu'\): must be 'cpu', 'cuda' or 'auto'"):
        pipeline.loader(decode_on="gpu")
    with pytest.raises(ConfigError, match=r"device_memory='much' is not a size"):
        pipeline.loader(device_memory="much")
    assert "decode   " not in pipeline.explain()


# ---- nothing is left ----------------------------------------------------------------------------------------------------------


def test_closed_in_the_middle_of_an_epoch_nothing_is_left(emulated: Emulation, photos: Path) -> None:
    threads = threading.active_count()
    for taken in (0, 1, 3):
        loader = crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=3)
        kept = [batch for batch, _ in zip(loader, range(taken))]
        loader.close()
        assert digest(kept) == expected(crops(photos, 4), 1)[0][:taken]  # what was handed out stays valid
        assert emulated.counts()[:3] == (0, 0, 0), "streams, events and programs end with the workers"
    assert threading.active_count() <= threads and emulated.depth == 0


def test_what_a_worker_gives_back_after_its_loader_was_closed_is_not_kept(emulated: Emulation, photos: Path) -> None:
    with crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=2) as loader:
        device = loader._machinery.decoding.device
        assert device is not None
        with device.room() as room:
            stream = device.take_stream()
            loader.close()
        device.streams.append(stream)
        del room, stream
        gc.collect()
        assert emulated.counts().streams == 0, "with the room goes its memory"


def test_memory_of_a_load_is_made_in_a_context_of_its_own(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch may put the context of the device that was current before in the place of the one that it finds."""
    found: list[tuple[int, tuple[int, ...]]] = []
    make = emulated_gpu.EmulatedMemory.rows

    def rows(memory: Any, shape: tuple[int, ...], dtype: str) -> Any:
        found.append((emulated.depth, shape))
        return make(memory, shape, dtype)

    monkeypatch.setattr(emulated_gpu.EmulatedMemory, "rows", rows)
    pipeline = crops(photos)
    with pipeline.loader(device="cuda", decode_on="cuda", threads=1) as loader:
        assert epochs(loader, 1) == expected(pipeline, 1)
    rooms = [depth for depth, shape in found if len(shape) == 1]
    assert rooms and min(rooms) == 2, "the worker goes on in its own"


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_a_graph_that_the_training_captures_meanwhile_is_not_broken(
    emulated: Emulation, damaged: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    def allocating(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            emulated.unsafe()
            return make(*arguments)

        return call

    for name in ("rows", "pinned", "taken"):
        monkeypatch.setattr(emulated_gpu.EmulatedMemory, name, allocating(getattr(emulated_gpu.EmulatedMemory, name)))
    pipeline, before = mixed(crops(damaged).on_error("skip", budget=20), "image"), emulated.counts()
    right = expected(pipeline)
    with pipeline.loader(device="cuda", decode_on="cuda", executor=executor, pinned_memory="50MB") as loader:
        emulated.capture(True)
        assert epochs(loader) == right
        assert loader.stats().device_images and loader.stats().skipped
    del loader
    gc.collect()
    assert emulated.counts().broken_captures == before.broken_captures
    assert emulated.mode == 0 and emulated.counts().streams == 0


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_a_loader_that_is_closed_lets_the_system_have_its_pinned_memory(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    held: list[weakref.ref[Any]] = []
    make, given_back = emulated_gpu.EmulatedMemory.pinned, []

    def pinned(memory: Any, nbytes: int) -> Any:
        made = make(memory, nbytes)
        held.append(weakref.ref(made))
        return made

    monkeypatch.setattr(emulated_gpu.EmulatedMemory, "pinned", pinned)
    monkeypatch.setattr(
        emulated_gpu.EmulatedMemory, "give_back", lambda self: given_back.append(all(ref() is None for ref in held))
    )
    loader = crops(photos).loader(device="cuda", decode_on="cuda", executor=executor, pinned_memory="5MB")
    epochs(loader, 2)
    loader.close()
    assert held and given_back == [True]
    with crops(photos).loader(device="cuda", decode_on="cuda", executor=executor) as loader:
        next(iter(loader))
    assert given_back == [True], "not where nothing was kept: it stops the device"


def test_batches_that_are_kept_are_not_overwritten(emulated: Emulation, photos: Path) -> None:
    with crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=3, ahead=1) as loader:
        kept: list[Batch] = [batch for _ in range(3) for batch in loader]
    assert [digest(kept)] == [[each for epoch in expected(crops(photos, 4), 3) for each in epoch]]


def test_a_forked_child_hears_that_cuda_does_not_work_there(emulated: Emulation, photos: Path) -> None:
    with crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=2) as loader:
        next(iter(loader))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            told = "nothing"
            try:
                signal.alarm(20)
                crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=2)
            except DeviceError as error:
                told = str(error)
            finally:
                os.write(writing, told.encode())
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            told = answer.read().decode()
        os.waitpid(child, 0)
        assert "CUDA_ERROR_NOT_INITIALIZED; CUDA does not work in a forked process; start processes with 'spawn'" in told
        assert epochs(loader, 1)[0] == expected(crops(photos, 4), 2)[1]


def test_what_was_decoded_where_is_told(emulated: Emulation, photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    emulated.blame(5)
    with caplog.at_level(logging.WARNING, "stoker"), crops(photos).loader(device="cuda", decode_on="cuda", threads=2) as loader:
        epochs(loader, 3)
        told, stats = loader.why(), loader.stats()
        assert "image: the 30 of 42 pictures that have a seek index on the GPU" in loader._explained()
        assert "All pictures in flight take at most 2.0 GB of the GPU's memory" in loader._explained()
    assert f"Images are decoded on the GPU, as requested ({stats.device_images:,} of " in told
    assert f"it gave {stats.device_refused:,} back" in told
    assert [step.kind for step in stats.steps][:2] == ["read", "device"]
    assert not caplog.records


def test_without_it_nothing_of_it_is_imported(image_folder: Path) -> None:
    code = (
        "import sys, stoker; from stoker.image import CenterCrop\n"
        f"with stoker.files({str(image_folder)!r}).image('image', CenterCrop(9)).batch(4).loader(threads=1) as it: list(it)\n"
        "print(sorted(name for name in sys.modules if name.startswith('stoker.device')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True).stdout
    assert out.strip() == "['stoker.device', 'stoker.device.framework_output']"
