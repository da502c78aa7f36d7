"""Files on this machine: read by ranges from many threads, and never a byte of another file."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.errors import ReadError, ShardChanged, SourceNotFound, StokerError
from stoker.storage.cache_entries import CacheEntries
from stoker.storage.cache_file import EntryWriter, file_bytes
from stoker.storage.connections import pool_of
from stoker.storage.local import HeldFiles, LocalBlob
from stoker.storage.open_files import _keepers, files
from stoker.storage.origin import Origin

from ..loader.runs import run_python
from ..source.making import sample_tar
from .server import Server

DATA = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(DATA)
    return tmp_path / "a.bin"


def blob_of(path: Path) -> LocalBlob:
    return LocalBlob(os.fsencode(path))


def read(blob: LocalBlob, offset: int, length: int) -> bytes:
    out = bytearray(length)
    blob.read_into(offset, memoryview(out))
    return bytes(out)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_any_range_is_read(path: Path) -> None:
    blob = blob_of(path)
    assert (blob.name, blob.url) == ("a.bin", str(path))
    assert blob.stat().size == len(DATA)
    for offset, length in ((0, 0), (0, 1), (0, len(DATA)), (17, 1000), (len(DATA) - 1, 1), (len(DATA), 0)):
        assert read(blob, offset, length) == DATA[offset : offset + length]


@pytest.mark.parametrize("piece", [1, 7, 1000, len(DATA), 1 << 20])
def test_a_stream_gives_each_byte_once(path: Path, piece: int) -> None:
    for offset in (0, 1, len(DATA) - 1, len(DATA)) if piece > 100 else (len(DATA) - 50,):
        assert b"".join(bytes(part) for part in blob_of(path).stream(offset, piece)) == DATA[offset:]


def test_a_small_file_is_read_whole_and_a_large_one_refused(path: Path) -> None:
    assert blob_of(path).read_all(len(DATA)) == DATA
    with pytest.raises(ReadError, match="10,240 bytes, more than the 10,239"):
        blob_of(path).read_all(len(DATA) - 1)


def test_names_that_are_no_text_are_read_and_shown(tmp_path: Path) -> None:
    name = b"\xff\n\\.tar"
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x")
    blob = LocalBlob(os.fsencode(tmp_path) + b"/" + name)
    assert read(blob, 0, 1) == b"x"
    assert blob.name == r"\xff\x0a\\.tar" and blob.url.isprintable()


def test_a_sibling_has_its_name_and_the_suffix(path: Path) -> None:
    Path(f"{path}.stk").write_bytes(b"index")
    assert blob_of(path).sibling(".stk").read_all(100) == b"index"
    assert blob_of(path).sibling(".stk").name == "a.bin.stk"


def test_many_threads_read_many_files_through_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_most", 5)
    contents = [random.Random(number).randbytes(3000) for number in range(40)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}").write_bytes(content)
    blobs = [blob_of(tmp_path / f"{number}") for number in range(40)]
    before, most = open_files(), []

    def work(seed: int) -> bool:
        rng, good = random.Random(seed), True
        for _ in range(200):
            number, offset, length = rng.randrange(40), rng.randrange(3000), rng.randrange(500)
            length = min(length, 3000 - offset)
            good &= read(blobs[number], offset, length) == contents[number][offset : offset + length]
            if rng.random() < 0.05:
                blobs[number].close()
            most.append(open_files())
        return good

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert max(most) <= before + 5 + 8 + 8, "those in use, those kept, and the listing itself"
    for blob in blobs:
        blob.close()
    assert open_files() <= before


def allow_two_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Than those that are in use: what other tests share may keep some open."""
    gc.collect()
    files._close_idle()
    monkeypatch.setattr(files, "_most", len(files._open) + 2)


