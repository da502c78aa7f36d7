"""Where this user's Stoker files are stored if they cannot be next to the data."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_home() -> Path:
    """The user's cache folder for Stoker, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    if base.startswith("~"):  # a user without a home: nothing is kept, and no folder called "~" is left in the current one
        base = os.devnull
    return Path(base) / "stoker"


def index_home(url: str) -> Path:
    """Where the index of a shard is stored if the shard's folder cannot be written to."""
    return cache_home() / "index" / f"{hashlib.sha256(url.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}.stk"
