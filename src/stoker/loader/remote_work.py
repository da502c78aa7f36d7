"""The work of batches and segments done by other programs: rows are requested by their places and come back as columns."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..batch.draft import column_bytes
from ..batch.slab import Slab, plain_memory
from ..batch.written_rows import Placed, WrittenRows
from ..engine.executor import TaskWork
from ..errors import ConfigError
from ..kernel.native import copy_past_caches
from ..observe.run_settings import package_version
from ..plan.code_digest import named_here, node_text
from ..plan.nodes import Cached, describe
from ..plan.order import Places
from ..plan.plan import Plan
from ..remote.carrier import Carrier
from ..remote.curve_keys import read_caller, read_listener
from ..remote.frames import (
    MAX_ROWS,
    PROTOCOL,
    Buffer,
    BufferQueue,
    Call,
    FrameError,
    GivenNames,
    RowsResult,
    RowsTask,
    numbers_of,
    packed,
    read_numbers,
)
from ..remote.listening_port import ListeningPort
from ..remote.pool_link import PoolLink
from ..remote.pool_memory import PoolMemory
from ..remote.pool_service import PooledPipeline, PoolService
from ..remote.remote_executor import RemoteExecutor, RemoteSetting
from ..remote.row_frames import (
    check_target,
    column_frame,
    names_frame,
    owned,
    read_columns,
    read_names,
    read_report,
    read_slots,
    report_frame,
)
from ..remote.wire_addresses import check_keys, checked_address, is_private
from ..remote.worker_service import WorkerService
from ..source.chunk import Chunk, Column, Ints
from ..source.sample_names import SourceNames
from ..source.source import Source, digest
from ..storage.sample_cache import SampleCache
from ..storage.scratch import Scratch
from .batch_units import BatchPart, BatchWork, SegmentWork
from .build import compile_work, layout_of, rows_layout

#: a pool's tasks: about so long, of so many bytes and rows at most; rows that are tried for that, and where that fails
_TASK_S, _TASK_BYTES, _MOST_TASK_ROWS, _TRIED, _USUAL_ROWS = 0.064, 24 << 20, 4096, 8, 16
#: bytes of memory for rows that a worker keeps while they are unused
_WORKER_KEEPS = 128 << 20
_STREAMED = (
    "samples of a stream can only be read one after another, by the trainer itself; pack them into shards with `stoker pack`"
)
_MAKE_KEYS = "make keys with `stoker keys FOLDER` and pass"
_MAKE_POOL_KEYS = "make keys with `stoker keys FOLDER --pool` and pass"
#: positions of an epoch, of which there may be many: repeat(None) never ends
_MOST_PLACES = 1 << 62


def carrier_of(plan: Plan, work: TaskWork[Any, Any]) -> Carrier | None:
    """What carries this work to other programs; None: it stays here, because its tasks do not begin with places in the source."""
    if not isinstance(plan.source, Source):
        return None
    if isinstance(work, BatchWork) and plan.counted:
        return _BatchCarrier(plan, plan.source, work)
    if isinstance(work, SegmentWork) and work.runner.reads:
        return _SegmentCarrier(plan.source, work)
    return None


def carriers_of(plan: Plan, cache: SampleCache | None) -> dict[str, Carrier]:
    """What a worker can be asked for, by kind."""
    final, segments = compile_work(plan, layout_of(plan, 1), cache)
    works: list[TaskWork[Any, Any]] = [final, *segments]
    found = [carrier for work in works if (carrier := carrier_of(plan, work)) is not None]
    return {carrier.kind: carrier for carrier in found}


def handshake_of(plan: Plan) -> dict[str, str]:
    """What trainer and workers must have in common, by name: what is made of a sample, and of which samples.

    Functions are identified by their own names and code, not by their module: a script is `__main__` where it runs.
    """
    fields = "\n".join(f"{name}: {spec}" for name, spec in (plan.specs or {}).items())
    identity = plan.identity()
    steps = [step.node for work in plan.works for step in work.steps]
    nodes = [node for segment in plan.segments for node in segment.nodes] + [*plan.stages]
    return {
        "source": identity["source"],
        "samples": f"{len(plan.source):,}" if isinstance(plan.source, Source) else "",
        "order": identity["order"],
        "stages": digest("stages", *(named_here(describe(node), node) for node in nodes if not isinstance(node, Cached))),
        "functions": digest("functions", *(named_here(node_text(node), node) for node in steps if not isinstance(node, Cached))),
        "fields": digest("fields", fields, *plan.wanted),
        "seed": str(plan.seed),
        "on_error": "raise" if plan.policy is None else "skip",
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
    }


def stoker_version() -> str:
    return package_version("stoker")


def _places_of(task: RowsTask, source: Source) -> Places:
    count = len(task.positions) // 8
    if not 0 < count <= MAX_ROWS:
        raise FrameError(f"a task of {count:,} rows")
    positions = read_numbers(task.positions, "positions", _MOST_PLACES, count)
    return Places(positions, read_numbers(task.indices, "indices", len(source), count), task.epoch)


def _task_of(rows: Any) -> RowsTask | None:
    if not isinstance(rows, Places) or len(rows) > MAX_ROWS:
        return None
    return RowsTask(rows.epoch, numbers_of(rows.positions), numbers_of(rows.indices))


class _BatchCarrier(Carrier):
    """Rows of batches: those of fixed shape lie in the slab, and go there again."""

    kind = "batch"

    def __init__(self, plan: Plan, source: Source, work: BatchWork) -> None:
        self._plan, self._source, self._work = plan, source, work
        self._steps = len(work.runner.steps)
        self._beside = 0.0  # bytes of a row that are not in the slab, as far as rows so far can tell
        self.allocate: Callable[[int], Any] = lambda nbytes: plain_memory(nbytes)[0]  # for rows that are made here

    def asked(self, content: Any) -> RowsTask | None:
        return _task_of(content.rows) if isinstance(content, BatchPart) else None

    def nbytes(self, content: Any) -> int:
        layout = content.slab.layout
        return int(len(content.rows) * (layout.nbytes / max(1, layout.rows) + self._beside))

    def make(self, task: RowsTask, scratch: Scratch) -> tuple[RowsResult, list[Buffer]]:
        places = _places_of(task, self._source)
        layout = rows_layout(self._plan, len(places))
        slab = Slab(layout, self.allocate(layout.nbytes + 64))
        written = self._work(BatchPart(places, 0, slab), scratch)
        assert isinstance(written, WrittenRows)
        slots, buffers = written.slots, list[Buffer]()
        whole = len(slots) == len(places)
        columns: dict[str, Column] = {}
        if len(slots):
            columns = {name: array if whole else array[slots] for name, array in slab.arrays.items()}
            columns |= {name: column for name, column in written.loose.items() if not isinstance(column, Placed)}
        frames = [column_frame(name, column, buffers) for name, column in columns.items()]
        names = names_frame(written.names, len(slots))
        return RowsResult(report_frame(written.report), frames, None if whole else numbers_of(slots), names=names), buffers

    def received(self, content: BatchPart, result: RowsResult, buffers: BufferQueue) -> Callable[[], WrittenRows]:
        places, first, slab = content.rows, content.first, content.slab
        assert isinstance(places, Places)
        rows, hoped = len(places), slab.layout.hoped
        slots = read_slots(result.slots, rows)
        report = read_report(result.report, self._steps, rows)
        columns = read_columns(result.columns, buffers, len(slots))
        names = read_names(result.names, self._source, places.indices[slots], len(slots))
        if len(slots):
            _check_fields(columns, {name for name in slab.arrays if name not in hoped} | self._work.needed)
        targets = {name: array[first : first + rows] for name, array in slab.arrays.items()}
        placed = {
            name: check_target(name, columns[name], target, len(slots))
            for name, target in targets.items()
            if name in columns and name not in hoped
        }
        fitting = {name: found for name in hoped if (found := _stacked(columns.get(name), targets[name])) is not None}
        loose: dict[str, Column | Placed] = {
            name: Placed.PLACED if name in fitting else column
            for name, column in owned({name: column for name, column in columns.items() if name not in placed}).items()
        }
        nbytes = sum(column_bytes(column) for column in loose.values() if not isinstance(column, Placed))
        if len(slots):
            self._beside += 0.25 * (nbytes / len(slots) - self._beside)

        def write() -> WrittenRows:
            for name, column in placed.items():
                if len(slots) == rows:
                    copy_past_caches(column, targets[name])
                else:
                    targets[name][slots] = column
            for name, values in fitting.items():
                targets[name][slots] = values
            return WrittenRows(first, slots, loose, nbytes, names, report)

        return write


def _check_fields(columns: Mapping[str, Column], needed: set[str]) -> None:
    if not needed <= columns.keys():
        raise FrameError(f"the field {sorted(needed - columns.keys())[0]!r} was not sent")


def _stacked(column: Column | None, target: Any) -> list[Any] | None:
    """Rows that have the shape and type of their places in the slab; None: they do not."""
    if not isinstance(column, list) or not column:
        return None
    fits = all(type(row) is np.ndarray and row.shape == target.shape[1:] and row.dtype == target.dtype for row in column)
    return column if fits else None


class _SegmentCarrier(Carrier):
    """Samples that are filtered or expanded: all of their columns come back."""

    kind = "segment"

    def __init__(self, source: Source, work: SegmentWork) -> None:
        self._source, self._work = source, work
        self._steps = len(work.runner.steps)
        self._row_bytes = 0.0

    def asked(self, content: Any) -> RowsTask | None:
        return _task_of(content)

    def nbytes(self, content: Any) -> int:
        return int(len(content) * self._row_bytes)

    def make(self, task: RowsTask, scratch: Scratch) -> tuple[RowsResult, list[Buffer]]:
        chunk, report = self._work(_places_of(task, self._source), scratch)
        buffers: list[Buffer] = []
        frames = [column_frame(name, column, buffers) for name, column in chunk.columns.items()] if len(chunk) else []
        slots, positions, parents = (numbers_of(each) for each in (chunk.slots, chunk.positions, chunk.parents))
        return RowsResult(report_frame(report), frames, slots, positions, parents, _names_by_index(chunk)), buffers

    def received(self, content: Places, result: RowsResult, buffers: BufferQueue) -> Callable[[], tuple[Chunk, Any]]:
        rows = len(content)
        if result.slots is None or result.positions is None or result.parents is None or result.names is None:
            raise FrameError("samples were sent without their positions")
        slots = read_numbers(result.slots, "rows", rows)
        positions, parents = (
            read_numbers(data, what, _MOST_PLACES, len(slots))
            for data, what in ((result.positions, "positions"), (result.parents, "parents"))
        )
        report = read_report(result.report, self._steps, rows)
        columns = owned(read_columns(result.columns, buffers, len(slots)))
        indices: Ints = np.empty(0, np.int64)
        given: GivenNames | None = result.names
        if len(slots) and not result.names.keys:
            indices, given = read_numbers(result.names.indices, "indices", len(self._source), len(slots)), None
        names = read_names(given, self._source, indices, len(slots))
        if len(slots):
            self._row_bytes += 0.25 * (sum(map(column_bytes, columns.values())) / rows - self._row_bytes)
        return lambda: (Chunk(columns, positions, slots, parents, content.epoch, names), report)


def _names_by_index(chunk: Chunk) -> GivenNames:
    """Names of samples, which for those of the source are their numbers there."""
    if not isinstance(chunk.names, SourceNames):
        named = names_frame(chunk.names, len(chunk))
        assert named is not None
        return named
    return GivenNames([], [], numbers_of(np.array([chunk.names.index(row) for row in range(len(chunk))], np.int64)))


def remote_executor(at: str, keys: Any, threads: int | None, usual: int, plan: Plan) -> RemoteExecutor:
    """Threads of this process, and workers that connect to `at`, if the trainer's file `keys` admits them."""
    asked = f"loader(workers_at={at!r})"
    address = checked_address(at, asked)
    check_keys(address, keys is not None, asked, f"{_MAKE_KEYS} loader(worker_keys='FOLDER/trainer.key')")
    accepts = None if keys is None else read_listener(keys)
    setting = RemoteSetting(
        lambda wake: ListeningPort(address, accepts, wake, asked),
        stoker_version(),
        handshake_of(plan),
        partial(carrier_of, plan),
        shy=threads == 0,
    )
    return RemoteExecutor(usual if threads is None else max(1, threads), Scratch, setting=setting)


