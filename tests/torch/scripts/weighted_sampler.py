"""Rare classes drawn more often, with noise that differs each time an item comes."""

import torch
from torch import nn
from torch.utils.data import Dataset, WeightedRandomSampler
from training_log import TrainingLog

from stoker.torch import DataLoader


class Noisy(Dataset):
    labels = [0] * 20 + [1] * 4

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.randn(3) + self.labels[index], self.labels[index]


log = TrainingLog()
dataset = Noisy()
weights = [1 / dataset.labels.count(label) for label in dataset.labels]
sampler = WeightedRandomSampler(weights, num_samples=26, replacement=True)
loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=log.workers)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

log.resume(loader)
for epoch in log.epochs():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(loader, (x, y), loss)
log.end()
