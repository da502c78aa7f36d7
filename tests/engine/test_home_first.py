"""Processes whose first tasks are done at home."""

from __future__ import annotations

import os
import time
from typing import Any

from stoker.engine.executor import Task
from stoker.engine.home_first import HomeFirst
from stoker.storage.scratch import Scratch

DEADLINE_S = 60.0


def where(content: Any, scratch: Any) -> int:
    return os.getpid()


def test_workers_are_ready_when_they_have_the_work_and_until_then_it_is_done_here() -> None:
    executor = HomeFirst(2, Scratch, 2)
    try:
        assert not executor.ready
        channel = executor.channel(where)
        channel.submit([Task(0, 0, "first")])
        [first] = channel.collect(DEADLINE_S)
        assert executor.ready or first.result == os.getpid()
        deadline = time.monotonic() + DEADLINE_S
        while not executor.ready:
            assert channel.collect(0.05) == []
            assert time.monotonic() < deadline
        channel.submit([Task(1, 0, "second")])
        [second] = channel.collect(DEADLINE_S)
        assert second.result in executor.processes
    finally:
        executor.close()
