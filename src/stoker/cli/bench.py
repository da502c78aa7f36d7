"""`stoker bench`: how fast these samples can be loaded on this machine, in which form, and how fast others do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from ..engine.resources import usable_cores
from ..errors import ConfigError
from ..sizes import counted, show_bytes
from .bench_samples import BenchSamples, Copies, batches_of, choose_samples
from .contenders import (
    ROUNDS,
    Contender,
    FilledCache,
    OwnLoader,
    PeerLoader,
    Strategy,
    ratio_facts,
    ratio_text,
    take_turns,
)
from .peers import Peer, PeerWork, choose_peers
from .run import tell_verdict, verdict_json
from .screen import Ahead, AsJson, amount, bar, check_writable, flag, option, out, print_json, tell, tell_sentence, tell_table
from .sources import SourceName, stored_in

if TYPE_CHECKING:
    from ..observe.stats import Stats, StepStats
    from ..pipeline import Pipeline

#: forms of samples that are measured in addition to their own
STRATEGIES = {
    "files": "image files",
    "tar": "tar shards",
    "seek": "tar shards, seek indices",
    "no_seek": "without seek indices",
    "cache": "cached in memory",
}


def bench(
    source: SourceName,
    size: Annotated[int, amount("Side of the crops, in pixels.")] = 224,
    batch: Annotated[int, amount("Samples in a batch.")] = 256,
    threads: Annotated[
        int | None,
        amount("Worker threads; other loaders get the same number of worker processes.", default="the cores of this machine"),
    ] = None,
    ahead: Ahead = None,
    seconds: Annotated[float, option("S", "Minimum time to measure each loader, in seconds.", min=0.1)] = 5.0,
    samples: Annotated[int, amount("Use at most this many samples, spread over the whole source.")] = 2000,
    strategies: Annotated[
        str,
        option(
            "NAMES",
            "Other forms of the same pictures to measure: `files`, `tar`, `seek` (tar shards with seek indices), `no_seek`, "
            "`cache`; several with commas, all that differ from what the source has, or none.",
        ),
    ] = "all",
    against: Annotated[
        str,
        option(
            "NAMES",
            "Other loaders to compare with: `torch` (its DataLoader, Pillow), `opencv` (the same DataLoader, simplejpeg and "
            "OpenCV), `webdataset` (tar shards, Pillow), `tf` (tf.data); several with commas, all that are installed, or none.",
        ),
    ] = "all",
    compare: Annotated[
        bool,
        flag(
            "Instead, compare a training loop that loads each batch itself with one fed by a loader with default settings: "
            "rates, waits, and both timelines.",
            "--compare",
        ),
    ] = False,
    step: Annotated[
        float | None,
        option(
            "S",
            "With --compare: duration of a training step in seconds, spent waiting as for an accelerator.",
            default="as long as a batch takes in parallel",
            min=0.0,
            max=600.0,
        ),
    ] = None,
    html: Annotated[
        Path | None, option("FILE", "With --compare: write the two timelines as a page.", "--html", default=False)
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure how many samples per second can be loaded, and compare.

    Every loader does the same work: read, decode, random crop resized to --size, flip half of the images, join --batch of them
    as bytes (uint8). Without pictures, records are read and joined. The data are read once in advance, so decoding is measured
    and not the disk. The loaders take turns, five times each; the rate shown is the median, and ratios are computed within each
    turn. Of tar shards, TFRecords and LMDB, the first --samples are read. Other forms of the data (tar shards, seek indices, a
    cache), and the input of other loaders, are copies in a temporary folder, which is removed.

    Example: `stoker bench photos/ --size 224 --threads 8 --against torch`

    Example: `stoker bench photos/ --compare --html compare.html`
    """
    check_writable(html)
    if not compare and (html is not None or step is not None):
        raise ConfigError(f"{'--html' if html else '--step'} needs --compare; add it")
    if compare and (against, strategies) != ("all", "all"):
        raise ConfigError("--compare cannot be combined with --against and --strategies; omit them")
    chosen = _choose_strategies(strategies)
    peers, missing = ({}, {}) if compare else choose_peers(against)
    with TemporaryDirectory(prefix="stoker-bench-") as folder:
        found = choose_samples(source, samples, Path(folder))
        if compare:
            from .compare import compare_loaders

            compare_loaders(found, size, batch, threads, ahead, seconds, step, html, json)
            return
        workers = threads or usable_cores()
        measured = _Bench(found, Copies(found, Path(folder), workers), size, batch, workers, ahead, chosen, peers)
        take_turns(measured.contenders, seconds)
    if json:
        print_json({**measured.facts(), "not_installed": {name: peer.install for name, peer in missing.items()}})
    else:
        measured.tell()
        for peer in missing.values():
            tell_sentence(f"not compared: {peer.title}, which is not installed ({peer.install})", style="dim")


