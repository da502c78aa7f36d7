"""Arrays as a source: whatever NumPy can hold in rows of fixed size."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i8", ">U3", ">M8[s]", "S2", "?", "V3", "<U0"])
def test_arrays_are_the_same_source_in_another_process(dtype: str) -> None:
    rows: Any = np.arange(40).reshape(8, 5).astype(np.int64 if dtype == ">M8[s]" else np.uint8)
    pipeline = stoker.arrays(x=rows.astype("S2").astype("V3") if dtype == "V3" else rows.astype(dtype)[::2])
    other: stoker.Pipeline = pickle.loads(pickle.dumps(pipeline))  # noqa: S301
    assert other.fingerprint() == pipeline.fingerprint()
    (here,), (there,) = next(iter(pipeline.batch(4))), next(iter(other.batch(4)))
    assert here.dtype == there.dtype and here.tobytes() == there.tobytes()


def test_types_that_a_library_added_to_numpys_are_refused_before_it_runs() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(ConfigError, match=r"arrays\(x=...\) has numbers of type bfloat16.*map_batch"):
        stoker.arrays(x=np.zeros((4, 2), ml_dtypes.bfloat16))


def test_a_structured_array_is_refused_before_it_runs() -> None:
    with pytest.raises(ConfigError, match=r"arrays\(x=...\) is a structured array; .* as x=x\['a'\]"):
        stoker.arrays(x=np.zeros(4, [("a", "i4"), ("b", "f4")]))
