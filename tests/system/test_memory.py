"""Samples for which there is no memory: each is an error of its own that `on_error` can skip, and the others come as always."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.batch import collate
from stoker.device.framework_output import Output
from stoker.errors import BatchError, ConfigError, CorruptShard, ImageTooLarge, ReadError, SampleError
from stoker.image import Resize, pillow
from stoker.kernel import file_reads as files
from stoker.kernel.file_reads import Buffers
from stoker.kernel.status import Status, error_of
from stoker.loader import supply
from stoker.pack.jobs.convert import Conversion, Options
from stoker.pack.jobs.verification import Verifier
from stoker.source.chunk import BytesColumn
from stoker.source.shards import lmdb_source as lmdb
from stoker.source.source import Source
from stoker.source.streams import tfrecord_stream as tfrecordstream
from stoker.stage import ragged

from ..support import image_bytes, jpeg_bytes

MOST = 1 << 20
LARGE = jpeg_bytes(48, 48, seed=3) + bytes(2 * MOST)  # what follows the end of a picture is not looked at


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """No buffer that is read to can have more than a megabyte."""
    take = Buffers.take

    def take_a_little(buffers: Buffers, capacity: int) -> Any:
        if capacity > MOST:
            raise MemoryError(f"Unable to allocate {capacity} bytes")
        return take(buffers, capacity)

    monkeypatch.setattr(Buffers, "take", take_a_little)
    monkeypatch.setattr(files, "_buffers", Buffers(0))  # which keeps none: those of other tests are larger


def join_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte strings of more than a megabyte can be joined."""
    join = BytesColumn.of

    def join_a_little(values: Any, seeks: Any = None) -> BytesColumn:
        values = list(values)
        if sum(map(len, values)) > MOST:
            raise MemoryError
        return join(values, seeks)

    monkeypatch.setattr(BytesColumn, "of", join_a_little)


def samples() -> list[dict[str, Any]]:
    """Six pictures, of which the fourth, number 3, is large."""
    return [{"jpg": LARGE if at == 3 else jpeg_bytes(40 + at, 50, seed=at), "cls": at} for at in range(6)]


def stored(tmp_path: Path, kind: str) -> Pipeline:
    if kind == "tar":
        stoker.write_tar(tmp_path / "a.tar", samples())
        return stoker.tar(tmp_path / "a.tar").rename(image="jpg", label="cls")
    if kind == "tfrecord":
        stoker.write_tfrecord(tmp_path / "a.tfrecord", [{"image": s["jpg"], "label": s["cls"]} for s in samples()])
        return stoker.tfrecord(tmp_path / "a.tfrecord")
    if kind == "lmdb":
        pytest.importorskip("lmdb")
        stoker.write_lmdb(tmp_path / "a.lmdb", [{"image": s["jpg"], "label": s["cls"]} for s in samples()])
        return stoker.lmdb(tmp_path / "a.lmdb")
    for sample in samples():
        (tmp_path / f"{sample['cls']}.jpg").write_bytes(sample["jpg"])
    return stoker.files(tmp_path, labels=lambda path: int(Path(path).stem))


def source_of(pipeline: Pipeline) -> Source:
    source = pipeline.plan.source
    assert isinstance(source, Source)
    return source


@pytest.mark.parametrize("stage", ["image", "decode", "read"])
@pytest.mark.parametrize("kind", ["files", "tar", "tfrecord", "lmdb"])
def test_a_record_there_is_no_memory_for_is_that_samples_error(
    tmp_path: Path, kind: str, stage: str, request: pytest.FixtureRequest
) -> None:
    pipeline = stored(tmp_path, kind)
    if stage != "read":
        pipeline = pipeline.image("image", Resize((16, 16))) if stage == "image" else pipeline.decode("image")
    pipeline = pipeline.batch(6, pad={"image": list})
    [whole] = pipeline
    request.getfixturevalue("scarce")
    with pytest.raises(ReadError, match="not enough memory") as caught:
        list(pipeline)
    assert caught.value.position == 3 and caught.value.origin and caught.value.key and "on_error" in str(caught.value)
    [batch] = pipeline.on_error("skip", budget=1)
    assert batch["label"].tolist() == [0, 1, 2, 4, 5]
    for row, at in enumerate(batch["label"].tolist()):
        assert np.array_equal(np.asarray(batch["image"][row]), np.asarray(whole["image"][at]))


