"""Tar shards from the first byte to the last: pieces, packing, several at once, standard input."""

from __future__ import annotations

import functools
import gzip
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import stoker
from stoker.errors import ConfigError, CorruptShard, MissingExtra, RecordError, SourceEmpty, SourceNotFound
from stoker.source.streams import seen_keys, unpack
from stoker.source.streams import tar_stream as tarstream
from stoker.source.streams.sequential import TarStream
from stoker.source.streams.tar_stream import is_compressed, open_pieces, tar_samples
from stoker.source.streams.tfrecord_stream import whole_records
from stoker.storage.local import LocalBlob

from ..loader.runs import ROOT, environment, run_python
from .making import END, member, sample_tar, tfrecord
from .test_codecs import Canary

#: without the time of day, which would be in the names of tests
pressed = functools.partial(gzip.compress, mtime=0)
SAMPLES = [(f"s{n}", {"bin": bytes([n]) * (n * 130), "cls": b"%d" % n}) for n in range(8)]
TAR = sample_tar(SAMPLES)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def store(folder: Path, count: int = 4, ending: str = ".tar") -> list[Path]:
    """Shards of 1, 2, 3 ... samples."""
    paths, number = [], 0
    for shard in range(count):
        samples = [
            (f"{number + n:03d}", {"cls": b"%d" % (number + n), "bin": bytes([number + n]) * 700}) for n in range(shard + 1)
        ]
        number += len(samples)
        data = sample_tar(samples)
        packed = {".tar": bytes, ".tar.gz": gzip.compress, ".tgz": gzip.compress, ".tar.zst": zstandard.compress}[ending](data)
        paths.append(folder / f"s-{shard}{ending}")
        paths[-1].write_bytes(packed)
    return paths


def ids(pipeline: stoker.Pipeline) -> list[int]:
    return [int(sample["cls"]) for sample in pipeline]


# ---- pieces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 511, 512, 513, 1000, 4096, 1 << 20])
def test_it_does_not_matter_how_the_bytes_come(size: int) -> None:
    got = list(tar_samples(pieces(TAR, size), "x"))
    assert [(sample.key.decode(), sample.fields) for sample in got] == SAMPLES
    assert [TAR[sample.offset :].startswith(sample.key + b".bin") for sample in got] == [True] * 8


def test_pieces_may_be_one_buffer_that_is_overwritten() -> None:
    buffer = bytearray(700)

    def overwriting() -> Iterator[memoryview]:
        for part in pieces(TAR, 700):
            buffer[: len(part)] = part
            yield memoryview(buffer)[: len(part)]
            buffer[:] = b"\xee" * 700

    assert [sample.fields for sample in list(tar_samples(overwriting(), "x"))] == [fields for _, fields in SAMPLES]


def test_a_sample_comes_as_soon_as_the_next_begins() -> None:
    taken = []

    def watched() -> Iterator[bytes]:
        for part in pieces(TAR, 512):
            taken.append(part)
            yield part

    first = next(tar_samples(watched(), "x"))
    assert first.key == b"s0" and len(taken) < 8


def test_an_empty_tar_has_no_samples_and_no_bytes_is_no_tar() -> None:
    assert list(tar_samples([END], "x")) == []
    for nothing in ([], [b""], [b"", b""]):
        with pytest.raises(CorruptShard, match="x: is empty"):
            list(tar_samples(nothing, "x"))


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_every_cut_is_told_after_the_samples_in_front_of_it(size: int) -> None:
    for length in range(0, len(TAR) - 512, 97):
        got = []
        with pytest.raises(CorruptShard) as caught:
            for sample in tar_samples(pieces(TAR[:length], size), "x.tar"):
                got.append((sample.key.decode(), sample.fields))
        assert got == SAMPLES[: len(got)]
        assert caught.value.shard == "x.tar" and "x.tar" in str(caught.value)


