"""`stoker tar tsv`, and tables as text."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.tar.tables import csv_line, read_csv, read_tsv, tsv_line

from .conftest import make_tar


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "odd.tar"
    make_tar(
        path, [(b"a", {"cls": b" 3\n", "txt": b'say "hi", \\ tab\there\r\n'}), (b"n\xff", {"cls": b"4", "txt": b"\xfe\x00"})]
    )
    return path


def test_a_row_for_each_sample_with_what_would_break_it_escaped(tar: Any, odd: Path) -> None:
    done = tar("tsv", odd, "-f", "key,cls,txt")
    assert done.out == b'key\tcls\ttxt\na\t 3\\n\tsay "hi", \\\\ tab\\there\\r\\n\nn\xff\t4\t\xfe\x00\n'
    assert tar("tsv", odd, "-f", "cls", "--strip", "--no-header").out == b"3\n4\n"
    assert tar("tsv", odd, "-f", "key cls", "-c", 1, "--no-header").out == b"a\t 3\\n\n"


def test_csv_is_read_by_pythons_csv(tar: Any, odd: Path) -> None:
    done = tar("tsv", odd, "-f", "key,txt", "--csv", "-c", 1)
    rows = list(csv.reader(io.StringIO(done.out.decode("utf-8", "surrogateescape"), newline="")))
    assert rows[:2] == [["key", "txt"], ["a", 'say "hi", \\ tab\there\r\n']]


def test_a_missing_field_is_an_error_or_a_text(tar: Any, tmp_path: Path) -> None:
    make_tar(tmp_path / "in.tar", [(b"a", {"cls": b"1"}), (b"b", {"txt": b"2"})])
    done = tar("tsv", tmp_path / "in.tar", "-f", "key,cls")
    assert done.code == 1 and "sample b" in done.err and "--missing" in done.err
    assert tar("tsv", tmp_path / "in.tar", "-f", "key,cls", "--missing", "?").out == b"key\tcls\na\t1\nb\t?\n"


def test_no_columns_are_wrong_usage(tar: Any, odd: Path) -> None:
    assert tar("tsv", odd, "-f", " , ").code == 2


@given(st.lists(st.lists(st.binary(max_size=8), min_size=2, max_size=3), min_size=1, max_size=4))
def test_tables_come_back_as_they_were(rows: list[list[bytes]]) -> None:
    rows = [row for row in rows if any(row)]
    text = io.BytesIO(b"".join(map(tsv_line, rows)))
    assert [row for _, row in read_tsv(text, "t")] == rows


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8), min_size=2, max_size=3),
        max_size=4,
    )
)
def test_csv_comes_back_as_it_was(rows: list[list[str]]) -> None:
    text = io.BytesIO(b"".join(csv_line(cell.encode() for cell in row) for row in rows))
    assert [[cell.decode() for cell in row] for _, row in read_csv(text, "t")] == rows
