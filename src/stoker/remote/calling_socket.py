"""A socket that connects to a trainer or a pool, and says why it is not let in; else it would try for ever, without a word."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import zmq

from .curve_keys import CallerKeys
from .frames import MAX_BUFFER
from .monitor_events import next_event
from .wire_addresses import by_ipv6

#: milliseconds between attempts to connect
_RECONNECT_MS, _RECONNECT_MOST_MS = 100, 2000
#: why a connection is not accepted; who is refused otherwise may only have come when the other side ended
UNKNOWN_KEY = "does not know the key of this process; add it with `stoker keys`, or use the right key file"
_REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_EVENTS = zmq.EVENT_CONNECTED | _REFUSALS


class CallingSocket:
    """One connection, made again whenever it ends. Without it, what is sent `waits` for it, or is refused."""

    def __init__(self, context: zmq.Context[Any], address: str, keys: CallerKeys | None, poller: zmq.Poller, waits: bool) -> None:
        self._poller = poller
        #: whether somebody was there since this was last set to False, who may not answer
        self.reached = False
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        if keys is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
            self.socket.curve_serverkey = keys.listener.encode()
        six = False
        with suppress(OSError):  # the library tries again and again to find the name
            six = by_ipv6(address)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),  # what is asked for is bounded
            (zmq.MAXMSGSIZE, MAX_BUFFER),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _RECONNECT_MOST_MS),
            (zmq.IMMEDIATE, int(not waits)),
            (zmq.IPV6, int(six)),
        ):
            self.socket.setsockopt(option, value)
        self.monitor: Any = self.socket.get_monitor_socket(_EVENTS)
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        self.socket.connect(address)

    def refusals(self) -> list[str]:
        """Why connections were not accepted since the last call, in words that follow "it"."""
        told: list[str] = []
        while (event := next_event(self.monitor)) is not None:
            if event.kind == zmq.EVENT_CONNECTED:
                self.reached = True
            elif event.kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                told.append(UNKNOWN_KEY)
            else:
                told.append("refuses this process: one of the two has no keys, or the wrong ones")
        return told

    def close(self, linger_ms: int) -> None:
        self._poller.unregister(self.socket)
        self._poller.unregister(self.monitor)
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=linger_ms)
