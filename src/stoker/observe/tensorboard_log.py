"""A loader's measurements for TensorBoard: numbers over time, pictures, the verdict, and a timeline.

It is a run of its own next to those of the training, because TensorBoard follows one file per run. It is written by the thread
that takes batches, a few times per minute, and is complete on the disk each time.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..batch.batch_pictures import batch_pictures, shrunk
from ..errors import ConfigError, WriteError
from ..kernel.records import crc32c, mask_crc
from ..registry import needed
from ..storage.atomic import write_error
from ..storage.names import path_bytes
from .followers import ClosedByWith, Follower, newcomers
from .stats import Stats
from .trace_events import Trace
from .verdict import verdict
from .wall_clock import seconds_since_1970
from .xplane_file import write_xplane

if TYPE_CHECKING:
    from ..batch.batch import Batch
    from ..loader import Loader

_log = logging.getLogger("stoker")

#: pictures of an epoch, and their longest side in pixels
_PICTURES, _SIDE = 16, 256
#: between two verdicts
_VERDICT_S = 60.0
#: bytes of the timeline: a browser has to hold all of it, and packed it is less than a tenth
_MOST_TRACE = 1 << 20
#: folders that are being written to
_in_use: set[Path] = set()


def tensorboard(
    logdir: str | os.PathLike[str],
    loader: Loader | None = None,
    *,
    name: str = "stoker",
    every_s: float = 5.0,
    trace_s: float = 30.0,
) -> TensorBoardLog | TensorBoardLogs:
    """Log what a loader measures for TensorBoard, into the run `name` of `logdir`, until the loader is closed.

    Without a loader: what every loader measures that this process makes from now on, until what is returned is closed.

    Every `every_s` seconds: samples per second, the shares of time that the loop waited and workers were busy, the time of a
    step, batches ready, memory in flight, and what each step costs. Once per epoch: the first pictures. Once a minute and at the
    end: the verdict, as text. Of the first `trace_s` seconds (0: none) there is a timeline, where TensorBoard's profile plugin
    finds it.

    Where several loaders log to one folder, their runs get numbers; so do ranks, the first one excepted. Needs the package
    `tensorboard`. Where the log cannot be written, a warning is logged and training continues.
    """
    for what, value, least in (("every_s", every_s, "above 0"), ("trace_s", trace_s, ">= 0")):
        if not isinstance(value, (int, float)) or not (value > 0 or (value == 0 and least == ">= 0")):
            raise ConfigError(f"observe.tensorboard({what}={value!r}): must be a number of seconds {least}")
    if not name or Path(name).name != name:
        raise ConfigError(f"observe.tensorboard(name={name!r}): must be the name of a folder, such as 'train'")
    needed("tensorboard", "tensorboard", "observe.tensorboard()")
    options = Path(os.fsdecode(path_bytes(logdir))), name, every_s, trace_s
    return TensorBoardLogs(*options) if loader is None else TensorBoardLog(loader, *options)


class TensorBoardLog(Follower):
    """A log being written; made by `stoker.observe.tensorboard`. `folder` is that of its run."""

    def __init__(self, loader: Loader, logdir: Path, name: str, every_s: float, trace_s: float) -> None:
        super().__init__(loader, "observe.tensorboard(loader)")
        asked = "observe.tensorboard()"
        self._events = needed("tensorboard.compat.proto.event_pb2", "tensorboard", asked)
        self._summaries = needed("tensorboard.compat.proto.summary_pb2", "tensorboard", asked)
        self._tensors = needed("tensorboard.compat.proto.tensor_pb2", "tensorboard", asked)
        self._loader = weakref.ref(loader)
        self._every_s, self._due_s, self._verdict_s = every_s, time.monotonic() + every_s, 0.0
        self._seen, self._why, self._pictured = self._meters.snapshot(look=False), "", -1
        self.folder = _folder(logdir, name if not self.rank else f"{name}-rank-{self.rank}")
        self._file: BinaryIO | None = None
        try:
            self._file = self._open()
            self._trace = _Timeline(loader, self._timeline(), trace_s, _MOST_TRACE) if trace_s else None
        except OSError as error:
            self._let_go()
            if isinstance(error, WriteError):
                raise
            raise write_error(error, str(self.folder), None, 0, 0) from error
        self._begin(loader)
        self._meters.viewers += (self._view,)

    def _view(self, batch: Batch) -> None:
        """Look at a batch that is about to be handed out, and write what is due."""
        epoch, now = self._meters.epochs, time.monotonic()
        if epoch == self._pictured and now < self._due_s:
            return
        if self._process != os.getpid():
            self.close()  # in a forked child, to which the file does not belong
            return
        if now >= self._due_s:
            self._due_s = now + self._every_s
            self._write_numbers(now >= self._verdict_s + _VERDICT_S)
        if epoch != self._pictured:
            self._pictured = epoch
            self._write_pictures(batch)

    def _write_numbers(self, judge: bool) -> None:
        stats = self._meters.snapshot(look=judge)
        between, self._seen = stats - self._seen, stats
        numbers = _numbers(between, stats, self._meters.occupancy())
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
        if judge:
            self._verdict_s = time.monotonic()
            loader = self._loader()
            why = str(verdict(stats) if loader is None else loader.why())
            if why != self._why:
                self._why = why
                values.append(self._text("stoker/verdict", why))
        self._write(stats.batches, values)

    def _write_pictures(self, batch: Batch) -> None:
        try:
            shown = batch_pictures(batch._asdict(), _PICTURES)
            values = [self._picture(number, picture.pixels) for number, picture in enumerate(shown)]
        except Exception:  # noqa: BLE001  values may be of any kind; training does not end for want of pictures
            _log.warning("the pictures of a batch could not be logged for TensorBoard", exc_info=True)
            return
        self._write(self._meters.snapshot(look=False).batches, values)

    def _write(self, step: int, values: list[Any]) -> None:
        if not values or self._file is None:
            return
        summary = self._summaries.Summary(value=values)
        try:
            self._put(self._file, self._events.Event(wall_time=seconds_since_1970(), step=step, summary=summary))
        except OSError as error:
            _log.warning(
                "%s: the log for TensorBoard ends here, and training continues: %s", self.folder, error.strerror or error
            )
            self._let_go()
            self.close()

    def _put(self, file: BinaryIO, event: Any) -> None:
        """One record, in TFRecord's frame."""
        data = event.SerializeToString()
        head = struct.pack("<Q", len(data))
        file.write(head + _crc(head) + data + _crc(data))

    def _open(self) -> BinaryIO:
        self.folder.mkdir(parents=True, exist_ok=True)
        # The time comes first: TensorBoard reads a run's files in the order of their names.
        name = f"events.out.tfevents.{seconds_since_1970():017.6f}.{socket.gethostname()}.{os.getpid()}.stoker"
        file = open(self.folder / name, "xb", buffering=0)  # noqa: SIM115  closed by `_finish`
        try:
            self._put(file, self._events.Event(wall_time=seconds_since_1970(), file_version="brain.Event:2"))
        except OSError:
            file.close()
            raise
        return file

    def _timeline(self) -> Path:
        folder = self.folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{socket.gethostname()}.trace.json.gz"

    def _text(self, tag: str, text: str) -> Any:
        plugin = self._summaries.SummaryMetadata.PluginData(plugin_name="text")
        tensor = self._tensors.TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        tensor.tensor_shape.dim.add(size=1)
        return self._summaries.Summary.Value(tag=tag, metadata=self._summaries.SummaryMetadata(plugin_data=plugin), tensor=tensor)

    def _picture(self, number: int, pixels: Any) -> Any:
        data, width, height = shrunk(pixels, _SIDE, "PNG")
        picture = self._summaries.Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
        return self._summaries.Summary.Value(tag=f"stoker/pictures/{number:02}", image=picture)

    def _finish(self) -> None:
        self._meters.viewers = tuple(view for view in self._meters.viewers if view != self._view)
        if self._file is not None:
            self._write_numbers(True)
        self._let_go()
        if self._trace is not None:
            self._trace.close()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        _in_use.discard(self.folder)


