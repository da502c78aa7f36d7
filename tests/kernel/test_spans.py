"""Reading pieces of open files into one buffer."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stoker.errors import KernelError
from stoker.kernel.records import read_spans


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    (tmp_path / "a").write_bytes(bytes(range(256)))
    (tmp_path / "b").write_bytes(b"x" * 100_000 + b"end")
    opened = [os.open(tmp_path / name, os.O_RDONLY) for name in "ab"]
    yield opened
    for fd in opened:
        os.close(fd)


def read(fds: list[int], offsets: list[int], lengths: list[int], buffer: np.ndarray, at: list[int]) -> list[int]:
    return read_spans(np.array(fds, np.int32), np.array(offsets), np.array(lengths), buffer, np.array(at)).tolist()


def test_pieces_of_several_files_go_where_they_are_told(fds: list[int]) -> None:
    buffer = np.zeros(100_020, np.uint8)
    assert read([fds[1], fds[0], fds[1]], [0, 10, 99_998], [100_003, 5, 5], buffer, [0, 100_005, 100_012]) == [0, 0, 0]
    assert buffer[:100_003].tobytes() == b"x" * 100_000 + b"end"
    assert buffer[100_005:100_010].tolist() == [10, 11, 12, 13, 14]
    assert buffer[100_012:100_017].tobytes() == b"xxend"
    assert not buffer[100_003:100_005].any() and not buffer[100_017:].any()


def test_a_file_that_ends_early_or_cannot_be_read_says_so_and_the_others_are_read(fds: list[int], tmp_path: Path) -> None:
    buffer = np.zeros(30, np.uint8)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        errors = read([fds[0], 9999, fds[0], folder], [250, 0, 0, 0], [10, 10, 10, 1], buffer, [0, 10, 10, 29])
    finally:
        os.close(folder)
    assert errors == [-1, errno.EBADF, 0, errno.EISDIR]
    assert buffer[10:20].tolist() == list(range(10))


def test_nothing_to_read_is_fine(fds: list[int]) -> None:
    buffer = np.zeros(3, np.uint8)
    assert read([], [], [], buffer, []) == []
    assert read([fds[0]], [10_000], [0], buffer, [3]) == [0], "no bytes can be had even behind the end"


@pytest.mark.parametrize("offset, length, at", [(0, 4, 0), (0, 1, 3), (0, 1, -1), (-1, 1, 0), (0, -1, 0), (2**63 - 1, 1, 0)])
def test_a_place_outside_the_buffer_is_refused_before_anything_is_read(fds: list[int], offset: int, length: int, at: int) -> None:
    buffer = np.full(3, 7, np.uint8)
    with pytest.raises(KernelError, match="stk_read_spans"):
        read([fds[0], fds[0]], [0, offset], [1, length], buffer, [0, at])
    assert (buffer == 7).all()


def test_arrays_that_do_not_match_are_refused(fds: list[int]) -> None:
    with pytest.raises(KernelError, match="lengths"):
        read([fds[0]], [0], [1, 2], np.zeros(3, np.uint8), [0])
    frozen = np.zeros(3, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        read([fds[0]], [0], [1], frozen, [0])


def test_a_child_forked_while_a_worker_takes_memory_does_not_wait_for_that_worker() -> None:
    script = """
import os, signal
from stoker.kernel import file_reads as files
with files._buffers._lock:
    child = os.fork()
    if not child:
        signal.alarm(30)
        files._buffers.take(100)
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "7\n", done.stderr
