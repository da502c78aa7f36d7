"""The door of a socket that others connect to: shut while very many have come in, and open again when they have left.

Whoever connects takes one of the files that this program may open, key or none, until the handshake fails or takes too long. At
the limit the program could not open its own files any more, and the library would try without pause to let the next one in.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import stat
from contextlib import suppress
from typing import Any

import zmq

from .monitor_events import next_event

_log = logging.getLogger("stoker")
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_DISCONNECTED
#: of the files that this program may open, the share of those who connect; and of that, what is left when it opens again
_SHARE, _AGAIN = 0.5, 0.75


class Door:
    """Counts who comes in at `address`, to which `port` is bound. Used by the thread that has the socket."""

    def __init__(self, port: zmq.Socket[bytes], address: str) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = int(_SHARE * files) if files != resource.RLIM_INFINITY else 1 << 30
        self._socket, self._address = port, address
        self._inside: dict[int, None] = {}  # descriptors, in the order they came
        self.shut = self._told = False
        #: something to read: somebody came or left
        self.monitor: Any = port.get_monitor_socket(_EVENTS)

    def look(self) -> None:
        """Take note of who came and left, and shut the door or open it."""
        failed = False
        while not failed and (event := next_event(self.monitor)) is not None:  # failures follow each other without pause
            failed = event.kind == zmq.EVENT_ACCEPT_FAILED and not self.shut
            if event.kind == zmq.EVENT_ACCEPTED:
                self._inside[event.value] = None
            else:
                self._inside.pop(event.value, None)
        if self.shut:
            self._try_to_open()
        elif failed or len(self._inside) > self._most:
            self.shut = True
            self._socket.unbind(self._address)
            for number in list(self._inside)[self._most :]:  # that came while nobody looked; others are there for longer
                _hang_up(number, self._address)
            if not self._told:
                self._told = True
                _log.warning(
                    "%s: %s connections use at least half of the files that this program may open; no more are accepted until "
                    "some have ended",
                    self._address,
                    f"{len(self._inside):,}",
                )

    def _try_to_open(self) -> None:
        self._inside = {number: None for number in self._inside if _is_socket(number)}
        if len(self._inside) > _AGAIN * self._most:
            return
        try:
            self._socket.bind(self._address)
        except zmq.ZMQError:
            return  # still being closed, or no file is left: soon again
        self.shut = False

    def close(self) -> None:
        self._socket.disable_monitor()
        self.monitor.close(linger=0)


def _hang_up(number: int, address: str) -> None:
    """End a connection; its descriptor stays with the library, which notices."""
    with suppress(OSError):  # it is gone already
        connection = socket.socket(fileno=number)
        try:
            if f":{connection.getsockname()[1]}" == address[address.rindex(":") :]:  # and no other that has got its number
                connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False
