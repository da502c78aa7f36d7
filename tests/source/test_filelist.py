"""`filelist`: files named in a text file."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

import stoker
from stoker.errors import ConfigError, ReadError, SourceEmpty, SourceNotFound
from stoker.source.files.filelist import FilelistSource
from stoker.source.files.lines import Lines
from tests.source.test_files import fill
from tests.support import read


def listing(folder: Path, text: str | bytes) -> Path:
    path = folder / "train.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def labels_of(source: FilelistSource) -> list[int]:
    labels: list[int] = read(source, None, ("label",)).columns["label"].tolist()
    return labels


def test_samples_come_in_the_order_of_the_list(tmp_path: Path) -> None:
    fill(tmp_path, "b/1.jpg", "a/1.jpg", "a/2.jpg")
    source = FilelistSource(listing(tmp_path, "b/1.jpg\na/2.jpg\na/1.jpg\n"))
    assert read(source).columns["image"].own() == [b"b/1.jpg", b"a/2.jpg", b"a/1.jpg"]
    assert [source.key(index) for index in range(3)] == ["b/1.jpg", "a/2.jpg", "a/1.jpg"]
    assert (source.classes, labels_of(source)) == (("a", "b"), [1, 0, 0])
    assert source.origin(0) == str(tmp_path / "b" / "1.jpg")


def test_paths_are_relative_to_the_root_or_absolute(tmp_path: Path) -> None:
    fill(tmp_path, "data/a/1.jpg", "other/b/2.jpg")
    listed = listing(tmp_path, f"a/1.jpg\n{tmp_path}/other/b/2.jpg\n")
    source = FilelistSource(listed, root=tmp_path / "data")
    assert read(source).columns["image"].own() == [b"data/a/1.jpg", b"other/b/2.jpg"]
    assert source.classes == ("a", "b")


def test_the_label_is_of_the_folder_next_to_the_file(tmp_path: Path) -> None:
    source = FilelistSource(listing(tmp_path, "train/x/1.jpg\ntrain/y/1.jpg\ntest/x/1.jpg"))
    assert (source.classes, labels_of(source)) == (("x", "y"), [0, 1, 0])


def test_comments_empty_lines_and_foreign_line_ends_are_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/#2.jpg")
    source = FilelistSource(listing(tmp_path, b"\xef\xbb\xbf# all\r\n\r\na/1.jpg\r\n   \n#x\n\na/#2.jpg"))
    assert [source.key(index) for index in range(len(source))] == ["a/1.jpg", "a/#2.jpg"]
    assert not read(source).errors


def test_an_integer_behind_the_path_is_the_label_only_if_asked(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/2 3.jpg")
    listed = listing(tmp_path, "a/1.jpg 12\nb/2 3.jpg\t-4  \n")
    by_line = FilelistSource(listed, labels="line")
    assert labels_of(by_line) == [12, -4]
    assert read(by_line).columns["image"].own() == [b"a/1.jpg", b"b/2 3.jpg"]
    assert (by_line.key(0), by_line.classes) == ("a/1.jpg 12", ())
    assert labels_of(FilelistSource(listed)) == [0, 1]
    assert not read(FilelistSource(listed, labels=None)).errors


def test_a_name_that_ends_in_an_integer_is_listed_with_one_more(tmp_path: Path) -> None:
    fill(tmp_path, "a/photo 12")
    assert read(FilelistSource(listing(tmp_path, "a/photo 12 0"))).columns["image"].own() == [b"a/photo 12"]


@pytest.mark.parametrize("text", ["a/1.jpg 0\n\na/2.jpg\n", "a/1.jpg 0\n#\na/2.jpg x"])
def test_a_line_without_its_label_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 3 of .*train\.txt ends in no integer: 'a/2\.jpg"):
        FilelistSource(listing(tmp_path, text), labels="line")


def test_a_label_too_large_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 1 of .*train\.txt: got 9{20}; a label must fit"):
        FilelistSource(listing(tmp_path, "a/1.jpg " + "9" * 20), labels="line")


def test_a_dict_a_function_or_nothing_label_too(tmp_path: Path) -> None:
    listed = listing(tmp_path, "a/1.jpg\nb/1.jpg\n")
    assert labels_of(FilelistSource(listed, labels={"a": 5, "b": 6})) == [5, 6]
    assert labels_of(FilelistSource(listed, labels=lambda path: len(Path(path).parts))) == [len(tmp_path.parts) + 2] * 2
    assert list(FilelistSource(listed, labels=None).fields) == ["image"]
    with pytest.raises(ConfigError, match="folder 'b'"):
        FilelistSource(listed, labels={"a": 5})
    with pytest.raises(ConfigError, match=r"filelist\(labels='lines'\): use 'folder', 'line', None"):
        FilelistSource(listed, labels="lines")


def test_a_path_without_a_folder_has_no_label_and_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg")
    listed = listing(tmp_path, "a/1.jpg\n./1.jpg\n")
    with pytest.raises(ConfigError, match=r"line 2 of .*names no folder.*'\./1\.jpg'.*labels='line'"):
        FilelistSource(listed)
    assert read(FilelistSource(listed, labels=None), [1]).columns["image"].own() == [b"1.jpg"]


def test_a_missing_file_is_reported_with_the_list_and_the_line(tmp_path: Path) -> None:
    fill(tmp_path, "a/2.jpg")
    source = FilelistSource(listing(tmp_path, "# gone:\na/1.jpg\na/2.jpg\n"))
    rows = read(source)
    assert list(rows.errors) == [0]
    assert isinstance(rows.errors[0], ReadError)
    told = f"{tmp_path}/a/1.jpg: No such file or directory (line 2 of {tmp_path}/train.txt); put it back"
    assert told in str(rows.errors[0])


def test_a_name_too_long_for_any_disk_is_an_error_of_its_sample(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg")
    rows = read(FilelistSource(listing(tmp_path, f"a/{'x' * 300}.jpg\na/1.jpg\n")))
    assert "File name too long (line 1" in str(rows.errors[0])
    assert rows.columns["image"][1] == b"a/1.jpg"


def test_a_list_that_is_not_there_or_is_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"none\.txt: the list cannot be read: No such file"):
        FilelistSource(tmp_path / "none.txt")
    with pytest.raises(SourceNotFound, match="Is a directory"):
        FilelistSource(tmp_path)
    with pytest.raises(SourceNotFound, match=r"a\\x00b: no file has such a name"):
        FilelistSource("a\0b")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", " \r\n"])
def test_a_list_that_names_nothing_is_empty(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceEmpty, match=r"train\.txt: none of its"):
        FilelistSource(listing(tmp_path, text))


def test_a_list_in_two_byte_characters_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 1 of .* holds a NUL byte; save the list as UTF-8"):
        FilelistSource(listing(tmp_path, "a/1.jpg\n".encode("utf-16")))


def test_names_of_any_bytes_are_read(tmp_path: Path) -> None:
    name = b"a/caf\xe9 \x07.jpg"
    os.mkdir(tmp_path / "a")
    with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
        file.write(b"it")
    source = FilelistSource(listing(tmp_path, name + b"\r\n"))
    assert source.key(0) == r"a/caf\xe9 \x07.jpg"
    assert read(source).columns["image"][0] == b"it"


def test_a_line_that_stands_twice_is_two_samples(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg")
    source = FilelistSource(listing(tmp_path, "a/1.jpg\na/1.jpg\n"))
    assert (len(source), source.key(0), source.key(1)) == (2, "a/1.jpg", "a/1.jpg")


def test_the_fingerprint_knows_order_and_labels_but_not_comments_or_place(tmp_path: Path) -> None:
    def made(name: str, text: str, labels: object = "folder") -> str:
        (tmp_path / name).mkdir()
        return FilelistSource(listing(tmp_path / name, text), labels=labels).fingerprint()  # type: ignore[arg-type]

    assert made("1", "a/1\nb/1\n") == made("2", "# hello\r\na/1\r\n\r\nb/1\r\n")
    assert len({made("3", "a/1\nb/1"), made("4", "b/1\na/1"), made("5", "a/1\nb/1", None)}) == 3


def test_lines_are_the_same_one_by_one_and_all_at_once(tmp_path: Path) -> None:
    lines = Lines(os.fsencode(listing(tmp_path, b"a\r\n\n# x\nb c\n\r\n \t\nd\r\r\n e")))
    assert list(lines) == [lines[index] for index in range(len(lines))] == [b"a", b"b c", b"d\r", b" e"]
    assert [lines.place(index).split()[1] for index in range(len(lines))] == ["1", "4", "7", "8"]


def test_a_long_list_is_read_in_a_time_that_grows_with_its_length(tmp_path: Path) -> None:
    listed = listing(tmp_path, b"".join(b"a/%d.jpg %d\n" % (number, number) for number in range(100_000)))
    for labels in ("line", "folder"):
        begun = time.process_time()
        assert len(FilelistSource(listed, labels=labels)) == 100_000
        assert time.process_time() - begun < 10  # a second, when nothing looks back at all lines before


@pytest.mark.parametrize("kind", ["sparse", "fifo", "device"])
def test_a_list_without_end_is_refused_before_memory_is_taken(tmp_path: Path, kind: str) -> None:
    """And nobody waits for a pipe that no one writes to."""
    path = tmp_path / "list.txt"
    if kind == "sparse":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    tracemalloc.start()
    try:
        for source in (stoker.filelist, stoker.table, stoker.voc):
            with pytest.raises(ConfigError, match=r"list\.txt: (has 1,099,511,627,776 bytes, more than|not a plain file)"):
                source(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
