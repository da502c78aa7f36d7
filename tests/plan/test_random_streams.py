"""What is put into a pipeline changes the random numbers of nothing that was there; names tie numbers together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError
from stoker.image import ColorJitter, HorizontalFlip, Invert, MixUp, Operation, RandAugment, RandomCrop, RandomResizedCrop, Rotate
from stoker.plan import random_streams

PIXELS = np.random.default_rng(3).integers(0, 256, (12, 40, 50, 3), np.uint8)
CROP = (RandomResizedCrop(16), HorizontalFlip())


def source() -> Pipeline:
    return stoker.arrays(image=PIXELS, other=PIXELS, label=np.arange(12) % 3, u=np.zeros(12)).shuffle(seed=5)


def drawn(pipeline: Pipeline, field: str = "image") -> list[dict[str, Any]]:
    """What crop and flip of a field drew for every sample of two batches."""
    with pipeline.batch(6).loader(executor="inline") as loader:
        rows = [row[f"image {field}"]["drawn"] for step in (0, 1) for row in loader.explain(step, epoch=2)]
    kinds = ("RandomResizedCrop", "HorizontalFlip")
    return [{made["operation"]: made for made in row if made["operation"] in kinds} for row in rows]


def noisy(u: float, rng: np.random.Generator) -> float:
    return float(rng.random())


INSERTED: dict[str, Callable[[Pipeline], Pipeline]] = {
    "a colour behind": lambda p: p.image("image", *CROP, ColorJitter(0.4)),
    "a colour in front": lambda p: p.image("image", ColorJitter(0.4), *CROP),
    "others between": lambda p: p.image("image", CROP[0], Rotate(5), RandAugment(), RandomCrop(9), CROP[1]),
    "a stage in front": lambda p: p.image("other", RandomCrop(9), Invert()).image("image", *CROP),
    "a stage behind": lambda p: p.image("image", *CROP).image("other", *CROP),
    "a named one in front": lambda p: p.image("other", HorizontalFlip(stream="a")).image("image", *CROP),
    "functions that draw": lambda p: p.map(u=[noisy, noisy], rng=True).image("image", *CROP),
    "another order of verbs": lambda p: p.select("image", "label").image("image", *CROP),
}


@pytest.mark.parametrize("what", [name for name in INSERTED if name != "functions that draw"])
def test_crops_are_the_same_whatever_other_operations_there_are(what: str) -> None:
    assert drawn(INSERTED[what](source())) == drawn(source().image("image", *CROP))


def pixels(pipeline: Pipeline, field: str = "image") -> np.ndarray:
    return np.concatenate([batch[field] for batch in pipeline.batch(6)])


@pytest.mark.parametrize(
    "what, changed",
    [(INSERTED["functions that draw"], lambda made: made)]
    + [(lambda p, ops=ops: p.image("image", *ops), change) for ops, change in [
        ((*CROP, ColorJitter()), lambda made: made), ((Invert(1), *CROP), lambda made: 255 - made),
        ((CROP[0], Invert(1), CROP[1]), lambda made: 255 - made),
    ]],
)  # fmt: skip
def test_so_are_their_pixels(what: Callable[[Pipeline], Pipeline], changed: Callable[[np.ndarray], np.ndarray]) -> None:
    assert np.abs(pixels(what(source())).astype(int) - changed(pixels(source().image("image", *CROP)))).max() <= 1


def test_two_of_a_kind_draw_numbers_of_their_own() -> None:
    both = source().image("image", *CROP).image("other", *CROP)
    assert drawn(both, "image") != drawn(both, "other")
    twice = source().image("image", HorizontalFlip(), HorizontalFlip())
    with twice.batch(12).loader(executor="inline") as loader:
        flips = [[made["flipped"] for made in row["image image"]["drawn"]] for row in loader.explain(0)]
    assert len(set(map(tuple, flips))) == 4


def test_operations_of_one_kind_and_name_draw_the_same_numbers_and_those_of_one_name_and_two_kinds_do_not() -> None:
    named: list[Operation] = [RandomResizedCrop(16, stream="view"), HorizontalFlip(stream="view")]
    pair = source().image("image", *named).image("other", ColorJitter(), *named)
    assert np.array_equal(pixels(pair, "image"), pixels(pair, "other"))
    assert drawn(pair) != drawn(source().image("image", *CROP))
    shares = [row["HorizontalFlip"]["flipped"] == (row["RandomResizedCrop"]["height"] > 20) for row in drawn(pair)]
    assert 0 < sum(shares) < len(shares), "a crop and a flip of one name are independent"


def test_functions_draw_alike_by_name_and_apart_without() -> None:
    def values(pipeline: Pipeline) -> list[tuple[float, float]]:
        [batch] = pipeline.batch(12)
        return list(zip(batch["u"].tolist(), batch["v"].tolist()))

    numbers = stoker.arrays(u=np.zeros(12), v=np.zeros(12)).shuffle(seed=5)
    apart, alike = values(numbers.map(u=noisy, v=noisy, rng=True)), values(numbers.map(u=noisy, v=noisy, rng="n"))
    assert all(u != v for u, v in apart) and all(u == v for u, v in alike)
    assert alike == values(numbers.map(u=noisy, rng="n").map(v=noisy, rng="n"))
    assert [u for u, _ in apart] == [u for u, _ in values(numbers.map(u=noisy, rng=True))]


def test_batches_are_mixed_alike_whatever_comes_before_and_fields_that_belong_together_by_name() -> None:
    def shares(pipeline: Pipeline, verb: str = "blend") -> list[float]:
        with pipeline.loader(executor="inline") as loader:
            return [loader.explain(step)[0][verb]["share"] for step in (0, 1, 2)]

    mix = MixUp(0.4, classes=3)
    plain = source().image("image", *CROP).batch(4)
    jittered = source().image("image", *CROP, ColorJitter(0.4)).map(u=noisy, rng=True).batch(4)
    assert shares(plain.blend(mix)) == shares(jittered.blend(mix))
    two = plain.blend(mix, stream="pair").blend(mix, image="other", stream="pair")
    assert shares(two) == shares(two, "blend 2") != shares(plain.blend(mix))


def test_streams_that_would_collide_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def digest(self) -> bytes:
            return b"\xff" * 4

    monkeypatch.setattr(random_streams, "blake2b", Same)
    plan = source().image("image", *CROP).image("other", HorizontalFlip(stream="a"), HorizontalFlip(stream="a")).plan
    assert [step.streams for step in plan.work.steps] == [(0xFFFFFFFF, 0), (1, 1)]


@pytest.mark.parametrize("name", ["", 3, ["a"]], ids=repr)
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(ConfigError, match="HorizontalFlip: stream="):
        HorizontalFlip(stream=name)
    with pytest.raises(ConfigError, match=r"blend.stream="):
        source().batch(2).blend(MixUp(classes=3), stream=name)
    with pytest.raises(ConfigError, match=r"map.rng="):
        source().map(u=noisy, rng=name)
