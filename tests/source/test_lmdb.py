"""LMDB databases: what we wrote comes back as it was, what others wrote as far as it is plain, and nothing that runs code."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import msgpack_numpy
import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, CorruptShard, ReadError, RecordError, ShardChanged, SourceEmpty, SourceNotFound
from stoker.image import RandomResizedCrop
from stoker.kernel.records import crc32c
from stoker.source.shards.lmdb_source import ABOUT, MAGIC, LmdbSource

from ..loader.runs import run_python
from ..support import image_bytes, read, value
from .making import example, write_lmdb
from .test_codecs import Canary


def plain(part: Any) -> Any:
    return part.tolist() if isinstance(part, (np.ndarray, np.generic)) else part


def everything(source: LmdbSource) -> list[dict[str, Any]]:
    rows = read(source)
    assert not rows.errors, rows.errors
    return [{name: plain(value(column, row)) for name, column in rows.columns.items()} for row in range(len(source))]


# ---- what we wrote ---------------------------------------------------------------------------------------------------

SAMPLES: list[dict[str, Any]] = [
    {
        "__key__": f"key{n:03d}",
        "image": bytes([n]) * (n * 40),
        "label": n - 2,
        "score": n / 3,
        "name": f"é{n}",
        "box": np.arange(4, dtype=np.float32) + n,
        "meta": {"n": [n, None, "x"]},
        "mask": np.full((n, 2), n, np.uint8),
    }
    for n in range(7)
]


def wanted(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(part) for name, part in sample.items() if name != "__key__"}


def test_what_was_written_comes_back_as_it_was(tmp_path: Path) -> None:
    stoker.write_lmdb(tmp_path / "a.lmdb", SAMPLES)
    source = LmdbSource(tmp_path / "a.lmdb")
    assert {name: str(spec) for name, spec in source.fields.items()} == {
        "image": "bytes", "label": "int64[]", "score": "float64[]", "name": "object", "box": "float32[4]", "meta": "object",
        "mask": "object",
    }  # fmt: skip
    assert everything(source) == [wanted(sample) for sample in SAMPLES]
    assert [source.key(index) for index in range(7)] == [sample["__key__"] for sample in SAMPLES]
    assert "7 samples in 1 shard" in source.describe()


def test_it_is_told_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for path, place in (("a.lmdb", "a.lmdb"), ("folder", "folder/data.mdb")):
        stoker.write_lmdb(place, SAMPLES)
        source = LmdbSource(path)
        assert source.describe() == f"lmdb({path}): 7 samples in 1 shard"
        assert source.origin(0).startswith(f"{place}, byte ")
        monkeypatch.chdir("/")
        assert everything(source) == [wanted(sample) for sample in SAMPLES], "wherever the process goes"
        monkeypatch.chdir(tmp_path)


def test_field_names_of_any_text_come_back(tmp_path: Path) -> None:
    names = ["a\\b", r"\xff", "Übung", "new\nline", "a.b/c"]
    stoker.write_lmdb(tmp_path / "a.lmdb", [{name: n for n, name in enumerate(names)}])
    assert everything(LmdbSource(tmp_path / "a.lmdb")) == [{name: n for n, name in enumerate(names)}]


@pytest.mark.parametrize(
    "array", [np.zeros((0, 2), np.uint8), np.array(1.5, np.float32), np.zeros((2, 0, 3)), np.array([True])], ids=str
)
def test_arrays_of_every_shape_come_back(tmp_path: Path, array: Any) -> None:
    stoker.write_lmdb(tmp_path / "a.lmdb", [{"x": array, "y": n} for n in range(3)])
    source = LmdbSource(tmp_path / "a.lmdb")
    for got in read(source).columns["x"]:
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_only_wanted_fields_are_made_and_memory_is_used(tmp_path: Path) -> None:
    stoker.write_lmdb(tmp_path / "a.lmdb", SAMPLES)
    source = LmdbSource(tmp_path / "a.lmdb")
    out = {"label": np.empty(3, np.int64), "box": np.empty((3, 4), np.float32), "score": np.empty(3, np.float64)}
    rows = read(source, [6, 0, 3], ("box", "label", "score"), **out)
    assert set(rows.columns) == {"box", "label", "score"}
    assert out["label"].tolist() == [4, -2, 1] and out["box"][:, 0].tolist() == [6, 0, 3]
    assert out["score"].tolist() == [2.0, 0.0, 1.0]


def test_a_damaged_record_costs_its_sample_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.lmdb"
    stoker.write_lmdb(path, SAMPLES)
    start = int(LmdbSource(path).indexes[0].start[4, 0])
    data = bytearray(path.read_bytes())
    for at in (start, start + 5, start + 30):  # the mark, the checksum, the payload
        data[at] ^= 1
        path.write_bytes(data)
        rows = read(LmdbSource(path))
        assert set(rows.errors) == {4}
        assert isinstance(rows.errors[4], RecordError)
        assert all(word in str(rows.errors[4]) for word in (str(path), "key004", "checksum"))
        data[at] ^= 1


def rewritten(path: Path, changes: dict[bytes, bytes | None]) -> Path:
    """The database with some entries changed, added or removed, by the usual library."""
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 24, lock=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, change in changes.items():
            if change is None:
                assert transaction.delete(key)
            else:
                transaction.put(key, change)
    return path


def marked(key: bytes, payload: bytes) -> bytes:
    return MAGIC + crc32c(payload, crc32c(key)).to_bytes(4, "little") + payload


def test_a_record_that_is_gone_or_added_is_told(tmp_path: Path) -> None:
    for name, changes in {
        "gone": {b"key003": None},
        "added": {b"key0035": marked(b"key0035", example({"x": 1}))},
    }.items():
        stoker.write_lmdb(tmp_path / name, SAMPLES)
        with pytest.raises(CorruptShard, match=r"it has [68] records, but 7 were written"):
            LmdbSource(rewritten(tmp_path / name, changes))  # type: ignore[arg-type]


def test_a_record_under_another_key_is_told(tmp_path: Path) -> None:
    stoker.write_lmdb(tmp_path / "a", SAMPLES)
    with (
        lmdb.open(str(tmp_path / "a"), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        swapped = {b"key001": transaction.get(b"key002"), b"key002": transaction.get(b"key001")}
    assert set(read(LmdbSource(rewritten(tmp_path / "a", swapped))).errors) == {1, 2}


def test_without_its_description_it_is_not_taken_for_a_plain_one(tmp_path: Path) -> None:
    stoker.write_lmdb(tmp_path / "a", SAMPLES)
    with pytest.raises(CorruptShard, match=r"the entry that describes them .* is gone"):
        LmdbSource(rewritten(tmp_path / "a", {ABOUT: None}))


GOOD_ABOUT = {"version": 1, "records": 1, "fields": {"x": {"kind": "int"}}}


@pytest.mark.parametrize(
    ("about", "error"),
    [
        (b"not json", CorruptShard),
        (b"[]", CorruptShard),
        (b"{}", CorruptShard),
        (b"\xff", CorruptShard),
        (b"[" * 100_000, CorruptShard),
        ({**GOOD_ABOUT, "version": 2}, ConfigError),
        ({**GOOD_ABOUT, "records": 2}, CorruptShard),
        ({**GOOD_ABOUT, "records": "many"}, CorruptShard),
        ({**GOOD_ABOUT, "fields": []}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": 5}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "pickle"}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": ["int"]}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "O", "shape": [1]}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "<i8,O", "shape": [1]}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "<i3", "shape": [1]}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "<i8", "shape": [-1]}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "<i8", "shape": [10**15]}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "<i8", "shape": 5}}}, CorruptShard),
        ({**GOOD_ABOUT, "fields": {"x": {"kind": "array", "dtype": "<i8", "shape": ["1"]}}}, CorruptShard),
    ],
    ids=lambda part: str(part)[:60],
)
def test_a_description_that_makes_no_sense_is_told(tmp_path: Path, about: Any, error: Any) -> None:
    payload = about if isinstance(about, bytes) else json.dumps(about).encode()
    record = marked(b"k", example({"x": 5}))
    path = write_lmdb(tmp_path / "a", [(b"k", record), (ABOUT, marked(ABOUT, payload))])
    with pytest.raises(error, match=str(path)):
        LmdbSource(path)
    unmarked = write_lmdb(tmp_path / "b", [(b"k", record), (ABOUT, payload)])
    with pytest.raises(CorruptShard, match="checksum"):
        LmdbSource(unmarked)


def test_a_description_that_lies_gives_errors_not_crashes(tmp_path: Path) -> None:
    for entry in (
        {"kind": "float"},
        {"kind": "str"},
        {"kind": "npy"},
        {"kind": "json"},
        {"kind": "array", "dtype": "<i8", "shape": [3]},
    ):
        about = {**GOOD_ABOUT, "fields": {"x": entry, "gone": {"kind": "int"}}}
        path = tmp_path / f"{entry['kind']}"
        write_lmdb(path, [(b"k", marked(b"k", example({"x": b"\xff{"}))), (ABOUT, marked(ABOUT, json.dumps(about).encode()))])
        assert set(read(LmdbSource(path)).errors) == {0}


# ---- what others wrote -----------------------------------------------------------------------------------------------


def test_of_any_other_database_the_values_are_bytes_in_the_order_of_their_keys(tmp_path: Path) -> None:
    entries = [(b"b", b"2"), (b"a\xff", b"1" * 10_000), (b"c", b""), (b"\0", b"0")]
    for subdir in (False, True):
        path = write_lmdb(tmp_path / f"db{subdir}", entries, subdir=subdir)
        source = LmdbSource(path)
        assert everything(source) == [{"value": part} for _, part in sorted(entries)]
        assert [source.key(index) for index in range(4)] == [r"\x00", r"a\xff", "b", "c"]


def test_many_entries_of_every_size_come_back(tmp_path: Path) -> None:
    entries = [(b"%06d" % n, bytes([n % 251]) * (n * 37 % 9000)) for n in range(900)]
    source = LmdbSource(write_lmdb(tmp_path / "a", entries))
    rng = np.random.default_rng(1)
    for _ in range(5):
        indices = rng.integers(0, 900, 50)
        rows = read(source, indices)
        assert [value(rows.columns["value"], row) for row in range(50)] == [entries[index][1] for index in indices]


def tensorpack(path: Path, datapoints: Iterable[Any], dump: Any = None) -> Path:
    """A database as tensorpack's LMDBSerializer writes it."""
    dump = dump or (lambda part: msgpack.dumps(part, use_bin_type=True, default=msgpack_numpy.encode))
    entries = [(b"%08d" % number, dump(part)) for number, part in enumerate(datapoints)]
    return write_lmdb(path, [*entries, (b"__keys__", dump([key for key, _ in entries]))])


