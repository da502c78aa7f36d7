"""From operations to the kernel's program, and what may not stand where."""

from __future__ import annotations

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError
from stoker.image import (
    Affine,
    AutoAugment,
    ColorJitter,
    CropBox,
    Cutout,
    GaussianBlur,
    HorizontalFlip,
    Invert,
    Normalize,
    Operation,
    Pad,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    Rotate,
    Sharpness,
    Solarize,
    ToFloat,
    VerticalFlip,
)
from stoker.image.fusion import PassWork, passes
from stoker.image.lower import lower
from stoker.kernel.native import Border, OpKind, Program

from .test_operations import EXAMPLES


def lowered(*ops: Operation, color: str = "rgb") -> Program:
    return lower(ops, seed=1, streams=range(512, 600), color=color)


@pytest.mark.parametrize("op", EXAMPLES, ids=lambda op: type(op).__name__)
def test_every_operation_has_a_program(op: Operation) -> None:
    program = lowered(op)
    assert len(program.ops) <= 2 and all(kernel.stream == 512 for kernel in program.ops)
    for kernel in program.ops:
        assert len(kernel.params) == 12 or kernel.kind < OpKind.AFFINE


def test_operations_keep_their_order_and_each_has_a_stream_of_its_own() -> None:
    program = lowered(Resize(9), RandomCrop(4, 1), Invert(), HorizontalFlip(), RandAugment(), ToFloat())
    assert [(op.kind, op.stream) for op in program.ops] == [
        (OpKind.RESIZE_SHORT, 512), (OpKind.PAD, 513), (OpKind.RANDOM_CROP, 513), (OpKind.INVERT, 514), (OpKind.HFLIP, 515),
        (OpKind.POLICY, 516),
    ]  # fmt: skip


def test_parameters_stand_where_the_kernel_looks_for_them() -> None:
    def params(op: Operation, at: int = 0) -> tuple[float, ...]:
        return lowered(op).ops[at].params

    assert params(VerticalFlip(0.25)) == (0.25,)
    assert params(Pad((1, 2, 3, 4), "edge", (7, 8, 9))) == (1, 2, 3, 4, Border.EDGE, 7, 8, 9)
    assert params(RandomCrop((5, 6), 1))[4] == Border.REFLECT and params(RandomCrop((5, 6), 1), 1) == (5, 6)
    assert params(Rotate((5, 20), fill=3)) == (-20, -5, 0, 0, 1, 1, 0, 0, 0, 0, 3, 1), "the kernel turns the other way"
    assert params(Affine(9, (0.1, 0.2), (0.5, 2), (1, 2, 3, 4), 7)) == (-9, 9, 0.1, 0.2, 0.5, 2, 1, 2, 3, 4, 7, 1)
    assert params(ColorJitter(0.5, (1, 2), 0, 0.25)) == (0.5, 1.5, 1, 2, 1, 1, -0.25, 0.25, 1, 0, 0, 1)
    assert params(GaussianBlur(5, (1, 2))) == (5, 1, 2, *(0,) * 8, 1)
    assert params(Solarize(99.5, 0.25)) == (99.5, *(0,) * 10, 0.25)
    assert params(Sharpness((0, 2), 0.75)) == (0, 2, *(0,) * 9, 0.75)
    assert params(Cutout((3, 4), (7, 8, 9))) == (0, 0, 0, 0, 3, 4, 7, 8, 9, 0, 0, 1)
    assert params(RandomErasing(0.5, (0.1, 0.2), (1, 2), 5)) == (0.1, 0.2, 1, 2, 0, 0, 5, 5, 5, 0, 0, 0.5)
    assert params(RandomErasing(value="random"))[6:10] == (0, 0, 0, 1)


def test_several_policies_share_one_table() -> None:
    program = lowered(RandAugment(3), AutoAugment("svhn"))
    assert [op.params[:3] for op in program.ops] == [(0, 14, 3), (14, 25, 1)]
    assert program.choices == RandAugment(3).choices() + AutoAugment("svhn").choices()


def test_floats_are_the_last_write() -> None:
    assert lower([ToFloat()], out="float32").scale == (1 / 255,) * 3
    both = lower([ToFloat(), Normalize(0.5, 0.25)], out="float32")
    assert both == lower([Normalize(0.5, 0.25)], out="float32")
    assert both.scale == (1 / (255 * 0.25),) * 3 and both.bias == (-2.0,) * 3


