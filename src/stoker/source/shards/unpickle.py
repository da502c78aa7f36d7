"""Pickled fields that the user trusts by name: the only place where data may run code, used only with ``allow_pickle=[...]``."""

from __future__ import annotations

import pickle
from typing import Any

from ...errors import RecordError


def decode_pickle(field: str, data: bytes) -> Any:
    """The content of a pickle. Its author can run any code here."""
    try:
        return pickle.loads(data)  # noqa: S301  the user named this field in allow_pickle
    except Exception as error:
        raise RecordError(f"field {field!r}: cannot be unpickled: {type(error).__name__}: {error}") from error
