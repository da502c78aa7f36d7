"""What others wrote is read as they read it, and ours is read by them: webdataset, GNU tar, Python's tarfile, plain Python.

Nothing is converted on the way. What TensorFlow writes is compared by an encoder written from its definition (`making.py`).
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import Pipeline

from ..pack import wire
from ..source.making import example, tfrecord
from ..support import picture

Samples = dict[str, dict[str, Any]]

GNU_TAR = shutil.which("tar")
#: what a file system and every tar format can hold
FILES = {
    "n01/a.jpg": b"\xff\xd8" + bytes(700), "n01/a.cls": b"7", "n01/a.seg.png": b"", "n01/b.jpg": b"x" * 512, "n01/b.cls": b"8",
    "n01/b.seg.png": b"y" * 513, "zz.jpg": b"z", "zz.cls": b"-1", "zz.seg.png": b"w" * 5000,
}  # fmt: skip


def by_key(files: dict[str, bytes]) -> Samples:
    """Files as samples, by WebDataset's rule."""
    samples: Samples = {}
    for name, data in files.items():
        folder, _, last = name.rpartition("/")
        base, _, field = last.partition(".")
        samples.setdefault(f"{folder}/{base}" if folder else base, {})[field.lower()] = data
    return samples


def read(spec: Any, **options: Any) -> Samples:
    """What Stoker reads, at random and in sequence, which must agree."""
    ways = [
        {sample.key: {name: bytes(part) for name, part in sample.items()} for sample in pipeline}
        for pipeline in (stoker.tar(spec, decode=False, **options), stoker.tar(spec, decode=False, index="never", **options))
    ]
    assert ways[0] == ways[1]
    return ways[0]


