"""Where the bytes of a shard go: into a file that appears with its index beside it, or down a pipe."""
# pathlib takes no bytes, so
# ruff: noqa: PTH108, PTH116, PTH120

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Union

from ..errors import ConfigError, WriteError
from ..kernel.library import Bytes
from ..source.index import SUFFIX, ShardIndex
from ..source.paths import AnyPath, printable
from .atomic import AtomicFile, sync_folder, write_error

Target = Union[AnyPath, BinaryIO]
#: makes the index of a complete shard from its size and its time of change
MakeIndex = Callable[[int, int], ShardIndex]

_INDEX_BEGINS = b"STOKERIX"
_PACKED = (".gz", ".tgz", ".zst", ".zstd", ".tzst", ".bz2", ".xz")


class ShardFile:
    """A shard in a file. The shard appears first and its index right behind, so there is never an index without its shard.

    What is in the way of the index is removed only if it is an index: that of a shard which is gone, or is replaced here.
    """

    def __init__(self, path: AnyPath, *, index: bool, overwrite: bool) -> None:
        self._file = AtomicFile(path, overwrite=overwrite)
        self.told = self._file.told
        self._beside = self._file.path + SUFFIX.encode()
        self._index = index
        try:
            self._had_index = _is_index(self._beside)
        except BaseException:
            self._file.abandon()
            raise

    def write(self, data: Bytes) -> None:
        self._file.write(data)

    def close(self, make_index: MakeIndex) -> None:
        """Make shard and index appear, or neither."""
        about = self._file.finish()
        with contextlib.ExitStack() as undo:
            undo.callback(self._file.abandon)
            beside = None
            if self._index:
                beside = AtomicFile(self._beside, overwrite=True, clean=False)
                undo.callback(beside.abandon)
                beside.write(make_index(about.st_size, about.st_mtime_ns).to_bytes())
                beside.finish()
            if self._had_index:
                self._forget_index()  # before the new shard appears, of which it would say what is not true
            self._file.publish()
            if beside is not None:
                beside.publish()

    def abandon(self) -> None:
        self._file.abandon()

    def _forget_index(self) -> None:
        folder = os.path.dirname(self._beside)
        try:
            os.unlink(self._beside)
        except FileNotFoundError:
            return
        except OSError as error:
            raise write_error(error, printable(self._beside), folder, 0, 0) from error
        sync_folder(folder)


class Pipe:
    """A shard on its way to somebody else: standard output, a pipe, any file object. It has no index, and no way back.

    A shard that is given up is left without its end, so that its reader notices.
    """

    def __init__(self, stream: Any, told: str, owned: bool) -> None:
        self._stream, self.told, self._owned = stream, told, owned
        self._size = 0

    def write(self, data: Bytes) -> None:
        view = memoryview(data)  # type: ignore[arg-type]  # NumPy's arrays are buffers before Python 3.12 says so
        try:
            if not isinstance(self._stream, io.RawIOBase):
                self._stream.write(view)
                self._size += len(view)
                return
            while view:  # a raw stream may take less than it is given
                done = self._stream.write(view)
                if not done:
                    raise WriteError(f"{self.told}: takes no more after {self._size:,} bytes; give a stream that waits")
                self._size += done
                view = view[done:]
        except OSError as error:
            raise self._failed(error, len(view)) from error

    def close(self, make_index: MakeIndex) -> None:
        try:
            if hasattr(self._stream, "flush"):
                self._stream.flush()
            if self._owned:
                self._stream.close()
        except OSError as error:
            raise self._failed(error, 0) from error

    def abandon(self) -> None:
        if self._owned:
            with contextlib.suppress(OSError):
                self._stream.close()

    def _failed(self, error: OSError, more: int) -> WriteError:
        return error if isinstance(error, WriteError) else write_error(error, self.told, b"/", self._size, more)


def open_target(target: Any, *, index: bool, overwrite: bool) -> ShardFile | Pipe:
    """Where to write to: a path, ``"-"`` for standard output, or a file object open for writing bytes."""
    if isinstance(target, (str, bytes, os.PathLike)):
        name = os.fspath(target)
        if name in ("-", b"-"):
            return _standard_output()
        _check_path(name)
        if not _is_pipe(name):
            return ShardFile(name, index=index, overwrite=overwrite)
        try:
            return Pipe(open(name, "wb", buffering=0), printable(os.fsencode(name)), owned=True)
        except OSError as error:
            raise write_error(error, printable(os.fsencode(name)), b"/", 0, 0) from error
    if isinstance(target, io.TextIOBase):
        raise ConfigError(f"{target!r} takes text, and a shard is bytes; open it with 'wb', or pass its .buffer")
    if not hasattr(target, "write"):
        raise ConfigError(
            f"a {type(target).__name__} cannot be written to; give a path, '-', or a file object open for writing bytes"
        )
    return Pipe(target, f"<{getattr(target, 'name', type(target).__name__)}>", owned=False)


def _check_path(name: str | bytes) -> None:
    text = os.fsdecode(name)
    if "://" in text:
        raise ConfigError(
            f"{text}: shards are written to this machine's disks; write it there, then upload it with its {SUFFIX} file"
        )
    if text.lower().endswith(_PACKED):
        raise ConfigError(
            f"{text}: shards are written plain, so that they can be read at random; leave that ending away, or write to '-' and "
            "pack that: ... | zstd > out.tar.zst"
        )
    if "\0" in text:
        raise ConfigError(f"{text!r}: a file's name cannot hold a NUL character")


def _standard_output() -> Pipe:
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise ConfigError("standard output takes no bytes here; give a path, or a file object open for writing bytes")
    if stream.isatty():
        raise ConfigError("a shard would fill the screen; send standard output to a file or another command: ... > out.tar")
    return Pipe(stream, "standard output", owned=False)


def _is_pipe(name: str | bytes) -> bool:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _is_index(path: bytes) -> bool:
    """Whether an index lies there. Anything else by that name is somebody's, and in the way."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_INDEX_BEGINS)) == _INDEX_BEGINS:
                return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WriteError(f"{printable(path)}: is where the index would go, and cannot be read: {error.strerror}") from error
    raise WriteError(f"{printable(path)}: is where the index would go, and is no index; move it away, or choose another name")