class _Timeline(Trace):
    """A trace that is also written as the profile plugin reads it, when it ends."""

    def __init__(self, loader: Loader, path: Path, seconds: float, most: int) -> None:
        super().__init__(loader, path, seconds, most)
        self._path = path

    def _finish(self) -> None:
        super()._finish()
        try:
            write_xplane(self._path, self._path.with_name(self._path.name.replace(".trace.json.gz", ".xplane.pb")))
        except (OSError, EOFError, ValueError) as error:
            _log.warning("%s: the timeline for TensorBoard could not be written: %s", self._path.parent, error)


class TensorBoardLogs(ClosedByWith):
    """Logs of all loaders that are made until it is closed, each by its loader; made by `stoker.observe.tensorboard`."""

    def __init__(self, logdir: Path, name: str, every_s: float, trace_s: float) -> None:
        self._options = logdir, name, every_s, trace_s
        newcomers.append(self._follow)

    def _follow(self, loader: Loader) -> None:
        try:
            TensorBoardLog(loader, *self._options)
        except WriteError as error:  # the code that makes a loader did not ask for a log
            _log.warning("a loader is not logged for TensorBoard, and training continues: %s", error)

    def close(self) -> None:
        """Log no further loaders; idempotent. What is being logged ends with its loader."""
        if self._follow in newcomers:
            newcomers.remove(self._follow)


def _folder(logdir: Path, name: str) -> Path:
    """A folder of this name that nobody else in this process writes to."""
    folder, number = logdir.absolute() / name, 2
    while folder in _in_use:
        folder, number = logdir.absolute() / f"{name}-{number}", number + 1
    _in_use.add(folder)
    return folder


def _numbers(between: Stats, now: Stats, occupancy: Any) -> dict[str, float]:
    """What is drawn over time; `between` is what was measured since the last time."""
    if between.elapsed_s <= 0:
        return {}
    numbers = {
        "stoker/samples_per_s": between.samples_per_s,
        "stoker/wait_share": between.wait_share,
        "stoker/busy_share": between.busy_share,
        "stoker/step_ms": 1e3 * between.loop.step_s / max(1, between.batches),
        "stoker/wait_ms_99_percent": 1e3 * between.loop.waits.quantile(0.99),
        "stoker/hand_over_share": min(1.0, between.handed_s / between.elapsed_s),
        "stoker/units_ready": occupancy.ready,
        "stoker/bytes_in_flight": occupancy.nbytes,
        "stoker/workers": now.workers,
    }
    if looked := between.cache_hits + between.cache_misses:
        numbers["stoker/cache_hit_share"] = between.cache_hits / looked
    if now.skipped:
        numbers["stoker/skipped_samples"] = now.skipped
    for step in between.steps:
        if step.samples:
            numbers[f"stoker_us_per_sample/{step.name}"] = 1e6 * step.sample_s
    return numbers


def _crc(data: bytes) -> bytes:
    return struct.pack("<I", mask_crc(crc32c(data)))
