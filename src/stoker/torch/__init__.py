"""Stoker where PyTorch's own loader was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import imported_later

if TYPE_CHECKING:
    from .data_loader import DataLoader

__all__ = ["DataLoader"]


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers know what is there
    __getattr__ = imported_later(__name__, {"DataLoader": "data_loader"}, "torch")
