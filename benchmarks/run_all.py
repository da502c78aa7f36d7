"""Run every benchmark, one after the other, each in a process of its own; a line of JSON from each."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from measure import note

HERE = Path(__file__).resolve().parent
#: each with the options it takes besides --quick
BENCHMARKS = {
    "order": (),
    "pixels": ("--images",),
    "jpeg_kernel": ("--images", "--peers"),
    "overhead": ("--peers",),
    "first_batch": ("--images", "--peers"),
    "drop_in": ("--images",),
    "imagenet_train": ("--images", "--peers"),
    "imagenet_augment": ("--images", "--peers"),
    "scaling": ("--images",),
    "simulate": ("--images",),
    "gil": ("--images",),
    "tuning": ("--images",),
    "tail": ("--peers",),
    "meters": ("--images",),
    "cache": ("--images",),
    "python_map": ("--images", "--peers"),
    "soak": (),
    "records": ("--images", "--peers"),
    "cifar_tfrecord": ("--peers",),
    "cifar_train": ("--peers",),
    "ray_overhead": ("--images",),
    "remote": ("--images",),
    "pool": ("--images",),
    "remote_workers": ("--images", "--peers"),
    "accuracy": (),
    "tools": ("--images",),
    "tracing": ("--images",),
    "train_gpu": ("--images",),
    "verdicts": ("--images",),
    "worker_memory": ("--peers",),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which of {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a few seconds each")
    parser.add_argument("--images", help="a folder of JPEG files (default: one is generated)")
    parser.add_argument("--peers", choices=["none"], help="none: leave the others out")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")
    return options


def command(name: str, options: argparse.Namespace) -> list[str]:
    """How to start a benchmark."""
    given = {"--images": options.images, "--peers": options.peers}
    extra = [word for option in BENCHMARKS[name] if given[option] for word in (option, given[option])]
    return [sys.executable, str(HERE / f"{name}.py"), *(["--quick"] if options.quick else []), *extra]


def main() -> int:
    options = parse()
    failed = []
    for name in options.names or BENCHMARKS:
        note(f"---- {name}")
        if subprocess.run(command(name, options)).returncode:
            failed.append(name)
    if failed:
        note(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
