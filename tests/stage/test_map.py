"""Users' functions over samples and fields."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import BatchError, FunctionError
from stoker.source.chunk import Chunk
from stoker.source.sample_names import ListedNames, NamedColumns, NamedSample

from ..loader.runs import numbers


def test_a_function_gets_a_dict_and_gives_the_new_sample() -> None:
    def square(sample: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(sample, dict)
        return {"square": sample["x"] ** 2}

    assert [batch["square"].tolist() for batch in numbers(4).map(square).batch(2)] == [[0, 1], [4, 9]]


def test_functions_over_fields_are_applied_in_turn_and_leave_the_rest() -> None:
    batch = next(iter(numbers(4).map(x=[lambda v: v + 1, lambda v: v * 10]).batch(4)))
    assert batch["x"].tolist() == [10, 20, 30, 40] and batch["y"].shape == (4, 5)


@pytest.mark.parametrize("result", [None, 3, [1, 2], "text", (1, 2)], ids=repr)
def test_a_function_that_gives_no_mapping_is_told_so(result: Any) -> None:
    with pytest.raises(FunctionError, match=f"must return the new sample.*not {type(result).__name__}.*map\\(field=fn\\)"):
        list(numbers().map(lambda sample: result).batch(2))


def test_names_of_fields_are_text() -> None:
    with pytest.raises(FunctionError, match="mapping of field names"):
        list(numbers().map(lambda sample: {1: 2}).batch(2))


def test_samples_that_disagree_on_their_fields_are_named() -> None:
    def uneven(sample: dict[str, Any]) -> dict[str, Any]:
        return {"a": 1, "b": 2} if sample["x"] == 2 else {"a": 1}

    with pytest.raises(BatchError, match="'b'"):
        list(numbers().map(uneven).batch(4))


def test_random_numbers_depend_on_the_place_and_on_nothing_else() -> None:
    def draw(value: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 40))

    pipeline = numbers().shuffle(seed=1).map(x=draw, rng=True).batch(60)
    with pipeline.loader() as loader:
        first, second = next(iter(loader))["x"], next(iter(loader))["x"]
    assert len(set(first.tolist()) | set(second.tolist())) == 120, "no two samples, and no two epochs, draw alike"
    assert np.array_equal(next(iter(pipeline))["x"], first)
    other_seed = next(iter(numbers().shuffle(seed=2).map(x=draw, rng=True).batch(60)))["x"]
    assert not set(first.tolist()) & set(other_seed.tolist())


def test_every_function_draws_numbers_of_its_own() -> None:
    def draw(value: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 40))

    def collect(value: Any, rng: np.random.Generator) -> list[int]:
        return [value, int(rng.integers(1 << 40))]

    def both(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**sample, "z": rng.integers(1 << 40)}

    pipeline = numbers().map(x=[draw, collect], y=draw, rng=True).map(both, rng=True).batch(60, pad={"x": 0})
    batch = next(iter(pipeline))
    drawn = [*batch["x"].ravel().tolist(), *batch["y"].tolist(), *batch["z"].tolist()]
    assert len(set(drawn)) == 4 * 60


def test_functions_are_not_called_for_rows_that_failed_before_them() -> None:
    seen: list[Any] = []

    def picky(value: Any) -> Any:
        if value == 1:
            raise ValueError
        return value

    pipeline = numbers(3).map(x=[picky, lambda value: seen.append(value) or value]).batch(3).on_error("skip", budget=1)
    assert next(iter(pipeline))["x"].tolist() == [0, 2]
    assert sorted(seen) == [0, 2]


def test_a_function_may_change_what_it_was_given() -> None:
    source = np.arange(20.0).reshape(10, 2)

    def spoil(sample: dict[str, Any]) -> dict[str, Any]:
        sample["x"] += 100
        return sample

    pipeline = stoker.arrays(x=source).map(spoil).batch(5)
    assert [batch["x"].min() for batch in pipeline] == [100, 110]
    assert source.max() == 19, "the user's arrays are not touched"


# ---- which sample it is ------------------------------------------------------------------------------------------------


def told(sample: NamedSample) -> dict[str, Any]:
    """What a sample says of itself."""
    assert sample["__key__"] == sample.key
    return {"told": (sample.key, sample.origin, sample.index)}


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Six samples in two tar shards, which are there compressed too, and as TFRecords."""
    samples = [{"__key__": f"s/{n}", "cls": n} for n in range(6)]
    stoker.write_tar(tmp_path / "{}.tar", samples, max_samples=3)
    stoker.write_tfrecord(tmp_path / "{}.tfrecord", samples, max_samples=3)
    for path in [*tmp_path.glob("*.tar"), *tmp_path.glob("*.tfrecord")]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    return tmp_path


