"""`stoker tar sort`: samples in order, whatever their size and number."""

from __future__ import annotations

import gzip
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.tar.shelf import SampleSorter, TarExtent

from .conftest import keys_of, make_tar, read_tar, some_samples


@pytest.fixture
def mixed(tmp_path: Path) -> list[Path]:
    samples = some_samples(30)
    random.Random(5).shuffle(samples)
    paths = [tmp_path / "a.tar", tmp_path / "b.tar"]
    for path, part in zip(paths, (samples[:17], samples[17:])):
        make_tar(path, part)
    return paths


def test_by_key(tar: Any, mixed: list[Path]) -> None:
    assert read_tar(tar("sort", *mixed).out) == some_samples(30)
    assert read_tar(tar("sort", *mixed, "--reverse").out) == some_samples(30)[::-1]


def test_by_a_field_equal_ones_keep_their_order(tar: Any, mixed: list[Path]) -> None:
    lying = [sample for path in mixed for sample in read_tar(path)]
    for words, reverse in (((), False), (("--reverse",), True)):
        done = tar("sort", *mixed, "--by", "cls", "--numeric", *words)
        assert read_tar(done.out) == sorted(lying, key=lambda sample: int(sample[1]["cls"]), reverse=reverse)


def test_numbers_are_compared_as_numbers(tar: Any, tmp_path: Path) -> None:
    values = [b"10", b"9", b"-1.5", b" 3\n", b"1e3", b"18446744073709551617", b"18446744073709551616"]
    make_tar(tmp_path / "in.tar", [(b"%d" % n, {"txt": value}) for n, value in enumerate(values)])
    done = tar("sort", tmp_path / "in.tar", "--by", "txt", "--numeric")
    assert [fields["txt"] for _, fields in read_tar(done.out)] == [values[n] for n in (2, 3, 1, 0, 4, 6, 5)]


@pytest.mark.parametrize("value", [b"seven", b"", b"nan", b"\xff", b"1 2"])
def test_what_is_no_number_is_named(tar: Any, tmp_path: Path, value: bytes) -> None:
    make_tar(tmp_path / "in.tar", [(b"odd", {"cls": value})])
    done = tar("sort", tmp_path / "in.tar", "--by", "cls", "--numeric")
    assert done.code == 1 and "odd" in done.err and "Traceback" not in done.err


def test_a_missing_field_is_named(tar: Any, mixed: list[Path]) -> None:
    done = tar("sort", *mixed, "--by", "json")
    assert done.code == 1 and "json" in done.err and "d/000" in done.err


def test_what_cannot_be_read_again_is_copied(tar: Any, mixed: list[Path], tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(gzip.compress(mixed[0].read_bytes()))
    done = tar("sort", tmp_path / "a.tgz", "-", input=mixed[1].read_bytes())
    assert read_tar(done.out) == some_samples(30)


def test_files_of_a_sample_that_lay_apart_come_together(tar: Any, tmp_path: Path) -> None:
    samples = some_samples(6)
    make_tar(
        tmp_path / "apart.tar", [(key, {field: fields[field]}) for field in ("jpg", "cls", "txt") for key, fields in samples]
    )
    done = tar("sort", tmp_path / "apart.tar")
    assert read_tar(done.out) == samples
    assert "6 samples were in several places" in done.err


def test_two_samples_of_one_name_are_an_error(tar: Any, tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", [(b"x", {"cls": b"1"}), (b"y", {"cls": b"2"}), (b"x", {"cls": b"3"})])
    for words in ((), ("--by", "cls"), ("--shuffle",)):
        done = tar("sort", tmp_path / "a.tar", *words, "-o", tmp_path / "out.tar")
        assert done.code == 1 and "x" in done.err
        assert not (tmp_path / "out.tar").exists()


def test_shuffled_all_among_each_other_by_a_seed(tar: Any, tmp_path: Path) -> None:
    make_tar(tmp_path / "in.tar", some_samples(60))
    first = tar("sort", tmp_path / "in.tar", "--shuffle", "--seed", 3).out
    assert sorted(read_tar(first)) == some_samples(60)
    places = [int(key[2:]) for key in keys_of(first)]
    assert max(abs(place - at) for at, place in enumerate(places)) > 30
    assert tar("sort", tmp_path / "in.tar", "--shuffle", "--seed", 3).out == first


def test_long_names_and_files_of_nobody_are_read_again_rightly(tar: Any, tmp_path: Path) -> None:
    samples = [(b"z/" + b"n" * 200 + b"%d" % n, {"txt": b"%d" % n}) for n in (3, 1, 2)]
    (tmp_path / "f").mkdir()
    for key, fields in samples:
        path = tmp_path / "f" / key.decode()
        path.parent.mkdir(exist_ok=True)
        path.with_name(path.name + ".txt").write_bytes(fields["txt"])
    import subprocess

    subprocess.run(
        ["tar", "-cf", tmp_path / "in.tar", "-C", tmp_path / "f", "z"], check=True
    )  # with an entry for the folder itself
    done = tar("sort", tmp_path / "in.tar", "--by", "txt", "--reverse")
    assert [fields["txt"] for _, fields in read_tar(done.out)] == [b"3", b"2", b"1"]


@pytest.mark.parametrize("reverse", [False, True])
def test_any_number_of_entries_is_sorted_in_runs(reverse: bool) -> None:
    ranks = [b"%d" % (n * 7919 % 101) * (1 + n % 5) for n in range(1000)]
    with closing(SampleSorter(bytes, reverse, run=64, run_bytes=1 << 10)) as order:
        for number, rank in enumerate(ranks):
            order.add(rank, TarExtent(number, number, number))
        found = [place.file for _, place in order]
    assert found == sorted(range(1000), key=lambda number: ranks[number], reverse=reverse)
