"""Counts of requests to servers, and how long they took."""

from __future__ import annotations

from operator import add
from typing import NamedTuple


class Traffic(NamedTuple):
    """Requests, the bytes that came, the seconds until answers began, and those in which they came."""

    requests: int = 0
    nbytes: int = 0
    answer_s: float = 0.0
    receive_s: float = 0.0

    def and_also(self, other: Traffic) -> Traffic:
        return Traffic(*map(add, self, other))
