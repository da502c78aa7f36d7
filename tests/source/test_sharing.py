"""What a worker process holds of a source itself does not grow with the number of samples: all of that can be shared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.engine.executor import Channel, Task, TaskWork
from stoker.engine.process_executor import ProcessExecutor
from stoker.errors import ShardChanged, SourceNotFound
from stoker.image import RandomResizedCrop
from stoker.loader.build import compile_work, layout_of
from stoker.pipeline import Pipeline
from stoker.portable_arrays import ArrayInFile, portable
from stoker.source.arrays import ArraysSource
from stoker.source.chunk import Ints
from stoker.source.shards.seeks import SeekTable
from stoker.source.source import Source
from stoker.storage.local import LocalBlob
from stoker.storage.scratch import Scratch
from tests.source.making import example, sample_tar, tfrecord, write_lmdb
from tests.support import read, sent, values

FEW, MANY = 40, 2000
#: bytes that a process may hold of its own for each sample: numbers of samples are longer, no more
PER_SAMPLE = 0.05


def names(count: int) -> list[str]:
    return [f"n{at % 7:04}/picture-{at:06}.jpg" for at in range(count)]


def arrays(folder: Path, count: int) -> Pipeline:
    return stoker.arrays(image=np.arange(count * 3, dtype=np.uint8).reshape(count, 3), odd=np.arange(2 * count)[::2])


def dates(folder: Path, count: int) -> Pipeline:
    days = np.arange(count).astype("M8[D]")
    return stoker.arrays(day=days, big=np.arange(count, dtype=">i4"))


def memory_map(folder: Path, count: int) -> Pipeline:
    made = np.memmap(folder / "x.bin", np.float32, "w+", shape=(count, 2))
    made[:] = np.arange(2 * count).reshape(count, 2)
    return stoker.arrays(x=made, back=made[::-1])


def listed(folder: Path, count: int) -> Pipeline:
    return stoker.files(names(count), labels=[f"text {at}" for at in range(count)])


def listed_with_numbers(folder: Path, count: int) -> Pipeline:
    return stoker.files(names(count), labels=np.arange(2 * count)[::2])


def filelist(folder: Path, count: int) -> Pipeline:
    (folder / "list.txt").write_text("\n".join(["# a comment", *names(count)]))
    return stoker.filelist(folder / "list.txt")


def csv(folder: Path, count: int) -> Pipeline:
    lines = [f"{name},{at},text {at}" for at, name in enumerate(names(count))]
    (folder / "table.csv").write_text("\n".join(["path,number,text", *lines]))
    return stoker.table(folder / "table.csv", image="path")


def voc(folder: Path, count: int) -> Pipeline:
    (folder / "list.txt").write_text("\n".join(names(count)))
    xml = "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></object>"
    (folder / "n0000").mkdir()
    (folder / "n0000/picture-000000.xml").write_text(f"{xml}</annotation>")
    return stoker.voc(folder / "list.txt")


def tar(folder: Path, count: int) -> Pipeline:
    for shard in range(2):
        samples = (
            (f"key-{at:06}", {"txt": b"text", "cls": b"%d" % (at % 10), "jpg": b"a", "png": b"b"})
            for at in range(shard, count, 2)
        )
        (folder / f"{shard}.tar").write_bytes(sample_tar(samples))
    return stoker.tar([str(folder / "0.tar"), str(folder / "1.tar")])


def tar_of_alternatives(folder: Path, count: int) -> Pipeline:
    return tar(folder, count).rename(either="jpg;png").select("either")


def tfrecords(folder: Path, count: int) -> Pipeline:
    (folder / "x.tfrecord").write_bytes(tfrecord(example({"number": at}) for at in range(count)))
    return stoker.tfrecord(folder / "x.tfrecord")


def our_lmdb(folder: Path, count: int) -> Pipeline:
    stoker.write_lmdb(folder / "x.lmdb", ({"__key__": f"key-{at:06}", "number": at} for at in range(count)))
    return stoker.lmdb(folder / "x.lmdb")


def plain_lmdb(folder: Path, count: int) -> Pipeline:
    write_lmdb(folder / "x.lmdb", ((b"key-%06d" % at, b"value") for at in range(count)))
    return stoker.lmdb(folder / "x.lmdb")


def mixed(folder: Path, count: int) -> Pipeline:
    return stoker.mix([filelist(folder, count).select("image"), listed(folder, count).select("image")], weights=[1, 1])


MAKERS = [
    arrays, dates, memory_map, listed, listed_with_numbers, filelist, csv, voc, tar, tar_of_alternatives, tfrecords, our_lmdb,
    plain_lmdb, mixed,
]  # fmt: skip


def work_of(pipeline: Pipeline) -> Any:
    plan = pipeline.batch(4).plan
    return compile_work(plan, layout_of(plan, 1))[0]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_a_worker_holds_does_not_grow_with_the_samples(make: Callable[[Path, int], Pipeline], tmp_path: Path) -> None:
    inner: dict[int, int] = {}
    for count in (FEW, MANY):
        folder = tmp_path / str(count)
        folder.mkdir()
        work = work_of(make(folder, count))
        there, inner[count] = sent(work)
        ours, theirs = work.source, there.source
        which: Ints = np.random.default_rng(count).integers(0, len(ours), 5)
        for index in (0, len(ours) - 1, *which.tolist()):
            assert (theirs.key(index), theirs.origin(index)) == (ours.key(index), ours.origin(index))
        wanted = [name for name in ours.fields if name != "image" or make is arrays]  # those files are not there
        mine, yours = read(ours, which, wanted), read(theirs, which, wanted)
        assert str(mine.errors) == str(yours.errors)
        assert [values(mine, row) for row in range(5)] == [values(yours, row) for row in range(5)]
    assert inner[MANY] - inner[FEW] < PER_SAMPLE * (MANY - FEW), inner


@dataclass(frozen=True)
class ReadWork:
    """What a worker process reads of a source, with names."""

    source: Source
    wanted: tuple[str, ...]

    def __call__(self, indices: list[int], scratch: Scratch) -> list[Any]:
        rows = self.source.read(np.array(indices, np.int64), self.wanted, {}, scratch)
        names = [(self.source.key(index), self.source.origin(index)) for index in indices]
        return [names, [values(rows, row) for row in range(len(indices))], str(rows.errors)]


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(1, Scratch, 1)
    yield executor
    executor.close()


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_worker_process_reads_the_same(
    make: Callable[[Path, int], Pipeline], tmp_path: Path, executor: ProcessExecutor
) -> None:
    source = make(tmp_path, FEW).plan.source
    assert isinstance(source, Source)
    work, indices = ReadWork(source, tuple(source.fields)), [0, len(source) - 1, 3, 3]
    assert outcome_of(executor, work, indices) == work(indices, Scratch())


def outcome_of(executor: ProcessExecutor, work: TaskWork[Any, Any], content: Any) -> Any:
    channel: Channel[Any, Any] = executor.channel(work)
    channel.submit([Task(0, 0, content)])
    while not (outcomes := channel.collect(1.0)):
        pass
    assert outcomes[0].fault is None
    return outcomes[0].result


def test_a_worker_process_imports_nothing_that_its_work_does_not_need(tmp_path: Path) -> None:
    work = work_of(tar(tmp_path, FEW).image("jpg", RandomResizedCrop(8)))

    def loaded(content: object, scratch: object) -> set[str]:
        import sys

        return {name.partition(".")[0] for name in sys.modules} if work is not None else set()

    executor = ProcessExecutor(1, Scratch, 1)
    try:
        names = outcome_of(executor, loaded, None)
    finally:
        executor.close()
    assert "numpy" in names
    assert not {"typer", "rich", "msgspec", "torch", "PIL", "obstore", "ray", "zmq"} & names


def test_a_shard_costs_a_worker_its_name_and_little_more(tmp_path: Path) -> None:
    for shard in range(40):
        (tmp_path / f"{shard}.tar").write_bytes(sample_tar([(f"key-{shard}", {"txt": b"text", "cls": b"1"})]))
    few, many = (sent(work_of(stoker.tar([str(tmp_path / f"{shard}.tar") for shard in range(count)])))[1] for count in (2, 40))
    assert (many - few) / 38 < 2 * len(str(tmp_path)) + 120


def test_a_table_of_seek_indices_travels_once() -> None:
    many: Ints = np.arange(10_000)
    table = SeekTable([LocalBlob(b"x.stk")], many, many, many.astype(np.uint32), np.array([10_000]))
    there, inner = sent(table)
    assert inner < 1000
    assert np.array_equal(there.lengths, many)


# ---- arrays in files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6000, dtype=np.int32).reshape(1000, 6))
    return path


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[7:900:3],
        lambda x: x[::-2, ::-1],
        lambda x: np.asarray(x)[5:],
        lambda x: x.T[2],
        lambda x: x[3:4],
        lambda x: x.view(">u2"),
    ],
)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_any_view_of_a_mapped_file_travels_by_name(stored: Path, view: Callable[[Any], Any], mode: Any) -> None:
    array = view(np.load(stored, mmap_mode=mode))
    found = portable(array)
    assert isinstance(found, ArrayInFile)
    again = sent(found)[0].array()
    assert (again.dtype, again.strides) == (array.dtype, array.strides)
    assert np.array_equal(again, array)
    assert not again.flags.writeable


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.rename(path.with_name("other"))])
def test_a_mapped_file_that_lost_its_name_travels_by_value(stored: Path, change: Callable[[Path], Any]) -> None:
    array = np.load(stored, mmap_mode="r")
    change(stored)
    np.save(stored, np.zeros((1000, 6), np.int32))  # another file of its name
    assert np.array_equal(sent(portable(array))[0].array(), np.arange(6000).reshape(1000, 6))


def test_changes_of_its_own_travel_by_value(stored: Path) -> None:
    array = np.load(stored, mmap_mode="c")
    array[0] = 77
    assert (sent(portable(array))[0].array()[0] == 77).all()


def test_what_was_computed_of_a_mapped_file_travels_by_value(stored: Path) -> None:
    array = np.load(stored, mmap_mode="r") + 1
    assert np.array_equal(sent(portable(array))[0].array(), array)


def test_a_file_that_changes_on_the_way_is_noticed(stored: Path) -> None:
    found = portable(np.load(stored, mmap_mode="r"))
    os.utime(stored, ns=(1, 1))
    with pytest.raises(ShardChanged, match=r"x\.npy: was changed or replaced .* create the pipeline again"):
        found.array()
    stored.unlink()
    with pytest.raises(SourceNotFound, match=r"x\.npy: cannot be mapped again: No such file or directory; restore the file"):
        found.array()


def test_who_may_write_to_a_mapped_file_may_do_so(stored: Path) -> None:
    array = np.load(stored, mmap_mode="r+")
    source: Source = sent(ArraysSource({"x": array}))[0]
    os.utime(stored, ns=(1, 1))
    again: Source = sent(ArraysSource({"x": array}))[0]
    array[2] = 7
    assert [values(read(each, [2]), 0)["x"] for each in (source, again)] == [[7] * 6] * 2


def test_a_shard_that_changed_is_noticed_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(sample_tar([("key", {"txt": b"text"})]))
    source = stoker.tar(tmp_path / "x.tar").plan.source
    assert isinstance(source, Source)
    there: Source = sent(source)[0]
    os.utime(tmp_path / "x.tar", ns=(1, 1))
    assert "was changed or replaced since it was first looked at" in str(read(there, [0]).errors[0])
