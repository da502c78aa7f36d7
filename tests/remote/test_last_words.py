"""What a worker said before it went is heard, however much there is to hear."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Container, Hashable, Iterator, Sequence
from typing import Any

import pytest

from stoker.remote.frames import PROTOCOL, Beat, Buffer, Bye, Hello, packed
from stoker.remote.listening_port import Port
from stoker.remote.remote_executor import BeatTimes, RemoteExecutor, RemoteSetting
from stoker.storage.scratch import Scratch

from .serving import until

WORKER = b"worker"


class DeafPort(Port):
    """Gives a few messages at a time, as the real one does; nobody is at any address that has `gone`."""

    address = "nowhere"

    def __init__(self, *said: Any) -> None:
        self.said, self.gone = deque(map(packed, said)), False

    def wait(self, seconds: float, known: Container[Hashable] = ()) -> None:
        time.sleep(0.001)

    def received(self) -> Iterator[tuple[bytes, Buffer, list[Buffer]]]:
        for _ in range(4):
            if self.said:
                yield WORKER, self.said.popleft(), []

    def send(self, address: Any, header: bytes, buffers: Sequence[Buffer] = ()) -> bool:
        return not self.gone

    def close(self) -> None:
        pass


def test_a_worker_that_has_left_is_not_taken_for_lost(caplog: pytest.LogCaptureFixture) -> None:
    """It had much to say before its last word, and its connection is closed by the time the trainer looks."""
    port = DeafPort(Hello(PROTOCOL, "1", {}, 1, "host", 1))
    setting = RemoteSetting(lambda wake: port, "1", {}, lambda work: None, patience=BeatTimes(beat_s=1e-6, silent_s=600.0))
    with caplog.at_level(logging.INFO, "stoker"):
        executor = RemoteExecutor(1, Scratch, setting=setting)
        try:
            until(lambda: executor.remote_workers, "it to join")
            port.said += [packed(Beat())] * 40 + [packed(Bye())]
            port.gone = True
            until(lambda: "host:1 left" in caplog.text or "lost" in caplog.text, "it to have left")
        finally:
            executor.close()
    assert "lost" not in caplog.text
