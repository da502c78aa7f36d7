"""Shards of every format resume at every step and on any number of ranks, as arrays do: local, mixed, packed, and over HTTP."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import Pipeline
from stoker.engine.feed import Pace
from stoker.errors import StateError

from ..loader.runs import hash_of, noise_of, odd, real_ids, rest_of, run_python
from ..source.making import example, sample_tar, tfrecord
from ..storage.server import Server
from .test_elastic import ids_of, loaders, steps_of
from .test_resume import check_every_step, whole_run

N = 26
#: the samples of each shard
SHARDS = [range(0, 3), range(3, 17), range(17, 18), range(18, N)]
WORLDS = (1, 2, 3)


def image(number: int) -> bytes:
    return bytes([number]) * (37 * number % 500)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same samples in every format."""
    root = tmp_path_factory.mktemp("records")
    for shard, numbers in enumerate(SHARDS):
        tar = sample_tar([(f"{n:03d}", {"cls": b"%d" % n, "jpg": image(n)}) for n in numbers])
        (root / f"s-{shard}.tar").write_bytes(tar)
        (root / f"s-{shard}.tar.gz").write_bytes(gzip.compress(tar))
        (root / f"s-{shard}.tfrecord").write_bytes(tfrecord(example({"x": n, "jpg": image(n)}) for n in numbers))
    stoker.write_lmdb(root / "a.lmdb", [{"__key__": f"{n:03d}", "x": n, "jpg": image(n)} for n in range(N)])
    stoker.write_lmdb(root / "more.lmdb", [{"__key__": f"m{n:03d}", "x": 1000 + n, "jpg": image(n)} for n in range(13)])
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    stoker.tar(str(folder / "s-*.tar"))  # makes the indexes
    with Server() as running:
        running.put_all([*folder.glob("*.tar"), *folder.glob("*.tar.stk"), *folder.glob("*.tar.gz")])
        yield running


Make = Callable[[Path, Server], Pipeline]


def tars(folder: Path) -> Pipeline:
    return stoker.tar(str(folder / "s-{0..3}.tar")).rename(x="cls")


#: each gives every sample once: `x` is its number, `jpg` its bytes
KINDS: dict[str, Make] = {
    "tar": lambda folder, server: tars(folder).shuffle(seed=3),
    "tar, window": lambda folder, server: tars(folder).shuffle(seed=3, window=7),
    "tar, filter": lambda folder, server: tars(folder).shuffle(seed=3).filter(odd),
    "tfrecord": lambda folder, server: stoker.tfrecord(str(folder / "s-{0..3}.tfrecord")).shuffle(seed=3),
    "lmdb": lambda folder, server: stoker.lmdb(folder / "a.lmdb").shuffle(seed=3),
    "mix": lambda folder, server: stoker.mix([tars(folder).shuffle(seed=1), stoker.lmdb(folder / "more.lmdb")], weights=[2, 1]),
    "tar over http": lambda folder, server: stoker.tar(f"{server.origin}/s-{{0..3}}.tar").rename(x="cls").shuffle(seed=3),
    "packed": lambda folder, server: stoker.tar(str(folder / "s-{0..3}.tar.gz"), interleave=2).rename(x="cls"),
    "packed, window": lambda folder, server: (
        stoker.tar(str(folder / "s-{0..3}.tar.gz"), interleave=3).rename(x="cls").shuffle(seed=2, window=9)
    ),
    "packed over http": lambda folder, server: stoker.tar(f"{server.origin}/s-{{0..3}}.tar.gz").rename(x="cls"),
    "in sequence": lambda folder, server: stoker.tar(str(folder / "s-{0..3}.tar"), index="never", interleave=2).rename(x="cls"),
}


def every_id(kind: str) -> list[int]:
    """The numbers an epoch must hold, known without reading."""
    numbers = [n for n in range(N) if n % 2] if kind == "tar, filter" else list(range(N))
    return numbers + [1000 + n for n in range(13)] if kind == "mix" else numbers


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_is_every_sample_once_with_its_own_bytes(kind: str, folder: Path, server: Server) -> None:
    pipeline = KINDS[kind](folder, server)
    got = [(int(sample["x"]), bytes(sample["jpg"])) for sample in pipeline]
    assert sorted(number for number, _ in got) == every_id(kind)
    assert all(data == image(number % 1000) for number, data in got)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_at_every_step_gives_the_very_rest(kind: str, size: int, folder: Path, server: Server) -> None:
    pipeline = KINDS[kind](folder, server).map(noise_of, rng=True).batch(size, drop_last=False, pad={"jpg": list})
    if size == 1 and "http" in kind:
        pytest.skip("the same as in larger steps, and slow")
    check_every_step(pipeline, whole_run(pipeline), **({"executor": "inline"} if size == 1 else {"threads": 2}))


