"""`stoker.ray.Datasource`: an epoch of a pipeline as a Ray data set, read and decoded by Stoker in Ray's read tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import ray
from ray.data import block as blocks
from ray.data import datasource

from ..batch.batch import Batch
from ..engine.function_wire import pack_work, unpack
from ..engine.ray_worker import BESIDE, parcel
from ..errors import ConfigError
from ..loader.build import batch_bytes
from ..loader.loader import Loader
from ..loader.loader_options import LoaderOptions
from ..loader.step_count import epoch_steps
from ..pipeline import Pipeline
from ..plan.ranks import Rank, rank_of

#: samples of a block, where the pipeline has no batches
_BLOCK_ROWS = 64


class Datasource(datasource.Datasource):  # type: ignore[misc]
    """For ``ray.data.read_datasource(stoker.ray.Datasource(pipeline))``: one epoch, a row for each sample.

    Each read task makes a run of batches, so blocks hold the pipeline's samples in its order; Ray hands blocks on in that order
    where ``DataContext.execution_options.preserve_order`` is set. Rows that only pad are left out. A pipeline whose batches
    cannot be counted beforehand (`filter`, `flat_map`, `repeat`, streams) is one read task.
    """

    def __init__(self, pipeline: Pipeline, *, epoch: int = 0) -> None:
        super().__init__()
        if not isinstance(pipeline, Pipeline):
            given = type(pipeline).__name__  # type: ignore[unreachable]
            raise ConfigError(f"stoker.ray.Datasource() takes a pipeline, such as stoker.files('photos'), not a {given}")
        plan = pipeline.plan
        self._pipeline, self._epoch, self._rank = pipeline, epoch, rank_of(plan.shard, None)
        self._deal = plan.deal(self._rank.rank, self._rank.world)
        steps = epoch_steps(plan, self._deal)
        if steps is None and plan.counted:
            raise ConfigError("stoker.ray.Datasource(): this pipeline never ends; set a count, as in .repeat(3)")
        self._steps = steps if plan.counted and plan.steps.passes == 1 and not plan.steps.begin else None
        self._bytes = batch_bytes(plan)

    def get_name(self) -> str:
        return "Stoker"

    def estimate_inmemory_data_size(self) -> int | None:
        return self._bytes * self._steps if self._steps and self._bytes else None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[datasource.ReadTask]:
        sent = ray.put(parcel(pack_work(self._pipeline, BESIDE)))  # once, for all tasks
        count = 1 if self._steps is None else max(1, min(parallelism, self._steps))
        tasks = []
        for number in range(count):
            first, stop = (0, None) if self._steps is None else (self._steps * n // count for n in (number, number + 1))
            steps = None if stop is None else stop - first
            size = steps * self._bytes if steps and self._bytes else None
            about = blocks.BlockMetadata(num_rows=None, size_bytes=size, input_files=None, exec_stats=None)
            part = _Part([sent], self._epoch, first * self._deal.stride, steps, self._rank)
            tasks.append(datasource.ReadTask(part, about))
        return tasks


@dataclass(frozen=True, slots=True)
class _Part:
    """Some steps of an epoch, made where Ray runs this."""

    sent: list[Any]  # a reference; in a list, so that Ray leaves it to us to fetch it
    epoch: int
    row: int
    steps: int | None  # None: to the end
    rank: Rank

    def __call__(self) -> Iterator[Any]:
        pipeline: Pipeline = unpack(*ray.get(self.sent[0]))
        carried = self.rank if self.rank.world > 1 else None
        options = LoaderOptions(executor="inline", epoch=self.epoch)
        with Loader(pipeline.plan, options, row=self.row, once=True, carried=carried) as loader:
            taken = islice(loader, self.steps)
            yield from (_block(_columns(batch)) for batch in taken) if pipeline.plan.batch else _gathered(taken)


def _gathered(samples: Iterator[Any]) -> Iterator[Any]:
    """Blocks of samples that come one by one."""
    while group := list(islice(samples, _BLOCK_ROWS)):
        yield _block({name: _column([sample[name] for sample in group]) for name in group[0]._fields})


def _columns(batch: Batch) -> dict[str, Any]:
    """The rows of a batch that are samples."""
    real = None if batch.valid is None or bool(np.all(batch.valid)) else np.flatnonzero(batch.valid)
    columns: dict[str, Any] = {}
    for name, column in batch.items():
        if isinstance(column, np.ndarray):
            columns[name] = column.copy() if real is None else column[real]  # its memory is used again
        else:
            values = list(column)
            columns[name] = _column(values if real is None else [values[row] for row in real.tolist()])
    return columns


def _column(values: list[Any]) -> Any:
    """Values of one field as Ray takes them: an array where they are alike, else an array of objects."""
    first = values[0]
    if not isinstance(first, (bytes, str)):
        arrays = [np.asarray(value) for value in values]
        if len({(array.shape, array.dtype) for array in arrays}) == 1 and arrays[0].dtype != object:
            return np.stack(arrays)
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _block(columns: dict[str, Any]) -> Any:
    return blocks.BlockAccessor.batch_to_block(columns)
