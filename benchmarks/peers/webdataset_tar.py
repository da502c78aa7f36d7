"""webdataset: tar shards, shuffled in its buffer, in this process or in workers of its own loader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import SEED, Take, endless
from shards import consume, names


@contextmanager
def webdataset_tar(folder: Path, batch: int, window: int, workers: int) -> Iterator[Take]:
    """Shards in random order, a shuffle buffer, batches as plain lists, which is the cheapest collation there is."""
    import webdataset

    shards = webdataset.WebDataset(names(folder, "tar"), shardshuffle=100, seed=SEED)
    data = shards.shuffle(window).to_tuple("jpg").batched(batch, collation_fn=_list, partial=False)
    if workers:
        loader = webdataset.WebLoader(data.repeat(), batch_size=None, num_workers=workers, persistent_workers=True)
        yield consume(iter(loader), _as_it_is, folder)
    else:
        yield consume(endless(data), _as_it_is, folder)


def _list(samples: list[tuple[bytes]]) -> list[bytes]:
    return [sample[0] for sample in samples]


def _as_it_is(batch: Any) -> Any:
    return batch
