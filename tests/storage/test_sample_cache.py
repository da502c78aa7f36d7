"""Values by number, shared and bounded: what comes out is what went in, or nothing."""

from __future__ import annotations

import errno
import gc
import logging
import mmap
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import WriteError
from stoker.storage.sample_cache import SampleCache
from stoker.storage.scratch import Scratch

#: a value that has pages of its own
LARGE = bytes(range(256)) * 80
PAGES = 20480

Make = Callable[..., SampleCache]


@pytest.fixture(params=["memory", "folder"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def made(count: int = 10, limit: int = 1 << 20) -> SampleCache:
        return (
            SampleCache.in_memory(count, limit)
            if request.param == "memory"
            else SampleCache.in_folder(str(tmp_path), count, limit)
        )

    return made


def write(cache: SampleCache, number: int, value: Any) -> bool:
    return bool(cache.write(np.array([number]), [[value]]))


def read(cache: SampleCache, *numbers: int) -> list[bytes | None]:
    scratch = Scratch()
    try:
        return [None if value is None else bytes(value) for value in cache.read(np.array(numbers), scratch)]
    finally:
        scratch.close()


def test_what_was_written_is_read_here_and_by_who_got_it_by_pickle(make: Make) -> None:
    cache = make()
    other = pickle.loads(pickle.dumps(cache))  # noqa: S301  as in a worker: files of its own
    assert read(cache, 0, 1) == [None, None]
    assert write(cache, 3, b"three") and write(cache, 5, LARGE)
    assert other.write(np.array([4]), [[b"fo", np.frombuffer(b"ur", np.uint8)]])
    for each in (cache, other):
        assert read(each, 5, 4, 3, 2) == [LARGE, b"four", b"three", None]
    assert cache.missing(np.arange(6)).tolist() == [True, True, True, False, False, False]


def test_the_limit_holds_and_room_comes_back(make: Make) -> None:
    cache = make(limit=5 * PAGES)
    assert [write(cache, number, LARGE) for number in range(7)] == [True] * 5 + [False] * 2
    assert cache.used == 5 * PAGES
    cache.remove(np.array([1, 3]))
    assert cache.used == 3 * PAGES
    assert read(cache, 0, 1, 2, 3, 4) == [LARGE, None, LARGE, None, LARGE]
    assert [write(cache, number, LARGE) for number in (1, 6, 7)] == [True, True, False]
    assert os.fstat(cache._values).st_blocks * 512 <= 5 * PAGES


def test_the_room_of_the_last_value_comes_back_though_it_does_not_fill_its_pages(make: Make) -> None:
    cache = make(limit=PAGES)
    for number in range(4):
        assert write(cache, number, LARGE[:-100])
        cache.remove(np.array([number]))
    assert cache.used == 0 and os.fstat(cache._values).st_blocks == 0


def test_room_that_was_lost_comes_back_when_nobody_uses_it(tmp_path: Path) -> None:
    cache = SampleCache.in_folder(str(tmp_path), 9, 1 << 20)
    for number in range(6):
        assert write(cache, number, LARGE)
    cache._entries[1:5] = np.zeros((), cache._entries.dtype)  # two wrote the same sample, and the second entry was the last
    del cache
    gc.collect()
    again = SampleCache.in_folder(str(tmp_path), 9, 1 << 20)
    assert again.used == 2 * PAGES and read(again, 0, 1, 5) == [LARGE, None, LARGE]
    assert (tmp_path / "values").stat().st_blocks * 512 <= 2 * PAGES


def test_a_value_that_is_written_again_takes_the_room_of_one(make: Make) -> None:
    cache = make()
    for _ in range(3):
        assert write(cache, 2, LARGE)
    assert cache.kept()[1].tolist() == [PAGES]
    assert cache.used - (cache._end - cache._at) == PAGES


@pytest.mark.parametrize("damage", ["values", "cut values", "entry"])
def test_damage_is_not_read(damage: str, tmp_path: Path) -> None:
    cache = SampleCache.in_folder(str(tmp_path), 4, 1 << 20)
    assert write(cache, 0, LARGE) and write(cache, 1, LARGE)
    if damage == "values":
        with (tmp_path / "values").open("r+b") as file:
            file.seek(PAGES + 5)
            file.write(b"x")
    elif damage == "cut values":
        os.truncate(tmp_path / "values", PAGES + 5)
    else:
        cache._entries["offset"][1] += 1
    assert read(cache, 0, 1) == [LARGE, None]
    assert write(cache, 1, LARGE) and read(cache, 1) == [LARGE]


def test_room_that_a_damaged_entry_names_is_not_given_back(tmp_path: Path) -> None:
    cache = SampleCache.in_folder(str(tmp_path), 4, 1 << 20)
    assert write(cache, 0, LARGE) and write(cache, 1, LARGE) and write(cache, 2, LARGE)
    used = cache.used
    cache._entries["offset"][1:3] = 0, -PAGES  # where another's value lies, and where none can
    cache.remove(np.array([1, 2]))
    assert read(cache, 0) == [LARGE] and cache.used == used


def test_a_folder_is_found_again_and_its_room_counted(tmp_path: Path) -> None:
    cache = SampleCache.in_folder(str(tmp_path), 9, 1 << 20)
    for number in range(4):
        write(cache, number, LARGE)
    write(cache, 4, b"small")
    cache._head[1] = -7  # as if whoever counted was killed
    cache._entries["length"][8] = 5
    second = SampleCache.in_folder(str(tmp_path), 9, 1 << 20)
    assert second.used == -7  # not alone: others may have begun blocks
    del cache, second
    gc.collect()
    third = SampleCache.in_folder(str(tmp_path), 9, None)
    assert third.used == 4 * PAGES + 5 and third.limit > third.used
    assert read(third, 0, 3, 4, 8) == [LARGE, LARGE, b"small", None]
    assert write(third, 5, LARGE) and read(third, 3, 4, 5) == [LARGE, b"small", LARGE]


KILLED = """
import os, signal, sys
import numpy as np
from stoker.storage import sample_cache
from stoker.storage.sample_cache import SampleCache
cache = SampleCache.in_folder(sys.argv[1], 10, 1 << 20)
value = bytes(range(256)) * 80
cache.write(np.array([0]), [[value]])
def half(fd, value, offset):
    os.pwrite(fd, value[:100], offset)
    os.kill(os.getpid(), signal.SIGKILL)
sample_cache._pwrite = half
cache.write(np.array([1]), [[value]])
"""


def test_a_process_killed_while_it_writes_leaves_what_was_whole(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    cache = SampleCache.in_folder(str(tmp_path), 10, 1 << 20)
    assert read(cache, 0, 1) == [LARGE, None]
    assert write(cache, 1, LARGE) and read(cache, 1) == [LARGE]


def test_a_full_disk_ends_storing_with_one_warning(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make()
    assert write(cache, 0, b"there")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with caplog.at_level(logging.WARNING, "stoker"):
        assert not write(cache, 1, LARGE) and not write(cache, 2, LARGE)
    assert ["there is no room" in record.message for record in caplog.records] == [True]
    assert read(cache, 0, 1) == [b"there", None]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match="use a writable folder"):
        SampleCache.in_folder(str(tmp_path / "file" / "cache"), 3, None)


@pytest.mark.parametrize("name", ["values", "index"])
def test_a_link_in_a_folder_leads_nowhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / name).symlink_to(tmp_path / "precious")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WriteError, match=f"cache/{name}: is a symbolic link; use a writable folder"):
        SampleCache.in_folder(str(tmp_path / "cache"), 3, None)
    assert (tmp_path / "precious").read_text() == "mine"
    assert len(os.listdir("/proc/self/fd")) == before


DAMAGED_INDEX = """
import sys
import numpy as np
from stoker.storage.sample_cache import SampleCache
from stoker.storage.scratch import Scratch
first = SampleCache.in_folder(sys.argv[1], 5000, 1 << 20)
assert first.write(np.arange(5000), [[b"%d" % number] for number in range(5000)]) == 5000
with open(sys.argv[1] + "/index", "r+b") as file:
    file.write(b"x")
first.remove(np.array([1]))
second = SampleCache.in_folder(sys.argv[1], 5000, 1 << 20)
assert first.read(np.arange(5000), Scratch()) == [None] * 5000
SampleCache.in_folder(sys.argv[1], 10, 1 << 20)
for cache in (first, second):
    assert cache.write(np.array([4999]), [[b"again"]]) and bytes(cache.read(np.array([4999]), Scratch())[0]) == b"again"
"""


def test_an_index_that_is_made_empty_does_not_end_those_who_use_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DAMAGED_INDEX, str(tmp_path)], timeout=60, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_was_half_written_is_cut_when_nobody_uses_it(tmp_path: Path) -> None:
    for value in (LARGE, b"small"):
        cache = SampleCache.in_folder(str(tmp_path), 3, 1 << 20)
        assert write(cache, 0, value)
        os.pwrite(cache._values, LARGE * 9, 5 * PAGES)  # and then it was killed
        cache._entries["length"][1:] = 9 * PAGES
        del cache
        gc.collect()
        again = SampleCache.in_folder(str(tmp_path), 3, 1 << 20)
        assert read(again, 0, 1) == [value, None] and (tmp_path / "values").stat().st_size <= 2 * PAGES
        del again
        gc.collect()