def test_a_bad_header_is_told_with_its_place() -> None:
    bad = bytearray(TAR)
    at = TAR.index(b"s5.bin")
    bad[at + 3] ^= 1
    with pytest.raises(CorruptShard, match=f"byte {at:,}|{at}") as caught:
        list(tar_samples([bytes(bad)], "x"))
    assert caught.value.offset == at


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"<html>Not found</html>" * 40, "a web page"),
        (b"\x1f\x8b" + b"x" * 600, "gzip data; name it"),
        (b"BZh9" + b"x" * 600, "bzip2"),
        (b"\xfd7zXZ" + b"x" * 600, "xz"),
        (b"<html>", "web page"),
    ],
)
def test_what_is_no_tar_is_called_by_its_name(data: bytes, match: str) -> None:
    with pytest.raises(CorruptShard, match=match):
        list(tar_samples([data], "x"))


def test_many_samples_take_no_more_memory_than_few() -> None:
    def endless() -> Iterator[bytes]:
        for number in range(600):
            yield member(b"%06d.bin" % number, bytes(20_000))
        yield END

    tracemalloc.start()
    try:
        assert [len(sample.fields["bin"]) for sample in tar_samples(endless(), "x")] == [20_000] * 600
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# ---- packing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tar.gz", "A.TGZ", "a.tar.zst", "a.tzst", "a.tar.zstd"])
def test_names_say_what_is_packed(name: str) -> None:
    assert is_compressed(name)
    assert not is_compressed("a.tar") and not is_compressed("gz.tar")


def unpacked(tmp_path: Path, name: str, data: bytes) -> list[dict[str, bytes]]:
    (tmp_path / name).write_bytes(data)
    return [sample.fields for sample in tar_samples(open_pieces(LocalBlob(os.fsencode(tmp_path / name))), name)]


@pytest.mark.parametrize("piece", [1 << 20, 61])
def test_gzip_and_zstd_are_read_whole_in_parts_or_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(unpack, "PIECE", piece)
    right = [fields for _, fields in SAMPLES]
    half = len(TAR) // 2
    streamed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(streamed, closefd=False) as writer:
        writer.write(TAR)  # a frame that does not say how long it is
    for name, data in {
        "a.tar": TAR,
        "a.tar.gz": pressed(TAR),
        "b.tgz": pressed(TAR[:half]) + pressed(b"") + pressed(TAR[half:]),
        "c.tar.gz": pressed(TAR) + b"\0" * 700,
        "d.tar.zst": zstandard.compress(TAR),
        "e.tar.zst": zstandard.compress(TAR[:half]) + zstandard.compress(TAR[half:]),
        "f.tar.zst": streamed.getvalue(),
    }.items():
        assert unpacked(tmp_path, name, data) == right, name


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_every_flip_and_every_cut_of_a_packed_shard_is_right_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Both formats carry checksums here, so that nothing wrong comes out."""
    monkeypatch.setattr(unpack, "PIECE", 4096)
    small = sample_tar([("a", {"x": bytes(range(200))}), ("b", {"x": b"y" * 300})])
    packed = pressed(small) if ending == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress(small)
    right = unpacked(tmp_path, f"a.tar.{ending}", packed)
    assert len(right) == 2
    told = 0
    for at in range(len(packed)):
        cases = [packed[:at] + bytes([packed[at] ^ flip]) + packed[at + 1 :] for flip in (1, 0xFF)] + [packed[:at]]
        for case in cases:
            try:
                assert unpacked(tmp_path, f"a.tar.{ending}", case) == right
            except CorruptShard as error:
                told += 1
                assert f"a.tar.{ending}" in str(error)
    assert told > 2 * len(packed)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tar.gz", b""),
        ("a.tar.gz", b"\0" * 100),
        ("a.tar.gz", b"<html>"),
        ("a.tar.gz", TAR),
        ("a.tar.gz", pressed(TAR) + b"garbage"),
        ("a.tar.gz", pressed(TAR)[:-1]),
        ("a.tar.gz", pressed(b"")),
        ("a.tar.gz", zstandard.compress(TAR)),
        ("a.tar.zst", b""),
        ("a.tar.zst", pressed(TAR)),
        ("a.tar.zst", TAR),
        ("a.tar.zst", zstandard.compress(TAR) + b"garbage"),
        ("a.tar.gz", pressed(b"<html>" * 200)),
    ],
)
def test_what_does_not_unpack_is_told(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(CorruptShard, match=name):
        unpacked(tmp_path, name, data)


def test_a_bomb_takes_no_memory() -> None:
    """500 MB of zeros in 510 KB of gzip, as a member of a tar or after its end, or as a record."""
    script = """
