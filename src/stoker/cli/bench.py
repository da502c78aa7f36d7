"""`stoker bench`: how fast these images can be loaded on this machine, and how fast others do it."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

import stoker

from ..engine.resources import usable_cores
from ..errors import ConfigError
from ..pack.values.stored_images import picture_kind
from ..sizes import counted, show_bytes
from ..source.files.labelled_files import LabelledFiles
from ..source.source import Source
from .peers import Peer, choose_peers, peer_batches
from .progress import Progress
from .sample_choice import spread_samples
from .screen import Ahead, AsJson, print_json, tell, tell_table
from .sources import SourceName, open_source, stored_in

if TYPE_CHECKING:
    from ..observe.stats import Stats
    from ..pipeline import Pipeline

#: every contender is measured so many times, by turns, so that a slow moment of the machine meets all of them
_ROUNDS = 5
#: seconds of each round that do not count
_WARM_S = 0.2


def bench(
    source: SourceName,
    size: Annotated[int, typer.Option(min=1, metavar="N", help="Side of the crops, in pixels.")] = 224,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Images in a batch.")] = 256,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Worker threads; other loaders get as many worker processes.",
            show_default="the cores of this machine",
        ),
    ] = None,
    ahead: Ahead = None,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="S", help="How long to measure each loader, at least.")] = 5.0,
    samples: Annotated[
        int, typer.Option(min=1, metavar="N", help="Use at most this many images; files are chosen from all over the source.")
    ] = 2000,
    against: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Other loaders to compare with: `torch` (its DataLoader, Pillow), `opencv` (the same "
            "DataLoader, simplejpeg and OpenCV), `torch,opencv`; all that are installed, or none.",
        ),
    ] = "all",
    json: AsJson = False,
) -> None:
    """Measure how many images per second can be loaded, and compare.

    Every loader does the same work: read, decode, random crop resized to --size, flip half of the images, join --batch of them
    as bytes (uint8). The data are read once before, so decoding is measured and not the disk. The loaders take turns, five
    times each; the rate shown is the median, and ratios are taken within each turn. Of tar shards, TFRecords and LMDB the first
    --samples are read; other loaders get the same pictures as files. If the JPEGs have seek indices (`stoker index --jpeg`),
    Stoker is measured with and without them.

    Example: `stoker bench photos/ --size 224 --threads 8 --against torch`
    """
    peers, missing = choose_peers(against)
    opened = open_source(source)
    stored = stored_in(opened)
    workers = threads or usable_cores()
    with TemporaryDirectory(prefix="stoker-bench-") as folder:
        if isinstance(stored, LabelledFiles):
            paths = _spread_paths(stored, samples)
            listed = _write_list(Path(folder) / "images.txt", paths)
            images, field = stoker.filelist(listed, labels=None), "image"
            plain = stoker.filelist(listed, labels=None, seek=False)
        else:
            field = picture_field(stored)
            images = opened.select(field).take(samples)
            plain = open_source(source, seek=False).select(field).take(samples) if stored.seeks(field) else images
            paths = _copy_out(images, field, Path(folder)) if peers else [""] * min(samples, len(stored))
        total = _read_once(images, field, len(paths))
        pipeline = _pipeline(images, field, size, batch)
        title = f"stoker, {counted(workers, 'thread')}"
        serial = OwnLoader("stoker, no threads", pipeline, executor="inline")
        parallel = OwnLoader(title, pipeline, threads=workers, ahead=ahead)
        # Where there are seek indices, the same without them too: what they are worth, and what they would be worth elsewhere.
        seeking = stored_in(images).seeks(field) > 0
        without = [OwnLoader(f"{title}, no seek indices", _pipeline(plain, field, size, batch), threads=workers, ahead=ahead)]
        without = without if seeking else []
        others = [PeerLoader(name, peer, paths, size, workers) for name, peer in peers.items()]
        _take_turns([serial, parallel, *without, *others], batch, seconds / _ROUNDS)
    if json:
        print_json(
            {
                "source": source,
                "images": len(paths),
                "image_bytes": total / len(paths),
                "size": size,
                "batch": batch,
                "threads": workers,
                "rounds": _ROUNDS,
                "serial": serial.result(),
                "parallel": parallel.result(),
                "without_seek": {**without[0].result(), **_ratio_json(parallel, without[0])} if without else None,
                "peers": {peer.name: {**peer.result(), **_ratio_json(parallel, peer)} for peer in others},
                "not_installed": {name: peer.install for name, peer in missing.items()},
                "stage_us": serial.costs(),
                "verdict": parallel.why,
            }
        )
        return
    tell(f"{len(paths):,} images of {show_bytes(total / len(paths))} from {source}, read once before", style="bold")
    tell(f"random crops resized to {size} x {size}, batches of {batch}, {_ROUNDS} rounds by turns")
    tell()
    _tell_rates(serial, parallel, without, others)
    _tell_costs(serial)
    for peer in missing.values():
        tell(f"not compared: {peer.title}, which is not installed ({peer.install})", style="dim")


# ---- what is measured -------------------------------------------------------------------------------------------------------


class Contender(ABC):
    """A loader that is measured, round after round."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rates: list[float] = []  # images per second, one per round
        self.failure = ""

    @abstractmethod
    def round(self, batch: int, seconds: float) -> None:
        """Run for some seconds and note the rate."""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else 0.0

    def result(self) -> dict[str, Any]:
        told: dict[str, Any] = {"title": self.title, "images_per_s": self.rate, "rounds": self.rates}
        return {**told, "failure": self.failure} if self.failure else told