def test_tensorpacks_datapoints_become_fields(tmp_path: Path) -> None:
    datapoints = [[b"jpeg%d" % n, n, np.full((2, 3), n, np.float32), "text", np.int64(n), [1, {"a": None}]] for n in range(4)]
    source = LmdbSource(tensorpack(tmp_path / "a", datapoints))
    assert list(source.fields) == ["0", "1", "2", "3", "4", "5"]
    assert everything(source) == [dict(zip(source.fields, map(plain, part))) for part in datapoints]
    rows = read(source, [2], ("2", "4"))
    assert rows.columns["2"][0].dtype == np.float32 and rows.columns["4"][0].dtype == np.int64
    named = stoker.lmdb(tmp_path / "a", fields=["image", "label", "box", "t", "n", "l"])
    assert [sample["label"] for sample in named] == [0, 1, 2, 3]
    assert [source.key(index) for index in range(4)] == [f"{n:08d}" for n in range(4)]


def test_an_encoded_image_may_be_an_array_of_bytes_as_in_tensorpacks_own_databases(tmp_path: Path) -> None:
    """As the tutorial on ImageNet stores it: the file's bytes as uint8, and a label, here every other one NumPy's."""
    encoded = [image_bytes(60 + n, 50, seed=n, format="PNG" if n == 2 else "JPEG") for n in range(5)]
    datapoints = [[np.frombuffer(data, np.uint8), np.int32(n) if n % 2 else n] for n, data in enumerate(encoded)]
    theirs = stoker.lmdb(tensorpack(tmp_path / "a", datapoints), fields=["image", "label"])
    ours = stoker.lmdb(stoker.write_lmdb(tmp_path / "b", [{"image": data} for data in encoded]).paths[0])
    crop = RandomResizedCrop(24)
    batch, same = (next(iter(pipeline.image("image", crop).batch(5))) for pipeline in (theirs, ours))
    assert np.array_equal(batch["image"], same["image"]) and batch["label"].tolist() == [0, 1, 2, 3, 4]
    numbered = next(iter(stoker.lmdb(tmp_path / "a").image("0", crop).batch(5)))
    assert np.array_equal(numbered["0"], same["image"])
    for row in range(5):
        assert np.array_equal(theirs.decode("image").sample(row)["image"], ours.decode("image").sample(row)["image"])