import gzip, itertools, resource, struct, tarfile, zstandard
from stoker.errors import StokerError
from stoker.source.streams.tar_stream import tar_samples
from stoker.source.streams.tfrecord_stream import whole_records
from stoker.source.streams.unpack import unpacked
from tests.source.making import masked, sample_tar

zeros = bytes(1 << 23)
huge = tarfile.TarInfo("huge.bin")
huge.size = 60 * len(zeros)
length = struct.pack("<Q", huge.size)
begins = {
    "member": huge.tobuf(),
    "after the end": sample_tar([("a", {"x": b"1"})]),
    "record": length + struct.pack("<I", masked(length)),
}
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
packers = ("gzip", gzip.compress), ("zstd", zstandard.compress)
for (packing, pack), (what, begin) in itertools.product(packers, begins.items()):
    parts = itertools.chain([pack(begin)], itertools.repeat(pack(zeros), 60))
    pieces = unpacked(parts, packing, "bomb")
    before = most()
    try:
        print(len(list(whole_records(pieces, None) if what == "record" else tar_samples(pieces, "bomb"))))
    except StokerError as error:
        print(type(error).__name__, error)
    assert most() < before + 110, (packing, what, before, most())
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 6
    for told in done.stdout.splitlines():
        assert told.startswith("CorruptShard bomb:") and "looks like a decompression bomb" in told


@pytest.mark.parametrize("packing", ["gzip", "zlib", "zstd"])
def test_what_shrinks_as_well_as_masks_do_is_no_bomb(packing: str) -> None:
    """Masks without any object, each a member of a tar; for zstd, which shrinks zeros further, labels that are mostly zeros."""
    pack = {"gzip": pressed, "zlib": zlib.compress, "zstd": zstandard.compress}[packing]
    rng = random.Random(1)
    labels = b"".join(bytes(1990) + rng.randbytes(2) for _ in range(5000))
    block = labels if packing == "zstd" else member(b"a.npy", bytes(1 << 20)) * 16
    small = pack(block)
    assert (250 if packing == "zstd" else 900) < len(block) / len(small) < unpack.MAX_RATIO[packing]
    assert sum(map(len, unpack.unpacked(iter([small] * 3), packing, "x"))) == 3 * len(block)


@pytest.mark.parametrize("how", ["header", "bytes"])
def test_a_member_larger_than_is_held_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """By what its header says, as soon as that is looked at; else, where small files of no sample pile up, when so much came."""
    monkeypatch.setattr(unpack, "MAX_MEMBER", 1 << 20)
    monkeypatch.setattr(tarstream, "_LOOK", 1 << 12)
    monkeypatch.setattr(tarstream, "_HEADERS", 1 << 16)
    long = "folder/" + 200 * "x" + ".bin"
    info = tarfile.TarInfo(long)
    info.size = (1 << 20) + 1
    header = info.tobuf(tarfile.PAX_FORMAT)
    follows = [bytes(1 << 12)] * 2 if how == "header" else []
    nameless = [] if how == "header" else [member(b"README", bytes(1 << 15))] * 40
    first = member(b"a.cls", b"1")
    with pytest.raises(CorruptShard, match=r"x\.tar: the member '.*' at byte 1,024 has more than 1\.0 MB") as caught:
        list(tar_samples([first, *nameless, header, *follows], "x.tar"))
    assert (long if how == "header" else "README") in str(caught.value) and caught.value.offset == len(first)
    whole = member(b"b.bin", bytes(1 << 20))
    assert [len(sample.fields) for sample in tar_samples(pieces(first + whole + END, 1000), "x")] == [1, 1]