def test_out_follows_the_operations() -> None:
    pixels = stoker.arrays(i=np.zeros((4, 8, 8, 3), np.uint8))
    assert pixels.image("i", ToFloat()).sample(0)["i"].dtype == np.float32
    assert pixels.image("i", Resize((4, 4))).sample(0)["i"].dtype == np.uint8
    with pytest.raises(ConfigError, match="ToFloat, which produces floats"):
        pixels.image("i", ToFloat(), out="uint8")


@pytest.mark.parametrize(
    "ops, told",
    [
        ([Normalize(0, 1), HorizontalFlip()], "HorizontalFlip.* comes after Normalize"),
        ([ToFloat(), Invert()], "Invert.* comes after ToFloat.*put ToFloat at the end"),
        ([Normalize(0, 1), ToFloat()], "after Normalize"),
        ([Normalize(0, 1), Normalize(0, 1)], "second Normalize"),
        ([Invert(), CropBox()], r"CropBox.* comes after Invert.*put CropBox first"),
        ([CropBox("a"), CropBox("b")], "not to a and b"),
        ([HorizontalFlip()] * 17, "at most 16 operations, not 17"),
        ([RandomCrop(4, 1)] * 9, "at most 16 operations, not 18"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_stand_there_is_refused(ops: list[Operation], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        lowered(*ops)


@pytest.mark.parametrize("op", [Cutout(3, (1, 2, 3)), Pad(1, fill=(1, 2, 3)), RandomErasing(value=(1, 2, 3))], ids=str)
def test_a_gray_image_takes_no_colours(op: Operation) -> None:
    with pytest.raises(ConfigError, match="three channels, but color='gray'"):
        lowered(op, color="gray")


def test_boxes_may_be_cropped_to_before_and_behind_other_geometry() -> None:
    assert len(lowered(HorizontalFlip(), Pad(2), CropBox(), Rotate(5)).ops) == 4


# ---- what is done together ---------------------------------------------------------------------------------------------------


def done(*ops: Operation) -> list[tuple[PassWork, str]]:
    return [(each.work, " ".join(type(op).__name__ for op in each.operations)) for each in passes(ops)]


def test_neighbours_of_one_kind_are_done_together() -> None:
    ops = [RandomResizedCrop(8), HorizontalFlip(), Rotate(5), VerticalFlip(), Affine(3), ColorJitter(0.1), Invert(), Solarize(9),
           GaussianBlur(3), Invert(), RandAugment(), Cutout(2), RandomErasing(), Normalize(0, 1)]  # fmt: skip
    assert done(*ops) == [
        (PassWork.RESAMPLE, "RandomResizedCrop HorizontalFlip"),
        (PassWork.WARP, "Rotate VerticalFlip Affine"),
        (PassWork.COLOURS, "ColorJitter Invert Solarize"),
        (PassWork.NEIGHBOURS, "GaussianBlur"),
        (PassWork.COLOURS, "Invert"),
        (PassWork.POLICY, "RandAugment"),
        (PassWork.ERASE, "Cutout RandomErasing"),
    ]


def test_padding_moves_whole_pixels_and_a_late_resize_resamples_again() -> None:
    assert done(RandomCrop(8, 2), HorizontalFlip()) == [(PassWork.MOVE, "RandomCrop HorizontalFlip")]
    assert done(Resize(9), Pad(2), RandomCrop(4)) == [(PassWork.RESAMPLE, "Resize"), (PassWork.MOVE, "Pad RandomCrop")]
    assert done(Pad(2), Resize(4)) == [(PassWork.MOVE, "Pad"), (PassWork.RESAMPLE_AGAIN, "Resize")]
    assert done(Invert(), HorizontalFlip(), Resize(4)) == [
        (PassWork.COLOURS, "Invert"),
        (PassWork.RESAMPLE_AGAIN, "HorizontalFlip Resize"),
    ]


def test_two_fills_are_two_warps_and_two_equal_operations_are_two() -> None:
    assert done(Rotate(5), Rotate(5), Rotate(5, fill=9)) == [(PassWork.WARP, "Rotate Rotate"), (PassWork.WARP, "Rotate")]


def test_a_pipeline_tells_what_is_fused() -> None:
    pixels = stoker.arrays(i=np.zeros((4, 8, 8, 3), np.uint8))
    ops = [Resize(9), HorizontalFlip(), Rotate(5), ColorJitter(contrast=0.5), Invert(), Normalize(0.5, 0.5)]
    text = pixels.image("i", *ops, layout="chw").batch(2).explain()
    for told in (
        "Resize, HorizontalFlip: one resampling",
        "Rotate: one bilinear warp",
        "ColorJitter, Invert: one pass over the colours, and a look at the whole image for ColorJitter",
        "last write: normalised to float32, laid out as chw",
    ):
        assert told in text, told
