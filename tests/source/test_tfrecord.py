"""TFRecord files: every checksum checked, Examples as columns, whatever their features are."""

from __future__ import annotations

import gzip
import os
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Feature
from stoker.engine.feed import Pace
from stoker.errors import ConfigError, CorruptIndex, CorruptShard, RecordError, SourceEmpty
from stoker.image import Cutout, HorizontalFlip, Normalize, RandomCrop, Resize
from stoker.source.shards.indexing import build_index, index_of, keep_index
from stoker.source.shards.tfrecord_source import TfrecordSource
from stoker.source.streams import unpack
from stoker.storage.local import LocalBlob

from ..pack.wire import masked
from ..support import jpeg_bytes, read, value
from .making import END, example, feature, field, tfrecord


def store(folder: Path, *shards: list[Any]) -> list[Path]:
    """A file for each list of records: Examples given as dicts, anything else as bytes."""
    paths = []
    for number, shard in enumerate(shards):
        paths.append(folder / f"s-{number}.tfrecord")
        paths[-1].write_bytes(tfrecord(record if isinstance(record, bytes) else example(record) for record in shard))
    return paths


def open_source(paths: list[Path], features: Any = None) -> TfrecordSource:
    blobs = [LocalBlob(os.fsencode(path)) for path in paths]
    return TfrecordSource(blobs, [index_of(blob, "tfrecord") for blob in blobs], features)


def plain(part: Any) -> Any:
    return part.tolist() if isinstance(part, (np.ndarray, np.generic)) else part


def everything(source: TfrecordSource) -> list[dict[str, Any]]:
    rows = read(source)
    assert not rows.errors
    return [{name: plain(value(column, row)) for name, column in rows.columns.items()} for row in range(len(source))]


def specs(source: TfrecordSource) -> dict[str, str]:
    return {name: str(spec) for name, spec in source.fields.items()}


# ---- what is found ---------------------------------------------------------------------------------------------------

RECORDS: list[dict[str | bytes, Any]] = [
    {
        "image": bytes([n]) * n,
        "label": n - 3,
        "weight": n / 4,
        "box": [float(n), 2.0, 3.0, 4.0],
        "ids": list(range(n)),
        "words": [b"w" * m for m in range(n)],
        "two": [b"a", b"b%d" % n],
        **({"sometimes": n} if n % 2 else {}),
    }
    for n in range(6)
]


def as_found(record: dict[Any, Any]) -> dict[str, Any]:
    return {**record, "sometimes": [record["sometimes"]] if "sometimes" in record else []}


def test_types_and_shapes_are_what_the_records_hold(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, RECORDS))
    assert specs(source) == {
        "box": "float32[4]", "ids": "int64[?]", "image": "bytes", "label": "int64[]", "sometimes": "int64[?]", "two": "object",
        "weight": "float32[]", "words": "object",
    }  # fmt: skip
    assert everything(source) == [{name: as_found(record)[name] for name in source.fields} for record in RECORDS]


def test_shards_may_differ_in_what_they_hold(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, [{"x": 1, "y": [1, 2]}], [{"x": 2, "y": [3]}], [{"x": 3}], [{"x": 4, "y": []}]))
    assert specs(source) == {"x": "int64[]", "y": "int64[?]"}
    assert everything(source) == [{"x": 1, "y": [1, 2]}, {"x": 2, "y": [3]}, {"x": 3, "y": []}, {"x": 4, "y": []}]


def test_a_feature_that_has_no_type_in_one_shard_has_that_of_the_others(tmp_path: Path) -> None:
    assert everything(open_source(store(tmp_path, [{"x": []}], [{"x": 5}, {"x": []}]))) == [{"x": []}, {"x": [5]}, {"x": []}]


@pytest.mark.parametrize("shards", [[[{"x": 1, "y": 1}, {"x": 1.5, "y": 2}]], [[{"x": 1, "y": 1}], [{"x": b"1", "y": 2}]]])
def test_a_feature_of_two_types_is_told_and_not_left_out(tmp_path: Path, shards: list[Any]) -> None:
    store(tmp_path, *shards)
    with pytest.raises(ConfigError, match="'x' does not have the same type"):
        stoker.tfrecord(tmp_path)
    assert [int(sample["y"]) for sample in stoker.tfrecord(tmp_path, features={"y": int})] == [1, 2]
    with pytest.raises(RecordError, match="'x' is of another type than int; look at"):
        list(stoker.tfrecord(tmp_path, features={"x": int}))


@pytest.mark.parametrize("name", [b"a\\b", b"\xff", b"new\nline", b"\\xff", "Übung".encode(), b"", b"a/b c", b"image/encoded"])
def test_names_of_any_bytes_are_found_and_read(tmp_path: Path, name: bytes) -> None:
    source = open_source(store(tmp_path, [{name: [1, 2], b"other": 1}, {name: [3], b"other": 2}]))
    [shown] = [field for field in source.fields if field != "other"]
    assert shown.isprintable()
    assert everything(source) == [{shown: [1, 2], "other": 1}, {shown: [3], "other": 2}]
    assert [plain(sample[shown]) for sample in stoker.tfrecord(tmp_path, features={shown: [int]})] == [[1, 2], [3]]


