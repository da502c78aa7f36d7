"""A Ray cluster that makes its nodes itself: it grows for a loader that asks for workers, shrinks when they idle, grows again.

Ray comes with nodes for this purpose that are processes of one machine. Nobody ends them with their cluster, and their ports are
fixed, so all of it runs in namespaces of its own for processes and for the network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from ..loader.runs import ROOT, environment
from .test_ray import DEADLINE_S, QUIET

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.faults,
    pytest.mark.thorough,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"), reason="needs root, unshare and iproute2"
    ),
]

HEAD = "f" * 51 + "00000"
NODE = {"resources": {"CPU": 1, "object_store_memory": 80 << 20}, "node_config": {}, "min_workers": 0, "max_workers": 2}
CONFIG = {
    "cluster_name": "test",
    "max_workers": 2,
    "upscaling_speed": 1.0,
    "idle_timeout_minutes": 0.05,
    "provider": {
        "type": "external",  # Ray's packages lack the defaults of its own name for it, "fake_multinode"
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "launch_multiple": True,
        "head_node_id": HEAD,
    },
    "available_node_types": {"node": NODE, "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0}},
    "head_node_type": "ray.head.default",
    "auth": {"ssh_user": "nobody"},
    **{f"{kind}_commands": [] for kind in ("setup", "head_setup", "worker_setup", "initialization", "head_start_ray")},
    "worker_start_ray_commands": [],
    "cluster_synced_files": [],
    "file_mounts": {},
    "docker": {},
}
STARTED = {
    **QUIET,
    "RAY_FAKE_CLUSTER": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
}

PROGRAM = """
import json, logging, os, subprocess, sys, time

import ray

from stoker.engine import ray_executor
from tests.loader.runs import epochs_of, hash_of, numbers
from tests.system.test_ray import slow

given = json.loads(sys.argv[1])
os.environ["RAY_TMPDIR"] = given["folder"]
os.makedirs(given["folder"] + "/ray")
with open(given["folder"] + "/config", "w") as file:
    json.dump(given["config"], file)
start = ["start", "--head", "--num-cpus=1", "--object-store-memory=80000000", "--include-dashboard=false"]
start += ["--temp-dir=" + given["folder"], "--autoscaling-config=" + given["folder"] + "/config"]
subprocess.run(
    [sys.executable, "-c", "from ray.scripts.scripts import main; main()", *start],
    env={**os.environ, **given["started"]}, stdout=sys.stderr, check=True,
)
ray.init("auto", logging_level=logging.ERROR, log_to_driver=False)
ray_executor._IDLE_S = 2.0
pipeline = numbers(400).shuffle(seed=3).map(x=slow).batch(8)
epochs, nodes = [], [1]
deadline = time.monotonic() + given["within_s"]
with pipeline.loader(executor="ray", processes=3) as loader:
    executor = loader._machinery.executor
    while nodes != [1, 3, 1, 3] or len(epochs) < 2:
        if time.monotonic() > deadline:
            logs = [open(given["folder"] + "/session_latest/logs/monitor." + kind).read()[-2000:] for kind in ("log", "err")]
            raise SystemExit("\\n".join([str(nodes), *logs]))
        epochs.append([])
        for batch in loader:
            epochs[-1].append(hash_of(batch))
            now = sum(node["Alive"] for node in ray.nodes())
            wanted = 1 if len(nodes) == 2 else 3
            if now == wanted and nodes[-1] != now and (now == 1 or sum(map(bool, executor.processes)) == 3):
                nodes.append(now)
            if len(nodes) == 2:
                time.sleep(0.1)  # a loop for which one worker is enough
with pipeline.loader(executor="inline") as inline:
    print(json.dumps([nodes, epochs == epochs_of(inline, len(epochs))]))
"""


def test_nodes_come_when_workers_are_asked_for_go_when_they_are_idle_and_come_again() -> None:
    with tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as folder:  # names of sockets must be short
        given = {"folder": folder, "config": CONFIG, "started": STARTED, "within_s": 2 * DEADLINE_S}
        inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-c", PROGRAM, json.dumps(given)]
        command = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net", *inside]
        done = subprocess.run(
            command, cwd=ROOT, env={**environment(), **QUIET}, capture_output=True, text=True, timeout=270, check=False
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[1, 3, 1, 3], True]
