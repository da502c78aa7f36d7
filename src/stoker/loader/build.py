"""The parts of a loader, chosen once from the plan: how work is grouped and laid out, the work itself, and the executor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..batch.collate import STACK_EQUAL
from ..batch.slab import Allocate, Layout
from ..batch.written_rows import Report
from ..device import Output
from ..engine.auto_executor import AutoExecutor
from ..engine.auto_policy import AutoPolicy
from ..engine.executor import Executor, Outcome
from ..engine.executor_names import EXECUTORS
from ..engine.main_guard import check_processes, in_worker, note_loader
from ..engine.preflight import preflight
from ..engine.schedule import Window
from ..errors import ConfigError
from ..observe.explain_plan import explain_plan
from ..observe.meters import Meters, StepName
from ..observe.stats import ExecutorStats
from ..plan.deal import WHOLE, Deal, StepTurns
from ..plan.nodes import Cached, Image
from ..plan.order import Places
from ..plan.plan import Plan
from ..plan.ranks import ALONE, rank_of
from ..registry import needed
from ..sizes import parse_bytes
from ..source.chunk import BYTES, Ints
from ..source.source import Source
from ..stage.finish import Finish
from ..stage.io_retries import IoRetries
from ..stage.runner import Reader, Runner, make_stages
from ..storage.sample_cache import SampleCache
from ..storage.scratch import NO_NOTES, Notes, Scratch
from .batch_units import BatchWork, Observer, Rows, SegmentWork
from .loader_options import MEMORY
from .look_ahead import rank_positions
from .origin_times import OriginTimes
from .slow_rows import SlowRows
from .step_count import evening
from .thread_count import core_share, default_threads, moves_told

_log = logging.getLogger("stoker")
#: what tasks note of pictures, as it is called in the statistics; damage is counted with a batch
_NOTED = [each.name for each in fields(Notes) if each.name not in ("unfit", "damage", "damaged")]
#: the part of the memory for batches that records take which are fetched ahead over a network
AHEAD_SHARE = 4
#: single samples are worked on this many at a time
_SAMPLES = 32
#: memory the automatic look-ahead fills, and the most batches it holds
_AHEAD_BYTES, _AHEAD_MOST = 64 << 20, 64
#: small batches are made together, up to this many bytes and this many of them
_GROUP_BYTES, _GROUP_MOST = 4 << 20, 32


def group_of(plan: Plan, ahead: int | None) -> int:
    """How many steps to make at once: more than one where batches are small and nothing has to be done to each as a whole."""
    if plan.batch is None:
        return _SAMPLES
    nbytes = batch_bytes(plan)
    plain = plan.counted and not plan.finishing.steps and plan.policy is None and not loose_fields(plan, layout_of(plan, 1))
    if not plain or not nbytes:
        return 1
    return max(1, min(_GROUP_MOST, _GROUP_BYTES // nbytes, _GROUP_MOST if ahead is None else ahead // 2))


def batch_bytes(plan: Plan) -> int:
    """About how many bytes a batch takes; 0: not known."""
    if plan.batch is None or not plan.specs or not isinstance(plan.source, Source):
        return 0
    columns = plan.work.columns or {}
    sizes = [spec.nbytes if spec.fixed else plan.source.size_of(columns[name]) for name, spec in plan.specs.items()]
    return sum(sizes) * plan.batch.size if all(sizes) else 0


def loose_fields(plan: Plan, layout: Layout) -> bool:
    """Whether some field's rows have to be joined when all are there: those of unknown shape, and byte strings with a rule."""
    if plan.specs is None:
        return True
    placed = {name for name, _, _, _ in layout.fields}
    ruled = {name for name, _ in plan.batch.pad} if plan.batch else set()
    return any(name not in placed and (spec != BYTES or name in ruled) for name, spec in plan.specs.items())


def layout_of(plan: Plan, group: int) -> Layout:
    return rows_layout(plan, (plan.batch.size if plan.batch else 1) * group)


def rows_layout(plan: Plan, rows: int) -> Layout:
    """The layout of a number of rows of a batch."""
    listed = {name for name, rule in plan.batch.pad if rule is list} if plan.batch else set()
    specs = {name: spec for name, spec in (plan.specs or {}).items() if name not in listed}
    return Layout.of(specs, rows)


