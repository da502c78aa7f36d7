"""Objects cut out by their XML boxes (ImageNet, PASCAL VOC): python examples/boxes.py LIST IMAGES ANNOTATIONS

One sample an object: the crop is decoded straight from the JPEG, nothing else of the photograph is.
"""

import sys

import stoker
from stoker.image import CropBox, HorizontalFlip, Resize

listed, images, annotations = sys.argv[1:4]
objects = (
    stoker.voc(listed, images=images, annotations=annotations)
    .shuffle(seed=7)
    .image("image", CropBox("box"), Resize((64, 64)), HorizontalFlip())
    .select("image", "label", "box")
    .batch(4, drop_last=False)
)
print(objects.explain())
for crops, labels, boxes in objects:
    for label, box in zip(labels, boxes):
        print(objects.classes[label] if label >= 0 else "(no class)", crops.shape[1:], box.tolist())
