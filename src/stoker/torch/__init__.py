"""Stoker where PyTorch's own loader was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..registry import Registry

if TYPE_CHECKING:
    from .data_loader import DataLoader

__all__ = ["DataLoader"]

_LATER: Registry[Any] = Registry("name", {"DataLoader": ("stoker.torch.data_loader", "DataLoader", "torch")})


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers know what is there

    def __getattr__(name: str) -> Any:
        """What is imported when it is first used: it needs PyTorch."""
        if name in _LATER:
            return _LATER.get(name, f"stoker.torch.{name}")
        raise AttributeError(f"module 'stoker.torch' has no attribute {name!r}; it has {', '.join(__all__)}")
