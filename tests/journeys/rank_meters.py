"""What a rank measures, and what all of them do together; started by test_ddp.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker.observe import gather


def main(folder: Path) -> Any:
    rank_batches = stoker.arrays(n=np.arange(40)).map(n=abs).shard().batch(5)
    with rank_batches.loader(threads=1) as loader:
        for _ in loader:
            pass
        own = loader.stats()
    both = gather(own)
    return {"own": own.as_dict(), "both": both.as_dict()}
