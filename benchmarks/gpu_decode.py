"""Does decoding on a GPU give the CPU's bytes, how many crops reach the training loop, and what does it cost the model?

Seven parts, of which ``--parts`` chooses:

- `exact`: the SHA-256 of two epochs decoded on the CPU, on the GPU and where it is faster, with several numbers of threads and
  sizes of loads, and resumed in the middle; photographs as files and in shards, and generated files of all samplings, odd
  sizes and qualities, with indices of 16, 8 and 4;
- `stages`: microseconds of the device for each kernel and copy of a load, by the pictures in it and the step of their indices;
- `delivered`: crops/s through the loader by number of threads, and the host's time on cores for each;
- `nvjpeg`: whole pictures/s of nvJPEG, which neither crops nor resizes (through torchvision, where it is installed);
- `training`: the share of the rate on synthetic data that is left beside it, and the share of time in which the GPU decodes;
- `damage`: every single-byte change of small files, random changes of the photographs, and lying indices: the same pictures and
  errors as on the CPU;
- `memory`: bytes on the device.

A part prints its figures as a line of JSON when it is done, `training` one for each model; the last line has all of them. A part
that fails is named there, the others run all the same, and the exit status is 1. These commands give all figures, each in an
estimated nine minutes at most on an H200 with 16 cores and 400 photographs; `nvjpeg` needs the torchvision of that torch:

    PHOTOS="python benchmarks/gpu_decode.py --images DIR"
    $PHOTOS --parts exact --copies 2
    $PHOTOS --parts damage --copies 1
    $PHOTOS --parts delivered,nvjpeg,stages,memory --threads 1,2,4,8,16 --rounds 2 --device-memory 6GB
    $PHOTOS --parts training --models resnet18 --rounds 2
    $PHOTOS --parts training --models resnet50 --rounds 2
    compute-sanitizer --tool memcheck --error-exitcode 9 $PHOTOS --parts damage --quick --changes 400 --copies 1

Before them, and much quicker, the tests that run where torch finds a GPU:

    python -m pytest -q tests/device/test_cuda.py tests/device/test_cuda_decode.py tests/device/test_cuda_floats.py

Another ``--seed`` damages in other ways. The tools racecheck and synccheck of the sanitizer see what no emulation shows.

It needs a GPU and a torch for CUDA; without, it says so and exits with 2.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import data
import stoker
import train_gpu
from measure import SEED, BenchmarkParser, available, median, note, report, rounded
from ours import OPS, SIDE
from stoker.device import choose_output
from stoker.device.device_decode import DeviceDecoding, DeviceRoom, DeviceWorker, LoadSize
from stoker.image import ColorJitter, RandAugment, RandomResizedCrop
from stoker.image.lower import lower
from stoker.kernel.native import SEEK_STEP, Program, Spans
from stoker.kernel.render import Renderer, SpanInput
from stoker.loader.decode_place import LOADS
from stoker.pack.jobs.seeking import index_folder
from stoker.pack.values.jpegs import make_seek
from stoker.source.shards.sidecar import keep_sidecar
from stoker.storage.scratch import Scratch

PARTS = ("exact", "stages", "delivered", "nvjpeg", "training", "damage", "memory")
#: what was asked for: crops/s by threads, and shares of the synthetic rate by model
ASKED_RATES = {2: 150_000, 8: 250_000}
ASKED_SHARES = {"resnet18": 0.95, "resnet50": 0.99}
#: batches of 256 that a model is timed with in a round, which take it some seconds
TIMED = {"resnet18": 300, "resnet50": 120}
#: where pictures are decoded beside a model; `kept`: they stay in pinned memory
BESIDE = ("kept", "kept auto", "auto", "cpu")
#: the GPU's shares of batches, in turn, where they change all the time
MOVES = (1.0, 0.25, 0.75, 0.0, 0.5)
#: pictures that are damaged together
GROUP = 512
#: the sides of damaged and generated pictures' crops
SMALL = 64


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    data.add_arguments(parser)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"which ({','.join(PARTS)})")
    parser.add_argument("--threads", default="1,2,4,8,16", help="host threads to deliver with (1,2,4,8,16)")
    parser.amount("--batch", 512, 8, "images in a batch")
    parser.amount("--steps", 200, 2, "batches that are timed in a round")
    parser.amount("--generated", 3000, 12, "generated files")
    parser.amount("--changes", 100_000, 64, "random changes of photographs")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the random changes ({SEED})")
    parser.add_argument("--models", default=",".join(ASKED_SHARES), help=f"which to train ({','.join(ASKED_SHARES)})")
    parser.add_argument("--training-threads", type=int, default=4, help="host threads beside a model (4)")
    parser.add_argument(
        "--settle-s", type=float, default=8.0, help="training before the clock starts, in which `auto` chooses (8)"
    )
    parser.add_argument("--priority", type=int, default=0, help="of the stream that trains; -1: above the one that decodes (0)")
    parser.add_argument("--device-memory", default="2GB", help="for decoding, besides the batches (2GB)")
    parser.add_argument("--pinned-memory", default="4GB", help="for pictures that stay there, in `kept` (4GB)")
    parser.amount("--copies", 8, 1, "of each photograph, so that they fit no cache of a processor")
    options = parser.parse_args(words)
    options.parts = options.parts.split(",")
    options.models = options.models.split(",")
    options.counts = [int(count) for count in options.threads.split(",")]
    for name, known in (("parts", PARTS), ("models", ASKED_SHARES)):
        if unknown := set(getattr(options, name)) - set(known):
            parser.error(f"--{name}: there is no {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return options


# ---- exact -----------------------------------------------------------------------------------------------------------------


def epochs_hash(
    pipeline: stoker.Pipeline, decode_on: str, *, stop: int | None = None, moves: bool = False, **options: Any
) -> tuple[str, int]:
    """The SHA-256 over two epochs, and how many pictures the GPU decoded; resumed after `stop` batches, in another loader.

    `moves`: the GPU's share of each batch changes all the time, as `auto` may change it.
    """
    sha, on_gpu, state = hashlib.sha256(), 0, None
    for last in (stop, None) if stop is not None else (None,):
        with pipeline.loader(device="cuda", decode_on=decode_on, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            if moves:
                _move(loader, MOVES[0])
            for number, batch in chain.from_iterable(enumerate(loader, 1) for _ in range(2 if last is None else 1)):
                if moves:
                    _move(loader, MOVES[number % len(MOVES)])
                for column in batch:
                    sha.update(column.cpu().numpy().tobytes())
                if number == last:
                    break
            state, on_gpu = loader.state_dict(), on_gpu + loader.stats().device_images
    return sha.hexdigest(), on_gpu


def _move(loader: stoker.Loader, share: float) -> None:
    """Let `auto` choose this share for what is begun from now on."""
    decoding = loader._machinery.decoding.device
    assert decoding is not None
    decoding.take(share)


def compare_hashes(what: str, pipeline: stoker.Pipeline, options: argparse.Namespace) -> dict[str, Any]:
    """Whether epochs have one hash, whoever decodes them."""
    expected, _ = epochs_hash(pipeline, "cpu")
    steps = len(pipeline.loader(executor="inline"))
    counts = options.counts[:2] if options.quick else options.counts
    runs: dict[str, dict[str, Any]] = {f"cuda, {count} threads": {"decode_on": "cuda", "threads": count} for count in counts}
    runs |= {f"cuda, {size}": {"decode_on": "cuda", "device_memory": size} for size in ("32MB", "4GB")}
    runs |= {"auto": {"decode_on": "auto"}, "auto, moved": {"decode_on": "auto", "moves": True, "ahead": 2}}
    runs |= {"cuda, resumed": {"decode_on": "cuda", "stop": max(1, steps // 3)}}
    kept = {"decode_on": "cuda", "pinned_memory": "1GB"}
    runs |= {"kept": kept, "kept, resumed": {**kept, "stop": max(1, steps // 3)}}
    found = {name: epochs_hash(pipeline, **given) for name, given in runs.items()}
    wrong = sorted(name for name, (sha, _) in found.items() if sha != expected)
    # Where the GPU did nothing, nothing is shown; short epochs are over before `auto` has tried it.
    fewest = min(count for name, (_, count) in found.items() if name != "auto")
    note(f"exact      {what:24} {len(found)} runs, {fewest:,} pictures on the GPU, different: {', '.join(wrong) or 'none'}")
    return {"runs": len(found), "wrong": wrong, "pictures_on_gpu": fewest, "sha256": expected}


def copied(folder: Path, to: Path, copies: int) -> Path:
    """The photographs of a folder so many times in another, with seek indices."""
    to.mkdir()
    for number, path in enumerate(data.paths_of(folder) * copies):
        shutil.copyfile(path, to / f"{number:06}.jpg")
    add_index(to, SEEK_STEP)
    data.warm(data.paths_of(to))
    return to


def add_index(folder: Path, step: int) -> None:
    """Seek indices for all pictures of a folder."""
    root = str(folder).encode()
    keep_sidecar(root, index_folder(root, step=step).index)


def generate(folder: Path, count: int) -> None:
    """JPEGs of all samplings, odd sizes, qualities and tables."""
    from PIL import Image

    rng = np.random.default_rng(SEED)
    (folder / "c").mkdir(parents=True)
    for number in range(count):
        width, height = (int(side) for side in rng.integers(16, 400, 2))
        image = Image.fromarray(data.picture(width, height, number))
        image = image.convert("L") if number % 7 == 6 else image
        options = {"quality": int(rng.integers(20, 98)), "subsampling": number % 3, "optimize": bool(number % 2)}
        image.save(folder / "c" / f"{number:05}.jpg", **options)


def exact(options: argparse.Namespace, folder: Path, shards: str | None, work: Path) -> dict[str, Any]:
    found = {}
    for name, pipeline in once(folder, shards, options.batch).items():
        found[name] = compare_hashes(name, pipeline, options)
    generate(work / "generated", options.generated)
    for step in (SEEK_STEP, 8, 4):
        add_index(work / "generated", step)
        made = stoker.files(work / "generated").shuffle(seed=SEED)
        pipeline = made.image("image", RandomResizedCrop(SMALL, scale=(0.01, 1.0))).batch(min(64, options.generated // 3))
        found[f"generated, step {step}"] = compare_hashes(f"generated, step {step}", pipeline, options)
    return found


def once(folder: Path, shards: str | None, batch: int) -> dict[str, stoker.Pipeline]:
    """The photographs, each once per epoch."""
    files = stoker.files(folder, labels=train_gpu.label_of).shuffle(seed=SEED).image("image", *OPS)
    found = {"files": files.select("image", "label").batch(batch, drop_last=False)}
    coloured = (
        stoker.files(folder, labels=train_gpu.label_of)
        .shuffle(seed=SEED)
        .image("image", *OPS, ColorJitter(0.4, 0.4, 0.4), RandAugment())
    )
    found["files, finished on the CPU"] = coloured.select("image", "label").batch(batch, drop_last=False)
    if shards is not None:
        packed = stoker.tar(shards).shuffle(seed=SEED).image("jpg", *OPS)
        found["shards"] = packed.select("jpg", "cls").batch(batch, drop_last=False)
    return found


# ---- how fast --------------------------------------------------------------------------------------------------------------


def stages(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What the device takes for each part of a load by itself, and for whole loads beside each other."""
    photos = [Path(path).read_bytes() for path in data.paths_of(folder)[:512]]
    scratch, found = Scratch(), {}
    for step in (SEEK_STEP, 4):
        seeks = [make_seek(photo, scratch, step) for photo in photos]
        for pictures in (4,) if options.quick else (64, 512):
            many = -(-pictures // len(photos))
            told = Stages((photos * many)[:pictures], (seeks * many)[:pictures]).see(options)
            found[f"step {step}, {pictures} pictures"] = told
            note(f"stages     step {step:2}, {pictures:4} pictures  {told}")
    scratch.close()
    return found


class Stages:
    """Some loads of the same pictures, run again and again."""

    def __init__(self, photos: list[bytes], seeks: list[bytes]) -> None:
        self._pair = pair = Pair(1 << 30, SIDE)
        self._count, self._host_us = len(photos), list[float]()
        batch = pair.decoding.batch(self._count)
        assert batch is not None
        self._batch, self._out = batch, pair.decoding.memory.place(batch.tensor)
        self._workers = [(DeviceWorker(pair.decoding), DeviceRoom(pair.decoding)) for _ in range(LOADS)]
        host, spans, seek_spans = np.zeros((self._count, SIDE, SIDE, 3), np.uint8), _spans(photos), _spans(seeks)
        for epoch, (worker, _) in enumerate(self._workers):
            worker.load.begin(pair.program, SIDE, SIDE)
            pair.renderer.load = worker.load
            begun = time.thread_time()
            pair.renderer.begin(epoch, np.arange(self._count), host)
            pair.renderer.add(SpanInput().tell(spans, seek_spans))
            self._host_us.append((time.thread_time() - begun) * 1e6 / self._count)
        pair.renderer.load = None

    def see(self, options: argparse.Namespace) -> dict[str, float]:
        """Microseconds for each part of a load alone, and for a picture of loads that run beside each other, without copies."""
        rounds = 3 if options.quick else 20
        us: dict[str, list[float]] = {}
        with self._pair.decoding.driver.current():
            for _ in range(rounds):
                for name, spent_s in self._one(*self._workers[0]).items():
                    us.setdefault(name, []).append(spent_s * 1e6)
            together_s = min(self._together(rounds) for _ in range(3))
        found = {name: median(spent) for name, spent in us.items()}
        each_us = together_s * 1e6 / self._count / LOADS / rounds
        return {name: round(spent, 1) for name, spent in found.items()} | {
            "together, each picture": round(each_us, 2),
            "host, each picture": round(median(self._host_us), 2),
        }

    def _one(self, worker: DeviceWorker, room: DeviceRoom) -> dict[str, float]:
        stream, load, base, spent = room.stream, worker.load, room.place, {}
        with stream.work() as done:
            for source, offset, nbytes in load.copies():
                stream.upload(base + offset, source, nbytes)
        spent["upload"] = done.seconds
        with stream.work() as done:
            for offset, nbytes in load.clears:
                stream.clear(base + offset, nbytes)
        spent["clear"] = done.seconds
        for launch in load.launches(base, self._out, self._pair.decoding.row_bytes):
            with stream.work() as done:
                stream.launch(self._pair.decoding.functions[launch.name], launch.grid, launch.block, launch.argument)
            spent[launch.name] = done.seconds
        return spent

    def _together(self, rounds: int) -> float:
        for worker, room in self._workers:
            self._one(worker, room)  # its data are there from now on
        begun = time.perf_counter()
        with ExitStack() as streams:
            for _, room in self._workers:
                streams.enter_context(room.stream.work())
            for _ in range(rounds):
                for worker, room in self._workers:
                    self._queue(worker, room)
        return time.perf_counter() - begun

    def _queue(self, worker: DeviceWorker, room: DeviceRoom) -> None:
        stream, load, base = room.stream, worker.load, room.place
        for offset, nbytes in load.clears:
            stream.clear(base + offset, nbytes)
        for launch in load.launches(base, self._out, self._pair.decoding.row_bytes):
            stream.launch(self._pair.decoding.functions[launch.name], launch.grid, launch.block, launch.argument)


@contextmanager
def fed(pipeline: stoker.Pipeline, place: str, threads: int, options: argparse.Namespace) -> Iterator[train_gpu.Feed]:
    """Stoker's loader, decoding in a place (`kept`: on the GPU, from pictures that stay in pinned memory), and what limits it."""
    given: dict[str, Any] = {"decode_on": place, "threads": threads, "device_memory": options.device_memory}
    if place.startswith("kept"):
        given |= {"decode_on": place.removeprefix("kept").strip() or "cuda", "pinned_memory": options.pinned_memory}
    with pipeline.loader(device="cuda", **given) as loader:

        def told() -> str:
            stats = loader.stats()
            each_us = stats.cpu_s / max(1, stats.samples) * 1e6
            return f"{each_us:.1f} us on a core in tasks for each picture. {loader.why()}"

        yield train_gpu.Feed(iter(loader), told)


def delivered(options: argparse.Namespace, folder: Path, shards: str | None) -> dict[str, Any]:
    """Crops/s that reach the GPU when nobody trains."""
    warm_up, settle_s = (1, 0.0) if options.quick else (20, 0.5)
    options = argparse.Namespace(**{**vars(options), "device": "cuda", "warm_up": warm_up, "settle_s": settle_s})
    feeds = {
        f"{name}, {place}, {count} threads": partial(fed, pipeline, place, count, options)
        for name, pipeline in train_gpu.pipelines(folder, shards, options.batch).items()
        for place in ("kept", "cuda", "cpu")
        for count in (options.counts if place != "cpu" else options.counts[-1:])
    }
    return train_gpu.in_turn(train_gpu.only_look, feeds, options, "delivered")


def nvjpeg(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Whole pictures per second through torchvision, without crop and resize, from files in memory; None: it is not installed."""
    if not available("nvjpeg", ("torchvision",)):
        return {"images_per_s": None}
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    files, passes = [read_file(str(path)) for path in data.paths_of(folder)[:512]], 1 if options.quick else 20
    decode = partial(decode_jpeg, mode=ImageReadMode.RGB, device="cuda")  # a list at once: the hardware's decoders, if it has any
    decode(files)
    rates = []
    for _ in range(options.rounds):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(passes):
            decode(files)
        torch.cuda.synchronize()
        rates.append(passes * len(files) / (time.perf_counter() - begun))
    note(f"nvjpeg     whole pictures {median(rates):,.0f}/s")
    return {"images_per_s": median(rates), "runs": rates}


def training(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What is left of the rate on synthetic data, where pictures are decoded on the GPU and on the CPU."""
    import torch

    given = argparse.Namespace(**{**vars(options), "device": "cuda", "compile": not options.quick, "width": 64})
    given.batch, given.warm_up, given.settle_s = (8, 1, 0.0) if options.quick else (256, 20, options.settle_s)
    pipeline = train_gpu.pipelines(folder, None, given.batch)["files"]
    feeds = {f"files, {place}": partial(fed, pipeline, place, options.training_threads, given) for place in BESIDE}
    found: dict[str, Any] = {}
    with torch.cuda.stream(torch.cuda.Stream(priority=options.priority)) if options.priority else nullcontext():
        for model in options.models:
            given.steps = 1 if options.quick else TIMED[model]
            step = train_gpu.make_step(model, given)
            found[model] = train_gpu.train(model, feeds, given, step)
            found[model]["time_decoding"] = {
                feed: decoding_share(feeds[feed], step, given, decodes=feed == "files, kept")
                for feed in ("files, kept", "files, kept auto")
            }
            tell("training", {model: found[model]})
    return found


def decoding_share(
    feed: Callable[[], Any], step: Callable[[Any, Any], None], options: argparse.Namespace, *, decodes: bool
) -> float | None:
    """The share of the time in which the GPU runs a kernel that decodes, beside a model; None: torch's profiler cannot say.

    `decodes`: it decodes for certain.
    """
    try:
        from torch.profiler import ProfilerActivity, profile

        with feed() as batches:
            train_gpu.rate_of(batches, step, options)
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                begun = time.perf_counter()
                for _ in range(max(1, options.steps // 6)):
                    step(*next(batches.batches))
                train_gpu.finish(options.device)
                spent_s = time.perf_counter() - begun
        spans = [event.time_range for event in seen.events() if event.name.startswith("stk_")]
        if decodes and not spans:
            raise RuntimeError("torch's profiler saw none of the kernels")
    except Exception as error:  # noqa: BLE001 - the rates are worth more than this
        note(f"training   without the share of time in which the GPU decodes: {type(error).__name__}: {error}")
        return None
    return covered((span.start, span.end) for span in spans) * 1e-6 / spent_s


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much lies in at least one of these spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


# ---- damage ----------------------------------------------------------------------------------------------------------------


class Pair:
    """The same pictures through the GPU and through the CPU, below any loader: encoded bytes and any index for them."""

    def __init__(self, device_memory: int, side: int = SMALL) -> None:
        self.program: Program = lower((RandomResizedCrop(side),), seed=SEED, streams=(1,))
        memory = choose_output("torch", "cuda").device_memory()
        assert memory is not None
        self.decoding = DeviceDecoding(memory, "image", (side, side, 3), "uint8", LoadSize(device_memory, 1))
        self._scratch = Scratch()
        self.renderer = Renderer(self._scratch.decoder, self.program)
        self.compared = self.different = self.on_gpu = self.given_back = self.errors = 0

    def see(self, pictures: list[bytes], seeks: list[bytes]) -> None:
        """Compare both; `seeks` may be of other pictures."""
        positions = np.arange(len(pictures))
        here, rows = np.zeros((len(pictures), SMALL, SMALL, 3), np.uint8), self.renderer
        rows.begin(0, positions, here)
        rows.add(_input(pictures, seeks))
        expected = rows.rows[["status", "where"]].copy()
        host, there = np.zeros_like(here), self.decoding.batch(len(pictures))
        assert there is not None
        with there.task(0, {"image": host}, self._scratch) as task:
            task.begin(rows, self.program)
            rows.begin(0, positions, host)
            rows.add(_input(pictures, seeks))
            back = task.finish(rows)
            if len(back):
                rows.add(_input([pictures[row] for row in back], [seeks[row] for row in back]), back)
            good = np.flatnonzero(rows.rows["status"] == 0)
            task.end(good)
        notes = self._scratch.take_notes()
        pixels: NDArray[np.uint8] = there.tensor.cpu().numpy()
        same = (rows.rows[["status", "where"]] == expected) & ((expected["status"] != 0) | (pixels == here).all(axis=(1, 2, 3)))
        self.compared += len(pictures)
        self.different += int((~same).sum())
        self.on_gpu += notes.device_images
        self.given_back += notes.device_refused
        self.errors += int((expected["status"] != 0).sum())

    def figures(self) -> dict[str, int]:
        names = ("compared", "different", "on_gpu", "given_back", "errors")
        return {name: getattr(self, name) for name in names}


def _input(pictures: list[bytes], seeks: list[bytes]) -> Any:
    return SpanInput().tell(_spans(pictures), _spans(seeks))


def _spans(values: list[bytes]) -> Spans:
    lengths = np.array([len(value) for value in values], np.int64)
    return Spans(np.frombuffer(b"".join(values) + bytes(1), np.uint8), np.cumsum(lengths) - lengths, lengths)


def damage(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The corruption corpus of the CPU's decoder: every single-byte change of small files, random ones of photographs, and
    indices of other pictures."""
    pair, scratch, rng = Pair(256 << 20), Scratch(), np.random.default_rng(options.seed)
    small = [_small(subsampling) for subsampling in (0, 1, 2)]
    for picture in small:
        changes = [(at, value) for at in range(len(picture)) for value in range(256) if value != picture[at]]
        seek = make_seek(picture, scratch, 4)
        for group in _groups(changes[: 64 if options.quick else None]):
            pair.see([picture[:at] + bytes([value]) + picture[at + 1 :] for at, value in group], [seek] * len(group))
    note(f"damage     single bytes  {pair.figures()}")
    photos = [Path(path).read_bytes() for path in data.paths_of(folder)[:200]]
    seeks = [make_seek(photo, scratch) for photo in photos]
    for group in _groups([int(number) for number in rng.integers(0, len(photos), options.changes)]):
        pair.see([_changed(photos[number], rng) for number in group], [seeks[number] for number in group])
    note(f"damage     random        {pair.figures()}")
    for group in _groups([int(number) for number in rng.integers(0, len(photos), options.changes // 10)]):
        lies = [_lie(seeks[number], seeks[(number + 1) % len(seeks)], rng) for number in group]
        pair.see([photos[number] for number in group], lies)
    note(f"damage     lying indices {pair.figures()}")
    scratch.close()
    return pair.figures()


def _small(subsampling: int) -> bytes:
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(data.picture(96, 72, subsampling)).save(out, "JPEG", quality=60, subsampling=subsampling)
    return out.getvalue()


def _changed(picture: bytes, rng: np.random.Generator) -> bytes:
    """One to four bytes changed, a piece removed, or the end cut off."""
    kind, at = int(rng.integers(4)), int(rng.integers(len(picture)))
    if kind == 0:
        return picture[:at]
    if kind == 1:
        return picture[:at] + picture[at + int(rng.integers(1, 64)) :]
    changed = bytearray(picture)
    for _ in range(int(rng.integers(1, 5))):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)


def _lie(seek: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Another picture's index, or this one's with a byte changed."""
    if rng.integers(2) or not seek:
        return other
    at = int(rng.integers(len(seek)))
    return seek[:at] + bytes([seek[at] ^ int(rng.integers(1, 256))]) + seek[at + 1 :]


def _groups(values: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(values), GROUP):
        yield values[first : first + GROUP]


# ---- memory ----------------------------------------------------------------------------------------------------------------


def memory(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What decoding takes on the device, for several budgets."""
    import torch

    pipeline = train_gpu.pipelines(folder, None, options.batch)["files"]
    found = {}
    for budget in ("64MB", "256MB", "1GB"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with pipeline.loader(device="cuda", decode_on="cuda", threads=4, device_memory=budget, ahead=4) as loader:
            for _ in zip(range(options.steps), loader):
                pass
            stats = loader.stats()
        each = stats.device_bytes / max(1, stats.device_images)
        found[budget] = {"peak_bytes": torch.cuda.max_memory_allocated() - before, "bytes_per_picture": each}
    line = next(line for line in pipeline.explain(decode_on="cuda").splitlines() if line.startswith("decode"))
    return {"budgets": found, "batch_bytes": options.batch * SIDE * SIDE * 3, "explain": line}


# ---- the whole -------------------------------------------------------------------------------------------------------------


def targets(figures: dict[str, Any]) -> dict[str, tuple[float, float, bool]]:
    """What was asked for, of the parts that gave figures: (got, asked, met)."""
    figures = {part: found for part, found in figures.items() if "failed" not in found}
    rates = figures.get("delivered", {}).get("images_per_s", {})
    met = {
        f"{source}, {count} threads, crops/s": (rates[name], asked, rates[name] >= asked)
        for count, asked in ASKED_RATES.items()
        for source in ("files", "indexed")
        if (name := f"{source}, kept, {count} threads") in rates
    }
    for model, asked in ASKED_SHARES.items():
        for feed, share in figures.get("training", {}).get(model, {}).get("of_synthetic", {}).items():
            if not feed.endswith(", cpu"):
                met[f"{model} from {feed}, of synthetic"] = share, asked, share >= asked
    if "damage" in figures:
        met["different results of damaged pictures"] = figures["damage"]["different"], 0, not figures["damage"]["different"]
    for what, found in figures.get("exact", {}).items():
        met[f"exact, {what}: wrong runs"] = len(found["wrong"]), 0, not found["wrong"] and found["pictures_on_gpu"] > 0
    return met


def why_not() -> str | None:
    """Why nothing can be measured here; None: it can."""
    if not available("gpu_decode", ("torch",)):
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "there is no GPU that torch could use"


def tell(part: str, found: dict[str, Any]) -> None:
    """Print what a part found, which is then not lost, whatever becomes of the others."""
    print(json.dumps({"part": part, **rounded(found)}), flush=True)


def run(part: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a part found, or that it failed, and why."""
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - the other parts are run all the same
        traceback.print_exc()
        found = {"failed": f"{type(error).__name__}: {error}"}
    tell(part, found)
    return found


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    if (refused := why_not()) is not None:
        note(f"gpu_decode: {refused}; it needs a GPU and a torch for CUDA")
        return 2
    import torch

    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    folder = data.images_of(options)
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        folder = copied(folder, work / "photographs", options.copies)
        packed = {"exact", "delivered"} & set(options.parts)
        shards = train_gpu.pack_indexed(folder, work / "shards", labels=True) if packed else None
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "exact": lambda: exact(options, folder, shards, work),
            "stages": lambda: stages(options, folder),
            "delivered": lambda: delivered(options, folder, shards),
            "nvjpeg": lambda: nvjpeg(options, folder),
            "training": lambda: training(options, folder),
            "damage": lambda: damage(options, folder),
            "memory": lambda: memory(options, folder),
        }
        figures = {part: run(part, parts[part]) for part in options.parts}
    report("gpu_decode", options, **about, **figures, targets=targets(figures))
    return 1 if any("failed" in found for found in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
