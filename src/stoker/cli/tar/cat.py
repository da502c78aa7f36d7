"""`stoker tar cat`: shards one after another, as one archive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from ...sizes import parse_bytes
from ...source.streams.tar_stream import TarSample
from ..progress import PipeProgress, Progress
from ..screen import amount
from .buffer_shuffle import Memory, Seed, shuffled
from .inputs import Shards, samples_of, shard_names
from .outputs import Output, Overwrite, archive

Count = Annotated[int | None, amount("Stop after N samples.", "-n", "-c", "--count", least=0)]


def complain(text: str) -> None:
    """Print a message next to the result."""
    typer.echo(f"note: {text}", err=True)


def cat(
    shards: Shards = None,
    count: Count = None,
    skip: Annotated[int, amount("Skip the first N samples.", least=0)] = 0,
    shuffle: Annotated[int, amount("Shuffle within a buffer of N samples; 0 keeps the order.", least=0)] = 0,
    seed: Seed = 0,
    memory: Memory = "2GB",
    output: Output = "-",
    overwrite: Overwrite = False,
    progress: PipeProgress = None,
) -> None:
    """Concatenate shards into one archive.

    Samples are written in their order, shard by shard: `--skip` skips the first ones, `--shuffle` shuffles the rest, `-n` limits
    them. A damaged shard ends the command with its name and the place, and then no FILE is made.

    Example: `stoker tar cat 'train-{0000..0009}.tar' -n 1000 --shuffle 500 > some.tar`
    """
    names, most = shard_names(shards), parse_bytes(memory, "--memory")
    with archive(output, overwrite, names) as out, Progress("cat", shown=progress, stays=True) as meter:
        samples: Iterator[TarSample] = islice(samples_of(names), skip, None)
        if shuffle > 1:
            samples = shuffled(samples, shuffle, seed, most, complain)
        for sample in meter.watch(islice(samples, count)):
            out.write(sample)