@pytest.mark.parametrize("records", [[b"junk", b"more"], [example({"x": 1}), b"\xff\xff"], [b""], [example({})]])
def test_records_that_are_no_examples_are_bytes(tmp_path: Path, records: list[bytes]) -> None:
    source = open_source(store(tmp_path, records))
    assert specs(source) == {"record": "bytes"}
    assert everything(source) == [{"record": record} for record in records]


def test_raw_gives_the_bytes_of_examples_too(tmp_path: Path) -> None:
    store(tmp_path, RECORDS)
    assert [sample["record"] for sample in stoker.tfrecord(tmp_path, features="raw")] == [example(record) for record in RECORDS]


# ---- what is asked for -----------------------------------------------------------------------------------------------


def test_features_are_asked_for_in_many_ways(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    records = [
        {
            "i": n, "is": [n] * n, "f": [1.5, n / 2], "b": b"x%d" % n, "bs": [b"a"] * n, "s": "é".encode(),
            "raw": (array + n).tobytes(), "m": list(range(6)),
        }
        for n in range(4)
    ]  # fmt: skip
    features = {
        "i": int, "is": [int], "f": (float, 2), "b": bytes, "bs": [bytes], "s": str, "raw": Feature(bytes, (3, 4), dtype="int16"),
        "m": (int, (2, 3)),
    }  # fmt: skip
    source = open_source(store(tmp_path, records), features)
    assert specs(source) == {
        "i": "int64[]", "is": "int64[?]", "f": "float32[2]", "b": "bytes", "bs": "object", "s": "object", "raw": "int16[3, 4]",
        "m": "int64[2, 3]",
    }  # fmt: skip
    assert everything(source) == [
        {**record, "s": "é", "raw": (array + n).tolist(), "m": [[0, 1, 2], [3, 4, 5]]} for n, record in enumerate(records)
    ]


def test_defaults_stand_in_for_what_is_missing(tmp_path: Path) -> None:
    features = {
        "i": Feature(int, default=-1), "f": Feature(float, (2,), default=0.5), "b": Feature(bytes, default=b"none"),
        "s": Feature(str, default="?"), "is": Feature(int, None, default=[7]), "empty": [int], "bs": [bytes],
        "raw": Feature(bytes, (2,), default=9, dtype="uint8"),
    }  # fmt: skip
    full = {"i": 1, "f": [1.0, 2.0], "b": b"B", "s": b"S", "is": [1, 2], "raw": b"\1\2", "empty": [4], "bs": [b"x"], "x": 0}
    source = open_source(store(tmp_path, [full, {"x": 0}, full]), features)
    there = {"i": 1, "f": [1.0, 2.0], "b": b"B", "s": "S", "is": [1, 2], "raw": [1, 2], "empty": [4], "bs": [b"x"]}
    missing = {"i": -1, "f": [0.5, 0.5], "b": b"none", "s": "?", "is": [7], "raw": [9, 9], "empty": [], "bs": []}
    assert everything(source) == [there, missing, there]


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"x": int, "gone": int}, "'gone', which no record has"),
        ({"x": dict}, "write int"),
        ({"x": [int, int]}, "write int"),
        ({"x": (int, 0)}, ">= 1"),
        ({"x": (int, -1)}, ">= 1"),
        ({"x": [dict]}, "int, float, bytes or str"),
        ({5: int}, "names are str"),
        ({}, "is a mapping"),
        ([int], "is a mapping"),
        ("bytes", "is a mapping"),
    ],
)
def test_features_that_make_no_sense_are_told_at_once(tmp_path: Path, features: Any, match: str) -> None:
    store(tmp_path, [{"x": 1}])
    with pytest.raises(ConfigError, match=match):
        stoker.tfrecord(tmp_path, features=features)


@pytest.mark.parametrize(
    "arguments",
    [
        (int, (2,), None, "float32"),
        (int, (0,), None, "uint8"),
        (float, (2,), None, "uint8"),
        (bytes, None, None, "uint8"),
        (bytes, (2,), None, "O"),
        (list,),
        (int, (1.5,)),
        (bytes, (2,), None, "no such"),
        (int, "x"),
        (int, 3),
    ],
)
def test_a_feature_that_cannot_be_is_told(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError):
        Feature(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (int, (), "x"), (int, (), 1.5), (int, (2,), [1, 2, 3]), (bytes, (), "x"), (bytes, (), 5), (str, (), b"x"),
        (bytes, None, b"x"), (int, (), [[1]]), (bytes, (2,), "x", "uint8"), (bytes, (2,), 300, "uint8"),
        (int, (), 2**70), (int, None, 5), (int, (2,), 300, "uint8"),
    ],
)  # fmt: skip
def test_a_default_that_the_feature_cannot_hold_is_told(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match="default"):
        Feature(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (int, (), -1), (int, (), np.int32(4)), (float, (), 1), (float, (2,), [1, 2.5]), (float, (2,), 0.5), (float, (), np.nan),
        (bytes, (), b""), (str, (), "?"), (int, None, [7]), (int, None, []), (float, None, []), (bytes, None, [b"x"]),
        (bytes, (2,), 9, "uint8"), (bytes, (2, 3), [1, 2, 3], "float32"),
    ],
)  # fmt: skip
def test_a_default_that_the_feature_can_hold_is_taken(arguments: tuple[Any, ...]) -> None:
    Feature(*arguments)


