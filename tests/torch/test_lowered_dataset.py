"""Known data sets of torch as pipelines: the same items, in the same types; and what is not the same is left as it is."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from stoker.errors import ImageError, ReadError, SampleError
from stoker.torch import DataLoader
from stoker.torch.lowered_dataset import Lowered, lower_dataset
from stoker.torch.lowered_transforms import NotLowered, Recipe, lower_transforms

from ..image.vision import BILINEAR, torch, v1, v2
from ..kernel.images import picture

from torch.utils.data import ConcatDataset, Subset, TensorDataset, default_collate, random_split  # isort: skip
from torchvision.datasets import DatasetFolder, FakeData, ImageFolder  # isort: skip
from torchvision.datasets.folder import default_loader, pil_loader  # isort: skip

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOAT = v2.ToDtype(torch.float32, scale=True)
NORMALIZE = v1.Normalize(MEAN, STD)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve JPEGs of several sizes, in three classes."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(12):
        width, height = ((160, 120), (120, 160), (150, 150))[number % 3]
        _save(root / "abc"[number // 4] / f"{number}.jpg", picture(width, height, number), quality=92)
    return root


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four PNGs of 40 x 32 pixels: what is compared there is the transform alone."""
    root = tmp_path_factory.mktemp("tiles")
    for number in range(4):
        _save(root / "ab"[number % 2] / f"{number}.png", picture(40, 32, number))
    return root