def test_files_that_fit_one_at_a_time_are_not_bad_because_the_batch_is_large(tmp_path: Path, scarce: None) -> None:
    sizes = [MOST * part // 10 for part in (3, 3, 3, 9, 10)]  # the first three together need the buffer they just fit
    for at, size in enumerate(sizes):
        (tmp_path / f"{at}.jpg").write_bytes(bytes(size))
    for batch in (3, 5):
        [read] = stoker.files(tmp_path, labels=None).take(batch).batch(batch).loader(threads=1)
        assert [len(image) for image in read["image"]] == sizes[:batch]


def test_rows_that_do_not_fit_together_go_through_all_stages_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scarce: None
) -> None:
    for at in range(4):
        (tmp_path / f"{at}.jpg").write_bytes(bytes(MOST * (9 if at == 2 else 4) // 10))
    pipeline = stoker.files(tmp_path, labels=None)
    join_little(monkeypatch)
    [lengths] = pipeline.map(image=len).map(image=float).batch(4).loader(executor="inline")
    assert (lengths["image"] * 10 / MOST).round().tolist() == [4, 4, 9, 4]
    with pytest.raises(ReadError, match=r"2\.jpg: .* memory for this sample, the largest of 4") as caught:
        list(pipeline.batch(4).loader(executor="inline"))
    assert caught.value.position == 2
    [batch] = pipeline.on_error("skip", budget=2).batch(4).loader(executor="inline")
    assert len(batch["image"]) == 2, "so many can be joined"


def test_memory_kept_for_later_is_let_go_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = Buffers(1 << 20)
    buffers.take(1 << 10)  # dropped at once, and kept
    empty = np.empty

    def nearly_none(size: int, dtype: Any) -> Any:
        if buffers._free:
            raise MemoryError
        return empty(size, dtype)

    monkeypatch.setattr(np, "empty", nearly_none)
    assert buffers._free and buffers.take(1 << 16).size == 1 << 16


@pytest.mark.parametrize("stage", ["image", "resize to any width", "decode"])
def test_memory_that_pillow_cannot_have_is_that_samples_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    for at in range(4):
        (tmp_path / f"{at}.png").write_bytes(image_bytes(20 + at, 20, format="PNG"))
    to_pixels = pillow._to_pixels

    def scarcely(image: Any, *how: Any) -> Any:
        if image.width == 22:
            raise MemoryError
        return to_pixels(image, *how)

    monkeypatch.setattr(pillow, "_to_pixels", scarcely)
    pipeline = stoker.files(tmp_path, labels=None)
    if stage == "decode":
        pipeline = pipeline.decode("image")
    else:
        pipeline = pipeline.image("image", Resize((8, 8) if stage == "image" else 8))
    with pytest.raises(ImageTooLarge, match=r"2\.png: there is not enough memory") as caught:
        list(pipeline)
    assert isinstance(caught.value.__cause__, MemoryError)
    assert len(list(pipeline.on_error("skip", budget=1))) == 3


def test_memory_that_the_kernel_cannot_have_is_that_samples_error() -> None:
    assert isinstance(error_of(Status.NOMEM, "no memory for the weights"), ImageTooLarge)


def test_a_stage_that_has_no_memory_for_all_rows_does_them_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def to_bytes(number: int) -> bytes:
        calls.append(number)
        return LARGE if number == 3 else jpeg_bytes(40 + number, 50, seed=number)

    pipeline = stoker.arrays(image=np.arange(6), label=np.arange(6)).map(image=to_bytes)
    pipeline = pipeline.image("image", Resize((16, 16))).batch(6)
    [whole] = pipeline.loader(threads=1)
    join_little(monkeypatch)
    calls.clear()
    with pytest.raises(SampleError, match="not enough memory for this sample") as caught:
        list(pipeline)
    assert caught.value.position == 3 and isinstance(caught.value.__cause__, MemoryError)
    assert sorted(calls) == list(range(6)), "no function is called twice for a sample"
    [batch] = pipeline.on_error("skip", budget=1)
    assert batch["label"].tolist() == [0, 1, 2, 4, 5]
    assert np.array_equal(batch["image"], whole["image"][batch["label"]])


def test_a_function_is_not_blamed_for_a_sample_that_it_cannot_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jpg").write_bytes(b"bytes")
    pipeline = stoker.files(tmp_path, labels=None)
    monkeypatch.setattr(BytesColumn, "__getitem__", no_memory)
    for ask in (lambda: pipeline.sample(0), lambda: list(pipeline.map(dict).batch(1))):
        with pytest.raises(ReadError, match=r"^/\S+a\.jpg: there is not enough memory for this sample; make it smaller"):
            ask()


def test_rows_that_only_together_are_too_large_are_an_error_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    ragged_rows = stoker.arrays(n=np.arange(1, 5)).map(n=lambda n: np.zeros(n))
    with monkeypatch.context() as patch:
        patch.setattr(collate, "_filled", no_memory)
        with pytest.raises(BatchError, match=r"'n' cannot be padded: .* memory for 4 rows of \[4\]; sample '3' has \[4\]"):
            list(ragged_rows.batch(4, pad={"n": 0}))
    monkeypatch.setattr(ragged, "collate", no_memory)
    with pytest.raises(BatchError, match="not enough memory for 4 samples"):
        list(stoker.arrays(n=np.arange(4)).batch(4).map_batch(lambda batch: batch).unbatch())


def test_memory_that_a_loader_or_its_batches_cannot_have_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = stoker.arrays(x=np.zeros((4, 250))).batch(2)
    with monkeypatch.context() as patch:
        patch.setattr(Output, "allocate", no_memory)
        with pytest.raises(BatchError, match=r"another batch \(2 samples, 4\.0 kB\); use a smaller batch, or .* loader\(memory="):
            list(pipeline.loader(ahead=1))
    with monkeypatch.context() as patch:
        patch.setattr(supply, "join_chunks", no_memory)
        with pytest.raises(BatchError, match="not enough memory to put the next samples together; use a smaller batch"):
            list(stoker.arrays(x=np.arange(4)).filter(bool).batch(2))
    monkeypatch.setattr(np, "full", no_memory)
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="not enough memory to start a loader") as raised:
        pipeline.loader()
    del raised  # its frames hold the loader
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), "the workers of a loader that was never made have ended"