def store(folder: Path, files: dict[Any, bytes]) -> Path:
    folder.mkdir()
    root = os.fsencode(folder)
    for name, data in files.items():
        path = root + b"/" + (name if isinstance(name, bytes) else os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return folder


# ---- GNU tar ---------------------------------------------------------------------------------------------------------


def gnu_tar(*arguments: str | bytes | Path) -> bytes:
    assert GNU_TAR is not None
    done = subprocess.run([GNU_TAR, *arguments], capture_output=True, timeout=60, check=True)
    return done.stdout


needs_tar = pytest.mark.skipif(
    GNU_TAR is None or b"GNU tar" not in subprocess.run([GNU_TAR, "--version"], capture_output=True).stdout,
    reason="needs GNU tar",
)


@needs_tar
@pytest.mark.parametrize("dot", [True, False], ids=["with ./", "without"])
@pytest.mark.parametrize("form", ["gnu", "oldgnu", "pax", "ustar", "v7"])
def test_what_gnu_tar_writes_is_read(tmp_path: Path, form: str, dot: bool) -> None:
    store(tmp_path / "files", FILES)
    names = ["."] if dot else ["n01", "zz.cls", "zz.jpg", "zz.seg.png"]
    gnu_tar(f"--format={form}", "--sort=name", "-C", tmp_path / "files", "-cf", tmp_path / "a.tar", *names)
    assert read(tmp_path / "a.tar") == by_key(FILES)


@needs_tar
@pytest.mark.parametrize("form", ["gnu", "oldgnu", "pax", "ustar"])
def test_long_names_of_gnu_tar_are_read(tmp_path: Path, form: str) -> None:
    folders = "/".join(["d" * 40, "e" * 40, "f" * 40])
    long = "n" * (90 if form == "ustar" else 200)
    files = {f"{folders}/{long}.jpg": b"1", f"{folders}/{long}.cls": b"2", "short.jpg": b"3", "short.cls": b"4"}
    if form != "ustar":
        files |= {f"{folders}/{'g' * 100}/{'h' * 100}/x.{'y' * 60}": b"5"}
    store(tmp_path / "files", files)
    gnu_tar(f"--format={form}", "--sort=name", "-C", tmp_path / "files", "-cf", tmp_path / "a.tar", ".")
    samples = by_key(files)
    names = {name for fields in samples.values() for name in fields}
    assert read(tmp_path / "a.tar", defaults=dict.fromkeys(names, b"")) == {
        key: {name: fields.get(name, b"") for name in names} for key, fields in samples.items()
    }


@needs_tar
@pytest.mark.parametrize("form", ["gnu", "pax", "ustar", "v7"])
def test_names_that_are_no_text_are_read_from_gnu_tar(tmp_path: Path, form: str) -> None:
    long = b"\xfe" * 150 if form in ("gnu", "pax") else b"\xfe" * 60
    files = {
        b"\xff\xff.jpg": b"1",
        "é.jpg".encode(): b"2",
        "é.jpg".encode("latin-1"): b"3",
        b"a\nb.jpg": b"4",
        long + b".jpg": b"5",
    }
    store(tmp_path / "files", files)
    gnu_tar(f"--format={form}", "-C", tmp_path / "files", "-cf", tmp_path / "a.tar", ".")
    shown = {r"\xff\xff": b"1", "é": b"2", r"\xe9": b"3", r"a\x0ab": b"4", r"\xfe" * (len(long)): b"5"}
    assert read(tmp_path / "a.tar") == {key: {"jpg": data} for key, data in shown.items()}


@needs_tar
def test_what_gnu_tar_packs_and_appends_is_read(tmp_path: Path) -> None:
    store(tmp_path / "files", FILES)
    gnu_tar("--sort=name", "-C", tmp_path / "files", "-czf", tmp_path / "a.tar.gz", ".")
    packed = {sample.key: bytes(sample["jpg"]) for sample in stoker.tar(tmp_path / "a.tar.gz", decode=False)}
    assert packed == {key: fields["jpg"] for key, fields in by_key(FILES).items()}
    gnu_tar("--sort=name", "-C", tmp_path / "files", "-cf", tmp_path / "b.tar", "n01")
    gnu_tar("-C", tmp_path / "files", "-rf", tmp_path / "b.tar", "zz.cls", "zz.jpg", "zz.seg.png")
    assert read(tmp_path / "b.tar") == by_key(FILES)
    for blocking in ("1", "7", "64"):
        gnu_tar("--sort=name", "-b", blocking, "-C", tmp_path / "files", "-cf", tmp_path / f"c{blocking}.tar", ".")
        assert read(tmp_path / f"c{blocking}.tar") == by_key(FILES)


# ---- Python's tarfile ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["ustar", "gnu", "pax"])
def test_what_python_writes_is_read(tmp_path: Path, form: int) -> None:
    files = dict(FILES)
    if form != tarfile.USTAR_FORMAT:
        files |= {f"{'k' * 300}.{field}": b"long" for field in ("jpg", "cls", "seg.png")}
        files |= {f"ümläut {'é' * 80}.{field}": b"text" for field in ("jpg", "cls", "seg.png")}
    with tarfile.open(tmp_path / "a.tar", "w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mtime = len(data), 1.5 if form == tarfile.PAX_FORMAT else 1
            if form == tarfile.PAX_FORMAT:
                about.pax_headers = {"comment": "x" * 700, "SCHILY.xattr.user.note": "é"}
            archive.addfile(about, io.BytesIO(data))
    assert read(tmp_path / "a.tar") == by_key(files)


# ---- webdataset ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wds() -> Any:
    return pytest.importorskip("webdataset")


#: webdataset leaves the shards it reads open
leaves_files_open = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def wds_samples(number: int) -> Iterator[dict[str, Any]]:
    for n in range(number):
        yield {
            "__key__": f"train/{n:06d}",
            "jpg": bytes([n % 256]) * (n * 100),
            "cls": n,
            "json": {"n": [n, None]},
            "txt": f"té{n}",
            "npy": np.arange(n, dtype=np.float32),
            "seg.png": b"png",
        }


def same_values(got: Any, sample: dict[str, Any]) -> bool:
    return (
        bytes(got["jpg"]) == sample["jpg"]
        and int(got["cls"]) == sample["cls"]
        and got["json"] == sample["json"]
        and got["txt"] == sample["txt"]
        and np.array_equal(got["npy"], sample["npy"])
        and bytes(got["seg.png"]) == sample["seg.png"]
    )


def check_same(pipeline: Pipeline, samples: list[dict[str, Any]]) -> None:
    got = list(pipeline)
    assert [sample.key for sample in got] == [sample["__key__"] for sample in samples]
    assert all(same_values(one, other) for one, other in zip(got, samples))


def test_what_webdatasets_writers_write_is_read(tmp_path: Path, wds: Any) -> None:
    samples = list(wds_samples(23))
    with wds.TarWriter(str(tmp_path / "one.tar")) as writer:
        for sample in samples:
            writer.write(sample)
    with wds.ShardWriter(str(tmp_path / "s-%04d.tar"), maxcount=7, verbose=0) as writer:
        for sample in samples:
            writer.write(sample)
    with wds.TarWriter(str(tmp_path / "packed.tar.gz"), compress=True) as writer:
        for sample in samples:
            writer.write(sample)
    check_same(stoker.tar(tmp_path / "one.tar"), samples)
    check_same(stoker.tar(str(tmp_path / "s-{0000..0003}.tar")), samples)
    check_same(stoker.tar(tmp_path / "packed.tar.gz"), samples)
    shuffled = stoker.tar(str(tmp_path / "s-*.tar")).shuffle(seed=1)
    assert sorted(int(sample["cls"]) for sample in shuffled) == list(range(23))


@leaves_files_open
def test_stoker_and_webdataset_read_the_same_from_the_same_shard(tmp_path: Path, wds: Any) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, data in FILES.items():
            about = tarfile.TarInfo(f"./{name}")
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    theirs = {}
    for sample in wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False):
        theirs[sample["__key__"].removeprefix("./")] = {name: data for name, data in sample.items() if not name.startswith("__")}
    assert read(tmp_path / "a.tar") == theirs


# ---- ours, read by others --------------------------------------------------------------------------------------------


def write(tmp_path: Path, samples: list[dict[str, Any]]) -> Path:
    with stoker.TarWriter(tmp_path / "ours.tar") as writer:
        for sample in samples:
            writer.write(sample)
    return tmp_path / "ours.tar"


@leaves_files_open
def test_webdataset_reads_what_we_write(tmp_path: Path, wds: Any) -> None:
    samples = list(wds_samples(12))
    path = write(tmp_path, samples)
    theirs = list(wds.WebDataset(str(path), shardshuffle=False).decode())
    assert [sample["__key__"] for sample in theirs] == [sample["__key__"] for sample in samples]
    for one, other in zip(theirs, samples):
        assert one["jpg"] == other["jpg"] if isinstance(one["jpg"], bytes) else True
        assert (one["cls"], one["json"], one["txt"]) == (other["cls"], other["json"], other["txt"])
        assert np.array_equal(one["npy"], other["npy"])
    raw = list(wds.WebDataset(str(path), shardshuffle=False))
    ours = read(path)
    assert [{name: data for name, data in sample.items() if not name.startswith("__")} for sample in raw] == [
        ours[sample["__key__"]] for sample in raw
    ]
    check_same(stoker.tar(path), samples)


@leaves_files_open
def test_pictures_and_numbers_are_written_as_webdatasets_writer_writes_them(tmp_path: Path, wds: Any) -> None:
    pixels = picture(20, 30)
    sample = {
        "__key__": "a",
        "jpg": pixels,
        "png": Image.fromarray(pixels),
        "gray.png": pixels[:, :, 0],
        "cls": "3",
        "html": "<p>",
    }
    ours = write(tmp_path, [sample])
    with wds.TarWriter(str(tmp_path / "theirs.tar")) as writer:
        writer.write(sample)
    assert read(ours) == read(tmp_path / "theirs.tar")
    seen = next(iter(wds.WebDataset(str(ours), shardshuffle=False).decode("rgb8")))
    assert np.array_equal(seen["png"], pixels) and seen["cls"] == 3


ODD_KEYS = ["plain", "a/b/c", "ünïcode", "k" * 99, "k" * 150, "d" * 90 + "/" + "k" * 90, "x" * 300, b"\xff\xfe", b"\xff" * 150]


def odd_samples() -> list[dict[str, Any]]:
    return [{"__key__": key, "bin": bytes([number]) * (number * 200), "cls": number} for number, key in enumerate(ODD_KEYS)]


def test_pythons_tarfile_reads_what_we_write(tmp_path: Path) -> None:
    path = write(tmp_path, odd_samples())
    with tarfile.open(path, encoding="utf-8", errors="surrogateescape") as archive:
        found = {os.fsencode(about.name): archive.extractfile(about).read() for about in archive}  # type: ignore[union-attr]
    expected = {}
    for sample in odd_samples():
        key = sample["__key__"] if isinstance(sample["__key__"], bytes) else sample["__key__"].encode()
        expected |= {key + b".bin": sample["bin"], key + b".cls": b"%d" % sample["cls"]}
    assert found == expected


@needs_tar
def test_gnu_tar_lists_extracts_and_compares_what_we_write(tmp_path: Path) -> None:
    samples = [sample for sample in odd_samples() if len(sample["__key__"]) < 200]
    path = write(tmp_path, samples)
    assert len(gnu_tar("-tf", path).splitlines()) == 2 * len(samples)
    (tmp_path / "out").mkdir()
    gnu_tar("-xf", path, "-C", tmp_path / "out")
    gnu_tar("--compare", "-f", path, "-C", tmp_path / "out")
    for sample in samples:
        name = os.fsencode(tmp_path / "out") + b"/" + os.fsencode(sample["__key__"]) + b".bin"
        with open(name, "rb") as file:
            assert file.read() == sample["bin"]


def test_what_we_write_comes_back_with_every_key(tmp_path: Path) -> None:
    path = write(tmp_path, odd_samples())
    got = list(stoker.tar(path))
    assert [int(sample["cls"]) for sample in got] == list(range(len(ODD_KEYS)))
    assert [bytes(sample["bin"]) for sample in got] == [sample["bin"] for sample in odd_samples()]
    assert got[7].key == r"\xff\xfe" and got[2].key == "ünïcode"


# ---- TFRecord and LMDB -----------------------------------------------------------------------------------------------


def random_records(count: int) -> list[dict[str, Any]]:
    rng = random.Random(11)
    return [
        {
            "label": rng.randint(-(2**63), 2**63 - 1),
            "box": [rng.randint(-1000, 1000) / 8 for _ in range(4)],
            "image": rng.randbytes(rng.choice([0, 1, 130, 20_000 if n % 50 == 0 else 30])),
            "ids": [rng.randint(-5, 5) for _ in range(rng.choice([0, 1, 9]))],
            "words": [rng.randbytes(3) for _ in range(rng.choice([0, 2]))],
        }
        for n in range(count)
    ]


FEATURES = {"label": int, "box": (float, 4), "image": bytes, "ids": [int], "words": [bytes]}


def as_values(sample: Any) -> dict[str, Any]:
    return {
        "label": int(sample["label"]),
        "box": np.asarray(sample["box"]).tolist(),
        "image": bytes(sample["image"]),
        "ids": [int(part) for part in sample["ids"]],
        "words": [bytes(part) for part in sample["words"]],
    }


def test_examples_of_an_independent_encoder_are_read(tmp_path: Path) -> None:
    records = random_records(300)
    for shard in range(3):
        part = [example(record, packed=shard != 1) for record in records[shard * 100 : shard * 100 + 100]]
        (tmp_path / f"s-{shard}.tfrecord").write_bytes(tfrecord(part))
    assert [as_values(sample) for sample in stoker.tfrecord(tmp_path, features=FEATURES)] == records
    assert [as_values(sample) for sample in stoker.tfrecord(tmp_path)] == records, "types found, not told"


def test_an_independent_decoder_reads_what_we_write(tmp_path: Path) -> None:
    records = random_records(200)
    stoker.write_tfrecord(str(tmp_path / "ours.tfrecord"), records)
    kinds = {"label": "int", "box": "float", "image": "bytes", "ids": "int", "words": "bytes"}
    decoded = [wire.example(data) for data in wire.records(tmp_path / "ours.tfrecord")]
    for found, record in zip(decoded, records, strict=True):
        for name, value in record.items():
            kind, values = found.get(name, ("", []))
            assert values == (value if isinstance(value, list) else [value])
            assert kind in (kinds[name], "") if not values else kind == kinds[name]
    assert [as_values(sample) for sample in stoker.tfrecord(tmp_path / "ours.tfrecord", features=FEATURES)] == records


def test_py_lmdb_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    stoker.write_lmdb(tmp_path / "ours.lmdb", [{"__key__": f"k{n}", "x": n} for n in range(5)])
    with (
        lmdb.open(str(tmp_path / "ours.lmdb"), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        assert [key for key, _ in transaction.cursor() if key.startswith(b"k")] == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    entries = {b"%05d" % n: random.Random(n).randbytes(n * 40) for n in range(300)}
    with lmdb.open(str(tmp_path / "theirs"), map_size=1 << 26) as environment:
        for batch in range(3):
            with environment.begin(write=True) as transaction:
                for key, value in list(entries.items())[batch::3]:
                    transaction.put(key, value)
        with environment.begin(write=True) as transaction:
            for key in list(entries)[::7]:
                transaction.delete(key)
                del entries[key]
    assert [(sample.key.encode(), bytes(sample["value"])) for sample in stoker.lmdb(tmp_path / "theirs")] == sorted(
        entries.items()
    )
