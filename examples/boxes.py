"""Objects cut out by their XML boxes (ImageNet, PASCAL VOC), with a serial and with a parallel pipeline.

    python examples/boxes.py [LIST IMAGES ANNOTATIONS] [--picture boxes.html]

One sample per object: the crop is decoded straight from the JPEG, nothing else of the photograph is. Both pipelines give the same
batches to a loop that spends --step seconds on each, as one with an accelerator does.
The picture has the two timelines, one below the other. Without arguments, a small data set is made.
"""

import argparse
import tempfile
import time
from pathlib import Path

import small_data
import stoker
from stoker.image import CropBox, HorizontalFlip, Resize
from stoker.observe import Speed, speed
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


def measure(objects: stoker.Pipeline, executor: str, given: argparse.Namespace) -> tuple[Speed, Timeline]:
    """The rates of five rounds after a warm-up, and what happened when."""
    with objects.loader(executor=executor) as batches, recorded(batches) as recorder:
        measured = speed(batches, given.seconds, step=lambda batch: time.sleep(given.step))  # in the place of a training step
    return measured, recorder.timeline()


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
        measured, timeline = measure(objects, executor, given)
        print(f"{name:10} {measured.mean:15,.0f} {measured.deviation:15,.0f} {measured.wait_share:16.0%}")
        panels.append((f"{name}: {measured.mean:,.0f} images/s", timeline.last(max(0.2, 20 * given.step))))
    head = "<!doctype html><meta charset=utf-8><meta name=color-scheme content='light dark'><title>Serial and parallel</title>"
    given.picture.write_text(head + timeline_svg(panels))
    print(f"\nThe two timelines are in {given.picture}")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("list", type=Path, nargs="?", help="a text file with the name of an image on each line")
    words.add_argument("images", type=Path, nargs="?", help="the folder of the images")
    words.add_argument("annotations", type=Path, nargs="?", help="the folder of the XML files")
    words.add_argument("--batch", type=int, default=32, help="objects in a batch (default: 32)")
    words.add_argument("--seconds", type=float, default=2.0, help="how long to measure each pipeline (default: 2)")
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
