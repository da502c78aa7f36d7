"""A loader as Keras expects data: a `keras.utils.PyDataset`, for every backend."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Protocol

from ..batch.batch import Batch
from ..errors import ConfigError
from ..registry import needed
from .tf_dataset import ClosableLoader

#: states that are kept: backends take this many batches before they train on them, at most
_MOST_STATES = 64
#: where Keras looks at first batches before it begins, to know their shapes; and at how many, at most
_LOOKS, _LOOKED_AT = ("_symbolic_build", "get_tf_dataset"), 2
#: methods of a model that ask for data, and what begins these again after a look
_USES, _RESET = ("fit", "evaluate", "predict"), "reset"


class EpochLoader(ClosableLoader, Protocol):
    """What is asked of a loader."""

    @property
    def epoch(self) -> int:
        """The epoch that is iterated, or comes next."""

    def __len__(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...


#: a field, or several by name, or nothing
Fields = str | Sequence[str] | None


def keras_dataset(loader: EpochLoader, inputs: Fields, targets: Fields, weights: Fields) -> Any:
    """A `PyDataset` over a loader. Keras asks for batches by number, in order, and begins each epoch with 0.

    A number that comes again begins the epoch again: so what Keras looks at before it trains is not lost.
    """
    keras = needed("keras", "keras", "keras_dataset()")
    chosen = _chosen(inputs, targets, weights)

    class KerasDataset(keras.utils.PyDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(workers=1, use_multiprocessing=False)
            self._lock = threading.RLock()
            self.loader = loader  # for `why()`, `stats()` and `explain()`
            self._asker: weakref.ref[Any] | None = None  # Keras's adapter that had the last batch; each call of `fit` has one
            self._begin()

        def _begin(self) -> None:
            """Begin what the loader has before it: an epoch, or the rest of one."""
            self._start, self._length = loader.state_dict(before=False), loader.remaining
            self._rewind()

        def _rewind(self) -> None:
            self._batches: Iterator[Any] | None = None
            self._taken = 0
            self._first: Any = None
            self._looked = self._left = False
            self._states = {0: self._start}

        @property
        def workers(self) -> int:
            # Keras's adapter asks for it when it is made. It would shuffle numbers of batches, as `fit` does by default, where
            # the pipeline has shuffled samples, and where batches are made ahead in their order.
            adapter = self._adapter(sys._getframe(1))
            if getattr(adapter, "shuffle", False):
                adapter.shuffle = False
            return 1

        def _adapter(self, frame: FrameType) -> Any:
            """Keras's adapter, if it is the caller."""
            caller: Any = frame.f_locals.get("self")
            return caller if getattr(caller, "py_dataset", None) is self else None

        @property
        def num_batches(self) -> int | None:
            """Batches of this epoch, or of the rest of it that a loaded state left; None: not known."""
            with self._lock:
                return len(loader) if self._ended else self._length

        @property
        def _ended(self) -> bool:
            return self._taken == self._length and not self._looked

        def __len__(self) -> int:
            if (count := self.num_batches) is None:
                raise TypeError("this pipeline's length is not known in advance; pass steps_per_epoch to fit()")
            return count

        def __getitem__(self, index: int) -> Any:
            with self._lock:
                # Begun again after its first batch, as Keras does; an epoch of one batch may as well have ended.
                again = index == 0 and self._first is not None and not self._ended and not self._left
                adapter = self._adapter(sys._getframe(1))
                if not again:
                    self._find(index, adapter)
                    self._first = self._next()
                    self._asker = None if adapter is None else weakref.ref(adapter)
                first, self._looked = self._first, bool(_innermost(sys._getframe(1), _LOOKS))
                if index:
                    self._first = None
                return first

        def on_epoch_begin(self) -> None:
            """Refuse an epoch that would never end."""
            steps: Any = sys._getframe(2).f_locals.get("self")  # whoever counts them asks Keras's adapter, which asks here
            if self.num_batches is None and getattr(steps, "steps_per_epoch", 0) is None:
                raise ConfigError(
                    "this pipeline's length is not known in advance, so Keras would never end the epoch: pass steps_per_epoch "
                    "to fit() (validation_steps for validation_data), and steps to evaluate() and predict()"
                )

        def on_epoch_end(self) -> None:
            """Note that an epoch of `fit` has ended, perhaps within one of the data. A look ends here too."""
            with self._lock:
                caller = sys._getframe(2)
                self._left |= caller.f_code.co_name != _RESET and _innermost(caller, _USES) == "fit"

        def _find(self, index: int, adapter: Any) -> None:
            """Go to a batch, unless it is the next one."""
            if self._ended:
                if adapter is not None and self._asker is not None and self._asker() is adapter and self._length != len(loader):
                    raise ConfigError(
                        f"fit() was begun with the rest of an epoch, {self._length} of {len(loader)} batches, and would take as "
                        f"many of every epoch: train on the rest by a call of its own, fit(..., initial_epoch={loader.epoch}, "
                        f"epochs={loader.epoch + 1}), and on the epochs after it by another"
                    )
                if self._batches is not None:
                    next(self._batches, None)  # it ends, and the next epoch begins
                self._begin()
            if self._length is None and (index or self._taken > _LOOKED_AT):
                return  # without a length there is only the next one
            if index not in (0, self._taken):
                raise ConfigError(
                    f"batch {index} was requested, but {self._taken} comes next; the pipeline already shuffles: pass "
                    "shuffle=False to fit()"
                )
            if index != self._taken:
                loader.load_state_dict(self._start)
                if self._left:  # by `steps_per_epoch`, and now there is another call of `fit`
                    loader.set_epoch(loader.epoch + 1)
                    self._begin()
                self._rewind()

        def _next(self) -> Any:
            if self._batches is None:
                self._batches = iter(loader)
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = iter(loader)  # only where the length is not known
                batch = next(self._batches)
            self._taken, self._left = self._taken + 1, False
            self._states[self._taken] = loader.state_dict(before=False)
            self._states.pop(self._taken - _MOST_STATES, None)
            return chosen(batch)

        @property
        def epoch(self) -> int:
            """The epoch of the batch that comes next, for ``fit(initial_epoch=...)``."""
            with self._lock:
                return loader.epoch + (1 if self._ended else 0)

        def state_dict(self, trained: int | None = None) -> dict[str, Any]:
            """The position after `trained` batches of this epoch, or of the rest of it; by default after all that were delivered.

            Some backends take batches ahead, so pass ``batch + 1`` in a callback's ``on_train_batch_end(batch, logs)``.
            """
            with self._lock:
                trained = self._taken if trained is None else trained
                if trained not in self._states:
                    least, most = min(self._states), max(self._states)
                    raise ConfigError(
                        f"state_dict(trained={trained!r}): must be one of {least} to {most}, the batches taken recently"
                    )
                return self._states[trained]

        def load_state_dict(self, state: Any) -> None:
            """Continue from a saved state: the next epoch that Keras trains on is the rest of the saved one."""
            with self._lock:
                loader.load_state_dict(state)
                self._begin()

        def close(self) -> None:
            """Stop all workers."""
            loader.close()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

    return KerasDataset()


def _innermost(frame: FrameType | None, names: tuple[str, ...]) -> str:
    """The function of these in which the frame is, or in the last called of them; empty: in none."""
    while frame is not None and frame.f_code.co_name not in names:
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_name


def _chosen(inputs: Fields, targets: Fields, weights: Fields) -> Any:
    """What makes a batch what Keras takes: inputs, targets and weights, each an array or a dict of arrays."""
    roles = [role for role in (inputs, targets, weights) if role is not None]
    if inputs is None and roles:
        raise ConfigError("keras_dataset(): name the inputs too, as in keras_dataset(inputs='image', targets='label')")
    if targets is None and weights is not None:
        raise ConfigError("keras_dataset(weights=...): name the targets too: Keras takes inputs, targets, weights")

    def choose(batch: Batch) -> Any:
        if not roles:
            if len(batch) > 3:
                raise ConfigError(
                    f"a batch has the fields {', '.join(batch.keys())}, but Keras takes inputs, targets and weights: select up "
                    "to three, or name them, as in keras_dataset(inputs='image', targets='label')"
                )
            return tuple(batch.values())
        return tuple(batch[role] if isinstance(role, str) else {name: batch[name] for name in role} for role in roles)

    return choose
