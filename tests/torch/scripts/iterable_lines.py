"""Lines of text as they come, through a shuffle buffer; each worker takes its share, as torch's documentation has it."""

import random

import torch
from torch import nn
from torch.utils.data import IterableDataset, get_worker_info
from training_log import TrainingLog

from stoker.torch import DataLoader


class Lines(IterableDataset):
    def __init__(self, lines, buffer):
        self.lines, self.buffer = lines, buffer

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        waiting = []
        for line in self.lines[first::step]:
            waiting.append(line)
            if len(waiting) == self.buffer:
                yield self.encoded(waiting.pop(random.randrange(self.buffer)))
        random.shuffle(waiting)
        yield from map(self.encoded, waiting)

    def encoded(self, line):
        return torch.tensor([ord(letter) % 32 for letter in line.ljust(12)[:12]]), len(line)


log = TrainingLog()
loader = DataLoader(Lines([f"line number {number**3}" for number in range(30)], 8), batch_size=4, num_workers=log.workers)
model = nn.Sequential(nn.EmbeddingBag(32, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

log.resume(loader)
for epoch in log.epochs():
    for tokens, length in loader:
        loss = (model(tokens).squeeze(1) - length).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(loader, (tokens, length), loss)
log.end()