def test_a_held_descriptor_stays_open_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_two_more(monkeypatch)
    for number in range(6):
        (tmp_path / f"{number}").write_bytes(bytes([number]) * 10)
    blobs = [blob_of(tmp_path / f"{number}") for number in range(6)]
    fds = [blob.hold() for blob in blobs]
    assert len(set(fds[:2])) == 2 and min(fds[:2]) >= 0 and fds[2:] == [-1] * 4, "who may do without one gets none to spare"
    fds[2:] = [blob.pin() for blob in blobs[2:]]
    assert len(set(fds)) == 6 and min(fds) >= 0
    for blob in blobs:
        blob.close()
    assert [os.pread(fd, 1, 3) for fd in fds] == [bytes([number]) for number in range(6)]
    for blob, fd in zip(blobs, fds):
        blob.release(fd)
    assert read(blobs[0], 0, 1) == b"\0"
    assert len(files._open) <= files._most
    for blob in blobs:
        blob.close()


def test_where_the_process_has_no_descriptors_left_readers_wait_for_one_another(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is held is given back when the other already waits."""
    (tmp_path / "b").write_bytes(b"other")
    first, second, waiting = blob_of(path), blob_of(tmp_path / "b"), threading.Event()
    fd, real = first.pin(), os.open

    def opened(name: bytes, flags: int) -> int:
        if files.has(first):
            waiting.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return real(name, flags)

    monkeypatch.setattr(os, "open", opened)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(second.read_all, 10)
        assert waiting.wait(60)
        first.release(fd)
        assert got.result(60) == b"other"
    second.close()
    monkeypatch.undo()
    fd = first.pin()
    monkeypatch.setattr(files.pin.__func__, "__defaults__", (0.0,))  # type: ignore[attr-defined]
    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(ReadError, match="b: Too many open files"):
        second.read_all(10)
    first.release(fd)


FEW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import pathlib
import stoker
from tests.source.making import sample_tar
folder, shards = pathlib.Path(sys.argv[1]), 150
for shard in range(shards):
    samples = [(f"{n:06d}", {"cls": b"%d" % n, "bin": bytes(50)}) for n in range(4 * shard, 4 * shard + 4)]
    (folder / f"s-{shard:03d}.tar").write_bytes(sample_tar(samples))
for options in ({}, {}, {"index": "never", "interleave": 16}):
    pipeline = stoker.tar(folder, **options).shuffle(seed=1, window=shards if options else None)
    with pipeline.batch(64, drop_last=False).loader(threads=32) as loader:
        for _ in range(2):
            assert sorted(int(value) for batch in loader for value in batch["cls"]) == list(range(shards * 4))
print(len(list(folder.glob("*.stk"))))
"""


def test_64_descriptors_are_enough_for_any_number_of_shards_and_threads(tmp_path: Path) -> None:
    """Making indexes, reading at random with them, and in sequence."""
    done = run_python(FEW, str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "150\n", "")


FEW_FAR = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import stoker
_, url, folder = sys.argv
for cache in (None, stoker.Cache(folder + "/whole"), stoker.Cache(folder + "/blocks", block="1MB")):
    pipeline = stoker.tar(url, cache=cache).shuffle(seed=1)
    with pipeline.batch(40, drop_last=False).loader(threads=16) as loader:
        assert sorted(int(value) for batch in loader for value in batch["cls"]) == list(range(160)), cache
"""


def test_64_descriptors_are_enough_for_shards_over_a_network_and_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Server() as server:
        for shard in range(80):
            server.put(f"/s-{shard:02d}.tar", sample_tar([(f"{n}", {"cls": b"%d" % n}) for n in (2 * shard, 2 * shard + 1)]))
        done = run_python(FEW_FAR, f"{server.origin}/s-{{00..79}}.tar", str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_whoever_needs_a_descriptor_gets_those_that_others_keep_idle(tmp_path: Path) -> None:
    """Files of a cache and idle connections, too."""
    files._close_idle()
    entries, before = kept_entries(tmp_path), open_files()
    for file in [entries.pin(name, tmp_path / name, DIGEST) for name in ENTRIES]:
        assert file is not None
        entries.unpin(file)
    assert open_files() == before + len(ENTRIES)

    def opens() -> str:
        if open_files() > before:
            raise OSError(errno.EMFILE, "Too many open files")
        return "opened"

    assert files.patiently(opens, 0.0) == "opened"
    assert pool_of(Origin("http", "host", 80), None) in _keepers


def test_files_of_caches_and_of_shards_are_in_one_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_two_more(monkeypatch)
    entries, before = kept_entries(tmp_path), open_files()
    pinned = [entries.pin(name, tmp_path / name, DIGEST) for name in ENTRIES]
    assert open_files() == before + len(ENTRIES), "who needs one gets it"
    blob = blob_of(tmp_path / "a")
    assert blob.hold() == -1 and entries.pin("f", tmp_path / "a", DIGEST, spare=True) is None, "and who does not, goes without"
    for file in pinned:
        assert file is not None
        entries.unpin(file)
    assert read(blob, 0, 3) == b"012" and open_files() == before + 2
    del entries, pinned, file
    assert open_files() == before + 1, "what a cache left behind that is gone"


DIGEST, ENTRIES = bytes(32), ("a", "b", "c", "d", "e")


def kept_entries(folder: Path) -> CacheEntries:
    for name in ENTRIES:
        with (folder / name).open("w+b") as file:
            file.truncate(file_bytes(10))
            writer = EntryWriter(file.fileno(), 10)
            writer.add(b"0123456789")
            writer.finish(DIGEST)
    return CacheEntries()


def test_files_held_for_long_are_few_in_all_and_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files._close_idle()
    monkeypatch.setattr(files, "_most", files._held * 2 + 8)
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(bytes([number]) * 10)
    blobs = [blob_of(tmp_path / f"{number}") for number in range(3)]
    before = open_files()
    first, second = HeldFiles(blobs), HeldFiles(blobs)
    fds = first.descriptors()
    assert fds is not None and [os.pread(fd, 1, 3) for fd in fds.tolist()] == [b"\0", b"\1", b"\2"]
    assert first.descriptors() is fds
    assert second.descriptors() is None, "six would be too many"
    assert open_files() == before + 3
    del first, fds
    for blob in blobs:
        blob.close()
    assert open_files() == before
    third = pickle.loads(pickle.dumps(HeldFiles([*blobs, blob_of(tmp_path / "gone")])))  # noqa: S301 - its own bytes
    fds = third.descriptors()
    assert fds is not None and (fds >= 0).tolist() == [True, True, True, False]


def test_holding_what_is_not_there_says_so_when_it_is_read(tmp_path: Path) -> None:
    blob = blob_of(tmp_path / "gone")
    assert blob.hold() == -1
    with pytest.raises(SourceNotFound, match="gone"):
        read(blob, 0, 1)


def test_descriptors_are_closed_with_their_blobs(path: Path) -> None:
    before = open_files()
    for _ in range(50):
        read(blob_of(path), 0, 10)
    assert open_files() == before
    blob = blob_of(path)
    read(blob, 0, 1)
    blob.close()
    blob.close()
    assert open_files() == before
    assert read(blob, 0, 3) == DATA[:3]


def test_it_travels_to_another_process(path: Path) -> None:
    blob = blob_of(path)
    read(blob, 0, 1)
    copy = pickle.loads(pickle.dumps(blob))  # noqa: S301 - its own bytes
    assert read(copy, 5, 5) == DATA[5:10]
    assert (copy.url, copy.name, copy.stat()) == (blob.url, blob.name, blob.stat())


def test_a_relative_path_means_the_same_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, content in (("one", b"1111"), ("two", b"2222")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.bin").write_bytes(content)
        os.utime(tmp_path / folder / "a.bin", ns=(5, 5))
    monkeypatch.chdir(tmp_path / "one")
    blob = LocalBlob(b"a.bin")
    blob.stat()
    monkeypatch.chdir(tmp_path / "two")
    assert read(blob, 0, 4) == b"1111"
    assert read(pickle.loads(pickle.dumps(blob)), 0, 4) == b"1111"  # noqa: S301 - its own bytes


# ---- trouble ---------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    for ask in (LocalBlob.stat, lambda blob: blob.read_all(10), lambda blob: list(blob.stream())):
        with pytest.raises(SourceNotFound, match="there is no such file"):
            ask(blob_of(tmp_path / "gone"))


@pytest.mark.parametrize("name", ["file/below", "n" * 300, "loop", "folder"])
def test_what_cannot_be_read_is_an_error_of_stokers_own(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StokerError, match=name[:20]):
        read(blob_of(tmp_path / name), 0, 1)


def test_reading_past_the_end_is_told_with_the_place(path: Path) -> None:
    with pytest.raises(ShardChanged, match="ends at byte 10,240") as caught:
        read(blob_of(path), 10_000, 300)
    assert caught.value.offset == len(DATA)


def test_a_file_that_shrinks_while_it_is_read_is_told(path: Path) -> None:
    blob = blob_of(path)
    assert read(blob, 0, 4) == DATA[:4]
    os.truncate(path, 100)
    with pytest.raises(ShardChanged, match="ends at byte 100"):
        read(blob, 90, 20)
    with pytest.raises(ShardChanged):
        list(blob.stream(0, 64))


@pytest.mark.parametrize("how", ["replaced", "rewritten", "longer", "removed"])
def test_a_file_that_is_another_when_it_is_opened_is_told(path: Path, how: str) -> None:
    blob = blob_of(path)
    blob.stat()
    if how == "replaced":
        other = path.with_name("b.bin")
        other.write_bytes(DATA[::-1])
        os.utime(other, ns=(1, 1))
        other.rename(path)
    elif how == "rewritten":
        path.write_bytes(DATA[::-1])
        os.utime(path, ns=(1, 1))
    elif how == "longer":
        path.write_bytes(DATA + b"x")
    else:
        path.unlink()
    with pytest.raises((ShardChanged, SourceNotFound), match=r"a\.bin"):
        read(blob, 0, 1)


@pytest.mark.timeout(20)
def test_a_pipe_is_no_shard_and_nobody_waits_for_it(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    for ask in (LocalBlob.stat, lambda blob: list(blob.stream()), lambda blob: read(blob, 0, 1)):
        with pytest.raises(ReadError, match="pipe: is a folder, a pipe or a device, not a file"):
            ask(blob_of(path.with_name("pipe")))
    blob = blob_of(path)
    blob.stat()
    path.with_name("pipe").rename(path)
    with pytest.raises(ShardChanged):
        read(blob, 0, 1)


def test_the_garbage_collector_may_come_at_any_moment() -> None:
    """A blob in a circle of references is let go wherever the collector happens to run: also while a file is being opened."""
    done = run_python(
        """
import gc, os, tempfile
from stoker.storage.local import LocalBlob

class Collecting(LocalBlob):
    def _open(self):
        gc.collect()
        return super()._open()

with tempfile.NamedTemporaryFile() as file:
    file.write(b"abc")
    file.flush()
    for _ in range(3):
        circle = [LocalBlob(file.name.encode())]
        circle.append(circle)
        assert circle[0].read_all(3) == b"abc"
        del circle
        blob = Collecting(file.name.encode())
        assert blob.read_all(3) == b"abc"
    del blob
    gc.collect()
    LocalBlob(file.name.encode()).read_all(3)
    print(len([n for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}") == file.name]))
""",
        timeout_s=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_a_forked_child_reads_the_same_and_closes_nothing_of_its_parent(path: Path) -> None:
    done = run_python(
        f"""
import os, threading
from stoker.storage.local import LocalBlob
from stoker.storage.open_files import files
blob = LocalBlob({os.fsencode(path)!r})
first = blob.read_all(1 << 20)
files._lock.acquire()  # as if another thread were at it
pid = os.fork()
if not pid:
    good = blob.read_all(1 << 20) == first
    blob.close()
    os._exit(0 if good else 1)
status = os.waitpid(pid, 0)[1]
files._lock.release()
print(status, blob.read_all(1 << 20) == first)
""",
        timeout_s=20,
    )
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr


def test_nothing_is_said_at_the_end_of_a_process() -> None:
    script = """
import sys
from stoker.storage.local import LocalBlob
circle = [LocalBlob(sys.executable.encode())]
circle.append(circle)
circle[0].hold()
"""
    done = run_python(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_same_bytes_as_the_system_reads(path: Path) -> None:
    sha = hashlib.sha256()
    for piece in blob_of(path).stream(0, 999):
        sha.update(piece)
    assert sha.digest() == hashlib.sha256(path.read_bytes()).digest()