@pytest.mark.parametrize(
    ("asked", "good", "bad", "match"),
    [
        (float, {"x": 1.5}, {"x": 1}, "another type"),
        ((int, 2), {"x": [1, 2]}, {"x": [1, 2, 3]}, r"another number of values.*\[int\]"),
        (int, {"x": 4}, {"x": []}, "x"),
        (int, {"x": 4}, {"y": 1}, "missing.*default"),
        (str, {"x": b"ok"}, {"x": b"\xff"}, "not UTF-8"),
        ([str], {"x": [b"ok"]}, {"x": [b"a", b"\xff"]}, "not UTF-8"),
        (Feature(bytes, (3,), dtype="uint8"), {"x": b"123"}, {"x": b"12"}, "2 bytes.*3"),
        (Feature(int, (3,), dtype="uint8"), {"x": [0, 9, 255]}, {"x": [0, 256, -1]}, "value 256, and uint8 holds 0 to 255"),
        (Feature(int, (2, 1), dtype="int8"), {"x": [0, -128]}, {"x": [0, -129]}, "value -129, and int8 holds -128 to 127"),
        (Feature(int, dtype="uint64"), {"x": 5}, {"x": -5}, "value -5, and uint64 holds 0 to"),
        (Feature(int, None, dtype="uint8"), {"x": [1, 2]}, {"x": [1, 2, 3, 999]}, "value 999"),
    ],
)
def test_a_record_that_does_not_fit_costs_its_sample_alone(tmp_path: Path, asked: Any, good: Any, bad: Any, match: str) -> None:
    [path] = store(tmp_path, [good, bad, good])
    rows = read(open_source([path], {"x": asked}))
    assert set(rows.errors) == {1}
    with pytest.raises(RecordError, match=match):
        raise rows.errors[1]
    assert str(path) in str(rows.errors[1])
    assert plain(value(rows.columns["x"], 0)) == plain(value(rows.columns["x"], 2))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "int64", "uint64"])
def test_whole_numbers_become_those_asked_for(tmp_path: Path, dtype: str) -> None:
    records = [{"x": [n, 127], "one": n, "many": [n] * n} for n in range(5)] + [{"y": 0}]
    features = {
        "x": Feature(int, (2, 1), default=3, dtype=dtype), "one": Feature(int, default=4, dtype=dtype),
        "many": Feature(int, None, dtype=dtype),
    }  # fmt: skip
    source = open_source(store(tmp_path, records), features)
    assert specs(source) == {"x": f"{dtype}[2, 1]", "one": f"{dtype}[]", "many": f"{dtype}[?]"}
    there = [{"x": [[n], [127]], "one": n, "many": [n] * n} for n in range(5)]
    assert everything(source) == [*there, {"x": [[3], [3]], "one": 4, "many": []}]
    [batch] = stoker.tfrecord(tmp_path, features=features).batch(6)
    assert batch["x"].dtype == batch["one"].dtype == batch["many"][2].dtype == dtype
    assert batch["x"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 3]


def test_a_record_that_is_no_example_costs_its_sample_alone(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, [{"x": 1}, b"\xffjunk", {"x": 3}]), {"x": int})
    rows = read(source)
    assert set(rows.errors) == {1} and "not a tf.train.Example" in str(rows.errors[1])
    assert rows.columns["x"][[0, 2]].tolist() == [1, 3]


# ---- how Examples may be written -------------------------------------------------------------------------------------


def test_the_same_values_may_be_written_in_many_ways(tmp_path: Path) -> None:
    entry = field(1, b"x") + field(2, feature([5, -6]))
    swapped = field(2, feature([5, -6])) + field(1, b"x")
    split = field(1, field(1, b"x") + field(2, field(3, field(1, b"\x05")) + field(3, field(1, b"\xfa" + b"\xff" * 8 + b"\x01"))))
    unknown = b"\x48\x07" + field(11, b"what") + b"\x55abcd" + b"\x51abcdefgh"
    forms = [
        field(1, field(1, entry)),
        example({"x": [5, -6]}, packed=False),
        field(1, field(1, swapped)),
        field(1, split),
        unknown + field(1, unknown + field(1, entry + unknown)) + unknown,
        field(1, b"") + field(1, field(1, entry)),
        field(1, field(1, field(1, b"x") + field(2, feature([9]))) + field(1, entry)),  # of entries of one name the last counts
    ]
    source = open_source(store(tmp_path, forms), {"x": [int]})
    assert [sample["x"] for sample in everything(source)] == [[5, -6]] * len(forms)


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_numbers_of_every_size_come_back(tmp_path: Path, number: int) -> None:
    assert everything(open_source(store(tmp_path, [{"x": number}]))) == [{"x": number}]


