"""Functions on arrays in the manner of albumentations: each with a probability, drawn from `numpy.random`, joined by Compose."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from training_log import TrainingLog

from stoker.torch import DataLoader


class Flip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, image, mask):
        return (image[:, ::-1], mask[:, ::-1]) if np.random.rand() < self.p else (image, mask)


class Crop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image, mask):
        top, left = np.random.randint(0, image.shape[0] - self.size + 1, 2)
        window = slice(top, top + self.size), slice(left, left + self.size)
        return image[window], mask[window]


class Noise:
    def __call__(self, image, mask):
        return image + np.random.normal(0, 0.1, image.shape), mask


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, image, mask):
        for step in self.steps:
            image, mask = step(image, mask)
        return image, mask


class Scenes(Dataset):
    def __init__(self, images, masks, transform):
        self.images, self.masks, self.transform = images, masks, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, mask = self.transform(self.images[index], self.masks[index])
        image = torch.from_numpy(np.ascontiguousarray(image, np.float32)).permute(2, 0, 1)
        return image, torch.from_numpy(np.ascontiguousarray(mask)).long()


log = TrainingLog()
scenes = np.random.default_rng(0)
masks = scenes.integers(0, 2, (30, 24, 24))
images = masks[..., None] + scenes.normal(0, 0.3, (30, 24, 24, 3))
loader = DataLoader(Scenes(images, masks, Compose(Crop(16), Flip(), Noise())), 4, shuffle=True, num_workers=log.workers)
model = nn.Conv2d(3, 2, 3, padding=1)
optimizer = torch.optim.Adam(model.parameters())

log.resume(loader)
for epoch in log.epochs():
    for image, mask in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(image), mask)
        loss.backward()
        optimizer.step()
        log.batch(loader, (image, mask), loss)
log.end()