def test_a_record_larger_than_is_held_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MAX_MEMBER", 1 << 12)
    data = tfrecord([b"small", bytes(1 << 13)])
    got = []
    with pytest.raises(CorruptShard, match=r"the record at byte 21 .* 8,208 bytes, and at most 4\.1 kB of one are read"):
        for _, _, starts, _ in whole_records(iter([data[:100], data[100:]]), None):
            got.append(len(starts))
    assert got == [1]
    assert sum(len(starts) for _, _, starts, _ in whole_records(iter([data]), len(data))) == 2


@pytest.mark.parametrize("checksum", [True, False])
def test_a_packed_shard_cut_by_its_last_bytes_is_told(tmp_path: Path, checksum: bool) -> None:
    """Also where all samples came before the cut: of zstd's last block, or of its checksum; or of gzip's."""
    packed = zstandard.ZstdCompressor(write_checksum=checksum).compress(TAR)
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    for name, data in {"a.tar.zst": packed, "b.tar.zst": packed + skippable, "c.tar.gz": pressed(TAR)}.items():
        assert len(unpacked(tmp_path, name, data)) == len(SAMPLES)
        for cut in (1, 2, 3, 4):
            with pytest.raises(CorruptShard, match=f"{name}: cannot be unpacked as (zstd|gzip): it ends in the middle"):
                unpacked(tmp_path, name, data[:-cut])


def test_members_after_padding_are_read(tmp_path: Path) -> None:
    half = len(TAR) // 2
    data = pressed(TAR[:half]) + bytes(700) + pressed(TAR[half:]) + bytes(3)
    assert len(unpacked(tmp_path, "a.tar.gz", data)) == len(SAMPLES)


# ---- stoker.tar in sequence ------------------------------------------------------------------------------------------