def pooled_executor(at: str | Sequence[str], keys: Any, threads: int | None, usual: int, plan: Plan) -> RemoteExecutor:
    """The pools at these addresses; and threads of this process, for what they do not do, or while none of them is there."""
    addresses = []
    for each in at if isinstance(at, (list, tuple)) else [at]:
        asked = f"loader(pool={each!r})"
        addresses.append(checked_address(each, asked, connects=True))
        check_keys(addresses[-1], keys is not None, asked, f"{_MAKE_POOL_KEYS} loader(pool_keys='FOLDER/trainer.key')")
    if not addresses:
        raise ConfigError("loader(pool=[]): the list of addresses is empty; write pool='tcp://HOST:PORT', or omit it")
    own = None if keys is None else read_caller(keys)
    identity, host = handshake_of(plan), socket.gethostname()[:200]
    call = packed(Call(PROTOCOL, stoker_version(), identity, host, os.getpid(), secrets.token_bytes(16)))
    setting = RemoteSetting(
        lambda wake: PoolLink([*dict.fromkeys(addresses)], own, wake, call),
        stoker_version(),
        identity,
        partial(carrier_of, plan),
        shy=True,
        pooled=True,
    )
    return RemoteExecutor(threads or usual, Scratch, setting=setting)


def pool_service(
    plans: Mapping[str, Plan],
    address: str,
    keys: Any,
    threads: int,
    memory: int,
    caches: Mapping[str, SampleCache | None],
    say: Callable[[str], None],
    wait_for: int = 1,
) -> PoolService:
    """A pool at `address` for trainers of these pipelines; `keys` is the pool's key file, or None."""
    asked = f"stoker serve --at {address}"
    checked = checked_address(address, asked)
    check_keys(checked, keys is not None, asked, f"{_MAKE_POOL_KEYS} --keys FOLDER/pool.key")
    return PoolService(
        checked,
        [_pooled(name, plan, caches.get(name), asked) for name, plan in plans.items()],
        keys=None if keys is None else read_listener(keys),
        version=stoker_version(),
        threads=threads,
        memory=memory,
        make_scratch=Scratch,
        say=say,
        asked=asked,
        wait_for=wait_for,
    )