def test_floats_come_back_to_the_bit(tmp_path: Path) -> None:
    floats = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 0.1], np.float32)
    column = read(open_source(store(tmp_path, [{"x": floats}]))).columns["x"]
    assert isinstance(column, np.ndarray)
    assert column.view(np.uint32)[0].tolist() == floats.view(np.uint32).tolist()


def test_random_examples_come_back_whatever_they_hold(tmp_path: Path) -> None:
    rng = random.Random(5)
    kinds = {"a": int, "b": float, "c": bytes, "d": int, "e": bytes}
    make: dict[type, Any] = {
        int: lambda: rng.randint(-(2**63), 2**63 - 1),
        float: lambda: rng.randint(-99, 99) / 4,
        bytes: lambda: rng.randbytes(rng.choice([0, 1, 200])),
    }
    records: list[dict[str | bytes, Any]] = []
    for _ in range(60):
        chosen = rng.sample(sorted(kinds), rng.randint(0, 5))
        records.append({name: [make[kinds[name]]() for _ in range(rng.choice([0, 1, 2, 7]))] for name in chosen})
    source = open_source(
        store(tmp_path, records[:20], records[20:23], records[23:]), {name: [kind] for name, kind in kinds.items()}
    )
    assert everything(source) == [{name: record.get(name, []) for name in kinds} for record in records]
    indices = [rng.randrange(60) for _ in range(40)]
    rows = read(source, indices, ("e", "a"))
    assert [plain(value(rows.columns["a"], row)) for row in range(40)] == [records[index].get("a", []) for index in indices]
    assert [value(rows.columns["e"], row) for row in range(40)] == [records[index].get("e", []) for index in indices]


# ---- memory, keys, identity ------------------------------------------------------------------------------------------


def test_fixed_features_are_written_where_they_are_wanted(tmp_path: Path) -> None:
    records = [{"x": n, "m": [float(n)] * 6, "raw": bytes([n] * 4)} for n in range(5)]
    features = {"x": int, "m": (float, (2, 3)), "raw": Feature(bytes, (4,), dtype="uint8")}
    source = open_source(store(tmp_path, records), features)
    out = {"x": np.empty(3, np.int64), "m": np.empty((3, 2, 3), np.float32), "raw": np.empty((3, 4), np.uint8)}
    rows = read(source, [4, 0, 2], None, **out)
    assert all(np.shares_memory(rows.columns[name], out[name]) for name in out)
    assert out["x"].tolist() == [4, 0, 2] and out["raw"][:, 0].tolist() == [4, 0, 2]
    assert out["m"][:, 1, 2].tolist() == [4.0, 0.0, 2.0]


def test_keys_are_the_files_name_and_the_records_number(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, [{"x": 1}, {"x": 2}], [{"x": 3}]))
    assert [source.key(index) for index in range(3)] == ["s-0.tfrecord#0", "s-0.tfrecord#1", "s-1.tfrecord#0"]
    assert "3 samples in 2 shards" in source.describe()


def test_the_fingerprint_changes_with_records_and_with_features(tmp_path: Path) -> None:
    store(tmp_path, [{"x": 1, "y": 2}, {"x": 2, "y": 2}])
    prints = {
        stoker.tfrecord(tmp_path, features=features).fingerprint()
        for features in (None, "raw", {"x": int}, {"x": [int]}, {"x": Feature(int, default=3)})
    }
    assert len(prints) == 5
    store(tmp_path, [{"x": 1, "y": 2}, {"x": 200, "y": 2}])
    assert stoker.tfrecord(tmp_path).fingerprint() not in prints


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_a_record_that_is_damaged_after_indexing_costs_its_sample_alone(tmp_path: Path) -> None:
    [path] = store(tmp_path, [{"x": n, "pad": b"p" * 50} for n in range(6)])
    blob = LocalBlob(os.fsencode(path))
    keep_index(blob, build_index(blob, "tfrecord", sealed=True))
    index = index_of(blob, "tfrecord")
    for at in (
        int(index.start[2, 0]),
        int(index.start[2, 0] + index.length[2, 0] - 1),
        int(index.start[2, 0] + index.length[2, 0] + 3),
    ):
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)
        rows = read(open_source([path], {"x": int}))
        assert set(rows.errors) == {2}
        assert all(word in str(rows.errors[2]) for word in (str(path), "s-0.tfrecord#2", "checksum", "byte"))
        assert rows.columns["x"][[0, 1, 3, 4, 5]].tolist() == [0, 1, 3, 4, 5]
        data[at] ^= 0x10
        path.write_bytes(data)


def test_an_index_of_another_file_of_the_same_size_gives_errors_not_samples(tmp_path: Path) -> None:
    [path] = store(tmp_path, [{"x": b"a" * 10}, {"x": b"b" * 30}, {"x": b"c" * 20}])
    blob = LocalBlob(os.fsencode(path))
    keep_index(blob, build_index(blob, "tfrecord", sealed=True))
    size = path.stat().st_size
    store(tmp_path, [{"x": b"b" * 30}, {"x": b"a" * 20}, {"x": b"c" * 10}])
    assert path.stat().st_size == size
    assert set(read(open_source([path])).errors) == {0, 1, 2}


