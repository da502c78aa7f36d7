"""Shards as inputs of a command: what their names mean, and their samples."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, BinaryIO

from ...errors import ConfigError, ReadError, SourceNotFound
from ...source.paths import printable
from ...source.shards.shard_source import expand, is_remote
from ...source.sniff import GZIP, TAR_ENDINGS, ZSTD
from ...source.streams.tar_stream import TarSample, is_compressed, open_pieces, standard_input, tar_samples
from ...source.streams.unpack import Piece
from ...storage.blob import Blob, Stat
from ...storage.open import open_blob
from ..screen import argument

Shards = Annotated[
    list[str] | None, argument("SHARDS", "Paths, globs, braces, URLs; `-` is standard input.", default="standard input")
]


def shard_names(inputs: Sequence[str] | None) -> list[str]:
    """The shards that the arguments of a command line refer to."""
    names = expand(list(inputs), "tar", TAR_ENDINGS) if inputs else ["-"]
    if names.count("-") > 1:
        raise ConfigError("standard input (-) appears twice, but can only be read once")
    if "-" in names and sys.stdin.isatty():
        raise ConfigError("no shards were given, and standard input is a terminal; name some shards, or pipe one in")
    return names


def samples_of(names: Iterable[str]) -> Iterator[TarSample]:
    """The samples of several shards, one shard after the other."""
    for name in names:
        yield from shard_samples(name)


def shard_samples(name: str) -> Iterator[TarSample]:
    """The samples of one shard."""
    return tar_samples(shard_pieces(name), told(name))


def shard_pieces(name: str) -> Iterator[Piece]:
    """The bytes of one shard, unpacked if it is packed."""
    if name == "-":
        return standard_input()
    if (pipe := _open_pipe(name)) is not None:
        return open_pieces(_Pipe(name, pipe))
    return open_pieces(open_blob(name))


def told(name: str) -> str:
    """The shard in messages: no secret of its URL, nothing that breaks a line."""
    if name == "-":
        return "standard input"
    return open_blob(name).url if is_remote(name) else printable(os.fsencode(name))


def plain_file(name: str) -> Blob | None:
    """A shard that is a file on this machine, and not packed, so that any part of it can be read again; None of any other."""
    if name == "-" or is_remote(name) or is_compressed(name) or not stat.S_ISREG(_about(name).st_mode):
        return None
    return open_blob(name)


def same_file(name: str, about: os.stat_result) -> bool:
    """Whether a shard is the same file as described by `about`."""
    if is_remote(name):
        return False
    own = os.fstat(sys.stdin.fileno()) if name == "-" else _about(name)
    return os.path.samestat(own, about)


def _about(name: str) -> os.stat_result:
    try:
        return os.stat(name)  # noqa: PTH116
    except FileNotFoundError as error:
        raise SourceNotFound(f"{told(name)}: there is no such file; check the spelling") from error
    except OSError as error:
        raise ReadError(f"{told(name)}: {error.strerror}", origin=told(name)) from error


def _open_pipe(name: str) -> BinaryIO | None:
    """What a shell's ``<(command)`` names, or a FIFO: it can be read once, from its beginning. None: a plain file or a URL."""
    if is_remote(name) or not (stat.S_ISFIFO(mode := _about(name).st_mode) or stat.S_ISCHR(mode)):
        return None
    return open(name, "rb")


class _Pipe(Blob):
    """A pipe as a stored file: its first bytes say whether it is packed, as a file's name does."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        begin = stream.peek(4)[:4]  # type: ignore[attr-defined]
        self.url = told(name)
        self.name = "pipe.gz" if begin.startswith(GZIP) else "pipe.zst" if begin.startswith(ZSTD) else "pipe.tar"
        self._stream = stream

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[bytes]:
        with self._stream:
            yield from iter(lambda: self._stream.read1(piece), b"")  # type: ignore[attr-defined]

    def stat(self) -> Stat:
        raise self._only_once()

    def read_into(self, offset: int, view: memoryview) -> None:
        raise self._only_once()

    def sibling(self, suffix: str) -> Blob:
        raise self._only_once()

    def _only_once(self) -> ReadError:
        return ReadError(f"{self.url}: a pipe can only be read once, from its beginning", origin=self.url)
