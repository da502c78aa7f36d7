"""Some thousands of batches leave everything as it was; `make soak` runs a million."""

from __future__ import annotations

import json

import pytest

from ..loader.runs import run_python


@pytest.mark.faults
@pytest.mark.parametrize(
    "way", ["processes that are killed", pytest.param("a function in processes", marks=pytest.mark.thorough)]
)
def test_many_batches_leave_memory_and_all_else_as_it_was(way: str) -> None:
    # So few batches say little about a slope: that is for `make soak`. Half as much again would be a leak of every batch.
    iterations = 6_000 if way.endswith("killed") else 1_500
    script = f"import json; from tests.system.endurance import endure; print(json.dumps(endure({way!r}, {iterations})))"
    done = run_python(script, timeout_s=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == (5 if way.endswith("killed") else 0)
    assert not set(found["grown"]) - {"memory"}, found
    assert found["last"]["memory"] < 1.5 * found["first"]["memory"], found
