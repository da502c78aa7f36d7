"""What functions hold goes to worker processes as it should: mapped and shared, not copied; or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from stoker.engine.function_wire import pack, pack_work, unpack
from stoker.errors import ConfigError

N = 100_000


def sent(function: Callable[[], Any]) -> tuple[int, list[memoryview], Any]:
    """How many bytes a function is, the memory that goes beside them, and what it returns where it arrives."""
    data, beside = pack_work(function, 1024)
    return len(data), beside, unpack(data, beside)()


def test_a_memory_map_in_a_function_is_mapped_again(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.arange(N))
    table = np.load(tmp_path / "table.npy", mmap_mode="r")
    size, beside, arrived = sent(lambda: table)
    assert size < 10_000 and not beside
    assert np.array_equal(arrived, table)


def test_a_tensor_in_a_function_goes_beside_its_bytes() -> None:
    torch = pytest.importorskip("torch")
    table = torch.arange(N)
    size, beside, arrived = sent(lambda: table)
    assert size < 10_000 and len(beside) == 1 and torch.equal(arrived, table)


def test_an_open_file_is_not_sent_as_a_copy_of_its_text(tmp_path: Path) -> None:
    with open(tmp_path / "lines.txt", "w+") as file:
        with pytest.raises(ConfigError, match=r"open file '.*lines.txt'.*inside the function.*executor='threads'"):
            sent(lambda: file)
        with pytest.raises(TypeError, match="open file"):
            pack([file])


def test_standard_streams_are_those_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null", "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert sent(lambda: stream)[2] is stream


def test_a_class_that_goes_by_value_is_left_as_it_is_where_it_comes_from() -> None:
    class Local:
        seen: ClassVar[list[int]] = []

        def method(self) -> Any:
            return N

    before = dict(vars(Local))
    arrived = unpack(*pack_work(Local(), 0))
    assert type(arrived) is type(unpack(*pack(arrived))) is Local
    assert all(vars(Local)[name] is value for name, value in before.items())
    assert Local.method.__globals__ is globals()
