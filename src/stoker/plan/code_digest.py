"""What tells one version of a function from another: its code, as far as it can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from types import CodeType
from typing import Any

import numpy as np

from .nodes import Filter, FlatMap, Map, MapBatch, MapFields, Node, Regroup, describe, describe_function

#: how far is looked into values that hold others
_DEPTH = 8
#: values whose text says all of them
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def node_text(node: Node) -> str:
    """A node as text that changes with its parameters and with the code of its functions."""
    return "\n".join([describe(node), *map(function_text, _functions(node))])


def named_here(text: str, node: Any) -> str:
    """A text about a node without the names of its functions' modules, which differ where one of them is the main script."""
    inner = [each.fn for each in node.inner if isinstance(each, MapBatch)] if isinstance(node, Regroup) else []
    for fn in _functions(node) + inner:
        module = getattr(fn, "__module__", None) or type(fn).__module__
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        text = text.replace(describe_function(fn), name).replace(repr(module), "''")
    return text


def _functions(node: Any) -> list[Any]:
    if isinstance(node, (Map, Filter, FlatMap)):
        return [node.fn]
    return [fn for _, several in node.fields for fn in several] if isinstance(node, MapFields) else []


def function_text(fn: Callable[..., Any]) -> str:
    """A function as text: its name, code, defaults and what it encloses. What it calls or reads elsewhere is not part of it."""
    return f"{describe_function(fn)} {_value(fn, _DEPTH)}"


def _value(value: Any, depth: int) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if not depth:
        return type(value).__qualname__
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} {_value(value.co_consts, depth)}"
    if isinstance(value, partial):
        return _value((value.func, value.args, value.keywords), depth)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype.str} {value.shape} {sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_value(each, depth - 1) for each in value)})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(_value(each, depth - 1) for each in value))}}}"
    if isinstance(value, dict):
        return _value(tuple(value.items()), depth)
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _filled(cell)]
        return _value((code, value.__defaults__, value.__kwdefaults__, cells, getattr(value, "__self__", None)), depth - 1)
    held = getattr(value, "__dict__", None)
    called = type(value).__call__ if callable(value) else None  # its method, not what calling gives
    told = [type(value).__module__, type(value).__qualname__, getattr(called, "__code__", None)]
    return _value([*told, held if isinstance(held, dict) else None], depth - 1)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
