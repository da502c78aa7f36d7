"""The map-reduce example, and the same map by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .test_examples import EXAMPLES, run


def test_map_and_reduce_over_shards_in_a_pool_and_by_the_command(tmp_path: Path) -> None:
    out = run("map_reduce.py", tmp_path)
    assert out.count("16 pictures") == 3
    assert "48 samples in 4 shards" in out
    words = [
        f"{EXAMPLES / 'map_reduce.py'}:small",
        f"{tmp_path}/photos-{{0000..0003}}.tar",
        f"{tmp_path}/tiny-{{}}.tar",
        "-j",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    subprocess.run([sys.executable, "-m", "stoker.cli.main", "map", *words], check=True, timeout=100, env=environment)
    for number in range(4):
        made = [(tmp_path / f"{name}-{number:04d}.tar").read_bytes() for name in ("small", "tiny")]
        assert made[0] == made[1]
