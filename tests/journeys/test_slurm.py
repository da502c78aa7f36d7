"""Ranks that a real SLURM starts, on a cluster of this machine alone; and programs that have its variables, but are no ranks."""

from __future__ import annotations

import json
import os
import pty
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ..loader.runs import ROOT, environment
from ..support import until

_NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
pytestmark = [
    pytest.mark.faults,
    pytest.mark.thorough,
    pytest.mark.skipif(
        os.geteuid() != 0 or None in map(shutil.which, _NEEDED), reason="needs root and SLURM: apt-get install slurm-wlm"
    ),
]
_DEADLINE_S = 120.0

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=pmi2
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
"""

PROGRAM = """
import json, os, sys
from tests.loader.runs import numbers

try:
    with numbers(30).shard(remainder="keep").batch(4).loader() as batches:
        seen = [int(n) for batch in batches for n in batch["x"][batch.valid]]
        found = str(batches.rank), seen
except Exception as error:
    found = str(error), []
with open(f"{sys.argv[1]}/{os.getpid()}.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A machine of four cores, on which this user may start whatever it likes."""
    with ExitStack() as stack:
        folder = Path(f"/tmp/stoker-slurm-{secrets.token_hex(4)}")  # names of sockets must be short
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "key").write_bytes(secrets.token_bytes(128))
        (folder / "key").chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0)), other.bind(("127.0.0.1", 0))
            ports = [each.getsockname()[1] for each in (one, other)]
        (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, host=host, ports=ports))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge",
             f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"],
            ["slurmctld", "-D", "-L", str(folder / "slurmctld.log")],
            ["slurmd", "-D", "-L", str(folder / "slurmd.log")],
        ):  # fmt: skip
            daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(daemon.wait, 30)
            stack.callback(daemon.terminate)
            if command[0] == "munged":
                until((folder / "munge").exists)
        until(lambda: subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%n"], capture_output=True, check=False).stdout.strip())
        yield


@pytest.fixture
def program(cluster: None, tmp_path: Path) -> list[str]:
    """The command of a program that leaves what it found."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr


def found(folder: Path) -> dict[str, list[int]]:
    """What each process saw, by what it says of its rank."""
    return dict(sorted(json.loads(path.read_text()) for path in folder.glob("*.json")))


def test_tasks_of_srun_share_the_samples(program: list[str], tmp_path: Path) -> None:
    run("srun", "-n", "3", "--cpus-per-task=1", *program)
    ranks = found(tmp_path)
    assert [*ranks] == [f"rank {rank} of 3 (SLURM: SLURM_PROCID and SLURM_STEP_NUM_TASKS)" for rank in range(3)]
    assert sorted(n for seen in ranks.values() for n in seen) == list(range(30))


def test_programs_started_by_salloc_or_by_the_script_of_sbatch_are_alone(program: list[str], tmp_path: Path) -> None:
    run("salloc", "-n", "2", *program)
    assert found(tmp_path) == {"alone": [*range(30)]}


def test_the_script_that_a_task_submits_is_not_taken_for_that_task(program: list[str], tmp_path: Path) -> None:
    script = f"sbatch --wait -o {tmp_path}/log --wrap '{' '.join(program)}'"
    run("srun", "-n", "2", "sh", "-c", f"[ $SLURM_PROCID = 0 ] || {script}")
    [error] = found(tmp_path)
    assert "are about a task of SLURM that is not this process" in error


def test_a_program_typed_into_a_shell_of_srun_is_not_its_first_task(program: list[str], tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execvpe("srun", ["srun", "-n", "2", "--pty", "bash", "--norc", "-i"], environment())
    os.write(terminal, f"{' '.join(program)}\nexit\n".encode())
    with suppress(OSError):  # the end of its output
        while os.read(terminal, 1 << 16):
            pass
    os.waitpid(child, 0)
    os.close(terminal)
    [error] = found(tmp_path)
    assert "are about a task of SLURM that is not this process" in error
