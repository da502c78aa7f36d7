"""TensorFlow: eager tensors over the batch's own memory, in a loop of your own; and the same as a tf.data.Dataset.

python examples/frameworks/tensorflow_train.py run --stop-after 5
python examples/frameworks/tensorflow_train.py run
python examples/frameworks/tensorflow_train.py run --way dataset
"""

import json

import tensorflow as tf
from points import RANK, Record, arguments, make_points


def main() -> None:
    given = arguments(__doc__, way="loader")
    record, saved = Record(given.folder, given.stop_after), given.folder / f"data-{RANK}.json"
    weights = tf.Variable(tf.zeros((2, 2)))
    checkpoint = tf.train.Checkpoint(weights=weights)
    train = make_points().shard().batch(4)
    state = json.loads(saved.read_text()) if saved.exists() else None
    if state is not None:
        checkpoint.read(str(given.folder / f"model-{RANK}"))
    run = with_loader if given.way == "loader" else with_dataset
    state = run(train, weights, record, given.epochs, state)
    checkpoint.write(str(given.folder / f"model-{RANK}"))
    saved.write_text(json.dumps(state))


def with_loader(train, weights, record, epochs: int, state):
    with train.loader(format="tensorflow") as batches:
        if state is not None:
            batches.load_state_dict(state)
        for epoch in range(batches.epoch, epochs):
            for x, y, ids in batches:
                step(weights, x, y)
                if record(epoch, ids):
                    return batches.state_dict()
        return batches.state_dict()


def with_dataset(train, weights, record, epochs: int, state):
    """A tf.data.Dataset has no state of its own: the program counts, and says where to go on."""
    first, done = state or (0, 0)
    dataset = train.tf_dataset(epoch=first, skip=done)
    for epoch in range(first, epochs):
        for x, y, ids in dataset:
            step(weights, x, y)
            done += 1
            if record(epoch, ids):
                return epoch, done
        done = 0
    return epochs, 0


@tf.function
def step(weights, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weights))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))


if __name__ == "__main__":
    main()