def _save(path: Path, pixels: Any, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(path, **options)


def lowered(dataset: Any) -> Lowered:
    made = lower_dataset(dataset)
    assert isinstance(made, Lowered), made
    return made


def why(dataset: Any) -> str:
    made = lower_dataset(dataset)
    assert isinstance(made, NotLowered), made
    return made.why


def ours(dataset: Any, epoch: int = 0) -> Any:
    """All of a data set as one batch, by the pipeline."""
    made = lowered(dataset)
    with made.pipeline.batch(len(dataset)).loader(format="torch", executor="inline", epoch=epoch) as loader:
        return made.restore(next(iter(loader)))


def theirs(dataset: Any) -> Any:
    """All of a data set as one batch, by torch."""
    return default_collate([dataset[index] for index in range(len(dataset))])


def assert_alike(made: Any, expected: Any) -> None:
    """Types, shapes, dtypes and memory layout, and labels; pixels apart."""
    assert type(made) is type(expected) is list
    assert len(made) == len(expected)
    for mine, other in zip(made, expected):
        assert type(mine) is type(other) is torch.Tensor
        assert (mine.dtype, mine.shape, mine.stride()) == (other.dtype, other.shape, other.stride())
        assert mine.is_contiguous()
        assert mine.requires_grad == other.requires_grad
    assert torch.equal(made[-1], expected[-1])


# ---- folders of images -----------------------------------------------------------------------------------------------------

EVALUATION = {
    "v1": v1.Compose([v1.Resize(96), v1.CenterCrop(80), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "v2": v2.Compose([v2.Resize(96), v2.CenterCrop(80), v2.ToImage(), FLOAT, v2.Normalize(MEAN, STD)]),
    "nested": v1.Compose([v1.Compose([v1.Resize((80, 90))]), torch.nn.Sequential(v1.CenterCrop(64)), v1.ToTensor(), NORMALIZE]),
    "on tensors": v2.Compose([v2.PILToTensor(), v2.Resize(96), v2.CenterCrop(80), v2.ConvertImageDtype(), NORMALIZE]),
    "on floats": v1.Compose([v1.ToTensor(), v1.Resize(96), v1.CenterCrop(80), v1.Normalize(MEAN, STD, inplace=True)]),
    "small": v1.Compose([v1.Resize(28), v1.CenterCrop(24), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "gray": v1.Compose([v1.Resize(96), v1.CenterCrop(80), v1.Grayscale(), v1.ToTensor(), v1.Normalize([0.5], [0.25])]),
    "not normalized": v1.Compose([v1.Resize(96), v1.CenterCrop(80), v1.ToTensor()]),
    "bytes": v2.Compose([v2.Resize(96), v2.CenterCrop(80), v2.ToImage(), v2.ToPureTensor()]),
}  # fmt: skip


@pytest.mark.parametrize("recipe", EVALUATION)
def test_an_evaluation_recipe_gives_the_pixels_of_torchvision(recipe: str, photos: Path) -> None:
    dataset = ImageFolder(photos, EVALUATION[recipe])
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    level = _level(EVALUATION[recipe])
    assert ((made[0].double() - expected[0].double()).abs() / level).mean() < 0.5  # as docs/reference/image.md promises


def _level(transform: Any) -> Any:
    """What a level of 255 is in the result of a recipe, for each channel."""
    made = lower_transforms(transform)
    assert isinstance(made, Recipe)
    if made.out == "uint8":
        return torch.tensor(1.0)
    std = torch.tensor(made.ops[-1].std) if type(made.ops[-1]).__name__ == "Normalize" else torch.tensor([1.0])
    return (1 / (255 * std.double())).reshape(1, -1, 1, 1)


def test_items_keep_their_order_and_the_pipeline_is_neither_batched_nor_shuffled(photos: Path) -> None:
    dataset = ImageFolder(photos, EVALUATION["v1"])
    pipeline = lowered(dataset).pipeline
    assert len(pipeline) == len(dataset) == 12
    assert list(pipeline.plan.specs or ()) == ["image", "label"]
    assert [pipeline.sample(index).key for index in (0, 11)] == [dataset.samples[index][0] for index in (0, 11)]


@pytest.mark.parametrize("loader", [default_loader, pil_loader])
def test_a_dataset_folder_that_reads_with_pillow_is_lowered(loader: Any, photos: Path) -> None:
    dataset = DatasetFolder(str(photos), loader, (".jpg",), EVALUATION["v1"])
    assert_alike(ours(dataset), theirs(dataset))


def test_samples_that_a_program_has_changed_are_the_ones_that_are_read(photos: Path) -> None:
    dataset = ImageFolder(photos, EVALUATION["v1"])
    dataset.samples = [(path, 7 * label) for path, label in dataset.samples[::-1]]
    assert_alike(ours(dataset), theirs(dataset))


def test_images_of_several_sizes_fail_as_torch_fails(photos: Path) -> None:
    dataset = ImageFolder(photos, v1.ToTensor())
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        theirs(dataset)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        ours(dataset)


def test_images_that_happen_to_have_one_size_are_stacked(tiles: Path) -> None:
    dataset = ImageFolder(tiles, v1.Compose([v1.Resize(16), v1.ToTensor()]))
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    assert (made[0] - expected[0]).abs().max() * 255 <= 1.01


def test_notes_say_what_became_of_what(photos: Path) -> None:
    notes = lowered(ImageFolder(photos, EVALUATION["gray"])).notes
    assert notes[0] == "ImageFolder: 12 files, read and decoded in one native call"
    assert "CenterCrop: CenterCrop(size=(80, 80))" in notes
    assert "Grayscale: Grayscale(p=1.0), of which one channel is kept" in notes
    assert "ToTensor: floats in the last write" in notes


# ---- transforms, one by one ------------------------------------------------------------------------------------------------

#: transforms whose result is certain, and how many levels a pixel may differ
CERTAIN: dict[str, tuple[Any, float]] = {
    "Pad": (v2.Pad((1, 2, 3, 4), fill=(10, 20, 30)), 0),
    "Pad reflect": (v2.Pad(3, padding_mode="reflect"), 0),
    "CenterCrop larger than the image": (v1.CenterCrop((50, 20)), 0),
    "RandomCrop of everything": (v1.RandomCrop((32, 40)), 0),
    "RandomCrop of everything, padded": (v2.RandomCrop((38, 42), padding=(1, 3)), 0),
    "RandomCrop of everything, four sides": (v2.RandomCrop((38, 44), padding=(1, 2, 3, 4), padding_mode="edge"), 0),
    "RandomResizedCrop of everything": (v1.RandomResizedCrop((16, 20), (1, 1), (1.25, 1.25)), 1),
    "Resize twice": (v1.Compose([v1.Resize(24), v1.RandomHorizontalFlip(1), v1.Resize((12, 12))]), 1),
    "Resize, then RandomResizedCrop": (v1.Compose([v1.Resize(24), v1.RandomResizedCrop((16, 20), (1, 1), (1.25, 1.25))]), 1),
    "Resize of what was padded": (v1.Compose([v1.CenterCrop(60), v1.Resize((20, 20))]), 1),
    "Resize of what was cropped": (v1.Compose([v1.CenterCrop(24), v1.Resize((20, 20))]), 1),
    "Resize, Pad, Resize": (v1.Compose([v1.Resize(24), v1.Pad(2), v1.Resize((12, 12))]), 1),
    "RandomCrop, then Resize": (v1.Compose([v1.RandomCrop((32, 40)), v1.Resize((20, 30))]), 1),
    "RandomHorizontalFlip": (v1.RandomHorizontalFlip(1), 0),
    "RandomVerticalFlip": (v2.RandomVerticalFlip(1), 0),
    "brightness": (v1.ColorJitter(brightness=(1.3, 1.3)), 1),
    "contrast": (v2.ColorJitter(contrast=(0.6, 0.6)), 1),
    "saturation": (v1.ColorJitter(saturation=(1.4, 1.4)), 2),
    "Grayscale(3)": (v1.Grayscale(3), 1),
    "RandomGrayscale": (v2.RandomGrayscale(1), 1),
    "GaussianBlur": (v1.GaussianBlur(5, 1.1), 1),
    "RandomSolarize": (v1.RandomSolarize(100, 1), 0),
    "RandomPosterize": (v2.RandomPosterize(3, 1), 0),
    "RandomEqualize": (v1.RandomEqualize(1), 0),
    "RandomAutocontrast": (v1.RandomAutocontrast(1), 1),
    "RandomAdjustSharpness": (v2.RandomAdjustSharpness(1.8, 1), 1),
    "RandomInvert": (v1.RandomInvert(1), 0),
    "RandomApply, always": (v1.RandomApply([v1.RandomInvert(1)], 1), 0),
    "Identity": (torch.nn.Sequential(v2.Identity(), torch.nn.Identity()), 0),
}
#: of these, what is not lowered on floats, because it gives something else there or nothing at all
ON_BYTES_ALONE = {"Pad", "RandomSolarize", "RandomPosterize", "RandomEqualize", "RandomAutocontrast"}
AFTER_NORMALIZE = {
    "RandomCrop of everything", "RandomHorizontalFlip", "RandomVerticalFlip", "Identity",
}  # fmt: skip


@pytest.mark.parametrize("name", CERTAIN)
def test_a_transform_gives_the_pixels_of_torchvision(name: str, tiles: Path) -> None:
    transform, levels = CERTAIN[name]
    for recipe in ([transform, v1.PILToTensor()], [v1.PILToTensor(), transform]):
        dataset = ImageFolder(tiles, v1.Compose(recipe))
        made, expected = ours(dataset), theirs(dataset)
        assert_alike(made, expected)
        assert (made[0].int() - expected[0].int()).abs().max() <= levels


@pytest.mark.parametrize("name", CERTAIN)
def test_on_floats_it_is_lowered_where_it_gives_the_same(name: str, tiles: Path) -> None:
    transform, levels = CERTAIN[name]
    dataset = ImageFolder(tiles, v1.Compose([v1.ToTensor(), transform]))
    if name in ON_BYTES_ALONE:
        assert "on a tensor of floats has no counterpart" in why(dataset)
        return
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    assert (made[0] - expected[0]).abs().max() * 255 <= max(1, levels) + 0.51  # floats are not rounded between transforms


@pytest.mark.parametrize("name", CERTAIN)
def test_after_normalize_only_what_moves_pixels_is_lowered(name: str, tiles: Path) -> None:
    transform, _ = CERTAIN[name]
    dataset = ImageFolder(tiles, v1.Compose([v1.ToTensor(), NORMALIZE, transform]))
    if name not in AFTER_NORMALIZE:
        assert "has no counterpart" in why(dataset)
        return
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    torch.testing.assert_close(made[0], expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "transform",
    [v1.RandomRotation((30, 30), BILINEAR), v2.RandomAffine((10, 10), None, (0.8, 0.8), (5, 5), interpolation="bilinear")],
    ids=lambda transform: type(transform).__name__,
)
def test_a_warp_gives_the_pixels_of_torchvision_away_from_the_border(transform: Any, tiles: Path) -> None:
    dataset = ImageFolder(tiles, v1.Compose([transform, v1.PILToTensor()]))
    made, expected = ours(dataset)[0].int(), theirs(dataset)[0].int()
    inside = torch.zeros_like(made, dtype=torch.bool)
    inside[:, :, 10:-10, 14:-14] = True
    assert (made - expected)[inside].abs().max() <= 1
    assert (made - expected).abs().double().mean() < 3


def test_hue_is_within_what_pillow_rounds_it_to(tiles: Path) -> None:
    dataset = ImageFolder(tiles, v1.Compose([v1.ColorJitter(hue=(0.2, 0.2)), v1.PILToTensor()]))
    difference = (ours(dataset)[0].int() - theirs(dataset)[0].int()).abs().double()
    assert difference.mean() < 2
    assert difference.max() <= 12


@pytest.mark.parametrize(
    "policy",
    [
        v1.RandAugment(interpolation=BILINEAR),
        v2.TrivialAugmentWide(interpolation="bilinear"),
        v1.AutoAugment(interpolation=BILINEAR),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_a_policy_is_lowered_if_it_is_bilinear(policy: Any, tiles: Path) -> None:
    dataset = ImageFolder(tiles, v1.Compose([policy, v1.ToTensor()]))
    assert_alike(ours(dataset), theirs(dataset))
    made = lower_transforms(dataset.transform)
    assert isinstance(made, Recipe)
    assert type(made.ops[0]).__name__ == type(policy).__name__.removesuffix("Wide")


# ---- transforms that draw --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ramp(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    """One image 600 times, in which every pixel says where it is: red its column, green its row."""
    root = tmp_path_factory.mktemp("ramp")
    y, x = np.mgrid[:24, :24]
    _save(root / "a" / "0.png", np.stack([x * 10, y * 10, np.full_like(x, 250)], -1).astype(np.uint8))
    dataset = ImageFolder(root)
    dataset.samples = dataset.samples * 600
    return dataset


def drawn(ramp: ImageFolder, *transforms: Any) -> Any:
    ramp.transform = v1.Compose(list(transforms))
    return ours(ramp)[0]


def test_a_flip_happens_as_often_as_it_is_asked_to(ramp: ImageFolder) -> None:
    images = drawn(ramp, v1.PILToTensor(), v2.RandomHorizontalFlip(0.3))
    flipped = (images[:, 0, 0, 0] == 230).double().mean()
    assert 0.3 - 0.08 < flipped < 0.3 + 0.08


def test_a_padded_crop_takes_every_place_and_black_outside(ramp: ImageFolder) -> None:
    images = drawn(ramp, v1.RandomCrop(24, padding=4), v1.PILToTensor())
    inside = images[:, 2] == 250
    assert (images[:, 2] == 0).logical_or(inside).all()
    left = (~inside[:, 12, :12]).sum(1) - (~inside[:, 12, 12:]).sum(1)  # 4 to -4
    counts = torch.bincount(left + 4, minlength=9)
    assert len(counts) == 9
    assert ((counts - 600 / 9) ** 2 / (600 / 9)).sum() < 26.1  # chi-square, 8 degrees of freedom, 0.1 %


def test_what_is_applied_now_and_then_happens_as_often(ramp: ImageFolder) -> None:
    images = drawn(ramp, v1.RandomApply([v1.RandomInvert(0.5)], 0.5), v1.PILToTensor())
    assert 0.25 - 0.08 < (images[:, 2, 0, 0] == 5).double().mean() < 0.25 + 0.08


def test_erasing_before_normalize_is_black_and_after_it_the_mean(ramp: ImageFolder) -> None:
    erase = v1.RandomErasing(1.0, (0.2, 0.2), (1, 1))
    black = drawn(ramp, v1.ToTensor(), erase, v1.Normalize([0.25], [0.5]))
    mean = drawn(ramp, v1.ToTensor(), v1.Normalize(MEAN, STD), erase)
    for images, level, tolerance in ((black, -0.5, 1e-6), (mean, 0.0, 0.5 / 255 / 0.22)):
        erased = (images[:, 2] - level).abs() <= tolerance
        assert torch.equal(erased.sum((1, 2)), torch.full((600,), 11 * 11))  # sqrt(0.2 * 24 * 24), rounded
    assert ((mean.abs() <= 0.5 / 255 / 0.22).all(1)).sum() >= 600 * 11 * 11


def test_every_epoch_draws_again(ramp: ImageFolder) -> None:
    ramp.transform = v1.Compose([v1.RandomCrop(12), v1.ToTensor()])
    assert not torch.equal(ours(ramp, epoch=0)[0], ours(ramp, epoch=1)[0])


# ---- files that are not plain JPEGs ----------------------------------------------------------------------------------------


def _saved(pixels: Any, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(out, format, **options)
    return out.getvalue()


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return _saved(picture(40, 32), "JPEG", exif=exif)


def _transparent() -> bytes:
    image = Image.fromarray(picture(40, 32)).quantize(16)
    return _saved(image, "PNG", transparency=3)


def _damaged() -> bytes:
    """A JPEG that libjpeg warns of, which Pillow does not mind: a stray byte before the end."""
    whole = bytearray(_saved(picture(40, 32), "JPEG", quality=92))
    at = len(whole) * 3 // 4
    whole[at : at + 3] = b"\xff\xd4\x00"  # a restart marker where none belongs
    return bytes(whole)


RGB = Image.fromarray(picture(40, 32))
FILES: dict[str, Callable[[], bytes]] = {
    "gray.jpg": lambda: _saved(RGB.convert("L"), "JPEG"),
    "cmyk.jpg": lambda: _saved(RGB.convert("CMYK"), "JPEG"),
    "progressive.jpg": lambda: _saved(RGB, "JPEG", progressive=True),
    "turned.jpg": _turned,
    "damaged.jpg": _damaged,
    "gray.png": lambda: _saved(RGB.convert("L"), "PNG"),
    "one bit.png": lambda: _saved(RGB.convert("1"), "PNG"),
    "palette.png": lambda: _saved(RGB.quantize(16), "PNG"),
    "transparent palette.png": _transparent,
    "alpha.png": lambda: _saved(np.dstack([picture(40, 32), picture(40, 32)[:, :, :1]]), "PNG"),
    "gray with alpha.png": lambda: _saved(RGB.convert("LA"), "PNG"),
    "deep.png": lambda: _saved(picture(40, 32)[:, :, 0].astype(np.uint16) * 3, "PNG"),
    "deep.tif": lambda: _saved(picture(40, 32)[:, :, 0].astype(np.int32) * 3, "TIFF"),
    "floats.tif": lambda: _saved(picture(40, 32)[:, :, 0].astype(np.float32) * 1.5, "TIFF"),
    "a GIF.jpg": lambda: _saved(RGB, "GIF"),
    "photo.webp": lambda: _saved(RGB, "WEBP", lossless=True),
    "photo.bmp": lambda: _saved(RGB, "BMP"),
    "photo.ppm": lambda: _saved(RGB, "PPM"),
}


@pytest.mark.parametrize("fixed", [True, False], ids=["one size", "any size"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_a_file_of_any_kind_gives_the_pixels_of_pillow(name: str, fixed: bool, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_bytes(FILES[name]())
    crop = [v1.CenterCrop((32, 40))] if fixed else []
    dataset = ImageFolder(tmp_path, v1.Compose([*crop, v1.PILToTensor()]))
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    assert (made[0].int() - expected[0].int()).abs().max() <= 1


@pytest.mark.parametrize("crop", [[v1.CenterCrop(32)], []], ids=["one size", "any size"])
def test_a_truncated_file_fails_as_with_pillow_and_is_named(crop: Sequence[Any], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cut.jpg").write_bytes(_saved(picture(400, 320), "JPEG")[:9000])
    dataset = ImageFolder(tmp_path, v1.Compose([*crop, v1.ToTensor()]))
    with pytest.raises(OSError, match="truncated"):
        theirs(dataset)
    with pytest.raises(ImageError, match=r"a/cut\.jpg': .*truncated"):
        ours(dataset)


def test_a_truncated_file_is_read_where_pillow_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cut.jpg").write_bytes(_saved(picture(400, 320), "JPEG")[:9000])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    dataset = ImageFolder(tmp_path, v1.Compose([v1.CenterCrop(300), v1.PILToTensor()]))
    made, expected = ours(dataset), theirs(dataset)
    assert (made[0].int() - expected[0].int()).abs().max() <= 1


@pytest.mark.parametrize("contents", [b"", b"no image at all"])
def test_what_is_no_image_fails_and_is_named(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bad.jpg").write_bytes(contents)
    with pytest.raises(ImageError, match=r"a/bad\.jpg"):
        ours(ImageFolder(tmp_path, v1.Compose([v1.CenterCrop(32), v1.ToTensor()])))


def test_a_file_that_is_gone_is_named(photos: Path) -> None:
    dataset = ImageFolder(photos, EVALUATION["v1"])
    dataset.samples = [(str(photos / "a" / "gone.jpg"), 0)]
    with pytest.raises(FileNotFoundError), open(dataset.samples[0][0]):
        pass
    with pytest.raises(ReadError, match=r"a/gone\.jpg"):
        ours(dataset)


@pytest.mark.parametrize("name", ["bad.jpg", "gone.jpg"])
def test_the_remedy_for_a_bad_item_is_one_that_a_data_loader_has(name: str, tmp_path: Path) -> None:
    for number in range(3):
        _save(tmp_path / "a" / f"{number}.jpg", picture(40, 32))
    bad = tmp_path / "a" / name
    bad.write_bytes(b"no image at all")
    dataset = ImageFolder(tmp_path, v1.Compose([v1.CenterCrop(8), v1.ToTensor()]))
    if name == "gone.jpg":
        bad.unlink()
    with pytest.raises(SampleError, match=name) as raised:
        list(DataLoader(dataset, 2, num_workers=1))
    assert "leave its index out with torch.utils.data.Subset" in str(raised.value) and "on_error" not in str(raised.value)
    kept = [index for index, (path, _) in enumerate(dataset.samples) if path != str(bad)]
    assert sum(len(labels) for _, labels in DataLoader(Subset(dataset, kept), 2, num_workers=1)) == 3


def test_an_image_is_as_large_as_pillow_lets_it_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _save(tmp_path / "a" / "0.jpg", picture(40, 32))
    dataset = ImageFolder(tmp_path, v1.Compose([v1.CenterCrop(8), v1.ToTensor()]))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 32 // 2 - 1)
    with pytest.raises(ImageError, match=r"a/0\.jpg': .*1278"):
        ours(dataset)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert ours(dataset)[0].shape == (1, 3, 8, 8)


# ---- what is left as it is -------------------------------------------------------------------------------------------------


class OwnFolder(ImageFolder):  # type: ignore[misc]
    """Derived, so it may do anything."""


class OwnResize(v1.Resize):  # type: ignore[misc]
    """Derived, so it may do anything."""


def _with_hook() -> Any:
    transform = v1.RandomInvert()
    transform.register_forward_hook(lambda module, given, made: made)
    return transform


def _with_method() -> Any:
    transform = v1.Resize(8)
    transform.forward = lambda image: image
    return transform


REFUSED: dict[str, tuple[list[Any], str]] = {
    "no tensor": ([v1.Resize(8)], "its items are Pillow images, which torch cannot join into batches"),
    "bicubic": ([v1.Resize(8, v1.InterpolationMode.BICUBIC), v1.ToTensor()], "Resize(interpolation='bicubic') has no"),
    "longest side": ([v1.Resize(8, max_size=20), v1.ToTensor()], "Resize(max_size=20) has no counterpart"),
    "not antialiased": ([v2.ToImage(), v2.Resize(8, antialias=False), FLOAT], "Resize(antialias=False) has no counterpart"),
    "antialias unset": (
        [v2.ToImage(), v2.RandomResizedCrop(8, antialias=None), FLOAT],
        "RandomResizedCrop(antialias=None) on a tensor of uint8 has no counterpart",
    ),
    "nearest rotation": ([v1.RandomRotation(10), v1.ToTensor()], "RandomRotation(interpolation='nearest') has no counterpart"),
    "expanded": (
        [v1.RandomRotation(10, BILINEAR, expand=True), v1.ToTensor()],
        "RandomRotation(expand=True) has no counterpart",
    ),
    "off centre": ([v2.RandomAffine(3, interpolation=BILINEAR, center=[1, 2]), v1.ToTensor()], "RandomAffine(center=(1, 2))"),
    "coloured fill": ([v2.RandomRotation(3, BILINEAR, fill=(1, 2, 3)), v1.ToTensor()], "RandomRotation(fill=(1, 2, 3))"),
    "fill by type": ([v2.Pad(3, fill={torch.Tensor: 3}), v1.ToTensor()], "Pad(fill="),
    "nearest RandAugment": ([v1.RandAugment(), v1.ToTensor()], "RandAugment(interpolation='nearest') has no counterpart"),
    "nearest TrivialAugment": ([v2.TrivialAugmentWide(), v1.ToTensor()], "TrivialAugmentWide(interpolation='nearest')"),
    "nearest AutoAugment": ([v2.AutoAugment(), v1.ToTensor()], "AutoAugment(interpolation='nearest')"),
    "policy on floats": ([v1.ToTensor(), v2.RandAugment(interpolation=BILINEAR)], "RandAugment on a tensor of floats"),
    "AugMix": ([v2.AugMix(), v1.ToTensor()], "AugMix has no counterpart"),
    "fill on floats": ([v1.ToTensor(), v1.Pad(2, fill=1)], "Pad(fill=1) on a tensor of floats has no counterpart"),
    "padding after Normalize": ([v1.ToTensor(), NORMALIZE, v1.RandomCrop(8, 4)], "RandomCrop(padding=4) after Normalize"),
    "symmetric": ([v1.RandomCrop(8, 2, padding_mode="symmetric"), v1.ToTensor()], "RandomCrop(padding_mode='symmetric')"),
    "padded if needed": ([v1.RandomCrop(8, pad_if_needed=True), v1.ToTensor()], "RandomCrop(pad_if_needed=True)"),
    "filled crop": ([v1.RandomCrop(8, 2, fill=7), v1.ToTensor()], "RandomCrop(fill=7)"),
    "oblong kernel": ([v1.GaussianBlur((3, 5)), v1.ToTensor()], "GaussianBlur(kernel_size=(3, 5)) has no counterpart"),
    "colours after Normalize": ([v1.ToTensor(), NORMALIZE, v1.ColorJitter(0.4)], "ColorJitter after Normalize"),
    "solarize on floats": ([v1.ToTensor(), v1.RandomSolarize(0.5)], "RandomSolarize on a tensor of floats"),
    "erased by noise": ([v1.ToTensor(), v1.RandomErasing(value="random")], "RandomErasing(value='random') has no counterpart"),
    "erased by a value": ([v1.ToTensor(), v2.RandomErasing(value=0.3)], "RandomErasing(value=0.3) has no counterpart"),
    "erased Pillow image": ([v2.RandomErasing(), v2.ToImage()], "RandomErasing on a Pillow image has no counterpart"),
    "mean below black": (
        [v1.ToTensor(), v1.Normalize([-1.0], [1.0]), v1.RandomErasing()],
        "RandomErasing after Normalize(mean=(-1.0,), std=(1.0,)) has no counterpart",
    ),
    "Normalize before floats": ([v2.ToImage(), NORMALIZE], "Normalize on a tensor of uint8 has no counterpart"),
    "Normalize twice": ([v1.ToTensor(), NORMALIZE, NORMALIZE], "Normalize after Normalize has no counterpart"),
    "Normalize by 255": ([v1.ToTensor(), v1.Normalize([120.0], [60.0])], "does not take their parameters: Normalize: std="),
    "gray and three means": ([v1.Grayscale(), v1.ToTensor(), NORMALIZE], "does not fit images of one channel"),
    "ToDtype of a Pillow image": ([FLOAT, v2.ToImage()], "ToDtype on a Pillow image has no counterpart"),
    "ToTensor twice": ([v1.ToTensor(), v1.ToTensor()], "ToTensor on a tensor of floats has no counterpart"),
    "not scaled": ([v2.ToImage(), v2.ToDtype(torch.float32)], "ToDtype(scale=False) has no counterpart"),
    "half": ([v2.ToImage(), v2.ToDtype(torch.float16, scale=True)], "ToDtype(dtype=torch.float16) has no counterpart"),
    "bytes again": ([v1.ToTensor(), v2.ConvertImageDtype(torch.uint8)], "ConvertImageDtype on a tensor of floats"),
    "back to a picture": ([v1.ToTensor(), v1.ToPILImage(), v1.ToTensor()], "ToPILImage has no counterpart"),
    "Lambda": ([v1.Lambda(abs), v1.ToTensor()], "Lambda has no counterpart"),
    "function": ([np.asarray, v1.ToTensor()], "asarray is not one of torchvision's transforms, so what it does is not known"),
    "derived": ([OwnResize(8), v1.ToTensor()], "OwnResize is not one of torchvision's transforms"),
    "hook": ([_with_hook(), v1.ToTensor()], "RandomInvert has overridden methods or hooks"),
    "method": ([_with_method(), v1.ToTensor()], "Resize has overridden methods or hooks"),
    "several now and then": (
        [v1.RandomApply([v1.RandomInvert(), v1.GaussianBlur(3)], 0.5), v1.ToTensor()],
        "RandomApply of 2 transforms together has no counterpart",
    ),
    "crop now and then": ([v2.RandomApply([v2.RandomCrop(8)], 0.5), v1.ToTensor()], "RandomApply of RandomCrop has no"),
    "gray now and then": ([v1.RandomApply([v1.Grayscale()], 0.5), v1.ToTensor()], "RandomApply of Grayscale has no counterpart"),
    "own function now and then": ([v1.RandomApply([np.asarray], 0.5), v1.ToTensor()], "asarray is not one of torchvision's"),
    "choice": ([v1.RandomChoice([v1.Resize(8), v1.Resize(9)]), v1.ToTensor()], "RandomChoice has no counterpart"),
    "order": ([v2.RandomOrder([v2.Resize(8)]), v1.ToTensor()], "RandomOrder has no counterpart"),
    "five crops": ([v1.FiveCrop(8)], "FiveCrop has no counterpart"),
    "too many": ([v1.RandomInvert()] * 20 + [v1.ToTensor()], "an image stage holds at most 16 operations"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_transform_that_is_not_the_same_here_is_named(name: str, tiles: Path) -> None:
    transforms, told = REFUSED[name]
    assert told in why(ImageFolder(tiles, v1.Compose(transforms)))


def test_two_resizes_with_something_between_are_two(tiles: Path) -> None:
    dataset = ImageFolder(tiles, v1.Compose([v1.Resize(24), v1.RandomInvert(1), v1.Resize((12, 12)), v1.PILToTensor()]))
    assert (ours(dataset)[0].int() - theirs(dataset)[0].int()).abs().max() <= 1


def test_a_folder_that_is_read_in_a_way_of_its_own_is_left_alone(photos: Path) -> None:
    recipe = EVALUATION["v1"]
    assert why(OwnFolder(photos, recipe)) == "OwnFolder is not a data set that Stoker knows, so its __getitem__ is called"
    assert "target_transform" in why(ImageFolder(photos, recipe, target_transform=float))
    assert "loader=open" in why(ImageFolder(photos, recipe, loader=open))
    assert "Pillow images" in why(ImageFolder(photos))
    assert "FakeData is not a data set that Stoker knows" in why(FakeData())
    odd = ImageFolder(photos, recipe)
    odd.samples = [(path, float(label)) for path, label in odd.samples]
    assert "are not integers" in why(odd)
    odd.samples = [("a/0.heic", 0)]
    assert "a/0.heic, whose extension is not one of the images that Stoker reads" in why(odd)
    odd.samples = []
    assert "Stoker does not read it" in why(odd)


def test_floats_of_another_size_are_left_alone(photos: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert "torch makes floats of torch.float64" in why(ImageFolder(photos, EVALUATION["v1"]))
    finally:
        torch.set_default_dtype(torch.float32)


def test_another_image_backend_is_left_alone(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchvision

    dataset = ImageFolder(photos, EVALUATION["v1"])
    monkeypatch.setattr(torchvision, "_image_backend", "accimage")
    assert "loader=default_loader" in why(dataset)


# ---- tensors ---------------------------------------------------------------------------------------------------------------

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_type_that_numpy_has_come_as_they_are(dtype: Any) -> None:
    values = torch.arange(24).reshape(6, 2, 2).to(dtype)
    dataset = TensorDataset(values, torch.arange(6))
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    assert torch.equal(made[0], expected[0])


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.arange(5.0)],
        [torch.zeros(5, 0), torch.arange(5)],
        [torch.arange(40.0).reshape(2, 4, 5).permute(2, 0, 1), torch.arange(5)],
        [torch.arange(10)[::2], torch.ones(1).expand(5)],
    ],
    ids=["numbers", "nothing", "permuted", "strided"],
)
def test_tensors_of_every_shape_come_as_they_are(tensors: list[Any]) -> None:
    dataset = TensorDataset(*tensors)
    made, expected = ours(dataset), theirs(dataset)
    assert_alike(made, expected)
    assert all(torch.equal(*pair) for pair in zip(made, expected))


def test_tensors_are_read_where_they_are_and_not_copied() -> None:
    values = torch.zeros(4, 3)
    made = lowered(TensorDataset(values))
    values[2] = 7
    with made.pipeline.batch(4).loader(format="torch", executor="inline") as loader:
        assert torch.equal(made.restore(next(iter(loader)))[0], values)
    assert made.notes == ("TensorDataset: 4 rows of 1 tensor, read where they are in memory",)


def test_rows_that_are_not_contiguous_are_copied_and_the_notes_say_so() -> None:
    notes = lowered(TensorDataset(torch.zeros(4, 3, 5).permute(0, 2, 1))).notes
    assert notes[1] == "tensor 0: copied, because its rows are not contiguous"


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.zeros(3, dtype=torch.bfloat16), "tensor 0 of its TensorDataset cannot be read as a NumPy array (torch.bfloat16)"),
        (torch.zeros(3, requires_grad=True), "requires a gradient"),
        (torch.nn.Parameter(torch.zeros(3), requires_grad=False), "is a Parameter, not a plain tensor"),
        (torch.zeros(3, dtype=torch.complex64).conj(), "cannot be read as a NumPy array"),
        (torch.zeros(3, 3).to_sparse(), "is not plain memory of this machine"),
        (torch.zeros(3, device="meta"), "is not plain memory of this machine (device meta"),
        (torch.zeros(0, 3), "Stoker does not read it"),
    ],
    ids=["bfloat16", "gradient", "subclass", "conjugated", "sparse", "elsewhere", "empty"],
)
def test_a_tensor_that_is_not_plain_memory_is_named(tensor: Any, told: str) -> None:
    assert told in why(TensorDataset(tensor))


# ---- parts and sums of data sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "indices",
    [[3, 0, 3, 11], range(1, 12, 2), torch.tensor([4, 2]), np.array([1, -1]), [-12, np.int64(3)], list(torch.tensor([5, 6]))],
    ids=["list", "range", "tensor", "array", "from the end", "tensors"],
)
def test_a_subset_has_its_items_in_its_order(indices: Any, photos: Path) -> None:
    for inner in (ImageFolder(photos, EVALUATION["v1"]), TensorDataset(torch.rand(12, 3), torch.arange(12))):
        dataset = Subset(inner, indices)
        assert_alike(ours(dataset), theirs(dataset))


def test_subsets_of_subsets_and_random_splits_are_lowered(photos: Path) -> None:
    folder = ImageFolder(photos, EVALUATION["v1"])
    train, rest = random_split(folder, [8, 4], torch.Generator().manual_seed(1))
    for dataset in (train, rest, Subset(train, [7, 1])):
        assert_alike(ours(dataset), theirs(dataset))
    assert lowered(rest).notes[1] == "Subset: 4 items selected by index"
    assert lowered(Subset(train, [7, 1])).pipeline.sample(0).key == folder.samples[train.indices[7]][0]


def test_data_sets_of_one_kind_are_joined(photos: Path, tiles: Path) -> None:
    folders = [ImageFolder(root, EVALUATION["v1"]) for root in (photos, tiles)]
    numbers = [TensorDataset(torch.rand(n, 3), torch.arange(n)) for n in (4, 5)]
    for dataset in (ConcatDataset(folders), ConcatDataset(numbers), ConcatDataset([Subset(folders[0], [3]), folders[1]])):
        assert_alike(ours(dataset), theirs(dataset))
    nested = Subset(ConcatDataset([ConcatDataset(folders), folders[1]]), [17, 13, 2])
    assert_alike(ours(nested), theirs(nested))


def test_data_sets_that_do_not_fit_together_are_left_alone(photos: Path, tiles: Path) -> None:
    folder = ImageFolder(photos, EVALUATION["v1"])
    other = ImageFolder(tiles, EVALUATION["not normalized"])
    numbers = TensorDataset(torch.zeros(3))
    assert why(ConcatDataset([folder, other])) == "the members of its ConcatDataset have different transforms"
    assert why(ConcatDataset([folder, numbers])) == "the members of its ConcatDataset have different transforms"
    assert "different types or shapes" in why(ConcatDataset([numbers, TensorDataset(torch.zeros(3, 2))]))
    assert "OwnFolder is not a data set" in why(ConcatDataset([folder, OwnFolder(photos)]))
    assert "OwnFolder is not a data set" in why(Subset(OwnFolder(photos), [0]))


@pytest.mark.parametrize(
    ("indices", "told"),
    [([], "no sample is"), ([12], "there are 12 samples, numbered from 0"), ([-13], "sample -1"), ([True], "are not integers"),
     ([0.5], "are not integers")],
)  # fmt: skip
def test_indices_that_torch_would_fail_on_are_left_to_it(indices: list[Any], told: str, photos: Path) -> None:
    assert told in why(Subset(ImageFolder(photos, EVALUATION["v1"]), indices))
