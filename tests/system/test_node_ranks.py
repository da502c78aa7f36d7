"""The ranks of one machine, as real processes that start together: what one of them finds out or fetches, all of them have."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..loader.runs import ROOT, environment
from ..source.making import sample_tar
from ..storage.server import Server, Silence

WORLD, SHARDS, EACH = 4, 3, 20
_DEADLINE_S = 120.0

RANK = """
import json, os, sys
import stoker

urls, cache, folder = json.loads(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
source = stoker.tar(urls, cache=stoker.Cache(cache, "1GB") if cache else None)
pipeline = source.select("cls").map(lambda sample: {"cls": sample["cls"]})
if folder:
    pipeline = pipeline.cache(folder)
seen, misses = [], []
with pipeline.shuffle(seed=1).shard(remainder="keep").batch(4).loader(threads=1, memory="8MB") as batches:
    for epoch in range(2):
        if epoch:
            print("one epoch", flush=True)
            sys.stdin.readline()
        seen.append([int(n) for batch in batches for n in batch["cls"][batch.valid]])
        misses.append(batches.stats().cache_misses)
print(json.dumps({"seen": seen, "misses": misses, "rank": str(batches.rank)}), flush=True)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        for number in range(SHARDS):
            samples = [(f"{at:04d}", {"cls": b"%d" % (number * EACH + at), "txt": b"x" * 5000}) for at in range(EACH)]
            server.put(f"/{number}.tar", sample_tar(samples))
        yield server


class Node:
    """Processes of one machine, as a launcher starts them; they go on together, step by step."""

    def __init__(self, server: Server, home: Path, cache: str = "", folder: str = "", world: int = WORLD) -> None:
        given = json.dumps([[f"{server.origin}/{number}.tar" for number in range(SHARDS)], cache, folder])
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                env={**environment(), "XDG_CACHE_HOME": str(home), "RANK": str(rank), "WORLD_SIZE": str(world)},
            )
            for rank in range(world)
        ]  # fmt: skip
        self.said()

    def said(self) -> list[str]:
        """The next line of each."""
        return [process.stdout.readline() for process in self.processes]  # type: ignore[union-attr]

    def go_on(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def run(self) -> list[dict[str, Any]]:
        """Both epochs; what each rank found."""
        self.go_on()
        assert self.said() == ["one epoch\n"] * len(self.processes)
        self.go_on()
        found = [json.loads(line) for line in self.said()]
        assert [process.wait(_DEADLINE_S) for process in self.processes] == [0] * len(self.processes)
        return found

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def check_shares(found: list[dict[str, Any]]) -> None:
    for rank, each in enumerate(found):
        assert each["rank"] == f"rank {rank} of {len(found)} (torchrun: RANK and WORLD_SIZE)"
    for epoch in range(2):
        assert sorted(n for each in found for n in each["seen"][epoch]) == list(range(SHARDS * EACH))
        assert len({len(each["seen"][epoch]) for each in found}) == 1


def whole_reads(server: Server, number: int) -> int:
    """How often a shard was read from its beginning to its end."""
    size = len(server.files[f"/{number}.tar"].data)
    spans = [request.span for request in server.asked(f"/{number}.tar")]
    return sum(span in (None, "0-", f"0-{size - 1}") for span in spans)


def test_one_rank_indexes_a_shard_and_the_others_find_its_index(server: Server, tmp_path: Path) -> None:
    with Node(server, tmp_path) as node:
        check_shares(node.run())
    assert [whole_reads(server, number) for number in range(SHARDS)] == [1] * SHARDS
    kept = sorted(path.name for path in (tmp_path / "stoker" / "index").iterdir())
    assert len(kept) == SHARDS + 1 and kept[-1] == "locks"


def test_a_rank_that_dies_while_it_indexes_does_not_hold_up_the_others(server: Server, tmp_path: Path) -> None:
    server.script("/0.tar", Silence(10_000))  # whoever comes first waits for the rest of it
    with Node(server, tmp_path, world=1) as first:
        first.go_on()
        deadline = time.monotonic() + _DEADLINE_S
        while not (whole_reads(server, 0) and whole_reads(server, 1) and whole_reads(server, 2)):
            assert time.monotonic() < deadline and first.processes[0].poll() is None
            time.sleep(0.01)
        with Node(server, tmp_path, world=2) as others:
            others.go_on()
            first.processes[0].send_signal(signal.SIGKILL)
            assert others.said() == ["one epoch\n"] * 2
            others.go_on()
            check_shares([json.loads(line) for line in others.said()])


def test_ranks_share_what_one_of_them_has_fetched_and_what_one_has_made(server: Server, tmp_path: Path) -> None:
    places = {"cache": str(tmp_path / "shards"), "folder": str(tmp_path / "made")}
    with Node(server, tmp_path, **places) as node:
        check_shares(node.run())
    for number in range(SHARDS):
        assert len(server.asked(f"/{number}.tar")) == whole_reads(server, number), "nothing is read sample by sample"
        assert whole_reads(server, number) <= 2, "once for the index, and once for the cache"
    asked = len(server.log)
    with Node(server, tmp_path, **places, world=2) as node:
        found = node.run()
    check_shares(found)
    assert [each["misses"] for each in found] == [[0, 0]] * 2, "all are found, whoever has made them"
    assert not [request for request in server.log[asked:] if request.method == "GET" and request.path.endswith(".tar")]
