"""py-lmdb: shuffled keys, a `get` each, copied to bytes; in this thread or in several."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any

from measure import SEED, Take
from shards import consume

#: batches that threads work on, or hold ready
WAITING = 4


@contextmanager
def lmdb_get(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """``Transaction.get`` of one key after the other."""
    with _reading(folder, batch, threads, _get) as take:
        yield take


@contextmanager
def lmdb_getmulti(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """``Cursor.getmulti`` of a batch of keys."""
    with _reading(folder, batch, threads, _getmulti) as take:
        yield take


def _get(transaction: Any, keys: list[bytes]) -> list[bytes]:
    return list(map(transaction.get, keys))


def _getmulti(transaction: Any, keys: list[bytes]) -> list[bytes]:
    return [value for _, value in transaction.cursor().getmulti(keys)]


@contextmanager
def _reading(folder: Path, batch: int, threads: int, get: Callable[[Any, list[bytes]], list[bytes]]) -> Iterator[Take]:
    import lmdb

    with lmdb.open(str(folder / "plain.lmdb"), subdir=False, lock=False, readonly=True, readahead=False) as environment:
        keys = _keys(environment, batch)
        if threads:
            with ThreadPoolExecutor(threads) as pool:
                yield consume(_in_threads(environment, keys, pool, get), _as_it_is, folder)
        else:
            with environment.begin() as transaction:
                yield consume((get(transaction, wanted) for wanted in keys), _as_it_is, folder)


def _keys(environment: Any, batch: int) -> Iterator[list[bytes]]:
    """Epoch after epoch, each in another order."""
    with environment.begin() as transaction:
        keys = list(transaction.cursor().iternext(keys=True, values=False))
    rng = random.Random(SEED)
    while True:
        rng.shuffle(keys)
        for start in range(0, len(keys) - batch + 1, batch):
            yield keys[start : start + batch]


def _in_threads(
    environment: Any, keys: Iterator[list[bytes]], pool: ThreadPoolExecutor, get: Callable[[Any, list[bytes]], list[bytes]]
) -> Iterator[list[bytes]]:
    own = local()

    def work(wanted: list[bytes]) -> list[bytes]:
        if not hasattr(own, "transaction"):
            own.transaction = environment.begin()
        return get(own.transaction, wanted)

    waiting: deque[Future[list[bytes]]] = deque()
    for wanted in keys:
        waiting.append(pool.submit(work, wanted))
        if len(waiting) >= WAITING:
            yield waiting.popleft().result()


def _as_it_is(batch: Any) -> Any:
    return batch
