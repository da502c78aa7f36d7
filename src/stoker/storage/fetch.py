"""Reads many spans of many files at once: sorted, joined if they are close together, and read into a worker's arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import ReadError, RemoteError, StokerError
from ..kernel.file_reads import Arena
from ..kernel.records import read_spans
from .blob import Blob

Ints = NDArray[np.int64]

#: files whose descriptors are held at once; a chunk may touch any number
_HELD = 64


#: applies a function to each of some things and gives the results in order: `map`, or a crew, which works on many at once
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(slots=True)
class FetchedSpans:
    """Span i is ``data[at[i] : at[i] + lengths[i]]``, unless `errors` says why not."""

    data: NDArray[np.uint8]
    at: Ints
    errors: dict[int, Exception]


def fetch(blobs: Sequence[Blob], which: Ints, offsets: Ints, lengths: Ints, arena: Arena, each: Each = map) -> FetchedSpans:
    """Read span i, ``lengths[i]`` bytes at ``offsets[i]`` of ``blobs[which[i]]``, for all i; `each` requests many at once.

    Failures are reported span by span, regardless of how spans were joined. But a file whose server was given up, without a byte
    from it, is not requested again: all its remaining spans get that error.
    """
    order = np.lexsort((offsets, which))
    which, offsets, lengths = which[order], offsets[order], lengths[order]
    used = np.flatnonzero(np.bincount(which, minlength=1)).tolist()
    gaps = np.zeros(used[-1] + 1 if used else 1, np.int64)
    gaps[used] = [blobs[number].gap for number in used]
    runs = _Runs(which, offsets, lengths, gaps[which])
    if runs.total > arena.buffer.size:
        arena.grow(runs.total, keep=0)
    failed: dict[int, Exception | None] = {}
    reader = _SpanReader(blobs)
    for first in range(0, len(used), _HELD):
        failed.update(_read_files(reader, used[first : first + _HELD], runs, arena.buffer, each))
    places = runs.at[runs.number] + offsets - runs.offsets[runs.number]
    at = np.empty_like(places)
    at[order] = places
    errors: dict[int, Exception] = {}
    for span in np.flatnonzero(np.isin(runs.number, list(failed))).tolist() if failed else ():
        run = int(runs.number[span])
        error = failed[run]
        if error is None or runs.counts[run] > 1:  # of several spans some may be there
            out = arena.buffer[places[span] : places[span] + lengths[span]]
            error = reader.read(int(which[span]), int(offsets[span]), out)
        if error is not None:
            errors[int(order[span])] = error
    return FetchedSpans(arena.buffer, at, errors)


class _Runs:
    """Sorted spans, joined: run r begins at `offsets[r]` of file `which[r]` and lies at `at[r]` of the arena."""

    def __init__(self, which: Ints, offsets: Ints, lengths: Ints, gaps: Ints) -> None:
        ends = offsets + lengths
        lifted = np.cumsum(np.diff(which, prepend=which[:1]) != 0) << 44  # each file above those before it
        reach = np.maximum.accumulate(ends + lifted) - lifted
        begins = np.ones(len(which), np.bool_)
        begins[1:] = (which[1:] != which[:-1]) | (offsets[1:] - reach[:-1] > gaps[1:])
        firsts = np.flatnonzero(begins)
        self.number = np.cumsum(begins) - 1  # span -> run
        self.which, self.offsets = which[firsts], offsets[firsts]
        self.counts = np.diff(np.append(firsts, len(which)))  # spans of each
        self.lengths = (np.maximum.reduceat(ends, firsts) if len(firsts) else ends) - self.offsets
        self.at = np.cumsum(self.lengths) - self.lengths
        self.total = int(self.lengths.sum())


def _read_files(
    reader: _SpanReader, numbers: list[int], runs: _Runs, buffer: NDArray[np.uint8], each: Each
) -> dict[int, Exception | None]:
    """Read the runs of some files, those in local files by one native call; returns those that failed, and why."""
    begin, end = np.searchsorted(runs.which, [numbers[0], numbers[-1] + 1]).tolist()
    here = slice(begin, end)
    blobs = reader.blobs
    held = {number: blobs[number].hold() for number in numbers}
    try:
        table = np.full(numbers[-1] - numbers[0] + 1, -1, np.int32)
        table[np.asarray(numbers) - numbers[0]] = list(held.values())
        fds = table[runs.which[here] - numbers[0]]
        local = np.flatnonzero(fds >= 0) + begin
        status = read_spans(fds[fds >= 0], runs.offsets[local], runs.lengths[local], buffer, runs.at[local])
    finally:
        for number, fd in held.items():
            if fd >= 0:
                blobs[number].release(fd)
    failed: dict[int, Exception | None] = dict.fromkeys(local[status != 0].tolist())
    if len(local) < len(fds):
        far = (np.flatnonzero(fds < 0) + begin).tolist()
        why = each(lambda run: _read_run(reader, runs, run, buffer), far)
        failed.update({run: error for run, error in zip(far, why) if error is not None})
    return failed


def _read_run(reader: _SpanReader, runs: _Runs, run: int, buffer: NDArray[np.uint8]) -> Exception | None:
    at, length = int(runs.at[run]), int(runs.lengths[run])
    return reader.read(int(runs.which[run]), int(runs.offsets[run]), buffer[at : at + length])


class _SpanReader:
    """Reads of one call of `fetch`, by many threads. It remembers which files' servers were given up."""

    def __init__(self, blobs: Sequence[Blob]) -> None:
        self.blobs = blobs
        self._given_up: dict[int, RemoteError] = {}

    def read(self, which: int, offset: int, out: NDArray[np.uint8]) -> Exception | None:
        """Fill `out` from a place of a file; returns why it could not be done."""
        if which in self._given_up:
            return self._given_up[which]
        blob = self.blobs[which]
        try:
            blob.read_into(offset, memoryview(cast(Any, out)))
        except StokerError as error:
            if isinstance(error, RemoteError) and not error.moved:
                self._given_up[which] = error
            return error
        except OSError as error:
            refused = ReadError(f"{blob.url}: {error.strerror} at byte {offset:,}", origin=blob.url)
            refused.errno = error.errno
            return refused
        return None
