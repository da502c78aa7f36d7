"""A digest that distinguishes versions of a function: its code, the values it holds, and what it uses of the user's own modules.

It is the same in every process: no address, no order of a set, no file path goes into it. Values are taken apart as pickle
would do it, but nothing is ever unpickled; a value that pickle refuses (a lock, a connection) counts by its type only.
"""

from __future__ import annotations

import copyreg
import sys
import sysconfig
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..source.arrays import array_version
from .nodes import Filter, FlatMap, Map, MapBatch, MapFields, Node, Regroup, describe, describe_function

#: how far is looked into values that hold others
_DEPTH = 64
#: values whose text says all of them
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: what the paths of modules have that are not the user's own
_INSTALLED = (sysconfig.get_path("stdlib") + "/", sysconfig.get_path("platstdlib") + "/", "/site-packages/", "/dist-packages/")


def node_text(node: Node) -> str:
    """A node as text that changes with its parameters and with the code of its functions."""
    return "\n".join([describe(node), *map(function_text, _functions(node))])


def named_here(text: str, node: Any) -> str:
    """A text about a node without the names of its functions' modules, which differ if one of them is the main script."""
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
    """A function as text: its name, and a hash over its code, the values it holds, and what it names of own modules."""
    return f"{describe_function(fn)} {_Digest().of(fn)}"


class _Digest:
    """Hashes of values. One that is met again within itself is not entered again; one that is met elsewhere is remembered."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}  # with the value, whose number no other may get meanwhile
        self._depth = 0
        self._entered: list[ModuleType] = []

    def of(self, value: Any) -> str:
        if type(value) in _PLAIN:
            return repr(value)
        if id(value) in self._known:
            return self._known[id(value)][1]
        if self._depth == _DEPTH:
            return _name(type(value))
        self._known[id(value)] = value, "itself"
        self._depth += 1
        text = sha256("\n".join([_name(type(value)), *self._parts(value)]).encode("utf-8", "surrogatepass")).hexdigest()
        self._depth -= 1
        self._known[id(value)] = value, text
        return text

    def _each(self, values: Iterable[Any]) -> list[str]:
        return [self.of(value) for value in values]

    def _parts(self, value: Any) -> list[str]:
        if isinstance(value, CodeType):
            names = value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
            table = getattr(value, "co_exceptiontable", b"")
            return [value.co_code.hex(), table.hex(), str(value.co_flags), repr(names), *self._each(value.co_consts)]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, (ModuleType, BuiltinFunctionType, np.ufunc)):
            return [_name(value)]
        if type(value) in (tuple, list):
            return self._each(value)
        if type(value) in (set, frozenset):
            return sorted(self._each(value))
        if type(value) is dict:
            return self._each(part for pair in value.items() for part in pair)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return [array_version(value)]
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            value = value.detach().cpu().contiguous()
            return [str(value.dtype), str(tuple(value.shape)), array_version(value.reshape(-1).view(torch.uint8).numpy())]
        return self._each([type(value), getattr(value, "__wrapped__", None), *_reduced(value)])

    def _function(self, fn: FunctionType) -> list[str]:
        cells = [cell.cell_contents for cell in fn.__closure__ or () if _filled(cell)]
        parts = [_name(fn), *self._each([fn.__code__, fn.__defaults__, fn.__kwdefaults__, cells, vars(fn)])]
        if _own(sys.modules.get(fn.__module__)):
            names = _names_in(fn.__code__)
            parts += [part for name in names if name in fn.__globals__ for part in self._named(name, fn.__globals__[name], names)]
        return parts

    def _named(self, name: str, value: Any, names: list[str]) -> list[str]:
        """What a function says by a name; of a module that is the user's own, what it says of that by other names."""
        parts = [name, self.of(value)]
        if isinstance(value, ModuleType) and _own(value) and id(value) not in map(id, self._entered):
            self._entered.append(value)
            held = vars(value)
            parts += [part for inner in names if inner in held for part in self._named(inner, held[inner], names)]
            self._entered.pop()
        return parts

    def _class(self, cls: type) -> list[str]:
        parts = [_name(cls)]
        for base in cls.__mro__:
            if _own(sys.modules.get(base.__module__)):
                held = [(name, _unwrapped(value)) for name, value in vars(base).items()]
                held = [pair for pair in held if pair[0][:2] != "__" or isinstance(pair[1], FunctionType)]
                parts += self._each(part for pair in held for part in pair)
        return parts


def _reduced(value: Any) -> list[Any]:
    """What pickle would make of a value; nothing where it would refuse it."""
    try:
        known = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if known is None else known(value)
        return [reduced] if isinstance(reduced, str) else [*reduced[:3], *map(list, filter(None, reduced[3:5]))]
    except Exception:  # noqa: BLE001  whatever a value raises that is not made for it
        return []


def _name(value: Any) -> str:
    """The name of a function, class or module, and the version of the package that it comes from.

    Not the name of a module of the user's own: the same file is one module as the main script, and another where it is imported.
    """
    module = str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None))
    if _own(sys.modules.get(module)):
        return getattr(value, "__qualname__", "")
    version = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
    return f"{module} {version if isinstance(version, str) else ''} {getattr(value, '__qualname__', '')}"


def _own(module: ModuleType | None) -> bool:
    """Whether a module is the user's own: a script, a notebook, or a file that is not installed."""
    if module is None or module.__name__.partition(".")[0] == __name__.partition(".")[0]:
        return False
    file = getattr(module, "__file__", None)
    return module.__name__ in ("__main__", "__mp_main__") if file is None else not any(part in file for part in _INSTALLED)


@lru_cache(256)
def _names_in(code: CodeType) -> list[str]:
    """Names of globals and attributes in some code and in the functions that it makes, sorted."""
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names_in(const)]
    return sorted({*code.co_names, *inner})


def _unwrapped(value: Any) -> Any:
    """The function of a class or static method, or of a property."""
    return getattr(value, "__func__", None) or (value.fget if isinstance(value, property) else value)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
