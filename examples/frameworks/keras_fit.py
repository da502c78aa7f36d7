"""Keras 3, with any backend: `keras_dataset()` is a PyDataset. A callback saves model and data in the middle of an epoch.

KERAS_BACKEND=jax python examples/frameworks/keras_fit.py run --stop-after 5
KERAS_BACKEND=jax python examples/frameworks/keras_fit.py run
"""

import json

import keras
from points import RANK, Record, arguments, make_points


class Points(keras.callbacks.Callback):
    """Records what was trained on, and where the data are after it: backends may have taken further batches already."""

    def __init__(self, data, record: Record) -> None:
        super().__init__()
        self.data, self.record, self.state = data, record, None

    def on_epoch_begin(self, epoch: int, logs=None) -> None:
        self.epoch, self.first = epoch, len(self.data.loader) - len(self.data)  # the rest of an epoch begins in its middle

    def on_train_batch_end(self, batch: int, logs=None) -> None:
        self.state = self.data.state_dict(trained=batch + 1)
        rows = self.data.loader.explain(self.first + batch, self.epoch)
        if self.record(self.epoch, [row["index"] for row in rows]):
            raise KeyboardInterrupt  # in the middle of an epoch, as Ctrl-C would


def main() -> None:
    given = arguments(__doc__)
    saved, weights = given.folder / f"data-{RANK}.json", given.folder / f"model-{RANK}.weights.h5"
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with make_points().shard().batch(4).keras_dataset(inputs="x", targets="y") as data:
        if saved.exists():
            model.load_weights(weights)
            data.load_state_dict(json.loads(saved.read_text()))
        points = Points(data, Record(given.folder, given.stop_after))
        try:
            if len(data) < len(data.loader):  # the rest of the epoch in which it was stopped
                model.fit(data, initial_epoch=data.epoch, epochs=data.epoch + 1, verbose=0, callbacks=[points])
            model.fit(data, initial_epoch=data.epoch, epochs=given.epochs, verbose=0, callbacks=[points])
        except KeyboardInterrupt:
            pass
        model.save_weights(weights)
        saved.write_text(json.dumps(points.state))


if __name__ == "__main__":
    main()