def test_a_missing_unpacker_is_told_when_the_source_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = store(tmp_path, 2, ".tar.gz") + store(tmp_path, 1, ".tar.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"s-0\.tar\.zst needs the package zstandard: pip install 'stoker\[zstd\]'"):
        stoker.tar([str(path) for path in shards])
    assert ids(stoker.tar([str(path) for path in shards[:2]])) == [0, 1, 2]


def test_the_first_and_the_last_shard_are_told(tmp_path: Path) -> None:
    store(tmp_path, 3)
    several, one = (stoker.tar(f"{tmp_path}/{name}", index="never").plan.source.describe() for name in ("s-*.tar", "s-1.tar"))
    assert several.startswith(f"tar({tmp_path}/s-0.tar … {tmp_path}/s-2.tar): 3 shards")
    assert one.startswith(f"tar({tmp_path}/s-1.tar): 1 shard")


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz", ".tar.zst"])
@pytest.mark.parametrize("interleave", [None, 1, 2, 3, 4, 9])
def test_every_sample_comes_once_however_many_shards_are_read_at_once(
    tmp_path: Path, ending: str, interleave: int | None
) -> None:
    store(tmp_path, 4, ending)
    pipeline = stoker.tar(tmp_path, index="never", interleave=interleave)
    got = ids(pipeline)
    assert sorted(got) == list(range(10))
    assert got == ids(stoker.tar(tmp_path, index="never", interleave=interleave)), "and in the same order every time"
    if interleave in (None, 1):
        assert got == list(range(10))
    assert [sample["bin"] for sample in pipeline] == [bytes([n]) * 700 for n in got]
    assert not list(tmp_path.glob("*.stk"))


def test_interleaved_shards_take_turns(tmp_path: Path) -> None:
    store(tmp_path, 3)  # 0 | 1 2 | 3 4 5
    assert ids(stoker.tar(tmp_path, index="never", interleave=2)) == [0, 1, 2, 3, 4, 5]
    assert ids(stoker.tar(tmp_path, index="never", interleave=3)) == [0, 1, 3, 2, 4, 5]


def test_plain_and_packed_shards_may_be_mixed(tmp_path: Path) -> None:
    one, other = store(tmp_path, 2), store(tmp_path, 2, ".tar.gz")
    assert ids(stoker.tar([*one, *other])) == [0, 1, 2, 0, 1, 2]


def test_a_window_shuffle_mixes_and_epochs_differ(tmp_path: Path) -> None:
    store(tmp_path, 5, ".tar.gz")
    pipeline = stoker.tar(tmp_path, interleave=2).shuffle(seed=1, window=8)
    epochs = [ids(pipeline) for _ in range(3)]
    assert all(sorted(epoch) == list(range(15)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_keys_come_with_the_samples(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample_tar([("x\n", {"cls": b"1"})]))
    [sample] = stoker.tar(tmp_path / "a.tar", index="never")
    assert sample.key == r"x\x0a"
    assert dict(sample.items()) == {"cls": 1}


@pytest.mark.parametrize("far", [0, 2, 40, 500])
def test_a_key_that_comes_twice_is_told_in_sequence_as_with_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: int
) -> None:
    """However far apart they are, with few keys kept as they are."""
    monkeypatch.setattr(seen_keys, "_RECENT", 7)
    between = [f"{n * 7919 % 1000:03d}" for n in range(far)]
    names = ["x", *between, "other", "x", *(name + "'" for name in between), "end"]
    (tmp_path / "a.tar").write_bytes(sample_tar([(name, {"cls": b"1"}) for name in names]))
    for options in ({}, {"index": "never"}):
        with pytest.raises(CorruptShard, match=r"a\.tar: the key 'x' appears twice") as caught:
            list(stoker.tar(tmp_path / "a.tar", **options))  # type: ignore[arg-type]
        assert str(caught.value.shard).endswith("a.tar")
    (tmp_path / "b.tar").write_bytes(sample_tar([(name, {"cls": b"1"}) for name in dict.fromkeys(names)]))
    assert len(list(stoker.tar(tmp_path / "b.tar", index="never"))) == 2 * far + 3
    assert len(list(stoker.tar([tmp_path / "b.tar"] * 2, index="never"))) == 2 * (2 * far + 3), "in two shards it may come again"


@pytest.mark.parametrize("second", [{"cls": b"2"}, {"cls": b"2", "bin": b"", "more": b""}])
def test_a_partial_sample_is_told_unless_there_is_a_default(tmp_path: Path, second: dict[str, bytes]) -> None:
    (tmp_path / "a.tar").write_bytes(sample_tar([("one", {"cls": b"1", "bin": b""}), ("two", second)]))
    with pytest.raises(CorruptShard, match=r"a\.tar: sample 'two' at byte 1,536"):
        list(stoker.tar(tmp_path, index="never"))
    defaults = {"bin": b"?", "more": b"!"}
    got = [dict(sample.items()) for sample in stoker.tar(tmp_path, index="never", defaults=defaults)]
    assert [int(sample["cls"]) for sample in got] == [1, 2]
    assert got[0]["more"] == b"!" and got[1]["bin"] == (b"?" if len(second) == 1 else b"")


def test_a_key_split_between_shards_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample_tar([("one", {"cls": b"1", "bin": b""}), ("two", {"cls": b"2"})]))
    (tmp_path / "b.tar").write_bytes(sample_tar([("two", {"bin": b""})]))
    with pytest.raises(CorruptShard, match="'two'"):
        list(stoker.tar(tmp_path, index="never"))


def test_a_bad_field_names_sample_and_shard(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample_tar([("one", {"cls": b"1"}), ("two", {"cls": b"x"})]))
    with pytest.raises(RecordError, match=r"a\.tar, byte 1,536: sample 'two': .*b'x'"):
        list(stoker.tar(tmp_path, index="never"))


def test_pickles_are_refused_here_too(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "a.tar").write_bytes(
        sample_tar([("one", {"pkl": pickle.dumps(Canary(canary)), "jpg": pickle.dumps(Canary(canary))})])
    )
    with pytest.raises(RecordError, match="allow_pickle"):
        list(stoker.tar(tmp_path / "a.tar", index="never"))
    list(stoker.tar(tmp_path / "a.tar", index="never", decode=False))
    list(stoker.tar(tmp_path / "a.tar", index="never", allow_pickle=["jpg"], defaults={}).take(0))
    assert not canary.exists()
    list(stoker.tar(tmp_path / "a.tar", index="never", allow_pickle=["pkl"]))
    assert canary.exists()


def test_shards_without_a_single_sample_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(END)
    (tmp_path / "b.tar").write_bytes(member(b"README", b"x") + END)
    with pytest.raises(SourceEmpty, match="contains no samples"):
        list(stoker.tar(tmp_path, index="never"))


def test_a_shard_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    store(tmp_path, 2, ".tar.gz")
    with pytest.raises(SourceNotFound, match="s-9"):
        stoker.tar([tmp_path / "s-0.tar.gz", tmp_path / "s-9.tar.gz"])


@pytest.mark.parametrize("interleave", [0, -1, 1.5, "2"])
def test_an_interleave_that_makes_no_sense_is_told(tmp_path: Path, interleave: Any) -> None:
    store(tmp_path, 2, ".tar.gz")
    with pytest.raises(ConfigError, match="interleave"):
        stoker.tar(tmp_path, interleave=interleave)


def test_it_travels_to_another_process(tmp_path: Path) -> None:
    source = TarStream([LocalBlob(os.fsencode(path)) for path in store(tmp_path, 3)], 2)
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301 - its own bytes
    assert copy.fingerprint() == source.fingerprint()
    assert [sample["cls"] for sample in copy.open()] == [sample["cls"] for sample in source.open()]


def test_the_fingerprint_changes_with_shards_and_options(tmp_path: Path) -> None:
    store(tmp_path, 3, ".tar.gz")
    pipelines = [
        stoker.tar(tmp_path),
        stoker.tar(tmp_path, interleave=2),
        stoker.tar(tmp_path, decode=False),
        stoker.tar(tmp_path, defaults={"more": 1}),
        stoker.tar(tmp_path / "s-0.tar.gz"),
    ]
    assert len({pipeline.fingerprint() for pipeline in pipelines}) == len(pipelines)
    assert "length unknown" in repr(pipelines[0])


# ---- standard input --------------------------------------------------------------------------------------------------

STDIN = """
import stoker
pipeline = stoker.tar("-").batch(3, drop_last=False)
print([batch["cls"].tolist() for batch in pipeline])
try:
    list(pipeline)
except stoker.StokerError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_standard_input_is_read_once_packed_or_not(pack: Any) -> None:
    data = pack(sample_tar([(f"{n}", {"cls": b"%d" % n}) for n in range(5)]))
    process = subprocess.Popen(
        [sys.executable, "-c", STDIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    rng = random.Random(0)
    at = 0
    while at < len(data):  # in dribs and drabs, as pipes do
        count = rng.choice([1, 100, 5000])
        process.stdin.write(data[at : at + count])
        process.stdin.flush()
        at += count
    out, err = process.communicate(timeout=60)
    first, second = out.decode().splitlines()
    assert first == "[[0, 1, 2], [3, 4]]", err
    assert second.startswith("ConfigError standard input has been read")


@pytest.mark.parametrize("data", [b"", b"<html>", TAR[:3000], pressed(TAR)[:-9]])
def test_bad_standard_input_is_told(data: bytes) -> None:
    script = """
import stoker
try:
    list(stoker.tar("-"))
except stoker.StokerError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], input=data, capture_output=True, timeout=60, cwd=ROOT, env=environment(), check=True
    )
    assert done.stdout.startswith(b"CorruptShard standard input"), done.stdout


@pytest.mark.parametrize("order", [("jpg", "cls", "txt"), ("txt", "jpg", "cls")], ids=" ".join)
def test_fields_come_in_the_order_they_are_stored_in_however_a_shard_is_read(tmp_path: Path, order: tuple[str, ...]) -> None:
    stored = {"jpg": b"...", "cls": b"3", "txt": b"a"}
    data = sample_tar([("0", {name: stored[name] for name in order}), ("1", stored)])
    (tmp_path / "a.tar").write_bytes(data)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(data))
    plain, packed = tmp_path / "a.tar", tmp_path / "a.tar.gz"
    for pipeline in (stoker.tar(plain), stoker.tar(plain, index="never"), stoker.tar(packed)):
        assert [tuple(sample.keys()) for sample in pipeline] == [order, order]
        assert [batch._fields for batch in pipeline.batch(2)] == [order]
