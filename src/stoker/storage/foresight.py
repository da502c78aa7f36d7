"""What will be needed, in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=Named)


class Foresight(Generic[_T]):
    """Things in the order they will be needed; a thing may be needed more than once. For one thread at a time.

    `ahead` is where fetching ahead continues.
    """

    def __init__(self, things: Iterable[_T] = ()) -> None:
        self._things = list(things)
        self._first: dict[str, int] = {}
        for place, thing in enumerate(self._things):
            self._first.setdefault(thing.name, place)
        self.ahead = 0

    def __len__(self) -> int:
        return len(self._things)

    def __getitem__(self, place: int) -> _T:
        return self._things[place]

    def next_need(self, name: str) -> int | None:
        """The place of the next need of a thing; None: none is known."""
        return self._first.get(name)

    def rank(self, name: str, stamp: int, before: int) -> tuple[int, int] | None:
        """What goes first when room is made, the smallest first: what no one needs by least recent use, then what is needed last.

        None: it is needed before place `before`, and stays.
        """
        need = self.next_need(name)
        if need is None:
            return 0, stamp
        return None if need < before else (1, -need)