def test_files_that_were_replaced_are_not_opened_by_workers(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = make()
    sent = pickle.dumps(cache)
    if cache._names[0].startswith("/proc/"):
        del cache
        gc.collect()
    else:
        (tmp_path / "values").unlink()
        (tmp_path / "index").unlink()
    later = make()  # other files by the same numbers, or names
    assert write(later, 0, LARGE)
    with caplog.at_level(logging.WARNING, "stoker"):
        assert pickle.loads(sent) is None  # noqa: S301
    assert "this process continues without the cache" in caplog.text


def test_a_forked_child_does_not_wait_for_the_lock_of_its_parent(make: Make) -> None:
    cache = make()
    write(cache, 0, LARGE)
    with cache._lock:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            cache.remove(np.array([0]))
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert read(cache, 0) == [LARGE]


def test_nothing_is_removed_where_its_room_would_be_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoHoles(mmap.mmap):
        def madvise(self, *_: Any) -> None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    cache = make()
    for number in range(4):
        write(cache, number, LARGE)
    assert cache.kept()[2].all()
    monkeypatch.setattr(mmap, "mmap", NoHoles)
    cache.remove(np.arange(4))
    assert read(cache, 0, 1, 2, 3) == [None, LARGE, LARGE, LARGE]
    assert not cache.kept()[2].any()


def test_memory_and_descriptors_go_back(make: Make) -> None:
    before = len(os.listdir("/proc/self/fd"))
    cache = make()
    write(cache, 0, LARGE)
    cache.release()
    assert not write(cache, 1, LARGE)
    if cache._names[0].startswith("/proc/"):
        assert os.fstat(cache._values).st_blocks == 0 and read(cache, 0) == [None]
    del cache
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
