"""`stoker verify`: every sample read and checked, the bad ones listed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import numpy as np
import typer

from ..errors import ConfigError, SourceEmpty
from ..pack.jobs.shard_checks import Problem
from ..pack.jobs.verification import Findings, Verifier, lacking, repeated
from ..sizes import counted, show_bytes
from ..source.shards.sidecar import sidecar_trouble
from ..source.streams.tar_stream import standard_input
from ..storage.open import open_blob
from .guard import DATA
from .progress import Progress, ShowProgress
from .screen import AsJson, Jobs, amount, flag, option, print_json, tell
from .sources import Found, SourceName, find_source, local_bytes, open_source, stored_in
from .verify_replay import replay_file

#: problems, and keys that are there twice, named in the text
_NAMED = 20


def verify(
    source: SourceName,
    decode: Annotated[bool, flag("Also decode every picture.", "--decode")] = False,
    replay: Annotated[
        str | None,
        option(
            "FILE",
            "Check only the samples that a quarantine file of `on_error` lists; SOURCE may then be MODULE:PIPELINE.",
            default=False,
        ),
    ] = None,
    line: Annotated[int | None, amount("With --replay: only line N of the file.", default=False)] = None,
    key: Annotated[str | None, option("KEY", "With --replay: only the sample with this key.", default=False)] = None,
    jobs: Jobs = None,
    progress: ShowProgress = None,
    json: AsJson = False,
) -> None:
    """Read and check every sample; list the bad ones.

    Checks the structure of every shard from the first byte to the last, all checksums (in records, and in the index of a tar),
    that all samples have the same fields, and that numbers, text, JSON and arrays can be decoded; with `--decode`, also pictures.
    Each problem is listed with key, shard, byte and reason. Keys that occur in several shards, and members of a tar that belong
    to no sample, are mentioned but are not errors. The exit status is 1 if anything is bad.

    With `--replay`, the samples listed by `on_error("skip", quarantine=FILE)` are run again, one by one in the foreground, so
    that `print` and `breakpoint` work: for a SOURCE they are read and decoded; for a MODULE:PIPELINE they go through all its
    stages, at the epoch and the position they had. Errors are shown with their full traceback.

    Example: `stoker verify 'shards/train-{000000..000147}.tar' --decode`

    Example: `stoker verify --replay bad.jsonl --line 1 train.py:train`
    """
    if replay is not None:
        replay_file(source, replay, line, key, json)
        return
    if line is not None or key is not None:
        raise ConfigError("verify: --line and --key choose lines of a quarantine file; add --replay FILE")
    found = find_source(source)
    with Progress("verifying", local_bytes(found.shards), progress, unit="bytes") as shown:
        results = _check(found, source, decode, jobs, shown)
        seconds, rate = shown.seconds, shown.rate()
    within, across = repeated(results)
    problems = [problem for result in results for problem in result.problems] + within + lacking(results)
    problems.sort(key=lambda problem: (problem.shard, problem.offset or 0))
    samples, size = sum(result.samples for result in results), sum(result.bytes for result in results)
    notes = [f"{result.shard}: {note}" for result in results for note in result.notes]
    unindexed = sum(not result.checksums for result in results)
    if json:
        print_json(
            {
                "source": source,
                "shards": len(found.shards),
                "samples": samples,
                "bytes": size,
                "bad": len(problems),
                "problems": [asdict(problem) for problem in problems],
                "repeated_keys": across,
                "without_checksums": unindexed,
                "notes": notes,
                "seconds": seconds,
                "samples_per_s": samples / seconds,
                "bytes_per_s": size / seconds,
            }
        )
    else:
        _tell(source, found, samples, size, problems, across, unindexed, notes, f"{rate}, {seconds:,.1f} s")
    if problems:
        typer.echo(f"{source}: {counted(len(problems), 'problem')}", err=True)
        raise typer.Exit(DATA)
    if not samples:
        raise SourceEmpty(f"{source}: contains no samples")


def _check(found: Found, name: str, decode: bool, jobs: int | None, shown: Progress) -> list[Findings]:
    """What was found, shard by shard; images and databases are one."""
    if found.kind in ("tar", "tfrecord"):
        with shown.crews(jobs, len(found.shards)) as crews:
            verifier = Verifier(decode, crews.each, shown.counting(crews))
            check = verifier.tar if found.kind == "tar" else verifier.tfrecord
            if found.shards == ("-",):
                return [verifier.tar(open_blob("standard input"), standard_input())]
            return list(crews.over(lambda shard: check(open_blob(shard)), found.shards))
    stored = stored_in(open_source(name))
    with shown.crews(jobs, 1) as crews:
        verifier = Verifier(decode, crews.each, shown.counting(crews))
        results = list(crews.over(lambda indices: verifier.rows(stored, indices), [np.arange(len(stored))]))
    if found.kind == "images" and (trouble := sidecar_trouble(os.fsencode(found.name))):
        results[0].add(Problem("", found.name, None, trouble))
    return results


def _tell(
    source: str,
    found: Found,
    samples: int,
    size: int,
    problems: Sequence[Problem],
    across: dict[str, list[str]],
    unindexed: int,
    notes: Sequence[str],
    speed: str,
) -> None:
    shards = f" in {counted(len(found.shards), 'shard')}" if found.shards else ""
    verdict = f"{counted(len(problems), 'problem')}" if problems else "all good"
    tell(
        f"{source}: {counted(samples, 'sample')}{shards}, {show_bytes(size)}: {verdict}",
        style="bold red" if problems else "bold green",
    )
    tell(f"  speed    {speed}")
    for problem in problems[:_NAMED]:
        place = "" if problem.offset is None else f", byte {problem.offset:,}"
        key = f"{problem.key}  " if problem.key else ""
        at = f"{problem.shard}{place}: " if not problem.reason.startswith(problem.shard) else ""
        tell(f"  bad      {key}{at}{problem.reason}")
    if len(problems) > _NAMED:
        tell(f"           and {len(problems) - _NAMED:,} more; --json lists them all")
    if across:
        first = next(iter(across))
        tell(f"  note     {counted(len(across), 'key')} in several shards, e.g. {first} in {' and '.join(across[first][:2])}")
    for note in notes[:_NAMED]:
        tell(f"  note     {note}")
    if unindexed and found.kind == "tar":
        tell(f"  note     {counted(unindexed, 'shard')} without checksums to compare with; `stoker index` makes them")
