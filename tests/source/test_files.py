"""`files`: a folder of image files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, FunctionError, ReadError, SourceEmpty, SourceNotFound
from stoker.source.files.filelist import FilelistSource
from stoker.source.files.labelled_files import FilesSource
from tests.conftest import CLASSES, PER_CLASS
from tests.source.test_paths import NAMES
from tests.support import read, value


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def labels_of(source: FilesSource) -> dict[str, int]:
    labels = read(source, None, ("label",)).columns["label"]
    return {source.key(index): int(labels[index]) for index in range(len(source))}


def test_a_folder_is_a_class(image_folder: Path) -> None:
    source = FilesSource(image_folder)
    rows = read(source)
    assert source.classes == CLASSES
    assert rows.columns["label"].tolist() == [label for label in range(3) for _ in range(PER_CLASS)]
    assert source.key(0) == "cat/cat_00.jpg"
    assert source.origin(0) == str(image_folder / "cat" / "cat_00.jpg")
    assert rows.columns["image"][0] == (image_folder / "cat" / "cat_00.jpg").read_bytes()


def test_the_class_is_the_first_folder_however_deep_the_file_lies(tmp_path: Path) -> None:
    source = FilesSource(fill(tmp_path, "b/x/y/1.jpg", "b/2.jpg", "a/x/3.jpg"))
    assert source.classes == ("a", "b")
    assert labels_of(source) == {"a/x/3.jpg": 0, "b/2.jpg": 1, "b/x/y/1.jpg": 1}


def test_classes_are_sorted_by_name_and_not_by_path(tmp_path: Path) -> None:
    source = FilesSource(fill(tmp_path, "a-b/1.jpg", "a/1.jpg"))
    assert source.classes == ("a", "a-b")
    assert labels_of(source) == {"a-b/1.jpg": 1, "a/1.jpg": 0}


def test_a_folder_without_images_is_no_class(tmp_path: Path) -> None:
    source = FilesSource(fill(tmp_path, "a/1.jpg", "b/readme.txt", "c/1.jpg"))
    assert source.classes == ("a", "c")


def test_a_file_outside_any_folder_has_no_label_and_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "stray.jpg")
    with pytest.raises(ConfigError, match=r"stray\.jpg is not in a class folder.*labels=None.*dict.*function"):
        FilesSource(tmp_path)
    assert FilesSource(tmp_path, labels=None).key(1) == "stray.jpg"
    assert labels_of(FilesSource(tmp_path, labels={"a": 4, ".": 5})) == {"a/1.jpg": 4, "stray.jpg": 5}
    with pytest.raises(ConfigError, match="stray"):
        FilesSource(tmp_path, labels={"a": 4})


def test_without_labels_there_is_no_label_field(image_folder: Path) -> None:
    source = FilesSource(image_folder, labels=None)
    assert list(source.fields) == ["image"]
    assert source.classes == ()


def test_a_dict_gives_labels_and_names_the_classes_when_it_numbers_them_all(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/1.jpg")
    full = FilesSource(tmp_path, labels={"b": 0, "a": 1, "unused": 2})
    assert (labels_of(full), full.classes) == ({"a/1.jpg": 1, "b/1.jpg": 0}, ("b", "a", "unused"))
    assert FilesSource(tmp_path, labels={"a": 7, "b": 7}).classes == ()


def test_a_folder_the_dict_does_not_know_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/1.jpg")
    with pytest.raises(ConfigError, match=r"the folder 'b' has no label in files\(labels=\.\.\.\), which has 'a'; add it"):
        FilesSource(tmp_path, labels={"a": 0})


@pytest.mark.parametrize("label", [None, b"x", {1}, ["x"], 1 << 63])
def test_a_dict_with_a_label_of_no_kind_is_refused(tmp_path: Path, label: object) -> None:
    with pytest.raises(ConfigError, match=r"labels=\{'a'"):
        FilesSource(fill(tmp_path, "a/1.jpg"), labels={"a": label})


def test_a_function_is_asked_once_for_each_full_path(tmp_path: Path) -> None:
    fill(tmp_path, "a/12.jpg", "7.jpg")
    asked: list[str] = []

    def label(path: str) -> int:
        asked.append(path)
        return int(Path(path).stem)

    source = FilesSource(tmp_path, labels=label)
    assert asked == [str(tmp_path / "7.jpg"), str(tmp_path / "a" / "12.jpg")]
    assert labels_of(source) == {"7.jpg": 7, "a/12.jpg": 12}
    assert len(asked) == 2


def test_numpy_integers_and_truth_values_are_labels(tmp_path: Path) -> None:
    fill(tmp_path, "a.jpg", "b.jpg")
    assert labels_of(FilesSource(tmp_path, labels=lambda path: np.int32(3))) == {"a.jpg": 3, "b.jpg": 3}
    assert labels_of(FilesSource(tmp_path, labels=lambda path: "b." in path)) == {"a.jpg": 0, "b.jpg": 1}


def test_a_function_that_gives_no_label_is_named_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"called with .*a/1\.jpg: None; a value is a number, a text, or a list of numbers"):
        FilesSource(fill(tmp_path, "a/1.jpg"), labels=lambda path: None)


#: what a rule gives for two folders, and the column that becomes of it
KINDS: dict[str, tuple[list[Any], str, list[Any]]] = {
    "integers": ([3, np.int8(5)], "int64[]", [3, 5]),
    "truth values": ([True, np.bool_(False)], "int64[]", [1, 0]),
    "floats": ([0.5, 2], "float32[]", [0.5, 2.0]),
    "NumPy's floats": ([np.float64(0.5), np.float64(2)], "float64[]", [0.5, 2.0]),
    "texts": (["one", "two"], "object", ["one", "two"]),
    "lists": ([[1, 0.5], (2, 3)], "float32[2]", [[1.0, 0.5], [2.0, 3.0]]),
    "arrays": ([np.eye(2), np.ones((2, 2))], "float64[2, 2]", [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]] * 2]),
    "single numbers in arrays": ([np.array(1), np.array(2)], "int64[]", [1, 2]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_dict_and_a_function_give_labels_of_any_kind(tmp_path: Path, kind: str) -> None:
    given, spec, expected = KINDS[kind]
    fill(tmp_path, "a/1.jpg", "b/1.jpg")
    (tmp_path / "list.txt").write_text("a/1.jpg\nb/1.jpg\n")
    by_dict = dict(zip("ab", given))
    for labels in (by_dict, lambda path: by_dict[Path(path).parent.name]):
        for source in (FilesSource(tmp_path, labels=labels), FilelistSource(tmp_path / "list.txt", labels=labels)):
            rows = read(source, [1, 0], ("label",))
            assert str(source.fields["label"]) == spec
            assert [value(rows.columns["label"], row) for row in (1, 0)] == expected


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([1, "x"], "b/1.jpg: 'x' is a text, where .*a/1.jpg has the integer 1"),
        ([[1, 2], [1]], "b/1.jpg: 1 numbers, where .*a/1.jpg has 2"),
        ([0.5, 1e300], "b/1.jpg: too large for float32"),
        ([[1, 2], [[1], [2, 3]]], r"b/1.jpg: \[\[1\], \[2, 3\]\] is not a list of numbers"),
    ],
)
def test_labels_that_do_not_make_a_column_are_named_with_the_path(tmp_path: Path, labels: list[Any], told: str) -> None:
    fill(tmp_path, "a/1.jpg", "b/1.jpg")
    answers = iter(labels)
    with pytest.raises(ConfigError, match=told):
        FilesSource(tmp_path, labels=lambda path: next(answers))


def test_the_fingerprint_of_integer_labels_is_what_it_always_was_and_others_tell_values_and_types(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/3.jpg", "b/2.jpg")
    assert FilesSource(tmp_path).fingerprint() == "files:24e292535ab1a4cb"
    assert FilesSource(tmp_path, labels=None).fingerprint() == "files:1534543c4345f1e1"
    assert FilesSource(tmp_path, labels={"a": 3, "b": 4}).fingerprint() == "files:f24fd862998cc43f"
    pairs: list[tuple[Any, Any]] = [
        (0.0, 1.0),
        (0.0, 2.0),
        (0, 1),
        ("0", "1"),
        ("01", ""),
        ([0, 1], [1, 0]),
        (np.float64(0), np.float64(1)),
    ]
    assert len({FilesSource(tmp_path, labels=dict(zip("ab", pair))).fingerprint() for pair in pairs}) == len(pairs)


def test_class_names_of_one_folder_number_another(tmp_path: Path) -> None:
    fill(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/c/1.jpg", "val/a/1.jpg")
    (tmp_path / "val.txt").write_text("val/c/1.jpg\nval/a/1.jpg\n")
    train = stoker.files(tmp_path / "train").shuffle(seed=1).batch(2)
    val = stoker.files(tmp_path / "val", labels=train.classes)
    assert val.classes == train.classes == ("a", "b", "c")
    assert [(sample.key, int(sample["label"])) for sample in val] == [("a/1.jpg", 0), ("c/1.jpg", 2)]
    listed = FilelistSource(tmp_path / "val.txt", labels=list(train.classes))
    assert (listed.classes, read(listed, None, ("label",)).columns["label"].tolist()) == (train.classes, [2, 0])
    fill(tmp_path, "val/d/1.jpg")
    with pytest.raises(
        ConfigError, match=r"the folder 'd' is not one of the classes in files\(labels=\.\.\.\), which has 'a', 'b', 'c'"
    ):
        stoker.files(tmp_path / "val", labels=train.classes)
    with pytest.raises(ConfigError, match="names the class 'a' twice"):
        stoker.files(tmp_path / "val", labels=["a", "c", "a", "d"])
    with pytest.raises(ConfigError, match=r"0 \(int\) is not the name of a class.*files\(\[paths\]"):
        stoker.files(tmp_path / "val", labels=[0, 1, 2])


def test_a_function_that_raises_keeps_its_cause_and_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(FunctionError, match=r"raised on .*a/1\.jpg: KeyError\('why'\)") as caught:
        FilesSource(fill(tmp_path, "a/1.jpg"), labels=lambda path: {}["why"])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("labels", ["folders", "line", 3, ["a"]])
def test_labels_of_any_other_kind_are_refused(image_folder: Path, labels: object) -> None:
    with pytest.raises(ConfigError, match=r"files\(labels="):
        FilesSource(image_folder, labels=labels)  # type: ignore[arg-type]


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="missing: there is no such folder"):
        FilesSource(tmp_path / "missing")


def test_a_root_that_is_a_file_is_pointed_to_filelist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"1\.jpg: .*this is a file.*stoker\.filelist"):
        FilesSource(fill(tmp_path, "1.jpg") / "1.jpg")


def test_a_root_that_no_path_can_be_is_not_found() -> None:
    with pytest.raises(SourceNotFound):
        FilesSource("a\0b")


def test_nothing_found_says_how_many_were_looked_at_and_for_what(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.txt", "a/2.txt", "b/3.JPG")
    with pytest.raises(SourceEmpty, match=r"3 files looked at, none .*'\*\*/\*\.jpg'"):
        FilesSource(tmp_path, "**/*.jpg")
    with pytest.raises(SourceEmpty, match=r"2 files looked at, none has an image's extension"):
        FilesSource(tmp_path / "a")


def test_an_empty_folder_and_a_glob_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SourceEmpty, match="there are no files in this folder; check the path"):
        FilesSource(tmp_path)
    with pytest.raises(SourceNotFound, match=r"use files\(FOLDER, pattern="):
        FilesSource(tmp_path / "*.jpg")
    with pytest.raises(ConfigError, match=r"files\(None\): the first argument must be a folder or a list"):
        stoker.files(None)  # type: ignore[arg-type]


def test_an_explicit_pattern_takes_what_it_says(tmp_path: Path) -> None:
    source = FilesSource(fill(tmp_path, "a/1.xyz", "a/2.jpg"), "**/*.xyz")
    assert [source.key(index) for index in range(len(source))] == ["a/1.xyz"]


def test_a_root_may_be_text_bytes_or_a_path_and_end_in_a_slash(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg")
    for root in (tmp_path, str(tmp_path), os.fsencode(tmp_path), f"{tmp_path}/"):
        source = FilesSource(root)
        assert (source.key(0), source.origin(0)) == ("a/1.jpg", f"{tmp_path}/a/1.jpg")


def test_changing_the_working_directory_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "set/a/1.jpg")
    monkeypatch.chdir(tmp_path)
    source = FilesSource("set")
    monkeypatch.chdir("/")
    assert read(source).columns["image"][0] == b"set/a/1.jpg"


def test_an_empty_file_is_a_sample_of_no_bytes(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/2.jpg")
    (tmp_path / "a" / "1.jpg").write_bytes(b"")
    rows = read(FilesSource(tmp_path))
    assert not rows.errors
    assert rows.columns["image"].own() == [b"", b"a/2.jpg"]


def test_a_file_that_is_gone_is_an_error_with_reason_and_remedy(tmp_path: Path) -> None:
    source = FilesSource(fill(tmp_path, "a/1.jpg", "a/2.jpg"))
    (tmp_path / "a" / "1.jpg").unlink()
    rows = read(source, [1, 0])
    error = rows.errors[1]
    assert isinstance(error, ReadError)
    assert error.errno == errno.ENOENT
    assert f"{tmp_path}/a/1.jpg: No such file or directory; put it back" in str(error)
    assert rows.columns["image"][0] == b"a/2.jpg"


def test_a_link_to_nowhere_says_where_it_points(tmp_path: Path) -> None:
    fill(tmp_path, "a/2.jpg")
    (tmp_path / "a" / "1.jpg").symlink_to("/pool/n\n1.jpg")
    rows = read(FilesSource(tmp_path))
    assert r"it is a link to /pool/n\x0a1.jpg, which does not exist" in str(rows.errors[0])


def test_names_of_any_bytes_are_read_and_have_keys_of_their_own(tmp_path: Path) -> None:
    for name in NAMES:
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
            file.write(name)
    source = FilesSource(tmp_path, labels=None)
    assert read(source).columns["image"].own() == sorted(NAMES)
    keys = [source.key(index) for index in range(len(source))]
    assert len(set(keys)) == len(NAMES)
    assert all(key.isprintable() for key in keys)
    assert r"new\x0aline.jpg" in keys
    assert FilesSource(tmp_path, labels=lambda path: len(path)).fingerprint()


def test_class_folders_of_any_bytes_have_names(tmp_path: Path) -> None:
    for name in (b"caf\xe9", b"ok", b"two\nlines"):
        os.mkdir(os.fsencode(tmp_path) + b"/" + name)
        with open(os.fsencode(tmp_path) + b"/" + name + b"/1.jpg", "wb"):
            pass
    source = FilesSource(tmp_path)
    assert source.classes == (r"caf\xe9", "ok", r"two\x0alines")
    as_shown = {name: label for label, name in enumerate(source.classes)}
    as_python = {name: label for label, name in enumerate(sorted(os.listdir(tmp_path), key=os.fsencode))}
    for mapping in (as_shown, as_python):
        mapped = FilesSource(tmp_path, labels=mapping)
        assert labels_of(mapped) == labels_of(source)
        assert mapped.fingerprint()
        assert all(name.isprintable() for name in mapped.classes)


def test_the_longest_names_are_read(tmp_path: Path) -> None:
    name = "/".join(["d" * 250, "e" * 250, "f" * 250 + ".jpg"])
    source = FilesSource(fill(tmp_path, name))
    assert source.key(0) == name
    assert read(source).columns["image"][0] == name.encode()


def test_the_fingerprint_knows_names_and_labels_but_not_the_place(tmp_path: Path) -> None:
    one, two = fill(tmp_path / "1", "a/1.jpg", "b/1.jpg"), fill(tmp_path / "2", "a/1.jpg", "b/1.jpg")
    renamed = fill(tmp_path / "3", "a/1.jpg", "b/2.jpg")
    assert FilesSource(one).fingerprint() == FilesSource(two).fingerprint()
    others = [FilesSource(renamed), FilesSource(one, labels=None), FilesSource(one, labels={"a": 1, "b": 0})]
    assert len({source.fingerprint() for source in [FilesSource(one), *others]}) == 4