@pytest.mark.parametrize(
    "about",
    [
        {"examples": True, "features": 5},
        {"examples": True, "features": [5]},
        {"examples": True, "features": [{}]},
        {"examples": True, "features": [{"name": 1, "kind": "int", "least": 1, "most": 1, "present": 1}]},
        {"examples": True, "features": [{"name": "x", "kind": "O", "least": 1, "most": 1, "present": 1}]},
        {"examples": True, "features": [{"name": "x", "kind": "int", "least": "1", "most": 1, "present": 1}]},
        {"examples": True, "features": [{"name": "x", "kind": "int", "least": -1, "most": 1, "present": 1}]},
    ],
)
def test_an_index_that_says_nonsense_of_the_features_is_told(tmp_path: Path, about: dict[str, Any]) -> None:
    [path] = store(tmp_path, [{"x": 1}])
    blob = LocalBlob(os.fsencode(path))
    keep_index(blob, replace(build_index(blob, "tfrecord", sealed=True), about=about))
    for features in (None, {"x": int}):
        with pytest.raises(CorruptIndex, match=r"s-0\.tfrecord"):
            stoker.tfrecord(path, features=features)


def test_an_index_that_lies_about_the_features_gives_errors_not_crashes(tmp_path: Path) -> None:
    [path] = store(tmp_path, [{"x": 1}])
    blob = LocalBlob(os.fsencode(path))
    for kind, most in (("float", 1), ("int", 5), ("int", 10**15), ("bytes", 2)):
        entry = {"name": "x", "kind": kind, "least": most, "most": most, "present": 1}
        index = replace(build_index(blob, "tfrecord", sealed=True), about={"examples": True, "features": [entry]})
        keep_index(blob, index)
        with pytest.raises(stoker.StokerError):
            list(stoker.tfrecord(path))


