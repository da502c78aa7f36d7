"""Shards on a server, without a cache: blocks are read ahead, and batches are those of local shards."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.image import RandomResizedCrop
from stoker.loader.look_ahead import Forerunner, rank_positions
from stoker.plan.cursor import Cursor
from stoker.plan.deal import Deal, StepTurns
from stoker.plan.nodes import Shuffle
from stoker.plan.order import Order
from stoker.source.arrays import ArraysSource
from stoker.source.chunk import Ints
from stoker.source.shards import record_source
from stoker.source.source import ForesightSpan
from stoker.storage import read_ahead

from ..storage.server import Server, Status

SAMPLES, SHARDS = 600, 4
BLOCK = 1 << 16
QUICK = stoker.Patience(first_delay_s=0.001, longest_delay_s=0.01, longest_retry_after_s=0.05)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    drawn = np.random.default_rng(0)
    samples = ({"__key__": f"{n:04d}", "bin": drawn.bytes(3000 + 5 * n), "cls": n} for n in range(SAMPLES))
    stoker.write_tar(str(folder / "s-{:d}.tar"), samples, max_samples=SAMPLES // SHARDS)
    return folder


@pytest.fixture
def server(shards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(record_source, "BLOCKS", (BLOCK,))
    with Server() as running:
        running.put_all(shards.iterdir())
        yield running


def far(server: Server) -> stoker.Pipeline:
    return stoker.tar(f"{server.origin}/s-{{0..{SHARDS - 1}}}.tar", patience=QUICK)


def near(shards: Path) -> stoker.Pipeline:
    return stoker.tar(str(shards))


def taken(pipeline: stoker.Pipeline, epochs: int = 2, state: Any = None, **options: Any) -> list[Any]:
    with pipeline.loader(**{"threads": 4, **options}) as loader:
        if state is not None:
            loader.load_state_dict(state)
        return [(list(batch["bin"]), batch["cls"].tolist()) for _ in range(epochs) for batch in loader]


def requests(server: Server) -> int:
    return sum(len(server.asked(f"/s-{number}.tar")) for number in range(SHARDS))


BYTES = {"window": {"seed": 3, "window": 40}, "whole": {"seed": 3}}


@pytest.mark.parametrize("shuffle", BYTES.values(), ids=BYTES)
def test_batches_are_those_of_local_shards_and_blocks_are_few_requests(
    server: Server, shards: Path, shuffle: dict[str, Any]
) -> None:
    """All of it fits in memory, so that a shuffle of all samples needs no more requests than any other."""
    pipeline = far(server).shuffle(**shuffle).batch(16)
    before, nbytes = requests(server), sum(path.stat().st_size for path in shards.glob("*.tar"))
    assert taken(pipeline) == taken(near(shards).shuffle(**shuffle).batch(16))
    blocks = nbytes // BLOCK + SHARDS
    assert requests(server) - before <= 3 * blocks < SAMPLES, "of two epochs, and the begin of a third"
    assert "blocks of 65.5 kB are fetched ahead: about 59 requests and 3.8 MB per epoch" in pipeline.explain()


def test_more_than_fits_is_read_in_blocks_in_a_window_and_one_by_one_else(server: Server, shards: Path) -> None:
    little = {"memory": 4 * 10 * BLOCK}  # of which a quarter is for blocks: ten of them, and there are forty
    windowed, mixed = (pipeline.batch(16) for pipeline in (far(server).shuffle(seed=3, window=40), far(server).shuffle(seed=3)))
    before = requests(server)
    assert taken(windowed, 1, **little) == taken(near(shards).shuffle(seed=3, window=40).batch(16), 1)
    in_blocks = requests(server) - before
    assert taken(mixed, 1, **little) == taken(near(shards).shuffle(seed=3).batch(16), 1)
    assert in_blocks < 150
    with windowed.loader(**little) as loader:
        assert "blocks of 65.5 kB are fetched ahead" in loader._explained()
    with mixed.loader(**little) as loader:
        assert (
            "samples are asked for one by one: about 592 requests" in loader._explained() or "600 requests" in loader._explained()
        )


def test_a_loader_knows_with_how_much_memory_it_would_read_in_blocks(server: Server, shards: Path) -> None:
    mixed, little = far(server).shuffle(seed=3).batch(16), 4 * 10 * BLOCK
    with mixed.loader(memory=little) as loader:
        enough = loader.facts().memory_for_blocks
    assert enough in (4 * little, 8 * little, 16 * little)
    for memory, reads in ((enough, "blocks of 65.5 kB"), (enough // 2, "samples are asked for one by one")):
        with mixed.loader(memory=memory) as loader:
            assert reads in loader._explained()
    with mixed.loader(memory=enough) as loader:
        assert not loader.facts().memory_for_blocks, "it reads in blocks already"
    with near(shards).shuffle(seed=3).batch(16).loader(memory=little) as loader:
        assert not loader.facts().memory_for_blocks, "there is nothing to fetch"
    with mixed.loader(memory=little, processes=1, threads=1) as loader:
        assert not loader.facts().memory_for_blocks, "processes would not see the blocks"


def test_blocks_are_smaller_where_large_ones_do_not_fit(server: Server, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_source, "BLOCKS", (16 * BLOCK, BLOCK))
    pipeline = far(server).shuffle(seed=3, window=40).batch(16)
    assert "blocks of 1.0 MB are fetched ahead" in pipeline.explain()
    with pipeline.loader(memory=4 * 10 * BLOCK) as loader:
        assert "blocks of 65.5 kB are fetched ahead" in loader._explained()


def test_resumed_in_the_middle_it_goes_on_with_the_same_batches(server: Server, shards: Path) -> None:
    pipeline = far(server).shuffle(seed=3, window=40).batch(16)
    with pipeline.loader(threads=2) as loader:
        first = [batch["cls"].tolist() for _, batch in zip(range(11), loader)]
        state = loader.state_dict()
    rest = [labels for _, labels in taken(pipeline, 1, state)]
    assert first + rest == [labels for _, labels in taken(near(shards).shuffle(seed=3, window=40).batch(16), 1)]


def test_ranks_and_worker_processes_read_their_own_samples(server: Server, shards: Path) -> None:
    for rank in range(2):
        there, here = (source.shuffle(seed=3, window=40).shard(rank, 2).batch(8) for source in (far(server), near(shards)))
        assert taken(there, 1) == taken(here, 1)
    whole = far(server).shuffle(seed=3, window=40).batch(16)
    assert taken(whole, 1, processes=2, threads=1) == taken(whole, 1)


def test_a_mix_a_filter_and_tfrecords_read_ahead_too(server: Server, shards: Path, tmp_path: Path) -> None:
    def odd(sample: Any) -> bool:
        return bool(sample["cls"] % 2)

    assert taken(far(server).filter(odd).batch(8)) == taken(near(shards).filter(odd).batch(8))
    mixed = [stoker.mix([source, source.shuffle(seed=1)], weights=[0.5, 0.5]) for source in (far(server), near(shards))]
    assert taken(mixed[0].batch(8), 1) == taken(mixed[1].batch(8), 1)
    stoker.write_tfrecord(str(tmp_path / "t-{:d}.tfrecord"), ({"x": n, "y": b"y" * n} for n in range(90)), max_samples=30)
    server.put_all(tmp_path.iterdir())
    over_http = stoker.tfrecord(f"{server.origin}/t-{{0..2}}.tfrecord").shuffle(seed=1, window=20).batch(9)
    local = stoker.tfrecord(str(tmp_path)).shuffle(seed=1, window=20).batch(9)
    assert [list(batch["y"]) for batch in over_http] == [list(batch["y"]) for batch in local]


def test_a_server_that_fails_for_a_while_costs_nothing_but_time(server: Server, shards: Path) -> None:
    pipeline = far(server).shuffle(seed=3, window=40).batch(16)
    for number in range(SHARDS):
        server.script(f"/s-{number}.tar", *[Status(500)] * 40)
    assert taken(pipeline, 1) == taken(near(shards).shuffle(seed=3, window=40).batch(16), 1)


def test_a_loader_that_is_closed_fetches_no_more_and_waits_for_nobody_who_idles(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_LOOK_S", 3600.0)
    pipeline = far(server).shuffle(seed=3, window=40).batch(16)
    loader = pipeline.loader(threads=2)
    next(iter(loader))
    ahead = loader._plan.source._ahead
    loader.close()
    assert not ahead._blocks and not ahead._fetchers


def test_positions_of_ranks_and_parts_are_disjoint_and_all() -> None:
    deals = [Deal(4, rank, 3) for rank in range(3)]
    found = [rank_positions(24, 40, 24 + 240, deal, StepTurns(part, 2)) for deal in deals for part in range(2)]
    assert sorted(np.concatenate(found).tolist()) == list(range(24, 24 + 240)) and {len(each) for each in found} == {40}
    runs = [rank_positions(0, 6, 60, Deal(1), StepTurns(part, 2, 3)).tolist() for part in range(2)]
    assert runs == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]
    on = [rank_positions(start, 4, 60, Deal(1), StepTurns(0, 2), begun=0).tolist() for start in (0, 1, 2)]
    assert on == [[0, 2, 4, 6], [2, 4, 6, 8], [2, 4, 6, 8]], "turns do not begin again where the source is told"
    assert rank_positions(0, 5, None, deals[1]).tolist() == [4, 5, 6, 7]
    assert rank_positions(7, 5, 9, None).tolist() == [7, 8]


class _Listening(ArraysSource):
    """A source that notes the samples it is told of."""

    foresight = ForesightSpan(90, whole=False, shared=False)

    def foresee(self, indices: Ints, decoded: bool, lead: int = 0) -> None:
        self.heard = indices.tolist()


class _CountedOrder(Order):
    """An order that counts the samples it is asked for."""

    asked = 0

    def resolve(self, positions: Ints, epoch: int) -> Ints:
        type(self).asked += len(positions)
        return super().resolve(positions, epoch)


@pytest.mark.parametrize("rank", [None, 0, 2])
def test_what_comes_is_said_again_and_again_and_computed_once(rank: int | None) -> None:
    length, deal = 400, None if rank is None else Deal(4, rank, 3)
    order = _CountedOrder((Shuffle(7, 40),), length)
    source = _Listening({"x": np.arange(length)})
    ahead, said = Forerunner(source, order, Cursor(0, 0), False, deal=deal, lead=24), 0
    _CountedOrder.asked = 0
    try:
        for place in range(0, 3 * length, 12):
            epoch, row = divmod(place, length)
            source.heard = []
            ahead.reached(Cursor(epoch, row - row % 12))
            if source.heard:
                said += len(source.heard)
                now = rank_positions(row - row % 12, 90, length, deal, begun=0)
                then = rank_positions(0, 90 - len(now), length, deal, begun=0)
                due = [Order.resolve(order, now, epoch), Order.resolve(order, then, epoch + 1)]
                assert source.heard == np.concatenate(due).tolist(), (epoch, row)
    finally:
        ahead.close()
    taken_in = 3 * length + 90 if deal is None else length + 90
    assert said > 4 * taken_in > 3 * _CountedOrder.asked


def test_what_servers_took_is_counted(server: Server) -> None:
    pipeline = far(server).shuffle(seed=3, window=40).batch(16)
    with pipeline.loader(threads=2) as loader:
        assert loader.facts().stored == "network", "also where blocks are read ahead"
        before = loader.facts().requests
        for _ in loader:
            pass
        facts, traffic = loader.facts(), loader._plan.source.traffic()
    assert facts.requests > before and traffic.requests >= facts.requests
    assert traffic.nbytes > SAMPLES * 3000 and facts.answer_s > 0 and facts.receive_s >= 0


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of some kilobytes, every seventh a PNG, which the kernel leaves to others, and one that nobody can decode."""
    folder, drawn = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)

    def encoded(number: int) -> bytes:
        file = io.BytesIO()
        pixels = drawn.integers(0, 256, (40 + number % 9, 60, 3), np.uint8)
        Image.fromarray(pixels).save(file, "PNG" if number % 7 == 3 else "JPEG")
        return b"no picture at all" if number == 50 else file.getvalue()

    samples = ({"__key__": f"{n:04d}", "jpg": encoded(n), "cls": n} for n in range(240))
    stoker.write_tar(str(folder / "p-{:d}.tar"), samples, max_samples=60)
    drawn = np.random.default_rng(1)
    stoker.write_tfrecord(str(folder / "p-{:d}.tfrecord"), ({"jpg": encoded(n), "cls": n} for n in range(99)), max_samples=33)
    return folder


