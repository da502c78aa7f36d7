"""Objects cut out by their XML boxes (ImageNet, PASCAL VOC), with a serial and with a parallel pipeline.

    python examples/boxes.py [LIST IMAGES ANNOTATIONS] [--picture boxes.html]

One sample per object: the crop is decoded straight from the JPEG, nothing else of the photograph is. Both pipelines give the same
batches to a loop that spends --step seconds on each, as one with an accelerator does.
The picture has the two timelines, one below the other. Without arguments, a small data set is made.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import small_data
import stoker
from stoker.image import CropBox, HorizontalFlip, Resize
from stoker.observe.timeline import Timeline, recorded
from stoker.observe.timeline_svg import timeline_svg


def make_pipeline(listed: Path, images: Path, annotations: Path, batch: int) -> stoker.Pipeline:
    return (
        stoker.voc(listed, images=images, annotations=annotations)
        .shuffle(seed=7)
        .image("image", CropBox("box"), Resize((224, 224)), HorizontalFlip())
        .select("image", "label", "box")
        .batch(batch)
    )


def train(batches: stoker.Loader, step_s: float) -> float:
    """One epoch; images per second."""
    images, began = 0, time.perf_counter()
    for crops, _labels, _boxes in batches:
        time.sleep(step_s)  # the training step
        images += len(crops)
    return images / (time.perf_counter() - began)


def measure(objects: stoker.Pipeline, executor: str, given: argparse.Namespace) -> tuple[list[float], float, Timeline]:
    """The rate of every epoch after one to warm up, the share of the time spent waiting, and what happened when in one more."""
    with objects.loader(executor=executor) as batches:
        train(batches, given.step)
        before = batches.stats()
        rates = [train(batches, given.step) for _ in range(given.epochs)]
        after = batches.stats()
        with recorded(batches) as recorder:
            train(batches, given.step)
        return rates, (after - before).wait_share, recorder.timeline()


def show_first(objects: stoker.Pipeline) -> None:
    crops, labels, boxes = next(iter(objects))
    for crop, label, box in zip(crops[:4], labels, boxes):
        print(f"{objects.classes[label] if label >= 0 else '(no class)':12} {box.tolist()} -> {crop.shape}")


def main(given: argparse.Namespace) -> None:
    objects = make_pipeline(given.list, given.images, given.annotations, given.batch)
    show_first(objects)
    print(f"\n{'pipeline':10} {'images/s, mean':>15} {'std. deviation':>15} {'waited for data':>16}")
    panels = []
    for name, executor in (("serial", "inline"), ("parallel", "auto")):
        rates, waited, timeline = measure(objects, executor, given)
        print(f"{name:10} {statistics.mean(rates):15,.0f} {statistics.stdev(rates):15,.0f} {waited:16.0%}")
        panels.append((f"{name}: {statistics.mean(rates):,.0f} images/s", timeline))
    picture = f"<!doctype html><meta charset=utf-8><title>Serial and parallel</title>{timeline_svg(panels)}"
    given.picture.write_text(picture)
    print(f"\nThe two timelines are in {given.picture}")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("list", type=Path, nargs="?", help="a text file with the name of an image on each line")
    words.add_argument("images", type=Path, nargs="?", help="the folder of the images")
    words.add_argument("annotations", type=Path, nargs="?", help="the folder of the XML files")
    words.add_argument("--batch", type=int, default=32, help="objects in a batch (default: 32)")
    words.add_argument("--epochs", type=int, default=5, help="how many to measure, 2 or more (default: 5)")
    words.add_argument("--step", type=float, default=0.01, help="seconds for a training step (default: 0.01)")
    words.add_argument("--picture", type=Path, default="boxes.html", help="(default: boxes.html)")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.list is None:
            made = small_data.make_voc(Path(folder))
            given.list, given.images, given.annotations = made / "train.txt", made / "images", made / "annotations"
        elif given.annotations is None:
            words.error("give all of LIST, IMAGES and ANNOTATIONS, or none of them")
        main(given)
