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
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from stoker.errors import CorruptShard, KernelError, ReadError
from stoker.kernel.status import Status, error_of
from stoker.kernel.structs import STRUCTS

#: a call over fewer bytes than this is over before another thread could have the GIL
BRIEF_BYTES = 1 << 16

Bytes: TypeAlias = "bytes | bytearray | memoryview | NDArray[np.uint8]"
_Function: TypeAlias = Callable[..., int]

_SIGNATURES: dict[str, list[Any]] = {
    "stk_permute": [c_uint64, c_uint64, c_void_p, c_int64, c_void_p],
    "stk_uniforms": [c_uint64, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "stk_gather": [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64],
    "stk_copy": [c_void_p, c_void_p, c_int64],
    "stk_read_files": [*[c_void_p] * 3, c_int64, c_void_p, c_int64, *[c_void_p] * 4],
    "stk_read_spans": [*[c_void_p] * 3, c_int64, c_void_p, c_int64, c_void_p, c_void_p],
    "stk_read_records": [
        c_void_p, c_void_p, c_int64, c_void_p, *[c_int64] * 3, c_void_p, c_int64, *[c_void_p] * 4,
    ],
    "stk_crc32c_spans": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    "stk_tar_about": [c_void_p, c_void_p],
    "stk_tar_strings": [c_void_p, c_int32, c_int64, c_int64, c_void_p, c_int64, c_void_p],
    "stk_tar_forget": [c_void_p, c_int64],
    "stk_tfrecord_verify": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    "stk_examples_parse": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int32, c_void_p, c_void_p],
    "stk_examples_lists": [c_void_p, c_int64, c_void_p, c_int64, c_int32, *[c_void_p] * 3],
    "stk_examples_add": [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    "stk_examples_about": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p],
    "stk_gather_bytes": [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p],
    "stk_lmdb_table": [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64],
    "stk_jpeg_header": [c_void_p, c_int64, c_void_p],
    "stk_image_plan": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p],
    "stk_draws": [*[c_void_p] * 6, c_int64, c_int32, c_void_p],
    "stk_passes": [c_void_p, c_int32, c_void_p, c_void_p],
    "stk_render": [c_void_p, c_void_p],
    "stk_finish": [c_void_p, c_void_p, c_int64],
    "stk_seek_make": [c_void_p, c_void_p, c_void_p, c_int64, c_int32, c_void_p, c_int64, c_void_p, c_void_p],
    "stk_jpeg_decode": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p],
    "stk_mixup": [c_void_p, c_int64, c_int64, c_int32, c_double, c_void_p],
    "stk_cutmix": [c_void_p, c_int64, c_int64, c_void_p, c_void_p],
}  # fmt: skip

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


def _with_fault(function: Any, argtypes: list[Any]) -> _Function:
    """Declare a function whose last parameter tells what is wrong with a file: the caller never sees it, only `CorruptShard`."""
    function.argtypes, function.restype, function.errcheck = [*argtypes, c_void_p], c_int32, _check_file
    return lambda *arguments: cast(int, function(*arguments, ctypes.byref(_Fault())))


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for name, argtypes in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype, function.errcheck = argtypes, c_int32, _check
    loaded.stk_crc32c.argtypes, loaded.stk_crc32c.restype = [c_void_p, c_int64, c_uint32], c_uint32
    loaded.stk_load_begin.argtypes, loaded.stk_load_begin.restype = [c_void_p], c_int64
    return loaded


def _made(loaded: ctypes.CDLL, what: str, argtypes: list[Any]) -> tuple[Callable[..., int | None], Callable[[int], None]]:
    """Declare the two functions that make and free an object."""
    new, free = getattr(loaded, f"stk_{what}_new"), getattr(loaded, f"stk_{what}_free")
    new.argtypes, new.restype = argtypes, c_void_p
    free.argtypes, free.restype = [c_void_p], None
    return new, free


