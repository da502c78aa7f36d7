"""`cache()`: the same batches with and without it, samples made once, and what it refuses."""

from __future__ import annotations

import itertools
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import BatchError, ConfigError, WriteError
from stoker.image import CenterCrop, HorizontalFlip, RandomResizedCrop, Resize
from stoker.loader import Loader
from stoker.plan.nodes import Cached
from stoker.source.arrays import ArraysSource

from ..support import jpeg_bytes
from .runs import run_python

N = 40
LARGE = 20_000  # bytes of a sample that has pages of its own


def numbers(n: int = N) -> Pipeline:
    return stoker.arrays(x=np.arange(n), y=np.arange(3 * n, dtype=np.float32).reshape(n, 3))


def doubled(sample: Any) -> dict[str, Any]:
    return {"x": sample["x"], "y": sample["y"] * 2, "named": f"{sample.key}!", "__key__": f"k{sample.key}"}


def noisy(sample: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "noise": rng.random()}


def parts(sample: Any) -> list[dict[str, Any]]:
    return [{**sample, "part": part} for part in range(int(sample["x"]) % 4)]


def seen(loader: Loader, epochs: int = 2) -> list[Any]:
    return [
        (
            [(name, column.tolist() if isinstance(column, np.ndarray) else list(column)) for name, column in batch.items()],
            batch.sample_keys,
        )
        for _ in range(epochs)
        for batch in loader
    ]


def without(pipeline: Pipeline) -> Pipeline:
    return Pipeline(pipeline._source, tuple(node for node in pipeline._nodes if not isinstance(node, Cached)))


WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "inline"},
    {"executor": "threads", "threads": 2},
    {"executor": "processes", "processes": 2, "threads": 1},
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["executor"])
@pytest.mark.parametrize("where", ["memory", "folder"])
def test_batches_are_the_same_and_the_second_epoch_is_found(way: dict[str, Any], where: str, tmp_path: Path) -> None:
    place = "memory" if where == "memory" else tmp_path
    pipeline = numbers().shuffle(seed=5).map(doubled).cache(place).map(noisy, rng=True).batch(8)
    with pipeline.loader(**way) as loader, without(pipeline).loader(executor="inline") as plain:
        assert seen(loader, 3) == seen(plain, 3)
        stats = loader.stats()
    asked = (stats.cache_hits, stats.cache_misses)
    assert asked == (2 * N, N) if way["executor"] == "inline" else min(asked) > 0  # what is made ahead counts too
    assert "cache" in stats.steps_s


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way["executor"])
def test_pictures_are_decoded_once_and_then_flipped_each_time(way: dict[str, Any], tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / f"{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg_bytes(48, 40 + number, seed=number))
    pipeline = (
        stoker.files(tmp_path)
        .shuffle(seed=1)
        .image("image", Resize(32), CenterCrop(24))
        .cache()
        .image("image", HorizontalFlip())
        .batch(4)
    )
    with pipeline.loader(**way) as loader, without(pipeline).loader(executor="inline") as plain:
        assert seen(loader, 3) == seen(plain, 3)


def test_rows_that_a_sample_became_are_found_together() -> None:
    pipeline = numbers().shuffle(seed=2).map(doubled).flat_map(parts).filter(odd_part).cache().map(noisy, rng=True).batch(4)
    with pipeline.loader(executor="inline") as loader, without(pipeline).loader(executor="inline") as plain:
        assert seen(loader, 3) == seen(plain, 3)
        assert loader.stats().cache_misses == N


def odd_part(sample: Any) -> bool:
    return bool(sample["part"] % 2)


def test_a_later_run_finds_the_folder_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = numbers().map(y=abs).cache(tmp_path / "cache").batch(8)
    with pipeline.loader(executor="inline") as loader:
        first = seen(loader, 1)

    def unread(*_: Any) -> Any:
        raise AssertionError("the source was read")

    monkeypatch.setattr(ArraysSource, "read", unread)
    with numbers().map(y=abs).cache(tmp_path / "cache").batch(8).loader(executor="inline") as loader:
        assert seen(loader, 1) == first
        assert (loader.stats().cache_hits, loader.stats().cache_misses) == (N, 0)


def test_other_data_other_steps_and_other_code_are_not_found(tmp_path: Path) -> None:
    def scaled(by: int) -> Any:
        return lambda value: value * by

    def misses(pipeline: Pipeline) -> int:
        with pipeline.batch(8).loader(executor="inline") as loader:
            seen(loader, 1)
            return loader.stats().cache_misses

    files = tmp_path / "files"
    (files / "a").mkdir(parents=True)
    (files / "a" / "1.jpg").write_bytes(jpeg_bytes(16, 16, seed=0))
    pipelines: list[Any] = [
        lambda: numbers().map(x=scaled(2)).cache(tmp_path),
        lambda: numbers().map(x=scaled(3)).cache(tmp_path),
        lambda: numbers().map(x=lambda value: value * 2).cache(tmp_path),
        lambda: numbers(48).map(x=scaled(2)).cache(tmp_path),
        lambda: numbers().map(x=scaled(2)).cache(tmp_path).select("x"),
    ]
    for make in pipelines:
        assert misses(make()) > 0
        assert misses(make()) == 0

    def pictures() -> Pipeline:
        return stoker.files(files).cache(tmp_path).repeat(8)

    assert misses(pictures()) > 0
    assert misses(pictures()) == 0
    (files / "a" / "1.jpg").write_bytes(jpeg_bytes(20, 20, seed=1))
    assert misses(pictures()) > 0


def tfrecords(path: Path, x: Any) -> Pipeline:
    stoker.write_tfrecord(f"{path}.tfrecord", [{"x": int(value)} for value in x], overwrite=True)
    return stoker.tfrecord(f"{path}.tfrecord")


def database(path: Path, x: Any) -> Pipeline:
    stoker.write_lmdb(f"{path}.lmdb", [{"x": int(value)} for value in x], overwrite=True)
    return stoker.lmdb(f"{path}.lmdb")


def shards(path: Path, x: Any) -> Pipeline:
    stoker.write_tar(f"{path}.tar", [{"x.cls": int(value)} for value in x], overwrite=True)
    return stoker.tar(f"{path}.tar").rename(x="x.cls")


def mapped(path: Path, x: Any) -> Pipeline:
    np.save(f"{path}.npy", x)
    return stoker.arrays(x=np.load(f"{path}.npy", mmap_mode="r"))


def held(path: Path, x: Any) -> Pipeline:
    return stoker.arrays(x=x)


@pytest.mark.parametrize("make", [tfrecords, database, shards, mapped, held])
def test_data_of_the_same_size_and_other_contents_are_not_found(make: Any, tmp_path: Path) -> None:
    if make is database:
        pytest.importorskip("lmdb")
    x, changed = np.full(8, 3), np.full(8, 3)
    changed[4] = 5
    for values in (x, changed):
        pipeline = make(tmp_path / "data", values).cache(tmp_path / "cache").batch(8)
        for again in (8, 0):
            with pipeline.loader(executor="inline") as loader:
                assert [batch["x"].tolist() for batch in loader] == [values.tolist()]
                assert loader.stats().cache_misses == again


def test_a_state_is_the_same_with_and_without_a_cache() -> None:
    pipeline = numbers().shuffle(seed=3).cache().map(noisy, rng=True).batch(8)
    assert pipeline.fingerprint() == without(pipeline).fingerprint()
    with pipeline.loader(executor="inline") as loader, without(pipeline).loader(executor="inline") as plain:
        steps = iter(plain)
        next(steps), next(steps)
        state = plain.state_dict()
        rest = [batch["noise"].tolist() for batch in steps]
        seen(loader, 1)
        loader.load_state_dict(state)
        assert [batch["noise"].tolist() for batch in loader] == rest


def test_a_pipeline_that_is_iterated_itself_keeps_its_memory() -> None:
    calls: list[int] = []

    def counted(value: Any) -> Any:
        calls.append(1)
        return value

    pipeline = numbers().map(x=counted).cache().batch(8)
    for _ in range(3):
        assert len(list(pipeline)) == 5
    assert len(calls) == N and len(pipeline) == 5 and pipeline.sample(3)["x"] == 3


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: numbers().map(noisy, rng=True).cache(), r"noisy.* draws random numbers; put cache\(\) before it"),
        (lambda: stoker.files(".").image("image", RandomResizedCrop(8)).cache(), "RandomResizedCrop.* draws random numbers"),
        (lambda: stoker.stream(lambda: [{"x": 1}]).cache(), "stoker pack"),
        (lambda: numbers().batch(2).cache(), r"put it before batch\(\)$"),
        (lambda: numbers().cache().cache(), "appears twice"),
        (lambda: numbers().filter(bool).take(3).cache(), "put cache.. before that verb"),
        (lambda: numbers().on_error("skip").filter(bool).map(x=abs).cache(), r"put map\(\) before filter\(\) or after cache\(\)"),
    ],
)
def test_a_cache_where_samples_differ_or_have_no_number_is_refused(
    make: Any, told: str, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(jpeg_bytes(16, 16, seed=0))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told):
        make().plan


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    for arguments, told in (
        ({"where": "s3://bucket/x"}, "s3"),
        ({"bytes": "many"}, "not a size"),
        ({"where": ""}, "cannot be a file name"),
    ):
        with pytest.raises(ConfigError, match=told):
            numbers().cache(**arguments)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="use a writable folder"):
        numbers().cache(tmp_path / "file").batch(2).loader()


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way["executor"])
def test_a_function_that_draws_is_found_out_and_nothing_is_kept(way: dict[str, Any]) -> None:
    def drawing(value: Any) -> Any:
        return value + random.random()

    with numbers().map(x=drawing).cache().batch(8).loader(**way) as loader:
        with pytest.raises(ConfigError, match=r"drawing, which draws random numbers"):
            next(iter(loader))
        assert loader._machinery.cache is not None and not len(loader._machinery.cache.kept()[0])


