"""MixUp in a collate function, which draws from torch's generator and NumPy's."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, default_collate
from training_log import TrainingLog

from stoker.torch import DataLoader


class Points(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return torch.randn(4) * 0.1 + index % 3, index % 3


def mixed(items):
    x, y = default_collate(items)
    share = float(np.random.beta(0.4, 0.4))
    order = torch.randperm(len(x))
    y = nn.functional.one_hot(y, 3).float()
    return share * x + (1 - share) * x[order], share * y + (1 - share) * y[order]


log = TrainingLog()
loader = DataLoader(Points(), batch_size=4, shuffle=True, collate_fn=mixed, num_workers=log.workers)
model = nn.Linear(4, 3)
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