def known_shapes(plan: Plan, deal: Deal) -> dict[str, tuple[int | None, ...]]:
    """Shapes that a field has in all batches, as far as they are known beforehand; None: batches have several lengths."""
    if plan.finish:
        return {}
    rows = () if plan.batch is None else (None if evening(plan, deal) else plan.batch.size,)
    return {name: (*rows, *shape[1:]) for name, _, shape, _ in layout_of(plan, 1).fields}


def can_hope(name: str, column: Any, layout: Layout, rules: Mapping[str, Any] | None) -> bool:
    """Whether a column joined from rows outside the slab may consist of arrays of one shape and type."""
    if name in {known for known, *_ in layout.fields} or not isinstance(column, np.ndarray):
        return False
    return (rules or {}).get(name) in (None, STACK_EQUAL) and column.ndim > 1 and column.size > 0 and column.dtype.kind in "biufc"


def compile_work(plan: Plan, layout: Layout, cache: SampleCache | None = None) -> tuple[BatchWork, list[SegmentWork]]:
    """The work of the final tasks, and of each segment; without its `cache`, a plan makes every sample."""
    skip = plan.policy is not None
    source = plan.source if isinstance(plan.source, Source) else None
    retries = IoRetries(plan.retries) if plan.retries else None
    reader = None if source is None else Reader(source, plan.wanted, retries)
    segments = []
    for number, segment in enumerate(plan.segments):
        stages = make_stages(segment.work.steps, plan.seed, retries)
        first = (reader, cache) if number == 0 else ()
        segments.append(SegmentWork(Runner(segment.work, stages, skip, *first), source))
    first = (reader, cache) if plan.counted else ()
    final = Runner(plan.work, make_stages(plan.work.steps, plan.seed, retries), skip, *first)
    rules = {**dict.fromkeys(plan.varying, STACK_EQUAL), **dict(plan.batch.pad)} if plan.batch else None
    specs = None if plan.specs is None else dict(plan.specs)
    return BatchWork(final, Finish(plan.finishing, plan.seed), layout, specs, rules, frozenset(specs or ()), source), segments


def reading_ahead(plan: Plan, deal: Deal, part: StepTurns, limit: int) -> tuple[Plan, int]:
    """The plan with a source that fetches records ahead into at most `limit` bytes, and those bytes; 0: not necessary."""
    if not isinstance(plan.source, Source) or plan.order is None:
        return plan, 0
    source = plan.source.ahead(limit, plan.wanted, first_samples(plan, deal, part))
    return (plan, 0) if source is plan.source else (replace(plan, source=source), limit)


