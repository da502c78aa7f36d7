"""Connections to HTTP servers, kept open between requests: one pool per host, shared by all files on it and by all threads."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
import weakref
from functools import partial
from typing import Any

from .fork import after_fork
from .open_files import descriptors_at_once, files, keeps_idle
from .origin import Origin
from .proxies import Proxy
from .reach import may_lead, reach_of, reach_of_host
from .reply import BrokenReply, Reply, Wire
from .retry import RemoteFault, phrase_of

#: idle connections kept a host
_MOST_IDLE = 64
#: a connection that was idle for longer is not used: routers and firewalls forget it silently
_IDLE_S = 60.0
#: time an address gets to connect, where there is so much: a lost packet is sent again after one second, and after two more
_LEAST_CONNECT_S = 3.5


class Connection:
    """An open connection."""

    __slots__ = ("_socket", "idle_since", "reach", "wire")

    def __init__(self, connected: socket.socket, reach: str) -> None:
        self._socket = connected
        #: from where its other end can be reached
        self.reach = reach
        self.wire = Wire(connected)
        self.idle_since = 0.0

    def is_quiet(self) -> bool:
        """Whether it was idle for a short time, and nothing came. Anything that did is its end, or belongs to no request."""
        if time.monotonic() - self.idle_since > _IDLE_S:
            return False
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN | select.POLLERR | select.POLLHUP)
            return not poll.poll(0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        self._socket.close()


class Connections:
    """Idle connections to one origin. It lives as long as a file of that origin references it, and closes them then.

    A connection belongs to the caller that took it, until it is given back or closed. `sender` is the reach of the servers that
    redirected us here: no connection leads further inwards.
    """

    def __init__(self, origin: Origin, proxy: Proxy | None) -> None:
        self.origin, self.proxy = origin, proxy
        #: what is asked in place of the server, for messages
        self.via = "" if proxy is None else f" (proxy {proxy.authority})"
        self._idle: list[Connection] = []
        self._context = ssl.create_default_context() if origin.scheme == "https" else None
        self._lock = threading.Lock()
        after_fork(self, Connections._renew)
        keeps_idle(self, Connections.forget_idle)
        weakref.finalize(self, _close_all, self._idle)  # at exit too: idle ones are not in use

    def take_idle(self, sender: str | None = None) -> Connection | None:
        """A connection that was used before and looks alive, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_quiet() and (sender is None or may_lead(sender, connection.reach)):
                return connection
            connection.close()

    def connect(self, deadline: float, sender: str | None = None) -> Connection:
        """A new connection, ready for a request by `deadline`.

        Raises RemoteFault, OSError; of a proxy's answer BrokenReply and ConnectionEnd.
        """
        # What a name means to a proxy is not known here; but for an inward address, or localhost, it is not even asked.
        reach = None if self.proxy is None else _allowed(sender, reach_of_host(self.origin.host))
        connected = _connected(self.origin if self.proxy is None else self.proxy.origin, deadline)
        try:
            reach = reach or _allowed(sender, _reach(connected))
            if self._context is not None:
                if self.proxy is not None:
                    _open_tunnel(connected, self.origin, self.proxy, deadline)
                connected.settimeout(_left(deadline))
                connected = self._context.wrap_socket(connected, server_hostname=self.origin.host)
        except BaseException:
            connected.close()
            raise
        return Connection(connected, reach)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end."""
        connection.idle_since = time.monotonic()
        with self._lock:
            if len(self._idle) < descriptors_at_once(_MOST_IDLE):
                self._idle.append(connection)
                return
        connection.close()

    def forget_idle(self) -> int:
        """Close all idle ones, and return how many. If one of them turned out to be dead, the others are likely to be."""
        with self._lock:
            idle, self._idle[:] = self._idle[:], []
        count = len(idle)
        _close_all(idle)
        return count

    def _renew(self) -> None:
        # The parent continues to use these: only this process's descriptors of them are closed, which sends nothing.
        self._lock = threading.Lock()
        _close_all(self._idle)


_pools: weakref.WeakValueDictionary[tuple[Origin, Proxy | None], Connections] = weakref.WeakValueDictionary()
_pools_lock = threading.Lock()


def pool_of(origin: Origin, proxy: Proxy | None) -> Connections:
    """The pool of an origin, the same for all callers while it is referenced."""
    with _pools_lock:
        pool = _pools.get((origin, proxy))
        if pool is None:
            pool = _pools[origin, proxy] = Connections(origin, proxy)
        return pool


def _connected(origin: Origin, deadline: float) -> socket.socket:
    """A socket connected to the first of the host's addresses that answers. They share the time, but each gets enough of it."""
    found = socket.getaddrinfo(origin.host, origin.port, 0, socket.SOCK_STREAM)
    fault = OSError("the host has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(found):
        try:
            left = _left(deadline)
            timeout_s = min(left, max(_LEAST_CONNECT_S, left / (len(found) - tried)))
            opened = files.patiently(partial(socket.socket, family, kind, protocol), timeout_s)
            return _connected_to(opened, address, timeout_s)
        except OSError as error:
            fault = error
    raise fault


def _connected_to(connecting: socket.socket, address: Any, timeout_s: float) -> socket.socket:
    try:
        connecting.settimeout(timeout_s)
        connecting.connect(address)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _open_tunnel(connected: socket.socket, target: Origin, proxy: Proxy, deadline: float) -> None:
    """Have a proxy connect to the target, so that what is sent from here on goes there."""
    lines = [f"CONNECT {target.authority} HTTP/1.1", f"Host: {target.authority}", "User-Agent: stoker"]
    if proxy.login is not None:
        lines.append(f"Proxy-Authorization: {proxy.login}")
    wire = Wire(connected)
    wire.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), deadline)
    reply = Reply(wire, True, deadline)
    status = reply.status
    if not 200 <= status < 300:
        why = f"the proxy does not connect us: HTTP {status} {phrase_of(status)}"
        raise RemoteFault(why, status=407 if status == 407 else None, again=status in (408, 429) or status >= 500)
    if not wire.empty:
        raise BrokenReply("bytes came before they were asked for")


def _reach(connected: socket.socket) -> str:
    """From where the other end can be reached, by the address that was connected to and not by a name."""
    return reach_of(connected.getpeername()[0])


def _allowed(sender: str | None, reach: str) -> str:
    """The reach, if a redirect may lead there; raises RemoteFault."""
    if sender is not None and not may_lead(sender, reach):
        raise RemoteFault(
            f"a redirect from a {sender} to a {reach} address; if that is intended, use that URL directly", again=False
        )
    return reach


def _left(deadline: float) -> float:
    """Seconds until the deadline; raises TimeoutError when there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def _renew_lock() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
