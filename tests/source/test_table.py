"""`table`: rows of columns, some of which name files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.errors import ConfigError, ReadError, SourceEmpty, SourceNotFound
from stoker.image import Resize
from stoker.source.files import csv_table
from stoker.source.files.csv_table import CsvTable
from stoker.source.files.table import TableSource
from tests.source.test_files import fill
from tests.source.test_listed import Series
from tests.support import jpeg_bytes, read, value


class Lazy:
    """A frame that is not computed yet, as Polars has them."""

    columns = ("a",)

    def __getitem__(self, name: Any) -> Any:
        raise TypeError("only slices")


def table(folder: Path, text: str | bytes) -> Path:
    path = folder / "train.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns_of(source: TableSource) -> dict[str, list[Any]]:
    columns = read(source).columns
    return {name: [value(column, row) for row in range(len(source))] for name, column in columns.items()}


def kinds_of(source: TableSource) -> dict[str, str]:
    return {name: str(spec) for name, spec in source.fields.items()}


def test_a_column_of_paths_becomes_a_field_of_files_and_the_others_follow(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "2.jpg")
    listed = table(tmp_path, f"age,path,name\n31,a/1.jpg,ann\n40,{tmp_path}/2.jpg,bob\n")
    source = TableSource(listed, {"image": "path"})
    assert kinds_of(source) == {"image": "bytes", "age": "int64[]", "name": "object"}
    assert columns_of(source) == {"image": [b"a/1.jpg", b"2.jpg"], "age": [31, 40], "name": ["ann", "bob"]}
    assert [source.key(row) for row in range(2)] == ["a/1.jpg", f"{tmp_path}/2.jpg"]
    assert source.origin(0) == f"{tmp_path}/a/1.jpg"
    assert source.describe() == f"table({listed}): 2 files"


def test_several_columns_may_name_files(tmp_path: Path) -> None:
    fill(tmp_path, "l1", "l2", "r1", "r2", "r3", "l3")
    columns = {"left": ["l1", "l2", "l3"], "right": ["r1", "r2", "r3"], "d": np.arange(3, dtype=np.int16)}
    source = TableSource(columns, {"image": "left", "other": "right"}, root=tmp_path)
    assert kinds_of(source) == {"image": "bytes", "other": "bytes", "d": "int16[]"}
    rows = read(source, [2, 0, 2])
    assert [rows.columns[name].own() for name in ("image", "other")] == [[b"l3", b"l1", b"l3"], [b"r3", b"r1", b"r3"]]
    assert read(source, [1], ("other",)).columns["other"].own() == [b"r2"]
    (tmp_path / "r1").unlink()
    rows = read(source, [2, 0])
    assert (list(rows.errors), rows.errors[1].key) == ([1], "l1")
    assert f"{tmp_path}/r1: No such file or directory (row 0)" in str(rows.errors[1])


def test_pictures_are_rendered_as_their_files_are_read_and_the_other_files_are_whole(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.jpg").write_bytes(b"broken" if number == 7 else jpeg_bytes(40, 30, seed=number))
        (tmp_path / f"{number}.bin").write_bytes(b"%d" % number * 1000)
    columns = {"p": [f"{n}.jpg" for n in range(20)], "q": [f"{n}.bin" for n in range(20)], "n": list(range(20))}
    pipeline = stoker.table(columns, root=tmp_path, image="p", raw="q").image("image", Resize((8, 8)))
    pipeline = pipeline.on_error("skip", budget=1).batch(10)
    assert pipeline.plan.source.why_not_located("image") is None  # type: ignore[union-attr]
    rows = [(n, raw) for batch in pipeline for n, raw in zip(batch["n"].tolist(), batch["raw"])]
    assert rows == [(n, b"%d" % n * 1000) for n in range(20) if n != 7]


def test_without_files_rows_are_numbered(tmp_path: Path) -> None:
    pipeline = stoker.table({"x": np.ones((3, 2), np.float32), "name": ["a", "b", "c"]}).batch(2, drop_last=False)
    assert [(batch.sample_keys, batch["x"].shape, batch["name"]) for batch in pipeline] == [
        (["0", "1"], (2, 2), ["a", "b"]),
        (["2"], (1, 2), ["c"]),
    ]
    assert pipeline.explain().startswith("source   table(x, name): 3 rows")


class Frame:
    """A data frame, as far as it is looked at."""

    def __init__(self, columns: dict[Any, Any]) -> None:
        self._columns, self.columns = columns, list(columns)

    def __getitem__(self, name: Any) -> Any:
        return self._columns[name]


def test_lists_arrays_and_frames_hold_any_kind_of_value() -> None:
    columns = {
        "whole": [1, 2], "real": [0.5, 2], "text": Series(["a", "b"]), "rows": [[1, 2], [3, 4]], "yes": [True, False],
        "small": np.array([1, 2], np.uint8), "single": np.array([1, 2], np.float32),
    }  # fmt: skip
    for source in (TableSource(columns, {}), TableSource(Frame(columns), {})):
        assert kinds_of(source) == {
            "whole": "int64[]", "real": "float64[]", "text": "object", "rows": "int64[2]", "yes": "bool[]", "small": "uint8[]",
            "single": "float32[]",
        }  # fmt: skip
        assert columns_of(source)["text"] == ["a", "b"]


@pytest.mark.parametrize(
    ("columns", "files", "told"),
    [
        ({}, {}, "at least one column"),
        ({"a": [1, 2], "b": [1]}, {}, "must have the same length, not 'a' has 2 rows, 'b' has 1 row"),
        ({"p": ["x"], "b": [1, 2]}, {"image": "p"}, "'p' has 1 row, 'b' has 2 rows"),
        ({"a": [1, None]}, {}, r"row 1, column 'a': None; a value is a number"),
        ({"a": ["x", 2.0]}, {}, r"row 1, column 'a': 2.0 is a float, where .*row 0, column 'a' has the text 'x'"),
        ({"a": "text"}, {}, "column 'a' cannot be a str"),
        ({3: [1]}, {}, "the name of the column 3 is not text"),
        ({"a": [1]}, {"image": "path"}, r"table\(image='path'\): there is no column 'path'; the columns are 'a'"),
        ({"p": ["x"], "image": [1]}, {"image": "p"}, r"there is a column 'image' too"),
        ({"p": ["x", ""]}, {"image": "p"}, "row 1, column 'p' is ''"),
        ({"p": ["x", None]}, {"image": "p"}, "row 1, column 'p' is None"),
        ({"p": ["x"]}, {"image": ["x"]}, r"table\(image=...\) must be the name of a column of paths, not a list"),
        (Lazy(), {}, r"table\(Lazy\): its columns cannot be read: only slices; .*LazyFrame: collect\(\)"),
        ({"a": np.ma.masked_equal([1, 2], 2)}, {}, "row 1, column 'a': a masked value; remove the row"),
        (5, {}, r"table\(int\): use a dict of columns, a data frame, or the path of a CSV file"),
    ],
)
def test_columns_that_make_no_table_are_refused_with_the_place(columns: Any, files: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TableSource(columns, files)


def test_the_fingerprint_knows_names_paths_and_values() -> None:
    def made(**columns: Any) -> str:
        return TableSource({"p": ["a", "b"], **columns}, {"image": "p"}).fingerprint()

    assert made(x=[1, 2]) == made(x=np.array([1, 2]))
    assert len({made(x=[1, 2]), made(y=[1, 2]), made(x=[2, 1]), made(x=["1", "2"]), made(x=[1.0, 2.0]), made()}) == 6


# ---- CSV ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_quotes_blanks_empty_lines_and_foreign_line_ends_are_read(tmp_path: Path, mark: bytes, end: bytes) -> None:
    lines = [b"path, text", b"", b'a.jpg,"one, ""two"""', b'b.jpg, "caf\xc3\xa9"']
    source = TableSource(table(tmp_path, mark + end.join(lines)), {})
    assert columns_of(source) == {"path": ["a.jpg", "b.jpg"], "text": ['one, "two"', "café"]}


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        (["1", "-2", "+3"], "int64[]", [1, -2, 3]),
        (["1", "2.5", "1e3"], "float64[]", [1.0, 2.5, 1000.0]),
        (["1", "", "3"], "float64[]", [1.0, None, 3.0]),
        (["", "", ""], "object", ["", "", ""]),
        (["1", "x", "2"], "object", ["1", "x", "2"]),
        (["1_0", "2_0", "3_0"], "object", ["1_0", "2_0", "3_0"]),
        (["9" * 20, "1", "2"], "object", ["9" * 20, "1", "2"]),
        (["true", "false", "true"], "object", ["true", "false", "true"]),
    ],
)
def test_a_columns_type_is_found_from_all_its_cells(tmp_path: Path, cells: list[str], kind: str, expected: list[Any]) -> None:
    source = TableSource(table(tmp_path, "n,x\n" + "".join(f"0,{cell}\n" for cell in cells)), {})
    assert kinds_of(source)["x"] == kind
    found = columns_of(source)["x"]
    assert [None if isinstance(cell, float) and np.isnan(cell) else cell for cell in found] == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "is empty; its first line must hold the names"),
        (b"a,b\n1,2\n\n1,2,3\n", "line 4 of .*train.csv: 3 values, where the header names 2 columns"),
        (b"a,b\n1\n", "line 2 of .*: 1 value, where"),
        (b"a,a\n1,2\n", "line 1 of .*: two columns are called 'a'"),
        (b",a\n1,2\n", r"line 1 of .*: column 1 has no name; name it \(pandas"),
        (b'a\n"x\n', "of .*train.csv: unexpected end of data"),
        (b'a\n1\n"x"y\n', "line 3 of .*train.csv: .*expected after"),
        (b"a\n1\nb\xe9\n", "line 3 of .*: not UTF-8"),
        ("a\n1\n".encode("utf-16"), "line 1 of .*: a NUL byte; save the table as UTF-8"),
        (b"a\n" + b"x" * 140_000, "line 2 of .*: field larger than field limit"),
    ],
)
def test_a_broken_table_is_named_with_the_line(tmp_path: Path, text: bytes, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TableSource(table(tmp_path, text), {})


def test_a_table_that_is_not_there_holds_no_row_or_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing, told in (
        (tmp_path / "none.csv", "No such file"),
        (tmp_path, "Is a directory"),
        ("a\0b", "no file has such a name"),
    ):
        with pytest.raises(SourceNotFound, match=told):
            TableSource(missing, {})
    with pytest.raises(SourceEmpty, match=r"table\(a, b\) has no rows"):
        TableSource(table(tmp_path, "a,b\n"), {"image": "a"})
    monkeypatch.setattr(csv_table, "MAX_BYTES", 10)
    with pytest.raises(
        ConfigError, match=r"has 12 bytes, more than the 10 B allowed.*read the table yourself and pass its columns"
    ):
        TableSource(table(tmp_path, "a,b\n1,2\n3,4\n"), {})


def test_a_missing_file_is_reported_with_the_table_and_the_line(tmp_path: Path) -> None:
    listed = table(tmp_path, 'text,path\n"two\nlines",1.jpg\nx,2.jpg\n')
    rows = read(TableSource(listed, {"image": "path"}))
    assert all(isinstance(error, ReadError) for error in rows.errors.values())
    assert f"{tmp_path}/2.jpg: No such file or directory (line 4 of {listed}); put it back" in str(rows.errors[1])


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6).filter(
    lambda text: text == text.strip()
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5))
def test_what_csv_writes_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["a", "b"], *rows, ["x", "y"]])  # a text in each column
    path = tmp_path_factory.getbasetemp() / "again.csv"
    path.write_bytes(out.getvalue().encode())
    columns = CsvTable(str(path).encode()).columns
    assert [list(row) for row in zip(columns["a"], columns["b"])] == [*rows, ["x", "y"]]


def test_cells_that_a_number_would_change_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("zip,big,gap,half,whole\n007,9007199254740993,9007199254740993,0.5,0\n012,1,,-0.25,-3\n")
    fields = [stoker.table(path).sample(row) for row in range(2)]
    assert dict(fields[0]) == {
        "zip": "007", "big": 9007199254740993, "gap": "9007199254740993", "half": 0.5, "whole": 0,
    }  # fmt: skip
    assert fields[1]["gap"] == "" and fields[1]["whole"] == -3


def test_paths_that_look_like_numbers_are_paths(tmp_path: Path) -> None:
    fill(tmp_path, "1", "2.50")
    assert columns_of(TableSource(table(tmp_path, "id,n\n1,1\n2.50,2\n"), {"image": "id"})) == {
        "image": [b"1", b"2.50"],
        "n": [1, 2],
    }