def _choose_strategies(names: str) -> list[str]:
    if names in ("all", "none"):
        return list(STRATEGIES) if names == "all" else []
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in STRATEGIES:
            raise ConfigError(f"--strategies {name}: choose from {', '.join(STRATEGIES)}, all, none")
    return chosen


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What all cores together could do, if each did as much as one does alone."""

    cores: int
    cpu_s: float  # of one core, for a sample

    @property
    def samples_per_s(self) -> float:
        return self.cores / self.cpu_s if self.cpu_s > 0 else 0.0

    def share(self, rate: float) -> float:
        """How much of it so many samples per second are."""
        return rate / self.samples_per_s if self.samples_per_s else 0.0


class _Bench:
    """What is measured, and what came of it."""

    def __init__(
        self,
        found: BenchSamples,
        copies: Copies,
        size: int,
        batch: int,
        workers: int,
        ahead: int | None,
        strategies: Sequence[str],
        peers: dict[str, Peer],
    ) -> None:
        self._found, self._size, self._batch, self._workers = found, size, batch, workers
        pipeline = found.work(size, batch)
        self._serial = OwnLoader("stoker, no threads", pipeline, executor="inline")
        self._parallel = OwnLoader(f"stoker, {counted(workers, 'thread')}", pipeline, threads=workers, ahead=ahead)
        self._strategies: list[Strategy] = []
        self._peers: list[PeerLoader] = []
        self._notes = found.notes()
        if found.field is None:
            if peers:
                self._notes.append("there are no pictures to compare other loaders with")
            peers = {}
        if (peers or strategies) and found.field is not None and (short := copies.room()):
            self._notes.append(f"not measured: other forms and other loaders; {short}")
            strategies, peers = [name for name in strategies if name in ("no_seek", "cache")], {}
        for name in strategies:
            form = self._form(name, copies)
            how: dict[str, Any] = {"threads": workers, "ahead": ahead}
            if form is not None and name == "cache":
                self._strategies.append(FilledCache(name, STRATEGIES[name], form, -(-found.count // batch), **how))
            elif form is not None:
                self._strategies.append(Strategy(name, STRATEGIES[name], form, **how))
        for name, peer in peers.items():
            shards, extension = (copies.shards, copies.field) if peer.reads_shards else ([], "")
            work = PeerWork(copies.paths, shards, extension, size, batch, workers)
            self._peers.append(PeerLoader(name, peer, work))

    def _form(self, name: str, copies: Copies) -> Pipeline | None:
        """A pipeline over the same samples in another form; None where it does not differ, or cannot be."""
        found, size, batch = self._found, self._size, self._batch
        if name == "cache":
            return self._cached()
        if found.field is None:
            return None
        if name == "no_seek":
            return None if found.plain is None else batches_of(found.plain, found.field, size, batch)
        if name == "files":
            return None if found.paths is not None else batches_of(copies.files, "image", size, batch)
        if found.in_tar and not found.remote and (name == "tar" or found.plain is not None):
            return None  # as the source has them
        shards = copies.tar(seek=name == "seek")
        if name == "seek" and not stored_in(shards).seeks(copies.field):
            return None  # no JPEGs
        return batches_of(shards, copies.field, size, batch)

    def _cached(self) -> Pipeline:
        samples, field = self._found.samples, self._found.field
        kept = (samples if field is None else samples.decode(field)).cache("memory")
        return batches_of(kept, field, self._size, self._batch)

    @property
    def contenders(self) -> list[Contender]:
        return [self._serial, self._parallel, *self._strategies, *self._peers]

    @property
    def _ceiling(self) -> Ceiling:
        serial = self._serial.speed  # measured without workers, so the process's time on cores is all there was to do
        return Ceiling(usable_cores(), serial.cpu_s / max(1, serial.samples))

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        found, parallel, ceiling = self._found, self._parallel, self._ceiling
        return {
            "source": found.source,
            "samples": found.count,
            "sample_bytes": found.nbytes / found.count,
            "pictures": found.field,
            "remote": found.remote,
            "size": self._size if found.field else None,
            "batch": self._batch,
            "threads": self._workers,
            "rounds": ROUNDS,
            "serial": self._serial.result(),
            "parallel": parallel.result(),
            "ceiling": {**asdict(ceiling), "samples_per_s": ceiling.samples_per_s, "reached": ceiling.share(parallel.rate)},
            "strategies": {
                each.name: {**each.result(), **ratio_facts("ratio", each, parallel)} for each in self._strategies
            },
            "peers": {peer.name: {**peer.result(), **ratio_facts("stoker_ratio", parallel, peer)} for peer in self._peers},
            "notes": self._notes,
            "steps": {"serial": _step_facts(self._serial.stats), "parallel": _step_facts(parallel.stats)},
            **verdict_json(parallel.why),
        }  # fmt: skip

    def tell(self) -> None:
        """As text."""
        found = self._found
        size = show_bytes(found.nbytes / found.count)
        before = "read over the network each time" if found.remote else "read once in advance"
        tell(f"{counted(found.count, found.thing)} of {size} from {found.source}, {before}", style="bold")
        crops = f"random crops resized to {self._size} x {self._size}, " if found.field else ""
        tell_sentence(f"{crops}batches of {self._batch}; median, slowest and fastest of {ROUNDS} rounds in turn")
        if self._strategies and found.remote:
            tell_sentence("indented: copies on this machine, which are not read over the network")
        tell()
        self._tell_rates()
        tell()
        ceiling = self._ceiling
        most = f"{ceiling.samples_per_s:,.0f} {found.thing}s/s, {counted(ceiling.cores, 'core')}"
        tell_sentence(
            f"ceiling of this machine for this work: {most}, {ceiling.cpu_s * 1e6:,.0f} us each on one core alone; "
            f"{self._parallel.title}: {ceiling.share(self._parallel.rate):.0%} of that"
        )
        tell()
        _tell_steps(self._serial.stats, self._parallel.stats)
        for note in self._notes:
            tell_sentence(note, style="dim")
        for each in self.contenders:
            if each.failure:
                tell_sentence(f"{each.title} failed: {each.failure}", style="dim")
        tell_verdict(self._parallel.why)

    def _tell_rates(self) -> None:
        serial, parallel = self._serial, self._parallel
        rows = [
            [serial.title, *_rate_cells(serial), ""],
            [parallel.title, *_rate_cells(parallel), f"{parallel.rate / serial.rate:.2f}x one thread"],
        ]
        for each in self._strategies:
            rows.append([f"  {each.title}", *_rate_cells(each), ratio_text("", each, parallel)])
        for peer in self._peers:
            rows.append([peer.title, *_rate_cells(peer), ratio_text("stoker ", parallel, peer)])
        rates = (f"{self._found.thing}s/s", "slow, fast")
        tell_table(("loader", *rates, "times as fast"), rows, right=rates, strong=1)


def _rate_cells(contender: Contender) -> tuple[str, str]:
    if contender.failure:
        return "failed", ""
    return f"{contender.rate:,.0f}", f"{min(contender.rates):,.0f}–{max(contender.rates):,.0f}"


# ---- what a sample costs ----------------------------------------------------------------------------------------------------

#: ways to spend the time of a step, with the headings of their columns
_WAYS = {"cpu_s": "on a core", "lock_s": "lock", "queued_s": "no core", "wait_s": "waiting"}


def _step_us(step: StepStats, way: str) -> float:
    return float(getattr(step, way)) / max(1, step.samples) * 1e6


def _step_facts(stats: Stats) -> list[dict[str, Any]]:
    ways = {"wall_s": "us", "cpu_s": "cpu_us", "lock_s": "lock_us", "queued_s": "queued_us", "wait_s": "wait_us"}
    return [
        {"name": step.name, "kind": step.kind, **{name: _step_us(step, way) for way, name in ways.items()}}
        for step in stats.steps
    ]


def _tell_steps(serial: Stats, parallel: Stats) -> None:
    """Steps with their cost for each sample, alone and in parallel, and where the time of the latter goes."""
    alone = {step.name: _step_us(step, "wall_s") for step in serial.steps}
    total = sum(_step_us(step, "wall_s") for step in parallel.steps) or 1.0
    rows = []
    for step in parallel.steps:
        spent = _step_us(step, "wall_s")
        cells = [step.name, f"{alone.get(step.name, 0.0):,.1f}", f"{spent:,.1f}"]
        rows.append(
            [*cells, *(f"{_step_us(step, way):,.1f}" for way in _WAYS), bar(spent / total, 16 if out().width >= 100 else 4)]
        )
    columns = ("alone", "in parallel", *_WAYS.values())
    tell_table(("step, us per sample", *columns, ""), rows, right=columns)