def memory_for_blocks(plan: Plan, deal: Deal, part: StepTurns, memory: int) -> int:
    """How much more `memory`, doubled some times, would let records be fetched in blocks; 0: that would not."""
    larger = (times * memory for times in (2, 4, 8, 16))
    return next((size for size in larger if reading_ahead(plan, deal, part, size // AHEAD_SHARE)[1]), 0)


def first_samples(plan: Plan, deal: Deal, part: StepTurns) -> Callable[[int], Ints]:
    """The samples that a rank takes first, or a part of it; where samples are counted as they come, each takes all."""
    order, dealt = plan.order, deal if plan.counted else None
    assert order is not None
    return lambda count: order.resolve(rank_positions(0, count, order.length, dealt, part), 0)


def explained(plan: Plan, deal: Deal | None = None, decoding: str = "", floats: str = "") -> str:
    """What a plan will do, as text: the loader's, of a rank, or that of a loader with its usual memory.

    `decoding` says where images are decoded, where that was asked for, `floats` where their floats are made.
    """
    if deal is None:
        found = ALONE
        with suppress(ConfigError):  # which the text tells
            found = rank_of(plan.shard)
        deal = plan.deal(found.rank, found.world)
        plan, _ = reading_ahead(plan, deal, WHOLE, parse_bytes(MEMORY, "memory") // AHEAD_SHARE)
    asked = None
    if isinstance(plan.source, Source) and plan.order is not None:
        asked = plan.source.requests(plan.wanted, first_samples(plan, deal, WHOLE))
    return explain_plan(plan, *default_threads(plan), moves_told(plan), asked, decoding, floats)


def decodes(plan: Plan) -> bool:
    """Whether images are decoded somewhere."""
    return any(isinstance(step.node, Image) for work in plan.works for step in work.steps)


def finishes(plan: Plan, layout: Layout) -> bool:
    """Whether a worker joins a batch's rows when all are there; else the consumer does, because it costs nothing."""
    return loose_fields(plan, layout) or bool(plan.finishing.steps)


def make_executor(
    name: str,
    threads: int | None,
    processes: int | None,
    plan: Plan,
    memory: int,
    pinned: bool,
    ray_address: str | None = None,
) -> Executor:
    """Make the executor; `threads` are those of each process if there are `processes`.

    `memory` limits what is in flight; `pinned`: batches are in memory that a device reads from. `ray_address` is the cluster of
    "ray".
    """
    note_loader("loader()")

    def start(processes: int, threads: int, kind: str = "processes") -> Executor:
        _log.debug("%s", preflight(processes, threads, memory=memory, batch_bytes=batch_bytes(plan), pinned=pinned))
        return EXECUTORS.get(kind, "loader()")(processes * threads, Scratch, processes)

    call = f"loader(executor={name!r}"
    if name == "ray":
        return _on_ray(plan, threads, processes, ray_address)
    if ray_address is not None:
        raise ConfigError(
            f"{call}, ray_address={ray_address!r}): only executor='ray' uses a cluster; omit ray_address, or use executor='ray'"
        )
    if name == "auto" and (processes, threads) == (None, None) and not in_worker():
        return AutoExecutor(default_threads(plan).threads, Scratch, start_processes=start)
    if name == "auto":
        name = "threads" if processes is None else "processes"  # who says how many has chosen
    kind = EXECUTORS.get(name, f"{call})")
    if processes is not None and kind.shares_memory:
        raise ConfigError(f"{call}, processes={processes}): it has no processes; omit one of the two")
    if not kind.ahead:
        if threads is not None:
            raise ConfigError(
                f"{call}, threads={threads}): it has no threads and runs in the caller's; omit threads, or use executor='threads'"
            )
        return kind(1, Scratch)
    usual = default_threads(plan).threads
    if kind.shares_memory:
        return kind(threads or usual, Scratch)
    # Functions hold the interpreter's lock, so each core needs a process; without any, one process feeds with all its threads.
    processes = processes or (usual if threads is None and plan.functions else 1)
    check_processes(f"loader(processes={processes})")
    return start(processes, threads or max(1, usual // processes), name)


def _on_ray(plan: Plan, threads: int | None, processes: int | None, address: str | None) -> Executor:
    if any(isinstance(step.node, Cached) and step.node.where == "memory" for work in plan.works for step in work.steps):
        raise ConfigError(
            "loader(executor='ray'): cache('memory') is the memory of one machine, and workers are on several; use a folder that "
            "all of them can read, as in cache('/shared/cache'), or omit it"
        )
    kind: Any = EXECUTORS.get("ray", "loader(executor='ray')")
    made: Executor = kind(threads or 1, Scratch, processes, address=address)
    return made


def make_remote(
    at: str | Sequence[str], pool: bool, keys: Any, threads: int | None, processes: int | None, name: str, plan: Plan
) -> Executor:
    """Threads of this process, and workers that connect to `at`; or the pools there, which may serve others too."""
    asked, what = (f"loader(pool={at!r}", "a pool") if pool else (f"loader(workers_at={at!r}", "remote workers")
    note_loader(f"{asked})", elsewhere=True)
    if processes is not None or name not in ("auto", "threads"):
        raise ConfigError(f"{asked}): {what} can be combined with threads only; omit processes, and executor={name!r}")
    remote_work = needed("stoker.loader.remote_work", "remote-workers", f"{asked})")
    make = remote_work.pooled_executor if pool else remote_work.remote_executor
    executor: Executor = make(at, keys, threads, default_threads(plan).threads, plan)
    return executor


def executor_stats(name: str, executor: Executor, policy: AutoPolicy | None) -> ExecutorStats:
    """What runs tasks at first."""
    processes, remote = len(executor.processes), executor.remote
    if remote is not None:
        return ExecutorStats("remote", 0, remote.home, remote=remote.workers, remote_threads=remote.threads)
    if name == "auto":
        name = "processes" if processes else "threads"
    threads = executor.workers // max(1, processes) if executor.ahead else 0
    return ExecutorStats(name, processes, threads, reason="" if policy is None else policy.reason)


def policy_of(executor: Executor, output: Output, plan: Plan) -> AutoPolicy | None:
    """The policy that decides where work runs; None: the user decided."""
    if not isinstance(executor, AutoExecutor):
        return None
    # Not where samples pass through this process on their way: handing them to others and back needs its interpreter, too.
    return AutoPolicy(core_share().threads, executor.workers, beside_device=output.beside_device and plan.counted)


def window_of(workers: int) -> Window:
    """Units in flight, unless the user says how many."""
    # However large batches are: at least two, and one more for every three workers, so that a slow task leaves no worker idle.
    return Window(2 + workers // 3, _AHEAD_MOST, _AHEAD_BYTES)


def slab_memory(executor: Executor, output: Output) -> Allocate:
    """Where slabs get their memory: the output says what kind, unless workers see only what the executor gives."""

    def allocate(nbytes: int) -> Any:
        if executor.shares_memory:  # asked each time: work may move
            return output.allocate(nbytes), None
        memory, address = executor.allocate(nbytes)
        return output.adopt(memory), address

    return allocate


def step_names(runner: Runner) -> list[StepName]:
    """The steps of a runner, for statistics."""
    return [*map(StepName, runner.steps, runner.kinds)]


def finish_names(finish: Finish) -> list[StepName]:
    """The steps of what happens to whole batches."""
    return [StepName(name, "function" if name.startswith("map_batch") else "native") for name in finish.steps]


#: what takes in the costs of rows: those of a task, its report, and when it began
See = Callable[[Rows, Report, float], None]


def see_rows(slow: SlowRows | None, origins: OriginTimes | None, steps: Sequence[StepName]) -> See | None:
    """What learns from the costs of tasks whose rows are read by them; None: nobody wants to know."""
    if not steps or steps[0].kind != "read" or (slow is None and origins is None):
        return None

    def see(rows: Rows, report: Report, start_s: float) -> None:
        if not isinstance(rows, Places):
            return
        if slow is not None and start_s >= slow.since_s:
            slow.see(rows.indices, report)
        if origins is not None and report.weight:
            origins.see(rows.indices, report.seconds[0])

    return see


def observer(
    meters: Meters,
    steps: Sequence[StepName],
    finish: Sequence[StepName] = (),
    *,
    front: bool = False,
    see: See | None = None,
) -> Observer:
    """Counts the outcomes of one kind of work, whose steps, and those of its finishing task, have these names.

    Damaged images are counted with the batch they are in; those on their way to a `filter` or the like (`front`), here. `see`
    gets the rows of tasks, and what they cost.
    """
    told = False

    def observe(outcome: Outcome[Any, Any], report: Report | None) -> None:
        nonlocal told
        task = outcome.task
        if outcome.lost:
            meters.count(lost=1)
            return
        span = (outcome.worker, task.unit, task.number, outcome.start_s, outcome.stop_s)
        meters.task(span, outcome.cpu_s, steps if task.number >= 0 else finish, report)
        if report is not None:
            if task.number >= 0:
                meters.worked(report.rows + len(report.skipped))
                if see is not None:
                    see(task.content if front else task.content.rows, report, outcome.start_s)
            if report.draws:
                meters.count(draws=1)
            notes = report.notes
            if notes is NO_NOTES:
                return
            unfit = meters.seeks_unfit
            meters.count(**{name: getattr(notes, name) for name in _NOTED})
            if notes.seeks_unfit and not unfit:
                _log.warning(
                    "%s: its seek index was made for another file, or is damaged, and is not used, nor are others like it: "
                    "pixels are the same without it, but decoding takes longer (`stoker index --jpeg --force` makes them again)",
                    notes.unfit,
                )
            if front:
                meters.count(damaged=notes.damaged)
            if notes.damaged and not told:
                told = True
                _log.warning(
                    "%s: it is damaged, and decoded as far as possible (lenient=True); more of them are counted in "
                    "stats().damaged, not logged",
                    notes.damage,
                )

    return observe
