"""`stoker tar pcat`: shards read side by side, in an order that does not depend on time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.tar import pcat

from .conftest import keys_of, make_tar, read_tar, some_samples


def test_open_shards_take_turns_and_the_next_takes_the_place_of_one_that_ends(tar: Any, tmp_path: Path) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        make_tar(tmp_path / f"{name}.tar", [(f"{name}{n}".encode(), {"txt": b"x"}) for n in range(count)])
    done = tar("pcat", *(tmp_path / f"{name}.tar" for name in "abc"), "-j", 2, "--shuffle", 0)
    assert keys_of(done.out) == ["a0", "b0", "c0", "b1", "c1", "b2"]


def test_all_samples_come_once_in_an_order_of_the_seed(tar: Any, shards: list[Path]) -> None:
    first = tar("pcat", *shards, "-j", 3, "--seed", 4)
    assert first.code == 0 and sorted(read_tar(first.out)) == some_samples(40) != read_tar(first.out)
    assert tar("pcat", *shards, "-j", 3, "--seed", 4).out == first.out
    assert tar("pcat", *shards, "-j", 3, "--seed", 5).out != first.out
    assert keys_of(tar("pcat", *shards, "-j", 3, "--seed", 4, "-c", 5).out) == keys_of(first.out)[:5]


@pytest.mark.parametrize("slow", range(4))
def test_a_slow_shard_changes_nothing(tar: Any, shards: list[Path], slow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tar("pcat", *shards, "-j", 3, "--shuffle", 8).out
    read = pcat.shard_samples

    def delayed(name: str) -> Iterator[Any]:
        for sample in read(name):
            time.sleep(0.005 if name == str(shards[slow]) else 0)
            yield sample

    monkeypatch.setattr(pcat, "shard_samples", delayed)
    assert tar("pcat", *shards, "-j", 3, "--shuffle", 8).out == wanted


def test_a_bad_shard_ends_it_and_no_file_is_made(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    shards[2].write_bytes(shards[2].read_bytes()[:3000])
    done = tar("pcat", *shards, "-j", 2, "-o", tmp_path / "out.tar")
    assert done.code == 1 and "in-02.tar" in done.err
    assert not (tmp_path / "out.tar").exists()
