"""How long does a JPEG take to become a training crop, on one core?

Files in memory -> RandomResizedCrop(224) -> uint8 pixels, in one thread on one CPU: Stoker's own decoder, with and without a seek
index and at each SIMD level; Stoker with libjpeg-turbo; and other libraries. All get the same rectangles. They take turns of 16
images, so that whatever slows the machine down slows all of them; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import data
import pixels
from measure import SEED, BenchmarkParser, available, median, note, ratio, report
from peers import one_image
from peers.one_image import Box, Cut
from stoker.image import RandomResizedCrop
from stoker.image.lower import lower
from stoker.kernel import native
from stoker.kernel.native import DecoderKind, SeekUse
from stoker.kernel.render import SpanInput, render

SIDE = 224
OPS = (RandomResizedCrop(SIDE),)
#: images in one call of the kernel, which makes the calls' own cost vanish
CHUNK = 16
LEVELS = {"avx512": 2, "avx2": 1, "scalar": 0}
PEERS: dict[str, tuple[Callable[[], Cut], tuple[str, ...]]] = {
    "simplejpeg-opencv": (one_image.simplejpeg_opencv, ("simplejpeg", "cv2")),
    "pillow": (one_image.pillow, ("PIL",)),
    "torchvision": (one_image.torchvision, ("torchvision",)),
}
#: how many times as fast the decoder is to be as simplejpeg with OpenCV, and as libjpeg-turbo in its place
ASKED = {
    "own avx512": (2.6, 1.8),
    "own avx2": (1.9, 1.35),
    "indexed avx512": (3.3, 2.3),
    "indexed avx2": (2.4, 1.7),
}
#: how far its pixels may be from Pillow's on average, of 255, when nothing is shrunk while decoding
ASKED_DIFFERENCE = 0.7


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=9)
    parser.epilog = "A round is one crop of each image by each contestant; every round has other crops."
    data.add_arguments(parser)
    parser.add_argument("--scalar", action="store_true", help="also without SIMD")
    parser.add_argument("--cpu", type=int, help="the CPU to stay on (default: the last usable one)")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: count the thread's own time, for a machine that others use too (wall)",
    )
    chosen = "simplejpeg-opencv"
    parser.add_argument("--peers", default=chosen, help=f"which of {', '.join(PEERS)} to run, or 'none' ({chosen})")
    return parser.parse_args()


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.thread_time}


# ---- what is decoded ---------------------------------------------------------------------------------------------------


class Pictures(NamedTuple):
    """JPEG files in memory: each a string of its own, and all in one run of bytes."""

    paths: list[str]
    files: list[bytes]
    spans: native.Spans

    @classmethod
    def read(cls, paths: list[str]) -> Pictures:
        """Read them all."""
        files = [Path(path).read_bytes() for path in paths]
        return cls(paths, files, spans_of(files))

    def only(self, wanted: NDArray[np.bool_]) -> Pictures:
        """Those that are wanted."""
        return Pictures.read([path for path, want in zip(self.paths, wanted) if want])


def spans_of(strings: list[bytes]) -> native.Spans:
    """Strings one behind the other."""
    lengths = np.array([len(string) for string in strings], np.int64)
    return native.Spans(np.frombuffer(b"".join(strings) or b"\0", np.uint8), np.cumsum(lengths) - lengths, lengths)


def rectangles(program: native.Program, pictures: Pictures, epoch: int) -> list[Box]:
    """The crops that the kernel will draw in an epoch, for those who cannot draw them."""
    headers = [native.jpeg_header(encoded) for encoded in pictures.files]
    widths = np.array([header.width for header in headers], np.int32)
    heights = np.array([header.height for header in headers], np.int32)
    positions = np.arange(len(headers))
    rows = native.plan(program, widths, heights, None, np.full(len(headers), epoch, np.uint32), positions)
    return [tuple(round(edge) for edge in view) for view in rows["view"].tolist()]


# ---- who decodes it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ours:
    """The kernel, with one decoder at one SIMD level."""

    program: native.Program
    level: int
    decoder: native.Decoder
    out: NDArray[np.uint8]
    pictures: Pictures
    seeks: native.Spans | None = None

    def prepare(self) -> None:
        """Choose the SIMD level."""
        native.simd(self.level)

    def run(self, chunk: slice, epoch: int) -> NDArray[np.void]:
        """Decode some pictures with the crops of an epoch; what became of each."""
        encoded, starts, lengths = self.pictures.spans
        starts, lengths = starts[chunk], lengths[chunk]
        count = len(starts)
        seeks = self.seeks and native.Spans(self.seeks.data, self.seeks.starts[chunk], self.seeks.lengths[chunk])
        images = SpanInput().tell(native.Spans(encoded, starts, lengths), seeks)
        positions = np.arange(chunk.start, chunk.start + count)
        return render(self.decoder, self.program, images, epoch, positions, self.out[:count])

    def obeyed(self, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        """Whether each picture was decoded by the one who was told to."""
        return (rows["decoder"] == DecoderKind.OWN) == (self.program.decoder == DecoderKind.OWN)

    def check(self, rows: NDArray[np.void]) -> None:
        """Raise unless every picture was decoded, by the one who was told to, and with the index where there is one."""
        if rows["status"].any() or not self.obeyed(rows).all():
            raise RuntimeError(f"not decoded by {self.program.decoder!r}: {rows['message'][rows['status'] != 0]}")
        if self.seeks is not None and (rows["seek"] != SeekUse.USED).any():
            raise RuntimeError("the kernel did not use a seek index that it made itself")


@dataclass(frozen=True, slots=True)
class Theirs:
    """A function of one picture and one rectangle."""

    cut: Cut
    pictures: Pictures
    crops: list[list[Box]]  # by epoch

    def prepare(self) -> None:
        """Nothing is to be prepared."""

    def run(self, chunk: slice, epoch: int) -> None:
        """Decode some pictures, one by one."""
        for encoded, box in zip(self.pictures.files[chunk], self.crops[epoch][chunk]):
            self.cut(encoded, box)

    def check(self, _: None) -> None:
        """They raise where they fail."""


def decodable(contestant: Ours) -> NDArray[np.bool_]:
    """Which of its pictures a contestant can decode, and does."""
    contestant.prepare()
    rows = np.concatenate([contestant.run(chunk, 0) for chunk in chunks_of(len(contestant.pictures.files))])
    return (rows["status"] == 0) & contestant.obeyed(rows)


def chunks_of(count: int) -> list[slice]:
    """Turns."""
    return [slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]


def levels(options: argparse.Namespace) -> dict[str, int]:
    """The SIMD levels that this CPU has and that are wanted."""
    wanted = {name: level for name, level in LEVELS.items() if level or options.scalar}
    usable = {name: level for name, level in wanted.items() if native.simd(level) == level}
    for name in wanted.keys() - usable.keys():
        note(f"{name}: left out, this CPU or this build does not have it")
    return usable


class Field:
    """All who take part, and the pictures that all of them can decode."""

    def __init__(self, options: argparse.Namespace, pictures: Pictures, decoder: native.Decoder) -> None:
        self.missing: dict[str, str] = {}
        self._decoder, self._out = decoder, np.empty((CHUNK, SIDE, SIDE, 3), np.uint8)
        self._base = lower(OPS, seed=SEED)
        self._levels = levels(options)
        kinds = self._choose(pictures)
        seeks = self._index() if "own" in kinds else None
        self.index_percent = None if seeks is None else 100 * seeks.data.size / self.pictures.spans.data.size
        self.contestants: dict[str, Ours | Theirs] = dict(self._theirs(options))
        for name, level in self._levels.items():
            for kind, program in kinds.items():
                self.contestants[f"{kind} {name}"] = self._ours(program, level)
            if seeks is not None:
                self.contestants[f"indexed {name}"] = replace(self._ours(kinds["own"], level), seeks=seeks)

    def _choose(self, pictures: Pictures) -> dict[str, native.Program]:
        """The decoders of this build, as programs; sets `pictures` to those that all of them take."""
        self.pictures = pictures
        kinds: dict[str, native.Program] = {}
        taken = np.ones(len(pictures.files), np.bool_)
        for name, kind in {"turbo": DecoderKind.TURBO, "own": DecoderKind.OWN}.items():
            program = replace(self._base, decoder=kind)
            able = decodable(self._ours(program, max(self._levels.values(), default=-1)))
            if able.any():
                kinds[name], taken = program, taken & able
            else:
                self.missing[name] = "decodes none of these pictures: not in this build"
                note(f"{name}: left out, it {self.missing[name]}")
        self.pictures = pictures.only(taken)
        self.left_out = int((~taken).sum())
        return kinds

    def _ours(self, program: native.Program, level: int) -> Ours:
        return Ours(program, level, self._decoder, self._out, self.pictures)

    def _index(self) -> native.Spans:
        program = replace(self._base, decoder=DecoderKind.OWN)
        made = [self._decoder.seek_index(program, encoded) for encoded in self.pictures.files]
        if any(row["status"] for _, row in made):
            raise RuntimeError("a picture that the decoder takes got no seek index")
        return spans_of([index for index, _ in made])

    def _theirs(self, options: argparse.Namespace) -> Iterator[tuple[str, Theirs]]:
        names = [name for name in options.peers.split(",") if name != "none"]
        crops = [rectangles(self._base, self.pictures, epoch) for epoch in range(options.rounds + 1)] if names else []
        for name in names:
            make, needs = PEERS[name]
            if available(name, needs):
                yield name, Theirs(make(), self.pictures, crops)
            else:
                self.missing[name] = f"{' and '.join(needs)} cannot be imported"

    def same_pixels(self) -> bool | None:
        """Whether the own decoder makes the same pixels at every level, with and without an index; None where it is missing."""
        found = set()
        for name, contestant in self.contestants.items():
            if isinstance(contestant, Ours) and not name.startswith("turbo"):
                contestant.prepare()
                digest = 0
                for chunk in chunks_of(len(self.pictures.files)):
                    count = len(contestant.run(chunk, 0))
                    digest = hash((digest, self._out[:count].tobytes()))
                found.add(digest)
        return len(found) == 1 if found else None


# ---- measuring ---------------------------------------------------------------------------------------------------------


def measure(contestants: dict[str, Ours | Theirs], count: int, rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Images/s of each in each round. Round 0 is a warm-up and does not count."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        spent = dict.fromkeys(contestants, 0.0)
        for turn, chunk in enumerate(chunks_of(count)):
            for name in list(contestants)[:: -1 if turn % 2 else 1]:
                spent[name] += one_turn(contestants[name], chunk, number, clock)
        for name, seconds in spent.items():
            note(f"round {number}/{rounds}  {name:24} {1e6 * seconds / count:9,.0f} us")
            if number:
                rates[name].append(count / seconds)
    return rates


def one_turn(contestant: Any, chunk: slice, epoch: int, clock: Callable[[], float]) -> float:
    """The seconds that some pictures took."""
    contestant.prepare()
    start = clock()
    result = contestant.run(chunk, epoch)
    seconds = clock() - start
    contestant.check(result)
    return seconds


def over(rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """How many times as fast the own decoder is as everybody else; as libjpeg-turbo at its own SIMD level."""
    found = {}
    for name in rates:
        kind, _, level = name.partition(" ")
        if kind in ("own", "indexed"):
            others = [peer for peer in PEERS if peer in rates] + [peer for peer in (f"turbo {level}",) if peer in rates]
            found[name] = {other: ratio(rates[name], rates[other]) for other in others}
    return found


def targets(ratios: dict[str, dict[str, float]], difference: float | None) -> dict[str, tuple[float, float, bool]]:
    """What was asked for and could be measured: (got, asked, met)."""
    found = {}
    for name, asked in ASKED.items():
        for other, least in zip(("simplejpeg-opencv", f"turbo {name.split()[1]}"), asked):
            got = ratios.get(name, {}).get(other)
            if got is not None:
                found[f"{name} over {other}"] = (got, least, got >= least)
    if difference is not None:
        found["difference from Pillow, exact"] = (difference, ASKED_DIFFERENCE, difference < ASKED_DIFFERENCE)
    return found


def difference(field: Field) -> float | None:
    """How far the own decoder's pixels are from Pillow's, on average, when it may not shrink while decoding."""
    if "own" in field.missing or not available("difference from Pillow", ("PIL",)):
        return None
    native.simd(-1)
    program = lower(OPS, seed=SEED, fast=False)
    program = replace(program, decoder=DecoderKind.OWN)
    found = []
    with native.Decoder() as decoder:
        for position, (path, encoded) in enumerate(zip(field.pictures.paths, field.pictures.files)):
            mine, row = pixels.ours(program, decoder, encoded, 0, position)
            found.append(pixels.difference(mine, pixels.pillows(path, row)))
    return float(np.mean(found))


def stay_on(cpu: int | None) -> int | None:
    """Stay on one CPU; returns which, or None where that cannot be chosen."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = max(os.sched_getaffinity(0)) if cpu is None else cpu
    os.sched_setaffinity(0, {chosen})
    return chosen


def main() -> None:
    options = parse()
    pictures = Pictures.read(data.paths_of(data.images_of(options)))
    cpu = stay_on(options.cpu)
    with native.Decoder() as decoder:
        field = Field(options, pictures, decoder)
        count = len(field.pictures.files)
        note(f"{count} pictures, {field.left_out} left out, on CPU {cpu}")
        same = field.same_pixels()
        rates = measure(field.contestants, count, options.rounds, CLOCKS[options.clock])
    ratios, apart = over(rates), difference(field)
    report(
        "jpeg_kernel",
        options,
        images=count,
        left_out=field.left_out,
        missing=field.missing,
        image_kb=field.pictures.spans.data.size / count / 1000,
        clock=options.clock,
        us_per_image={name: 1e6 / median(found) for name, found in rates.items()},
        own_over=ratios,
        targets=targets(ratios, apart),
        index_percent=field.index_percent,
        difference_of_255=apart,
        same_pixels=same,
        runs={name: [1e6 / rate for rate in found] for name, found in rates.items()},
    )


if __name__ == "__main__":
    main()