def shown(source: stoker.Pipeline, to: Path) -> tuple[list[Any], list[str]]:
    """Pictures and labels of an epoch, and what was said of those that were left out."""
    to.unlink(missing_ok=True)
    pipeline = source.shuffle(seed=3, window=40).image("jpg", RandomResizedCrop(16))
    pipeline = pipeline.on_error("skip", budget=2, quarantine=to).batch(16, drop_last=False)
    batches = [(batch["jpg"].tobytes(), batch["cls"].tolist()) for batch in pipeline]
    return batches, [json.loads(line)["reason"].partition("p-")[2] for line in to.read_text().splitlines()]


def test_pictures_are_decoded_where_their_blocks_lie_and_are_the_same(server: Server, pictures: Path, tmp_path: Path) -> None:
    server.put_all(pictures.iterdir())
    told = tmp_path / "told"
    there, wrong = shown(stoker.tar(f"{server.origin}/p-{{0..3}}.tar", patience=QUICK), told)
    assert (there, wrong) == shown(stoker.tar(str(pictures / "*.tar")), told) and len(wrong) == 1
    assert sum(len(server.asked(f"/p-{number}.tar")) for number in range(4)) < 120, "not one by one"
    records = f"{server.origin}/p-{{0..2}}.tfrecord", str(pictures / "*.tfrecord")
    assert shown(stoker.tfrecord(records[0]), told) == shown(stoker.tfrecord(records[1]), told)


def test_a_damaged_record_is_named_and_no_other(server: Server, pictures: Path, tmp_path: Path) -> None:
    server.put_all(pictures.glob("*.tar*"))
    data = bytearray((pictures / "p-2.tar").read_bytes())
    data[len(data) // 2] ^= 1
    server.put("/p-2.tar", bytes(data), etag=None)
    found, wrong = shown(stoker.tar(f"{server.origin}/p-{{0..3}}.tar", patience=QUICK), tmp_path / "told")
    assert len(wrong) == 2 and sum("does not match the checksum" in text for text in wrong) == 1
    assert sum(len(labels) for _, labels in found) == 238
