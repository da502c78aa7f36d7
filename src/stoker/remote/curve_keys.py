"""Key files: who may connect to a trainer or a pool, and whom those who connect believe it to be.

Each has a pair of CURVE keys. The file of who listens lists the public keys that it accepts; the file of who connects holds the
public key of who listens. Traffic between them is encrypted, and both know whom they talk to.
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
#: the characters of keys, which are written in Z85
_Z85 = re.compile(r"[0-9A-Za-z.:+=^!/*?&<>()\[\]{}@%$#-]*")


class ListenerKeys(Struct, tag_field="stoker_keys", tag="listens", forbid_unknown_fields=True):
    """The keys of a trainer or pool, and by name the public keys that it accepts."""

    public: _Key
    secret: _Key
    accepts: Annotated[dict[str, _Key], Meta(max_length=4096)]

    def __post_init__(self) -> None:
        _check(self.public, self.secret, *self.accepts.values())


class CallerKeys(Struct, tag_field="stoker_keys", tag="connects", forbid_unknown_fields=True):
    """The keys of who connects, and the public key of whom it connects to."""

    public: _Key
    secret: _Key
    listener: _Key

    def __post_init__(self) -> None:
        _check(self.public, self.secret, self.listener)


def _check(*keys: str) -> None:
    if not all(map(_Z85.fullmatch, keys)):
        raise ValueError("a key has a character that keys do not have")


def make_keys(folder: Path, names: list[str], listener: str = "trainer") -> list[Path]:
    """Write the key file of who listens, unless it is there, and one for each name; returns those that were written.

    The first is extended, so that names can be added later. One that exists is never written over.
    """
    zmq = needed("zmq", EXTRA, "stoker keys")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"stoker keys: {name!r} is not a valid name; use letters, digits, '.', '_' and '-'")
        if name == listener:
            raise ConfigError(f"stoker keys: {name}.key is the file of the side that listens; choose another name than {name!r}")
        if (folder / f"{name}.key").exists():
            raise ConfigError(f"{folder / f'{name}.key'}: already exists; remove it, or choose another name")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be created: {error.strerror}") from error
    path = folder / f"{listener}.key"
    listens = read_listener(path) if path.exists() else ListenerKeys(*_pair(zmq), {})
    written = [path]
    for name in names:
        public, secret = _pair(zmq)
        _write(folder / f"{name}.key", CallerKeys(public, secret, listens.public))
        listens.accepts[name] = public
        written.append(folder / f"{name}.key")
    _write(path, listens)
    return written


def read_listener(path: str | os.PathLike[str]) -> ListenerKeys:
    """The key file of who listens; raises ConfigError where it is not one, or others could read it."""
    return _read(path, ListenerKeys, "that of the side which listens, trainer.key or pool.key")


def read_caller(path: str | os.PathLike[str]) -> CallerKeys:
    """The key file of who connects."""
    return _read(path, CallerKeys, "that of the side which connects, such as data-machines.key")


def _pair(zmq: Any) -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _write(path: Path, keys: Struct) -> None:
    text = msgspec.json.format(msgspec.json.encode(keys), indent=1)
    with AtomicFile(path, overwrite=True) as file:
        os.fchmod(file.fileno(), 0o600)  # while it is empty, and has no name that anybody knows
        file.write(text + b"\n")


def _read(given: str | os.PathLike[str], kind: type[_K], wanted: str) -> _K:
    try:
        path = Path(given)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{given!r} is not the path of a key file; name {wanted}") from error
    except OSError as error:
        raise ConfigError(
            f"{path}: the key file cannot be read: {error.strerror}; `stoker keys FOLDER` makes key files, with --pool those of "
            "a pool and its trainers"
        ) from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{path}: this is a folder; use the key file in it, {wanted}")
    with open(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            raise ConfigError(f"{path}: others can read this key file (mode {mode:o}); chmod 600 {path}")
        data = file.read(_MAX_BYTES)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(
            f"{path}: this is not the key file needed here, {wanted} ({error}); `stoker keys FOLDER NAME` writes both kinds"
        ) from error