class OwnLoader(Contender):
    """Stoker itself, with some arguments for its loader."""

    def __init__(self, title: str, pipeline: Pipeline, **arguments: Any) -> None:
        super().__init__(title)
        self._pipeline, self._arguments = pipeline, arguments
        self._stats: list[Stats] = []
        self.why = ""

    def round(self, batch: int, seconds: float) -> None:
        with self._pipeline.loader(**self._arguments) as loader:
            self.rates.append(_measure(iter(loader), 1, batch, seconds))
            self._stats.append(loader.stats())
            self.why = loader.why(training=False)

    def costs(self) -> dict[str, float]:
        """Microseconds for each image, by step; what is left is the making and handing over of batches."""
        made = sum(stats.samples for stats in self._stats)
        steps = {name: sum(stats.steps_s[name] for stats in self._stats) / made * 1e6 for name in self._stats[0].steps_s}
        spent = sum(stats.elapsed_s for stats in self._stats)
        counted = sum(stats.samples - stats.first_samples for stats in self._stats)
        return {**steps, "batch": max(0.0, spent / max(1, counted) * 1e6 - sum(steps.values()))}


class PeerLoader(Contender):
    """Another loader. When it fails that is told, and the others go on."""

    def __init__(self, name: str, peer: Peer, paths: Sequence[str], size: int, workers: int) -> None:
        super().__init__(f"{peer.title}, {counted(workers, 'worker')}")
        self.name, self._peer, self._paths, self._size, self._workers = name, peer, paths, size, workers

    def round(self, batch: int, seconds: float) -> None:
        if self.failure:
            return
        try:
            with closing(peer_batches(self._peer, self._paths, self._size, batch, self._workers)) as batches:
                # Its workers make whole batches side by side, so these come in bursts of one from each.
                self.rates.append(_measure(batches, self._workers, batch, seconds))
        except Exception as error:  # noqa: BLE001  whatever it raises is its own affair
            self.failure = f"{type(error).__name__}: {str(error).strip().rpartition(chr(10))[2]}"


def _measure(batches: Iterator[Any], burst: int, batch: int, seconds: float) -> float:
    """Images a second, over whole bursts, once the loader runs steadily."""
    _take(batches, burst, _WARM_S)
    count, spent = _take(batches, burst, seconds)
    return count * batch / spent


def _take(batches: Iterator[Any], burst: int, seconds: float) -> tuple[int, float]:
    count, begun = 0, time.monotonic()
    while True:
        for _ in range(burst):
            next(batches)
        count += burst
        spent = time.monotonic() - begun
        if spent >= seconds:
            return count, spent


def _take_turns(contenders: Sequence[Contender], batch: int, seconds: float) -> None:
    with Progress("measuring", _ROUNDS * len(contenders), unit="turns") as shown:
        for turn in range(_ROUNDS):
            for number, contender in enumerate(contenders):
                shown.move(turn * len(contenders) + number, f"round {turn + 1} of {_ROUNDS}: {contender.title}")
                contender.round(batch, seconds)


