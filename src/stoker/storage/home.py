"""Where this user's files of ours live, when they may not lie beside the data."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from ..errors import WriteError


def cache_home() -> Path:
    """The user's cache folder for Stoker, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(base) / "stoker"


def index_home(url: str) -> Path:
    """Where the index of a shard is kept whose own folder cannot be written to."""
    return cache_home() / "index" / f"{hashlib.sha256(url.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}.stk"


def publish(path: bytes, *parts: bytes) -> None:
    """Write a file so that it appears whole or not at all; raises WriteError and leaves nothing when it cannot."""
    folder, _, name = path.rpartition(b"/")
    temporary = (folder or b".") + b"/." + name + f".{os.getpid()}-{secrets.token_hex(6)}.tmp".encode()
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)  # noqa: PTH104
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise WriteError(f"{os.fsdecode(path)}: {error.strerror}") from error
