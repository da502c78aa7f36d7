"""What passes between this process and the workers it started, as bytes: the one place with pickle and cloudpickle.

Only these processes, which are one program and trust each other, use it: nothing read from data, a saved state or a network gets
here. Functions travel by cloudpickle, so lambdas, closures, and functions of a script or notebook work; functions of modules
travel by name. The memory of large arrays is not copied into the bytes but sent next to them (pickle protocol 5).
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ConfigError, message_of
from ..portable_arrays import ArrayInFile, ArrayInMemory, portable
from .main_guard import trains

#: bytes, and the memory that is sent next to them
Packed = tuple[bytes, list[memoryview]]
_PROTOCOL = 5
_REFUSED = (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError)
#: modules that a fresh interpreter does not find, finds another in place of, or would run again: what they define goes by value
_by_value = {b"__main__"}
#: classes that go by value, as far as they are here
_complete: weakref.WeakSet[type] = weakref.WeakSet()


def pack_work(work: Any, least: int | None = None) -> Packed:
    """The work of tasks, with the user's functions."""
    try:
        return _dump(_function_pickler(), work, least)
    except _REFUSED as error:
        raise ConfigError(
            f"the pipeline cannot be sent to worker processes: {message_of(error)}; create such objects (an open file, a lock, "
            "a connection) inside the function instead, or use loader(executor='threads')"
        ) from error


def pack(value: Any, least: int | None = None) -> Packed:
    """A value of tasks or of their outcomes; what only cloudpickle supports goes through it, more slowly.

    Arrays of at least a given number of bytes are sent next to it; None: none are.
    """
    try:
        packed = _dump(pickle.Pickler, value, least)
        if not any(name in packed[0] for name in _by_value):  # a name that is only text does no harm
            return packed
    except _REFUSED:
        pass
    return _dump(_value_pickler(), value, least)


def unpack(data: Any, buffers: Iterable[Any] = ()) -> Any:
    """What was packed, using the memory that was sent next to it."""
    return pickle.loads(data, buffers=buffers)  # noqa: S301  from a process of this very program


@lru_cache
def _value_pickler() -> Any:
    import cloudpickle

    class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            reduced = super().reducer_override(value)
            if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) == 6:  # with what fills it, which is last
                _complete.add(value)
                return (*reduced[:5], _fill_class)
            return reduced

    return ValuePickler


def _fill_class(kind: type, state: Any) -> type:
    """Make a class what it is elsewhere, unless it is that already: in the process it comes from it stays as it is."""
    if kind not in _complete:
        from cloudpickle.cloudpickle import _class_setstate

        _class_setstate(kind, state)
        _complete.add(kind)
    return kind


@lru_cache
def _function_pickler() -> Any:
    import cloudpickle

    class FunctionPickler(_value_pickler()):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            name = getattr(value, "__module__", None) if callable(value) else None
            if isinstance(name, str) and name in sys.modules and (trains(name) or not _importable(name.partition(".")[0])):
                cloudpickle.register_pickle_by_value(sys.modules[name])
                _by_value.add(name.encode())
            return super().reducer_override(value)

    return FunctionPickler


def _dump(kind: Any, value: Any, least: int | None) -> Packed:
    stream = io.BytesIO()
    memory: list[memoryview] = []

    def inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if least is None or raw.nbytes < least:
            return True
        memory.append(raw)
        return False

    _with_reducers(kind, "torch" in sys.modules)(stream, protocol=_PROTOCOL, buffer_callback=inside).dump(value)
    return stream.getvalue(), memory


@lru_cache
def _with_reducers(kind: Any, with_torch: bool) -> Any:
    """A pickler with ours. They are the class's: an instance of cloudpickle's would not look at its own."""
    known = getattr(kind, "dispatch_table", copyreg.dispatch_table)
    return type("StokerPickler", (kind,), {"dispatch_table": {**known, **_reducers(with_torch)}})


@lru_cache
def _reducers(with_torch: bool) -> dict[type, Callable[[Any], Any]]:
    reducers: dict[type, Callable[[Any], Any]] = {np.memmap: _reduce_memmap, io.TextIOWrapper: _reduce_text_file}
    if with_torch:
        import torch

        reducers[torch.Tensor] = _reduce_tensor
    return reducers


def _reduce_memmap(array: Any) -> Any:
    """A mapped file is mapped again by whoever gets it."""
    return _array_of, (portable(array),)


def _array_of(sent: ArrayInMemory | ArrayInFile) -> Any:
    return sent.array()


def _reduce_text_file(file: io.TextIOWrapper) -> Any:
    """Not a copy of its text, as cloudpickle makes it: each process would read it all. Standard streams are everywhere."""
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name):
            return _standard_stream, (name,)
    raise TypeError(f"cannot pickle the open file {file.name!r}")


def _standard_stream(name: str) -> Any:
    return getattr(sys, name)


def _reduce_tensor(tensor: Any) -> Any:
    """A plain tensor goes as an array; others (on a device, sparse, with a gradient or a type NumPy lacks) as torch does it."""
    try:
        plain = tensor.device.type == "cpu" and not tensor.requires_grad and not tensor.is_conj() and not tensor.is_neg()
        array = tensor.numpy() if plain and not tensor.is_quantized else None
    except (TypeError, RuntimeError):
        array = None
    return tensor.__reduce_ex__(_PROTOCOL) if array is None else (_tensor_of, (array,))


def _tensor_of(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


@lru_cache
def _importable(root: str) -> bool:
    """Whether a fresh interpreter with the same path would find this module."""
    if root in sys.builtin_module_names or root in sys.stdlib_module_names:
        return True
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and find(root, None) is not None:
            return True
    return False
