"""This process's connection to Ray. An existing connection is kept; what is started here ends with its last user."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import ConfigError, message_of
from ..registry import needed

#: names of sockets have at most about a hundred characters, of which Ray takes seventy
_LONGEST_FOLDER = 30
#: seconds for the head of a cluster to take a connection; Ray itself would ask again and again for a quarter of an hour
_REACH_S = 10.0
#: a loader does not report its users, and needs no dashboard: a cluster of one's own may have both
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


class RaySession:
    """One user's hold on Ray; `close` is idempotent, and the last user of a Ray that was started here shuts it down.

    Without an address: the Ray that this process is connected to; else the cluster that RAY_ADDRESS names, which is how jobs
    find theirs; else one of this machine alone, without a dashboard.
    """

    _users = 0
    _folder = ""  # of the Ray that was started here

    def __init__(self, address: str | None, call: str, jobs: int | None = None) -> None:
        self.ray: Any = needed("ray", "ray", call)
        self._open, self._owner = False, os.getpid()
        if address is not None:
            _check_address(address, call)
        if self.ray.is_initialized():
            self._check_same(address, call)
            mine = bool(RaySession._users)
        else:
            mine = True
            RaySession._users = 0
            _remove_folder()  # of a Ray that was shut down elsewhere
            if address is None and (address := os.environ.get("RAY_ADDRESS")):
                call += f" with RAY_ADDRESS={address}"
                _check_address(address, call)
            self._connect(address or "local", call, jobs)
        if mine:
            RaySession._users += 1
        self._open, self._mine = True, mine
        self._connection = self._connection_now()

    @property
    def lost(self) -> bool:
        """Whether this connection's Ray is gone: it was shut down, and another may have been started."""
        return not self.ray.is_initialized() or self._connection_now() != self._connection

    def _connection_now(self) -> str:
        return str(self.ray.get_runtime_context().get_worker_id())  # another whenever this process connects

    def _check_same(self, address: str | None, call: str) -> None:
        here = self.ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise ConfigError(
                f"{call}: this process is connected to the Ray cluster {here}; call ray.shutdown() first, or omit the address"
            )

    def _connect(self, address: str, call: str, jobs: int | None) -> None:
        if address not in ("local", "auto"):
            _check_reached(address, call)
        options: dict[str, Any] = {"logging_level": logging.WARNING, "configure_logging": False}
        if address == "local":
            root = tempfile.gettempdir()
            RaySession._folder = tempfile.mkdtemp("", "stoker-ray-", root if len(root) <= _LONGEST_FOLDER else "/tmp")
            options |= {"include_dashboard": False, "_temp_dir": RaySession._folder}
            if jobs is not None:
                options["num_cpus"] = jobs
        before = {name: os.environ.get(name) for name in _QUIET}
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            self.ray.init(address=address, **options)
        except Exception as error:
            _remove_folder()
            what = "Ray could not be started" if address == "local" else f"the Ray cluster {address} cannot be reached"
            raise ConfigError(f"{call}: {what}: {message_of(error) or type(error).__name__}") from error
        finally:
            for name, old in before.items():
                if old is None:
                    os.environ.pop(name, None)

    def close(self) -> None:
        if not self._open or self._owner != os.getpid():
            return
        self._open = False
        if self._mine:
            RaySession._users -= 1
            if not RaySession._users:
                with suppress(Exception):  # of a cluster that is gone
                    if not self.lost:
                        self.ray.shutdown()
                _remove_folder()


def _check_address(address: object, call: str) -> None:
    if not isinstance(address, str) or not re.fullmatch(r"auto|local|[^/\s]+:\d{1,5}", address):
        raise ConfigError(
            f"{call}: {address!r} is not the address of a Ray cluster; use host:port, as `ray start` prints it, or 'auto' on "
            "a machine of the cluster (instead of a Ray client, submit the program as a job)"
        )


def _check_reached(address: str, call: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"{call}: the Ray cluster {address} cannot be reached: {message_of(error)}; check the address, and that Ray runs "
            "there (`ray start`)"
        ) from error


def _remove_folder() -> None:
    folder, RaySession._folder = RaySession._folder, ""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


_sending = threading.local()


@contextmanager
def sending_to_ray() -> Iterator[None]:
    """What this thread pickles meanwhile goes to workers on Ray, which can open what is in its object store."""
    _sending.to_ray = True
    try:
        yield
    finally:
        _sending.to_ray = False


def goes_to_ray() -> bool:
    """Whether what is being pickled goes to workers on Ray."""
    return getattr(_sending, "to_ray", False)