def test_packing_leaves_out_what_there_is_no_memory_for(tmp_path: Path, scarce: None) -> None:
    source = source_of(stored(tmp_path, "tar"))
    shard = Conversion(source, str(tmp_path / "out.tar"), Options()).write(0, skip_bad=True)
    assert shard.samples == 5 and [bad.key for bad in shard.bad] == [source.key(3)]
    assert "not enough memory" in shard.bad[0].reason


def test_packing_plans_no_room_for_a_file_that_is_too_large_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("a.jpg", "c.jpg"):
        (tmp_path / "images" / name).write_bytes(jpeg_bytes(16, 16))
    with (tmp_path / "images" / "b.jpg").open("wb") as file:
        file.truncate(1 << 40)
    conversion = Conversion(source_of(stoker.files(tmp_path / "images", labels=None)), str(tmp_path / "out.tar"), Options())
    shard = conversion.write(0, skip_bad=True)
    assert (conversion.shards, shard.samples, [bad.key for bad in shard.bad]) == (1, 2, ["b.jpg"])


def test_verifying_names_what_there_is_no_memory_for(tmp_path: Path, scarce: None) -> None:
    source = source_of(stored(tmp_path, "lmdb"))
    found = Verifier(decode=True).rows(source, np.arange(len(source)))
    assert found.samples == 6 and [problem.key for problem in found.problems] == [source.key(3)]
    assert "not enough memory" in found.problems[0].reason


def no_memory(*_: Any) -> Any:
    raise MemoryError


def test_a_record_that_cannot_be_indexed_for_want_of_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path, "tfrecord")
    (tmp_path / "a.tfrecord.stk").unlink()
    monkeypatch.setattr(tfrecordstream, "_HELD", 1 << 10)
    with monkeypatch.context() as patch, pytest.raises(CorruptShard, match=r"a\.tfrecord: .*not enough memory for the record"):
        patch.setattr(np, "concatenate", no_memory)
        stoker.tfrecord(tmp_path / "a.tfrecord")
    stored(tmp_path, "lmdb")
    with pytest.raises(CorruptShard, match=r"a\.lmdb.*: there is not enough memory for the .* bytes of its entry"):
        monkeypatch.setattr(lmdb, "bytearray", no_memory, raising=False)
        stoker.lmdb(tmp_path / "a.lmdb")


LIMITED = """
    import resource, struct, sys, warnings, zlib
    from pathlib import Path
    import numpy as np, stoker
    from PIL import Image
    from stoker.errors import ImageTooLarge, ReadError
    from stoker.image import Resize

    root, side = Path(sys.argv[1]), 9000
    for name in ("sparse", "tar", "png", "jpg"):
        (root / name).mkdir()
    small = root / "small.jpg"
    Image.new("RGB", (32, 32), "red").save(small)
    good = small.read_bytes()
    for name in ("sparse", "png", "jpg"):
        (root / name / "a.jpg").write_bytes(good)
        (root / name / "c.jpg").write_bytes(good)
    with (root / "sparse/b.jpg").open("wb") as file:
        file.write(good)
        file.truncate(1 << 30)
    rows = zlib.compress(bytes((side + 1) * side), 1)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (root / "png/b.png").write_bytes(png)
    Image.new("L", (side, side)).save(root / "jpg/b.jpg")
    del rows, png
    stoker.write_tar(root / "tar/a.tar", [{"jpg": good}, {"jpg": good + bytes(1 << 28)}, {"jpg": good}])
    pipelines = {
        "sparse": (ReadError, stoker.files(root / "sparse", labels=None).image("image", Resize((8, 8)))),
        "sparse bytes": (ReadError, stoker.files(root / "sparse", labels=None)),
        "tar": (ReadError, stoker.tar(root / "tar/a.tar").image("jpg", Resize((8, 8)))),
        "png": (ImageTooLarge, stoker.files(root / "png", labels=None).image("image", Resize((8, 8)))),
        "jpg": (ImageTooLarge, stoker.files(root / "jpg", labels=None).decode("image")),
    }
    list(stoker.files([small], labels=None).decode("image").loader(executor="inline"))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (120 << 20),) * 2)
    for name, (kind, pipeline) in pipelines.items():
        try:
            list(pipeline.loader(executor="inline"))
        except kind as error:
            assert "memory" in str(error), error
        else:
            raise AssertionError(name)
        assert len(list(pipeline.on_error("skip", budget=1).loader(executor="inline"))) == 2, name
    print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to RLIMIT_AS")
def test_a_process_that_may_have_little_memory_skips_what_is_too_large(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "done\n", done.stderr
