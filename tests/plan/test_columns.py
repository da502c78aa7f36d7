"""Names become columns when a plan is made: what is read, what is written where, and what one native call can do."""

from __future__ import annotations

import io
import pickle
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import BatchError, BoxError, ConfigError, CorruptShard, RecordError, SampleError
from stoker.image import CenterCrop, CropBox, MixUp, RandomResizedCrop, Resize
from stoker.plan.columns import read_with
from stoker.plan.nodes import Rename
from stoker.source.source import Source

from ..support import image_bytes, jpeg_bytes

CROP = CenterCrop(16)


def renamed(pipeline: Pipeline, **names: str) -> Pipeline:
    """The pipeline with new="old" names."""
    return pipeline._with(Rename(tuple((old, new) for new, old in names.items())))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of which some have a jpg, some a png, some both; number 5 has a cls where others have an index."""
    path = tmp_path_factory.mktemp("alternatives") / "a.tar"
    stoker.write_tar(path, samples())
    return path


def samples() -> Iterable[dict[str, Any]]:
    for number in range(8):
        sample: dict[str, Any] = {"__key__": f"{number}"}
        if number % 4 != 1:
            sample["jpg"] = jpeg_bytes(20, 20, seed=number)
        if number % 4 in (1, 2):
            sample["png"] = image_bytes(20, 20, seed=number, format="PNG")
        yield {**sample, ("cls" if number == 5 else "index"): number}


def batches(pipeline: Pipeline, size: int = 4) -> list[dict[str, Any]]:
    return [{name: np.asarray(column).tolist() for name, column in batch.items()} for batch in pipeline.batch(size)]


def in_one_call(pipeline: Pipeline) -> bool:
    plan = pipeline.plan
    assert isinstance(plan.source, Source)
    return read_with(plan.works[0].steps, plan.source) is not None


# ---- what is read, and under which names -----------------------------------------------------------------------------------


def abc() -> Pipeline:
    return stoker.arrays(a=np.arange(8), b=np.arange(8) * 2, c=np.arange(8) * 3)


def test_what_is_dropped_or_left_out_is_not_read() -> None:
    assert abc().drop("c").batch(2).plan.wanted == ("a", "b")
    assert renamed(abc(), z="c").select("a").batch(2).plan.wanted == ("a",)
    assert abc().batch(2).select("a", "b").map_batch(dict).plan.wanted == ("a", "b"), "a function looks at what is left"
    assert abc().filter(bool).select("a").batch(2).plan.wanted == ("a", "b", "c"), "it looked at all of them before"
    assert abc().select("a", "b").filter(bool).batch(2).drop("a").plan.wanted == ("a", "b")


def test_nothing_is_left_of_verbs_over_names_unless_a_function_decides_the_fields() -> None:
    plan = renamed(renamed(abc(), z="a").map(z=abs), y="z").drop("b").batch(2).select("y").plan
    assert [type(step.node).__name__ for step in plan.work.steps] == ["MapFields"] and not plan.finishing.steps
    plan = renamed(abc().map(lambda sample: sample), z="a").select("z").batch(2).plan
    assert [type(step.node).__name__ for step in plan.work.steps] == ["Map", "Rename", "Select"]


def test_a_function_sees_the_names_that_hold_at_its_place() -> None:
    seen: list[list[str]] = []

    def look(sample: Any) -> Any:
        seen.append(list(sample))
        return True

    pipeline = renamed(renamed(abc(), y="a").filter(look), a="b", b="y").drop("c").filter(look).select("a")
    assert batches(pipeline.take(2), 2) == [{"a": [0, 2]}]
    assert seen[0] == ["y", "b", "c"] and ["b", "a"] in seen


def test_names_that_change_after_the_batch_reach_functions_and_mixing() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 5, 3), np.uint8)
    arrays = stoker.arrays(x=pixels, y=np.arange(8), z=np.arange(8))
    plain = renamed(arrays, image="x", label="y").batch(4).blend(MixUp(1.0, classes=8)).select("label", "image")
    after = renamed(arrays.batch(4), image="x", label="y").blend(MixUp(1.0, classes=8))
    last = renamed(after, one="image").map_batch(lambda columns: {"two": columns["one"], "label": columns["label"]})
    for left, middle, right in zip(plain, renamed(after, one="image").drop("z"), last):
        assert list(left.keys()) == ["label", "image"] and list(middle.keys()) == ["one", "label"]
        np.testing.assert_array_equal(left["image"], middle["one"])
        np.testing.assert_array_equal(left["image"], right["two"])
        np.testing.assert_array_equal(left["label"], right["label"])


def test_errors_call_fields_what_users_call_them_there() -> None:
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    boxes = stoker.arrays(x=pixels, y=np.arange(4)).map(y=lambda number: "no box")
    wrong = renamed(renamed(boxes, image="x", box="y").image("image", CROP, boxes="box"), final="box").batch(2)
    with pytest.raises(BoxError, match="box 'no box' is neither"):
        list(wrong)
    with pytest.raises(ConfigError, match="'x', but the fields here are image, y"):
        _ = renamed(stoker.arrays(x=pixels, y=np.arange(4)), image="x").image("x", CROP).plan
    with pytest.raises(BatchError, match="'nope', but the samples have a, b, c"):
        list(renamed(abc().map(lambda sample: sample), z="nope").batch(2))


STAGES: dict[str, Callable[[Pipeline], Pipeline]] = {
    "image": lambda p: p.image("nope", CROP),
    "image of a box": lambda p: p.image("a", CropBox("nope"), CROP),
    "image with boxes": lambda p: p.image("a", CROP, boxes="nope"),
    "decode": lambda p: p.decode("nope"),
    "map": lambda p: p.map(nope=abs),
}


@pytest.mark.parametrize("name", STAGES)
def test_a_field_that_samples_of_unknown_fields_lack_is_named(name: str) -> None:
    for source in (stoker.stream(lambda: [{"a": 1, "b": 2}]), stoker.arrays(c=np.arange(2)).map(lambda sample: {"a": 1, "b": 2})):
        with pytest.raises(BatchError, match=f"^{name.split()[0]} names the field 'nope', but the samples have a, b"):
            list(STAGES[name](source).batch(1))


# ---- alternatives ------------------------------------------------------------------------------------------------------------


def test_of_alternatives_each_sample_gives_the_first_it_has(shard: Path) -> None:
    found = list(renamed(stoker.tar(shard), image="jpg;jpeg;png", label="index;cls"))
    assert [list(sample.keys()) for sample in found] == [["image", "label"]] * 8
    assert [sample["label"] for sample in found] == list(range(8))
    for sample, stored in zip(found, samples()):
        assert bytes(sample["image"]) == stored.get("jpg", stored.get("png"))
    first = next(iter(renamed(stoker.tar(shard), image="png;jpg").select("image").skip(2)))
    assert bytes(first["image"]) == list(samples())[2]["png"]


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_alternatives_are_read_and_decoded_in_one_call_and_in_sequence_alike(shard: Path, executor: str) -> None:
    def pixels(source: Pipeline) -> list[Any]:
        pipeline = renamed(source, image="jpg;jpeg;png", label="index;cls").image("image", RandomResizedCrop(8)).batch(4)
        with pipeline.loader(executor=executor) as loader:
            return [[batch["image"].tolist(), batch["label"].tolist()] for batch in loader]

    assert in_one_call(renamed(stoker.tar(shard), image="jpg;jpeg;png").image("image", CROP).batch(4))
    indexed = pixels(stoker.tar(shard))
    assert len(indexed) == 2 and indexed == pixels(stoker.tar(shard, index="never"))
    assert indexed == pixels(stoker.mix([stoker.tar(shard)]))
    member = renamed(stoker.tar(shard), image="jpg;jpeg;png", label="index;cls")
    with stoker.mix([member]).image("image", RandomResizedCrop(8)).batch(4).loader(executor=executor) as loader:
        assert [[batch["image"].tolist(), batch["label"].tolist()] for batch in loader] == indexed


def test_alternatives_are_chosen_in_a_stream_as_in_an_indexed_shard(tmp_path: Path) -> None:
    """The same rows, in the same order of fields, with the same defaults, whatever stands before the rename."""
    rows: list[dict[str, Any]] = [
        {"png": b"p", "cls": 1},
        {"jpg": b"j", "cls": 2},
        {"cls": 3},
        {"png": b"q", "cls": 4, "jpg": b"k"},
    ]
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": str(at), **row} for at, row in enumerate(rows)])
    for index in ("auto", "never"):
        source = stoker.tar(tmp_path / "a.tar", defaults={"png": b"none"}, index=index)
        first = source.rename(image="jpg;png", label="cls")
        for pipeline in (first, source.rename(label="cls").rename(image="jpg;png")):
            (batch,) = pipeline.batch(4)
            assert batch._fields == ("image", "label")
            assert list(batch["image"]) == [b"p", b"j", b"none", b"k"]
        (batch,) = source.map(cls=int).rename(image="jpg;png").drop("cls").batch(4)
        assert list(batch["image"]) == [b"p", b"j", b"none", b"k"]


@pytest.mark.parametrize("index", ["auto", "never"])
def test_a_pickle_that_was_not_allowed_is_refused_as_an_alternative_of_one_that_was(tmp_path: Path, index: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        for name in ("0.pkl", "1.other.pkl"):
            member = tarfile.TarInfo(name)
            member.size = len(data := pickle.dumps(1))
            shard.addfile(member, io.BytesIO(data))
    with pytest.raises(RecordError, match="is a pickle"):
        list(stoker.tar(tmp_path / "a.tar", index=index, allow_pickle=["pkl"]).rename(x="pkl;other.pkl"))
    both = stoker.tar(tmp_path / "a.tar", index=index, allow_pickle=["pkl", "other.pkl"]).rename(x="pkl;other.pkl")
    assert [sample["x"] for sample in both] == [1, 1]


@pytest.mark.parametrize("old", ["jpg;", "jpg; png", "jpg;png;jpg"])
def test_alternatives_that_could_never_be_found_are_refused(old: str) -> None:
    with pytest.raises(ConfigError, match="several to choose from, each once and without spaces"):
        stoker.arrays(jpg=np.arange(4)).rename(image=old)


def test_a_sample_with_none_of_the_alternatives_is_partial_and_its_error_names_them_all(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"__key__": f"{n}", "jpg": b"j", "txt": "t"} for n in range(3)] + [{"__key__": "9", "txt": "t"}]
    stoker.write_tar(tmp_path / "a.tar", [*rows, {"__key__": "x", "png": b"p", "txt": "t"}])
    with pytest.raises(RecordError, match="sample '9' has no 'jpg' or 'png', only txt"):
        list(renamed(stoker.tar(tmp_path / "a.tar"), image="jpg;jpeg;png"))
    with pytest.raises(CorruptShard, match=r"sample '9'.*has no 'jpg' or 'jpeg' or 'png'"):
        list(renamed(stoker.tar(tmp_path / "a.tar", index="never"), image="jpg;jpeg;png"))
    given = renamed(stoker.tar(tmp_path / "a.tar", defaults={"png": b"none"}), image="jpg;png")
    assert [bytes(sample["image"]) for sample in given] == [b"j", b"j", b"j", b"none", b"p"]


def test_alternatives_elsewhere_are_the_first_field_there_is() -> None:
    assert batches(renamed(abc(), z="nope;b;a").take(2), 2) == [{"z": [0, 2], "c": [0, 3]}]
    assert batches(renamed(abc().map(lambda sample: sample), z="nope;b;a").take(2), 2) == [{"z": [0, 2], "c": [0, 3]}]
    rows = [{"png": n, "jpg": -n} for n in range(4)]
    assert batches(renamed(stoker.stream(lambda: rows), image="jpg;png"), 2) == [{"image": [0, -1]}, {"image": [-2, -3]}]
    with pytest.raises(ConfigError, match="rename names the field 'nope;none', but the fields here are a, b, c"):
        _ = renamed(abc(), z="nope;none").plan
    with pytest.raises(ConfigError, match="'a' twice"):
        _ = renamed(abc(), z="a;b", y="c;a").plan


def test_alternatives_of_different_kinds_are_a_mistake(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "0", "json": {}, "cls": 1, "txt": "t"}])
    with pytest.raises(ConfigError, match=r"'json' holds object, 'cls' holds int64.*same kind"):
        _ = renamed(stoker.tar(tmp_path / "a.tar"), x="json;cls").plan
    for index in ("auto", "never"):
        with pytest.raises(ConfigError, match="'json' and 'txt' are decoded differently"):
            list(renamed(stoker.tar(tmp_path / "a.tar", index=index), x="json;txt"))


# ---- reading and decoding in one call ------------------------------------------------------------------------------------------

Change = Callable[[Pipeline], Pipeline]
ONE: dict[str, Change] = {
    "image alone": lambda p: p.image("jpg", CROP),
    "rename": lambda p: renamed(p, image="jpg").image("image", CROP),
    "select and drop": lambda p: p.select("jpg", "index").drop("index").image("jpg", CROP),
    "a function on another field": lambda p: p.map(index=abs).image("jpg", CROP),
    "another field decoded": lambda p: p.decode("png").image("jpg", CROP),
    "a filter behind it": lambda p: p.image("jpg", CROP).filter(bool),
}
TWO: dict[str, tuple[Change, str]] = {
    "a function over samples": (lambda p: p.map(dict).image("jpg", CROP), "map() comes before it"),
    "a filter": (lambda p: renamed(p.filter(bool), image="jpg").image("image", CROP), "filter() comes before it"),
    "a function on the field": (lambda p: p.map(jpg=bytes).image("jpg", CROP), "map() comes before it"),
    "decoded already": (lambda p: p.decode("jpg").image("jpg", CROP), "decode() comes before it"),
    "boxes made by a function": (lambda p: p.map(index=abs).image("jpg", CROP, boxes="index"), "map() comes before it"),
    "a crop to a box": (lambda p: p.image("jpg", CropBox("index"), Resize((8, 8))), "boxes, 'index'"),
    "images of many sizes": (lambda p: p.image("jpg", Resize(8)), "vary in size"),
    "a second field": (lambda p: p.image("jpg", CROP).image("png", CROP), "only one field is decoded as it is read"),
}


@pytest.mark.parametrize("name", ONE)
def test_reading_and_decoding_are_one_call_where_nothing_needs_the_bytes(shard: Path, name: str) -> None:
    pipeline = ONE[name](stoker.tar(shard, decode=False) if name == "another field decoded" else stoker.tar(shard)).batch(2)
    assert in_one_call(pipeline)
    assert "reading and decoding: one native call" in pipeline.explain()


@pytest.mark.parametrize("name", TWO)
def test_explain_says_why_reading_and_decoding_are_two_calls(shard: Path, name: str) -> None:
    change, why = TWO[name]
    told = change(stoker.tar(shard, defaults={"index": 0, "png": b""})).batch(2).explain()
    assert re.search(rf"reading and decoding: two calls, because .*{re.escape(why)}", told)


def test_a_stream_is_read_first() -> None:
    told = stoker.stream(lambda: [{"jpg": jpeg_bytes(20, 20)}]).image("jpg", CROP).batch(1).explain()
    assert "reading and decoding: two calls, because the source is a stream" in told


def test_a_picture_made_as_it_is_read_is_the_same_as_one_made_in_its_turn(tmp_path: Path) -> None:
    """Random numbers belong to verbs as they are written, not to the order in which they run."""
    rows = ({"__key__": f"{n}", "jpg": jpeg_bytes(40, 40, seed=n), "cls": n} for n in range(9))
    stoker.write_tar(tmp_path / "a.tar", rows)

    def jitter(value: int, rng: np.random.Generator) -> int:
        return int(value) + int(rng.integers(1000))

    tar = stoker.tar(tmp_path / "a.tar").shuffle(seed=3)
    first = tar.map(cls=jitter, rng=True).image("jpg", RandomResizedCrop(8)).batch(3)
    in_turn = tar.map(cls=jitter, rng=True).map(lambda sample: sample).image("jpg", RandomResizedCrop(8)).batch(3)
    alone = tar.map(cls=jitter, rng=True).drop("jpg").batch(3)
    assert in_one_call(first) and not in_one_call(in_turn)
    for one, two, three in zip(first, in_turn, alone, strict=True):
        assert one["jpg"].tolist() == two["jpg"].tolist()
        assert one["cls"].tolist() == two["cls"].tolist() == three["cls"].tolist()


def test_of_several_bad_rows_the_first_is_told_whichever_stage_finds_it(tmp_path: Path) -> None:
    rows = [{"__key__": f"{n}", "jpg": jpeg_bytes(20, 20, seed=n) if n != 6 else b"no", "cls": n} for n in range(9)]
    stoker.write_tar(tmp_path / "a.tar", rows)
    for bad in (4, 7):

        def refuse(label: int, bad: int = bad) -> int:
            if label == bad:
                raise ValueError("refused")
            return label

        with pytest.raises(SampleError) as caught:
            list(stoker.tar(tmp_path / "a.tar").map(cls=refuse).image("jpg", CROP).batch(9))
        assert caught.value.key == str(min(bad, 6))
