"""Records the samples that `on_error("skip")` leaves out: one line each in the quarantine file, and a few in the log."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import SampleError, message_of
from ..faults import user_traceback
from ..plan.nodes import SkipPolicy
from ..sizes import counted
from ..source.paths import shard_and_offset
from ..storage.text_files import append_lines, tail_lines

#: characters of a reason
_MOST_REASON = 1 << 16
#: kinds of errors that a summary names
_MOST_KINDS = 5

_log = logging.getLogger("stoker")


def kind_of(error: SampleError) -> str:
    """What went wrong and where, as statistics count it: ``"map resize: FunctionError"``."""
    return f"{error.stage}: {type(error).__name__}"


class BadSamples:
    """Lists and logs the bad samples of a loader.

    A sample is listed once for each epoch, however often it is made: after a resume, or when its batch is asked for again. So
    lines that are in the file already, of the same data and epoch, are read when the first bad sample of an epoch comes.
    `fingerprint` gives that of the data.
    """

    def __init__(self, policy: SkipPolicy, fingerprint: Callable[[], str]) -> None:
        self._file, self._fingerprint = policy.quarantine, fingerprint
        self._source = ""  # asked for when the first is listed
        self._epoch = -1
        self._listed: set[tuple[Any, ...]] = set()
        self._kinds: Counter[str] = Counter()
        self._told = False

    def note(self, bad: Sequence[SampleError], epoch: int, elsewhere: int) -> None:
        """Take in the bad samples of a batch, of which the first, `elsewhere` of them, are listed by another rank."""
        if epoch != self._epoch:
            self._epoch, self._kinds = epoch, Counter()
            if self._file is not None:
                self._source = self._source or self._fingerprint()
                self._listed = _lines_of(self._file, self._source, epoch)
        self._kinds.update(map(kind_of, bad))
        if self._file is not None:
            self._list(self._file, bad[elsewhere:], epoch)
        if not self._told:
            self._told = True
            where = "" if self._file is None else f" and listed in {self._file}"
            trace = user_traceback(bad[0])
            _log.warning(
                "sample %r is bad and was skipped because of on_error('skip'); "
                "more of them are counted in stats().skipped%s, not logged: %s%s",
                bad[0].key, where, message_of(bad[0]), "" if trace is None else f"\n{trace.rstrip()}",
            )  # fmt: skip

    def epoch_ended(self, epoch: int) -> None:
        """Log how many samples of an epoch were skipped, if any."""
        if epoch != self._epoch or not self._kinds:
            return
        kinds = [f"{count:,} {kind}" for kind, count in self._kinds.most_common(_MOST_KINDS)]
        kinds += ["..."] if len(self._kinds) > _MOST_KINDS else []
        total = counted(sum(self._kinds.values()), "sample")
        _log.warning("epoch %d: %s skipped because of on_error('skip') (%s)", epoch, total, ", ".join(kinds))
        self._epoch = -1

    def _list(self, file: str, bad: Sequence[SampleError], epoch: int) -> None:
        lines = []
        for error in bad:
            entry = _entry(error, epoch, self._source)
            if (identity := _identity(entry)) not in self._listed:
                self._listed.add(identity)
                lines.append(json.dumps(entry))
        if lines:
            append_lines(file, lines)


def _entry(error: SampleError, epoch: int, source: str) -> dict[str, Any]:
    shard, offset = shard_and_offset(error.origin)
    return {
        "key": error.key,
        "shard": None if error.origin == error.key else shard,
        "offset": offset,
        "index": error.index,
        "epoch": epoch,
        "position": error.position,
        "stage": error.stage,
        "error": type(error).__name__,
        "reason": message_of(error, _MOST_REASON),
        "traceback": user_traceback(error),
        "source": source,
    }


def _identity(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What a line is about; what a message says may differ each time."""
    return tuple(str(entry.get(name)) for name in ("key", "position", "stage", "error"))


def _lines_of(file: str, source: str, epoch: int) -> set[tuple[Any, ...]]:
    """The bad samples of these data and this epoch that the file lists already."""
    mark, listed = f'"epoch": {epoch},'.encode(), set()
    for line in tail_lines(file):
        if mark in line:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line of another process
            if isinstance(entry, dict) and (entry.get("source"), entry.get("epoch")) == (source, epoch):
                listed.add(_identity(entry))
    return listed
