"""Items that are dicts: tensors, arrays, numbers, texts and dicts within; single items first, to look at them."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from training_log import TrainingLog

from stoker.torch import DataLoader


class Records(Dataset):
    def __len__(self):
        return 25

    def __getitem__(self, index):
        return {
            "pixels": torch.rand(2, 3) + index,
            "position": np.array([index, -index], np.float32),
            "target": {"label": index % 4, "weight": 1 / (1 + index)},
            "name": f"record-{index:03d}",
        }


log = TrainingLog()
for item in DataLoader(Records(), batch_size=None):
    assert item["pixels"].shape == (2, 3)
loader = DataLoader(Records(), batch_size=4, shuffle=True, num_workers=log.workers, drop_last=True)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

log.resume(loader)
for epoch in log.epochs():
    for batch in loader:
        scores = model(torch.cat([batch["pixels"].flatten(1), batch["position"]], 1))
        losses = nn.functional.cross_entropy(scores, batch["target"]["label"], reduction="none")
        loss = (losses * batch["target"]["weight"]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.batch(loader, batch, loss)
log.end()
