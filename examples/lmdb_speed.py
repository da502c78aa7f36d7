"""An LMDB of photographs, written and read: how fast each step of the way is, and a validation set that is exact.

    python examples/lmdb_speed.py [PHOTOS] [--lmdb photos.lmdb]

PHOTOS is a folder of class folders; without it, a small one is made. Each line of the table does more than the one before it, and
the last does the same in parallel.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import small_data
import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop, Resize
from stoker.observe import speed


def write(photos: Path, database: Path) -> None:
    """The JPEGs as they are, in one file that can be read from front to back."""
    files = stoker.files(photos).shuffle(seed=1, reshuffle=False)  # once and for all: classes follow one another in folders
    stoker.write_lmdb(database, files)
    print(f"{len(files)} photographs in {database}, {database.stat().st_size / 1e6:.1f} MB\n")


def measure(database: Path, batch: int, window: int, seconds: float) -> None:
    """The table."""
    stored = stoker.lmdb(database)
    near = stored.shuffle(seed=7, window=window)  # reads nearly in sequence: no sample moves further than this
    whole = near.image("image", Resize((224, 224)))
    crops = near.image("image", RandomResizedCrop(224), HorizontalFlip())
    tests = {
        "read": (stored, "inline"),
        "shuffle in a window": (near, "inline"),
        "decode and resize": (whole, "inline"),
        "random crop and flip": (crops, "inline"),
        "the same in parallel": (crops, "auto"),
    }
    print(f"{'pipeline':24} {'images/s, median':>17} {'from':>9} {'to':>9} {'batches/s':>10}")
    for name, (pipeline, executor) in tests.items():
        measured = speed(pipeline.batch(batch), seconds, executor=executor)
        low, high = min(measured.rates), max(measured.rates)
        print(f"{name:24} {measured.median:17,.0f} {low:9,.0f} {high:9,.0f} {measured.median / batch:10,.1f}")


def validate(database: Path, batch: int, ranks: int) -> None:
    """Every sample counts exactly once, whatever the number of ranks and the size of batches."""
    counted: Counter[str] = Counter()
    for rank in range(ranks):  # in a real run each is a process of its own, and .shard() knows its rank
        mine = stoker.lmdb(database).shard(rank, ranks, remainder="pad").image("image", Resize((64, 64))).batch(batch)
        for rows in mine:
            counted.update(key for key, valid in zip(rows.sample_keys, rows.valid) if valid)
    once = sum(count == 1 for count in counted.values())
    print(f"\nvalidation on {ranks} ranks: {once} of {len(stoker.lmdb(database))} samples seen exactly once")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("photos", type=Path, nargs="?", help="a folder of class folders of images")
    words.add_argument("--lmdb", type=Path, help="the database to write, and to read if it is there (default: a temporary one)")
    words.add_argument("--batch", type=int, default=32, help="(default: 32)")
    words.add_argument("--window", type=int, default=100, help="how far samples move when shuffled (default: 100)")
    words.add_argument("--seconds", type=float, default=1.0, help="for each line of the table (default: 1)")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = given.lmdb or Path(folder, "photos.lmdb")
        if not database.exists():
            write(given.photos or small_data.make_photos(Path(folder, "photos")), database)
        measure(database, given.batch, given.window, given.seconds)
        validate(database, given.batch, ranks=3)
