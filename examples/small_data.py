"""Small data sets, the same in every run, to try the other examples on: python examples/small_data.py FOLDER

FOLDER/photos/CLASS/*.jpg                       class folders           for imagenet_ddp.py, lmdb_speed.py, folder.py
FOLDER/voc/{train.txt,images,annotations}       boxes in XML files      for boxes.py
FOLDER/cifar/{train,test}.tfrecord              tiny pictures           for cifar_tfrecord.py
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import stoker

COLOURS = {"apple": (200, 30, 40), "leaf": (40, 160, 60), "sea": (30, 80, 190), "sun": (240, 200, 40)}


def draw(number: int, width: int, height: int, names: list[str]) -> tuple[Image.Image, list[tuple[int, int, int, int]]]:
    """A noisy ground with an oval in the colour of each name, and the box (xmin, ymin, xmax, ymax) of each oval."""
    rng = np.random.default_rng(number)
    ground = Image.fromarray(rng.integers(60, 200, (5, 6, 3), dtype=np.uint8))
    image = ground.resize((width, height), Image.Resampling.BICUBIC)
    boxes = []
    for name in names:
        w, h = (int(side * rng.uniform(0.3, 0.6)) for side in (width, height))
        x, y = int(rng.integers(0, width - w)), int(rng.integers(0, height - h))
        ImageDraw.Draw(image).ellipse((x, y, x + w, y + h), fill=COLOURS[name])
        boxes.append((x, y, x + w, y + h))
    noise = rng.integers(-25, 26, (height, width, 3), dtype=np.int16)  # so that it takes as many bytes as a photograph
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)), boxes


def make_photos(folder: Path, count: int = 240, size: tuple[int, int] = (400, 350)) -> Path:
    """Class folders of JPEGs."""
    names = sorted(COLOURS)
    for number in range(count):
        name = names[number % len(names)]
        path = folder / name / f"{name}_{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(number, *size, [name])[0].save(path, quality=90)
    return folder


def make_voc(folder: Path, count: int = 120, size: tuple[int, int] = (500, 375)) -> Path:
    """Photographs with one to three objects each, and an XML file for each photograph as ImageNet and PASCAL VOC have them."""
    names = sorted(COLOURS)
    for part in ("images", "annotations"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        there = [names[(number + k) % len(names)] for k in range(1 + number % 3)]
        image, boxes = draw(number, *size, there)
        image.save(folder / "images" / f"photo_{number:04d}.JPEG", quality=90)
        objects = "".join(
            f"<object><name>{name}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
            for name, (x0, y0, x1, y1) in zip(there, boxes)
        )
        sides = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
        (folder / "annotations" / f"photo_{number:04d}.xml").write_text(f"<annotation>{sides}{objects}</annotation>")
    (folder / "train.txt").write_text("".join(f"photo_{number:04d}\n" for number in range(count)))
    return folder


def make_cifar(folder: Path, train: int = 2000, test: int = 500) -> Path:
    """TFRecords of 32 x 32 pictures as raw bytes, and their labels, as CIFAR is often stored."""
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(COLOURS)

    def examples(first: int, count: int) -> Iterator[dict[str, object]]:
        for number in range(first, first + count):
            image, _ = draw(number, 32, 32, [names[number % len(names)]])
            yield {"image": image.tobytes(), "label": number % len(names)}

    stoker.write_tfrecord(folder / "train.tfrecord", examples(0, train))
    stoker.write_tfrecord(folder / "test.tfrecord", examples(train, test))
    return folder


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path, help="where to put them")
    folder = words.parse_args().folder
    for made in (make_photos(folder / "photos"), make_voc(folder / "voc"), make_cifar(folder / "cifar")):
        print(f"{made}: {sum(path.stat().st_size for path in made.rglob('*') if path.is_file()) / 1e6:.1f} MB")
