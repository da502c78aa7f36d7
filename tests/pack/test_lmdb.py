"""`write_lmdb`: databases that py-lmdb reads and that come back as they went in."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import ConfigError, MissingExtra, SourceEmpty, WriteError
from stoker.pack.writers.lmdb_writer import write_lmdb
from stoker.source.shards.lmdb_source import LmdbSource
from tests.support import read, value

from . import wire

lmdb = pytest.importorskip("lmdb")


def entries(path: Path) -> dict[bytes, bytes]:
    """What py-lmdb finds."""
    environment = lmdb.open(str(path), subdir=False, lock=False, readonly=True)
    try:
        with environment.begin() as transaction:
            return dict(transaction.cursor())
    finally:
        environment.close()


def about(path: Path) -> Any:
    return json.loads(entries(path)[b"__stoker__"][8:])


def rows(path: Path) -> list[dict[str, Any]]:
    """What our reader gives."""
    source = LmdbSource(path)
    got = read(source)
    assert not got.errors
    return [{name: value(column, row) for name, column in got.columns.items()} for row in range(len(source))]


def test_py_lmdb_reads_every_entry_with_its_checksum(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "a.lmdb", [{"image": bytes([n]) * 1000, "label": n} for n in range(200)])
    found = entries(tmp_path / "a.lmdb")
    assert list(found) == [b"%08d" % n for n in range(200)] + [b"__stoker__"]
    for key, stored in found.items():
        assert stored[:4] == b"SKR1"
        assert int.from_bytes(stored[4:8], "little") == wire.crc32c(key + stored[8:])
    assert wire.example(found[b"00000007"][8:]) == {"image": ("bytes", [b"\7" * 1000]), "label": ("int", [7])}
    assert about(tmp_path / "a.lmdb") == {
        "version": 1,
        "records": 200,
        "fields": {"image": {"kind": "bytes"}, "label": {"kind": "int"}},
    }
    assert os.listdir(tmp_path) == ["a.lmdb"], "one file, and no lock beside it"


def test_every_kind_of_value_comes_back_as_it_was(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3) / 7
    samples = [
        {
            "bytes": b"\0\xff" * n,
            "text": "grün" * n,
            "int": -n,
            "float": n / 7,
            "array": array * n,
            "half": np.float16([n, 0.1]),
            "bool": np.array([True, False]),
            "big": np.arange(3, dtype=">i4"),
            "scalar": np.int16(n),
            "ragged": np.arange(n, dtype=np.int32),
            "texts": np.array(["ä", "bc"]),
            "json": {"a": [1, None, {"b": 0.1}], "n": n},
            "mixed": n if n % 2 else f"n{n}",
            "flag": bool(n % 2),
            "maybe": None if n % 2 else 1.5,
            "huge": 2**80 + n,
        }
        for n in range(5)
    ]
    write_lmdb(tmp_path / "a", samples)
    found = rows(tmp_path / "a")
    assert list(found[0]) == list(samples[0])
    for sample, got in zip(samples, found, strict=True):
        for name, one in sample.items():
            if isinstance(one, (np.ndarray, np.generic)):
                other = np.asarray(got[name], one.dtype)
                assert np.array_equal(other, one) and other.shape == one.shape, name
            else:
                assert got[name] == one and type(got[name]) is type(one), name
    kinds = {name: entry["kind"] for name, entry in about(tmp_path / "a")["fields"].items()}
    assert kinds["ragged"] == kinds["texts"] == "npy" and kinds["mixed"] == kinds["maybe"] == kinds["flag"] == "json"
    assert about(tmp_path / "a")["fields"]["array"] == {"kind": "array", "dtype": "<f8", "shape": [2, 3]}
    dtypes = {name: np.dtype(spec.dtype) for name, spec in LmdbSource(tmp_path / "a").fields.items() if spec.kind == "array"}
    assert dtypes["half"] == np.float16 and dtypes["scalar"] == np.int16 and dtypes["bool"] == np.bool_


def test_not_a_number_comes_back(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "a", [{"x": math.nan}, {"x": -math.inf}])
    assert [str(row["x"]) for row in rows(tmp_path / "a")] == ["nan", "-inf"]


@pytest.mark.parametrize("late", [1, 3000])
def test_a_field_that_changes_late_is_stored_anew(tmp_path: Path, late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.pack.writers.lmdb_writer._GATHER", 10_000)
    samples: list[dict[str, Any]] = [{"x": n, "y": np.full(3, n), "z": b"z%d" % n} for n in range(late)]
    samples += [{"x": 0.5, "y": np.zeros((2, 2)), "z": b"end"}, {"x": "text", "y": np.zeros(3), "z": b""}]
    write_lmdb(tmp_path / "a", samples)
    found = rows(tmp_path / "a")
    assert [row["x"] for row in found] == [sample["x"] for sample in samples]
    assert all(np.array_equal(row["y"], sample["y"]) for row, sample in zip(found, samples, strict=True))
    assert [row["z"] for row in found] == [sample["z"] for sample in samples]
    assert os.listdir(tmp_path) == ["a"]


# ---- keys -------------------------------------------------------------------------------------------------------------------


def test_ascending_keys_stay_as_they_are(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "a", [{"__key__": key, "x": 1} for key in ("a", "a/b", "é", b"\xff")])
    assert [key for key in entries(tmp_path / "a") if key != b"__stoker__"] == [b"a", b"a/b", "é".encode(), b"\xff"]


@pytest.mark.parametrize("keys", [["b", "a", "c"], ["a", "a"], ["a", "b", "c", "B"], [f"{n}" for n in range(30)]])
def test_other_keys_get_a_number_so_that_the_order_stays(tmp_path: Path, keys: list[str]) -> None:
    write_lmdb(tmp_path / "a", [{"__key__": key, "x": n} for n, key in enumerate(keys)])
    found = [key for key in entries(tmp_path / "a") if key != b"__stoker__"]
    assert found == [f"{n:08d}-{key}".encode() for n, key in enumerate(keys)]
    assert [row["x"] for row in rows(tmp_path / "a")] == list(range(len(keys)))


def test_order_is_kept_also_when_the_first_unordered_key_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.pack.writers.lmdb_writer._GATHER", 10_000)
    write_lmdb(tmp_path / "a", [{"__key__": f"{n:05d}", "x": n} for n in range(2000)] + [{"__key__": "00000", "x": -1}])
    assert [row["x"] for row in rows(tmp_path / "a")] == [*range(2000), -1]


@pytest.mark.parametrize("key", ["", "__stoker__", "k" * 512])
def test_a_key_that_lmdb_cannot_hold_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="key"):
        write_lmdb(tmp_path / "a", [{"__key__": key, "x": 1}])
    assert os.listdir(tmp_path) == []


# ---- what goes wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([{"x": 1}, {"y": 1}], "sample 1.*has not the field 'x'"),
        ([{"x": 1}, {"x": 1, "y": 1}], "has the field 'y', which those before have not"),
        ([{"x": b"a"}, {"x": "a"}], "'x' is str here and bytes in the samples before"),
        ([{"x": np.zeros(2)}, {"x": 1}], r"'x' is int here and <f8\[2\]"),
        ([{"x": {1: 2}}], "keys in JSON must be str"),
        ([{"x": {"a": b"b"}}], "a bytes cannot be stored"),
        ([{"x": object()}], "an object cannot be stored"),
        ([{"x": np.array([object()])}], "Python objects"),
        ([{"x": "\ud800"}], "UTF-8"),
        ([{}], "no fields"),
        ([3], "cannot be an int"),
    ],
)
def test_what_cannot_be_stored_is_told_and_leaves_nothing(tmp_path: Path, samples: list[Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        write_lmdb(tmp_path / "a", samples)
    assert os.listdir(tmp_path) == []


def test_no_samples_are_told(tmp_path: Path) -> None:
    with pytest.raises(SourceEmpty):
        write_lmdb(tmp_path / "a", [])
    assert os.listdir(tmp_path) == []


def test_an_existing_database_is_refused_or_replaced(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "a", [{"x": 1}])
    with pytest.raises(WriteError, match="already exists"):
        write_lmdb(tmp_path / "a", [{"x": 2}])
    assert rows(tmp_path / "a") == [{"x": 1}]
    write_lmdb(tmp_path / "a", [{"x": 2}], overwrite=True)
    assert rows(tmp_path / "a") == [{"x": 2}]


def test_the_map_grows_as_needed(tmp_path: Path) -> None:
    done = write_lmdb(tmp_path / "a", ({"x": os.urandom(100_000)} for _ in range(300)), map_size="1MB")
    assert done.bytes > 30_000_000 and len(entries(tmp_path / "a")) == 301


def test_two_runs_give_equal_contents(tmp_path: Path) -> None:
    for name in "ab":
        write_lmdb(tmp_path / name, [{"x": n, "y": b"y" * n} for n in range(500)])
    assert entries(tmp_path / "a") == entries(tmp_path / "b")
    assert (tmp_path / "a").stat().st_size == (tmp_path / "b").stat().st_size


def test_an_exception_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    def samples() -> Any:
        yield {"x": b"y" * 30_000_000}
        raise RuntimeError("source")

    with pytest.raises(RuntimeError, match="source"):
        write_lmdb(tmp_path / "a", samples())
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing_and_is_told(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from stoker.errors import WriteError\n"
        "from stoker.pack import write_lmdb\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000_000, 30_000_000))\n"
        "try:\n"
        "    write_lmdb(sys.argv[1], ({'x': bytes(100_000)} for _ in range(1000)))\n"
        "except WriteError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], capture_output=True, text=True, timeout=60)
    assert "cannot be written" in done.stdout and "ulimit" in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'stoker\[lmdb\]'"):
        write_lmdb(tmp_path / "a", [{"x": 1}])
