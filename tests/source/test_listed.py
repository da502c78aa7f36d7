"""`files([...])`: image files a program lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, ReadError, SourceEmpty
from stoker.source.files.listed import ListedFiles, open_listed
from tests.source.test_files import KINDS, fill
from tests.source.test_paths import NAMES
from tests.support import read, value


class Series:
    """A column of a data frame, as NumPy sees it."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def to_numpy(self) -> Any:
        array = np.empty(len(self._values), object)
        for row, given in enumerate(self._values):
            array[row] = given
        return array


def labels_of(source: ListedFiles) -> list[Any]:
    labels = read(source, None, ("label",)).columns["label"]
    return [value(labels, row) for row in range(len(source))]


def test_samples_come_in_the_order_of_the_list_under_the_names_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fill(tmp_path, "b/1.jpg", "a/1.jpg"))
    given = ["b/1.jpg", str(tmp_path / "a/1.jpg"), Path("a/1.jpg"), b"./b/1.jpg"]
    source = open_listed(given)
    monkeypatch.chdir("/")
    assert read(source).columns["image"].own() == [b"b/1.jpg", b"a/1.jpg", b"a/1.jpg", b"b/1.jpg"]
    assert [source.key(row) for row in range(4)] == ["b/1.jpg", f"{tmp_path}/a/1.jpg", "a/1.jpg", "./b/1.jpg"]
    assert source.origin(0) == f"{tmp_path}/b/1.jpg"
    assert (source.classes, labels_of(source)) == (("a", "b"), [1, 0, 0, 1])
    assert source.describe() == "files(a list of 4 paths): 4 files, 2 classes"


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_for_each_path_is_a_column_of_its_kind(kind: str) -> None:
    given, spec, expected = KINDS[kind]
    for labels in (given, tuple(given), Series(given)):
        source = open_listed(["x/1.jpg", "1.jpg"], labels)
        assert (str(source.fields["label"]), labels_of(source)) == (spec, expected)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8", "bool"])
def test_an_array_of_floats_keeps_its_type_and_integers_are_int64(dtype: str) -> None:
    source = open_listed(np.array(["1.jpg", "2.jpg"]), np.array([[0, 1], [1, 0]], dtype))
    assert str(source.fields["label"]) == f"{dtype if dtype.startswith('f') else 'int64'}[2]"
    assert labels_of(source) == [[0, 1], [1, 0]]


def test_a_dict_a_function_class_names_or_nothing_label_too() -> None:
    paths = ["a/1.jpg", "b/1.jpg"]
    assert labels_of(open_listed(paths, {"a": 7, "b": 5})) == [7, 5]
    assert labels_of(open_listed(paths, lambda path: Path(path).parent.name)) == ["a", "b"]
    assert list(open_listed(paths, None).fields) == ["image"]
    with pytest.raises(ConfigError, match=r"1\.jpg names no folder, so it has no label; use labels="):
        open_listed(["a/1.jpg", "1.jpg"])


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([1, 2, 3], "2 paths and 3 labels"),
        (["a"], "2 paths and 1 label;"),
        ([1, None], "label 1, of b/2.jpg: None; a value is a number"),
        ([1, "x"], "label 1, of b/2.jpg: 'x' is a text, where label 0, of a/1.jpg has the integer 1"),
        ([[1], [1, 2]], "label 1, of b/2.jpg: 2 numbers"),
        ([1, 1 << 70], "label 1, of b/2.jpg: 1180591620717411303424 does not fit"),
        (np.array([1, 1 << 63], np.uint64), "label 1, of b/2.jpg: a label must fit a signed 64-bit integer"),
        (np.array(["2020", "2021"], "M8[D]"), r"datetime64\[D\] values"),
        (["x", 1], "1 is an integer, where"),
        ((n for n in range(2)), "a list with a label for each path"),
        ({"a": 0, "b": 1}.values(), "a list with a label for each path"),
        (np.ma.masked_equal([[1, 2], [3, 4]], 4), "label 1, of b/2.jpg: a masked value"),
        ("parent", r"files\(labels='parent'\): use 'folder', None"),
    ],
)
def test_labels_that_do_not_fit_the_paths_are_refused_with_the_place(labels: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_listed(["a/1.jpg", "b/2.jpg"], labels)


def test_tensors_that_numpy_cannot_read_are_refused() -> None:
    import torch

    weight = torch.zeros(2, requires_grad=True)
    for labels in (weight, list(weight), torch.zeros(2, dtype=torch.bfloat16)):
        with pytest.raises(ConfigError, match=r"NumPy cannot read this Tensor: .*; convert it \(PyTorch: tensor\.detach\(\)"):
            open_listed(["a/1.jpg", "b/2.jpg"], labels)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["a/1.jpg", None], "path 1 is None"),
        (["a/1.jpg", float("nan")], "path 1 is nan, a float"),
        (["a/1.jpg", ""], "path 1 is ''"),
        (["a/1\0.jpg"], "path 0 is .*no file has such a name"),
        ({"a/1.jpg"}, "cannot be a set"),
        (7, "cannot be an int"),
    ],
)
def test_what_cannot_be_a_path_is_named(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        stoker.files(given)


def test_an_empty_list_is_empty_and_a_pattern_is_for_folders() -> None:
    with pytest.raises(SourceEmpty, match="empty list of paths"):
        stoker.files([])
    with pytest.raises(ConfigError, match="a pattern chooses files of a folder"):
        stoker.files(["a/1.jpg"], "*.jpg")


def test_a_missing_file_is_an_error_of_its_sample(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg")
    source = open_listed((tmp_path / f"{number}.jpg" for number in range(3)), [5, 6, 7])
    rows = read(source)
    assert list(rows.errors) == [0, 2]
    assert isinstance(rows.errors[2], ReadError)
    assert str(rows.errors[2]).startswith(f"{tmp_path}/2.jpg: No such file or directory; ")
    assert rows.columns["label"].tolist() == [5, 6, 7]


def test_names_of_any_bytes_are_read(tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
            file.write(b"%d" % number)
    source = open_listed([os.fsencode(tmp_path) + b"/" + name for name in NAMES], None)
    assert read(source).columns["image"].own() == [b"%d" % number for number in range(len(NAMES))]


def test_the_fingerprint_knows_paths_order_and_labels() -> None:
    def made(paths: list[str], labels: Any) -> str:
        return open_listed(paths, labels).fingerprint()

    a, b = "a/1.jpg", "b/1.jpg"
    assert made([a, b], [1, 2]) == made([a, b], np.array([1, 2]))
    others = [made([b, a], [1, 2]), made([a, b], [2, 1]), made([a, b], ["1", "2"]), made([a, b], None), made([a, b], "folder")]
    assert len({made([a, b], [1, 2]), *others}) == 6
