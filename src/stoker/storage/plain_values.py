"""Values of samples as bytes and back, without pickle: what is read is equal in value and type to what was written.

A value becomes a *tree*, which JSON takes, and consecutive buffers: those of arrays and byte strings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: gives the next so many bytes
Take = Callable[[int], memoryview]
#: what JSON takes as it is
_PLAIN = (type(None), bool, int, float, str)


class Unstorable(Exception):
    """A value of a type that has no plain bytes."""


def write_value(value: Any, buffers: list[Any]) -> Any:
    """The tree of a value; its buffers are added to `buffers`. Raises Unstorable."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is bytes:
        buffers.append(value)
        return ["b", len(value)]
    if kind in (list, tuple):
        return ["l" if kind is list else "t", [write_value(each, buffers) for each in value]]
    if kind is dict:
        pairs = [[write_value(key, buffers), write_value(each, buffers)] for key, each in value.items()]
        return ["d", pairs]
    if kind in (np.ndarray, np.memmap):
        return ["a", *write_array(value, buffers)]
    if isinstance(value, np.generic):
        return ["g", *write_array(np.asarray(value), buffers)]
    if (torch := sys.modules.get("torch")) is not None and kind is torch.Tensor:
        return ["T", *write_array(_array_of(value), buffers)]
    raise Unstorable(f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a "))


def write_array(array: NDArray[Any], buffers: list[Any]) -> list[Any]:
    """Type, shape and size of an array, whose bytes are added to `buffers`."""
    if not named_type(array.dtype):
        raise Unstorable(f"an array of {array.dtype}")
    plain = np.ascontiguousarray(array)
    buffers.append(plain.reshape(-1).view(np.uint8) if plain.nbytes else b"")
    return [array.dtype.str, list(array.shape), plain.nbytes]


def named_type(dtype: np.dtype[Any]) -> bool:
    """Whether its name says which type it is: that of objects, of records, or of another library's types (float8) does not."""
    if dtype.hasobject or dtype.kind == "V":
        return False
    try:
        return bool(np.dtype(dtype.str) == dtype)
    except TypeError:
        return False


def read_value(tree: Any, take: Take) -> Any:
    """The value of a tree; arrays get their own memory."""
    if type(tree) in _PLAIN:
        return tree
    kind, *about = tree
    if kind == "b":
        return bytes(take(about[0]))
    if kind in ("l", "t"):
        values = [read_value(each, take) for each in about[0]]
        return values if kind == "l" else tuple(values)
    if kind == "d":
        return {read_value(key, take): read_value(each, take) for key, each in about[0]}
    dtype, shape, nbytes = about
    array: NDArray[Any] = np.frombuffer(take(nbytes), dtype).reshape(shape).copy()
    check_characters(array)
    if kind == "T":
        import torch

        return torch.from_numpy(array)
    return array[()] if kind == "g" else array


def check_characters(array: NDArray[Any]) -> None:
    """Raise ValueError if texts contain characters that do not exist: Python ends with a SystemError when it reads one."""
    if array.dtype.kind == "U" and array.size and int(array.reshape(-1).view(f"{array.dtype.str[0]}u4").max()) > sys.maxunicode:
        raise ValueError("a text has a character that does not exist")


def _array_of(tensor: Any) -> NDArray[Any]:
    try:
        array: NDArray[Any] = tensor.numpy()  # refuses devices, gradients, sparse tensors and types that NumPy lacks
    except (TypeError, RuntimeError) as error:
        raise Unstorable(f"a torch.Tensor that is not a plain one on the CPU ({error})") from error
    return array
