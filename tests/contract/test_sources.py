"""What every source promises. A new source adds two lines at the end of this file and gets all of these tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

import stoker
from stoker.errors import SampleError
from stoker.source.arrays import ArraysSource
from stoker.source.chunk import BytesColumn
from stoker.source.concat import ConcatSource
from stoker.source.files.filelist import FilelistSource
from stoker.source.files.labelled_files import FilesSource
from stoker.source.files.listed import open_listed
from stoker.source.files.table import TableSource
from stoker.source.files.voc import VocSource, open_voc
from stoker.source.picked import PickedSource
from stoker.source.shards.indexing import index_of
from stoker.source.shards.lmdb_source import LmdbSource
from stoker.source.shards.tar_source import TarSource
from stoker.source.shards.tfrecord_source import TfrecordSource
from stoker.source.source import Source
from stoker.storage.local import LocalBlob
from stoker.storage.scratch import Scratch
from tests.source.making import example, sample_tar, tfrecord, write_lmdb
from tests.support import jpeg_bytes, read, sent, value, values

PICTURES = [jpeg_bytes(40 + 3 * seed, 50, seed=seed) for seed in range(12)]


def remove(path: Path) -> None:
    path.unlink()


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone")


def replace_by_circular_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


class SourceContract:
    """Inherit this and say how to make the source: store some pictures in an empty folder, and open what was stored."""

    make: Callable[[Path, list[bytes]], Source]

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        return self.make(tmp_path, PICTURES)

    def test_every_picture_is_at_least_one_sample(self, source: Source) -> None:
        assert len(source) >= len(PICTURES)

    def test_columns_are_what_the_fields_say(self, source: Source) -> None:
        rows = read(source)
        assert set(rows.columns) == set(source.fields)
        for name, spec in source.fields.items():
            column = rows.columns[name]
            assert len(column) == len(source)
            if spec.kind == "bytes":
                assert isinstance(column, (BytesColumn, list))
                assert isinstance(value(column, 0), bytes)
            elif spec.fixed:
                assert isinstance(column, np.ndarray)
                assert (column.dtype, column.shape[1:]) == (np.dtype(spec.dtype), spec.shape)

    def test_labels_with_names_lie_within_the_classes(self, source: Source) -> None:
        if source.classes:
            labels = np.hstack(list(read(source).columns["label"]))
            assert set(labels.tolist()) <= set(range(-1, len(source.classes)))

    def test_any_order_and_any_repetition_reads_what_one_by_one_reads(self, source: Source) -> None:
        alone = [values(read(source, [index]), 0) for index in range(len(source))]
        rng = np.random.default_rng(3)
        for count in (1, 5, 40):
            indices = rng.integers(0, len(source), count)
            rows = read(source, indices)
            assert not rows.errors
            assert [values(rows, row) for row in range(count)] == [alone[index] for index in indices]

    def test_a_chunk_of_no_rows_is_empty(self, source: Source) -> None:
        rows = read(source, [])
        assert not rows.errors
        assert all(len(column) == 0 for column in rows.columns.values())

    def test_only_wanted_fields_are_read(self, source: Source) -> None:
        full = values(read(source, [2]), 0)
        for count in range(len(full) + 1):
            for wanted in combinations(full, count):
                assert values(read(source, [2], wanted), 0) == {name: full[name] for name in wanted}

    def test_memory_offered_is_used_or_left_alone(self, source: Source) -> None:
        indices = np.array([3, 0, 3], np.int64)
        plain = read(source, indices)
        fixed = {name: spec for name, spec in source.fields.items() if spec.fixed}
        out = {name: np.full((3, *spec.shape), 77, spec.dtype) for name, spec in fixed.items()}
        untouched = {name: array.copy() for name, array in out.items()}
        offered = read(source, indices, None, **out)
        for name, column in offered.columns.items():
            assert [value(column, row) for row in range(3)] == [value(plain.columns[name], row) for row in range(3)]
            if name in out and column is not out[name]:
                assert np.array_equal(out[name], untouched[name])

    def test_memory_offered_for_a_field_that_is_not_wanted_is_left_alone(self, source: Source) -> None:
        out = {name: np.full((1, *spec.shape), 77, spec.dtype) for name, spec in source.fields.items() if spec.fixed}
        read(source, [0], (), **out)
        assert all((array == 77).all() for array in out.values())

    def test_keys_are_unique_printable_and_the_same_in_every_run(self, source: Source, tmp_path: Path) -> None:
        keys = [source.key(index) for index in range(len(source))]
        (tmp_path / "again").mkdir()
        again = self.make(tmp_path / "again", PICTURES)
        assert len(set(keys)) == len(keys)
        assert all(key and key.isprintable() for key in keys)
        assert keys == [again.key(index) for index in range(len(again))]
        assert json.loads(json.dumps(keys).encode("utf-8")) == keys

    def test_origins_are_printable(self, source: Source) -> None:
        origins = [source.origin(index) for index in range(len(source))]
        assert all(origin and origin.isprintable() for origin in origins)

    def test_the_fingerprint_is_stable_and_changes_with_the_data(self, source: Source, tmp_path: Path) -> None:
        (tmp_path / "same").mkdir()
        (tmp_path / "fewer").mkdir()
        same, fewer = self.make(tmp_path / "same", PICTURES), self.make(tmp_path / "fewer", PICTURES[:-1])
        assert source.fingerprint() == source.fingerprint() == same.fingerprint()
        assert source.fingerprint() != fewer.fingerprint()
        assert source.fingerprint().isprintable()

    def test_the_description_is_one_line_that_counts_the_samples(self, source: Source) -> None:
        assert source.describe().isprintable()
        assert str(len(source)) in source.describe()

    def test_eight_threads_read_what_one_reads(self, source: Source) -> None:
        alone = [values(read(source, [index]), 0) for index in range(len(source))]

        def work(seed: int) -> bool:
            rng, scratch, good = np.random.default_rng(seed), Scratch(), True
            for _ in range(20):
                indices = rng.integers(0, len(source), 6)
                rows = source.read(indices, tuple(source.fields), {}, scratch)
                good &= not rows.errors
                good &= [values(rows, row) for row in range(6)] == [alone[index] for index in indices]
            scratch.close()
            return good

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))

    @pytest.mark.parametrize("go", [sent, lambda source: sent(sent(source)[0])], ids=["once", "twice"])
    def test_it_travels_to_another_process_and_stays_the_same(self, source: Source, go: Callable[[Any], Any]) -> None:
        copy, _ = go(source)
        assert (len(copy), copy.fingerprint(), copy.describe()) == (len(source), source.fingerprint(), source.describe())
        assert (copy.fields, copy.classes, copy.waits) == (source.fields, source.classes, source.waits)
        for index in range(len(source)):
            assert (copy.key(index), copy.origin(index)) == (source.key(index), source.origin(index))
        theirs, ours = read(copy), read(source)
        assert [values(theirs, row) for row in range(len(source))] == [values(ours, row) for row in range(len(source))]

    @pytest.mark.parametrize("spoil", [remove, replace_by_folder, replace_by_dangling_link, replace_by_circular_link])
    def test_a_sample_that_cannot_be_read_is_reported_and_costs_no_other(self, source: Source, spoil: Any) -> None:
        origins = [source.origin(index) for index in range(len(source))]
        if not os.path.isfile(origins[2]):
            pytest.skip("its samples are no files")
        good = read(source)
        whole = {row: values(good, row) for row in range(len(source))}
        spoil(Path(origins[2]))
        rows = read(source)
        assert set(rows.errors) == {row for row, origin in enumerate(origins) if origin == origins[2]}
        for row, error in rows.errors.items():
            assert isinstance(error, SampleError)
            assert (error.key, error.origin) == (source.key(row), source.origin(row))
            assert source.origin(row) in str(error)
        assert all(values(rows, row) == whole[row] for row in whole if row not in rows.errors)
        if "label" in source.fields:
            assert not read(source, None, ("label",)).errors


# ---- the sources -----------------------------------------------------------------------------------------------------


def store(folder: Path, pictures: list[bytes]) -> list[str]:
    """Pictures as files of three classes; their paths."""
    names = [f"{'abc'[number % 3]}/{number:03d}.jpg" for number in range(len(pictures))]
    for name, data in zip(names, pictures):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return names


def make_arrays(folder: Path, pictures: list[bytes]) -> Source:
    images = np.stack([np.frombuffer(data[-48:], np.uint8).reshape(4, 4, 3) for data in pictures])
    return ArraysSource({"image": images, "label": np.arange(len(pictures))})


def make_files(folder: Path, pictures: list[bytes]) -> Source:
    store(folder, pictures)
    return FilesSource(folder, "*/*")


def make_unlabelled_files(folder: Path, pictures: list[bytes]) -> Source:
    store(folder, pictures)
    return FilesSource(folder, "[abc]/*", labels=None)


def make_filelist(folder: Path, pictures: list[bytes]) -> Source:
    (folder / "list.txt").write_text("\n".join(reversed(store(folder, pictures))))
    return FilelistSource(folder / "list.txt")


def make_voc(folder: Path, pictures: list[bytes]) -> Source:
    """Every third image has no annotation, every third no object, every third two."""
    names = store(folder, pictures)
    for number, name in enumerate(names):
        objects = "".join(
            f"<object><name>{name[0]}</name><bndbox><xmin>{x}</xmin><ymin>2</ymin><xmax>30</xmax><ymax>41.5</ymax></bndbox>"
            "</object>"
            for x in (1, 7)
        )
        if number % 3:
            (folder / name).with_suffix(".xml").write_text(f"<annotation>{objects * (number % 3 - 1)}</annotation>")
    (folder / "list.txt").write_text("\n".join(name.removesuffix(".jpg") for name in names))
    return VocSource(folder / "list.txt", images=folder, annotations=folder)


def make_voc_images(folder: Path, pictures: list[bytes]) -> Source:
    make_voc(folder, pictures)
    return open_voc(folder / "list.txt", images=folder, annotations=folder, objects="together")


def make_listed(folder: Path, pictures: list[bytes]) -> Source:
    paths = [folder / name for name in store(folder, pictures)]
    with pytest.MonkeyPatch.context() as patch:  # paths are keys, and must not tell the folder
        patch.chdir(folder)
        return open_listed([path.relative_to(folder) for path in paths], [f"t{path.stem}" for path in paths])


def make_table(folder: Path, pictures: list[bytes]) -> Source:
    """Two files a row, and a column of each kind."""
    names = store(folder, pictures)
    (folder / "notes").mkdir()
    for number in range(len(names)):
        (folder / "notes" / f"{number}").write_text(f"note {number}")
    columns = {"path": names, "note": [f"notes/{number}" for number in range(len(names))]}
    columns |= {
        "age": np.arange(len(names)),
        "box": [[n, 0.5] for n in range(len(names))],
        "name": [f"n{name}" for name in names],
    }
    return TableSource(columns, {"image": "path", "text": "note"}, root=folder)


def make_csv(folder: Path, pictures: list[bytes]) -> Source:
    lines = [f"{name},{number},{number / 2}" for number, name in enumerate(store(folder, pictures))]
    (folder / "train.csv").write_text("\n".join(["path,label,age", *lines]))
    return TableSource(folder / "train.csv", {"image": "path"})


def make_tar(folder: Path, pictures: list[bytes]) -> Source:
    """Shards of five samples; in every other one the fields come in another order."""
    samples = [(f"{number:03d}", {"jpg": data, "cls": b"%d" % number, "txt": b"t"}) for number, data in enumerate(pictures)]
    blobs = []
    for first in range(0, len(samples), 5):
        order = -1 if first % 2 else 1
        some = [(key, dict(list(fields.items())[::order])) for key, fields in samples[first : first + 5]]
        (folder / f"s-{first}.tar").write_bytes(sample_tar(some))
        blobs.append(LocalBlob(os.fsencode(folder / f"s-{first}.tar")))
    return TarSource(blobs, [index_of(blob, "tar") for blob in blobs])


def make_tfrecord(folder: Path, pictures: list[bytes]) -> Source:
    records = [
        example({"image": data, "label": n, "box": [1.0, n / 2], "ids": list(range(n % 3))}) for n, data in enumerate(pictures)
    ]
    (folder / "one.tfrecord").write_bytes(tfrecord(records[:7]))
    (folder / "two.tfrecord").write_bytes(tfrecord(records[7:]))
    blobs = [LocalBlob(os.fsencode(folder / name)) for name in ("one.tfrecord", "two.tfrecord")]
    return TfrecordSource(blobs, [index_of(blob, "tfrecord") for blob in blobs])


def make_raw_tfrecord(folder: Path, pictures: list[bytes]) -> Source:
    (folder / "a.tfrecord").write_bytes(tfrecord(pictures))
    blob = LocalBlob(os.fsencode(folder / "a.tfrecord"))
    return TfrecordSource([blob], [index_of(blob, "tfrecord")])


def make_lmdb(folder: Path, pictures: list[bytes]) -> Source:
    samples = [{"image": data, "label": n, "box": np.full(4, n / 2), "name": f"n{n}"} for n, data in enumerate(pictures)]
    stoker.write_lmdb(folder / "a.lmdb", samples)
    return LmdbSource(folder / "a.lmdb")


def make_tensorpack_lmdb(folder: Path, pictures: list[bytes]) -> Source:
    entries = [(b"%08d" % number, msgpack.dumps([data, number])) for number, data in enumerate(pictures)]
    keys = msgpack.dumps([key for key, _ in entries])
    return LmdbSource(write_lmdb(folder / "a.lmdb", [*entries, (b"__keys__", keys)]))


def make_plain_lmdb(folder: Path, pictures: list[bytes]) -> Source:
    return LmdbSource(write_lmdb(folder / "a", [(b"k%03d" % number, data) for number, data in enumerate(pictures)], subdir=True))


def make_concat(folder: Path, pictures: list[bytes]) -> Source:
    """A tar, then an LMDB, with the fields they have in common."""
    half = len(pictures) // 2
    tar, lmdb = make_tar(folder, pictures[:half]), make_lmdb(folder, pictures[half:])
    return ConcatSource([tar, lmdb], [{"image": "jpg", "label": "cls", "txt": "txt"}, {"image": "image", "label": "label"}])


def make_picked(folder: Path, pictures: list[bytes]) -> Source:
    """All of them, the last one first."""
    return PickedSource(make_files(folder, pictures), np.arange(len(pictures))[::-1])


class TestArrays(SourceContract):
    make = staticmethod(make_arrays)


class TestFiles(SourceContract):
    make = staticmethod(make_files)


class TestUnlabelledFiles(SourceContract):
    make = staticmethod(make_unlabelled_files)


class TestFilelist(SourceContract):
    make = staticmethod(make_filelist)


class TestVoc(SourceContract):
    make = staticmethod(make_voc)


class TestVocImages(SourceContract):
    make = staticmethod(make_voc_images)


class TestListed(SourceContract):
    make = staticmethod(make_listed)


class TestTable(SourceContract):
    make = staticmethod(make_table)


class TestCsv(SourceContract):
    make = staticmethod(make_csv)


class TestTar(SourceContract):
    make = staticmethod(make_tar)


class TestTfrecord(SourceContract):
    make = staticmethod(make_tfrecord)


class TestRawTfrecord(SourceContract):
    make = staticmethod(make_raw_tfrecord)


class TestLmdb(SourceContract):
    make = staticmethod(make_lmdb)


class TestTensorpackLmdb(SourceContract):
    make = staticmethod(make_tensorpack_lmdb)


class TestPlainLmdb(SourceContract):
    make = staticmethod(make_plain_lmdb)


class TestConcat(SourceContract):
    make = staticmethod(make_concat)


class TestPicked(SourceContract):
    make = staticmethod(make_picked)
