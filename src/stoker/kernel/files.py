"""The memory of `stoker.kernel.native.read_files`: names on one side, bytes on the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Paths:
    """Many file names as one buffer, made once and shared by every read.

    >>> Paths([b"a.jpg", b"b.jpg"]).path(1)
    b'b.jpg'
    """

    def __init__(self, paths: Sequence[bytes]) -> None:
        if any(b"\0" in path for path in paths):
            raise ValueError("a file name holds a NUL byte")
        self.starts = np.zeros(len(paths) + 1, np.int64)
        np.cumsum(np.fromiter((len(path) + 1 for path in paths), np.int64, len(paths)), out=self.starts[1:])
        self.names = np.frombuffer(b"\0".join(paths) + b"\0", np.uint8)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def path(self, i: int) -> bytes:
        """Return path `i`."""
        if not 0 <= i < len(self):
            raise IndexError(f"path {i} of {len(self)}")
        return self.names[self.starts[i] : self.starts[i + 1] - 1].tobytes()


class Arena:
    """A buffer that grows and is used again; what was read into it is valid until the next read."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        self.buffer: NDArray[np.uint8] = np.empty(capacity, np.uint8)

    def grow(self, capacity: int, keep: int) -> None:
        """Make room for `capacity` bytes, keeping the first `keep`. Arrays handed out before stay valid."""
        larger = np.empty(max(capacity, 2 * self.buffer.size), np.uint8)
        larger[:keep] = self.buffer[:keep]
        self.buffer = larger
