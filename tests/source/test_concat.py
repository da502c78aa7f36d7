"""Several sources as one: what `stoker.mix` draws from."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, RecordError
from stoker.source.arrays import ArraysSource
from stoker.source.concat import ConcatSource
from stoker.source.source import ForesightSpan, Source
from stoker.storage.scratch import Scratch

from ..storage.server import Server
from ..support import read, value, values
from .making import sample_tar
from .test_tar import open_source, store


def same_names(*sources: Source) -> ConcatSource:
    return ConcatSource(sources, [{name: name for name in source.fields} for source in sources])


def arrays(**columns: Any) -> ArraysSource:
    return ArraysSource(columns)


def bytes_source(folder: Path, *parts: bytes) -> Source:
    folder.mkdir()
    return open_source(store(folder, [(f"{folder.name}{n}", {"x": part, "cls": b"%d" % n}) for n, part in enumerate(parts)]))


def test_samples_follow_each_other() -> None:
    both = same_names(arrays(x=np.arange(3)), arrays(x=np.arange(10, 15)), arrays(x=np.arange(20, 21)))
    assert len(both) == 9 and both.firsts == [0, 3, 8]
    assert read(both).columns["x"].tolist() == [0, 1, 2, 10, 11, 12, 13, 14, 20]
    assert read(both, [8, 0, 5, 0, 3]).columns["x"].tolist() == [20, 0, 12, 0, 10]


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (np.zeros(2, np.int64), np.zeros(2, np.int64), "int64[]"),
        (np.zeros((2, 3)), np.zeros((2, 3)), "float64[3]"),
        (np.zeros((2, 3)), np.zeros((2, 4)), "float64[?]"),
        (np.zeros((2, 3, 5)), np.zeros((2, 4, 5)), "float64[?, 5]"),
        (np.zeros((2, 3)), np.zeros(2), "object"),
        (np.zeros(2, np.int32), np.zeros(2, np.int64), "object"),
    ],
)
def test_a_field_is_what_both_can_be(one: Any, other: Any, told: str) -> None:
    both = same_names(arrays(x=one), arrays(x=other))
    assert str(both.fields["x"]) == told
    for indices in ([0, 1, 2, 3], [3, 0], [2], [0]):
        column = read(both, indices).columns["x"]
        expected = [[*one, *other][index] for index in indices]
        assert [np.asarray(column[row]).tolist() for row in range(len(indices))] == [part.tolist() for part in expected]
        assert [np.asarray(column[row]).dtype for row in range(len(indices))] == [part.dtype for part in expected]


def test_only_common_fields_stay_in_the_order_of_the_first() -> None:
    one, other = arrays(a=np.zeros(1), b=np.ones(1), c=np.zeros(1)), arrays(c=np.ones(1), b=np.zeros(1))
    both = ConcatSource([one, other], [{"b": "b", "third": "c", "a": "a"}, {"third": "b", "b": "c"}])
    assert list(both.fields) == ["b", "third"]
    assert [values(read(both), row) for row in range(2)] == [{"b": 1.0, "third": 0.0}, {"b": 1.0, "third": 0.0}]
    with pytest.raises(ConfigError, match=r"they have a; b: rename\(\)"):
        ConcatSource([one, other], [{"a": "a"}, {"b": "b"}])


def test_fields_may_change_places() -> None:
    one = arrays(a=np.array([1]), b=np.array([2]))
    both = ConcatSource([one, one], [{"a": "a", "b": "b"}, {"a": "b", "b": "a"}])
    assert [values(read(both), row) for row in range(2)] == [{"a": 1, "b": 2}, {"a": 2, "b": 1}]


def test_offered_memory_is_filled_from_every_source() -> None:
    both = same_names(arrays(x=np.arange(6).reshape(3, 2)), arrays(x=np.arange(10, 14).reshape(2, 2)))
    for indices in ([4, 0, 3, 1], [0, 2], [4], []):
        out = np.full((len(indices), 2), -1)
        rows = read(both, indices, None, x=out)
        assert rows.columns["x"] is out or not indices
        assert out.tolist() == [[[0, 1], [2, 3], [4, 5], [10, 11], [12, 13]][index] for index in indices]


def test_bytes_of_one_source_stay_while_the_next_is_read(tmp_path: Path, scratch: Scratch) -> None:
    both = same_names(
        bytes_source(tmp_path / "a", b"one" * 100, b"two" * 100), bytes_source(tmp_path / "b", b"3" * 500, b"4" * 9000)
    )
    rows = both.read(np.array([3, 0, 2, 1, 0]), ("x", "cls"), {}, scratch)
    assert [value(rows.columns["x"], row) for row in range(5)] == [
        b"4" * 9000,
        b"one" * 100,
        b"3" * 500,
        b"two" * 100,
        b"one" * 100,
    ]
    assert rows.columns["cls"].tolist() == [1, 0, 0, 1, 0]


def test_bytes_stay_when_batches_are_made_ahead(tmp_path: Path) -> None:
    parts = [bytes([n]) * (n * 100 + 1) for n in range(40)]
    for name, some in (("a", parts[:20]), ("b", parts[20:])):
        (tmp_path / name).mkdir()
        store(tmp_path / name, [(f"{name}{n}", {"x": part}) for n, part in enumerate(some)])
    mixed = stoker.mix([stoker.tar(tmp_path / "a"), stoker.tar(tmp_path / "b")]).batch(4)
    with mixed.loader(threads=2, ahead=8) as loader:
        kept = list(loader)
    got = [bytes(part) for batch in kept for part in batch["x"]]
    assert got == [part for pair in zip(parts[:20], parts[20:]) for part in pair]


def test_errors_keep_their_row(tmp_path: Path) -> None:
    good = bytes_source(tmp_path / "a", b"1", b"2")
    bad = open_source(store(tmp_path, [("p", {"x": b"p", "cls": b"no number"}), ("q", {"x": b"q", "cls": b"7"})]))
    rows = read(same_names(good, bad), [3, 2, 0, 2])
    assert set(rows.errors) == {1, 3}
    assert all(isinstance(error, RecordError) for error in rows.errors.values())
    assert (rows.columns["cls"][0], rows.columns["cls"][2]) == (7, 0)


def test_keys_and_origins_are_those_of_the_sources(tmp_path: Path) -> None:
    both = same_names(bytes_source(tmp_path / "a", b"1"), bytes_source(tmp_path / "b", b"2", b"3"))
    assert [both.key(index) for index in range(3)] == ["a0", "b0", "b1"]
    assert both.origin(2).startswith(str(tmp_path / "b"))
    assert both.describe().startswith("3 samples of tar(") and " + tar(" in both.describe()


def test_the_fingerprint_is_of_all_sources_their_order_and_their_names() -> None:
    one, other = arrays(x=np.arange(3), y=np.arange(3)), arrays(x=np.arange(4), y=np.arange(4))
    prints = {
        same_names(one, other).fingerprint(),
        same_names(other, one).fingerprint(),
        same_names(one).fingerprint(),
        ConcatSource([one, other], [{"x": "x"}, {"x": "x"}]).fingerprint(),
        ConcatSource([one, other], [{"x": "x"}, {"x": "y"}]).fingerprint(),
    }
    assert len(prints) == 5


def test_classes_stay_where_they_agree() -> None:
    one, other = arrays(x=np.arange(3)), arrays(x=np.arange(3))
    one.classes = other.classes = ("cat", "dog")
    assert same_names(one, other).classes == ("cat", "dog")
    other.classes = ("dog", "cat")
    assert same_names(one, other).classes == ()


class Listener(ArraysSource):
    """Writes down what it is told."""

    def __init__(self, span: ForesightSpan | None, **columns: Any) -> None:
        super().__init__(columns)
        self.foresight = span
        self.told: list[list[int]] = []
        self.served: list[threading.Event] = []

    def foresee(self, indices: Any, decoded: bool, lead: int = 0) -> None:
        self.told.append(indices.tolist())

    def fetch_ahead(self, stop: threading.Event) -> None:
        self.served.append(stop)


def test_sources_are_told_what_comes_of_them_in_order() -> None:
    one, deaf, other = (Listener(span, x=np.arange(4)) for span in (ForesightSpan(9, True), None, ForesightSpan(5, False)))
    both = same_names(one, deaf, other)
    assert both.foresight == ForesightSpan(9, False), "as much as the one wants, spread as the other needs it"
    both.foresee(np.array([9, 3, 5, 8, 0, 11, 3]), decoded=False)
    assert (one.told, deaf.told, other.told) == ([[3, 0, 3]], [], [[1, 0, 3]])
    stop = threading.Event()
    for _ in range(4):
        both.fetch_ahead(stop)
    assert (len(one.served), len(deaf.served), len(other.served)) == (2, 0, 2)
    assert same_names(one, one).foresight == ForesightSpan(9, True) and same_names(deaf).foresight is None


def test_a_mix_of_cached_shards_is_fetched_ahead(tmp_path: Path) -> None:
    with Server() as server:
        for name in "abc":
            samples = [(f"{name}{n}", {"x": bytes([n]) * 900, "cls": b"%d" % n}) for n in range(6)]
            server.put(f"/{name}.tar", sample_tar(samples))
        caches = [stoker.Cache(tmp_path / name, limit="1MB") for name in "ab"]
        parts = [stoker.tar(f"{server.origin}/{name}.tar", cache=cache) for name, cache in zip("abc", [*caches, None])]
        mixed = stoker.mix(parts)
        assert isinstance(mixed.plan.source, ConcatSource) and mixed.plan.source.foresight is not None
        with mixed.shuffle(seed=1).batch(3).loader(threads=1) as loader:
            got = [value for batch in loader for value in batch["cls"].tolist()]
        assert sorted(got) == sorted([*range(6)] * 3)
        assert [cache.counts().fetched for cache in caches] == [1, 1]
        shared = stoker.mix([stoker.tar(f"{server.origin}/{name}.tar", cache=caches[0]) for name in "ab"])
        assert isinstance(shared.plan.source, ConcatSource) and shared.plan.source.foresight is None
        assert sum(len(batch["cls"]) for batch in shared.batch(3)) == 12


def test_it_travels_to_another_process(tmp_path: Path) -> None:
    both = same_names(bytes_source(tmp_path / "a", b"1"), bytes_source(tmp_path / "b", b"2"))
    copy = pickle.loads(pickle.dumps(both))  # noqa: S301 - its own bytes
    assert values(read(copy), 1) == {"x": b"2", "cls": 0}


def test_a_tar_and_an_lmdb_and_a_tfrecord_mix(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample_tar([(f"t{n}", {"cls": b"%d" % n, "txt": b"tar"}) for n in range(4)]))
    stoker.write_lmdb(tmp_path / "a.lmdb", [{"__key__": f"l{n}", "label": 10 + n, "text": "lmdb"} for n in range(4)])
    stoker.write_tfrecord(str(tmp_path / "a.tfrecord"), [{"label": 20 + n, "text": b"tfrecord"} for n in range(4)])
    mixed = stoker.mix(
        [
            stoker.tar(tmp_path / "a.tar").rename(label="cls", text="txt"),
            stoker.lmdb(tmp_path / "a.lmdb"),
            stoker.tfrecord(tmp_path / "a.tfrecord", features={"label": int, "text": str}),
        ]
    )
    assert [(int(sample["label"]), sample["text"]) for sample in mixed][:4] == [
        (0, "tar"),
        (10, "lmdb"),
        (20, "tfrecord"),
        (1, "tar"),
    ]
    assert len(mixed) == 12