@pytest.mark.parametrize("kind", [*KINDS, "gaps"])
def test_batches_are_the_same_of_tasks_of_any_size(
    kind: str, folder: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very types, too: a task may meet samples of one member of a mix, or no sample that lacks a field, by chance."""
    if kind == "gaps":
        gaps = sample_tar([(f"{n:03d}", {"cls": b"%d" % n, **({"jpg": image(n)} if n % 5 else {})}) for n in range(N)])
        (tmp_path / "s.tar").write_bytes(gaps)
        pipeline = stoker.tar(tmp_path / "s.tar", defaults={"jpg": b"none"}).rename(x="cls").batch(8)
    else:
        pipeline = KINDS[kind](folder, server).batch(8)
    hashes = []
    for rows in (1, 2, 3, 8):
        monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows, rows=rows: min(rows, unit_rows))
        with pipeline.loader(threads=2) as loader:
            hashes.append([hash_of(batch) for batch in loader])
    assert hashes == [hashes[0]] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_any_ranks_state_loads_on_any_number_of_ranks(kind: str, folder: Path, server: Server) -> None:
    base = KINDS[kind](folder, server).select("x")
    every = ids_of(base)
    assert sorted(every) == every_id(kind)
    for world in WORLDS:
        taken, states = steps_of(base, world, 3)
        assert sorted(x for step in taken for x in step) == sorted(every)
        for step, state in enumerate(states[:: 2 if "http" in kind or "packed" in kind else 1]):
            step = step * (2 if "http" in kind or "packed" in kind else 1)
            before = [x for ids in taken[:step] for x in ids]
            assert before == every[: len(before)], "global batches follow the global order"
            for later in WORLDS:
                rest: list[int] = []
                for loader in loaders(base, later, 4):
                    loader.load_state_dict(json.loads(json.dumps(state)))
                    rest += [x for batch in rest_of(loader) for x in real_ids(batch)]
                assert sorted(before + rest) == sorted(every), (world, step, later)


def test_the_same_samples_in_other_formats_come_in_the_same_order(folder: Path, server: Server) -> None:
    orders = [ids_of(KINDS[kind](folder, server)) for kind in ("tar", "tfrecord", "lmdb", "tar over http")]
    assert all(order == orders[0] for order in orders)


def test_a_state_made_on_a_disk_loads_over_http(folder: Path, server: Server) -> None:
    local, remote = KINDS["tar"](folder, server).batch(4), KINDS["tar over http"](folder, server).batch(4)
    assert local.fingerprint() == remote.fingerprint()
    hashes, states, _ = whole_run(local)
    for step in (0, 3, len(hashes)):
        with remote.loader(threads=2) as loader:
            loader.load_state_dict(states[step])
            assert [hash_of(batch) for batch in rest_of(loader)] == hashes[step:]


def test_a_state_of_other_data_is_refused(folder: Path, server: Server) -> None:
    with KINDS["tar"](folder, server).batch(4).loader() as loader:
        next(iter(loader))
        state = loader.state_dict()
    for kind in ("tfrecord", "lmdb", "packed", "mix"):
        with KINDS[kind](folder, server).batch(4).loader() as other, pytest.raises(StateError):
            other.load_state_dict(state)


def test_a_mix_that_begins_again_resumes_too(folder: Path) -> None:
    mixed = stoker.mix([tars(folder).shuffle(seed=1), stoker.lmdb(folder / "more.lmdb").shuffle(seed=2)], until="all")
    pipeline = mixed.batch(5, drop_last=False)
    check_every_step(pipeline, whole_run(pipeline), threads=2)
    got = ids_of(mixed)
    assert {x for x in got if x < 1000} == set(range(N)) and sum(x < 1000 for x in got) == N


SCRIPT = """
import json, sys
from pathlib import Path
from tests.system.test_records_resume import KINDS, hash_of, rest_of
folder = Path(sys.argv[1])
found = {}
for kind, states in json.load(sys.stdin).items():
    found[kind] = []
    for state in states:
        with KINDS[kind](folder, None).batch(4).loader(threads=2) as loader:
            loader.load_state_dict(state)
            found[kind].append([hash_of(batch) for batch in rest_of(loader)])
print(json.dumps(found))
"""


def test_a_new_process_goes_on_exactly_where_this_one_was(folder: Path, server: Server) -> None:
    runs = {
        kind: whole_run(KINDS[kind](folder, server).batch(4)) for kind in ("tar", "tfrecord", "lmdb", "mix", "packed, window")
    }
    done = run_python(SCRIPT, str(folder), input=json.dumps({kind: states[:-1] for kind, (_, states, _) in runs.items()}))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    for kind, (hashes, states, _) in runs.items():
        assert found[kind] == [hashes[step:] for step in range(len(states) - 1)], kind
