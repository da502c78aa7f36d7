"""A training script in the style of timm's, where `create_loader` is replaced by a pipeline: the rest of the script stays.

python examples/small_data.py small
python examples/frameworks/timm_train.py run --data small/photos --stop-after 4
python examples/frameworks/timm_train.py run --data small/photos
"""

from collections import OrderedDict

import timm
import timm.utils
import torch
from points import RANK, Record, arguments
from timm.data import resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

import stoker
from stoker.image import HorizontalFlip, Normalize, RandomResizedCrop


def create_loader(root: str, input_size: tuple[int, ...], batch_size: int, mean: tuple[float, ...], std: tuple[float, ...]):
    """In the place of timm's `create_dataset` and `create_loader`: the same images, sizes and normalisation, and a state."""
    train = (
        stoker.files(root)
        .shuffle(seed=42)
        .shard()
        .image("image", RandomResizedCrop(input_size[-1]), HorizontalFlip(), Normalize(mean, std), layout="chw")
        .batch(batch_size)
    )
    return train.loader(format="torch")


def main() -> None:
    given = arguments(__doc__, data="small/photos", model="test_vit")
    record, checkpoint = Record(given.folder, given.stop_after), given.folder / f"last-{RANK}.pth.tar"
    model = timm.create_model(given.model, pretrained=False, num_classes=4)
    config = resolve_data_config({"input_size": (3, 160, 160)}, model=model)
    loader = create_loader(given.data, config["input_size"], 4, config["mean"], config["std"])
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01)
    scheduler = CosineLRScheduler(optimizer, t_initial=given.epochs * len(loader), t_in_epochs=False)
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["state_dict"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    with loader:
        for epoch in range(loader.epoch, given.epochs):
            if train_one_epoch(epoch, model, loader, optimizer, scheduler, record):
                break
        states = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(states, checkpoint)


def train_one_epoch(epoch: int, model, loader, optimizer, scheduler, record) -> OrderedDict | None:
    loss_function, losses = LabelSmoothingCrossEntropy(), timm.utils.AverageMeter()
    model.train()
    done = len(loader) - loader.remaining
    for step, batch in enumerate(loader, start=done):
        images, labels = batch
        loss = loss_function(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step_update(epoch * len(loader) + step + 1)
        losses.update(loss.item(), len(images))
        if record(epoch, batch.sample_keys):
            return OrderedDict(loss=losses.avg)
    return None


if __name__ == "__main__":
    main()