def test_the_list_of_keys_gives_the_order(tmp_path: Path) -> None:
    def dump(part: Any) -> bytes:
        return bytes(msgpack.dumps(part, use_bin_type=True))

    entries = [(b"a", dump([1])), (b"b", dump([2])), (b"c", dump([3]))]
    path = write_lmdb(tmp_path / "a", [*entries, (b"__keys__", dump([b"c", b"a", b"b"])), (b"__extra__", b"?")])
    assert [sample["0"] for sample in everything(LmdbSource(path))] == [3, 1, 2]
    with pytest.raises(CorruptShard, match="names b'gone', which is not there"):
        LmdbSource(write_lmdb(tmp_path / "b", [*entries, (b"__keys__", dump([b"a", b"gone"]))]))


def test_a_bad_datapoint_costs_its_sample_alone(tmp_path: Path) -> None:
    def dump(part: Any) -> bytes:
        return part if isinstance(part, bytes) else bytes(msgpack.dumps(part, use_bin_type=True))

    bad = [
        b"\xc1", b"", dump([1]), dump([1, 2, 3]), dump({"a": 1}), dump(5), dump([1, 2])[:-1], dump([1, 2]) + b"x",
        pickle.dumps([1, 2]),
        dump([1, {b"nd": True, b"type": "<i8", b"shape": [3], b"data": b"short"}]),
        dump([1, {b"nd": True, b"type": "O", b"shape": [1], b"data": b"12345678"}]),
        dump([1, {b"nd": True, b"type": [["x", "O"]], b"shape": [1], b"data": b"12345678"}]),
        dump([1, {b"nd": True, b"type": "<i8", b"shape": [-1, -1], b"data": b"12345678"}]),
        dump([1, {b"nd": True, b"type": "<i8", b"shape": 5, b"data": b"12345678"}]),
        dump([1, {b"nd": True, b"type": "<i8", b"shape": [2**62], b"data": b""}]),
        dump([1, {b"nd": False, b"type": "<i8", b"data": b""}]),
        dump([1, {b"nd": True}]),
        b"\x92\x01" + b"\x91" * 5000 + b"\x01",
    ]  # fmt: skip
    keys = [b"%03d" % n for n in range(len(bad) + 2)]
    entries = list(zip(keys, [dump([1, 2]), *bad, dump([3, 4])]))
    rows = read(LmdbSource(write_lmdb(tmp_path / "a", [*entries, (b"__keys__", dump(keys))])))
    assert set(rows.errors) == set(range(1, len(bad) + 1))
    assert all(isinstance(error, RecordError) for error in rows.errors.values())
    assert (rows.columns["0"][0], rows.columns["1"][len(bad) + 1]) == (1, 4)


