"""Memory of messages is used again, unless the user has said what the C library is to do."""

from __future__ import annotations

import platform

import pytest

from ..loader.runs import run_python

#: thirty times four blocks of 4 MB, all of them written to; prints how many pages the system had to give
BLOCKS = """
import ctypes, resource, sys
if sys.argv[1] == "keep":
    from stoker.remote.message_memory import keep_message_memory
    keep_message_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(30):
    blocks = [libc.malloc(4 << 20) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, 4 << 20)
    for block in blocks:
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_of_freed_messages_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    kept, given_back = (int(run_python(BLOCKS, how).stdout) for how in ("keep", "as it is"))
    assert kept < given_back / 5
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert int(run_python(BLOCKS, "keep").stdout) > 5 * kept, "what the user says counts"
