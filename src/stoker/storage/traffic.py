"""Counts of requests to servers, and how long they took."""

from __future__ import annotations

from typing import NamedTuple


class Traffic(NamedTuple):
    """Requests, the bytes that came, the seconds until answers began, and those in which they came."""

    requests: int = 0
    nbytes: int = 0
    answer_s: float = 0.0
    receive_s: float = 0.0

    def and_also(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests + other.requests,
            self.nbytes + other.nbytes,
            self.answer_s + other.answer_s,
            self.receive_s + other.receive_s,
        )
