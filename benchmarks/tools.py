"""How fast are the shard commands, and how much memory do they take?

`stoker pack` of photographs, listed repeatedly up to 20,000, and each tool for tar shards on the result: the real commands, each
in its own process, including the start of Python. Archives go to `/dev/null`, unless a command makes files; those are flushed to
the disk, as users get them. Compared with `cat` and GNU tar, where they do something similar.

Every command also runs on a quarter of the data: if memory does not grow, `peak_over_quarter` is about 1. And those that can
resume are killed when half of their files exist, and started again: `same` says whether the result is that of an unbroken run,
byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data
from measure import BenchmarkParser, PeakMemory, median, note, report, usable_cores

STOKER = (sys.executable, "-m", "stoker.cli.main")
#: samples that a shell command is run on: starting a shell is most of the work
FEW = 400
FUNCTION = "def same(sample):\n    return sample\n"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a command works on."""

    samples: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """A command; `makes` is the folder its files go to, emptied before it runs."""

    command: Sequence[str]
    sizes: Sizes
    makes: Path | None = None


@dataclass(slots=True)
class Run:
    """What came of a command."""

    seconds: float
    peak: int | None  # PSS of all its processes together; None where psutil is missing, or it ended before the first look


class Failed(Exception):
    """A command did not do its work."""


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    data.add_arguments(parser)
    parser.amount("--samples", 20_000, 64, "images, repeated from those there are")
    parser.amount("--shards", 20, 4, "shards to pack them into")
    parser.add_argument("--only", help="which commands, by name (default: all)")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where files are written for the time being (default: $TMPDIR)"
    )
    return parser.parse_args()


# ---- running -----------------------------------------------------------------------------------------------------------------


def start(job: Job, log: Path) -> subprocess.Popen[bytes]:
    """Start a command, alone in its process group, at an empty folder of its own."""
    if job.makes is not None:
        shutil.rmtree(job.makes, ignore_errors=True)
        job.makes.mkdir()
    return spawn(job, log)


