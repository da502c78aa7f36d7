"""Where the bytes of a shard go: into a file that appears together with its index, or into a pipe."""
# pathlib takes no bytes, so
# ruff: noqa: PTH108, PTH116, PTH120

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, BinaryIO, Union

from ...errors import ConfigError, WriteError
from ...kernel.library import Bytes
from ...sizes import a_type
from ...source.paths import AnyPath, file_name, printable
from ...source.shards.shard_index import MAGIC, MAX_HEADER, SUFFIX, ShardIndex
from ...storage.atomic import AtomicFile, sync_folder, write_error

Target = Union[AnyPath, BinaryIO]
#: makes the index of a complete shard from its size and its time of change
MakeIndex = Callable[[int, int], ShardIndex]

#: what the formats themselves say in `ShardIndex.about`
_TAKEN = frozenset({"examples", "features", "ignored", "ignored_names"})
_PACKED = (".gz", ".tgz", ".zst", ".zstd", ".tzst", ".bz2", ".xz")


class ShardFile:
    """A shard in a file. The shard appears first and then its index, so there is never an index without its shard.

    With `about`, which is added to what the index says, it is the other way round: so a shard that is there has all that was said
    about it. Killed in between, there is an index without a shard, which the next try replaces. `about` is looked at when the
    shard is closed.

    What is in the way of the index is removed only if it is an index: that of a shard which is gone, or is replaced here.
    """

    def __init__(self, path: AnyPath, *, index: bool, overwrite: bool, about: Mapping[str, Any] | None = None) -> None:
        self._file = AtomicFile(path, overwrite=overwrite)
        self.told = self._file.told
        self._beside = self._file.path + SUFFIX.encode()
        self.indexed, self._about = index, about
        try:
            self._had_index = _is_index(self._beside)
        except BaseException:
            self._file.abandon()
            raise

    def write(self, data: Bytes) -> None:
        self._file.write(data)

    def close(self, make_index: MakeIndex) -> None:
        """Make shard and index appear, or neither."""
        whole = self._file.finish()
        with contextlib.ExitStack() as undo:
            undo.callback(self._file.abandon)
            if not self.indexed:
                self._appear()
                return
            beside = AtomicFile(self._beside, overwrite=True, clean=False)
            undo.callback(beside.abandon)
            index = make_index(whole.st_size, whole.st_mtime_ns)
            beside.write(replace(index, about={**(self._about or {}), **index.about}).to_bytes())
            beside.finish()
            if self._about is None:
                self._appear()
                beside.publish()
                return
            self._file.refuse_existing()
            _remove(self._file.path)  # before the new index appears, which would say of it what is not true
            beside.publish()
            undo.callback(_remove, self._beside)
            self._file.publish()
            undo.pop_all()

    def abandon(self) -> None:
        self._file.abandon()

    def _appear(self) -> None:
        if self._had_index:
            _remove(self._beside)  # before the new shard appears, of which it would say what is not true
        self._file.publish()


class Pipe:
    """A shard sent to standard output, a pipe or any file object. It has no index, and what was sent cannot be taken back.

    A shard that is given up is left without its end, so that its reader notices.
    """

    indexed = False

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
                    raise WriteError(f"{self.told}: accepts no more after {self._size:,} bytes; use a blocking stream")
                self._size += done
                view = view[done:]
        except WriteError:
            raise
        except OSError as error:
            raise write_error(error, self.told, None, self._size, len(view)) from error

    def close(self, make_index: MakeIndex) -> None:
        try:
            if hasattr(self._stream, "flush"):
                self._stream.flush()
            if self._owned:
                self._stream.close()
        except OSError as error:
            raise write_error(error, self.told, None, self._size, 0) from error

    def abandon(self) -> None:
        if self._owned:
            with contextlib.suppress(OSError):
                self._stream.close()


def open_target(target: Any, *, index: bool, overwrite: bool, about: Mapping[str, Any] | None = None) -> ShardFile | Pipe:
    """Where to write to: a path, ``"-"`` for standard output, or a file object open for writing bytes."""
    if about is not None:
        _check_about(about)
    opened = _opened(target, index, overwrite, about)
    if about is not None and not opened.indexed:
        opened.abandon()
        raise ConfigError(f"{opened.told}: `about` is stored in the index, and there is none for this target; omit it")
    return opened


def _opened(target: Any, index: bool, overwrite: bool, about: Mapping[str, Any] | None) -> ShardFile | Pipe:
    if isinstance(target, (str, bytes, os.PathLike)):
        name = os.fspath(target)
        if name in ("-", b"-"):
            return _standard_output()
        _check_path(name)
        if not _is_pipe(name):
            return ShardFile(name, index=index, overwrite=overwrite, about=about)
        try:
            return Pipe(open(name, "wb", buffering=0), printable(os.fsencode(name)), owned=True)
        except OSError as error:
            raise write_error(error, printable(os.fsencode(name)), None, 0, 0) from error
    if isinstance(target, io.TextIOBase):
        raise ConfigError(f"{target!r} is open for text, but a shard is bytes; open it with 'wb', or pass its .buffer")
    if not hasattr(target, "write"):
        raise ConfigError(f"{a_type(target)} cannot be written to; use a path, '-', or a file object open for writing bytes")
    return Pipe(target, f"<{getattr(target, 'name', type(target).__name__)}>", owned=False)


def _check_about(about: Mapping[str, Any]) -> None:
    try:
        if not isinstance(about, Mapping) or not all(isinstance(name, str) for name in about):
            raise TypeError("its names must be text")
        size = len(json.dumps(dict(about)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"about={about!r}: {error}; use a mapping of names to JSON values") from error
    if size > MAX_HEADER:
        raise ConfigError(
            f"`about` takes {size:,} bytes as JSON, and the header of an index is limited to {MAX_HEADER:,}; shorten it"
        )
    if taken := _TAKEN & about.keys():
        raise ConfigError(f"about={about!r}: {sorted(taken)[0]!r} is a name that the index itself uses; choose another")


def _check_path(name: str | bytes) -> None:
    text = os.fsdecode(name)
    if "://" in text:
        raise ConfigError(
            f"{text}: shards can only be written to local disks; write it there, then upload it with its {SUFFIX} file"
        )
    if text.lower().endswith(_PACKED):
        raise ConfigError(
            f"{text}: shards are written uncompressed so they can be read at random; omit that ending, or write to '-' and "
            "compress the output: ... | zstd > out.tar.zst"
        )
    file_name(name)


def _standard_output() -> Pipe:
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise ConfigError("standard output does not accept bytes here; use a path, or a file object open for writing bytes")
    if stream.isatty():
        raise ConfigError(
            "a shard is binary and standard output is a terminal; redirect it to a file or another command: ... > out.tar"
        )
    return Pipe(stream, "standard output", owned=False)


def _is_pipe(name: str | bytes) -> bool:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _remove(path: bytes) -> None:
    """Remove a file, if it is there, for good."""
    folder = os.path.dirname(path)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(error, printable(path), folder, 0, 0) from error
    sync_folder(folder)


def _is_index(path: bytes) -> bool:
    """Whether an index lies there. Anything else by that name is somebody's, and in the way."""
    try:
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WriteError(
            f"{printable(path)}: the index would be written there, but this file cannot be read: {error.strerror}"
        ) from error
    raise WriteError(
        f"{printable(path)}: the index would be written there, but this file is not an index; move it away, or choose "
        "another name"
    )
