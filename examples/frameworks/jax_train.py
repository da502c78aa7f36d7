"""JAX: batches arrive as arrays, shared out over all devices of all processes; Orbax saves the state of the data with the model.

    python examples/frameworks/jax_train.py run --stop-after 5
    python examples/frameworks/jax_train.py run

On several processes give each its number: --process 0 --processes 2 --coordinator 127.0.0.1:9571
"""

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from points import Record, arguments, make_points


@jax.jit
def step(weights, x, y):
    def loss(weights):
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ weights["layer"]), y[:, None], axis=1).mean()

    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, jax.grad(loss)(weights))


def main() -> None:
    given = arguments(__doc__, process=0, processes=1, coordinator="127.0.0.1:9571")
    if given.processes > 1:
        jax.distributed.initialize(given.coordinator, given.processes, given.process)
    rows = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), P("data"))
    record = Record(given.folder, given.stop_after, jax.process_index())
    weights = jax.device_put({"layer": jnp.zeros((2, 2))}, NamedSharding(rows.mesh, P()))
    manager = ocp.CheckpointManager((given.folder / "checkpoints").absolute(), item_names=("weights", "data"))
    with manager, make_points().shard().batch(4).loader(sharding=rows) as batches:
        latest = manager.latest_step()
        if latest is not None:
            wanted = ocp.args.Composite(weights=ocp.args.StandardRestore(weights), data=ocp.args.JsonRestore())
            saved = manager.restore(latest, args=wanted)
            weights = saved.weights
            batches.load_state_dict(saved.data)
        weights = train(weights, batches, record, given.epochs)
        states = ocp.args.Composite(weights=ocp.args.StandardSave(weights), data=ocp.args.JsonSave(batches.state_dict()))
        manager.save((latest or 0) + 1, args=states)


def train(weights, batches, record, epochs: int):
    for epoch in range(batches.epoch, epochs):
        for x, y, ids in batches:  # x is the global batch; this process has its own rows of it
            weights = step(weights, x, y)
            if record(epoch, [int(i) for shard in ids.addressable_shards for i in shard.data]):
                return weights
    return weights


if __name__ == "__main__":
    main()