def test_pickled_databases_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for protocol in (0, 1, 2, 5):
        path = tensorpack(tmp_path / f"p{protocol}", [[Canary(canary)]], lambda part: pickle.dumps(part, protocol))
        with pytest.raises(CorruptShard, match="__keys__"):
            LmdbSource(path)
    mixed = write_lmdb(tmp_path / "m", [(b"a", pickle.dumps([Canary(canary)])), (b"__keys__", msgpack.dumps([b"a"]))])
    with pytest.raises(CorruptShard, match="pickle"):
        LmdbSource(mixed)
    ours = {**GOOD_ABOUT, "fields": {"x": {"kind": "npy"}}}
    record = marked(b"k", example({"x": pickle.dumps(Canary(canary))}))
    path = write_lmdb(tmp_path / "o", [(b"k", record), (ABOUT, marked(ABOUT, json.dumps(ours).encode()))])
    assert set(read(LmdbSource(path)).errors) == {0}
    assert not canary.exists()


# ---- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "match"),
    [(["a"], "has 2 components"), ("ab", "list of names"), (["a", "a"], "each only once"), ([1, 2], "list of names")],
)
def test_fields_that_do_not_fit_are_told(tmp_path: Path, fields: Any, match: str) -> None:
    path = tensorpack(tmp_path / "a", [[1, 2]])
    with pytest.raises(ConfigError, match=match):
        stoker.lmdb(path, fields=fields)