class Library:
    """The loaded library: each of its functions, declared and checked."""

    def __init__(self, path: Path) -> None:
        loaded = ctypes.CDLL(os.fspath(path))
        _compare_structs(loaded)
        _declared(loaded)
        brief = _declared(ctypes.PyDLL(str(path)))  # the same library, called without letting go of the GIL
        self.permute: _Function = loaded.stk_permute
        self.permute_brief: _Function = brief.stk_permute
        self.uniforms: _Function = loaded.stk_uniforms
        self.gather: _Function = loaded.stk_gather
        self.gather_brief: _Function = brief.stk_gather
        self.copy: _Function = loaded.stk_copy
        self.read_files: _Function = loaded.stk_read_files
        self.read_spans: _Function = loaded.stk_read_spans
        self.read_records: _Function = loaded.stk_read_records
        self.crc32c: _Function = loaded.stk_crc32c
        self.crc32c_brief: _Function = brief.stk_crc32c
        self.crc32c_spans: _Function = loaded.stk_crc32c_spans
        self.tar_feed = _with_fault(loaded.stk_tar_feed, [c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p])
        self.tar_finish = _with_fault(brief.stk_tar_finish, [c_void_p])
        self.tar_about: _Function = brief.stk_tar_about
        self.tar_strings: _Function = loaded.stk_tar_strings
        self.tar_forget: _Function = brief.stk_tar_forget
        self.tfrecord_scan = _with_fault(
            loaded.stk_tfrecord_scan, [c_void_p, c_int64, c_int64, c_int32, c_void_p, c_void_p, c_int64, *[c_void_p] * 3]
        )
        self.tfrecord_verify: _Function = loaded.stk_tfrecord_verify
        self.examples_parse: _Function = loaded.stk_examples_parse
        self.examples_lists: _Function = loaded.stk_examples_lists
        self.examples_add: _Function = loaded.stk_examples_add
        self.examples_about: _Function = brief.stk_examples_about
        self.gather_bytes: _Function = loaded.stk_gather_bytes
        self.decimals: _Function = brief.stk_decimals
        brief.stk_decimals.argtypes, brief.stk_decimals.restype = (
            [c_void_p, c_int64, c_void_p, c_void_p, *[c_int64] * 2, c_void_p],
            c_int64,
        )
        self.lmdb_walk = _with_fault(loaded.stk_lmdb_walk, [c_void_p, c_int32, c_int64, c_void_p])
        self.lmdb_table: _Function = loaded.stk_lmdb_table
        self.jpeg_header: _Function = brief.stk_jpeg_header
        self.image_plan: _Function = brief.stk_image_plan
        self.draws: _Function = loaded.stk_draws
        self.passes: _Function = brief.stk_passes
        self.render: _Function = loaded.stk_render
        self.finish: _Function = loaded.stk_finish
        self.jpeg_decode: _Function = loaded.stk_jpeg_decode
        self.mixup: _Function = loaded.stk_mixup
        self.cutmix: _Function = loaded.stk_cutmix
        self.seek_make: _Function = loaded.stk_seek_make
        self.seek_check: Callable[[int, int, int, int], int] = brief.stk_seek_check
        brief.stk_seek_check.argtypes, brief.stk_seek_check.restype = [c_void_p, c_int64, c_void_p, c_int64], c_int32
        self.build: Callable[[], bytes] = loaded.stk_build
        loaded.stk_build.restype = c_char_p
        self.simd: Callable[[int], int] = loaded.stk_simd
        loaded.stk_simd.argtypes, loaded.stk_simd.restype = [c_int32], c_int32
        self.decoder_new, self.decoder_free = _made(loaded, "decoder", [])
        self.examples_new, self.examples_free = _made(loaded, "examples", [])
        self.lmdb_new, self.lmdb_free = _made(loaded, "lmdb", [])
        self.load_begin: Callable[[int], int] = brief.stk_load_begin
        self.tar_new, self.tar_free = _made(loaded, "tar", [c_int32, c_int32])


_library: Library | None = None


def library() -> Library:
    """Return the library, loaded on first use; raises `KernelError` where it is not built."""
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

    def __init__(self, handle: int | None, free: Callable[[int], None], what: str) -> None:
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
    """Return where in memory an array begins, as a number: it means something while somebody holds the array."""
    try:
        return _addressof(_from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        return array.ctypes.data


def reference(struct: ctypes.Structure) -> Any:
    """What a parameter that points to a struct takes."""
    return ctypes.byref(struct)


def where(struct: ctypes.Structure) -> int:
    """Where in memory a struct is: it means something while somebody holds the struct."""
    return ctypes.addressof(struct)


def contiguous(array: NDArray[Any], dtype: type[np.generic], count: int, name: str) -> NDArray[Any]:
    """Return `array` as one run of `count` numbers of `dtype`; any other shape is a `KernelError`."""
    result = np.ascontiguousarray(array, dtype)
    if result.ndim != 1 or len(result) != count:
        raise KernelError(f"{name} has shape {result.shape}, not ({count},)")
    return result
