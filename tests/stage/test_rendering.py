"""Read and image stage in one native call or in two: nobody can tell the difference."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.image import CenterCrop, CropBox, HorizontalFlip, RandomResizedCrop, Resize
from stoker.kernel.library import library
from stoker.kernel.records import crc32c, mask_crc
from stoker.stage.image import ImageStage

from ..support import image_bytes, jpeg_bytes

COUNT = 23
OPS = (RandomResizedCrop(24), HorizontalFlip())


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of two classes, every fifth of them a PNG."""
    folder = tmp_path_factory.mktemp("rendering")
    for number in range(COUNT):
        (folder / "ab"[number % 2]).mkdir(exist_ok=True)
        data = image_bytes(60, 50, seed=number, format="PNG") if number % 5 == 4 else jpeg_bytes(70, 60, seed=number)
        (folder / "ab"[number % 2] / f"{number:02}.jpg").write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def shards(images: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    samples = (
        {"__key__": path.stem, "jpg": path.read_bytes(), "cls": number, "json": {"n": number}}
        for number, path in enumerate(sorted(images.rglob("*.jpg")))
    )
    stoker.write_tar(folder / "{}.tar", samples, max_samples=10)
    return str(folder / "*.tar")


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes sources read and stages decode, each by itself."""

    def apply() -> None:
        monkeypatch.setattr("stoker.stage.runner.read_with", lambda steps, source: None)

    return apply


def plain(column: Any) -> Any:
    """A column as lists, however deep."""
    return column.tolist() if isinstance(column, np.ndarray) else [plain(v) if isinstance(v, np.ndarray) else v for v in column]


def collected(pipeline: Any, **options: Any) -> tuple[list[Any], str]:
    """All batches as plain values, and the error they end with."""
    batches: list[Any] = []
    with pipeline.loader(**options) as loader:
        try:
            for batch in loader:
                columns = {name: plain(column) for name, column in batch.items()}
                batches.append((batch.sample_keys, columns))
        except stoker.StokerError as error:
            return batches, f"{type(error).__name__}: {error}"
    return batches, ""


def jpegs() -> list[bytes]:
    return [image_bytes(60, 50, seed=n, format="PNG") if n % 5 == 4 else jpeg_bytes(70 + n, 60, seed=n) for n in range(COUNT)]


BOXES = [(0.1, 0.05 * (n % 5), 0.8, 0.9) for n in range(COUNT)]
CROP = (CropBox("box", relative=True), Resize((16, 20)))


def tfrecords(folder: Path, images: Path, shards: str) -> Any:
    """JPEGs with numbers, texts, lists and boxes beside them."""
    samples = [
        {"image": data, "label": n, "name": f"no. {n}", "many": [1.5] * (n % 3 + 1), "box": np.array(BOXES[n], np.float32)}
        for n, data in enumerate(jpegs())
    ]
    stoker.write_tfrecord(folder / "{}.tfrecord", samples, max_samples=10)
    return stoker.tfrecord(str(folder / "*.tfrecord"), features={"image": bytes, "label": int, "name": str, "many": [float]})


def tfrecords_with_boxes(folder: Path, images: Path, shards: str) -> Any:
    tfrecords(folder, images, shards)
    features = {"image": bytes, "label": int, "box": stoker.Feature(float, (4,))}
    return stoker.tfrecord(str(folder / "*.tfrecord"), features=features)


def tfrecords_of_pixels(folder: Path, images: Path, shards: str) -> Any:
    samples = [{"image": picture.tobytes(), "label": n, "name": f"no. {n}"} for n, picture in enumerate(pixels())]
    stoker.write_tfrecord(folder / "{}.tfrecord", samples, max_samples=10)
    features = {"image": stoker.Feature(bytes, (30, 40, 3), dtype="uint8"), "label": int}
    return stoker.tfrecord(str(folder / "*.tfrecord"), features=features)


def tfrecords_of_pixels_with_texts(folder: Path, images: Path, shards: str) -> Any:
    tfrecords_of_pixels(folder, images, shards)
    features = {"image": stoker.Feature(bytes, (30, 40, 3), dtype="uint8"), "name": str}
    return stoker.tfrecord(str(folder / "*.tfrecord"), features=features)


def raw_tfrecords(folder: Path, images: Path, shards: str) -> Any:
    tfrecords(folder, images, shards)
    records = [jpeg_bytes(50, 60, seed=n) for n in range(9)]
    (folder / "raw").write_bytes(b"".join(framed(data) for data in records))
    return stoker.tfrecord(str(folder / "raw"), features="raw")


def framed(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    sums = [mask_crc(crc32c(part)).to_bytes(4, "little") for part in (length, data)]
    return length + sums[0] + data + sums[1]


def pixels() -> Any:
    return np.random.default_rng(1).integers(0, 256, (COUNT, 30, 40, 3), np.uint8)


def lmdb(folder: Path, images: Path, shards: str) -> Any:
    samples = [{"image": data, "label": n, "about": {"n": n}} for n, data in enumerate(jpegs())]
    stoker.write_lmdb(folder / "lmdb", samples)
    return stoker.lmdb(folder / "lmdb")


def plain_lmdb(folder: Path, images: Path, shards: str) -> Any:
    with (
        pytest.importorskip("lmdb").open(str(folder / "plain"), map_size=1 << 24) as database,
        database.begin(write=True) as writing,
    ):
        for number, data in enumerate(jpegs()):
            writing.put(f"{number:03}".encode(), data)
    return stoker.lmdb(folder / "plain")


def table(folder: Path, images: Path, shards: str) -> Any:
    """Two fields of files, the second of them decoded, cropped to a column of boxes."""
    paths = sorted(images.rglob("*.jpg"))
    rows = {"others": paths[::-1], "paths": paths, "box": BOXES}
    return stoker.table(rows, other="others", image="paths")


def voc(folder: Path, images: Path, shards: str) -> Any:
    for number, path in enumerate(sorted(images.rglob("*.jpg"))):
        box = "<xmin>5</xmin><ymin>4</ymin><xmax>40</xmax><ymax>35</ymax>"
        objects = "".join(f"<object><name>{n}</name><bndbox>{box}</bndbox></object>" for n in range(number % 2 + 1))
        (folder / f"{path.stem}.xml").write_text(f"<annotation>{objects}</annotation>")
    return stoker.voc(sorted(images.rglob("*.jpg")), annotations=folder)


def listed(images: Path) -> Any:
    paths = sorted(images.rglob("*.jpg"))
    return stoker.table({"paths": paths, "cls": range(len(paths))}, jpg="paths")


def mixed(folder: Path, images: Path, shards: str) -> Any:
    """Of tar shards, files, and two mixed before, one of them records."""
    stoker.write_tfrecord(folder / "{}.tfrecord", ({"jpg": data, "cls": n} for n, data in enumerate(jpegs())))
    inner = stoker.mix([stoker.tfrecord(str(folder / "*.tfrecord")), listed(images)])
    return stoker.mix([stoker.tar(shards), listed(images), inner])


SOURCES: dict[str, tuple[Any, str, Any]] = {
    "files": (lambda folder, images, shards: stoker.files(images), "image", OPS),
    "tar": (lambda folder, images, shards: stoker.tar(shards), "jpg", OPS),
    "tfrecord": (tfrecords, "image", OPS),
    "tfrecord with boxes": (tfrecords_with_boxes, "image", CROP),
    "tfrecord of pixels": (tfrecords_of_pixels, "image", OPS),
    "tfrecord of pixels with texts": (tfrecords_of_pixels_with_texts, "image", OPS),
    "raw tfrecord": (raw_tfrecords, "record", OPS),
    "lmdb": (lmdb, "image", OPS),
    "plain lmdb": (plain_lmdb, "value", OPS),
    "arrays": (lambda folder, images, shards: stoker.arrays(image=pixels(), label=np.arange(COUNT)), "image", OPS),
    "arrays with boxes": (lambda folder, images, shards: stoker.arrays(image=pixels(), box=np.array(BOXES)), "image", CROP),
    "table": (table, "image", CROP),
    "voc": (voc, "image", (CropBox("box"), Resize((16, 20)))),
    "mix": (mixed, "jpg", OPS),
}


@pytest.mark.parametrize("executor", ["inline", "threads"])
@pytest.mark.parametrize("name", SOURCES)
def test_one_call_gives_the_batches_that_two_give(
    name: str, executor: str, images: Path, shards: str, tmp_path: Path, in_two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, field, ops = SOURCES[name]
    pipeline = make(tmp_path, images, shards).shuffle(seed=1).image(field, *ops).batch(7, drop_last=False)
    answers: list[Any] = []
    render = ImageStage.render
    monkeypatch.setattr(ImageStage, "render", lambda *arguments: answers.append(render(*arguments)) or answers[-1])
    together = collected(pipeline, executor=executor)
    assert together[0] and together[1] == "" and answers and None not in answers
    in_two()
    assert collected(pipeline, executor=executor) == together


@pytest.mark.parametrize("kind", ["tfrecord", "lmdb"])
def test_records_that_lack_their_picture_or_a_number_are_told_the_same(kind: str, tmp_path: Path, in_two: Any) -> None:
    samples: list[dict[str, Any]] = [{"image": jpeg_bytes(60, 50, seed=n), "label": n} for n in range(12)]
    samples[3]["image"] = b"no picture"
    samples[6]["image"] = samples[6]["image"][:200]
    if kind == "tfrecord":
        del samples[4]["label"], samples[5]["image"]
        stoker.write_tfrecord(tmp_path / "{}.tfrecord", samples, max_samples=12)
        pipeline = stoker.tfrecord(str(tmp_path / "*.tfrecord"), features={"image": bytes, "label": int})
    else:
        stoker.write_lmdb(tmp_path / "lmdb", samples)
        pipeline = stoker.lmdb(tmp_path / "lmdb")
    pipeline = pipeline.image("image", *OPS).on_error("skip", budget=5).batch(6)
    together = collected(pipeline, threads=2)
    assert sum(len(keys) for keys, _ in together[0]) == 12 - (4 if kind == "tfrecord" else 2)
    in_two()
    assert collected(pipeline, threads=2) == together


def test_a_mix_is_rendered_in_one_call_for_each_source(images: Path, shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = stoker.mix([stoker.tar(shards), listed(images)]).image("jpg", *OPS).batch(8)
    calls: list[int] = []
    tasks: list[Any] = []
    render, render_task = library().render, ImageStage.render

    def counted(source: int, pictures: int) -> int:
        calls.append(source)
        return render(source, pictures)

    monkeypatch.setattr(library(), "render", counted)
    monkeypatch.setattr(ImageStage, "render", lambda *arguments: tasks.append(render_task(*arguments)) or tasks[-1])
    monkeypatch.setattr(ImageStage, "_settle", lambda *_: None)  # PNGs take further calls
    with pipeline.loader(executor="inline") as loader:
        assert sum(1 for _ in loader) == 5
    assert len(calls) == 2 * len(tasks) > 0


@pytest.mark.parametrize(
    ("pipeline", "field", "box", "why"),
    [
        (lambda shards: stoker.tar(shards), "jpg", "json", "'json', are decoded by Python"),
        (lambda shards: stoker.tar(shards), "cls", None, "'cls' is decoded by its extension"),
        (lambda shards: stoker.arrays(x=np.zeros((3, 5))), "x", None, "'x' is not an array of uint8 images"),
        (lambda shards: stoker.arrays(x=pixels(), b=np.zeros((COUNT, 3))), "x", "b", "'b', are not four numbers"),
    ],
)
def test_a_source_says_why_pictures_are_not_rendered_as_they_are_read(
    pipeline: Any, field: str, box: str | None, why: str, shards: str
) -> None:
    source = pipeline(shards)._source
    assert why in source.why_not_located(field, box)


@pytest.mark.parametrize("leave_out", [False, True])
def test_bad_files_are_told_the_same(images: Path, tmp_path: Path, in_two: Any, leave_out: bool) -> None:
    folder = tmp_path / "bad"
    shutil.copytree(images, folder)
    pipeline = stoker.files(folder).image("image", *OPS)
    pipeline = (pipeline.on_error("skip", budget=20) if leave_out else pipeline).batch(COUNT)
    (folder / "b" / "07.jpg").unlink()
    (folder / "a" / "08.jpg").write_bytes(jpeg_bytes(70, 60)[:300])
    (folder / "b" / "11.jpg").write_bytes(b"")
    (folder / "b" / "01.jpg").write_bytes(b"no picture at all")
    together = collected(pipeline, threads=2)
    assert (len(together[0]), bool(together[1])) == ((1, False) if leave_out else (0, True))
    in_two()
    assert collected(pipeline, threads=2) == together


def test_a_record_without_a_field_and_a_damaged_one_are_told_the_same(tmp_path: Path, in_two: Any) -> None:
    samples = [{"__key__": f"{n}", "jpg": jpeg_bytes(60, 50, seed=n), "cls": n} for n in range(12)]
    del samples[5]["cls"]
    stoker.write_tar(tmp_path / "{}.tar", samples, max_samples=12)
    shard = next(tmp_path.glob("*.tar"))
    whole = bytearray(shard.read_bytes())
    at = whole.index(samples[8]["jpg"])
    whole[at + 50] ^= 255
    shard.write_bytes(whole)
    pipeline = stoker.tar(str(shard)).image("jpg", *OPS).on_error("skip", budget=3).batch(4)
    together = collected(pipeline, threads=2)
    assert [len(keys) for keys, _ in together[0]] == [4, 3, 3]
    in_two()
    assert collected(pipeline, threads=2) == together


def test_what_comes_behind_the_image_stage_sees_its_pictures(images: Path, in_two: Any) -> None:
    def mean(sample: Any) -> Any:
        return {**sample, "mean": np.float32(sample["image"].mean())}

    pipeline = stoker.files(images).image("image", Resize(30), CenterCrop(20), layout="chw").map(mean).batch(5, drop_last=False)
    together = collected(pipeline, threads=2)
    assert len(together[0]) == 5
    in_two()
    assert collected(pipeline, threads=2) == together


def test_a_crop_to_a_box_that_a_function_makes_is_rendered_in_two_steps(shards: str) -> None:
    pipeline = stoker.tar(shards).map(lambda sample: {**sample, "box": (0.1, 0.1, 0.6, 0.9)})
    batches, error = collected(pipeline.image("jpg", CropBox("box", relative=True), Resize((16, 16))).batch(8), threads=2)
    assert len(batches) == 2 and error == ""


def test_statistics_still_tell_reading_from_decoding(images: Path) -> None:
    with stoker.files(images).image("image", *OPS).batch(COUNT).loader(threads=1) as loader:
        assert sum(1 for _ in loader) == 1
        steps = loader.stats().steps_s
    assert list(steps) == ["read", "image('image')"]
    assert steps["read"] > 0 and steps["image('image')"] > 0
