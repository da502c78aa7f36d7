"""A folder of class folders, in ten lines: python examples/folder.py PHOTOS"""

import argparse

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

words = argparse.ArgumentParser(description=__doc__)
words.add_argument("photos", help="a folder of class folders of images; `stoker demo --keep demo` makes demo/train")
photos = words.parse_args().photos
train = stoker.files(photos).shuffle(seed=7).image("image", RandomResizedCrop(64), HorizontalFlip()).batch(16, drop_last=False)
for images, labels in train:
    print(images.shape, images.dtype, [train.classes[label] for label in labels[:3]])
