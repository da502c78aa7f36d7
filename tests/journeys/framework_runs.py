"""The examples of every framework, stopped in the middle of an epoch and started again, on one process or two.

Processes start as torchrun starts them. One process runs several examples, one after the other: it takes seconds to import them.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from ..loader.runs import ROOT, environment
from ..support import until

EXAMPLES = ROOT / "examples" / "frameworks"
SAMPLES, EPOCHS, STOP = 48, 2, 4
_DEADLINE_S = 240.0

#: name of a run -> its example, and further words of the command; `{photos}` is a folder of images
RUNS: dict[str, tuple[str, ...]] = {
    "PyTorch": ("plain_torch.py",),
    "DDP": ("ddp.py",),
    "FSDP and DCP": ("fsdp_dcp.py",),
    "Lightning": ("lightning_fit.py",),
    "Fabric": ("fabric_loop.py",),
    "Accelerate": ("accelerate_loop.py",),
    "Trainer": ("hf_trainer.py",),
    "timm": ("timm_train.py", "--data", "{photos}"),
    "Keras": ("keras_fit.py",),
    "JAX and Orbax": ("jax_train.py",),
    "TensorFlow": ("tensorflow_train.py",),
    "tf.data": ("tensorflow_train.py", "--way", "dataset"),
}
#: those that can be stopped and started again in one process, which saves time: not those whose processes meet, because a second
#: meeting in a process's life sometimes never comes about (gloo), or is not allowed (JAX)
AGAIN = {"PyTorch", "Keras", "TensorFlow", "tf.data"}
#: those that use torch
TORCH = ("PyTorch", "DDP", "FSDP and DCP", "Lightning", "Fabric", "Accelerate", "Trainer", "timm")


def run_frameworks(names: list[str], world: int, folder: Path, photos: Path) -> dict[str, Counter[tuple[int, object]]]:
    """How often each framework trained on each sample of each epoch, over all processes, before the stop and after it."""
    words = json.dumps({name: [word.format(photos=photos) for word in RUNS[name]] for name in names})
    for phases in ["stop, go on"] if AGAIN.issuperset(names) else ["stop", "go on"]:
        _run(world, folder, words, phases)
    return {name: seen(folder / name.replace(" ", "-")) for name in names}


def seen(folder: Path) -> Counter[tuple[int, object]]:
    found: Counter[tuple[int, object]] = Counter()
    for path in sorted(folder.glob("seen-*.jsonl")):
        for line in path.read_text().splitlines():
            epoch, ids = json.loads(line)
            found.update((epoch, each) for each in ids)
    return found


def _run(world: int, folder: Path, words: str, phases: str) -> None:
    import torch.distributed as dist

    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"  # of JAX, which cannot choose one itself
    processes = []
    for rank in range(world):
        settings = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": meeting.port, "TORCHELASTIC_RUN_ID": "test",
            "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": 3,
            "KERAS_BACKEND": os.environ.get("KERAS_BACKEND", "jax"), "KERAS_HOME": folder / "keras",
        }  # fmt: skip
        script = "from tests.journeys.framework_runs import be_process; be_process()"
        command = [sys.executable, "-W", "ignore", "-c", script, str(folder), words, phases, coordinator]
        env = {**environment(), **{name: str(value) for name, value in settings.items()}}
        with (folder / f"{rank}.log").open("ab") as log:
            processes.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + _DEADLINE_S
    try:
        codes = [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * world, "\n".join((folder / f"{rank}.log").read_text()[-4000:] for rank in range(world))


def be_process() -> None:
    """In such a process: run the examples, each once until it stops, and once more."""
    folder, words, phases, coordinator = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(EXAMPLES))
    attempt, world = 0, int(os.environ["WORLD_SIZE"])
    for name, (example, *more) in words.items():
        if name == "JAX and Orbax":
            place = ("--process", os.environ.pop("RANK"), "--processes", os.environ.pop("WORLD_SIZE"))
            more = [*more, *place, "--coordinator", coordinator]
        if name in ("Lightning", "Trainer", "timm"):
            from ..image import vision  # noqa: F401  makes torchvision importable, which these import
        for phase in phases.split(", "):
            stop = ("--stop-after", str(STOP)) if phase == "stop" else ()
            os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)  # torch meets at another place each time
            sys.argv = [example, str(folder / name.replace(" ", "-")), "--epochs", str(EPOCHS), *more, *stop]
            runpy.run_path(str(EXAMPLES / example), run_name="__main__")
            attempt += 1
            _leave()
            _meet(folder / f"{attempt}-{phase}", world)


def _meet(place: Path, world: int) -> None:
    """Wait until all processes are here: what the first of them has saved, all of them load."""
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    until(lambda: len(list(place.iterdir())) >= world, "the other processes", _DEADLINE_S)


def _leave() -> None:
    """End what an example leaves to the end of its process."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    if (state := sys.modules.get("accelerate.state")) is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
