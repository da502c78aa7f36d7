"""The face users meet: mistakes are told at the door, and a pipeline prints as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import BatchError, ConfigError, DataLossError, ImageTooLarge, TruncatedImage, UnsupportedImage
from stoker.image import CenterCrop, CropBox, HorizontalFlip, Invert, Normalize, Pad, RandomResizedCrop, Resize

from .support import image_bytes, jpeg_bytes


def double(x: Any) -> Any:
    return x * 2


def numbers(count: int = 10) -> stoker.Pipeline:
    return stoker.arrays(x=np.arange(count))


def test_a_pipeline_prints_as_it_was_written(image_folder: Path) -> None:
    pipeline = (
        stoker.files(image_folder)
        .shuffle(seed=7, window=100)
        .image("image", RandomResizedCrop(64), HorizontalFlip(0.25), Normalize(0.5, 0.25), layout="chw")
        .map(label=double)
        .rename(x="image")
        .select("x", "label")
        .batch(4, drop_last=False)
        .map_batch(dict)
        .take(2)
    )
    printed = repr(pipeline)
    for verb in (
        ".shuffle(seed=7, window=100)",
        "image('image', RandomResizedCrop(64), HorizontalFlip(p=0.25), Normalize(mean=(0.5,), std=(0.25,)), layout='chw'",
        ".map(label=tests.test_pipeline.double)",
        ".rename(x='image')",
        ".select('x', 'label')",
        ".batch(4, drop_last=False)",
        ".map_batch(builtins.dict)",
        ".take(2)",
    ):
        assert verb.replace("(0.5,)", "(0.5)").replace("(0.25,)", "(0.25)") in printed, printed


def test_an_inner_batch_is_explained_as_it_was_written() -> None:
    assert "batch(5).map_batch(builtins.dict).unbatch()" in numbers().batch(5).map_batch(dict).unbatch().batch(2).explain()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda p: p.image("image", CropBox("a"), CropBox("b")), "can crop to one field only, not to a and b"),
        (lambda p: p.image("image", Normalize(0, 1), Normalize(0, 1)), "second Normalize"),
        (lambda p: p.image("image", Normalize(0, 1), CenterCrop(8)), "put Normalize at the end"),
        (lambda p: p.image("image", Normalize(0, 1), out="uint8"), "Normalize, which produces floats"),
        (lambda p: p.image("image", double), "not an operation"),
        (lambda p: p.image("image", max_pixels=0), "max_pixels=0"),
        (lambda p: p.decode("image", format="jax"), "format='jax'"),
        (lambda p: p.decode("image", format="pil", out="float32"), "8-bit"),
        (lambda p: p.map(label="int"), r"map\(label=...\) needs a function, not 'int'"),
        (lambda p: p.map(label=3), r"map\(label=...\) needs a function, not 3"),
        (lambda p: p.map(lambda image, label: image), r"called with the sample as a dict: .*'label'; .*map\(field=fn\)"),
        (
            lambda p: p.map(lambda sample: sample, rng=True),
            "as a dict, and a generator because of rng: too many",
        ),
        (lambda p: p.map(label=[float, lambda x, rng: x]), r"map\(label=...\): .*the value of 'label': .*'rng'"),
        (lambda p: p.filter(lambda image, label: True), r"filter\(\): .*called with the sample as a dict: .*'label'"),
        (lambda p: p.flat_map(lambda: []), r"flat_map\(\): .*called with the sample as a dict: too many"),
        (
            lambda p: p.batch(2).map_batch(lambda images, labels: images),
            "the columns of a batch as a dict: .*'labels'",
        ),
        (lambda p: p.map(double, label=double), "either one function"),
        (lambda p: p.map(), "either one function"),
        (lambda p: p.batch(0), r"batch\(size=0\)"),
        (lambda p: p.batch(2.5), r"batch\(size=2.5\)"),
        (lambda p: p.take(-1), r"take\(count=-1\)"),
        (lambda p: p.repeat(0), r"repeat\(count=0\)"),
        (lambda p: p.shuffle(window=0), r"shuffle\(window=0\)"),
        (lambda p: p.shard(rank=0), "both rank and world"),
        (lambda p: p.shard(rank=2, world=2), "rank must be from 0"),
        (lambda p: p.shard(remainder="some"), "drop, pad, keep"),
        (lambda p: p.select(), "at least one field"),
        (lambda p: p.on_error("ignore"), "'raise' or 'skip'"),
        (lambda p: p.on_error("skip", budget=-1), "budget=-1"),
        (lambda p: p.select("x").plan, "select names the field 'x', but the fields here are image, label"),
        (lambda p: p.batch(2).batch(2).plan, "batch.. appears twice"),
        (lambda p: p.map_batch(dict).plan, "map_batch.. needs a batch"),
        (lambda p: p.batch(2).map(dict).plan, "works on samples"),
        (lambda p: p.loader(executor="fibers"), "executor='fibers'"),
        (lambda p: p.loader(watchdog_s=None), "watchdog_s=None"),
        (lambda p: p.loader(memory="much"), "memory"),
        (lambda p: p.loader(format="mxnet"), "format='mxnet'"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(wrong: Any, told: str, image_folder: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        wrong(stoker.files(image_folder))


def test_operations_take_numpy_numbers() -> None:
    assert Resize(np.int64(4)) == Resize(4)
    assert CenterCrop((np.int32(2), 3)) == CenterCrop((2, 3))
    assert Normalize(np.array([0.1, 0.2, 0.3]), np.ones(3)) == Normalize((0.1, 0.2, 0.3), (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    "bad", [lambda: HorizontalFlip("x"), lambda: Normalize(0, 0), lambda: Resize(0), lambda: CenterCrop((1, 2, 3))]
)  # type: ignore[arg-type]
def test_operations_check_their_parameters(bad: Any) -> None:
    with pytest.raises(ConfigError):
        bad()


def test_a_sample_can_be_looked_at_alone() -> None:
    assert numbers().map(x=double).batch(3).sample(4) == {"x": 8}
    with pytest.raises(IndexError, match="sample\\(10\\)"):
        numbers().sample(10)


class Unstackable:
    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("not an array")


def test_a_sample_looked_at_alone_is_as_the_functions_made_it() -> None:
    value = Unstackable()
    for pipeline in (numbers(), numbers().filter(lambda sample: sample["x"] > 1)):
        sample = pipeline.map(lambda sample: {"value": value, "x": sample["x"]}).sample(3)
        assert sample["value"] is value and sample["x"] == int(sample.key)


def draw(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"x": sample["x"], "draw": rng.random()}


@pytest.mark.parametrize("threshold", [-1, 4])
def test_a_sample_looked_at_alone_draws_what_it_draws_in_its_epoch(threshold: int) -> None:
    pipeline = numbers().filter(lambda sample: sample["x"] > threshold).map(draw, rng=True)
    assert [dict(pipeline.sample(at)) for at in range(5)] == [dict(sample) for sample in pipeline][:5]


def test_only_the_sample_that_is_looked_at_is_worked_on_after_a_filter() -> None:
    seen: list[int] = []
    numbers().filter(lambda sample: sample["x"] % 2).map(x=lambda x: seen.append(x)).sample(2)
    assert seen == [5]


def test_a_sample_that_cannot_be_made_says_why_it_cannot() -> None:
    with pytest.raises(DataLossError, match="sample '4'"):
        numbers().map(x=lambda x: 1 // (x - 4)).on_error("skip", budget=9).sample(4)


def test_a_stream_cannot_be_repeated_and_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="let its function yield the samples as often"):
        stoker.stream(lambda: iter(())).repeat(2).batch(1).explain()


def test_a_batch_function_keeps_the_number_of_rows() -> None:
    half = numbers().batch(4).map_batch(lambda columns: {"x": columns["x"][:2], "note": "kept"})
    with pytest.raises(BatchError, match="made 2 rows of 4 in the field 'x'"):
        next(iter(half))
    mixed = numbers().batch(4).map_batch(lambda columns: {"x": columns["x"], "share": 0.5, "shape": (1, 2, 3)})
    assert next(iter(mixed))["share"] == 0.5


def encoded(*images: bytes) -> stoker.Pipeline:
    return stoker.stream(lambda: ({"image": image} for image in images))


def test_images_of_varying_size_are_a_list_whatever_they_are_decoded_to() -> None:
    pytest.importorskip("torch")
    pictures = encoded(jpeg_bytes(20, 10), jpeg_bytes(12, 14, seed=1))
    for format, shape in (("numpy", (10, 20, 3)), ("torch", (3, 10, 20))):
        images = next(iter(pictures.decode("image", format=format).batch(2)))["image"]
        assert isinstance(images, list)
        assert tuple(images[0].shape) == shape
    assert next(iter(pictures.decode("image", format="pil").batch(2)))["image"][0].size == (20, 10)


@pytest.mark.parametrize("format", ["numpy", "torch"])
def test_images_of_one_size_are_stacked_batch_by_batch_though_nothing_says_their_size(format: str) -> None:
    pytest.importorskip("torch")
    sizes = [(20, 10), (20, 10), (12, 14), (20, 10)]
    pictures = encoded(*(image_bytes(*size, seed=at, format="PNG") for at, size in enumerate(sizes)))
    for pipeline in (pictures.image("image", Normalize(0.5, 0.5)), pictures.decode("image", format=format)):
        equal, mixed = (batch["image"] for batch in pipeline.batch(2))
        assert isinstance(equal, np.ndarray) and len(equal) == 2
        assert isinstance(mixed, list)
        alone = [np.asarray(sample["image"]) for sample in pipeline]
        for image, expected in zip([*equal, *mixed], alone):
            np.testing.assert_array_equal(np.asarray(image), expected)


def test_the_limit_on_pixels_can_be_set(tmp_path: Path) -> None:
    picture = encoded(jpeg_bytes(40, 30))
    assert next(iter(picture.decode("image", max_pixels=1200)))["image"].shape == (30, 40, 3)
    for stage in (picture.decode("image", max_pixels=1199), picture.image("image", Resize((8, 8)), max_pixels=1199)):
        with pytest.raises(ImageTooLarge, match="40x30"):
            next(iter(stage))


@pytest.mark.parametrize("stage", [lambda p: p.decode("image"), lambda p: p.image("image", Resize((8, 8)))])
def test_what_is_wrong_with_an_image_is_said_with_its_place(stage: Any) -> None:
    whole = jpeg_bytes(60, 50)
    with pytest.raises(TruncatedImage, match=r"at byte [0-9,]+ of [0-9,]+"):
        next(iter(stage(encoded(whole[: len(whole) // 2]))))
    with pytest.raises(TruncatedImage, match="no bytes"):
        next(iter(stage(encoded(b""))))
    with pytest.raises(UnsupportedImage, match="begins with b'no image at") as caught:
        next(iter(stage(encoded(b"no image at all"))))
    assert "at byte" not in str(caught.value)


def test_pixels_that_are_decoded_already_are_not_decoded_again() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for source in (stoker.stream(lambda: [{"image": pixels}]), stoker.arrays(image=pixels[None])):
        (passed,) = source.decode("image")
        np.testing.assert_array_equal(passed["image"], pixels)
        (picture,) = source.decode("image", format="pil")
        np.testing.assert_array_equal(np.asarray(picture["image"]), pixels)
    with pytest.raises(ConfigError, match=r"decode\('image'\): the field holds float64"):
        stoker.arrays(image=np.zeros((2, 8, 8, 3))).decode("image").explain()
    with pytest.raises(UnsupportedImage, match="int64"):
        next(iter(stoker.stream(lambda: [{"image": np.zeros((4, 4, 3), int)}]).decode("image")))
    with pytest.raises(UnsupportedImage, match="str is not an encoded image"):
        next(iter(stoker.stream(lambda: [{"image": "a.jpg"}]).decode("image")))


def test_pixels_whose_size_the_source_knows_come_out_stacked() -> None:
    pixels = np.arange(4 * 8 * 6 * 3, dtype=np.uint8).reshape(4, 8, 6, 3)
    rows = stoker.arrays(image=pixels)
    shapes = {
        rows.image("image"): (4, 8, 6, 3),
        rows.image("image", HorizontalFlip(0), layout="chw"): (4, 3, 8, 6),
        rows.image("image", Pad(2), Resize(4)).image("image", Invert()): (4, 4, 4, 3),
        rows.rename(i="image").image("i", Invert(), color="gray").rename(image="i"): (4, 8, 6, 1),
        rows.filter(lambda sample: True).image("image", Invert()): (4, 8, 6, 3),
        stoker.arrays(image=pixels[:, :, :, 0]).image("image", Invert()): (4, 8, 6, 3),
    }
    for pipeline, shape in shapes.items():
        (batch,) = pipeline.batch(4)
        assert isinstance(batch["image"], np.ndarray) and batch["image"].shape == shape
        assert str(list(shape[1:])) in pipeline.explain()
    boxed = stoker.arrays(image=pixels, box=np.array([[0, 0, 2, 2]] * 4)).image("image", CropBox("box"))
    for equal in (boxed, rows.map(image=lambda image: image).image("image", Invert())):
        images = next(iter(equal.batch(4)))["image"]
        assert isinstance(images, np.ndarray) and len(images) == 4, "not known beforehand, and equal all the same"
        assert isinstance(next(iter(equal.batch(4, pad={"image": list})))["image"], list)


def test_a_batch_printed_by_accident_stays_short() -> None:
    large = stoker.stream(lambda: ({"image": bytes(100_000), "text": "word " * 1000, "n": n} for n in range(4))).batch(4)
    printed = repr(next(iter(large)))
    assert len(printed) < 400
    assert "image=[bytes[100000], bytes[100000]" in printed
    assert "n=int64[4]" in printed


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_a_batch_that_drops_nothing_drops_nothing_on_any_number_of_ranks(world: int) -> None:
    n = 29
    for write in (
        lambda p, rank: p.shard(rank=rank, world=world).batch(4, drop_last=False),
        lambda p, rank: p.batch(4, drop_last=False).shard(rank=rank, world=world),
        lambda p, rank: p.filter(lambda sample: True).shard(rank=rank, world=world).batch(4, drop_last=False),
    ):
        ranks = [list(write(stoker.arrays(x=np.arange(n)), rank)) for rank in range(world)]
        assert len({len(batches) for batches in ranks}) == 1, "every rank takes the same number of steps"
        seen = [int(x) for batches in ranks for batch in batches for x in batch["x"][batch.valid]]
        assert sorted(seen) == list(range(n))


def test_an_epoch_cut_from_endless_data_has_a_length() -> None:
    endless = stoker.arrays(x=np.arange(6)).shuffle(seed=1).repeat().batch(4)
    assert len(endless.take(5)) == len(list(endless.take(5))) == 5
    assert len(endless.skip(2).take(5)) == len(list(endless.skip(2).take(5))) == 5
    with pytest.raises(TypeError, match="endless repeat"):
        len(endless)


def test_an_iterator_nobody_asks_for_a_batch_is_not_an_epoch() -> None:
    pipeline = numbers().shuffle(seed=1).batch(5)
    first, second = (
        [batch["x"].tolist() for batch in numbers().shuffle(seed=1).batch(5).loader(epoch=epoch)][:2] for epoch in (0, 1)
    )
    iter(pipeline)
    assert [batch["x"].tolist() for batch in pipeline] == first
    assert [batch["x"].tolist() for batch in pipeline] == second


def test_fields_may_be_called_like_parameters() -> None:
    odd = stoker.arrays(**{name: np.arange(3) for name in ("fn", "rng", "self", "x")})
    mapped = odd.map(fn=lambda v: v + 1, rng=[lambda v: v + 2], self=lambda v: v + 3)
    assert mapped.sample(0) == {"fn": 1, "rng": 2, "self": 3, "x": 0}
    drawn = odd.map(fn=lambda v, rng: rng.random(), rng=True).sample(0)
    assert 0 < drawn["fn"] < 1 and drawn["rng"] == 0
    assert odd.rename(self="x", x="self", rng="fn", fn="rng").batch(3).plan.specs.keys() == {"fn", "rng", "self", "x"}  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"map names the field 'fn', .*passed as map\(fn\)"):
        _ = stoker.arrays(x=np.arange(3)).map(fn=abs).plan


def test_a_map_of_fields_is_written_with_the_name_of_its_random_stream() -> None:
    assert "map(x=builtins.pow, rng='noise')" in repr(stoker.arrays(x=np.arange(4)).map(x=pow, rng="noise"))


def test_how_a_pipeline_is_written_says_the_new_names() -> None:
    written = repr(
        stoker.arrays(x=np.arange(3)).rename(y="x").on_error("skip", budget=3, window=9, fill="repeat").on_error("raise")
    )
    assert "rename(y='x')" in written and "on_error('skip', budget=3.0, window=9, fill='repeat')" in written
    assert written.endswith("on_error('raise')")
