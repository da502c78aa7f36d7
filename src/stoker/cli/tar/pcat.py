"""`stoker tar pcat`: several shards read at once, interleaved and shuffled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Annotated

from ...engine.pump import Pump
from ...sizes import parse_bytes
from ...source.streams.tar_stream import TarSample
from ..progress import PipeProgress, Progress
from ..screen import amount
from .buffer_shuffle import Memory, Seed, permuted, shuffled
from .cat import Count, complain
from .inputs import Shards, shard_names, shard_samples
from .outputs import Output, Overwrite, archive

#: samples and bytes that each reader may be ahead, and how long it may give nothing
_AHEAD, _AHEAD_BYTES, _STALL_S = 32, 16 << 20, 900.0


def pcat(
    shards: Shards = None,
    jobs: Annotated[int, amount("Shards read in parallel.", "-j", "--jobs")] = 8,
    count: Count = None,
    shuffle: Annotated[int, amount("Shuffle the shards, and samples within a buffer of N; 0 only interleaves.", least=0)] = 1000,
    seed: Seed = 0,
    memory: Memory = "2GB",
    output: Output = "-",
    overwrite: Overwrite = False,
    progress: PipeProgress = None,
) -> None:
    """Concatenate and shuffle shards, reading several in parallel.

    The `-j` open shards contribute one sample each in turn, and when one ends the next is opened; the result then goes through
    the buffer of `--shuffle`. The order depends on the shards, `-j`, `--shuffle` and `--seed`, never on which shard was faster,
    so the same command always produces the same archive.

    Example: `stoker tar pcat 's3://bucket/train-{0000..0147}.tar' -j 16 --shuffle 5000 --seed 1 | stoker tar split -o mixed`
    """
    names, most = shard_names(shards), parse_bytes(memory, "--memory")
    with archive(output, overwrite, names) as out, Progress("pcat", shown=progress, stays=True) as meter:
        samples = interleaved(permuted(names, seed) if shuffle else names, jobs)
        if shuffle > 1:
            samples = shuffled(samples, shuffle, seed, most, complain)
        for sample in meter.watch(islice(samples, count)):
            out.write(sample)


def interleaved(names: Sequence[str], width: int) -> Iterator[TarSample]:
    """One sample from each of `width` shards in turn, read by threads; the order does not depend on their speed."""
    waiting = iter(names)
    readers = [_ShardReader(name) for name in islice(waiting, width)]
    at = 0
    try:
        while readers:
            sample = readers[at].take()
            if sample is not None:
                yield sample
                at = (at + 1) % len(readers)
            elif (name := next(waiting, None)) is not None:
                readers[at] = _ShardReader(name)
            else:
                del readers[at]
                at = at % len(readers) if readers else 0
    finally:
        for reader in readers:
            reader.close()


class _ShardReader:
    """A shard that a thread reads ahead."""

    def __init__(self, name: str) -> None:
        self._pump = Pump(partial(shard_samples, name), _AHEAD, 2, _STALL_S, True, _AHEAD_BYTES, attrgetter("nbytes"))
        self._ready: deque[TarSample] = deque()

    def take(self) -> TarSample | None:
        """The next sample; None at the end."""
        if not self._ready:
            self._ready.extend(self._pump.get(block=True) or ())
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        self._pump.close()
