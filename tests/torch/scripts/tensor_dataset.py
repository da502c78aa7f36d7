"""Tensors in memory, a random split, training and validation."""

import torch
from torch import nn
from torch.utils.data import TensorDataset, random_split
from training_log import TrainingLog

from stoker.torch import DataLoader

log = TrainingLog()
x = torch.linspace(-1, 1, 60).reshape(-1, 2)
dataset = TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())
train, val = random_split(dataset, [24, 6], torch.Generator().manual_seed(0))
train_loader = DataLoader(train, batch_size=4, shuffle=True, num_workers=log.workers)
val_loader = DataLoader(val, batch_size=6, num_workers=log.workers)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

log.resume(train_loader)
for epoch in log.epochs():
    for inputs, targets in train_loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(train_loader, (inputs, targets), loss)
    with torch.no_grad():
        correct = sum(((model(inputs) > 0) == targets.bool()).sum() for inputs, targets in val_loader)
    assert 0 <= correct <= 6
log.end()