@pytest.mark.parametrize(
    ("ending", "key", "place"),
    [
        (".tar", "s/4", "000001.tar, byte 1,536"),
        (".tar.gz", "s/4", "000001.tar.gz, byte 1,536"),
        (".tfrecord", "000001.tfrecord#1", "000001.tfrecord, byte "),
        (".tfrecord.gz", "000001.tfrecord.gz#1", "000001.tfrecord.gz, record 1"),
    ],
)
def test_a_sample_of_a_shard_knows_its_key_its_place_and_its_number(shards: Path, ending: str, key: str, place: str) -> None:
    opened = (stoker.tar if ".tar" in ending else stoker.tfrecord)(str(shards / f"*{ending}"))
    found = [sample["told"] for sample in opened.map(told)]
    assert [index for _, _, index in found] == list(range(6))
    assert found[4][0] == key and found[4][1].startswith(str(shards / place))


def test_samples_of_files_and_streams_know_who_they_are(tmp_path: Path, image_folder: Path) -> None:
    found = stoker.files(image_folder).map(told).sample(0)["told"]
    assert found == ("cat/cat_00.jpg", str(image_folder / "cat/cat_00.jpg"), 0)

    def samples() -> Iterator[dict[str, Any]]:
        yield from ({"__key__": f"k{n}", "n": n} for n in range(5))

    assert sorted(sample["told"] for sample in stoker.stream(samples).shuffle(seed=1, window=3).map(told)) == [
        (f"k{n}", f"k{n}", n) for n in range(5)
    ]


def test_in_a_mix_the_number_counts_the_samples_of_all_members() -> None:
    mixed = stoker.mix([numbers(3).shuffle(seed=1), stoker.arrays(x=np.arange(10, 13))])
    found = {int(x): index for x, (_, _, index) in ((s["x"], s["told"]) for s in mixed.map(lambda s: {**s, **told(s)}))}
    assert found == {0: 0, 1: 1, 2: 2, 10: 3, 11: 4, 12: 5}


def test_a_sample_is_a_dict_of_its_fields_and_of_nothing_else() -> None:
    seen: list[Any] = []
    list(numbers(1).map(lambda sample: seen.append(sample) or sample))
    sample = seen[0]
    assert (
        list(sample) == ["x", "y"] and "__key__" not in sample and sample.get("__key__") == sample.key and sample.get("z") is None
    )
    assert {**sample, "z": 1}.keys() == (sample | {"z": 1}).keys() == {"x", "y", "z"}
    assert json.dumps(NamedSample.of({"a": [1]}, ListedNames(["k"], ["o"], [0]), 0)) == '{"a": [1]}'
    with pytest.raises(KeyError, match="no field 'z'; the fields are x, y"):
        sample["z"]


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda sample: sample.copy(), lambda sample: pickle.loads(pickle.dumps(sample))],  # noqa: S301
)
def test_a_copy_of_a_sample_is_named_like_it_and_does_not_take_its_source_along(again: Any) -> None:
    sample = stoker.arrays(x=np.zeros((200_000, 1))).sample(7)
    assert len(pickle.dumps(sample)) < 1000
    same = again(sample)
    assert same == sample and (same.key, same.origin, same.index) == ("7", "7", 7)