# ---- stoker.tfrecord -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        ("-", ConfigError, "standard input"),
        ("pipe:x", ConfigError, "pipe"),
        ("page.tfrecord", CorruptShard, "not a TFRecord"),
        ("empty.tfrecord", CorruptShard, "is empty"),
        ("tar.tfrecord", CorruptShard, "checksum"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, error: Any, match: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.tfrecord").write_bytes(b"<html>Not found</html>")
    (tmp_path / "empty.tfrecord").touch()
    (tmp_path / "tar.tfrecord").write_bytes(END)
    with pytest.raises(error, match=match):
        stoker.tfrecord(spec)


def test_files_are_found_in_folders_and_by_globs(tmp_path: Path) -> None:
    store(tmp_path, [{"x": 1}], [{"x": 2}])
    (tmp_path / "other.txt").touch()
    for spec in (tmp_path, str(tmp_path / "*.tfrecord"), str(tmp_path / "s-{0..1}.tfrecord")):
        assert [int(sample["x"]) for sample in stoker.tfrecord(spec)] == [1, 2]
    (tmp_path / "none").mkdir()
    with pytest.raises(SourceEmpty):
        stoker.tfrecord(tmp_path / "none")


def test_batches_stack_fixed_features_and_list_others(tmp_path: Path) -> None:
    store(tmp_path, RECORDS)
    [batch] = stoker.tfrecord(tmp_path).batch(6)
    assert batch["label"].tolist() == [-3, -2, -1, 0, 1, 2] and batch["box"].shape == (6, 4)
    assert [list(map(int, ids)) for ids in batch["ids"]] == [list(range(n)) for n in range(6)]
    assert [bytes(image) for image in batch["image"]] == [bytes([n]) * n for n in range(6)]
    [padded] = stoker.tfrecord(tmp_path).select("ids").batch(6, pad={"ids": -1})
    assert padded["ids"].tolist() == [[*range(n), *[-1] * (5 - n)] for n in range(6)]


PIXELS = np.random.default_rng(0).integers(0, 256, (60, 8, 9, 3), np.uint8)
AUGMENTED = (RandomCrop((8, 9), pad=2), HorizontalFlip(), Cutout(3), Normalize(0.5, 0.25))


def raw_pixels(folder: Path, records: list[Any]) -> stoker.Pipeline:
    folder.mkdir(exist_ok=True)
    store(folder, records)
    features = {"image": Feature(bytes, (8, 9, 3), dtype="uint8"), "n": int}
    return stoker.tfrecord(folder, features=features).shuffle(seed=3).image("image", *AUGMENTED)


def test_numbers_beside_pixels_become_those_asked_for_too(tmp_path: Path) -> None:
    store(tmp_path, [{"image": pixels.tobytes(), "n": n} for n, pixels in enumerate(PIXELS)])
    features = {"image": Feature(bytes, (8, 9, 3), dtype="uint8"), "n": Feature(int, dtype="int16")}
    stored = stoker.tfrecord(tmp_path, features=features).shuffle(seed=3).image("image", *AUGMENTED)
    arrays = stoker.arrays(image=PIXELS, n=np.arange(len(PIXELS))).shuffle(seed=3).image("image", *AUGMENTED)
    for records, memory in zip(stored.batch(16), arrays.batch(16), strict=True):
        np.testing.assert_array_equal(records["image"], memory["image"])
        np.testing.assert_array_equal(records["n"], memory["n"])
        assert records["n"].dtype == np.int16


def test_pixels_written_as_arrays_feed_image(tmp_path: Path) -> None:
    stoker.write_tfrecord(str(tmp_path / "x-{}.tfrecord"), ({"image": pixels} for pixels in PIXELS), max_samples=25)
    with pytest.raises(ConfigError, match=r"int64\[216\].*stoker.Feature\(int, .*dtype='uint8'\)"):
        stoker.tfrecord(tmp_path).image("image", *AUGMENTED).explain()
    stored = stoker.tfrecord(tmp_path, features={"image": Feature(int, (8, 9, 3), dtype="uint8")})
    arrays = stoker.arrays(image=PIXELS)
    both = (each.shuffle(seed=3).image("image", *AUGMENTED).batch(16) for each in (stored, arrays))
    for records, memory in zip(*both, strict=True):
        np.testing.assert_array_equal(records["image"], memory["image"])


def test_pixels_in_records_give_the_images_that_arrays_give(tmp_path: Path) -> None:
    stored = raw_pixels(tmp_path, [{"image": pixels.tobytes(), "n": n} for n, pixels in enumerate(PIXELS)])
    arrays = stoker.arrays(image=PIXELS, n=np.arange(len(PIXELS))).shuffle(seed=3).image("image", *AUGMENTED)
    for records, memory in zip(stored.batch(16), arrays.batch(16), strict=True):
        np.testing.assert_array_equal(records["image"], memory["image"])
        np.testing.assert_array_equal(records["n"], memory["n"])


BESIDE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "numbers": {"n": int, "box": (float, (4,)), "grid": (int, (2, 3))},
    "bytes": {"n": int, "name": bytes},
    "what may be missing": {"n": int, "gone": Feature(int, default=5)},
    "any number": {"n": int, "ids": [int]},
}


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("size", [1, 31, 60])
def test_pixels_with_anything_beside_them_are_rendered_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: dict[str, Any], size: int
) -> None:
    def numbers(n: int) -> dict[str, Any]:
        return {"n": n, "box": [n / 2, 0.0, 1.0, 2.0], "grid": list(range(n, n + 6)), "name": b"%d" % n, "ids": [n] * (n % 3)}

    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: unit_rows)  # so that a call takes more than one block
    monkeypatch.setattr(TfrecordSource, "read", lambda *args: pytest.fail("nothing is wrong here"))
    store(tmp_path, [{"image": pixels.tobytes(), **numbers(n)} for n, pixels in enumerate(PIXELS)])
    features = {"image": Feature(bytes, (8, 9, 3), dtype="uint8"), **beside}
    stored = stoker.tfrecord(tmp_path, features=features).shuffle(seed=3).image("image", *AUGMENTED).batch(size, drop_last=False)
    arrays = stoker.arrays(image=PIXELS, k=np.arange(60)).shuffle(seed=3).image("image", *AUGMENTED).batch(size, drop_last=False)
    for records, memory in zip(stored, arrays, strict=True):
        np.testing.assert_array_equal(records["image"], memory["image"])
        for name in beside:
            expected = [numbers(k).get(name, 5) for k in memory["k"].tolist()]
            assert [np.asarray(value).ravel().tolist() for value in records[name]] == [np.ravel(e).tolist() for e in expected]


def test_large_images_are_rendered_from_records_one_by_one(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 250, 260, 3), np.uint8)
    store(tmp_path, [{"image": each.tobytes()} for each in pixels])
    stored = stoker.tfrecord(tmp_path, features={"image": Feature(bytes, (250, 260, 3), dtype="uint8")})
    [[found], [expected]] = (list(p.image("image", RandomCrop(200)).batch(5)) for p in (stored, stoker.arrays(image=pixels)))
    np.testing.assert_array_equal(found["image"], expected["image"])


def test_damaged_pixels_are_named_wherever_they_stand_in_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: unit_rows)
    pipeline = raw_pixels(tmp_path, [{"image": pixels.tobytes(), "n": n} for n, pixels in enumerate(PIXELS)])
    [path] = tmp_path.glob("*.tfrecord")
    data = bytearray(path.read_bytes())
    data[data.index(PIXELS[55].tobytes()) + 100] ^= 1
    about = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(RecordError, match=r"s-0\.tfrecord: the record at byte .*does not match its checksum"):
        list(pipeline.batch(60))
    batches = list(pipeline.on_error("skip", budget=0.1).batch(60, drop_last=False))
    assert sorted(n for batch in batches for n in batch["n"].tolist()) == [n for n in range(60) if n != 55]


