"""How much memory does each worker process take for a data set of a million samples?

A list of a million paths, each file read once in a shuffled epoch. The figure is how much the memory of all processes together
(PSS: pages that several share count once) grows with each worker, from one worker to four. Compared with the same number of bare
interpreters that have imported NumPy and Stoker, and with torch's DataLoader with the list as torch's users have it: a Python
list.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import BenchmarkParser, available, median, note, report

BEFORE = """
import json, os, sys
from pathlib import Path
from measure import tree_pss

root, samples, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
paths = [f"{root}/link{at // 1000:04}/picture{at % 1000:04}.txt" for at in range(samples)]
def tell(seen=samples):
    assert seen == samples, seen
    print(json.dumps(tree_pss(os.getpid())), flush=True)
"""
STOKER = """
import stoker
pipeline = stoker.files(paths, labels=None).shuffle(seed=7).batch(250, drop_last=False)
del paths
with pipeline.loader(processes=workers, threads=1) as batches:
    tell(sum(len(batch) for (batch,) in batches))
"""
BARE = """
import subprocess
import stoker.engine.process_executor
del paths
program = "import numpy, stoker.engine.process_worker; print(flush=True); input()"
command = [sys.executable, "-c", program]
bare = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(workers)]
for process in bare:
    process.stdout.readline()
tell()
for process in bare:
    process.communicate(b"\\n")
"""
TORCH = """
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __len__(self):
        return len(paths)
    def __getitem__(self, index):
        return Path(paths[index]).read_bytes()

loader = DataLoader(Files(), 250, shuffle=True, num_workers=workers, collate_fn=list, persistent_workers=True)
tell(sum(map(len, loader)))
"""
SCRIPTS = {"stoker": (STOKER, ()), "bare": (BARE, ()), "torch": (TORCH, ("torch",))}
#: megabytes that a worker may take beyond its interpreter
MOST_MB = 20.0
#: files that there are; a path leads to each by one of many links to their folder
FILES = 1000


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    parser.amount("--samples", 1_000_000, 2000, "paths in the list")
    parser.add_argument("--peers", default="torch", help="'torch', or 'none'")
    return parser.parse_args()


def make_files(root: Path, samples: int) -> None:
    """A thousand small files, and a link to their folder for each thousand samples."""
    (root / "files").mkdir()
    for number in range(min(FILES, samples)):
        (root / f"files/picture{number:04}.txt").write_bytes(b"%d" % number)
    for number in range(-(-samples // FILES)):
        (root / f"link{number:04}").symlink_to("files")


def total(script: str, root: Path, samples: int, workers: int) -> int:
    """Bytes of all processes at the end of an epoch."""
    here = str(Path(__file__).resolve().parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]]), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"{BEFORE}\n{script}", str(root), str(samples), str(workers)]
    return int(json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout))


def main() -> None:
    options = parse()
    few, many = (1, 2) if options.quick else (1, 4)
    names = [name for name in SCRIPTS if name != "torch" or options.peers != "none"]
    names = [name for name in names if available(name, SCRIPTS[name][1])]
    totals: dict[str, list[float]] = {name: [] for name in names}
    growth: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), options.samples)
        for number in range(options.rounds):
            for name in names[:: -1 if number % 2 else 1]:
                one, all_ = (total(SCRIPTS[name][0], Path(folder), options.samples, workers) / 1e6 for workers in (few, many))
                totals[name].append(all_)
                growth[name].append((all_ - one) / (many - few))
                note(f"round {number + 1}/{options.rounds}  {name:8} {all_:8.1f} MB with {many}, {growth[name][-1]:6.1f} MB each")
    beyond = median(growth["stoker"]) - median(growth["bare"])
    report(
        "worker_memory",
        options,
        samples=options.samples,
        workers=many,
        total_mb={name: median(each) for name, each in totals.items()},
        per_worker_mb={name: median(each) for name, each in growth.items()},
        beyond_interpreter_mb=beyond,
        targets={"MB of a worker beyond its interpreter": (beyond, MOST_MB, beyond < MOST_MB)},
    )


if __name__ == "__main__":
    main()
