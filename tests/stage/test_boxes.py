"""Boxes follow the geometry of their image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stoker
from stoker.errors import BoxError, ConfigError
from stoker.image import (
    Affine,
    CenterCrop,
    CropBox,
    GaussianBlur,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Rotate,
    VerticalFlip,
)
from stoker.kernel import native
from stoker.kernel.native import Op, OpKind, Program
from stoker.source.shards.tar_source import TarSource
from stoker.stage.boxes import move_column

from ..kernel.images import pixel_rows
from ..support import image_bytes

#: (ymin, xmin, ymax, xmax) of a rectangle that is red in every image of these tests
SPOT = (20, 30, 44, 70)


def spotted(width: int = 120, height: int = 90, box: tuple[int, int, int, int] = SPOT) -> NDArray[np.uint8]:
    """A black image with a red rectangle."""
    image = np.zeros((height, width, 3), np.uint8)
    image[box[0] : box[2], box[1] : box[3], 0] = 255
    return image


def seen(image: NDArray[np.uint8]) -> list[float]:
    """Where the red is."""
    rows, columns = np.nonzero(image[..., 0] > 127)
    return [] if not len(rows) else [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]


def affine(degrees: float, scale: float = 1.0) -> Op:
    return Op(20, 3, (degrees, degrees, 0, 0, scale, scale, 0, 0, 0, 0, 0, 1))  # type: ignore[arg-type]


def made(program: Program, images: NDArray[np.uint8], height: int, width: int) -> tuple[NDArray[np.uint8], NDArray[np.void]]:
    out = np.zeros((len(images), height, width, 3), np.uint8)
    with native.Decoder() as decoder:
        epochs, positions = np.zeros(len(images), np.uint32), np.arange(len(images), dtype=np.int64)
        return out, pixel_rows(decoder, program, images, None, epochs, positions, out)


# ---- through a pipeline ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ops", [(Resize((45, 60)),), (CenterCrop(80),), (HorizontalFlip(1.0), Resize((90, 240)), CenterCrop(90))]
)
@pytest.mark.parametrize("encoded", [False, True])
def test_a_box_goes_where_its_pixels_go(ops: Any, encoded: bool) -> None:
    count = 8
    images: Any = np.repeat(spotted()[None], count, 0)
    boxes = np.repeat(np.array([SPOT], np.float32), count, 0)
    pipeline = stoker.arrays(image=images, box=boxes)
    if encoded:
        pipeline = pipeline.map(image=to_png)
    (batch,) = pipeline.image("image", *ops, boxes="box").batch(count)
    assert batch["box"].dtype == np.float32 and batch["box"].shape == (count, 4)
    for image, box in zip(batch["image"], batch["box"]):
        assert np.allclose(box, seen(image), atol=1)


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_random_crops_and_flips_take_their_boxes_along() -> None:
    images = np.repeat(spotted()[None], 64, 0)
    boxes = np.repeat(np.array([SPOT], np.int64), 64, 0)
    pipeline = stoker.arrays(image=images, box=boxes).shuffle(seed=3)
    (batch,) = pipeline.image("image", RandomResizedCrop(96), HorizontalFlip(), boxes="box").batch(64)
    outside = 0
    for image, box in zip(batch["image"], batch["box"]):
        area = (box[2] - box[0]) * (box[3] - box[1])
        outside += area == 0
        if area > 20:
            assert np.allclose(box, seen(image), atol=3)
        elif area == 0:
            assert not seen(image) and box.min() >= 0 and box.max() <= 96
    assert 0 < outside < 32


@pytest.mark.parametrize(
    "ops",
    [
        (RandomCrop((90, 120), pad=16),),
        (RandomCrop((80, 100)), HorizontalFlip(), VerticalFlip()),
        (Pad(7), HorizontalFlip(), Resize((52, 67))),
        (Rotate(12),),
        (RandomCrop((90, 120), pad=8), HorizontalFlip(), Rotate(10), VerticalFlip()),
        (Affine(10, translate=(0.1, 0.1), scale=(0.8, 1.1), shear=8), GaussianBlur(3), CenterCrop(80), Rotate(5)),
        (Resize((45, 60)), VerticalFlip(1.0), Affine(0, shear=(-10, 10, -5, 5)), Resize((90, 120))),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_whatever_moves_pixels_moves_boxes(ops: Any, encoded: bool) -> None:
    count = 12
    pipeline = stoker.arrays(image=np.repeat(spotted()[None], count, 0), box=np.repeat(np.array([SPOT], np.float32), count, 0))
    if encoded:
        pipeline = pipeline.map(image=to_png)
    (batch,) = pipeline.shuffle(seed=8).image("image", Resize((90, 120)), *ops, boxes="box").batch(count)
    for image, box in zip(batch["image"], batch["box"]):
        assert np.allclose(box, seen(image), atol=2.5)


def test_a_crop_to_a_box_moves_that_very_box() -> None:
    images = np.repeat(spotted()[None], 4, 0)
    boxes = np.repeat(np.array([SPOT], np.float32), 4, 0)
    pipeline = stoker.arrays(image=images, box=boxes).image("image", CropBox("box"), Resize((24, 40)), boxes="box")
    (batch,) = pipeline.batch(4)
    assert batch["box"].tolist() == [[0, 0, 24, 40]] * 4 and (batch["image"][..., 0] == 255).all()


def test_relative_boxes_stay_relative() -> None:
    share = np.array([[0.25, 0.5, 0.75, 1.0]] * 3, np.float32)
    pipeline = stoker.arrays(image=np.zeros((3, 40, 80, 3), np.uint8), box=share)
    (batch,) = pipeline.image("image", Resize((100, 10)), boxes="box", relative_boxes=True).batch(3)
    assert np.allclose(batch["box"], share)
    (batch,) = pipeline.image("image", CenterCrop(40), HorizontalFlip(1.0), boxes="box", relative_boxes=True).batch(3)
    assert np.allclose(batch["box"], [0.25, 0.0, 0.75, 0.5])


def test_several_fields_of_several_boxes_move() -> None:
    boxes = np.arange(2 * 3 * 4, dtype=np.float64).reshape(2, 3, 4)
    pipeline = stoker.arrays(image=np.zeros((2, 40, 40, 3), np.uint8), many=boxes, one=boxes[:, 0])
    (batch,) = pipeline.image("image", Resize((80, 80)), boxes=("many", "one")).batch(2)
    assert np.array_equal(batch["many"], 2 * boxes) and np.array_equal(batch["one"], 2 * boxes[:, 0])
    assert batch["many"].dtype == batch["one"].dtype == np.float32


def with_boxes(sample: dict[str, Any]) -> dict[str, Any]:
    """As many boxes as the label says."""
    return {**sample, "boxes": np.array([SPOT] * sample["label"], np.float32).reshape(-1, 4)}


def test_every_sample_has_as_many_boxes_as_it_had() -> None:
    images = np.repeat(spotted()[None], 6, 0)
    pipeline = stoker.arrays(image=images, label=np.arange(6)).map(with_boxes)
    pipeline = pipeline.image("image", Resize((45, 60)), boxes="boxes")
    for number, sample in enumerate(pipeline):
        assert sample["boxes"].shape == (number, 4) and sample["boxes"].dtype == np.float32
        assert (sample["boxes"] == np.array(SPOT) / 2).all()
    (batch,) = pipeline.batch(6, pad={"boxes": list})
    assert [len(boxes) for boxes in batch["boxes"]] == list(range(6))


def test_images_whose_size_varies_take_their_boxes_along() -> None:
    images = np.repeat(spotted()[None], 3, 0)
    boxes = np.array([SPOT] * 3, np.float32)
    for sample in stoker.arrays(image=images, box=boxes).image("image", Resize(45), boxes="box"):
        assert sample["image"].shape == (45, 60, 3) and np.allclose(sample["box"], np.array(SPOT) / 2)


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_one_call_or_two_give_the_same_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str) -> None:
    samples = [
        {
            "__key__": f"{number:02}",
            "jpg": image_bytes(60 + number, 50, seed=number, format="PNG" if number % 4 == 3 else "JPEG"),
            "npy": np.array([[5, 6, 20 + number, 40]] * (number % 3), np.float32).reshape(-1, 4),
        }
        for number in range(11)
    ]
    stoker.write_tar(tmp_path / "a.tar", iter(samples))
    pipeline = stoker.tar(str(tmp_path / "a.tar")).shuffle(seed=2)
    pipeline = pipeline.image("jpg", RandomResizedCrop(32), HorizontalFlip(), boxes="npy").batch(4, False, pad={"npy": list})

    def all_boxes() -> list[Any]:
        with pipeline.loader(executor=executor) as loader:
            return [[boxes.tolist() for boxes in batch["npy"]] for batch in loader]

    together = all_boxes()
    assert {len(boxes) for batch in together for boxes in batch} == {0, 1, 2}
    monkeypatch.setattr(TarSource, "why_not_located", lambda self, *_: "a test says so")
    assert all_boxes() == together


# ---- where they go -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [-130.0, -15.0, 8.0, 40.0, 90.0])
def test_a_turned_box_is_the_upright_one_around_it(degrees: float) -> None:
    images = spotted()[None]
    out, rows = made(Program(ops=(affine(degrees),)), images, 90, 120)
    moved, wrong = move_column(np.array([SPOT], np.float32), rows, False)
    assert not wrong and np.allclose(moved[0], seen(out[0]), atol=1.5)
    corners = np.array([[x, y, 1] for y in SPOT[::2] for x in SPOT[1::2]]).T
    x, y = rows["matrix"][0].reshape(2, 3) @ corners
    assert np.allclose(moved[0], [y.min(), x.min(), y.max(), x.max()], atol=1e-4)


def test_boxes_are_clipped_and_those_outside_become_empty() -> None:
    _, rows = made(Program(ops=(Op(OpKind.CENTER_CROP, 0, (20, 20)),)), np.zeros((1, 40, 40, 3), np.uint8), 20, 20)
    given = [[0, 0, 40, 40], [0, 0, 5, 5], [35, 15, 39, 20], [-100, -50, 15, 15], [12, 12, 12, 18]]
    moved, _ = move_column([given], rows, False)
    assert moved[0].tolist() == [[0, 0, 20, 20], [0, 0, 0, 0], [20, 5, 20, 10], [0, 0, 5, 5], [2, 2, 2, 8]]


def test_odd_numbers_have_defined_results() -> None:
    _, rows = made(Program(ops=(affine(90.0),)), np.zeros((1, 40, 40, 3), np.uint8), 40, 40)
    nan, inf = np.nan, np.inf
    moved, wrong = move_column([[[nan, 0, 10, 10], [-inf, -inf, inf, inf], [30, 20, 10, 5]]], rows, False)
    assert not wrong and np.isnan(moved[0][0]).all() and moved[0][1].tolist() == [0, 0, 40, 40]
    assert np.allclose(moved[0][2], [5, 10, 20, 30])  # corners the wrong way round: the box between them


def test_what_is_no_box_is_told() -> None:
    _, rows = made(Program(), np.zeros((5, 8, 8, 3), np.uint8), 8, 8)
    moved, wrong = move_column([[1, 2, 3, 4], [1, 2, 3], b"box", None, []], rows, False)
    assert moved[0].tolist() == [1, 2, 3, 4] and moved[4].shape == (0, 4) and sorted(wrong) == [1, 2, 3]


def test_the_source_keeps_its_boxes() -> None:
    boxes = np.array([SPOT] * 3, np.float32)
    pipeline = stoker.arrays(image=np.repeat(spotted()[None], 3, 0), box=boxes).image("image", Resize((45, 60)), boxes="box")
    for _ in range(2):
        (batch,) = pipeline.batch(3)
        assert np.allclose(batch["box"], np.array(SPOT) / 2) and (boxes == SPOT).all()


# ---- mistakes ----------------------------------------------------------------------------------------------------------------


def test_a_sample_with_no_box_is_a_bad_sample() -> None:
    pipeline = stoker.arrays(image=np.zeros((3, 8, 8, 3), np.uint8), box=np.zeros((3, 4), np.float32))
    pipeline = pipeline.map(box=lambda box: "nowhere").image("image", Resize((4, 4)), boxes="box")
    with pytest.raises(BoxError, match="nowhere"):
        list(pipeline.batch(3))


@pytest.mark.parametrize("options", [{"boxes": "image"}, {"boxes": ("box", "box")}, {"boxes": (7,)}, {"relative_boxes": True}])
def test_wrong_names_are_found_at_once(options: dict[str, Any]) -> None:
    pipeline = stoker.arrays(image=np.zeros((3, 8, 8, 3), np.uint8), box=np.zeros((3, 4), np.float32))
    with pytest.raises(ConfigError):
        pipeline.image("image", Resize((4, 4)), **options)


@pytest.mark.parametrize("name", ["box", "label", "other", "part"])
def test_fields_that_hold_no_boxes_are_found_before_anything_runs(name: str) -> None:
    pipeline = stoker.arrays(image=np.zeros((3, 8, 8, 3), np.uint8), label=np.arange(3), part=np.zeros((3, 3), np.float32))
    with pytest.raises(ConfigError, match=name):
        pipeline.image("image", Resize((4, 4)), boxes=name).batch(3).plan


def test_the_plan_tells_which_boxes_follow() -> None:
    pipeline = stoker.arrays(image=np.zeros((3, 8, 8, 3), np.uint8), box=np.zeros((3, 4), np.int32))
    told = pipeline.image("image", Resize((4, 4)), boxes="box").batch(3).explain()
    assert "boxes=('box')" in told and "box float32[4]" in told
