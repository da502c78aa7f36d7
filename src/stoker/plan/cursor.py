"""The cursor: where to resume. Two integers, and for samples numbered as they come, where in the source the next one is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import StateError

#: of states; 2: random streams are keyed by kind and occurrence, and fingerprints leave defaults out
VERSION = 2
#: random numbers know epochs by 32 bits
MOST_EPOCHS = 1 << 32


@dataclass(frozen=True, slots=True)
class Cursor:
    """`row` rows of epoch `epoch` have been handed out, over all ranks.

    `at` is (source position, samples of it already given) where stages change the count; None elsewhere.
    """

    epoch: int = 0
    row: int = 0
    at: tuple[int, int] | None = None


def encode(cursor: Cursor, identity: Mapping[str, str]) -> dict[str, Any]:
    """A state for `json.dump`."""
    state: dict[str, Any] = {"stoker": VERSION, "epoch": cursor.epoch, "row": cursor.row, "pipeline": dict(identity)}
    if cursor.at is not None:
        state["at"] = list(cursor.at)
    return state


def decode(state: Any, identity: Mapping[str, str], *, force: bool = False) -> Cursor:
    """The cursor in a state; a state that is damaged, or belongs to other data or another pipeline, is refused.

    `force` takes the position from a state of another pipeline; a damaged state is refused all the same.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a loader state is a mapping made by state_dict(), not {type(state).__name__}")
    version = state.get("stoker")
    if version == 1:
        if not force:
            raise StateError(
                "this state was saved by an earlier Stoker (its version is 1), which numbered random streams in another way: the "
                "rest of the epoch would be augmented differently; start the epoch again, or load the state with force=True to "
                "keep only its position"
            )
    elif version != VERSION:
        raise StateError(f"this state has version {version!r}; this Stoker reads version {VERSION}")
    cursor = Cursor(_count(state, "epoch", MOST_EPOCHS), _count(state, "row"), _at(state))
    if not force:
        _check_identity(state.get("pipeline"), identity)
    return cursor


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
        raise StateError(f"the state's 'at' is {value!r}; it must be two integers")
    pair = dict(zip(("at[0]", "at[1]"), value))
    return _count(pair, "at[0]"), _count(pair, "at[1]")


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
