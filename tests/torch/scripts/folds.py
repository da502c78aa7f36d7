"""Two data sets joined, one fold of five held out, training items drawn by a sampler with a generator of its own."""

import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset, SubsetRandomSampler, TensorDataset
from training_log import TrainingLog

from stoker.torch import DataLoader


class Jittered(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        x, y = self.inner[index]
        return x + torch.randn_like(x) * 0.01, y


log = TrainingLog()
joined = ConcatDataset([TensorDataset(torch.rand(15, 3), torch.zeros(15)), TensorDataset(torch.rand(15, 3) + 1, torch.ones(15))])
held_out = range(0, 30, 5)
kept = [index for index in range(30) if index % 5]
sampler = SubsetRandomSampler(kept, generator=torch.Generator().manual_seed(42))
train_loader = DataLoader(Jittered(joined), batch_size=4, sampler=sampler, num_workers=log.workers)
val_loader = DataLoader(Subset(joined, held_out), batch_size=6)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

log.resume(train_loader)
for epoch in log.epochs():
    for x, y in train_loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(train_loader, (x, y), loss)
    assert sum(len(y) for _, y in val_loader) == 6
log.end()
