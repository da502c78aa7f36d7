"""What will be needed, in which order: a list and a place in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=Named)


class Foresight(Generic[_T]):
    """Things in the order they will be needed; a thing may be needed more than once. For one thread at a time.

    `position` counts the needs that have passed; `ahead` is where whoever fetches ahead goes on.
    """

    def __init__(self, things: Iterable[_T] = ()) -> None:
        self._things = list(things)
        self._places: dict[str, deque[int]] = {}
        for place, thing in enumerate(self._things):
            self._places.setdefault(thing.name, deque()).append(place)
        self.position = 0
        self.ahead = 0

    def __len__(self) -> int:
        return len(self._things)

    def __getitem__(self, place: int) -> _T:
        return self._things[place]

    def advance(self, count: int) -> None:
        """The next `count` needs have passed."""
        for place in range(self.position, min(self.position + count, len(self._things))):
            name = self._things[place].name
            places = self._places[name]
            places.popleft()
            if not places:
                del self._places[name]
        self.position = min(self.position + count, len(self._things))
        self.ahead = max(self.ahead, self.position)

    def next_need(self, name: str) -> int | None:
        """The place of the next need of a thing; None: none is known."""
        places = self._places.get(name)
        return places[0] if places else None

    def rank(self, name: str, stamp: int, before: int) -> tuple[int, int] | None:
        """What goes first when room is made, the smallest first: what no one needs by least recent use, then what is needed last.

        None: it is needed before place `before`, and stays.
        """
        need = self.next_need(name)
        if need is None:
            return 0, stamp
        return None if need < before else (1, -need)
