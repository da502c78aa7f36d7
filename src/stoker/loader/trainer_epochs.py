"""How trainers tell a loader their epoch: by the sampler they expect every loader to have."""

from __future__ import annotations

from collections.abc import Callable


class TrainerEpochs:
    """Stands where a torch DataLoader has its batch sampler.

    Lightning calls ``loader.batch_sampler.sampler.set_epoch(n)`` before each epoch, and does not load a loader's state from a
    checkpoint of a finished epoch: without this call it would begin the data again at epoch 0.
    """

    def __init__(self, set_epoch: Callable[[int], None], batch_size: int) -> None:
        self.set_epoch, self.batch_size = set_epoch, batch_size

    @property
    def sampler(self) -> TrainerEpochs:
        return self