def spawn(job: Job, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors:
        return subprocess.Popen(
            job.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )


def run(job: Job, log: Path) -> Run:
    """Run a command to its end."""
    begun = time.perf_counter()
    process = start(job, log)
    with PeakMemory(process.pid) as memory:
        process.wait()
        seconds = time.perf_counter() - begun
    if process.returncode:
        raise Failed(f"exit status {process.returncode}: {log.read_text(errors='replace').strip()[-2000:]}")
    return Run(seconds, memory.peak or None)


def broken_off(job: Job, usual_s: float, log: Path) -> dict[str, Any]:
    """Kill a command when half of its files are there, start it again, and compare what it made with that of an unbroken run."""
    assert job.makes is not None
    run(job, log)
    whole = digests(job.makes)
    begun = time.perf_counter()
    process = start(job, log)
    while (killed_s := time.perf_counter() - begun) < 5 * usual_s and len(_shards(job.makes)) < len(whole) // 2:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    left = len(_shards(job.makes))
    begun = time.perf_counter()
    process = spawn(job, log)
    process.wait()
    return {
        "killed_after_s": killed_s,
        "files_then": left,
        "files": len(whole),
        "rest_s": time.perf_counter() - begun,
        "same": process.returncode == 0 and digests(job.makes) == whole,
    }


def digests(folder: Path) -> dict[str, str]:
    """The shards of a folder. Their indexes are left out: they hold the time at which a shard was written."""
    found = {}
    for path in _shards(folder):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        found[path.name] = digest.hexdigest()
    return found


def _shards(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.tar") if not path.name.startswith("."))


# ---- the commands ------------------------------------------------------------------------------------------------------------


class Ground:
    """Where the commands work: a list of pictures and a plan, the shards packed from them, a few samples, a function."""

    def __init__(self, folder: Path, paths: list[str], samples: int, shards: int) -> None:
        self.folder, self.samples = folder, samples
        self.each = -(-samples // shards)
        self._sizes = [Path(path).stat().st_size for path in paths]
        self._paths = paths
        self.few = min(FEW, samples // 4)
        (folder / "function.py").write_text(FUNCTION)
        for name, count in (("quarter", samples // 4), ("all", samples)):
            listed = [paths[number % len(paths)] for number in range(count)]
            (folder / f"{name}.txt").write_text("".join(f"{path}\n" for path in listed))
            (folder / f"{name}.tsv").write_text("".join(f"{number:06}\tjpg\t@{path}\n" for number, path in enumerate(listed)))

    def sizes(self, count: int) -> Sizes:
        whole, rest = divmod(count, len(self._sizes))
        return Sizes(count, whole * sum(self._sizes) + sum(self._sizes[:rest]))

    def pack(self, part: str) -> Job:
        """The first command; the others work on what it made."""
        makes = self.folder / f"packed-{part}"
        command = (*STOKER, "pack", f"{part}.txt", f"packed-{part}/{{:06d}}.tar", "--max-samples", str(self.each))
        return self._job(command, self._count(part), makes)

    def prepare(self) -> None:
        """What the other commands need beside the packed shards."""
        first = str(self.shards("all")[0])
        command = (*STOKER, "tar", "cat", first, "-c", str(self.few), "-o", str(self.folder / "few.tar"), "--no-progress")
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def shards(self, part: str) -> list[Path]:
        return sorted((self.folder / f"packed-{part}").glob("*.tar"))

    def jobs(self, part: str) -> dict[str, Job]:
        """Everything but `pack`, by name."""
        shards = [str(path) for path in self.shards(part)]
        count = self._count(part)
        made = self.folder / "made"
        last = self._last_key(shards[-1])
        listed, every = f"{part}.txt", " ".join(map(shlex.quote, shards))
        few = self.few if part == "all" else self.few // 4

        def tar(*words: str) -> Job:
            return self._job((*STOKER, "tar", *words), count)

        return {
            "index": self._job((*STOKER, "index", "--force", *shards), count),
            "verify": self._job((*STOKER, "verify", f"packed-{part}"), count),
            "tar cat": tar("cat", *shards),
            "tar cat --shuffle 1000": tar("cat", *shards, "--shuffle", "1000"),
            "tar pcat": tar("pcat", *shards, "-j", "4"),
            "tar create": tar("create", f"{part}.tsv"),
            "tar first": tar("first", *shards, "--key", last),
            "tar show": tar("show", *shards, "-n", "0", "--json"),
            "tar sort": tar("sort", *shards, "--reverse"),
            "tar split": self._job((*STOKER, "tar", "split", *shards, "-n", str(self.each), "-o", "made/split"), count, made),
            "tar tsv": tar("tsv", *shards, "-f", "key,cls"),
            "tar proc": self._job(("sh", "-c", _piped(few, "-p", str(usable_cores()), "-c", "true")), few),
            "map": self._job((*STOKER, "map", "function.py:same", f"packed-{part}/*.tar", "made/{}.tar"), count, made),
            "cat, for comparison": self._job(("sh", "-c", f"cat {every} | cat > /dev/null"), count),
            "GNU tar -c of the files, for comparison": self._job(
                ("sh", "-c", f"tar --hard-dereference -cf - -T {listed} | cat > /dev/null"), count
            ),
            "GNU tar -t, for comparison": self._job(("sh", "-c", f"for f in {every}; do tar -tf $f; done > /dev/null"), count),
        }

    def _last_key(self, shard: str) -> str:
        import tarfile

        with tarfile.open(shard) as file:
            return file.getnames()[-1].rpartition(".")[0]

    def _count(self, part: str) -> int:
        return self.samples if part == "all" else self.samples // 4

    def _job(self, command: Sequence[str], count: int, makes: Path | None = None) -> Job:
        return Job(("env", f"--chdir={self.folder}", *command), self.sizes(count), makes)


def _piped(count: int, *words: str) -> str:
    """`tar proc` on the first samples, as it is used: in a pipe."""
    stoker = shlex.join(STOKER)
    return f"{stoker} tar cat few.tar -c {count} | {stoker} tar proc {shlex.join(words)} > /dev/null"


# ---- the benchmark -----------------------------------------------------------------------------------------------------------


class Table:
    """The runs of every command, and why some have none."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.runs: dict[str, list[Run]] = {}
        self.quarters: dict[str, Run] = {}
        self.sizes: dict[str, Sizes] = {}
        self.missing: dict[str, str] = {}

    def measure(self, name: str, job: Job, keep: Callable[[str, Run], None]) -> None:
        if name in self.missing:
            return
        try:
            done = run(job, self._log)
        except Failed as error:
            self.missing[name] = str(error)
            note(f"{name}: left out: {error}")
            return
        keep(name, done)
        rate = job.sizes.samples / done.seconds
        note(f"{name:40} {job.sizes.samples:7,} samples {rate:10,.0f}/s {(done.peak or 0) / 1e6:8,.0f} MB")

    def full(self, name: str, job: Job) -> None:
        self.sizes[name] = job.sizes
        self.measure(name, job, lambda name, done: self.runs.setdefault(name, []).append(done))

    def quarter(self, name: str, job: Job) -> None:
        self.measure(name, job, self.quarters.__setitem__)

    def figures(self) -> dict[str, Any]:
        return {name: self._row(name, runs) for name, runs in self.runs.items()}

    def _row(self, name: str, runs: list[Run]) -> dict[str, Any]:
        seconds, sizes = median(run.seconds for run in runs), self.sizes[name]
        peak, quarter = max(run.peak or 0 for run in runs), self.quarters.get(name)
        return {
            "samples_per_s": sizes.samples / seconds,
            "gb_per_s": sizes.bytes / seconds / 1e9,
            "seconds": [run.seconds for run in runs],
            "peak_mb": peak / 1e6 or None,
            "peak_over_quarter": peak / quarter.peak if peak and quarter is not None and quarter.peak else None,
        }


def measure(ground: Ground, table: Table, options: argparse.Namespace) -> None:
    chosen = options.only.split(",") if options.only else None
    for part in ("quarter", "all"):
        (table.full if part == "all" else table.quarter)("pack", ground.pack(part))
    if "pack" in table.missing:
        raise SystemExit("without `stoker pack` there is nothing for the others to work on")
    ground.prepare()
    quarter, full = ground.jobs("quarter"), ground.jobs("all")
    names = [name for name in full if chosen is None or name in chosen]
    for name in names:
        table.quarter(name, quarter[name])
    for number in range(options.rounds):
        note(f"round {number + 1}/{options.rounds}")
        for name in names[:: -1 if number % 2 else 1]:
            table.full(name, full[name])


def restarts(ground: Ground, table: Table, log: Path) -> dict[str, Any]:
    """`pack`, `split` and `map`, killed half way."""
    found = {}
    jobs = {"pack": ground.pack("all"), **{name: ground.jobs("all")[name] for name in ("tar split", "map")}}
    for name, job in jobs.items():
        if name in table.runs:
            found[name] = broken_off(job, median(run.seconds for run in table.runs[name]), log)
            note(f"{name}: {found[name]}")
    return found


def main() -> None:
    options = parse()
    paths = data.paths_of(data.images_of(options))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        ground = Ground(folder, paths, options.samples, options.shards)
        table = Table(folder / "log.txt")
        measure(ground, table, options)
        again = restarts(ground, table, folder / "log.txt")
        sizes = ground.sizes(options.samples)
    report(
        "tools",
        options,
        samples=sizes.samples,
        megabytes=sizes.bytes / 1e6,
        shards=options.shards,
        commands=table.figures(),
        missing=table.missing,
        killed_and_restarted=again,
    )


if __name__ == "__main__":
    main()