def test_a_value_that_cannot_be_kept_is_named() -> None:
    told = r"field 'x' of sample '0' is a set, which cannot be kept; put cache\(\) before"
    pipeline = numbers().map(x=lambda value: {value}).cache().batch(8)
    with pipeline.loader(executor="inline") as loader, pytest.raises(BatchError, match=told):
        next(iter(loader))


def test_a_full_cache_keeps_what_is_needed_soonest() -> None:
    """As many samples are found as when what is needed last is removed for each new one: no choice gives more."""
    n, room, epochs = 24, 7, 6
    source = stoker.arrays(x=np.arange(n), y=np.zeros((n, LARGE), np.uint8))
    pipeline = source.shuffle(seed=4).take(10).cache(bytes=(room + 1) * 20480)
    with pipeline.batch(1).loader(executor="inline") as loader:
        coming = [int(batch["x"][0]) for _ in range(epochs) for batch in loader]
        hits = loader.stats().cache_hits
    kept: dict[int, int] = {}
    best = 0
    for at, sample in enumerate(coming):
        best += sample in kept
        later = coming[at + 1 : (at // 10 + 2) * 10]  # as far as this epoch and the next
        kept[sample] = at + 1 + later.index(sample) if sample in later else 1 << 30
        for other in kept:
            if kept[other] <= at:
                kept[other] = next((place for place in range(at + 1, (at // 10 + 2) * 10) if coming[place] == other), 1 << 30)
        if len(kept) > room:
            del kept[max(kept, key=lambda other: kept[other])]
    assert hits >= best > 0


def test_loaders_at_work_at_the_same_time_share_a_folder(tmp_path: Path) -> None:
    source = stoker.arrays(x=np.arange(N), y=np.arange(N, dtype=np.uint8)[:, None].repeat(LARGE, axis=1))
    pipeline = source.shuffle(seed=1).take(30).cache(tmp_path, bytes=9 * 20480)  # some have to make room for others
    with ExitStack() as stack:
        loaders = [stack.enter_context(pipeline.batch(size).loader(threads=2)) for size in (3, 5)]
        plain = [stack.enter_context(without(pipeline).batch(size).loader(executor="inline")) for size in (3, 5)]
        for _ in range(4):
            for batches in zip(*loaders), zip(*plain):
                for one, other in batches:
                    for batch in (one, other):
                        assert (batch["y"] == batch["x"][:, None]).all()
        cache = loaders[0]._machinery.cache
        assert cache is not None and cache.used <= cache.limit


def test_a_forked_child_finds_what_is_kept_and_stores_nothing() -> None:
    script = """
import os
import numpy as np, stoker
with stoker.arrays(x=np.arange(40)).cache().batch(8).loader(executor="inline") as loader:
    first = [batch["x"].tolist() for batch in loader]
    child = os.fork()
    if not child:
        again = [batch["x"].tolist() for batch in loader]
        stored = loader._machinery.cache.write(np.array([0]), [[b"no"]])
        os._exit(0 if again == first and loader.stats().cache_hits == 40 and not stored else 1)
    assert os.waitpid(child, 0)[1] == 0
print("same")
"""
    done = run_python(script)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_memory_goes_back_when_a_loader_is_closed() -> None:
    source = stoker.arrays(y=np.zeros((N, LARGE), np.uint8))
    loader = source.cache().batch(8).loader(executor="threads", threads=2)
    for _ in itertools.islice(loader, 5):
        pass
    cache = loader._machinery.cache
    assert cache is not None and cache.used
    loader.close()
    assert not cache.write(np.array([0]), [[b"late"]])
    assert np.count_nonzero([value is not None for value in cache.read(np.arange(N), _scratch())]) == 0


def _scratch() -> Any:
    from stoker.storage.scratch import Scratch

    return Scratch()
