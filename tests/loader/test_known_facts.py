"""What a loader knows of its data, for the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.image import CenterCrop, RandomResizedCrop
from stoker.loader.idle_cores import IdleCores

from ..support import Passing, jpeg_bytes


@pytest.fixture
def photos(tmp_path: Path) -> stoker.Pipeline:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg_bytes(40, 30, seed=number))
    return stoker.files(tmp_path, labels=None)


def same(x: Any) -> Any:
    return x


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return x + rng.random()


def test_a_cache_may_hold_what_is_made_without_random_numbers(photos: stoker.Pipeline) -> None:
    crops = photos.image("image", CenterCrop(16))
    for pipeline, prefix in (
        (crops.batch(2), ("read", "image('image')")),
        (photos.image("image", RandomResizedCrop(16)).batch(2), ("read",)),
        (crops.map(image=same).map(image=drawn, rng=True).batch(2), ("read", "image('image')", "map image")),
        (crops.filter(same).batch(2), ()),
    ):
        with pipeline.loader() as loader:
            assert loader.facts().prefix == prefix


def test_seek_indices_are_missed_where_crops_are_decoded(photos: stoker.Pipeline) -> None:
    with photos.image("image", CenterCrop(16)).batch(2).loader() as whole:
        assert not whole.facts().seekless
    with photos.image("image", RandomResizedCrop(16)).batch(2).loader() as crops:
        assert crops.facts().seekless
    made = stoker.mix([photos, photos]).map(lambda sample: {"made": sample["image"]})
    with made.image("made", RandomResizedCrop(16)).batch(2).loader() as loader:
        assert not loader.facts().seekless, "what a function makes has no index"


def test_facts_say_where_samples_are_and_what_the_user_chose(photos: stoker.Pipeline, tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "s.tar", [{"__key__": "a", "txt": b"x"}, {"__key__": "b", "txt": b"y"}])
    with stoker.tar(tmp_path / "s.tar").batch(2).loader(threads=1, ahead=3, memory="1MB") as loader:
        facts = loader.facts()
    assert (facts.stored, facts.samples, facts.chosen, facts.ahead, facts.budget) == ("shards", 2, True, 3, 1_000_000)
    with photos.batch(2).loader() as loader:
        assert (loader.facts().stored, loader.facts().chosen) == ("files", False)
        assert loader.facts().idle_cores is None  # nothing was asked for yet
    with stoker.stream(lambda: iter([{"x": 1}])).batch(1).loader() as loader:
        assert (loader.facts().stored, loader.facts().samples) == ("stream", 0)


def test_cores_are_idle_only_while_batches_are_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr("stoker.loader.idle_cores.idle_seconds", lambda: seconds[0])
    monkeypatch.setattr("stoker.loader.idle_cores.usable_cores", lambda: 4)
    monkeypatch.setattr("stoker.loader.idle_cores.time", Passing())
    cores = IdleCores()
    assert cores.mean() is None
    for now, idle_s, paused in ((0.1, 9.0, False), (1.0, 1.0, False), (11.0, 40.0, True), (12.0, 41.0, False)):
        seconds[0] = idle_s
        cores.look(now, paused)
    seconds[0] = 400.0  # after the last batch
    assert cores.mean() == 1.0
