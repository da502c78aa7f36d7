"""One large file of records, which each worker opens for itself, and seeks in; prepared by a worker_init_fn."""

import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, get_worker_info
from training_log import TrainingLog

from stoker.torch import DataLoader

ROW = 16


class Records(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return self.path.stat().st_size // ROW

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115  as people do
        self.file.seek(index * ROW)
        row = np.frombuffer(self.file.read(ROW), np.float32).copy()
        row *= random.uniform(0.9, 1.1)
        return torch.from_numpy(row), index % 2


def prepare(worker):
    assert get_worker_info().id == worker
    np.random.seed(worker)


log = TrainingLog()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "records.bin"
    np.arange(26 * ROW // 4, dtype=np.float32).tofile(path)
    loader = DataLoader(Records(path), batch_size=4, shuffle=True, num_workers=log.workers, worker_init_fn=prepare)
    model = nn.Linear(ROW // 4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    log.resume(loader)
    for epoch in log.epochs():
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.batch(loader, (x, y), loss)
log.end()
