"""The native library, loaded and called through ctypes; ``native/include/stoker.h`` is the manual. No other file does this.

Rules kept here: the library is loaded on first use, and its structs compared with ours (`structs.py`); every function that
returns a status passes through a check installed as ctypes ``errcheck``, so no caller can forget it; a fault the library tells of
becomes its exception there too. What is handed over is NumPy arrays, by `address`: who calls has checked their bounds, because C
cannot. Calls that do real work release the GIL. Those that take microseconds keep it: with many workers, getting it back costs
more than the call.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from ctypes import c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from stoker.errors import CorruptShard, KernelError, ReadError
from stoker.kernel.status import Status, error_of
from stoker.kernel.structs import STRUCTS

#: a call over fewer bytes than this is over before another thread could have the GIL
BRIEF_BYTES = 1 << 16

Bytes: TypeAlias = "bytes | bytearray | memoryview | NDArray[np.uint8]"
_Function: TypeAlias = Callable[..., int]

#: functions that return a status: what they take
_CHECKED: dict[str, list[Any]] = {
    "permute": [c_uint64, c_uint64, c_void_p, c_int64, c_void_p],
    "uniforms": [c_uint64, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "gather": [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64],
    "copy": [c_void_p, c_void_p, c_int64],
    "read_files": [*[c_void_p] * 3, c_int64, c_void_p, c_int64, *[c_void_p] * 4],
    "read_spans": [*[c_void_p] * 3, c_int64, c_void_p, c_int64, c_void_p, c_void_p],
    "read_records": [
        c_void_p, c_void_p, c_int64, c_void_p, *[c_int64] * 3, c_void_p, c_int64, *[c_void_p] * 4,
    ],
    "crc32c_spans": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    "tar_about": [c_void_p, c_void_p],
    "tar_strings": [c_void_p, c_int32, c_int64, c_int64, c_void_p, c_int64, c_void_p],
    "tar_forget": [c_void_p, c_int64],
    "tfrecord_verify": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    "examples_parse": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int32, c_void_p, c_void_p],
    "examples_lists": [c_void_p, c_int64, c_void_p, c_int64, c_int32, *[c_void_p] * 3],
    "examples_add": [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    "examples_about": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p],
    "gather_bytes": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p],
    "lmdb_table": [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64],
    "jpeg_header": [c_void_p, c_int64, c_void_p],
    "image_plan": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p],
    "draws": [*[c_void_p] * 6, c_int64, c_int32, c_void_p],
    "passes": [c_void_p, c_int32, c_void_p, c_void_p],
    "render": [c_void_p, c_void_p],
    "finish": [c_void_p, c_void_p, c_int64],
    "seek_make": [c_void_p, c_void_p, c_void_p, c_int64, c_int32, c_void_p, c_int64, c_void_p, c_void_p],
    "jpeg_decode": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p],
    "mixup": [c_void_p, c_int64, c_int64, c_int32, c_double, c_void_p],
    "cutmix": [c_void_p, c_int64, c_int64, c_void_p, c_void_p],
}  # fmt: skip

#: those whose last parameter, which is added here, tells what is wrong with a file: callers only see the exception
_OF_FILES: dict[str, list[Any]] = {
    "tar_feed": [c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p],
    "tar_finish": [c_void_p],
    "tfrecord_scan": [c_void_p, c_int64, c_int64, c_int32, c_void_p, c_void_p, c_int64, *[c_void_p] * 3],
    "lmdb_walk": [c_void_p, c_int32, c_int64, c_void_p],
}

#: functions that return something else: what they take, and give
_OTHERS: dict[str, tuple[list[Any], Any]] = {
    "build": ([], c_char_p),
    "simd": ([c_int32], c_int32),
    "crc32c": ([c_void_p, c_int64, c_uint32], c_uint32),
    "decimals": ([c_void_p, c_int64, c_void_p, c_void_p, *[c_int64] * 2, c_void_p], c_int64),
    "seek_check": ([c_void_p, c_int64, c_void_p, c_int64], c_int32),
    "load_begin": ([c_void_p], c_int64),
    "decoder_new": ([], c_void_p),
    "decoder_free": ([c_void_p], None),
    "examples_new": ([], c_void_p),
    "examples_free": ([c_void_p], None),
    "lmdb_new": ([], c_void_p),
    "lmdb_free": ([c_void_p], None),
    "tar_new": ([c_int32, c_int32], c_void_p),
    "tar_free": ([c_void_p], None),
}

#: functions that keep the GIL; of the second kind there are both, the one that keeps it as `permute_brief`
_BRIEF = (
    "tar_finish", "tar_about", "tar_forget", "examples_about", "decimals", "jpeg_header", "image_plan", "passes", "seek_check",
    "load_begin",
)  # fmt: skip
_BOTH = ("permute", "gather", "crc32c")

#: functions whose callers come again with more room
_MAY_BE_SHORT = (
    "stk_read_files", "stk_read_records", "stk_render", "stk_jpeg_decode", "stk_seek_make", "stk_tar_feed", "stk_tfrecord_scan",
)  # fmt: skip


class Records(ctypes.Structure):
    """``stk_records``: addresses of arrays that its maker keeps."""

    _fields_ = [
        ("start", c_void_p),
        ("length", c_void_p),
        ("crc", c_void_p),
        ("seal", c_int64),
        ("rows", c_int64),
        ("fields", c_int64),
        ("ends", c_void_p),
        ("fds", c_void_p),
        ("files", c_int64),
        ("blocks", c_void_p),
    ]


class _Fault(ctypes.Structure):
    _fields_ = [("where", c_int64), ("message", ctypes.c_char * 488)]


class _Field(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("offset", c_int64), ("size", c_int64)]


def _laid_out(struct: Any) -> dict[str, tuple[int, int]]:
    """Offset and size of each field of a struct of ours; its own size as ""."""
    if isinstance(struct, np.dtype):
        return {
            "": (-1, struct.itemsize),
            **{name: (at, part.itemsize) for name, (part, at, *_) in (struct.fields or {}).items()},
        }
    fields = {name: getattr(struct, name) for name, _ in struct._fields_}
    return {"": (-1, ctypes.sizeof(struct)), **{name: (field.offset, field.size) for name, field in fields.items()}}


def _compare_structs(loaded: ctypes.CDLL) -> None:
    """Raise where the library lays out a struct in another way than we do."""
    loaded.stk_layout.argtypes, loaded.stk_layout.restype = [c_void_p], ctypes.POINTER(_Field)
    count = c_int64()
    entries = loaded.stk_layout(ctypes.byref(count))
    theirs: dict[str, dict[str, tuple[int, int]]] = {}
    struct = ""
    for entry in entries[: count.value]:
        name = entry.name.decode()
        struct, field = (name, "") if entry.offset < 0 else (struct, name)
        theirs.setdefault(struct, {})[field] = entry.offset, entry.size
    for name, ours in {**STRUCTS, "stk_records": Records, "stk_fault": _Fault}.items():
        expected, found = _laid_out(ours), theirs.get(name, {})
        for field in expected.keys() | found.keys():
            if expected.get(field) != found.get(field):
                raise KernelError(
                    f"the native library in {loaded._name} was built from other sources: its struct {name} differs"
                    f"{f' in {field!r}' if field else ' in size'}; build it again with `pip install .`"
                )


def _check(status: int, function: Any, arguments: tuple[Any, ...]) -> int:
    if status == 0 or (status == Status.SHORT and function.__name__ in _MAY_BE_SHORT):
        return status
    if status == Status.NOMEM:
        raise MemoryError(f"no memory for {function.__name__}")
    raise error_of(status, f"{function.__name__} refused the call")


def _check_file(status: int, function: Any, arguments: tuple[Any, ...]) -> int:
    fault = arguments[-1]._obj
    if status == Status.IO:
        raise ReadError(f"{fault.message.decode()}: {os.strerror(fault.where)}")
    if status == Status.CORRUPT:
        raise CorruptShard(fault.message.decode("utf-8", "replace"), offset=fault.where)
    return _check(status, function, arguments)


def _declared(loaded: ctypes.CDLL, name: str) -> _Function:
    function = getattr(loaded, f"stk_{name}")
    if name in _OTHERS:
        function.argtypes, function.restype = _OTHERS[name]
        return cast(_Function, function)
    function.restype = c_int32
    if name in _OF_FILES:
        function.argtypes, function.errcheck = [*_OF_FILES[name], c_void_p], _check_file
        return lambda *arguments: cast(int, function(*arguments, ctypes.byref(_Fault())))
    function.argtypes, function.errcheck = _CHECKED[name], _check
    return cast(_Function, function)


class Library:
    """The loaded library: each of its functions, declared and checked, as an attribute."""

    build: Callable[[], bytes]

    def __init__(self, path: Path) -> None:
        loaded = ctypes.CDLL(os.fspath(path))
        _compare_structs(loaded)
        brief = ctypes.PyDLL(str(path))  # the same library, called without letting go of the GIL
        for name in (*_CHECKED, *_OF_FILES, *_OTHERS):
            setattr(self, name, _declared(brief if name in _BRIEF else loaded, name))
        for name in _BOTH:
            setattr(self, f"{name}_brief", _declared(brief, name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> _Function: ...


_library: Library | None = None


def library() -> Library:
    """Return the library, loaded on first use; raises `KernelError` if it is not built."""
    return _library or _load()


def _load() -> Library:
    # Two threads may both get here; both load the same file, and the last assignment wins.
    global _library
    name = "libstoker.dylib" if sys.platform == "darwin" else "libstoker.so"
    # An editable install has two folders for this package: the sources, and what was built from them.
    folders = [Path(folder) for folder in sys.modules[__package__].__path__]
    path = next((folder / name for folder in folders if (folder / name).exists()), None)
    if path is None:
        raise KernelError(
            f"the native library is not built: {name} is not in {folders[0]}; run `pip install .` in Stoker's source folder"
        )
    try:
        _library = Library(path)
    except (OSError, AttributeError) as error:  # it cannot be mapped, or lacks a function
        raise KernelError(f"the native library cannot be loaded ({error}); {_remedy(str(error))}") from error
    return _library


def _remedy(message: str) -> str:
    """What helps, by the words of the system's loader, which gives no error number."""
    if any(word in message for word in ("memory", "failed to map", "too many open files")):
        return "it needs a few MB and a file descriptor: free memory, or raise `ulimit -v` or `ulimit -n`"
    return "it is damaged or was built for another machine or version: install Stoker again with `pip install --force-reinstall`"


