"""Map and reduce over shards, in a pool: python examples/map_reduce.py FOLDER

Makes some small shards of pictures, then resizes all pictures (map: shard in, shard out) and works out the mean colour of each
class (reduce: what the processes return is summed up). Each output appears whole or not at all, so the run can be stopped and
started again. The map alone, without writing a program, and without doing again what was done before:

    stoker map examples/map_reduce.py:small 'FOLDER/photos-{0000..0003}.tar' 'FOLDER/tiny-{}.tar' -j 4
"""

import argparse
import io
import multiprocessing
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

import stoker

SHARDS, SAMPLES, CLASSES = 4, 12, ("red", "green", "blue")


def make_shard(path: str, number: int) -> None:
    """Pictures of one colour and some noise, with their class."""
    rng = np.random.default_rng(number)
    with stoker.TarWriter(path, overwrite=True) as shard:
        for row in range(SAMPLES):
            label = row % len(CLASSES)
            pixels = rng.integers(0, 60, (90, 120, 3)) + 180 * np.eye(3, dtype=int)[label]
            shard.write(
                {"__key__": f"{number:04d}/{row:04d}", "jpg": jpeg(Image.fromarray(pixels.astype(np.uint8))), "cls": label}
            )


def jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return out.getvalue()


def small(sample: dict) -> dict:
    """A sample with a smaller picture. This is all that `stoker map` needs."""
    with Image.open(io.BytesIO(sample["jpg"]), formats=["JPEG"]) as image:
        return {**sample, "jpg": jpeg(image.resize((40, 30)))}


def map_shard(names: tuple[str, str]) -> tuple[Counter, dict[int, np.ndarray]]:
    """Resize the pictures of one shard; returns, by class, how many there are and the sum of their mean colours."""
    source, result = names
    counts, colours = Counter(), {}
    with stoker.TarWriter(result, overwrite=True) as shard:
        for sample in stoker.tar(source):
            made = small({"__key__": sample.key, **sample})
            shard.write(made)
            with Image.open(io.BytesIO(made["jpg"]), formats=["JPEG"]) as image:
                colours[sample["cls"]] = colours.get(sample["cls"], 0) + np.asarray(image).mean(axis=(0, 1))
            counts[sample["cls"]] += 1
    return counts, colours


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sources = [str(folder / f"photos-{number:04d}.tar") for number in range(SHARDS)]
    results = [str(folder / f"small-{number:04d}.tar") for number in range(SHARDS)]
    for number, path in enumerate(sources):
        make_shard(path, number)

    counts, colours = Counter(), {}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for some, sums in pool.imap_unordered(map_shard, zip(sources, results)):
            counts += some
            colours = {label: colours.get(label, 0) + sums.get(label, 0) for label in colours | sums}

    for label in sorted(counts):
        mean = ", ".join(f"{value:.0f}" for value in colours[label] / counts[label])
        print(f"{CLASSES[label]}: {counts[label]} pictures, mean colour {mean}")
    print(f"{len(stoker.tar(results))} samples in {len(results)} shards of small pictures")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path, help="where the shards go; made if it does not exist")
    main(words.parse_args().folder)
