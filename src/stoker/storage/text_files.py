"""Text files for people and their tools: reports, timelines, lists of bad samples. All failures are WriteErrors."""

# pathlib takes no bytes, so
# ruff: noqa: PTH120

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator

from ..errors import WriteError
from .atomic import publish, write_error
from .names import AnyPath, file_name, printable

#: why a file may not be replaced, although it may be writable itself: its folder is not, or it is a mount
_NOT_REPLACED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
#: bytes that `tail_lines` reads
_TAIL = 64 << 20
#: names that stand for a descriptor of this process, whatever it is open for
_DESCRIPTOR = re.compile(rb"(?:/dev|/proc/self)/fd/(\d+)")
_STANDARD = {b"/dev/stdout": b"/dev/fd/1", b"/dev/stderr": b"/dev/fd/2"}


def write_text(path: AnyPath, text: str) -> None:
    """Write a file that appears whole or not at all; a pipe, a device or a descriptor is written to as it is."""
    write_whole(path, text.encode("utf-8", "backslashreplace"))


def write_whole(path: AnyPath, data: bytes) -> None:
    """The same with bytes."""
    name = file_name(path)
    try:
        if _is_plain(name):
            _replace(os.path.realpath(name), data)  # what a link points to is replaced, not the link
        else:
            _write_all(name, data, os.O_WRONLY)
    except WriteError:
        raise
    except OSError as error:
        raise write_error(error, printable(name), os.path.dirname(name), 0, 0) from error


def append_lines(path: AnyPath, lines: Iterable[str]) -> None:
    """Add lines to a file, all or none of them; several processes may do so at once."""
    place = file_name(path)
    try:
        _write_all(place, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"), os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        raise write_error(error, printable(place), os.path.dirname(place), 0, 0) from error


def open_to_write(name: bytes) -> tuple[int, bool]:
    """A descriptor for writing a file from its start, and whether it is a plain file of that name, which is empty now."""
    number = _descriptor(name)
    if number is not None:
        return os.dup(number), False
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    return fd, stat.S_ISREG(os.fstat(fd).st_mode)


def tail_lines(path: AnyPath) -> Iterator[bytes]:
    """The lines of a plain file, of a large one those at its end; nothing of what cannot be read."""
    name = file_name(path)
    if _descriptor(name) is not None or not os.path.isfile(name):  # noqa: PTH113  pathlib takes no bytes
        return
    with contextlib.suppress(OSError), open(name, "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > _TAIL:
            file.seek(size - _TAIL)
            file.readline()  # from the next whole line on
        yield from file


def _is_plain(name: bytes) -> bool:
    """Whether a plain file is there, or nothing; or whether it will have to be told why that cannot be known."""
    if _descriptor(name) is not None or name.startswith(b"/proc/"):
        return False
    try:
        return stat.S_ISREG(os.stat(name).st_mode)  # noqa: PTH116  pathlib takes no bytes
    except OSError:
        return True


def _descriptor(name: bytes) -> int | None:
    found = _DESCRIPTOR.fullmatch(_STANDARD.get(name, name))
    return int(found[1]) if found else None


def _replace(place: bytes, data: bytes) -> None:
    """Put a file in the place of what is there, which keeps its mode; what can only be written to is written to."""
    mode = None
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(os.stat(place).st_mode)  # noqa: PTH116  pathlib takes no bytes
    try:
        publish(place, data, mode=mode)
    except WriteError as error:
        if mode is None or not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _NOT_REPLACED:
            raise
        _write_all(place, data, os.O_WRONLY | os.O_TRUNC)


def _write_all(name: bytes, data: bytes, flags: int) -> None:
    number = _descriptor(name)
    # Opened again, a file would be written from its start, over what is written by the descriptor.
    fd = os.dup(number) if number is not None else os.open(name, flags | os.O_CREAT | os.O_CLOEXEC, 0o666)
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        _take_back(fd, len(data) - len(view))
        raise
    finally:
        os.close(fd)


def _take_back(fd: int, written: int) -> None:
    """Remove the last bytes of a plain file, unless somebody else has added to them."""
    with contextlib.suppress(OSError):
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if written and os.fstat(fd).st_size == end:
            os.ftruncate(fd, end - written)