@pytest.mark.parametrize("bad", [{"image": b"short", "n": 7}, {"n": 7}, {"image": PIXELS[7].tobytes()}], ids=["short", "no", "n"])
def test_a_record_without_its_pixels_costs_its_sample_alone(tmp_path: Path, bad: Any) -> None:
    records: list[Any] = [{"image": pixels.tobytes(), "n": n} for n, pixels in enumerate(PIXELS)]
    whole = {batch["n"][0]: batch["image"][0] for batch in raw_pixels(tmp_path / "whole", records).batch(1)}
    records[7] = bad
    damaged = raw_pixels(tmp_path / "damaged", records)
    batches = damaged.on_error("skip", budget=0.1).batch(16, drop_last=False)
    left = {int(n): pixels for batch in batches for n, pixels in zip(batch["n"], batch["image"])}
    assert set(left) == set(range(60)) - {7}
    for n, pixels in left.items():
        np.testing.assert_array_equal(pixels, whole[n])
    with pytest.raises(RecordError, match="feature 'image'" if "n" in bad else "feature 'n'"):
        list(damaged.batch(16))


# ---- compressed files ------------------------------------------------------------------------------------------------

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zlib": zlib.compress}


def packed(folder: Path, packing: str, *shards: list[Any], names: str = "p-{}.tfrecord") -> list[Path]:
    """The same files as `store` makes, compressed."""
    paths = []
    for number, shard in enumerate(shards):
        paths.append(folder / names.format(number))
        whole = tfrecord(record if isinstance(record, bytes) else example(record) for record in shard)
        paths[-1].write_bytes(PACKERS[packing](whole))
    return paths


def rows_of(number: int, first: int = 0) -> list[dict[str | bytes, Any]]:
    """Records of one, several, and any number of values."""
    return [
        {"label": n, "box": [float(n), 0.5], "tokens": list(range(n % 3)), "image": jpeg_bytes(20 + n, 16, seed=n)}
        for n in range(first, first + number)
    ]


def labels(paths: list[Path], **options: Any) -> list[int]:
    return [int(sample["label"]) for sample in stoker.tfrecord(paths, {"label": int}, **options)]


@pytest.mark.parametrize("names", ["p-{}.tfrecord.ENDING", "p-{}.tfrecord", "p-{}-of-00002"])
@pytest.mark.parametrize("packing", PACKERS)
def test_compressed_files_are_read_in_sequence_whatever_their_names(tmp_path: Path, packing: str, names: str) -> None:
    shards = rows_of(5), rows_of(4, 5)
    paths = packed(tmp_path, packing, *shards, names=names.replace("ENDING", "gz" if packing == "gzip" else packing))
    compressed, plain_files = stoker.tfrecord(paths), stoker.tfrecord(store(tmp_path, *shards))
    batches, wanted = (
        list(pipeline.image("image", Resize((8, 8))).batch(3, pad={"tokens": -1})) for pipeline in (compressed, plain_files)
    )
    assert len(batches) == len(wanted) == 3
    for batch, other in zip(batches, wanted):
        assert all(np.array_equal(batch[name], other[name]) for name in ("label", "box", "tokens", "image"))
    assert batches[2].sample_keys == [f"{paths[1].name}#{n}" for n in (1, 2, 3)]
    with pytest.raises(TypeError, match="length is not known"):
        len(compressed)
    assert sorted(next(iter(compressed.select("label").shuffle(seed=1, window=4).batch(9)))["label"].tolist()) == list(range(9))


def test_plain_and_compressed_files_are_read_together_and_may_be_interleaved(tmp_path: Path) -> None:
    together = [
        *store(tmp_path, rows_of(2)),
        *packed(tmp_path, "gzip", rows_of(2, 10), names="gzip.x"),
        *packed(tmp_path, "zlib", rows_of(2, 20), names="zlib.x"),
    ]
    assert labels(together) == [0, 1, 10, 11, 20, 21]
    assert labels(together, interleave=2) == [0, 10, 1, 11, 20, 21]
    assert stoker.tfrecord(together).fingerprint() != stoker.tfrecord(together, interleave=2).fingerprint()


def test_features_are_named_found_or_left_alone_as_in_plain_files(tmp_path: Path) -> None:
    path = packed(tmp_path, "gzip", rows_of(4))[0]
    named = stoker.tfrecord(path, {"label": Feature(int, dtype="uint8"), "name": Feature(str, default="none")}).sample(3)
    assert named == {"label": 3, "name": "none"} and named["label"].dtype == np.uint8
    found = stoker.tfrecord(path).sample(3)
    assert sorted(found) == ["box", "image", "label", "tokens"] and found["box"].tolist() == [3.0, 0.5]
    assert stoker.tfrecord(path, "raw").sample(3) == {"record": example(rows_of(4)[3])}
    assert stoker.tfrecord(packed(tmp_path, "zlib", [b"no", b"Example"], names="n")[0]).sample(1) == {"record": b"Example"}


