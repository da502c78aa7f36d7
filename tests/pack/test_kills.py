"""A writer that is killed at any point leaves only whole shards, and the next one leaves nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: Forks a writer for every point at which it may be killed, kills it there, and says what it left and what the next one made of
#: it. A point is a call that changes something on the disk: the writer dies just before it.
DRIVER = r"""
import fcntl, json, os, signal, sys
from pathlib import Path
import numpy as np
import stoker.pack.writers.lmdb_writer
from stoker.pack import TarWriter, write_lmdb, write_tar, write_tfrecord

os.fsync = lambda fd: None  # what is written outlives a process anyway, and this is done hundreds of times

kind, folder = sys.argv[1], Path(sys.argv[2])
samples = [{"__key__": f"k{n:03d}", "txt": f"{n}" * 500, "cls": n} for n in range(12)]

def write():
    if kind == "tar":
        write_tar(folder / "a-{}.tar", samples, max_samples=5, overwrite=True)
    elif kind == "noted":
        for number in range(3):
            with TarWriter(folder / f"a-{number}.tar", overwrite=True, about={"number": number}) as shard:
                for sample in samples[4 * number : 4 * number + 4]:
                    shard.write(sample)
    elif kind == "tfrecord":
        write_tfrecord(folder / "a-{}.tfrecord", samples, max_samples=5, overwrite=True)
    else:
        stoker.pack.writers.lmdb_writer._GATHER = 2000
        write_lmdb(folder / "a.lmdb", samples + [{"__key__": "again", "txt": "", "cls": None}], overwrite=True)

def listing():
    found = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        # an index dates its shard, which is the one thing in it that differs between runs
        found[path.name] = len(data) if path.suffix in (".stk", ".lmdb") else data.hex()
    return found

def kill_at(point):
    count = 0
    def counting(function):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return call
    for module, names in ((os, "open write fsync link replace rename unlink close"), (fcntl, "flock")):
        for name in names.split():
            setattr(module, name, counting(getattr(module, name)))
    stoker.pack.writers.lmdb_writer._LmdbFile._flush = counting(stoker.pack.writers.lmdb_writer._LmdbFile._flush)

def clear():
    for path in folder.iterdir():
        path.unlink()

write()
whole = listing()
runs = []
for begin in ("empty", "there"):
    for point in range(1, 1000):
        clear()
        if begin == "there":
            write()
        child = os.fork()
        if not child:
            kill_at(point)
            try:
                write()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        left = listing()
        write()
        runs.append({"begin": begin, "point": point, "left": left, "next": listing() == whole})
        if not killed:
            break
json.dump({"whole": whole, "runs": runs}, sys.stdout)
"""


@pytest.mark.parametrize("kind", ["tar", "noted", "tfrecord", "lmdb"])
def test_a_killed_writer_leaves_whole_shards_only_and_the_next_one_sweeps(tmp_path: Path, kind: str) -> None:
    if kind == "lmdb":
        pytest.importorskip("lmdb")
    done = subprocess.run([sys.executable, "-c", DRIVER, kind, str(tmp_path)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    whole, runs = report["whole"], report["runs"]
    assert len(runs) > 40 and any(run["left"].keys() - whole.keys() for run in runs), "some of them died with a file half-written"
    assert runs[-1]["left"] == whole, "the last was not killed"
    for run in runs:
        visible = {name: content for name, content in run["left"].items() if not name.startswith(".")}
        assert visible.items() <= whole.items(), f"something that is not whole, at {run['begin']} {run['point']}"
        if kind == "noted":
            assert {f"{name.removesuffix('.stk')}.stk" for name in visible} <= visible.keys(), "a shard without its index"
        else:
            assert {name.removesuffix(".stk") for name in visible} <= visible.keys(), "an index without its shard"
        hidden = run["left"].keys() - visible.keys()
        assert all(name.startswith(".stoker-") and name.endswith(".part") for name in hidden)
        assert run["next"], "the next writer made the same shards, and nothing else is there"
