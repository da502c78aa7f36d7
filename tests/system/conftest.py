"""Fixtures of the fault lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .lab_oracle import write_shards


@pytest.fixture(scope="session")
def often(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How often something is repeated: the first number in `make test`, the second in `make faults`."""
    every: bool = request.config.getoption("--faults")
    return lambda quick, thorough: thorough if every else quick


@pytest.fixture(scope="session")
def lab_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fault lab's 500 samples in shards. All tests share it: do not write to it."""
    folder = tmp_path_factory.mktemp("lab") / "data"
    write_shards(folder, 500)
    return folder
