"""Key files: who may work for a trainer, and whom a worker believes to be its trainer.

A trainer and each worker have a pair of CURVE keys. The trainer's file lists the public keys of the workers that it accepts; a
worker's file holds the public key of its trainer. Traffic between them is encrypted, and both know whom they talk to.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ..errors import ConfigError, WriteError
from ..registry import needed
from ..storage.atomic import AtomicFile

EXTRA = "remote-workers"
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_K = TypeVar("_K")
_Key = Annotated[str, Meta(min_length=40, max_length=40)]


class TrainerKeys(Struct, tag_field="stoker_keys", tag="trainer", forbid_unknown_fields=True):
    """A trainer's keys, and by name the public keys of the workers it accepts."""

    public: _Key
    secret: _Key
    workers: Annotated[dict[str, _Key], Meta(max_length=4096)]


class WorkerKeys(Struct, tag_field="stoker_keys", tag="worker", forbid_unknown_fields=True):
    """A worker's keys, and the public key of its trainer."""

    public: _Key
    secret: _Key
    trainer: _Key


def make_keys(folder: Path, workers: list[str]) -> list[Path]:
    """Write `trainer.key`, unless it is there, and a key file for each worker; returns those that were written.

    The trainer's file is extended, so that workers can be added later. One that exists is never written over.
    """
    zmq = needed("zmq", EXTRA, "stoker keys")
    for name in workers:
        if not _NAME.fullmatch(name) or name == "trainer":
            raise ConfigError(f"stoker keys: {name!r} cannot be the name of a worker; use letters, digits, '.', '_' and '-'")
        if (folder / f"{name}.key").exists():
            raise ConfigError(f"{folder / f'{name}.key'}: already exists; remove it, or choose another name")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be made: {error.strerror}") from error
    path = folder / "trainer.key"
    trainer = read_trainer(path) if path.exists() else TrainerKeys(*_pair(zmq), {})
    written = [path]
    for name in workers:
        public, secret = _pair(zmq)
        _write(folder / f"{name}.key", WorkerKeys(public, secret, trainer.public))
        trainer.workers[name] = public
        written.append(folder / f"{name}.key")
    _write(path, trainer)
    return written


def read_trainer(path: str | os.PathLike[str]) -> TrainerKeys:
    """A trainer's key file; raises ConfigError where it is not one, or others could read it."""
    return _read(Path(path), TrainerKeys, "trainer")


def read_worker(path: str | os.PathLike[str]) -> WorkerKeys:
    """A worker's key file."""
    return _read(Path(path), WorkerKeys, "worker")


def _pair(zmq: Any) -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _write(path: Path, keys: Struct) -> None:
    text = msgspec.json.format(msgspec.json.encode(keys), indent=1)
    with AtomicFile(path, overwrite=True) as file:
        os.fchmod(file.fileno(), 0o600)  # while it is empty, and has no name that anybody knows
        file.write(text + b"\n")


def _read(path: Path, kind: type[_K], whose: str) -> _K:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path}: the key file cannot be read: {error.strerror}; make one with `stoker keys FOLDER`") from error
    with open(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            raise ConfigError(f"{path}: others can read this key file (mode {mode:o}); chmod 600 {path}")
        data = file.read(_MAX_BYTES)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(
            f"{path}: not the key file of a {whose} ({error}); `stoker keys FOLDER` writes trainer.key and worker.key"
        ) from error
