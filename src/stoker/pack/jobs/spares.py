"""Workers' memory for work whose threads belong to others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...storage.scratch import Scratch


class Spares:
    """As many scratches as there are users at a time; each is reused by the next."""

    def __init__(self) -> None:
        self._free: list[Scratch] = []

    @contextmanager
    def one(self) -> Iterator[Scratch]:
        """A scratch for exclusive use while the block runs."""
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = Scratch()
        try:
            yield scratch
        finally:
            self._free.append(scratch)
