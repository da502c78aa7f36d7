"""`stoker tar proc`: the user's shell command, run on each sample."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from ...engine.resources import usable_cores
from ...errors import ConfigError, FunctionError, RecordError, SampleError, StokerError, WriteError
from ...sizes import counted
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ..guard import DATA
from ..signals import uninterrupted
from .folders import collect, lay_out
from .inputs import Shards, samples_of, shard_names
from .janitor import remove_folder
from .meter import Meter, Progress
from .outputs import Archive, Output, Overwrite, archive
from .shell import Ended, Workshop


def proc(
    command: Annotated[
        str, typer.Option("-c", "--command", metavar="COMMAND", help="What to run, by `/bin/sh`.", show_default=False)
    ],
    shards: Shards = None,
    parallel: Annotated[
        int | None,
        typer.Option("-p", "--parallel", min=1, metavar="N", help="Samples at once.", show_default="the cores of this machine"),
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--fields",
            metavar="NAMES",
            help="Only these fields become files; the others stay as they are.",
            show_default="all",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="S", help="Seconds that a sample may take.")] = 3600.0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Report a sample whose command fails, leave it out, go on; the exit status is 1.")
    ] = False,
    output: Output = "-",
    overwrite: Overwrite = False,
    progress: Progress = None,
) -> None:
    """Run a shell command on each sample; archive what it leaves.

    The command runs in a folder of its own with the sample's fields as files: `sample.jpg`, `sample.cls`, and so on, whatever
    the sample's key, so that one command fits all and no name comes from the data. (A field's name keeps letters, digits, `.`,
    `_` and `-`; other characters become `_` there, and in the result what they were.) The key is in the file `__key__`.

    Afterwards the files `sample.*` are the sample's fields: changed, added, or gone. Without any the sample is left out.
    `sample-1.jpg` is the field `jpg` of one more sample whose key ends in `-1`. All other files are thrown away, and so is what
    the command prints, unless it fails.

    The order of the samples stays. A command that fails, with its last words, ends everything; what the command started, and
    the folders (in `$TMPDIR`), are gone in any case, even if this program is killed.

    Example: `stoker tar proc -p 5 -c 'gm mogrify -resize 256x256 sample.jpg' train-0000.tar -o small-0000.tar`
    """
    names, many = shard_names(shards), parallel or usable_cores()
    wanted = None if fields is None else [name for name in re.split(r"[,\s]+", fields.lower()) if name]
    if wanted is not None and not wanted:
        raise ConfigError("--fields names no field; write it as in -f jpg,cls")
    failed = dropped = 0
    with (
        archive(output, overwrite, names) as out,
        Meter("proc", progress) as meter,
        _workers(command, timeout, many) as (pool, shop),
    ):
        waiting: deque[Future[list[TarSample]]] = deque()
        for sample in meter.watch(samples_of(names)):
            waiting.append(pool.submit(process, shop, sample, wanted))
            if len(waiting) >= 2 * many:
                failed, dropped = _settle(waiting.popleft(), out, keep_going, failed, dropped)
        while waiting:
            failed, dropped = _settle(waiting.popleft(), out, keep_going, failed, dropped)
    if dropped:
        typer.echo(f"note: left out, because the command left no file of it: {counted(dropped, 'sample')}", err=True)
    if failed:
        typer.echo(f"left out, because the command failed: {counted(failed, 'sample')}", err=True)
        raise typer.Exit(DATA)


def process(shop: Workshop, sample: TarSample, wanted: list[str] | None) -> list[TarSample]:
    """What the command makes of one sample: usually one sample, maybe none, maybe several."""
    key = printable(sample.key)
    missing = [name for name in wanted or () if name not in sample.fields]
    if missing:
        raise RecordError(f"the sample {key} has no field {missing[0]!r}; it has {', '.join(sample.fields)}", key=key)
    chosen = list(sample.fields) if wanted is None else wanted
    folder = shop.folder()
    try:
        table = lay_out(folder, sample, chosen)
        ended = shop.run(folder)
        if ended.status != 0:
            raise _failure(key, ended)
        made = collect(folder, sample, table)
    except OSError as error:
        if isinstance(error, StokerError):
            raise
        raise WriteError(f"{shop.root}: {error.strerror or error}; set TMPDIR to a folder with more room") from error
    finally:
        remove_folder(folder)
    beside = {name: data for name, data in sample.fields.items() if name not in chosen}
    return [TarSample(one.key, {**beside, **one.fields}, 0) for one in made]


def _settle(future: Future[list[TarSample]], out: Archive, keep_going: bool, failed: int, dropped: int) -> tuple[int, int]:
    try:
        made = future.result()
    except SampleError as error:
        if not keep_going:
            raise
        typer.echo(str(error), err=True)
        return failed + 1, dropped
    for sample in made:
        out.write(sample)
    return failed, dropped + (not made)


@contextmanager
def _workers(command: str, timeout_s: float, many: int) -> Iterator[tuple[ThreadPoolExecutor, Workshop]]:
    """Threads that run commands. At the end, however it comes, go the commands, the threads that wait for them, the folders."""
    with ExitStack() as stack:
        with uninterrupted():
            shop = Workshop(command, timeout_s)
            stack.callback(shop.clear)
            pool = ThreadPoolExecutor(many, "stoker-proc")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.callback(shop.close)
        yield pool, shop


def _failure(key: str, ended: Ended) -> FunctionError:
    if ended.status is None:
        how = "took longer than --timeout allows, and was killed"
    elif ended.status < 0:
        how = f"was killed by signal {-ended.status}"
    else:
        how = f"ended with status {ended.status}"
    words = f"; its last words:\n{_indented(ended.words)}" if ended.words else ", without a word"
    return FunctionError(f"the sample {key}: the command {how}{words}", key=key)


def _indented(words: str) -> str:
    lines = [
        "".join(character if character.isprintable() or character == "\t" else "?" for character in line)
        for line in words.splitlines()
    ]
    return "\n".join(f"  | {line}" for line in lines[-20:])