class Owned:
    """An object of the library and its end: freed by `close`, or when the last reference is gone."""

    def __init__(self, handle: int | None, free: Callable[[int], object], what: str) -> None:
        if not handle:
            raise MemoryError(f"no memory for a {what}")
        self._handle: int | None = handle
        self._what = what
        self._free = weakref.finalize(self, free, handle)
        # Not when the process exits: a thread that could not be stopped may be in a native call that uses it.
        self._free.atexit = False

    @property
    def handle(self) -> int:
        """What the library calls it."""
        if self._handle is None:
            raise KernelError(f"the {self._what} is closed")
        return self._handle

    def __reduce__(self) -> NoReturn:
        raise KernelError(f"a {self._what} cannot be pickled or copied: it is memory of one worker; make another there")

    def close(self) -> None:
        """Free the memory; harmless when done already."""
        self._handle = None
        self._free()


_NoBytes = ctypes.c_char * 0
_addressof, _from_buffer = ctypes.addressof, cast("Callable[[Any], Any]", _NoBytes.from_buffer)  # found once: asked thrice a task


def address(array: NDArray[Any] | None) -> Any:
    """Return what a ``c_void_p`` parameter takes. ``array.ctypes.data`` costs four times as much as a buffer export."""
    if array is None:
        return None
    try:
        return _from_buffer(array)
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        return array.ctypes.data


def place(array: NDArray[Any]) -> int:
    """Return the address of an array, as a number: valid while the array is referenced."""
    try:
        return _addressof(_from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        return array.ctypes.data


def reference(struct: ctypes.Structure) -> Any:
    """What a parameter that points to a struct takes."""
    return ctypes.byref(struct)


def where(struct: ctypes.Structure) -> int:
    """The address of a struct: valid while the struct is referenced."""
    return ctypes.addressof(struct)


def contiguous(array: NDArray[Any], dtype: type[np.generic], count: int, name: str) -> NDArray[Any]:
    """Return `array` as one run of `count` numbers of `dtype`; any other shape is a `KernelError`."""
    result = np.ascontiguousarray(array, dtype)
    if result.ndim != 1 or len(result) != count:
        raise KernelError(f"{name} has shape {result.shape}, not ({count},)")
    return result
