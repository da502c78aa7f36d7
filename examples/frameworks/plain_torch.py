"""PyTorch without any framework: stop anywhere, resume with the very next batch.

python examples/frameworks/plain_torch.py run --stop-after 5
python examples/frameworks/plain_torch.py run
"""

import torch
from points import RANK, Record, arguments, make_points


def main() -> None:
    given = arguments(__doc__)
    record, checkpoint = Record(given.folder, given.stop_after), given.folder / f"checkpoint-{RANK}.pt"
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make_points().shard().batch(4).loader(format="torch") as batches:
        if checkpoint.exists():
            saved = torch.load(checkpoint)
            model.load_state_dict(saved["model"])
            batches.load_state_dict(saved["data"])
        for epoch in range(batches.epoch, given.epochs):
            for x, y, ids in batches:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                if record(epoch, ids):
                    torch.save({"model": model.state_dict(), "data": batches.state_dict()}, checkpoint)
                    return


if __name__ == "__main__":
    main()
