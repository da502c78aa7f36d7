"""What the monitor of a socket tells. The library's own parser of it imports asyncio, which takes longer than to connect."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

_EVENT = struct.Struct("=Hi")


class MonitorEvent(NamedTuple):
    """What happened, one of `zmq.EVENT_*`; `value` is a descriptor or the number of an error."""

    kind: int
    value: int


def next_event(monitor: Any) -> MonitorEvent | None:
    """The next one; None: there is none yet."""
    return MonitorEvent(*_EVENT.unpack(monitor.recv_multipart()[0])) if monitor.poll(0) else None
