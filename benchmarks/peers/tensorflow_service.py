"""tf.data service: batches made by worker processes and fetched over gRPC.

Workers have one thread each. What they send is not compressed: over a fast line that is quicker, and crops hardly get smaller.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of
from measure import SEED, Take, pull
from peers.crops import SIDE
from peers.tensorflow_data import _crop


@contextmanager
def tf_service(name: str, where: str, batch: int, workers: int) -> Iterator[Take]:
    """`crops` of the images in a folder, or `copies`: rows that are only filled."""
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    command = [sys.executable, "-m", "peers.tensorflow_service", dispatcher.target.partition("://")[2]]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    here = Path(__file__).resolve().parents[1]
    started = [subprocess.Popen(command, cwd=here, env=environment, stderr=subprocess.DEVNULL) for _ in range(workers)]
    try:
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        data = _crops(where) if name == "crops" else tf.data.Dataset.range(1 << 40).map(_row, num_parallel_calls=1)
        data = data.batch(batch, drop_remainder=True).with_options(options)
        data = data.apply(
            service.distribute(service.ShardingPolicy.OFF, dispatcher.target, compression=None, max_outstanding_requests=8)
        )
        yield pull(iter(data.prefetch(4)), batch)
    finally:
        for worker in started:
            worker.kill()
            worker.wait()


def _crops(where: str) -> Any:
    import tensorflow as tf

    paths = paths_of(Path(where))
    return tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), SEED).repeat().map(_crop, num_parallel_calls=1)


def _row(number: Any) -> Any:
    import tensorflow as tf

    return tf.fill([SIDE, SIDE, 3], tf.cast(number % 256, tf.uint8))


def work(dispatcher: str) -> None:
    """A worker, until it is killed."""
    import tensorflow as tf

    service = tf.data.experimental.service
    service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher, heartbeat_interval_ms=500)).join()


if __name__ == "__main__":
    work(sys.argv[1])
