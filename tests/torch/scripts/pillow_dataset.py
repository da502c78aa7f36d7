"""A data set of the user's own: paths and labels, Pillow, crops and flips drawn from `random`."""

import random

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from training_log import TrainingLog

from stoker.torch import DataLoader


class Photos(Dataset):
    def __init__(self, root, size):
        self.classes = sorted(folder.name for folder in root.iterdir())
        self.samples = [(path, label) for label, name in enumerate(self.classes) for path in sorted((root / name).iterdir())]
        self.size = size

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as image:
            image = image.convert("RGB")
        left, top = random.randint(0, image.width - self.size), random.randint(0, image.height - self.size)
        image = image.crop((left, top, left + self.size, top + self.size))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, label


log = TrainingLog()
dataset = Photos(log.data, 48)
loader = DataLoader(dataset, 5, shuffle=True, num_workers=log.workers, drop_last=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 48 * 48, len(dataset.classes)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

log.resume(loader)
for epoch in log.epochs():
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        log.batch(loader, (images, labels), loss)
log.end()