def test_fields_are_for_tensorpacks_databases(tmp_path: Path) -> None:
    stoker.write_lmdb(tmp_path / "ours", SAMPLES)
    with pytest.raises(ConfigError, match="fields"):
        stoker.lmdb(tmp_path / "ours", fields=["a"])
    with pytest.raises(ConfigError, match="fields"):
        stoker.lmdb(write_lmdb(tmp_path / "plain", [(b"a", b"1")]), fields=["a"])


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "page").write_bytes(b"<html>" * 5000)
    os.mkfifo(tmp_path / "pipe")
    for name, error in (
        ("gone", SourceNotFound),
        ("folder", SourceNotFound),
        ("empty", CorruptShard),
        ("page", CorruptShard),
        ("pipe", SourceNotFound),
    ):
        with pytest.raises(error, match=name):
            stoker.lmdb(tmp_path / name)
    with pytest.raises(SourceEmpty):
        stoker.lmdb(write_lmdb(tmp_path / "none", []))
    with pytest.raises(SourceEmpty):
        stoker.lmdb(tensorpack(tmp_path / "nothing", []))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.99])
def test_a_cut_database_is_told_and_ends_nobody(tmp_path: Path, share: float) -> None:
    path = write_lmdb(tmp_path / "a", [(b"%06d" % n, bytes(3000)) for n in range(100)])
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(CorruptShard, match=str(path)):
        LmdbSource(path)


def test_a_database_that_is_cut_while_it_is_read_is_told_and_ends_nobody(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "a", [(b"%06d" % n, bytes([n]) * 3000) for n in range(100)])
    source = LmdbSource(path)
    assert not read(source, [0, 50]).errors
    os.truncate(path, 100_000)
    rows = read(source)
    assert 0 < len(rows.errors) < 100
    assert all(isinstance(error, (ShardChanged, ReadError)) for error in rows.errors.values())
    assert all(value(rows.columns["value"], row) == bytes([row]) * 3000 for row in range(100) if row not in rows.errors)


def test_databases_with_several_values_a_key_or_databases_inside_are_told(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "named"), subdir=False, map_size=1 << 22, max_dbs=2, lock=False) as environment:
        inner = environment.open_db(b"inner", dupsort=True)
        with environment.begin(write=True, db=inner) as transaction:
            transaction.put(b"a", b"1")
    with pytest.raises(CorruptShard, match="named"):
        LmdbSource(tmp_path / "named")


def test_reading_leaves_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "a", [(b"a", b"1")], subdir=True)
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    assert len(list(stoker.lmdb(path))) == 1
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()} == before


def test_forked_and_threaded_readers_share_a_database(tmp_path: Path) -> None:
    stoker.write_lmdb(tmp_path / "a.lmdb", SAMPLES)
    done = run_python(
        """
import os, sys, stoker
pipeline = stoker.lmdb(sys.argv[1]).select("label", "name").shuffle(seed=1).batch(2, drop_last=False)
first = [batch["label"].tolist() for batch in pipeline.loader(threads=4)]
for _ in range(3):
    pid = os.fork()
    if not pid:
        os._exit(0 if [batch["label"].tolist() for batch in pipeline.loader(executor="inline")] == first else 1)
    assert os.waitpid(pid, 0)[1] == 0
print("same")
""",
        str(tmp_path / "a.lmdb"),
    )
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr
