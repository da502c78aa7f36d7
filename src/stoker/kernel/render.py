"""From where images are stored to finished pixels: reading and decoding in one native call, which lets go of the GIL once.

Beside a busy training loop a worker waits milliseconds for the GIL each time it has let go of it; and what it does while it has
it, the loop waits for. So a task's images take one call, and what can be prepared for many calls is prepared here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.file_reads import Arena, Paths
from stoker.kernel.library import library, place
from stoker.kernel.native import ROW_DTYPE, Decoder, Images, Program
from stoker.kernel.records import RecordTable, Spots, Wanted, number_column, wanted_table
from stoker.kernel.status import Status

_INT64 = np.dtype(np.int64)
# stk_pictures: what is told, and from byte 80 on what is answered
_TOLD, _ANSWER, _ANSWER_AT = struct.Struct("10q3q"), struct.Struct("3q"), 80


class StoredSeeks:
    """Seek indices that lie in files, for one worker to find: those of file or record n are row n of a table of one field.

    `longest` is the length of the longest; `sums` are the CRC-32C of the pictures, where these are to be compared.
    """

    def __init__(self, table: RecordTable, fds: NDArray[np.int32], longest: int, sums: NDArray[np.uint32] | None = None) -> None:
        self._records = table.opened(fds)
        self._buffer = np.empty(max(1, longest), np.uint8)
        self._sums = None if sums is None else np.ascontiguousarray(sums, np.uint32)
        at = [self._records.at, place(self._buffer), self._buffer.size, 0 if self._sums is None else place(self._sums)]
        self._struct = np.array(at, np.int64)
        self.at = place(self._struct)


class Pictures:
    """Pictures of one program and size (height, width), made by one worker.

    `seeks` are the seek indices of all files or records. After a call `rows` tells what became of each (`ROW_DTYPE`;
    valid until the next call), `bad` how many have a status other than 0, and `read_s` the time spent reading. `out`, as long as
    `positions`, holds the pixels; those of bad ones are undefined.
    """

    def __init__(self, decoder: Decoder, arena: Arena, program: Program, size: tuple[int, int]) -> None:
        self.bad, self.read_s = 0, 0.0
        self._count = self._done = 0
        self.rows: NDArray[np.void] = np.zeros(0, ROW_DTYPE)
        self._decoder, self._arena, self._program = decoder, arena, program
        self._shape, self._dtype = program.shape(*size), program.dtype
        self._stride = int(np.prod(self._shape)) * self._dtype.itemsize
        self._height, self._width = size
        self._program_at, self._rows_at = place(program._struct), 0
        self._struct, self._needed = bytearray(_TOLD.size), np.zeros(1, np.int64)
        self._struct_at, self._needed_at = place(np.frombuffer(self._struct, np.uint8)), place(self._needed)
        # Addresses are asked for anew only where the object is another than last time.
        self._buffer: NDArray[np.uint8] | None = None
        self._buffer_at = 0
        self._paths: Paths | None = None
        self._paths_at: tuple[int, int, int] = (0, 0, 0)

    def files(
        self,
        paths: Paths,
        which: NDArray[np.int64],
        epoch: int,
        positions: NDArray[np.int64],
        out: NDArray[Any],
        seeks: StoredSeeks | None = None,
    ) -> int:
        """Make picture i from file ``which[i]``; returns `bad`. A file that cannot be read has `Status.IO`, errno in `where`."""
        which, positions = np.ascontiguousarray(which, _INT64), np.ascontiguousarray(positions, _INT64)
        count = self._prepare(which, epoch, positions, out, seeks)
        if paths is not self._paths:
            self._paths, self._paths_at = paths, (place(paths.names), place(paths.starts), len(paths))
        arena, call = self._arena, library().image_files
        which_at = place(which)
        while call(
            *self._paths_at, which_at, count, self._room(), arena.buffer.size, self._needed_at, self._struct_at
        ):  # fmt: skip
            if refused := arena.room_for_file(int(self._needed[0]), keep=0):
                self._pass_over(refused)
        return self._told()

    def records(
        self,
        table: RecordTable,
        fds: NDArray[np.int32],
        indices: NDArray[np.int64],
        fields: NDArray[np.int64],
        image: int,
        epoch: int,
        positions: NDArray[np.int64],
        out: NDArray[Any],
        *,
        behind: int = 0,
        gap: int = 0,
        seeks: StoredSeeks | None = None,
    ) -> Spots | None:
        """Read columns as `RecordTable.read` does, and make picture i from column ``fields[image]`` of record ``indices[i]``.

        None, and no picture, when a span could not be read or a record has no image.
        """
        positions = np.ascontiguousarray(positions, _INT64)
        count = self._prepare(indices, epoch, positions, out, seeks)
        spots = table.read(fds, indices, fields, self._arena, behind, gap, into=(image, self._struct_at))
        self._told()
        return spots if self._done == count else None

    def arrays(
        self, images: Images, indices: NDArray[np.int64], epoch: int, positions: NDArray[np.int64], out: NDArray[Any]
    ) -> int:
        """Make picture i from image ``indices[i]``, read from where it stands; returns `bad`."""
        indices, positions = np.ascontiguousarray(indices, _INT64), np.ascontiguousarray(positions, _INT64)
        count = self._prepare(indices, epoch, positions, out, None)
        library().image_arrays(images.at, len(images), place(indices), count, self._struct_at)
        return self._told()

    def examples(
        self,
        table: RecordTable,
        fds: NDArray[np.int32],
        indices: NDArray[np.int64],
        wanted: Sequence[Wanted],
        outs: Sequence[NDArray[Any] | None],
        image: int,
        images: Images,
        epoch: int,
        positions: NDArray[np.int64],
        out: NDArray[Any],
        *,
        behind: int = 0,
        gap: int = 0,
    ) -> list[NDArray[Any] | None] | None:
        """Make picture i from the bytes of feature ``wanted[image]`` in the Example that is record ``indices[i]``.

        They are an image like those of `images`, as it is. The other features are fixed numbers; their columns are returned (in
        ``outs[i]`` where that fits), with None in the place of the image. None when a record is anything but that.
        """
        indices, positions = np.ascontiguousarray(indices, _INT64), np.ascontiguousarray(positions, _INT64)
        count = self._prepare(indices, epoch, positions, out, None)
        columns = [() if at == image else number_column(each, count, outs[at]) for at, each in enumerate(wanted)]
        _names, features = wanted_table(wanted, columns)
        records, arena, call = table.opened(fds), self._arena, library().image_examples
        indices_at, features_at = place(indices), place(features)
        while call(
            records.at, indices_at, count, behind, gap, self._room(), arena.buffer.size, self._needed_at, features_at,
            len(wanted), image, images.at, self._struct_at,
        ):  # fmt: skip
            arena.grow(int(self._needed[0]), keep=0)
        self._told()
        return [column[0] if column else None for column in columns] if self._done == count else None

    def errnos(self) -> dict[int, int]:
        """Of the files that could not be read: row -> errno."""
        rows = self.rows[: self._count]
        return {row: int(rows["where"][row]) for row in np.flatnonzero(rows["status"] == Status.IO).tolist()}

    def _prepare(
        self,
        numbers: NDArray[np.int64],
        epoch: int,
        positions: NDArray[np.int64],
        out: NDArray[Any],
        seeks: StoredSeeks | None,
    ) -> int:
        count = self._count = len(positions)
        shape = out.shape
        if shape[1:] != self._shape or shape[0] != count or numbers.shape != (count,) or positions.ndim != 1:
            raise KernelError(f"{len(numbers)} images at {count} positions do not fit pixels of shape {shape}")
        if out.dtype != self._dtype or not out.flags.carray:
            raise KernelError(f"out must be one writeable run of {self._dtype}{self._shape}; it is {out.dtype}{shape}")
        if count > len(self.rows):
            self.rows = np.zeros(max(count, 2 * len(self.rows)), ROW_DTYPE)
            self._rows_at = place(self.rows)
        seeks_at = 0 if seeks is None else seeks.at
        _TOLD.pack_into(
            self._struct, 0, self._decoder.handle, self._program_at, seeks_at, place(positions), epoch, self._width, self._height,
            place(out), self._stride, self._rows_at, 0, 0, 0,
        )  # fmt: skip
        return count

    def _pass_over(self, code: int) -> None:
        """Note that the file of the row that comes next was not read, and go on with the one after it."""
        done, bad, nanoseconds = _ANSWER.unpack_from(self._struct, _ANSWER_AT)
        self.rows[done] = np.zeros((), ROW_DTYPE)
        self.rows["status"][done], self.rows["where"][done] = Status.IO, code
        _ANSWER.pack_into(self._struct, _ANSWER_AT, done + 1, bad + 1, nanoseconds)

    def _room(self) -> int:
        if self._arena.buffer is not self._buffer:
            self._buffer = self._arena.buffer
            self._buffer_at = place(self._buffer)
        return self._buffer_at

    def _told(self) -> int:
        self._done, self.bad, nanoseconds = _ANSWER.unpack_from(self._struct, _ANSWER_AT)
        self.read_s = nanoseconds * 1e-9
        return self.bad