def _pooled(name: str, plan: Plan, cache: SampleCache | None, asked: str) -> PooledPipeline:
    def carriers(seed: int, allocate: Callable[[int], Any]) -> dict[str, Carrier]:
        found = carriers_of(replace(plan, seed=seed), cache)
        _allocate_by(found, allocate)
        return found

    found = carriers_of(plan, cache)
    if not found:
        raise ConfigError(f"{asked} {name}: {_STREAMED}")
    return PooledPipeline(name, handshake_of(plan), _task_rows(plan, found), carriers)


def _allocate_by(carriers: Mapping[str, Carrier], allocate: Callable[[int], Any]) -> None:
    """Have rows made in memory of this kind."""
    for carrier in carriers.values():
        if isinstance(carrier, _BatchCarrier):
            carrier.allocate = allocate


def _task_rows(plan: Plan, carriers: Mapping[str, Carrier]) -> int:
    """How many rows the tasks of a pool should have: a power of two, so that batches of many sizes are cut at the same places.

    It is found by making a few; where that fails, who asks for them will hear why.
    """
    carrier, length = carriers.get("batch"), plan.order.length if plan.order is not None else 0
    count = _TRIED if length is None else min(_TRIED, length)
    if carrier is None or plan.order is None or not count:
        return 0
    task = _task_of(plan.order.places(np.arange(count, dtype=np.int64), 0))
    scratch = Scratch()
    try:
        assert task is not None
        took_s = []
        for _ in range(4):  # the first pays for what is only done once, and a busy machine may hold up others
            begun = time.perf_counter()
            _, buffers = carrier.make(task, scratch)
            took_s.append(time.perf_counter() - begun)
        row_s, row_bytes = min(took_s) / count, sum(map(len, buffers)) / count
    except Exception:  # noqa: BLE001  a bad sample, or a server that is away: not the pool's to judge
        return _USUAL_ROWS
    finally:
        scratch.close()
    most = min(_TASK_S / max(row_s, 1e-7), _TASK_BYTES / max(1.0, row_bytes), _MOST_TASK_ROWS)
    return 1 << max(0, int(most).bit_length() - 1)


def worker_service(
    plan: Plan,
    address: str,
    keys: Any,
    threads: int,
    cache: SampleCache | None,
    say: Callable[[str], None],
    once: bool = False,
    successor: bool = False,
    worked: Callable[[], object] = lambda: None,
) -> WorkerService:
    """A worker for the trainer at `address`; `keys` is its key file, or None. The rest is as for `WorkerService`."""
    asked = f"stoker worker --connect {address}"
    checked = checked_address(address, asked, connects=True)
    check_keys(checked, keys is not None, asked, f"{_MAKE_KEYS} --keys FOLDER/worker.key")
    carriers = carriers_of(plan, cache)
    if not carriers:
        raise ConfigError(f"{asked}: {_STREAMED}")
    memory = PoolMemory(_WORKER_KEEPS) if is_private(checked) else None
    if memory is not None:
        _allocate_by(carriers, memory.allocate)
    return WorkerService(
        checked,
        carriers,
        keys=None if keys is None else read_caller(keys),
        version=stoker_version(),
        identity=handshake_of(plan),
        threads=threads,
        make_scratch=Scratch,
        say=say,
        once=once,
        successor=successor,
        worked=worked,
        memory=memory,
    )
