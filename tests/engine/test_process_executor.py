"""Worker processes that cannot even begin."""

from __future__ import annotations

import shutil
import sys

import pytest

from stoker.errors import ConfigError
from tests.loader.runs import numbers


def test_workers_that_end_before_they_have_begun_are_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    false = shutil.which("false")
    assert false is not None
    with pytest.raises(ConfigError, match=r"5 worker .* exited with code 1; .*stderr.*executor='threads'"):
        monkeypatch.setattr(sys, "executable", false)
        with numbers().batch(4).loader(processes=1) as loader:
            list(loader)
