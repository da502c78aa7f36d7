"""`stoker tar sort`: samples by key, or by what a field holds; or in random order, all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Annotated, Any

import typer

from ...errors import ConfigError, RecordError
from ...plan.seeds import key_of, mix
from ...sizes import counted
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ..progress import PipeProgress, Progress
from ..screen import flag, option
from .buffer_shuffle import Seed
from .inputs import Shards, shard_names
from .outputs import Output, Overwrite, archive
from .shelf import SampleSorter, Shelf

Rank = Callable[[TarSample], bytes]


def sort(
    shards: Shards = None,
    by: Annotated[str, option("key|FIELD", "Sort by the key, or by the content of a field.")] = "key",
    numeric: Annotated[bool, flag("Compare as numbers, not as bytes.", "--numeric")] = False,
    reverse: Annotated[bool, flag("Sort in descending order.", "--reverse")] = False,
    shuffle: Annotated[bool, flag("Shuffle all samples instead of sorting them.", "--shuffle")] = False,
    seed: Seed = 0,
    output: Output = "-",
    overwrite: Overwrite = False,
    progress: PipeProgress = None,
) -> None:
    """Sort the samples of one or more shards.

    Samples that compare equal keep their order. Sorting by key also joins the files of a sample, so it repairs an archive whose
    files are not in order. The data may be larger than memory: plain files are read a second time; data from a pipe, a network or
    a compressed shard are copied to `$TMPDIR`.

    Example: `stoker tar sort --by cls --numeric train-0000.tar -o by-class.tar`
    """
    if shuffle and (by != "key" or numeric or reverse):
        raise ConfigError("--shuffle cannot be combined with --by, --numeric and --reverse; omit them")
    names = shard_names(shards)
    rank = _random_rank(seed) if shuffle else _rank_by(by, numeric)
    with (
        archive(output, overwrite, names) as out,
        closing(Shelf()) as shelf,
        closing(SampleSorter(_number if numeric else bytes, reverse)) as order,
    ):
        with Progress("sort, reading", shown=progress, stays=True) as meter:
            for name in names:
                for sample, place in shelf.samples(name):
                    meter.add(1, place.length)
                    meter.draw()
                    order.add(rank(sample), place)
        with Progress("sort, writing", shown=progress, stays=True) as meter:
            again = shelf.read(place for _, place in order)
            joined = _SampleJoiner(again) if by == "key" and not shuffle else None
            for sample in meter.watch(again if joined is None else joined):
                out.write(sample)
    if joined is not None and joined.count:
        typer.echo(f"note: {counted(joined.count, 'sample')} were in several places, and have been joined", err=True)


class _SampleJoiner:
    """Samples in the order of their keys, with those of the same key made one."""

    def __init__(self, samples: Iterator[TarSample]) -> None:
        self._samples = samples
        self.count = 0

    def __iter__(self) -> Iterator[TarSample]:
        held: TarSample | None = None
        whole = True
        for sample in self._samples:
            if held is None or sample.key != held.key:
                if held is not None:
                    yield held
                held, whole = sample, True
                continue
            twice = sorted(held.fields.keys() & sample.fields.keys())
            if twice:
                key = printable(sample.key)
                raise RecordError(f"two samples have the key {key} and the field {twice[0]!r}; remove one of them", key=key)
            self.count += whole
            held, whole = TarSample(held.key, {**held.fields, **sample.fields}, held.offset), False
        if held is not None:
            yield held


def _random_rank(seed: int) -> Rank:
    key, numbers = key_of(seed, 0x501D), count()
    return lambda sample: mix(key ^ next(numbers)).to_bytes(8, "big")


def _rank_by(by: str, numeric: bool) -> Rank:
    field = by.lower()

    def rank(sample: TarSample) -> bytes:
        if by != "key" and field not in sample.fields:
            key = printable(sample.key)
            raise RecordError(f"the sample {key} has no field {by!r} to sort by; it has {', '.join(sample.fields)}", key=key)
        data = sample.key if by == "key" else sample.fields[field]
        if numeric:
            _check_number(data, sample, by)
        return data

    return rank


def _number(data: bytes) -> Any:
    """Whole numbers exactly, whatever their size; others as floats."""
    text = data.decode("ascii").strip()
    try:
        return int(text)
    except ValueError:
        return float(text)


def _check_number(data: bytes, sample: TarSample, by: str) -> None:
    try:
        value = _number(data) if len(data) <= 4096 else None
    except ValueError:
        value = None
    if value is None or value != value:
        key = printable(sample.key)
        raise RecordError(f"the sample {key}: its {by} is {data[:40]!r}, which is not a number; omit --numeric", key=key)
