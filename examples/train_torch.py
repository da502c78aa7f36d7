"""Train with torch, stop anywhere, resume exactly there: python examples/train_torch.py PHOTOS CHECKPOINT [STEPS]

Run it with a number of steps, then again: the second run continues with the very next batch.
"""

import argparse
import json
from pathlib import Path

import torch

import stoker
from stoker.image import HorizontalFlip, Normalize, RandomResizedCrop

EPOCHS = 3


def make_model(classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, classes),
    )


def main(photos: str, checkpoint: Path, most_steps: int) -> None:
    train = (
        stoker.files(photos)
        .shuffle(seed=7)
        .image("image", RandomResizedCrop(64), HorizontalFlip(), Normalize(0.5, 0.25), layout="chw")
        .batch(8)
    )
    torch.manual_seed(0)
    model = make_model(len(train.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with train.loader(format="torch") as batches:
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            batches.load_state_dict(json.loads(saved["data"]))
            print(f"resumed in epoch {batches.epoch}")
        steps = 0
        for epoch in range(batches.epoch, EPOCHS):
            for batch in batches:
                images, labels = batch
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
                print(f"epoch {epoch} loss {loss.item():.6f} first {batch.sample_keys[0]}")
                if steps == most_steps:
                    # The data's state is JSON; it goes into the checkpoint as text.
                    data = json.dumps(batches.state_dict())
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": data}
                    torch.save(state, checkpoint)
                    print(f"stopped after {steps} steps")
                    return
        print(batches.why())


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("photos", help="a folder of class folders of images; `stoker demo --keep demo` makes demo/train")
    words.add_argument("checkpoint", type=Path, help="a file to write when it stops, and to resume from")
    words.add_argument("steps", type=int, nargs="?", default=0, help="how many steps; all, if not given")
    given = words.parse_args()
    main(given.photos, given.checkpoint, given.steps)
