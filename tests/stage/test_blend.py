"""`blend`: MixUp and CutMix over whole batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stoker
from stoker import Pipeline
from stoker.errors import BatchError, ConfigError
from stoker.image import CutMix, HorizontalFlip, MixUp, RandomResizedCrop, Resize

from ..loader.runs import hash_of

N, CLASSES = 37, 40
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 8, 6, 3), dtype=np.uint8)
LABELS = np.arange(N)[::-1].copy()  # no two alike, so that a row's label tells its share
BOTH = (MixUp(1.0, classes=CLASSES), CutMix(classes=CLASSES))


def source(pixels: NDArray[Any] = PIXELS, labels: Any = LABELS) -> Pipeline:
    return stoker.arrays(image=pixels, label=labels, row=np.arange(len(pixels)))


def one_hot(labels: Any) -> NDArray[np.float32]:
    return np.eye(CLASSES, dtype=np.float32)[np.asarray(labels)]


def check(batch: Any, pixels: NDArray[Any] = PIXELS, real: int | None = None) -> float:
    """That a batch is its rows mixed with the ones before them; returns the share."""
    real = batch.rows if real is None else real
    rows = batch["row"][:real]
    own, other = pixels[rows], pixels[np.roll(rows, 1)]
    mine, theirs = one_hot(LABELS[rows]), one_hot(LABELS[np.roll(rows, 1)])
    share = float(batch["label"][0, LABELS[rows[0]]])
    np.testing.assert_allclose(batch["label"][:real], share * mine + (1 - share) * theirs, atol=1e-6)
    changed = (batch["image"][:real] != own).any(axis=(0, 3))
    mixed = share * own.astype(np.float64) + (1 - share) * other
    if np.abs(batch["image"][:real] - mixed).max() <= (0.51 if pixels.dtype == np.uint8 else 1e-4):
        return share
    ys, xs = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    box = np.s_[:, ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1]
    np.testing.assert_array_equal(batch["image"][:real][box], other[box])
    assert share == pytest.approx(1 - len(ys) * len(xs) / own[0, :, :, 0].size)
    return share


@pytest.mark.parametrize("op", [MixUp(1.0, classes=CLASSES), CutMix(classes=CLASSES)], ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_and_labels_are_mixed_with_the_row_before(op: Any, dtype: Any) -> None:
    pixels = PIXELS if dtype == np.uint8 else PIXELS.astype(np.float32) / 255 - 0.4
    shares = [check(batch, pixels) for batch in source(pixels).shuffle(seed=3).batch(4).blend(op)]
    assert len(shares) == 9 and len(set(shares)) > 4
    batch = next(iter(source(pixels).batch(4).blend(op)))
    assert batch["image"].dtype == dtype and batch["label"].dtype == np.float32 and batch["label"].shape == (4, CLASSES)
    assert list(batch.keys()) == ["image", "label", "row"]


def test_the_source_stays_as_it_was() -> None:
    before = PIXELS.copy()
    for batch in source().batch(8).blend(*BOTH):
        assert not np.may_share_memory(batch["image"], PIXELS)
    np.testing.assert_array_equal(before, PIXELS)


def test_images_are_mixed_in_the_memory_of_the_batch() -> None:
    with source().batch(8).blend(*BOTH).loader(threads=1) as loader:
        held = list(loader)
        assert all(type(_owner(batch["image"])).__name__ == "Lease" for batch in held)
        for batch in held:
            check(batch)


def _owner(array: Any) -> Any:
    while isinstance(array, np.ndarray):
        array = array.base
    return array


def test_a_batch_that_is_left_alone_has_soft_labels_too() -> None:
    for batch in source().batch(5, drop_last=False).blend(MixUp(classes=CLASSES, p=0)):
        np.testing.assert_array_equal(batch["image"], PIXELS[batch["row"]])
        np.testing.assert_array_equal(batch["label"], one_hot(LABELS[batch["row"]]))


def test_of_several_operations_one_is_chosen_for_each_batch() -> None:
    lengths = set()
    for batch in source(PIXELS[np.zeros(36, int)], LABELS[:36]).repeat(4).batch(4).blend(*BOTH):
        assert (batch["image"] == PIXELS[0]).all()  # all images are one, whatever was done
        lengths.add(round(float(batch["label"].max()) * 48) / 48 == pytest.approx(float(batch["label"].max()), abs=1e-6))
    assert lengths == {True, False}  # CutMix's shares are multiples of 1/48, MixUp's are not


def test_a_batch_of_one_and_a_last_one_that_is_short() -> None:
    for batch in source().batch(1).blend(*BOTH):
        np.testing.assert_array_equal(batch["image"], PIXELS[batch["row"]])
        np.testing.assert_array_equal(batch["label"], one_hot(LABELS[batch["row"]]))
    batches = list(source().batch(8, drop_last=False).blend(*BOTH))
    assert [batch.rows for batch in batches] == [8, 8, 8, 8, 5]
    for batch in batches:
        check(batch)


@pytest.mark.parametrize("remainder", ["pad", "keep", "drop"])
def test_rows_that_pad_are_nobodys_partner(remainder: str) -> None:
    for rank in range(3):
        batches = list(source().shard(rank, 3, remainder=remainder).batch(7).blend(*BOTH))
        for batch in batches:
            real = int(batch.valid.sum())
            if real > 1:
                check(batch, real=real)
            np.testing.assert_array_equal(batch["image"][real:], PIXELS[batch["row"][real:]])
            np.testing.assert_array_equal(batch["label"][real:], one_hot(LABELS[batch["row"][real:]]))


def test_bad_samples_that_are_left_out_are_nobodys_partner() -> None:
    def fine(row: Any) -> Any:
        if row in (0, 9, 23):
            raise ValueError("bad")
        return row

    pipeline = source().map(row=fine).batch(8, drop_last=False).on_error("skip", budget=9).blend(*BOTH)
    batches = list(pipeline)
    assert [batch.rows for batch in batches] == [7, 7, 7, 8, 5]
    for batch in batches:
        check(batch)


def test_the_same_batches_are_mixed_alike_on_any_number_of_ranks() -> None:
    pipeline = source().shuffle(seed=1)
    alone = [hash_of(batch) for batch in pipeline.batch(4).blend(*BOTH)]
    shared: list[list[str]] = [[hash_of(batch) for batch in pipeline.shard(rank, 3).batch(4).blend(*BOTH)] for rank in range(3)]
    assert [one for step in zip(*shared) for one in step] == alone[:9]


def test_every_epoch_and_every_pass_draws_anew() -> None:
    with source().batch(36).blend(MixUp(1.0, classes=CLASSES)).loader(executor="inline") as loader:
        assert len({hash_of(batch) for _ in range(3) for batch in loader}) == 3
    repeated = source().take(36).repeat(3).batch(36).blend(MixUp(1.0, classes=CLASSES))
    assert len({hash_of(batch) for batch in repeated}) == 3


def test_blending_twice_mixes_soft_labels() -> None:
    most = 0
    for batch in source().batch(6).blend(MixUp(1.0, classes=CLASSES)).blend(CutMix(classes=CLASSES)):
        np.testing.assert_allclose(batch["label"].sum(1), 1, atol=1e-5)
        most = max(most, int((batch["label"] > 0).sum(1).max()))
    assert most == 3


def test_names_channels_first_gray_and_four_channels() -> None:
    planar = np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2))
    pipeline = stoker.arrays(pic=planar, cls=LABELS).batch(4).blend(*BOTH, image="pic", label="cls")
    plain = stoker.arrays(pic=PIXELS, cls=LABELS).batch(4).blend(*BOTH, image="pic", label="cls")
    for a, b in zip(pipeline, plain):
        np.testing.assert_array_equal(a["pic"].transpose(0, 2, 3, 1), b["pic"])
        np.testing.assert_array_equal(a["cls"], b["cls"])
    for pixels in (PIXELS[..., 0], np.concatenate([PIXELS, PIXELS[..., :1]], axis=3)):
        for batch, reference in zip(source(pixels).batch(4).blend(*BOTH), source().batch(4).blend(*BOTH)):
            shown = batch["image"] if pixels.ndim == 3 else batch["image"][..., 0]
            np.testing.assert_array_equal(shown, reference["image"][..., 0])


def test_a_shape_that_does_not_tell_its_layout_needs_a_word() -> None:
    square = np.zeros((8, 3, 5, 3), np.uint8)
    with pytest.raises(ConfigError, match="layout="):
        list(source(square, LABELS[:8]).batch(4).blend(*BOTH))
    for layout in ("hwc", "chw"):
        assert len(list(source(square, LABELS[:8]).batch(4).blend(*BOTH, layout=layout))) == 2


def test_it_follows_an_image_stage_and_torch_gets_tensors(image_folder: Path) -> None:
    import torch

    folder = stoker.files(image_folder).shuffle(seed=2)
    classes = len(folder.classes)
    ops = (MixUp(classes=classes), CutMix(classes=classes))
    plain = folder.image("image", RandomResizedCrop(16), HorizontalFlip(), layout="chw", out="float32").batch(4)
    with plain.blend(*ops).loader(threads=2, format="torch") as loader:
        for batch, before in zip(loader, plain):
            assert batch["image"].dtype == torch.float32 and batch["image"].shape == before["image"].shape
            assert batch["label"].shape == (4, classes) and batch["label"].dtype == torch.float32
            assert (batch["image"].numpy() != before["image"]).any()


def test_nan_spreads_to_the_row_behind_and_no_further() -> None:
    pixels = PIXELS[:8].astype(np.float32)
    pixels[2, 3, 3, 1] = np.nan
    (batch,) = source(pixels, LABELS[:8]).batch(8).blend(MixUp(1.0, classes=CLASSES))
    assert np.argwhere(np.isnan(batch["image"])).tolist() == [[2, 3, 3, 1], [3, 3, 3, 1]]
    assert not np.isnan(batch["label"]).any()


def test_what_a_batch_function_still_holds_is_not_changed() -> None:
    kept = PIXELS[:8].copy()

    def mine(columns: dict[str, Any]) -> dict[str, Any]:
        return {**columns, "image": kept}

    def twice(columns: dict[str, Any]) -> dict[str, Any]:
        return {**columns, "original": columns["image"]}

    for batch in source().take(32).batch(8).map_batch(mine).blend(MixUp(1.0, classes=CLASSES)):
        assert (batch["image"] != PIXELS[:8]).any()
        np.testing.assert_array_equal(kept, PIXELS[:8])
    for batch in source().batch(8).map_batch(twice).blend(MixUp(1.0, classes=CLASSES)):
        np.testing.assert_array_equal(batch["original"], PIXELS[batch["row"]])
        check(batch)


# ---- mistakes ----------------------------------------------------------------------------------------------------------------


def test_labels_out_of_range_name_the_sample() -> None:
    for bad in (-1, CLASSES, 1 << 40):
        labels = LABELS.copy()
        labels[13] = bad
        with pytest.raises(BatchError, match=f"label {bad} of sample '13'.*classes={CLASSES}"):
            list(source(labels=labels).batch(4).blend(*BOTH))


@pytest.mark.parametrize(
    "labels",
    [np.arange(N) / 2, np.zeros((N, 1), int), np.zeros((N, 3), np.float32), np.zeros(N, bool)],
    ids=lambda a: str(a.dtype),
)
def test_labels_that_are_not_whole_numbers_are_found_before_running(labels: Any) -> None:
    pipeline = source(labels=labels).batch(4).blend(*BOTH)
    with pytest.raises(ConfigError, match=r"one integer, or [0-9]+ numbers, per row"):
        pipeline.explain()
    hidden = source(labels=labels).map(lambda sample: sample).batch(4).blend(*BOTH)  # a function decides the fields
    with pytest.raises(BatchError, match=r"one integer, or [0-9]+ numbers, per row"):
        list(hidden)


def test_text_labels_are_refused() -> None:
    with pytest.raises(BatchError, match="the field holds a list"):
        list(source().map(label=str).batch(4).blend(*BOTH))


def test_images_that_cannot_be_mixed_are_found_before_running(image_folder: Path) -> None:
    files = stoker.files(image_folder)
    with pytest.raises(ConfigError, match=r"decode it with \.image"):
        files.batch(4).blend(*BOTH).explain()
    with pytest.raises(BatchError, match="must have the same size; crop or resize them first"):
        list(files.image("image", Resize(20)).batch(4).blend(*BOTH))
    with pytest.raises(ConfigError, match="uint8 or float32"):
        source(PIXELS.astype(np.float64)).batch(4).blend(*BOTH).explain()
    with pytest.raises(ConfigError, match=r"'picture'.*fields here are image, label, row"):
        source().batch(4).blend(*BOTH, image="picture").explain()
    with pytest.raises(BatchError, match="crop or resize"):
        list(source().map(lambda s: {**s, "image": s["image"].tolist()}).batch(4, pad={"image": list}).blend(*BOTH))
    with pytest.raises(BatchError, match="float64"):
        list(source().map(image=lambda v: v / 255.0).batch(4).blend(*BOTH))
    with pytest.raises(BatchError, match=r"'picture'.*batch has"):
        list(source().map(lambda s: s).batch(4).blend(*BOTH, image="picture"))


def test_images_whose_size_only_the_samples_tell_are_mixed_where_they_have_one_size() -> None:
    known, unknown = source().image("image"), source().map(image=lambda image: image).image("image")
    for expected, batch in zip(known.batch(4).blend(*BOTH), unknown.batch(4).blend(*BOTH)):
        np.testing.assert_array_equal(batch["label"], expected["label"])
        assert isinstance(batch["image"], np.ndarray) and batch["image"].shape == expected["image"].shape


def test_padded_images_of_varying_size_may_be_mixed() -> None:
    def cut(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "image": sample["image"][: 4 + int(sample["row"]) % 3]}

    for batch in source().map(cut).batch(4, pad={"image": 0}).blend(*BOTH, layout="hwc"):
        assert batch["image"].shape[0] == 4


def test_it_stands_behind_batch_and_takes_operations_over_batches() -> None:
    with pytest.raises(ConfigError, match=r"blend\(\) needs a batch"):
        source().blend(*BOTH).explain()
    with pytest.raises(ConfigError, match=r"blend\(\) is between batch"):
        source().batch(4).blend(*BOTH).unbatch().batch(4).explain()
    for ops in ((), (HorizontalFlip(),), (MixUp,), (0.2,)):
        with pytest.raises(ConfigError, match="operations over batches"):
            source().batch(4).blend(*ops)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="differ in classes"):
        source().batch(4).blend(MixUp(classes=3), CutMix(classes=4))
    with pytest.raises(ConfigError, match="layout"):
        source().batch(4).blend(*BOTH, layout="nhwc")
    with pytest.raises(ConfigError, match="each only once"):
        source().batch(4).blend(*BOTH, image="x", label="x")


# ---- looking -----------------------------------------------------------------------------------------------------------------


def test_it_is_told_and_part_of_the_fingerprint() -> None:
    pipeline = source().batch(4).blend(MixUp(classes=10), CutMix(1.0, 10, p=0.5))
    assert "finish   blend(MixUp(0.2, classes=10), CutMix(1, classes=10, p=0.5))" in pipeline.explain()
    assert pipeline.fingerprint() != source().batch(4).blend(MixUp(0.3, classes=10), CutMix(1.0, 10, p=0.5)).fingerprint()


def test_fields_nobody_looks_at_are_not_read() -> None:
    pipeline = source().batch(4).blend(*BOTH).select("image", "label")
    assert pipeline.plan.wanted == ("image", "label")
    assert source().batch(4).blend(*BOTH).select("row").plan.wanted == ("image", "label", "row")


def test_explain_tells_what_was_mixed() -> None:
    pipeline = source().shuffle(seed=3).batch(4).blend(*BOTH)
    with pipeline.loader(executor="inline") as loader:
        for step, batch in enumerate(loader):
            told = loader.explain(step, epoch=0)
            assert {row["blend"]["operation"] for row in told} <= {"MixUp", "CutMix"}
            assert told[0]["blend"]["share"] == pytest.approx(check(batch), abs=1e-5)
