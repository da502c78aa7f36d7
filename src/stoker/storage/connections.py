"""Connections to HTTP servers, kept open between requests: one pool a host, shared by all files on it and by all threads."""

from __future__ import annotations

import http.client
import ipaddress
import os
import select
import socket
import ssl
import threading
import weakref
from typing import NamedTuple

from .fork import after_fork
from .local import descriptors_at_once
from .reply import Wire

#: idle connections kept a host
_MOST_IDLE = 64


class Origin(NamedTuple):
    """Who is asked: scheme, host and port."""

    scheme: str
    host: str
    port: int


class Connections:
    """Idle connections to one origin. It lives as long as a file of that origin holds it, and closes them when it goes.

    A connection belongs to whoever took it, until it is given back or closed. Proxies named in the environment are not used.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._idle: list[http.client.HTTPConnection] = []
        self._context = ssl.create_default_context() if origin.scheme == "https" else None
        self._lock = threading.Lock()
        after_fork(self, Connections._renew)
        weakref.finalize(self, _close_all, self._idle)  # at exit too: nobody is using those that are idle

    def take_idle(self) -> http.client.HTTPConnection | None:
        """A connection that was used before and looks alive, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _quiet(connection):
                return connection
            connection.close()

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A new connection; raises OSError."""
        _, host, port = self.origin
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        with self._lock:
            if len(self._idle) < descriptors_at_once(_MOST_IDLE) and connection.sock is not None:
                self._idle.append(connection)
                return
        connection.close()

    def forget_idle(self) -> None:
        """Close all that are idle: one of them turned out to be dead, so the others are likely to be."""
        with self._lock:
            idle, self._idle[:] = self._idle[:], []
        _close_all(idle)

    def _renew(self) -> None:
        # The parent goes on using these: here only this process's descriptors of them are closed, which sends nothing.
        self._lock = threading.Lock()
        _close_all(self._idle)


def wire_of(connection: http.client.HTTPConnection) -> Wire:
    """The bytes that come over a connection; the same object as long as it is open."""
    wire: Wire | None = connection.__dict__.get("wire")
    if wire is None:
        wire = connection.__dict__["wire"] = Wire(connection.sock)
    return wire


_pools: weakref.WeakValueDictionary[Origin, Connections] = weakref.WeakValueDictionary()
_pools_lock = threading.Lock()


def pool_of(origin: Origin) -> Connections:
    """The pool of an origin, the same for all who ask while anyone holds it."""
    with _pools_lock:
        pool = _pools.get(origin)
        if pool is None:
            pool = _pools[origin] = Connections(origin)
        return pool


def reach_of(connection: http.client.HTTPConnection) -> str:
    """From where the other end can be reached: 'public', 'private', 'loopback' or 'link-local', by its address, not its name."""
    try:
        peer = ipaddress.ip_address(connection.sock.getpeername()[0].partition("%")[0])
    except (OSError, ValueError, AttributeError):
        return "unknown"
    peer = getattr(peer, "ipv4_mapped", None) or peer
    if peer.is_loopback:
        return "loopback"
    if peer.is_link_local:
        return "link-local"
    return "private" if peer.is_private else "public"


def silence(connection: http.client.HTTPConnection, timeout_s: float) -> None:
    """Set the longest wait for the next byte."""
    sock: socket.socket | None = connection.sock
    if sock is not None:
        sock.settimeout(timeout_s)


def _quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing came on an idle connection. Anything that did is its end, or belongs to no request."""
    if connection.sock is None:
        return False
    poll = select.poll()
    try:
        poll.register(connection.sock, select.POLLIN | select.POLLERR | select.POLLHUP)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _renew_lock() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