# ---- the images -------------------------------------------------------------------------------------------------------------


def _spread_paths(source: Source, most: int) -> list[str]:
    """At most so many files, evenly spread over the source."""
    count = min(most, len(source))
    paths = [source.origin(at * len(source) // count) for at in range(count)]
    # A name that is not UTF-8 is told with escapes, and cannot be opened by what is told: such files are not measured.
    return [path for path in paths if "\\" not in path or Path(path).exists()]


def _write_list(path: Path, images: Sequence[str]) -> Path:
    """A list for `stoker.filelist`; the number keeps a name that ends in one whole."""
    path.write_text("".join(f"{image} 0\n" for image in images), encoding="utf-8")
    return path


def picture_field(source: Source) -> str:
    """The field of records that holds pictures, by content, or else by name."""
    samples = spread_samples(source, 8)
    names = [name for sample in samples for name in sample.pictures]
    if not names:
        bad = next((f"; e.g. {sample.problem}" for sample in samples if sample.problem), "")
        raise ConfigError(f"{source.describe()}: none of the fields {', '.join(source.fields)} holds pictures{bad}")
    return max(dict.fromkeys(names), key=names.count)


def _copy_out(images: Pipeline, field: str, folder: Path) -> list[str]:
    """The same pictures as files, for loaders that read such."""
    paths = []
    for number, data in enumerate(data for batch in images.batch(64, drop_last=False) for data in batch[field]):
        path = folder / f"{number:06d}.{picture_kind(data) or 'jpg'}"
        path.write_bytes(data)
        paths.append(str(path))
    return paths


def _read_once(images: Pipeline, field: str, count: int) -> int:
    """Bring all pictures into memory, so that everybody finds the same; returns their bytes."""
    total = done = 0
    with Progress("reading", count, unit="images") as shown:
        for batch in images.batch(64, drop_last=False):
            total += sum(len(data) for data in batch[field])
            done += batch.rows
            shown.move(done)
    return total


def _pipeline(images: Pipeline, field: str, size: int, batch: int) -> Pipeline:
    from stoker.image import HorizontalFlip, RandomResizedCrop

    return images.shuffle(seed=0).repeat().image(field, RandomResizedCrop(size), HorizontalFlip()).batch(batch)


# ---- what is told -----------------------------------------------------------------------------------------------------------


def _tell_rates(serial: Contender, parallel: Contender, without: Sequence[Contender], others: Sequence[Contender]) -> None:
    rows = [
        [serial.title, *_rate_cells(serial), ""],
        [parallel.title, *_rate_cells(parallel), f"{parallel.rate / serial.rate:.2f}x one thread"],
        *([plain.title, *_rate_cells(plain), f"{_told_times(parallel, plain)} with them"] for plain in without),
        *([other.title, *_rate_cells(other), _told_ratio(parallel, other)] for other in others),
    ]
    rates = ("images/s", "slowest, fastest round")
    tell_table(("loader", *rates, ""), rows, right=rates, strong=1)


def _rate_cells(contender: Contender) -> tuple[str, str]:
    if contender.failure:
        return "failed", ""
    return f"{contender.rate:,.0f}", f"{min(contender.rates):,.0f}, {max(contender.rates):,.0f}"


def _ratios(own: Contender, other: Contender) -> list[float]:
    """How many times as fast, within each round."""
    return sorted(mine / theirs for mine, theirs in zip(own.rates, other.rates))


def _told_ratio(own: Contender, other: Contender) -> str:
    return other.failure or f"stoker is {_told_times(own, other)}"


def _told_times(own: Contender, other: Contender) -> str:
    ratios = _ratios(own, other)
    return f"{statistics.median(ratios):.2f}x as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _ratio_json(own: Contender, other: Contender) -> dict[str, Any]:
    ratios = _ratios(own, other)
    if not ratios:
        return {}
    return {"stoker_ratio": statistics.median(ratios), "ratio_least": ratios[0], "ratio_most": ratios[-1]}


def _tell_costs(serial: OwnLoader) -> None:
    from .run import tell_steps

    tell_steps(serial.costs())
    tell("one core, without threads", style="dim")
