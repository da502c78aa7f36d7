"""`stoker tar split`: one stream of samples as numbered shards."""

from __future__ import annotations

import io
import os
from contextlib import closing
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from ...engine.signals import uninterrupted
from ...errors import ConfigError, CorruptIndex, ShardChanged, WriteError
from ...pack.writers.shard_writer import Pattern, write_shards
from ...pack.writers.tar_writer import TarWriter
from ...sizes import counted, parse_bytes
from ...source.paths import printable
from ...source.shards.shard_index import SUFFIX
from ...storage.local import LocalBlob
from ..progress import PipeProgress, Progress
from ..screen import amount, check_writable, flag, option, tell
from .inputs import Shards, samples_of, shard_names
from .outputs import encode


def split(
    shards: Shards = None,
    size: Annotated[str, option("BYTES", "Maximum size of a shard, such as `1e9` or `500MB`.", "-s", "--size")] = "1e9",
    samples: Annotated[
        int | None, amount("Maximum number of samples in a shard.", "-n", "--samples", default="any number")
    ] = None,
    output: Annotated[
        str, option("NAME", "NAME-000000.tar and so on; or a pattern such as `out-%04d.tar`.", "-o", "--output")
    ] = "shard",
    maxshards: Annotated[int | None, amount("Stop after N shards and ignore the rest.", default="any number")] = None,
    overwrite: Annotated[bool, flag("Replace shards that exist and differ.", "--overwrite")] = False,
    progress: PipeProgress = None,
) -> None:
    """Split samples into shards, each with its index.

    A shard is as large as `-s` and `-n` allow; only a single larger sample makes a larger shard. Shards appear complete, one
    after another, and the same samples produce the same bytes. So you can run a stopped command again: existing shards are
    compared with what would be written, and kept. If one differs, the command ends without changing it, unless you pass
    `--overwrite`.

    Example: `find . -name '*.jpg' | tar -cf - -T - | stoker tar split -s 1e9 -o train`
    """
    names = shard_names(shards)
    pattern = Pattern(output if "%" in output or "{" in output else f"{output}-%06d.tar")
    if pattern.single:
        raise ConfigError(f"{output}: has no place for the shard's number; use NAME, or a pattern such as out-%06d.tar")
    check_writable(Path(pattern.name(0)))
    with closing(_Opener(overwrite, maxshards)) as opener, Progress("split", shown=progress, stays=True) as meter:
        try:
            write_shards(
                pattern.text,
                meter.watch(samples_of(names)),
                encode,
                opener.open,
                max_bytes=parse_bytes(size, "--size"),
                max_samples=samples,
                overwrite=True,  # what may be replaced, the opener decides
            )
        except _Enough:
            typer.echo(f"note: stopped after {counted(opener.opened, 'shard')} (--maxshards); the rest is ignored", err=True)
    first, last = (printable(os.fsencode(pattern.name(number))) for number in (0, opener.opened - 1))
    tell(f"{counted(opener.opened, 'shard')}, {first} to {last}" + opener.told())


class _Enough(Exception):
    """All shards that were asked for are written."""


class _Opener:
    """Opens shard after shard, as many as were asked for; one that is there already is compared instead."""

    def __init__(self, overwrite: bool, most: int | None) -> None:
        self._overwrite, self._most = overwrite, most
        self.opened = self.compared = 0
        self._writer: TarWriter | None = None

    def open(self, path: str) -> TarWriter:
        if self.opened == self._most:
            raise _Enough
        with uninterrupted():
            if os.path.lexists(path) and not self._overwrite:
                self.compared += 1
                self._writer = _ComparingWriter(path)
            else:
                self._writer = TarWriter(path, overwrite=self._overwrite)
        self.opened += 1
        return self._writer

    def close(self) -> None:
        """Give up the shard in the making, if there is one."""
        if self._writer is not None:
            self._writer.abandon()

    def told(self) -> str:
        return f"; {self.compared:,} of them existed before" if self.compared else ""


class _ComparingWriter(TarWriter):
    """Writes nothing: compares a shard that is there with what would be written, and gives it an index if it has none."""

    def __init__(self, path: str) -> None:
        self._there = _ComparedFile(path)
        super().__init__(cast(BinaryIO, self._there))
        self._place = os.fsencode(path)

    def close(self) -> None:
        was_open = self._open
        super().close()
        if was_open:
            self._there.check_end()
            self._there.close()
            self._check_index()

    def abandon(self) -> None:
        super().abandon()
        self._there.close()

    def _check_index(self) -> None:
        """A run that was killed may have left a shard without its index."""
        from ...source.shards.indexing import build_index, find_index, keep_index

        blob = LocalBlob(self._place)
        try:
            known = os.path.lexists(self._place + SUFFIX.encode()) and find_index(blob, "tar") is not None
        except (CorruptIndex, ShardChanged):
            known = False
        if not known:
            keep_index(blob, build_index(blob, "tar", sealed=True))


class _ComparedFile(io.BufferedIOBase):
    """A file to write to that only compares."""

    def __init__(self, path: str) -> None:
        self._told = printable(os.fsencode(path))
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115  closed with this
        except OSError as error:
            raise WriteError(
                f"{self._told}: already exists and cannot be read ({error.strerror}); move it away, or use another name"
            ) from error
        self._size = 0

    def write(self, data: object) -> int:
        own = bytes(memoryview(data))  # type: ignore[arg-type]
        if self._file.read(len(own)) != own:
            raise self._differs()
        self._size += len(own)
        return len(own)

    def check_end(self) -> None:
        if self._file.read(1):
            raise self._differs()

    def close(self) -> None:
        self._file.close()
        super().close()

    def _differs(self) -> WriteError:
        return WriteError(
            f"{self._told}: already exists, and differs after byte {self._size:,} from what would be written; it was not "
            "changed; choose another name with -o, or pass --overwrite"
        )
