"""Objects cut out by their XML boxes (ImageNet, PASCAL VOC): python examples/boxes.py LIST IMAGES ANNOTATIONS

One sample per object: the crop is decoded straight from the JPEG, nothing else of the photograph is.
"""

import argparse

import stoker
from stoker.image import CropBox, HorizontalFlip, Resize

words = argparse.ArgumentParser(description=__doc__)
words.add_argument("list", help="a text file with the name of an image on each line")
words.add_argument("images", help="the folder of the images")
words.add_argument("annotations", help="the folder of the XML files")
given = words.parse_args()
objects = (
    stoker.voc(given.list, images=given.images, annotations=given.annotations)
    .shuffle(seed=7)
    .image("image", CropBox("box"), Resize((64, 64)), HorizontalFlip())
    .select("image", "label", "box")
    .batch(4, drop_last=False)
)
print(objects.explain())
for crops, labels, boxes in objects:
    for label, box in zip(labels, boxes):
        print(objects.classes[label] if label >= 0 else "(no class)", crops.shape[1:], box.tolist())
