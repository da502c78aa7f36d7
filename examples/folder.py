"""A folder of class folders, in ten lines: python examples/folder.py PHOTOS"""

import sys

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

train = (
    stoker.files(sys.argv[1]).shuffle(seed=7).image("image", RandomResizedCrop(64), HorizontalFlip()).batch(16, drop_last=False)
)
for images, labels in train:
    print(images.shape, images.dtype, [train.classes[label] for label in labels[:3]])
