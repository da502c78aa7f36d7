"""`stoker verify --replay`: the samples of a quarantine file, one by one, in the foreground."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import typer

from ..errors import ConfigError, SampleError, message_of
from ..loader.replay import QuarantineLine, Replay, find_samples, read_quarantine
from ..pack.jobs.verification import Verifier
from ..sizes import counted
from .guard import DATA
from .pipelines import load_pipeline
from .screen import print_json, tell
from .sources import open_source, stored_in

#: MODULE:PIPELINE, and not a path or a URL
_PIPELINE = re.compile(r"(?:.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*")
#: line -> what is wrong with its sample, which is at this index; None: nothing
_Check = Callable[[QuarantineLine, int], "BaseException | str | None"]


def replay_file(name: str, file: str, line: int | None, key: str | None, json: bool) -> None:
    """Check the listed samples again; the exit status is 1 when one of them is bad, or not there."""
    lines = _chosen(file, line, key)
    found, check, here = _opened(name, lines)
    if not found:
        raise ConfigError(
            f"{file} lists other data ({lines[0].source}) than {name} ({here}), which has none of their keys; use the "
            "data or the pipeline that the list was written for"
        )
    results = [_run(each, found.get(each.number), check, json) for each in lines]
    bad = [result for result in results if not result["good"]]
    if json:
        print_json({"source": name, "replayed": len(results), "bad": len(bad), "samples": results})
    else:
        if here not in {each.source for each in lines}:
            tell("  note     the data have changed since the list was written; samples were found by their keys")
        verdict = f"{len(bad):,} still bad" if bad else "all good now"
        tell(f"{file}: {counted(len(results), 'sample')}: {verdict}", style="bold red" if bad else "bold green")
    if bad:
        raise typer.Exit(DATA)


def _chosen(file: str, number: int | None, key: str | None) -> list[QuarantineLine]:
    lines = read_quarantine(file)
    chosen = [line for line in lines if number in (None, line.number) and key in (None, line.key)]
    if not chosen:
        which = f" with number {number}" if number is not None else f" with the key {key!r}" if key is not None else ""
        raise ConfigError(f"{file}: has no line{which}")
    return chosen


def _opened(name: str, lines: list[QuarantineLine]) -> tuple[dict[int, int], _Check, str]:
    """Where the samples are, by line, what checks one, and the fingerprint of the data."""
    if _PIPELINE.fullmatch(name) and not os.path.lexists(name):
        plan = load_pipeline(name).plan
        again = Replay(plan)
        return again.find(lines), again.run, plan.source.fingerprint()
    stored, verifier = stored_in(open_source(name)), Verifier(decode=True)

    def check(line: QuarantineLine, index: int) -> str | None:
        problems = verifier.rows(stored, np.array([index])).problems
        return problems[0].reason if problems else None

    return find_samples(stored, lines), check, stored.fingerprint()


def _run(line: QuarantineLine, index: int | None, check: _Check, quiet: bool) -> dict[str, Any]:
    """Check a sample. What is told before it is run names it, should it end the process."""
    if not quiet:
        tell(f"line {line.number}: {line.key} (epoch {line.epoch}, {line.stage}: {line.error})")
    wrong = "it is not in these data" if index is None else check(line, index)
    error = type(wrong).__name__ if isinstance(wrong, BaseException) else None
    reason = message_of(wrong) if isinstance(wrong, BaseException) else wrong
    stage = wrong.stage if isinstance(wrong, SampleError) else ""
    if not quiet:
        if isinstance(wrong, BaseException):
            typer.echo("".join(traceback.format_exception(type(wrong), wrong, wrong.__traceback__)), err=True, nl=False)
        tell(f"  {'good' if wrong is None else 'bad':<8} {reason or line.key}", style="" if wrong is None else "red")
    return {"line": line.number, "key": line.key, "good": wrong is None, "stage": stage, "error": error, "reason": reason}
