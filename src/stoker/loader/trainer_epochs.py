"""Lets trainers that count epochs themselves set the epoch, through the sampler they expect a loader to have.

Lightning calls ``loader.batch_sampler.sampler.set_epoch(n)`` before each epoch. It does not load a loader's state from a
checkpoint of a finished epoch, so without this call it would start again at epoch 0. If it cannot get a loader's length, it takes
a batch while it works on the previous one, to know which is the last.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigError


class TrainerSampler:
    """Takes the place of a torch DataLoader's batch sampler, and of that one's sampler."""

    def __init__(self, set_epoch: Callable[[int], None], batch_size: int) -> None:
        self.set_epoch, self.batch_size = set_epoch, batch_size

    @property
    def sampler(self) -> TrainerSampler:
        return self


class Trainer:
    """What is known of the trainer that drives a loader."""

    def __init__(self) -> None:
        self._heard = False
        self.reads_ahead = False

    def says(self, epoch: int, at: int, placed: int | None, begun: bool | None) -> None:
        """The trainer begins `epoch`. A wrong one for the loader is refused.

        The loader is in epoch `at`; the user put it into epoch `placed`, unless batches were taken since; `begun` says whether
        batches were taken from the iterator there is, None that there is none.
        """
        if placed is not None and placed > epoch:
            raise ConfigError(
                f"this loader was set to epoch {placed} by loader(epoch=...) or load_state_dict(), but its trainer starts epoch "
                f"{epoch}: let the trainer load the state (Lightning: ckpt_path=...); it sets the loader's epoch"
            )
        if begun is False or (begun and not self._heard):
            self.reads_ahead = begun
        if self.reads_ahead and not self._heard and at < epoch:
            raise ConfigError(
                f"the trainer starts epoch {epoch}, but has already taken a batch of epoch {at}, because this loader's length "
                f"is not known: create it with loader(epoch={epoch})"
            )
        self._heard = True
