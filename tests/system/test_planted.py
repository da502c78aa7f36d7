"""Bottlenecks planted in real pipelines, by sleeping: the verdict names them, whatever else runs on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.device import OUTPUTS
from stoker.device.framework_output import Output

#: what is slow sleeps for so long, and what is not, for so long
SLOW_S, QUICK_S = 0.02, 0.002


def doze(x: Any) -> Any:
    time.sleep(SLOW_S)
    return x


def nod(x: Any) -> Any:
    time.sleep(QUICK_S)
    return x


class DrowsyOutput(Output):
    def hand_over(self, batch: Any) -> Any:
        return doze(batch)


def choose_drowsy_output(device: None) -> Output:
    return DrowsyOutput()


def records(function: Callable[[Any], Any], width: int = 1) -> stoker.Pipeline:
    return stoker.arrays(x=np.zeros((64, width))).map(x=function).repeat().batch(4)


PLANTED: dict[str, tuple[stoker.Pipeline, dict[str, Any], float, str, str]] = {
    "a function that waits": (records(doze), {"threads": 2}, 0.0, "waiting", "threads="),
    "a slow model": (records(nod), {"threads": 8}, 3 * SLOW_S, "loop", ""),
    "a slow hand-over": (records(nod), {"threads": 8, "format": "drowsy"}, QUICK_S, "handover", ""),
    "a tiny memory": (records(doze, 1000), {"threads": 4, "memory": "40kB"}, 2 * SLOW_S, "memory", "memory="),
    "no workers": (records(doze), {"executor": "inline"}, QUICK_S, "workers", "threads="),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.observe.verdict.SHORT_S", 0.2)
    monkeypatch.setitem(OUTPUTS._entries, "drowsy", (__name__, "choose_drowsy_output", ""))
    pipeline, options, step_s, limit, advised = PLANTED[name]
    with pipeline.loader(**options) as loader:
        for _ in loader:
            time.sleep(step_s)
            if loader.stats().elapsed_s > 0.5:
                break
        why = loader.why()
    assert why.limit == limit, why
    assert not advised or any(advice.how.startswith(advised) for advice in why.advice), why.advice
