"""What profilers of the training process see of a loader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker.errors import MissingExtra
from stoker.profiler_ranges import recorder

from ..loader.runs import numbers, spread


def ranges(path: Path) -> dict[str, set[Any]]:
    """The threads of each range of Stoker's in a trace of torch's."""
    found: dict[str, set[Any]] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if str(event.get("name")).startswith("stoker: "):
            found.setdefault(event["name"], set()).add(event["tid"])
    return found


def test_the_torch_profiler_sees_waits_and_hand_overs_and_where_it_may_the_steps_of_workers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    path, everywhere = tmp_path / "trace.json", torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with numbers(800).map(x=abs).batch(4).map_batch(spread).loader(threads=2, ahead=2, format="torch") as loader:
        batches = iter(loader)
        next(batches)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(20):
                next(batches)
        profiler.export_chrome_trace(str(path))
        own = ranges(path)
        assert set(own) == {"stoker: wait for batch", "stoker: hand over"} and len(set.union(*own.values())) == 1
        with profile(activities=[ProfilerActivity.CPU], experimental_config=everywhere) as profiler:
            for _ in range(20):
                next(batches)
        profiler.export_chrome_trace(str(path))
        assert {"stoker: read", "stoker: map x", "stoker: join batch"} <= set(ranges(path))
        assert recorder() is None


def test_nvtx_ranges_are_pushed_and_popped_in_pairs_while_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    package = SimpleNamespace(push_range=seen.append, pop_range=lambda: seen.append("end"))
    monkeypatch.setitem(sys.modules, "nvtx", package)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with numbers(80).map(x=abs).batch(40).loader(executor="inline") as loader:
        with stoker.observe.nvtx():
            list(loader)
        assert seen[:3] == ["stoker: wait for batch", "stoker: read", "end"]
        assert seen.count("end") * 2 == len(seen) and "stoker: hand over" in seen
        count = len(seen)
        list(loader)
        assert len(seen) == count


def test_without_cuda_or_the_package_nvtx_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(MissingExtra, match=r"needs the package nvtx: pip install 'stoker\[nvtx\]'"):
        stoker.observe.nvtx()
