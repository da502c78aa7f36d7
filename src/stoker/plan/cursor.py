"""The cursor: where to resume. Two integers, plus the position in the source if samples are numbered as they come.

With `on_error("skip")` a state also holds how many samples were bad so far, so that the budget survives a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import StateError

#: of states; 2: random streams are keyed by kind and occurrence, and fingerprints leave defaults out
VERSION = 2
#: random numbers know epochs by 32 bits
MOST_EPOCHS = 1 << 32
#: bad samples of a window that a state remembers: the latest
MOST_RECENT = 1000


@dataclass(frozen=True, slots=True)
class SkipCounts:
    """What one rank has seen of an epoch: a number of samples, and how many of them were bad.

    `recent` are the bad ones in the window of a budget, oldest first: how many samples were seen since each, including itself.
    """

    seen: int = 0
    bad: int = 0
    recent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cursor:
    """`row` rows of epoch `epoch` have been handed out, over all ranks.

    `at` is (source position, samples of it already delivered) if stages change the count; else None. `counts` come with a loaded
    state, and are not part of the position.
    """

    epoch: int = 0
    row: int = 0
    at: tuple[int, int] | None = None
    counts: SkipCounts | None = field(default=None, compare=False)


def encode(cursor: Cursor, identity: Mapping[str, str], counts: SkipCounts | None = None) -> dict[str, Any]:
    """A state for `json.dump`."""
    state: dict[str, Any] = {"stoker": VERSION, "epoch": cursor.epoch, "row": cursor.row, "pipeline": dict(identity)}
    if cursor.at is not None:
        state["at"] = list(cursor.at)
    if counts is not None:
        state["skipped"] = {"seen": counts.seen, "bad": counts.bad, "recent": list(counts.recent)}
    return state


def decode(state: Any, identity: Mapping[str, str], *, force: bool = False) -> Cursor:
    """The cursor in a state; a state that is damaged, or belongs to other data or another pipeline, is refused.

    `force` takes the position, and nothing else, from a state of another pipeline; a damaged state is refused all the same.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a loader state must be a mapping made by state_dict(), not {type(state).__name__}")
    version = state.get("stoker")
    if version == 1:
        if not force:
            raise StateError(
                "this state was saved by an earlier Stoker (its version is 1), which numbered random streams differently, so "
                "the rest of the epoch would be augmented differently; start the epoch again, or load the state with "
                "force=True to "
                "keep only its position"
            )
    elif version != VERSION:
        has = "no version: it was not made by state_dict()" if version is None else f"version {version!r}"
        raise StateError(f"this state has {has}; this Stoker reads version {VERSION}")
    epoch, row, at, counts = _count(state, "epoch", MOST_EPOCHS), _count(state, "row"), _at(state), _counts(state)
    if force:
        return Cursor(epoch, row, at)
    _check_identity(state.get("pipeline"), identity)
    return Cursor(epoch, row, at, counts)


def _count(state: Mapping[str, Any], name: str, most: int = 1 << 62) -> int:
    value = state.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < most:
        raise StateError(f"the state's {name!r} is {value!r}; it must be an integer >= 0")
    return value


def _at(state: Mapping[str, Any]) -> tuple[int, int] | None:
    value = state.get("at")
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise StateError(f"the state's 'at' is {value!r}; it must be two integers >= 0")
    pair = dict(zip(("at[0]", "at[1]"), value))
    return _count(pair, "at[0]"), _count(pair, "at[1]")


def _counts(state: Mapping[str, Any]) -> SkipCounts | None:
    """What a state says of bad samples; states saved without `on_error("skip")`, or before it was said, have none."""
    value = state.get("skipped")
    if value is None:
        return None
    recent = value.get("recent") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(recent, (list, tuple)) or len(recent) > MOST_RECENT:
        raise StateError(f"the state's 'skipped' is {str(value)[:200]}; it must have 'seen', 'bad' and a short list 'recent'")
    named = {f"skipped.{name}": value.get(name) for name in ("seen", "bad")}
    seen, bad = _count(named, "skipped.seen"), _count(named, "skipped.bad")
    ages = [_count({"skipped.recent": age}, "skipped.recent") for age in recent]
    if bad > seen or ages != sorted(ages, reverse=True):
        raise StateError("the state's 'skipped' has more bad samples than samples, or 'recent' ones that are not in order")
    return SkipCounts(seen, bad, tuple(ages))


def _check_identity(saved: Any, identity: Mapping[str, str]) -> None:
    if not isinstance(saved, Mapping):
        raise StateError("the state does not say which pipeline it belongs to ('pipeline' is missing)")
    differing = [name for name, value in identity.items() if saved.get(name) != value]
    if differing:
        told = "; ".join(f"{name}: saved {saved.get(name)!r}, here {identity[name]!r}" for name in differing)
        raise StateError(
            f"this state belongs to another data set or pipeline ({', '.join(differing)} differ: {told}); "
            "load it with force=True to keep only its position"
        )
