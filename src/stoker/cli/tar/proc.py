"""`stoker tar proc`: the user's shell command, run on each sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from ...engine.each import Crew
from ...engine.janitor import remove_folder
from ...engine.resources import usable_cores
from ...engine.shell import CommandEnd, Workshop
from ...engine.signals import uninterrupted
from ...errors import ConfigError, FunctionError, RecordError, SampleError, StokerError, WriteError
from ...sizes import counted
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ..guard import DATA
from ..progress import PipeProgress, Progress
from ..screen import amount, flag, option
from .folders import collect, lay_out
from .inputs import Shards, samples_of, shard_names
from .outputs import Output, Overwrite, archive


def proc(
    command: Annotated[str, option("COMMAND", "The command, run by `/bin/sh`.", "-c", "--command", default=False)],
    shards: Shards = None,
    parallel: Annotated[
        int | None, amount("Samples processed in parallel.", "-p", "--parallel", default="the cores of this machine")
    ] = None,
    fields: Annotated[
        str | None,
        option("NAMES", "Only these fields become files; the others are kept unchanged.", "-f", "--fields", default="all"),
    ] = None,
    timeout: Annotated[float, option("S", "Maximum time for a sample, in seconds.", min=0.001)] = 3600.0,
    keep_going: Annotated[
        bool, flag("If a command fails, report and drop the sample and continue; the exit status is 1.", "--keep-going")
    ] = False,
    output: Output = "-",
    overwrite: Overwrite = False,
    progress: PipeProgress = None,
) -> None:
    """Run a shell command on each sample; archive the result.

    The command runs in its own folder with the sample's fields as files: `sample.jpg`, `sample.cls`, and so on. The names do not
    depend on the key, so one command fits all samples and no file name comes from the data. (In these names, characters other
    than letters, digits, `.`, `_` and `-` become `_`; the result has the original names.) The key is in the file `__key__`.

    Afterwards the files `sample.*` are the fields of the sample: changed, added or removed. If there are none, the sample is
    dropped. `sample-1.jpg` is the field `jpg` of an additional sample whose key ends in `-1`. All other files are ignored, and so
    is the output of the command, unless it fails.

    The order of the samples is kept. If a command fails, everything ends with its error output. The command's processes and
    folders (in `$TMPDIR`) are always removed, even if this program is killed.

    Example: `stoker tar proc -p 5 -c 'gm mogrify -resize 256x256 sample.jpg' train-0000.tar -o small-0000.tar`
    """
    names, many = shard_names(shards), parallel or usable_cores()
    wanted = None if fields is None else [name for name in re.split(r"[,\s]+", fields.lower()) if name]
    if wanted is not None and not wanted:
        raise ConfigError("--fields is empty; use names, as in -f jpg,cls")
    failed = dropped = 0
    with (
        archive(output, overwrite, names) as out,
        Progress("proc", shown=progress, stays=True) as meter,
        _workers(command, timeout, Crew(many, 2 * many, meter.draw)) as (crew, shop),
    ):

        def attempt(sample: TarSample) -> list[TarSample] | SampleError:
            try:
                return process(shop, sample, wanted)
            except SampleError as error:
                if not keep_going:
                    raise
                return error

        for made in crew(attempt, meter.watch(samples_of(names))):
            if isinstance(made, SampleError):
                typer.echo(str(made), err=True)
                failed += 1
                continue
            for sample in made:
                out.write(sample)
            dropped += not made
    if dropped:
        typer.echo(f"note: dropped, because the command left no file of it: {counted(dropped, 'sample')}", err=True)
    if failed:
        typer.echo(f"dropped, because the command failed: {counted(failed, 'sample')}", err=True)
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


@contextmanager
def _workers(command: str, timeout_s: float, crew: Crew) -> Iterator[tuple[Crew, Workshop]]:
    """Threads that run commands. At the end, however it comes, go the commands, the threads that wait for them, the folders."""
    with ExitStack() as stack:
        with uninterrupted():
            shop = Workshop(command, timeout_s)
            stack.callback(shop.clear)
            stack.enter_context(crew)
            stack.callback(shop.close)
        yield crew, shop


def _failure(key: str, ended: CommandEnd) -> FunctionError:
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
