"""`stoker map`: a Python function over every sample of many shards, in processes, one shard at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.executor import Outcome, in_words
from ..engine.single_tasks import run_tasks
from ..errors import ConfigError, StokerError, message_of
from ..sizes import counted
from ..source.paths import printable
from ..source.shards.shard_source import expand
from ..source.sniff import TAR_ENDINGS
from ..storage.atomic import sweep
from .cluster_workers import On, RayAddress, Workers, check_on, check_seen, map_workers
from .guard import DATA
from .map_worker import Job, ShardMapper, load_function
from .progress import PipeProgress, Progress
from .screen import AsJson, amount, argument, check_writable, flag, option, print_json, tell
from .tar.inputs import told

#: seconds that a worker has at least for what comes before the first sample: importing the user's modules, opening the shard
_BEGIN_S = 600.0
_WILD, _WILD_ENDS = "*?[{", "*?]}"


def map_(
    function: Annotated[str, argument("MODULE:FUNCTION", "`my_module:resize` or `path/to/file.py:resize`.")],
    shards: Annotated[str, argument("IN", "Input shards, such as `in-{0000..0999}.tar`; also URLs and globs.")],
    outputs: Annotated[str, argument("OUT", "Output shards, such as `out-{}.tar`.")],
    jobs: Annotated[
        int | None, amount("Shards processed in parallel.", "-j", "--jobs", default="the cores of this machine")
    ] = None,
    on: On = "local",
    ray_address: RayAddress = None,
    decode: Annotated[bool, flag("Decode fields by their extension (cls, json, txt, npy).", "--decode")] = False,
    timeout: Annotated[float, option("S", "Maximum time for a sample, in seconds.", min=0.1)] = 3600.0,
    overwrite: Annotated[
        bool, flag("Replace outputs that were made from another input or by other code.", "--overwrite")
    ] = False,
    force: Annotated[bool, flag("Make all outputs again.", "--force")] = False,
    progress: PipeProgress = None,
    json: AsJson = False,
) -> None:
    """Apply a Python function to every sample of many shards.

    The function gets a sample as a dict, with the bytes of each field and the key as `__key__`. It returns the new sample, None
    to drop it, or several samples as a list or a generator. Without a `__key__` the new sample keeps the old key. Values are
    bytes, or what the field's extension requires, such as a number for `cls`.

    `{}` in OUT is the part that the braces or stars of IN matched, so `out-0007.tar` is made from `in-0007.tar`. Each output
    appears complete, with its index, or not at all. The index records the input and the code that made it: when you run the
    command again, it makes only what is missing; outputs made from another input or by other code are kept, unless `--overwrite`.
    A shard that fails is reported with the sample's key and the line of your function, the others continue, and the exit status
    is 1.

    With `--on ray`, actors on all nodes of a Ray cluster do the work. They must find the shards, the module and OUT under the
    same names as this machine.

    Example: `stoker map resize.py:small 'photos-{0000..0147}.tar' 'small-{}.tar' -j 8`
    """
    on_ray = check_on(on, ray_address)
    _, code = load_function(function)  # what is wrong with it is reported once, before anything starts
    pairs = pair_up(shards, outputs)
    folders = {Path(output).absolute().parent: output for _, output in pairs}
    for output in folders.values():  # one in each folder
        check_writable(Path(output))
    result = MapResult(shards=len(pairs))
    work = ShardMapper(Job(function, code, decode, overwrite, force))
    try:
        with (
            Progress("map", shown=progress, stays=True) as meter,
            map_workers(on_ray, jobs, len(pairs), ray_address) as executor,
        ):
            for outcome, causes in run_tasks(executor, work, pairs, lambda: look(executor, timeout, result, meter)):
                if on_ray and outcome.result is not None:
                    check_seen(outcome.task.content[1])
                result.add(outcome, causes)
    finally:
        for folder in folders:
            sweep(os.fsencode(folder), 0)  # what a worker that had to be killed left
    for text in sorted(result.failures):
        typer.echo(text, err=True)
    if json:
        print_json(result.facts())
    else:
        tell(result.text())
    if result.failures:
        raise typer.Exit(DATA)


def look(executor: Workers, timeout: float, result: MapResult, meter: Progress) -> None:
    """Show how far it is, and end workers that do not get on."""
    samples = nbytes = 0
    for task, noted in executor.notes():
        samples, nbytes = samples + noted.samples, nbytes + noted.nbytes
        if time.monotonic() - noted.since_s > (timeout if noted.at else max(timeout, _BEGIN_S)):
            executor.replace(task, f"finished no sample for {timeout:g} s (--timeout), and was ended")
    result.show(meter, samples, nbytes)


@dataclass(slots=True)
class MapResult:
    """What came of all shards."""

    shards: int = 0
    made: int = 0
    kept: int = 0
    samples: int = 0
    written: int = 0
    dropped: int = 0
    bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome[tuple[str, str], dict[str, Any]], causes: Sequence[str]) -> None:
        """Record the outcome of one shard; `causes` say how its workers ended, if it is given up because of that."""
        name = told(outcome.task.content[0])
        if causes:
            at = f"at the sample {printable(outcome.noted)} " if outcome.noted else ""
            self.failures.append(f"{name}: {at}the process that worked on it {in_words(causes)}; the shard was given up")
        elif outcome.fault is not None:
            self.failures.append(_text_of(outcome.fault.error(), name))
        elif (made := outcome.result) is not None:
            self.kept += made["kept"]
            self.made += not made["kept"]
            for count in ("samples", "written", "dropped", "bytes"):
                setattr(self, count, getattr(self, count) + made[count])

    def show(self, meter: Progress, samples: int, nbytes: int) -> None:
        """Show how far it is, with so much of the shards under way."""
        failed = f" ({len(self.failures):,} failed)" if self.failures else ""
        meter.note = f"{self.made + self.kept + len(self.failures):,} of {counted(self.shards, 'shard')}{failed}"
        meter.samples, meter.bytes = self.samples + samples, self.bytes + nbytes
        meter.draw()

    def facts(self) -> dict[str, Any]:
        names = ("shards", "made", "kept", "samples", "written", "dropped")
        return {**{name: getattr(self, name) for name in names}, "failures": sorted(self.failures)}

    def text(self) -> str:
        kept = f", {self.kept:,} made before" if self.kept else ""
        dropped = f", {self.dropped:,} omitted" if self.dropped else ""
        failed = f"; {counted(len(self.failures), 'shard')} failed" if self.failures else ""
        samples = f"{counted(self.samples, 'sample')} in, {self.written:,} out{dropped}"
        return f"{self.made:,} of {counted(self.shards, 'shard')} made{kept}: {samples}{failed}"


def _text_of(error: BaseException, name: str) -> str:
    """What an error says, with the name of the shard."""
    known = isinstance(error, (StokerError, OSError))
    text = ("" if known else f"{type(error).__name__}: ") + message_of(error, 4000)
    return text if name in text else f"{name}: {text}"


def pair_up(shards: str, outputs: str) -> list[tuple[str, str]]:
    """Inputs and the outputs that belong to them."""
    names = expand(shards, "map", TAR_ENDINGS)
    if "-" in names:
        raise ConfigError("map reads shards, not standard input; `stoker tar proc` works on a pipe")
    if outputs.count("{}") > 1 or ("{}" not in outputs and len(names) > 1):
        raise ConfigError(f"{outputs}: must contain {{}} exactly once, where the outputs' names differ, as in out-{{}}.tar")
    made = [outputs.replace("{}", part) for part in _varied(shards, names)] if "{}" in outputs else [outputs]
    if "://" in outputs or not outputs.endswith(".tar"):
        raise ConfigError(f"{outputs}: outputs must be local files whose names end in .tar; copy them elsewhere afterwards")
    inputs = {os.path.realpath(name) for name in names}
    for name in made:
        if os.path.realpath(name) in inputs:
            raise ConfigError(f"{name} is an input and an output; use other names for the outputs")
    if len(set(made)) < len(made):
        raise ConfigError(f"{outputs}: several inputs would have the same output; they appear twice in {shards}")
    return list(zip(names, made))


def _varied(spec: str, names: list[str]) -> list[str]:
    """What of each name the spec left open: from its first brace or star to its last."""
    first = next((at for at, letter in enumerate(spec) if letter in _WILD), None)
    if first is None or names == [spec]:
        raise ConfigError(
            f"{spec}: has no braces or stars to replace {{}} by; use both, as in in-{{0000..0999}}.tar out-{{}}.tar"
        )
    last = max(at for at, letter in enumerate(spec) if letter in _WILD_ENDS)
    before, behind = spec[:first], spec[last + 1 :]
    parts = []
    for name in names:
        if not name.startswith(before) or not name.endswith(behind):
            raise ConfigError(f"{name}: does not begin with {before!r} and end with {behind!r}, so nothing can replace {{}}")
        part = name[len(before) : len(name) - len(behind)]
        if "/" in part:
            raise ConfigError(f"{name}: {{}} would be {part!r}, which leads to another folder; map one folder at a time")
        parts.append(part)
    return parts
