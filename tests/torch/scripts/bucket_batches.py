"""Sequences of several lengths: a batch sampler that puts similar ones together, and a collate function that pads."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from training_log import TrainingLog

from stoker.torch import DataLoader


class Sequences(Dataset):
    def __init__(self):
        self.lengths = [3 + (number * 7) % 11 for number in range(26)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        tokens = torch.arange(self.lengths[index]) % 10
        dropped = torch.rand(len(tokens)) < 0.1
        return tokens.masked_fill(dropped, 0), index % 2


class Buckets:
    def __init__(self, lengths, size):
        self.lengths, self.size = lengths, size

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda index: (self.lengths[index], random.random()))
        batches = [order[first : first + self.size] for first in range(0, len(order), self.size)]
        random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return -(-len(self.lengths) // self.size)


def padded(items):
    tokens, labels = zip(*items)
    return pad_sequence(tokens, batch_first=True), torch.tensor([len(each) for each in tokens]), torch.tensor(labels)


log = TrainingLog()
dataset = Sequences()
loader = DataLoader(dataset, batch_sampler=Buckets(dataset.lengths, 4), collate_fn=padded, num_workers=log.workers)
model = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

log.resume(loader)
for epoch in log.epochs():
    for tokens, lengths, labels in loader:
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(loader, (tokens, lengths, labels), loss)
log.end()
