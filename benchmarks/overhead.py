"""What does the engine cost if there is nothing to decode?

Records of 1 KB and a label, in memory, shuffled every epoch, batches of 256: the only work is to copy a row, everything else is
overhead. Compared with a NumPy gather by hand in a torch DataLoader, the usual DataLoader sample by sample, and tf.data.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import data
from measure import SEED, BenchmarkParser, Comparison, Entry, Take, compare, endless, median, pull, ratio, report
from peers.tensorflow_data import tf_records
from peers.torch_records import torch_gather, torch_samples

PEERS = ("torch-gather", "torch-samples", "tf-data")
#: small batches are made far ahead: 64 MB of them
LEAD = 300


@contextmanager
def stoker_records(count: int, batch: int) -> Iterator[Take]:
    """The loader as it comes, kept open."""
    import stoker

    x, y = data.records(count)
    with stoker.arrays(x=x, y=y).shuffle(seed=SEED).batch(batch).loader() as loader:
        yield pull(endless(loader), batch)


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    parser.amount("--records", 100_000, 10_000, "records in memory")
    parser.amount("--epochs", 10, 2, "epochs in a round")
    parser.peers(PEERS)
    options = parser.parse_args()
    options.batch = 256
    return options


def entries(options: argparse.Namespace) -> list[Entry]:
    arguments = (options.records, options.batch)
    batches = options.epochs * (options.records // options.batch)
    peers = {
        "torch-gather": [Entry("torch-gather", torch_gather, arguments, batches, 0, ("torch",))],
        "torch-samples": [
            Entry("torch-samples-0-workers", torch_samples, (*arguments, 0), batches, 0, ("torch",)),
            Entry("torch-samples-2-workers", torch_samples, (*arguments, 2), batches, 5, ("torch",)),
        ],
        "tf-data": [Entry("tf-data", tf_records, arguments, batches, 20, ("tensorflow",))],
    }
    return [Entry("stoker", stoker_records, arguments, batches, LEAD), *(e for name in options.peers for e in peers[name])]


def best_samples(result: Comparison) -> list[float]:
    """Sample by sample: in each round the better of no workers and two."""
    kinds = [rates for name, rates in result.rates.items() if name.startswith("torch-samples")]
    return [max(rates) for rates in zip(*kinds)]


def main() -> None:
    options = parse()
    result = compare(entries(options), options.rounds)
    medians, over = result.medians(), result.ratios("stoker")
    if best := best_samples(result):
        medians["torch-samples-best"] = median(best)
        over["torch-samples-best"] = ratio(result.rates["stoker"], best)
    report(
        "overhead",
        options,
        records=options.records,
        record_bytes=1024,
        batch=options.batch,
        records_per_s=medians,
        stoker_over=over,
    )


if __name__ == "__main__":
    main()
