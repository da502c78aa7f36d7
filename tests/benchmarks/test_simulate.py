"""The simulation of `benchmarks/simulate.py` agrees with what queueing arithmetic says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import simulate

    return simulate


def options(**given: Any) -> argparse.Namespace:
    usual = {"gpus_per_node": 8, "gpu_rate": 4700.0, "own_cores": 0, "machine_cores": 64, "network": 100.0, "network_us": 100.0}
    return argparse.Namespace(**{**usual, "storage": 100.0, "latency_ms": 20.0, "memory": 2.0, **given})


def test_the_scarcest_stage_makes_the_rate(sim: Any) -> None:
    stages = [sim.Stage("storage", 1, [0.001]), sim.Stage("cores", 4, [0.008]), sim.Stage("network", 1, [0.001])]
    flow = sim.simulate(stages, 64, 4000)
    assert flow.tasks_per_s == pytest.approx(500, rel=0.01)
    assert flow.limit == "cores"
    assert flow.busy == pytest.approx({"storage": 0.5, "cores": 1.0, "network": 0.5}, rel=0.02)


def test_a_window_over_a_long_way_is_the_limit(sim: Any) -> None:
    """Little's law: so many tasks under way, each for so long."""
    flow = sim.simulate([sim.Stage("storage", 1, [1e-6], latency_s=0.2)], 10, 4000)
    assert flow.tasks_per_s == pytest.approx(10 / 0.2, rel=0.02)
    assert flow.limit == "window"


def test_a_trainer_takes_no_more_than_it_can_use(sim: Any) -> None:
    flow = sim.simulate([sim.Stage("cores", 8, [0.001])], 32, 4000, step_s=0.002)
    assert flow.tasks_per_s == pytest.approx(500, rel=0.01)
    assert flow.busy["cores"] == pytest.approx(1 / 16, rel=0.02)


def test_a_slow_task_holds_up_a_window_that_is_too_small(sim: Any) -> None:
    """Tasks are taken in order: those after a slow one are complete, and wait."""
    costs = [0.1, *[0.001] * 49]
    small, large = (sim.simulate([sim.Stage("cores", 4, costs)], window, 4000).tasks_per_s for window in (4, 400))
    assert large > 2 * small


def test_workers_beyond_the_cores_give_nothing(sim: Any) -> None:
    cost = sim.even_cost(500.0, 110_000)
    rates = [sim.predict(cost, workers, 2, 128) for workers in (1, 2, 3, 4)]
    assert rates == pytest.approx([2000, 4000, 4000, 4000], rel=0.02)


def test_a_cluster_needs_cores_by_the_cost_and_carries_bytes_by_the_rate(sim: Any) -> None:
    cost = sim.even_cost(655.0, 110_000)
    for gpus in (8, 256, 4096):
        found = sim.cluster(cost, gpus, options())
        assert found["limit"] == "gpus" and found["of_wanted"] == pytest.approx(1.0, abs=0.005)
        assert found["cores"] == pytest.approx(gpus * 4700 * 655e-6 * 1.1, rel=0.04)
        assert found["storage_gbit_per_s"] == pytest.approx(gpus * 4700 * 110_000 * 8e-9)
    assert sim.cluster(cost, 8, options(gpu_rate=13_100.0))["limit"] == "network"
    assert sim.cluster(cost, 8, options(latency_ms=200.0, memory=0.25))["limit"] == "window"
    assert sim.cluster(cost, 8, options(own_cores=32))["data_machines"] == 0
