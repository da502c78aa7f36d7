"""The file of a Chrome trace, written as events come: complete JSON on the disk after every write.

The end of the document is written after every part and overwritten by the next one, so the file of a killed process opens like
any other, and so does a copy made while it grows. This holds for gzip, too: the stream is ended on a copy of its state.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import threading
import zlib
from collections.abc import Mapping
from typing import Any

from ..storage.atomic import write_error
from ..storage.names import AnyPath, file_name, printable
from ..storage.text_files import open_to_write, write_whole

_END = b"\n]}\n"
#: how long `close` waits for another thread that is writing
_WAIT_S = 1.0


def write_trace(path: AnyPath, first: str, about: Mapping[str, Any], lines: list[str]) -> None:
    """A trace all of whose lines are there; the file appears whole or not at all."""
    data = _encoded([_begun(first, about), *lines]) + _END
    write_whole(path, gzip.compress(data, 1) if file_name(path).endswith(b".gz") else data)


def _begun(first: str, about: Mapping[str, Any]) -> str:
    head = json.dumps({"displayTimeUnit": "ms", "otherData": dict(about)})[:-1]
    return f'{head}, "traceEvents": [\n{first}'


def _encoded(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "backslashreplace")


class TraceFile:
    """Lines of JSON, one for each event; each begins with ``,\\n``. Failures are WriteErrors, after which nothing is written."""

    def __init__(self, path: AnyPath, first: str, about: Mapping[str, Any]) -> None:
        """`first` is the first event, without the comma; `about` says in the file what this is a trace of."""
        name = file_name(path)
        self.told, self.size = printable(name), 0  # bytes, without the end
        self._packer = zlib.compressobj(1, zlib.DEFLATED, 31) if name.endswith(b".gz") else None
        self._end, self._lock = b"", threading.Lock()
        try:
            self._fd, self._plain = open_to_write(name)
        except OSError as error:
            raise write_error(error, self.told, None, 0, 0) from error
        try:
            self.write([_begun(first, about)])
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, lines: list[str]) -> None:
        """Add lines, all of them now."""
        with self._lock:
            if self._fd >= 0:
                self._write(_encoded(lines))

    def close(self) -> None:
        """End the file as it is now; idempotent."""
        if not self._lock.acquire(timeout=_WAIT_S):
            return  # a signal's handler, within a write: the file is complete when that is done
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0 and not self._plain:
                _write_all(fd, self._end, None)
        except OSError as error:
            raise write_error(error, self.told, None, 0, 0) from error
        finally:
            self._lock.release()
            if fd >= 0:
                os.close(fd)

    def _write(self, data: bytes) -> None:
        end = _END
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
            last = self._packer.copy()
            end = last.compress(_END) + last.flush()
        try:
            _write_all(self._fd, data + end if self._plain else data, self.size if self._plain else None)
        except OSError as error:
            self._take_back()
            raise write_error(error, self.told, None, self.size, 0) from error
        self.size += len(data)
        self._end = end

    def _take_back(self) -> None:
        """End the file where it was complete last."""
        if self._plain and self.size:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
                _write_all(self._fd, self._end, self.size)


def _write_all(fd: int, data: bytes, at: int | None) -> None:
    view = memoryview(data)
    while view:
        done = os.write(fd, view) if at is None else os.pwrite(fd, view, at)
        view, at = view[done:], None if at is None else at + done
