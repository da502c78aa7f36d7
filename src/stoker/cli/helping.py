"""Help pages as people read them: flags without a value, arguments without the types of Python."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose help page names no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Some versions of typer write a required argument as `{NAME}`."""
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class PlainGroup(TyperGroup):
    """A group of commands whose help page names no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


def _plain(params: list[Any]) -> list[Any]:
    """Those versions also write `<bool>` beside a flag, and `<list[str]>` beside an argument."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif isinstance(param, TyperArgument):
            param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    return params
