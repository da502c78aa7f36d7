"""Data parallel training: torchrun, gloo, DistributedSampler with `set_epoch`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler
from training_log import TrainingLog

from stoker.torch import DataLoader


class Numbers(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return torch.randn(3) * 0.1 + index, index


dist.init_process_group("gloo")
log = TrainingLog()
rank = dist.get_rank()
for name in ("out", "state"):
    if (path := getattr(log.given, name)) is not None:
        setattr(log.given, name, path.with_suffix(f".{rank}"))
sampler = DistributedSampler(Numbers())
loader = DataLoader(Numbers(), batch_size=3, sampler=sampler, num_workers=log.workers)
model = DistributedDataParallel(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

log.resume(loader)
for epoch in log.epochs():
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = (model(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(loader, (x, y), loss)
log.end()
dist.destroy_process_group()