@pytest.mark.parametrize("features", [None, {"tokens": [int], "label": int, "box": (float, 2)}])
def test_features_of_any_length_are_lists_in_batches_as_in_plain_files(tmp_path: Path, features: Any) -> None:
    rows = [*rows_of(4), *rows_of(2, 4)]
    rows[4]["tokens"] = rows[5]["tokens"] = [7, 8]  # a batch of one length is a list nevertheless
    for path in (*packed(tmp_path, "gzip", rows), *store(tmp_path, rows)):
        renamed = stoker.tfrecord(path, features).rename(ids="tokens").filter(lambda sample: True)
        batches = list(renamed.batch(4, drop_last=False))
        assert [[ids.tolist() for ids in batch["ids"]] for batch in batches] == [[[], [0], [0, 1], []], [[7, 8], [7, 8]]]
        assert all(isinstance(batch["ids"], list) and batch["box"].shape == (len(batch["ids"]), 2) for batch in batches)
        short = stoker.tfrecord(path, features).map(tokens=lambda ids: ids[:0]).select("tokens").batch(4)
        assert next(iter(short))["tokens"].shape == (4, 0)


def test_a_feature_that_is_empty_in_all_records_is_not_missed(tmp_path: Path) -> None:
    path = packed(tmp_path, "gzip", [{"label": n, "none": []} for n in range(3)])[0]
    assert [dict(sample) for sample in stoker.tfrecord(path)] == [{"label": n} for n in range(3)]


def test_a_feature_that_only_later_records_have_is_not_lost_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "PIECE", 64)
    path = packed(tmp_path, "gzip", [*({"label": n} for n in range(30)), {"label": 30, "late": 1}])[0]
    with pytest.raises(RecordError, match=r"a record between \d+ and 30 has the feature 'late'.*features="):
        list(stoker.tfrecord(path))
    assert labels([path]) == list(range(31))


@pytest.mark.parametrize("piece", [61, 1 << 20])
def test_damage_in_a_compressed_file_is_told_with_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(unpack, "PIECE", piece)
    records = [example({"label": n}) for n in range(20)]
    whole, at = tfrecord(records), len(tfrecord(records[:13]))
    path = tmp_path / "a.tfrecord.gz"

    def error_of(data: bytes) -> CorruptShard:
        path.write_bytes(data)
        with pytest.raises(CorruptShard, match=r"a\.tfrecord\.gz") as caught:
            labels([path])
        return caught.value

    wrong = bytearray(whole)
    wrong[at + 14] ^= 1
    error = error_of(gzip.compress(bytes(wrong)))
    assert f"record 13: the checksum of the record at byte {at}" in str(error) and error.offset == at
    assert "record 13: the file ends within the record" in str(error_of(gzip.compress(whole[: at + 20])))
    assert "it ends in the middle" in str(error_of(gzip.compress(whole)[:-12]))
    assert "cannot be unpacked as gzip" in str(error_of(b"\x1f\x8b" + bytes(40)))
    assert "is empty" in str(error_of(b""))


def test_a_record_that_claims_to_be_huge_takes_no_memory(tmp_path: Path) -> None:
    """Its length has the right checksum, so that only what follows can show that it is not there."""
    claim = struct.pack("<Q", 1 << 50)
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(claim + struct.pack("<I", masked(claim)) + bytes(1000)))
    with pytest.raises(CorruptShard, match="record 0: the record at byte 0 says it takes 1,125,899,906,842,640 bytes"):
        list(stoker.tfrecord(path))


def test_a_bad_record_is_named_by_file_and_number(tmp_path: Path) -> None:
    path = packed(tmp_path, "gzip", [{"n": 1}, {"n": [1, 2]}])[0]
    with pytest.raises(RecordError, match=r"record 1: the feature 'n' has another number of values.*\[int\]") as caught:
        list(stoker.tfrecord(path, {"n": int}))
    assert caught.value.origin == f"{path}, record 1"


@pytest.mark.parametrize(("size", "begin"), [(0x8B1F, b"\x1f\x8b"), (0x9C78, b"\x78\x9c")])
def test_the_length_of_a_plain_files_first_record_is_not_taken_for_compression(tmp_path: Path, size: int, begin: bytes) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord([bytes(size)]))
    assert path.read_bytes().startswith(begin) and len(stoker.tfrecord(path, "raw")) == 1


def test_what_files_are_compressed_with_may_be_said(tmp_path: Path) -> None:
    path = packed(tmp_path, "zlib", rows_of(2), names="a.gz")[0]
    assert labels([path], compression="zlib") == [0, 1]
    with pytest.raises(CorruptShard, match=r"this is zlib data, not gzip; name it with \.zlib, or .*compression='zlib'\)"):
        labels([path])
    with pytest.raises(ConfigError, match=r"compression='lzma'\): choose 'gzip' or 'zlib'"):
        stoker.tfrecord(path, compression="lzma")
    with pytest.raises(ConfigError, match=r"interleave=\.\.\.\) is for compressed files"):
        stoker.tfrecord(store(tmp_path, rows_of(2)), interleave=2)
    with pytest.raises(CorruptShard, match=r"is compressed \(zlib\); read it with stoker.tfrecord\(..., compression='zlib'\)"):
        build_index(LocalBlob(os.fsencode(path)), "tfrecord")
