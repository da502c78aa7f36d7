"""The time of day, for records that people and their tools read. Nothing waits by it, because it may jump."""

from __future__ import annotations

import time


def seconds_since_1970() -> float:
    return time.time()


def utc_text() -> str:
    """Such as 2026-03-01T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
