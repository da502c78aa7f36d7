"""The cache: right bytes, within its limit, whatever the disk, the network and other processes do."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import random
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ConfigError, CorruptShard, RemoteError
from stoker.storage import cache as cache_module
from stoker.storage import cache_folder
from stoker.storage.blob import Blob, Stat
from stoker.storage.cache import Cache, CacheCounts, room_for
from stoker.storage.cache_blob import CachedBlob, CacheEntry
from stoker.storage.cache_file import PIECE, file_bytes
from stoker.storage.http import HttpRemote
from stoker.storage.open_files import files
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from ..support import together
from .conftest import fork, in_child, open_files
from .server import Server, Status

pytestmark = pytest.mark.usefixtures("nothing_is_left_open")
SIZE = 3 * PIECE + 12345


def content(seed: int, size: int = SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


class FakeBlob(Blob):
    """A file far away, in memory; it counts what is fetched and fails when told to."""

    def __init__(self, name: str, data: bytes, version: str = '"1"') -> None:
        self.url, self.name, self.data, self.version = f"fake://{name}", name, data, version
        self.streams = self.reads = self.bytes = 0
        self.fail: Exception | None = None
        self.gate: threading.Event | None = None
        self._lock = threading.Lock()

    def stat(self) -> Stat:
        return Stat(len(self.data), self.version)

    def read_into(self, offset: int, view: memoryview) -> None:
        if self.fail is not None:
            raise self.fail
        with self._lock:
            self.reads += 1
            self.bytes += len(view)
        view[:] = self.data[offset : offset + len(view)]

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview | bytes]:
        with self._lock:
            self.streams += 1
        for at in range(offset, len(self.data), 300_000):
            if self.fail is not None:
                raise self.fail
            if self.gate is not None and at > offset:
                assert self.gate.wait(30)
            piece = self.data[at : at + 300_000]
            with self._lock:
                self.bytes += len(piece)
            yield piece

    def read_all(self, limit: int) -> bytes:
        return self.data

    def sibling(self, suffix: str) -> FakeBlob:
        return FakeBlob(self.name + suffix, b"beside")


def read(blob: Blob, start: int = 0, stop: int = SIZE) -> bytes:
    data = bytearray(stop - start)
    blob.read_into(start, memoryview(data))
    return bytes(data)


def folder_of(cache: Cache) -> Path:
    return cache.folder / f"stoker-cache-{os.geteuid()}"


def units_in(cache: Cache) -> list[Path]:
    return sorted(folder_of(cache).glob("*.unit"))


def parts_in(cache: Cache) -> list[Path]:
    return sorted(folder_of(cache).glob("*.part"))


def bytes_in(cache: Cache) -> int:
    """What all its files have; never more than they had together at one moment."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # one went while we counted: what is left may not be of one moment
            return sum(path.stat().st_size for path in folder_of(cache).iterdir())


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Makes caches in one folder and closes them at the end."""
    made: list[Cache] = []

    def cache(shards: int = 3, **options: Any) -> Cache:
        made.append(Cache(tmp_path / "cache", **{"limit": room_for([SIZE] * shards), **options}))
        made[-1]._note_s = 0
        return made[-1]

    yield cache
    for each in made:
        each.close()


# ---- what it is for ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [None, "64KiB", "1MiB", "1MB", "16MiB"])
def test_any_range_is_right_and_fetched_once(make: Any, block: str | None) -> None:
    cache, inner = make(block=block), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    rng = random.Random(0)
    for _ in range(150):
        start = rng.randrange(SIZE)
        stop = min(SIZE, start + rng.choice([0, 1, 100, 5000, 100_000, 2 * PIECE]))
        assert read(blob, start, stop) == inner.data[start:stop]
    assert inner.bytes <= SIZE
    assert read(blob) == inner.data
    assert inner.bytes == SIZE, "each byte came once"
    assert b"".join(map(bytes, blob.stream(777, 50_000))) == inner.data[777:]
    assert inner.bytes == SIZE
    counts = cache.counts()
    assert counts.fetched_bytes == SIZE and counts.past == 0 and counts.hits > 150


def test_another_process_finds_it_there(make: Any) -> None:
    data = content(1)
    read(make().wrap(FakeBlob("a", data)))
    inner = FakeBlob("a", data)
    again = make()
    assert read(again.wrap(inner)) == data and inner.bytes == 0
    assert again.counts() == CacheCounts(hits=1)


def test_a_file_is_known_by_its_full_url_and_its_version(make: Any, server: Server, quick: Patience) -> None:
    cache = make()
    for path in ("/a/00.tar", "/b/00.tar", "/a/00.tar?x=1"):
        data = content(hash(path) % 1000, 100_000)
        url = server.put(path.partition("?")[0], data)
        blob = cache.wrap(RemoteBlob(HttpRemote(url + ("?x=1" if "?" in path else "")), quick))
        assert read(blob, 0, 100_000) == data
        blob.close()
    assert len(units_in(cache)) == 3
    server.put("/a/00.tar", content(99, 100_000))
    blob = cache.wrap(RemoteBlob(HttpRemote(server.origin + "/a/00.tar"), quick))
    assert read(blob, 0, 100_000) == content(99, 100_000)
    blob.close()


def test_the_index_beside_a_file_is_not_cached(make: Any) -> None:
    cache = make()
    blob = cache.wrap(FakeBlob("a", b"small"))
    assert blob.sibling(".stk").read_all(100) == b"beside" and blob.read_all(100) == b"small"
    assert not folder_of(cache).exists()


def test_a_file_without_a_version_is_read_past_the_cache(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    cache = make()
    for _ in range(2):
        blob = cache.wrap(FakeBlob("a", content(1), version=""))
        assert read(blob) == content(1) and b"".join(map(bytes, blob.stream(5))) == content(1)[5:]
        assert blob.hold() == -1 and list(blob.entries()) == []
    assert caplog.text.count("neither ETag nor Last-Modified") == 1


def test_an_empty_file_has_no_units(make: Any) -> None:
    blob = make().wrap(FakeBlob("a", b""))
    assert (read(blob, 0, 0), list(blob.stream()), list(blob.entries()), blob.hold()) == (b"", [], [], -1)


# ---- the fast path -----------------------------------------------------------------------------------------------------------


def test_a_checked_copy_gives_its_descriptor(make: Any) -> None:
    cache, inner = make(), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    assert blob.hold() == -1, "not there yet, and not fetched for it"
    read(blob, 0, 1)
    fd = blob.hold()
    assert fd >= 0 and os.pread(fd, SIZE, 0) == inner.data, "four pieces, all checked by one call"
    cache.close()
    os.unlink(units_in(cache)[0])
    assert os.pread(fd, 100, 5) == inner.data[5:105], "held: neither closing nor deleting takes it away"
    blob.release(fd)


def test_a_large_copy_gives_its_descriptor_once_all_of_it_is_checked(make: Any) -> None:
    inner = FakeBlob("a", content(1, 10 * PIECE))
    cache = make(10)
    blob = cache.wrap(inner)
    read(blob, 0, 1)
    fds = [blob.hold() for _ in range(3)]
    assert fds[:2] == [-1, -1] and fds[2] >= 0
    blob.release(fds[2])


def test_blocks_have_no_single_file_to_give_a_descriptor_of(make: Any) -> None:
    cache, inner = make(block="1MiB"), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    assert read(blob) == inner.data and blob.hold() == -1


def test_few_files_are_open_at_once(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, inner = make(40, block="64KiB"), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    files._close_idle()
    monkeypatch.setattr(files, "_most", len(files._open) + 5)
    for _ in range(2):
        assert read(blob) == inner.data and len(files._open) <= files._most
    assert inner.bytes == SIZE and not cache.counts().damaged


# ---- the limit ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [None, "512KiB"])
def test_the_limit_holds_and_the_least_recently_used_goes(make: Any, block: str | None) -> None:
    cache = make(3, block=block)
    blobs = [cache.wrap(FakeBlob(str(number), content(number))) for number in range(6)]
    rng = random.Random(0)
    for _ in range(60):
        number, start = rng.randrange(6), rng.randrange(SIZE)
        stop = min(SIZE, start + 100_000)
        assert read(blobs[number], start, stop) == content(number)[start:stop]
        assert bytes_in(cache) <= cache.limit
    assert cache.counts().evicted > 3 and cache.counts().past == 0


def test_what_was_used_last_stays(make: Any) -> None:
    cache = make(3)
    inners = [FakeBlob(str(number), content(number)) for number in range(5)]
    blobs = [cache.wrap(inner) for inner in inners]
    for number in (0, 1, 2, 0, 3, 0, 4, 0):
        read(blobs[number], 0, 10)
    assert [inner.streams for inner in inners] == [1, 1, 1, 1, 1]
    again = make(3)
    for number in (0, 3, 4):
        read(again.wrap(inners[number]), 0, 10)
    assert [inner.streams for inner in inners] == [1, 1, 1, 1, 1], "0, 3 and 4 are here"


def test_a_smaller_limit_takes_effect_at_once(make: Any) -> None:
    cache = make(4)
    for number in range(4):
        read(cache.wrap(FakeBlob(str(number), content(number))), 0, 1)
    smaller = make(2)
    read(smaller.wrap(FakeBlob("3", content(3))), 0, 1)
    read(smaller.wrap(FakeBlob("4", content(4))), 0, 1)
    assert bytes_in(smaller) <= smaller.limit and len(units_in(smaller)) == 2


def test_a_limit_too_small_for_one_unit_reads_past_the_cache(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    cache, inner = make(1, limit=SIZE), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    assert read(blob) == inner.data and read(blob, 5, 10) == inner.data[5:10]
    assert b"".join(map(bytes, blob.stream())) == inner.data and inner.streams == 1
    assert caplog.text.count("is read past the cache") == 1 and cache.counts().past == 3
    assert not folder_of(cache).exists()


def test_files_of_others_are_never_touched(make: Any, tmp_path: Path) -> None:
    cache = make(1)
    read(cache.wrap(FakeBlob("a", content(1))))
    mine = [tmp_path / "cache" / "precious.tar", folder_of(cache) / "precious.tar", folder_of(cache) / ("ab" * 24 + ".unit")]
    mine.append(folder_of(cache) / ("cd" * 24 + ".1-0123456789abcdef.part.bak"))
    for path in mine:
        path.write_bytes(b"mine")
    (folder_of(cache) / ("ef" * 24 + ".unit")).symlink_to(mine[0])
    again = make(1)
    for number in range(5):
        read(again.wrap(FakeBlob(str(number), content(number))))
    assert [path.read_bytes() for path in mine] == [b"mine"] * 4


def test_nobody_else_can_read_it(make: Any) -> None:
    old = os.umask(0)
    try:
        cache = make()
        read(cache.wrap(FakeBlob("a", content(1))))
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder_of(cache).iterdir()}
    assert set(modes.values()) == {0o600} and "CACHEDIR.TAG" in modes
    assert stat.S_IMODE(folder_of(cache).stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["link", "open to all", "file"])
def test_a_folder_somebody_else_prepared_is_not_used(
    kind: str, make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make()
    cache.folder.mkdir()
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder_of(cache).symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        folder_of(cache).write_bytes(b"")
    else:
        folder_of(cache).mkdir()
        folder_of(cache).chmod(0o777)
    inner = FakeBlob("a", content(1))
    assert read(cache.wrap(inner)) == inner.data
    assert caplog.text.count("the cache cannot be used now") == 1
    assert not list((tmp_path / "elsewhere").glob("*"))


# ---- damage ------------------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("when", ["between runs", "between epochs"])
@pytest.mark.parametrize("at", [0, PIECE, SIZE - 1, SIZE, SIZE + 3, SIZE + 17, SIZE + 30, SIZE + 40, SIZE + 60, SIZE + 75])
def test_a_flipped_bit_is_noticed_and_the_unit_fetched_again(at: int, when: str, make: Any) -> None:
    inner = FakeBlob("a", content(1))
    cache = make()
    assert read(cache.wrap(inner)) == inner.data
    (path,) = units_in(cache)
    flip(path, at)
    if when == "between runs":
        cache = make()
    assert read(cache.wrap(inner)) == inner.data
    assert inner.streams == 2 and cache.counts().damaged == 1
    assert read(make().wrap(inner)) == inner.data and inner.streams == 2


@pytest.mark.parametrize("size", [0, 1, 100, SIZE, file_bytes(SIZE) - 1, file_bytes(SIZE) + 1])
def test_a_copy_of_another_length_is_fetched_again(size: int, make: Any) -> None:
    inner = FakeBlob("a", content(1))
    read(make().wrap(inner))
    cache = make()
    os.truncate(units_in(cache)[0], size)
    assert read(cache.wrap(inner)) == inner.data and inner.streams == 2 and cache.counts().damaged == 1


def test_only_what_is_read_is_checked(make: Any) -> None:
    inner = FakeBlob("a", content(1))
    read(make().wrap(inner))
    cache = make()
    flip(units_in(cache)[0], 2 * PIECE + 7)
    blob = cache.wrap(inner)
    assert read(blob, 0, 2 * PIECE) == inner.data[: 2 * PIECE] and inner.streams == 1
    assert read(blob, 2 * PIECE, SIZE) == inner.data[2 * PIECE :] and inner.streams == 2


def test_a_copy_under_the_wrong_name_is_not_believed(make: Any) -> None:
    cache = make()
    one, two = FakeBlob("1", content(1)), FakeBlob("2", content(2))
    read(cache.wrap(one))
    (path_one,) = units_in(cache)
    read(cache.wrap(two))
    (path_two,) = set(units_in(cache)) - {path_one}
    path_one.replace(path_two)
    assert read(make().wrap(two)) == two.data


def test_damage_seen_by_many_threads_is_one_damage(make: Any) -> None:
    inner = FakeBlob("a", content(1))
    read(make().wrap(inner))
    cache = make()
    flip(units_in(cache)[0], 100)
    blob = cache.wrap(inner)
    assert all(together(8, lambda _: read(blob, 0, 1000) == inner.data[:1000]))
    assert (cache.counts().damaged, inner.streams) == (1, 2)


def test_a_disk_that_damages_everything_is_an_error(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def lying(fd: int, data: Any, offset: int) -> int:
        broken = bytearray(data)
        if len(broken) > 5000:
            broken[50] ^= 1
        return real(fd, broken, offset)

    cache, inner = make(), FakeBlob("a", content(1))
    monkeypatch.setattr(os, "pwrite", lying)
    with pytest.raises(CorruptShard, match=r"fake://a: its copy in the cache was damaged 4 times .*check that disk") as caught:
        for _ in range(10):
            read(cache.wrap(inner))
    assert caught.value.shard == "fake://a"


# ---- a disk that cannot ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync", "ftruncate", "open", "mkdir", "scandir", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_whatever_the_disk_refuses_the_bytes_come_and_one_warning(
    call: str, number: int, make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache, inner = make(), FakeBlob("a", content(1))
    blob = cache.wrap(inner)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        if call in ("mkdir", "rename"):
            patch.setattr(Path, call, refuse)
        assert read(blob) == inner.data and read(blob, 7, 99) == inner.data[7:99]
        assert b"".join(map(bytes, blob.stream())) == inner.data
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the cache cannot be used now" in caplog.text
    cache._resting_until_s = 0
    assert read(blob) == inner.data
    assert parts_in(cache) == [] and len(units_in(cache)) == 1, "once the disk can again, it is used"


def test_a_full_disk_makes_room_by_what_is_ours(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk holds less than the limit allows, and what is deleted but open counts."""
    real = os.posix_fallocate
    cache = make(100)

    def small_disk(fd: int, offset: int, length: int) -> None:
        deleted = sum(name.endswith(".unit (deleted)") for name in open_files())
        if (len(units_in(cache)) + deleted) * file_bytes(SIZE) + length > 3 * file_bytes(SIZE):
            raise OSError(errno.ENOSPC, "full")
        real(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", small_disk)
    for number in range(8):
        assert read(cache.wrap(FakeBlob(str(number), content(number)))) == content(number)
    assert len(units_in(cache)) == 3 and cache.counts().past == 0


def test_a_folder_deleted_while_in_use_is_made_again(make: Any) -> None:
    import shutil

    cache, inner = make(), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    assert read(blob) == inner.data
    shutil.rmtree(cache.folder)
    assert read(blob) == inner.data and read(cache.wrap(FakeBlob("b", content(2)))) == content(2)
    assert len(units_in(cache)) == 2 and cache.counts().past == 0


def test_a_lock_that_is_never_given_up_does_not_stop_reading(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(cache_folder, "_LOCK_S", 0.1)
    cache, inner = make(), FakeBlob("a", content(1))
    read(cache.wrap(FakeBlob("b", content(2))))
    with open(folder_of(cache) / "books", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert read(cache.wrap(inner)) == inner.data
        assert cache.counts().past == 1


@pytest.mark.parametrize("text", [b"", b"!", b"! {}", b" {}\n", b" null\n", b" [1]\n", b"\xff" * 99, b" " + b"[" * 9999 + b"\n"])
def test_damaged_books_are_made_anew(text: bytes, make: Any) -> None:
    cache = make(2)
    for number in range(2):
        read(cache.wrap(FakeBlob(str(number), content(number))), 0, 1)
    (folder_of(cache) / "books").write_bytes(text)
    for number in range(2, 5):
        read(cache.wrap(FakeBlob(str(number), content(number))), 0, 1)
        assert bytes_in(cache) <= cache.limit
    assert len(units_in(cache)) == 2


# ---- threads and processes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [None, "1MiB"])
def test_many_readers_of_one_unit_download_it_once(make: Any, block: str | None) -> None:
    cache, inner = make(block=block), FakeBlob("a", content(1))
    blob = cache.wrap(inner)
    spans = [(number * 200_000, number * 200_000 + 150_000) for number in range(12)]
    results = together(12, lambda number: read(blob, *spans[number]) == inner.data[slice(*spans[number])])
    assert all(result is True for result in results)
    assert inner.bytes <= SIZE and cache.counts().past == 0


def test_who_waits_for_a_unit_gets_the_part_that_is_there(make: Any) -> None:
    cache, inner = make(), FakeBlob("a", content(1))
    inner.gate = threading.Event()
    blob = cache.wrap(inner)
    owner = threading.Thread(target=read, args=(blob, 0, SIZE))
    owner.start()
    while not parts_in(cache):
        time.sleep(0.001)
    assert read(blob, 1000, 250_000) == inner.data[1000:250_000], "while the rest is held back"
    assert not inner.gate.is_set() and units_in(cache) == []
    inner.gate.set()
    owner.join(30)
    assert read(blob) == inner.data and inner.streams == 1


def test_one_failed_download_is_one_error_for_all_who_wait(make: Any) -> None:
    cache, inner = make(), FakeBlob("a", content(1))
    inner.gate, blob = threading.Event(), cache.wrap(inner)

    def work(number: int) -> bytes:
        return read(blob, SIZE - 10, SIZE)

    inner.fail = None
    threading.Timer(
        0.2, lambda: (setattr(inner, "fail", RemoteError("gone", url="fake://a", status=503)), inner.gate.set())
    ).start()
    results = together(6, work)
    assert all(isinstance(result, RemoteError) and (str(result), result.status) == ("gone", 503) for result in results), results
    assert parts_in(cache) == [] and inner.streams <= 6
    inner.fail = None
    assert read(blob) == inner.data


def test_a_reader_of_a_unit_that_goes_reads_on(make: Any) -> None:
    cache = make(1)
    blob = cache.wrap(FakeBlob("a", content(1)))
    read(blob, 0, 1)
    fd = blob.hold()
    read(cache.wrap(FakeBlob("b", content(2))))
    assert len(units_in(cache)) == 1 and os.pread(fd, SIZE, 0) == content(1)
    blob.release(fd)
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_unit_another_process_fetches_is_waited_for(make: Any) -> None:
    one, two = make(), make()
    first, second = FakeBlob("a", content(1)), FakeBlob("a", content(1))
    first.gate = threading.Event()
    owner = threading.Thread(target=read, args=(one.wrap(first),))
    owner.start()
    while not parts_in(one):
        time.sleep(0.001)
    threading.Timer(0.2, first.gate.set).start()
    assert read(two.wrap(second)) == content(1) and second.bytes == 0
    owner.join(30)


def test_a_unit_another_process_fetches_for_too_long_is_read_past_the_cache(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_WAIT_S", 0.05)
    one, two = make(), make()
    first = FakeBlob("a", content(1))
    first.gate = threading.Event()
    owner = threading.Thread(target=read, args=(one.wrap(first),))
    owner.start()
    while not parts_in(one):
        time.sleep(0.001)
    assert read(two.wrap(FakeBlob("a", content(1)))) == content(1) and two.counts().past == 1
    first.gate.set()
    owner.join(30)
    assert one.counts().fetched == 1


def test_a_forked_child_reads_on_and_leaves_the_parents_download_alone(make: Any) -> None:
    cache = make()
    done, slow = FakeBlob("a", content(1)), FakeBlob("b", content(2))
    slow.gate = threading.Event()
    blob = cache.wrap(done)
    read(blob)
    owner = threading.Thread(target=read, args=(cache.wrap(slow),))
    owner.start()
    while not parts_in(cache):
        time.sleep(0.001)

    def works() -> bool:
        fresh = FakeBlob("c", content(3))
        return read(blob) == done.data and read(cache.wrap(fresh)) == fresh.data and len(parts_in(cache)) == 1

    assert in_child(works)
    slow.gate.set()
    owner.join(30)
    assert read(cache.wrap(slow)) == slow.data and slow.streams == 1 and len(units_in(cache)) == 3


def test_what_a_dead_process_left_is_swept(make: Any) -> None:
    cache = make(1)
    inner = FakeBlob("a", content(1))

    inner.gate = threading.Event()
    pid = fork(lambda: read(cache.wrap(inner)) and None)
    while not parts_in(cache):
        time.sleep(0.001)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert len(parts_in(cache)) == 1
    inner.gate = None
    again = make(1)
    assert read(again.wrap(FakeBlob("b", content(2)))) == content(2), "its room is free"
    assert parts_in(again) == [] and again.counts().past == 0


def test_it_travels_to_another_process(make: Any, server: Server, quick: Patience) -> None:
    import pickle

    url = server.put("/a", content(1))
    blob = make(block="1MiB").wrap(RemoteBlob(HttpRemote(url), quick))
    again = pickle.loads(pickle.dumps([blob, blob]))  # noqa: S301
    assert read(again[0]) == content(1) and again[0]._cache is again[1]._cache and again[0]._cache.block == 1 << 20
    again[0]._cache.close()
    again[0].close()


# ---- fetching ahead ----------------------------------------------------------------------------------------------------------


def fetch_all(cache: Cache) -> int:
    count = 0
    while (fetch := cache.next_fetch()) is not None:
        fetch()
        count += 1
        assert count < 1000
    return count


def fakes(cache: Cache, count: int) -> tuple[list[FakeBlob], list[CachedBlob]]:
    inners = [FakeBlob(str(number), content(number)) for number in range(count)]
    return inners, [cache.wrap(inner) for inner in inners]


def test_what_is_needed_is_fetched_in_that_order_until_it_is_full(make: Any) -> None:
    cache = make(3)
    inners, blobs = fakes(cache, 6)
    cache.foresee(unit for number in (4, 1, 5, 0, 2) for unit in blobs[number].entries())
    assert fetch_all(cache) <= 4
    assert [inner.streams for inner in inners] == [0, 1, 0, 0, 1, 1], "4, 1 and 5; 0 would displace what is needed sooner"
    assert read(blobs[4]) == inners[4].data
    cache.foresee(unit for number in (1, 5, 0, 2) for unit in blobs[number].entries())
    fetch_all(cache)
    assert inners[0].streams == 1, "4 has been read, and makes room for 0"
    cache.foresee(unit for number in (0, 2) for unit in blobs[number].entries())
    fetch_all(cache)
    assert read(blobs[0]) == inners[0].data and read(blobs[2]) == inners[2].data
    assert [inner.streams for inner in inners] == [1, 1, 1, 0, 1, 1] and cache.counts().past == 0


def test_what_is_needed_last_goes_first(make: Any) -> None:
    cache = make(3)
    inners, blobs = fakes(cache, 5)
    for number in (0, 1, 2):
        read(blobs[number], 0, 1)
    cache.foresee(unit for number in (3, 1, 0, 2) for unit in blobs[number].entries())
    read(blobs[3], 0, 1)  # 2 goes, though it was used last
    for number in (1, 0, 3):
        read(blobs[number], 0, 1)
    assert [inner.streams for inner in inners] == [1, 1, 1, 1, 0]
    assert read(blobs[2], 0, 5) == inners[2].data[:5]
    assert (inners[2].streams, inners[2].reads) == (1, 1), "all others are needed before it: it is not worth their room"


def test_what_nobody_needs_goes_before_what_somebody_does(make: Any) -> None:
    cache = make(3)
    inners, blobs = fakes(cache, 4)
    for number in (0, 1, 2):
        read(blobs[number], 0, 1)
    cache.foresee(unit for number in (3, 0, 1) for unit in blobs[number].entries())
    fetch_all(cache)
    for number in (0, 1, 3):
        read(blobs[number], 0, 1)
    assert [inner.streams for inner in inners] == [1, 1, 1, 1]


def test_blocks_are_foreseen_like_shards(make: Any) -> None:
    cache = make(2, block="1MiB")
    inners, blobs = fakes(cache, 2)
    assert len(blobs[0].entries()) == 4 and len(blobs[0].entries(PIECE - 1, 2)) == 2 and blobs[0].entries(5, 0) == ()
    cache.foresee([*blobs[1].entries(2 * PIECE, 10), *blobs[0].entries(0, 10)])
    fetch_all(cache)
    assert (inners[0].bytes, inners[1].bytes) == (PIECE, PIECE)
    assert read(blobs[1], 2 * PIECE, 2 * PIECE + 10) == inners[1].data[2 * PIECE : 2 * PIECE + 10]
    assert inners[1].bytes == PIECE


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_worker_leaves_large_files_to_the_process_that_fetches_ahead(
    make: Any, monkeypatch: pytest.MonkeyPatch, foreseen: bool
) -> None:
    monkeypatch.setattr(cache_module, "_WORTH_WAITING_BYTES", 1000)
    cache = make(2)
    inners, blobs = fakes(cache, 1)
    if foreseen:
        cache.foresee(blobs[0].entries())
    theirs: Cache = copy.copy(cache)  # as a pickle would
    assert read(theirs.wrap(inners[0]), 5, 95) == inners[0].data[5:95]
    assert inners[0].streams == (0 if foreseen else 1), "only what is needed is read, past the cache"
    fetch_all(cache)
    assert read(theirs.wrap(inners[0]), 5, 95) == inners[0].data[5:95]
    assert (inners[0].streams, inners[0].reads) == (1, 1 if foreseen else 0)
    theirs.close()


def test_a_failure_ahead_is_told_to_who_needs_it_only(make: Any) -> None:
    cache = make(3)
    inners, blobs = fakes(cache, 2)
    inners[0].fail = RemoteError("gone", url="fake://0", status=500)
    cache.foresee(unit for blob in blobs for unit in blob.entries())
    assert fetch_all(cache) == 2
    assert inners[1].streams == 1 and read(blobs[1]) == inners[1].data
    with pytest.raises(RemoteError, match="gone"):
        read(blobs[0])
    inners[0].fail = None
    assert read(blobs[0]) == inners[0].data


@pytest.mark.parametrize("block", [None, "1MiB"])
def test_threads_that_fetch_ahead_serve_readers(make: Any, block: str | None) -> None:
    cache = make(3, block=block)
    inners, blobs = fakes(cache, 8)
    stop = threading.Event()
    fetchers = [threading.Thread(target=cache.fetch_ahead, args=(stop,)) for _ in range(2)]
    for fetcher in fetchers:
        fetcher.start()
    try:
        order = [number for number in range(8) for _ in (0, 1)]
        units = [blobs[number].entries() for number in order]
        cache.foresee(unit for group in units for unit in group)
        for at, number in enumerate(order):
            assert read(blobs[number]) == inners[number].data
            assert bytes_in(cache) <= cache.limit
            cache.foresee(unit for group in units[at + 1 :] for unit in group)
        assert all(inner.bytes == SIZE for inner in inners), "each came once"
        assert read(blobs[0]) == inners[0].data, "also what nobody foresaw"
    finally:
        stop.set()
        for fetcher in fetchers:
            fetcher.join(30)
    assert not any(fetcher.is_alive() for fetcher in fetchers)
    assert read(blobs[1]) == inners[1].data, "and without them"


def test_a_part_of_a_large_unit_is_not_waited_for(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_WORTH_WAITING_BYTES", 1000)
    cache = make(3)
    (inner,), (blob,) = fakes(cache, 1)
    inner.gate, stop = threading.Event(), threading.Event()
    fetcher = threading.Thread(target=cache.fetch_ahead, args=(stop,))
    fetcher.start()
    while not cache._fetchers:
        time.sleep(0.001)
    assert read(blob, SIZE - 100, SIZE) == inner.data[-100:] and inner.reads == 1
    threading.Timer(0.1, inner.gate.set).start()
    assert b"".join(map(bytes, blob.stream())) == inner.data, "who reads it in order does wait"
    stop.set()
    fetcher.join(30)
    assert inner.streams == 1


def test_a_flight_ahead_that_somebody_waits_for_takes_the_room_it_needs(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched ahead, 3 must wait: what is here is needed. But somebody comes for it before it is told so."""
    cache = make(3)
    inners, blobs = fakes(cache, 4)
    cache.foresee(unit for number in (0, 1, 2, 3) for unit in blobs[number].entries())
    for number in (0, 1, 2):
        read(blobs[number])
    fetch, boarded, board, claim = cache.next_fetch(), threading.Event(), cache._board, cache._folder.claim
    reader = threading.Thread(target=read, args=(blobs[3],))

    def tell(unit: CacheEntry) -> Any:
        try:
            return board(unit)
        finally:
            boarded.set()

    def claim_late(*args: Any) -> Any:
        answer = claim(*args)
        if not reader.ident:
            cache.foresee(unit for number in (3, 0, 1, 2) for unit in blobs[number].entries())
            reader.start()
            assert boarded.wait(30)
        return answer

    monkeypatch.setattr(cache, "_board", tell)
    monkeypatch.setattr(cache._folder, "claim", claim_late)
    fetch()
    reader.join(30)
    assert [inner.streams for inner in inners] == [1, 1, 1, 1] and cache.counts().past == 0
    assert [read(blobs[number]) == inners[number].data for number in (0, 1, 3)] == [True] * 3
    assert inners[2].streams == 1 and cache.counts().evicted == 1, "2, which is needed last, made room"


def test_calls_that_fetchers_left_undone_hold_up_nobody(make: Any) -> None:
    cache = make(3)
    (inner,), (blob,) = fakes(cache, 1)
    cache._fetchers = 1  # one that never comes
    assert cache._board(blob.entries()[0])[1] is False
    stop = threading.Event()
    stop.set()
    cache._fetchers = 0
    cache.fetch_ahead(stop)
    assert read(blob) == inner.data and cache.counts().past == 0


def test_a_reader_whom_the_fetchers_leave_fetches_for_himself(make: Any) -> None:
    cache = make(3)
    (inner,), (blob,) = fakes(cache, 1)
    cache._fetchers = 1  # one that never comes
    reader = threading.Thread(target=read, args=(blob,))
    reader.start()
    while not cache._urgent:
        time.sleep(0.001)
    stop = threading.Event()
    stop.set()
    cache._fetchers = 0
    cache.fetch_ahead(stop)
    reader.join(30)
    assert (inner.streams, inner.reads) == (1, 0) and cache.counts().past == 0


# ---- the door ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": "much"}, {"block": 1}, {"block": "1TB"}, {"block": "x"}, {"folder": ""}], ids=str
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Cache(**{"folder": "/x", **options})


def test_making_a_cache_touches_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", "1GB", block="4MB")
    assert repr(cache) == f"Cache('{tmp_path}/c', limit='1.0 GB', block='4.0 MB')" and not cache.folder.exists()
    cache.close()


def test_over_http_a_refused_download_is_the_readers_error(make: Any, server: Server, quick: Patience) -> None:
    url = server.put("/a", content(1))
    cache = make()
    blob = cache.wrap(RemoteBlob(HttpRemote(url), quick))
    blob.stat()
    server.always("/a", Status(403))
    with pytest.raises(RemoteError) as caught:
        read(blob)
    assert caught.value.status == 403 and parts_in(cache) == []
    server.always("/a")
    assert read(blob) == content(1)
    blob.close()