@pytest.mark.parametrize(
    ("kind", "name"), [(NamedSample, "key"), (NamedSample, "origin"), (NamedSample, "index"), (NamedColumns, "sample_keys")]
)
def test_one_that_a_function_makes_itself_is_a_dict_without_a_key(kind: Any, name: str) -> None:
    made = pickle.loads(pickle.dumps(kind({"x": 1}))).copy()  # noqa: S301
    assert type(made) is kind and made == {"x": 1} and made.get("__key__", "none") == "none"
    with pytest.raises(KeyError, match="no field '__key__'; the fields are x"):
        made["__key__"]
    with pytest.raises(AttributeError, match="made from a dict"):
        getattr(made, name)
    made["__key__"] = "own"
    assert made.get("__key__") == made.copy()["__key__"] == "own"


def test_a_copy_of_columns_has_their_keys() -> None:
    seen: list[Any] = []
    list(numbers(2).batch(2).map_batch(lambda columns: seen.append(columns.copy()) or columns))
    assert (seen[0].sample_keys, seen[0].rows) == (["0", "1"], 2)


def test_a_sample_that_is_kept_does_not_keep_those_read_with_it() -> None:
    column = np.arange(3)
    places = np.arange(3)
    chunk = Chunk({"x": column}, places, places, places, 0, ListedNames(["a", "b", "c"], ["a", "b", "c"], [0, 1, 2]))
    kept, alive = chunk.row(1), weakref.ref(column)
    del chunk, column
    assert alive() is None and kept.key == "b" and kept["x"] == 1


def test_a_key_that_a_function_returns_is_the_samples_key_from_then_on() -> None:
    def named(sample: NamedSample) -> dict[str, Any]:
        key = {0: "zero", 1: b"caf\xe9", 2: 2.5, 3: None}[int(sample["x"])]
        return {"__key__": key, "x": sample["x"]}

    def fail(value: Any) -> Any:
        raise ValueError("oh")

    pipeline = numbers(4).map(named)
    batch = next(iter(pipeline.map(lambda sample: {**sample, "key": sample.key}).batch(4)))
    assert list(batch.keys()) == ["x", "key"]
    assert batch.sample_keys == batch["key"] == ["zero", r"caf\xe9", "2.5", "3"]
    kept = pipeline.filter(lambda s: s.key != "2.5").batch(1)
    assert [key for each in kept for key in each.sample_keys] == ["zero", r"caf\xe9", "3"]
    with pytest.raises(FunctionError, match="on sample 'zero': oh") as caught:
        list(pipeline.map(x=fail).batch(4))
    assert caught.value.key == "zero" and caught.value.origin == "0"


def test_webdatasets_habit_of_passing_the_key_on_is_right_here(shards: Path) -> None:
    pipeline = stoker.tar(str(shards / "*.tar")).map(lambda sample: {"__key__": sample["__key__"], "n": sample["cls"]})
    batch = next(iter(pipeline.batch(6)))
    assert list(batch.keys()) == ["n"] and batch.sample_keys == [f"s/{n}" for n in range(6)]


def test_a_single_sample_knows_which_it_is() -> None:
    sample = numbers(9).shuffle(seed=3).map(x=lambda x: x + 1).batch(3).sample(4)
    assert isinstance(sample, dict) and sample["x"] == sample.index + 1 and sample.key == str(sample.index)


def test_torchvisions_transforms_look_into_a_sample_as_into_a_dict() -> None:
    from ..image.vision import torch, v2

    pixels = np.random.default_rng(0).integers(0, 255, (4, 3, 8, 8), dtype=np.uint8)

    def tensor(image: Any) -> Any:
        return torch.from_numpy(image.copy())

    transform = v2.Compose([v2.CenterCrop(4), v2.ToDtype(torch.float32, scale=True)])
    batch = next(iter(stoker.arrays(image=pixels, n=np.arange(4)).map(image=tensor).map(transform).batch(4)))
    assert batch["image"].shape == (4, 3, 4, 4) and batch["image"].dtype == np.float32 and batch["n"].tolist() == [0, 1, 2, 3]
