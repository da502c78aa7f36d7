"""A page of metrics: what Prometheus reads, where it is reached, and that it ends with its loader."""

from __future__ import annotations

import os
import socket
import sys
import threading
import warnings
from http.client import HTTPConnection
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

import stoker
from stoker.errors import ConfigError, MissingExtra

from ..loader.runs import numbers

parser = pytest.importorskip("prometheus_client.parser")


def scrape(address: str) -> str:
    with build_opener(ProxyHandler({})).open(address, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def metrics(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name and the labels beside rank, which all have."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            labels: dict[str, Any] = dict(sample.labels)
            assert labels.pop("rank") == "3"
            found.setdefault(sample.name, {})[tuple(labels[name] for name in sorted(labels))] = sample.value
    return found


def test_prometheus_reads_what_the_loader_measures() -> None:
    with numbers(4000).shard(3, 4).map(x=abs).batch(40).loader(threads=2) as loader:
        page = stoker.observe.prometheus(loader, port=0)
        assert page.address == f"http://127.0.0.1:{page.port}/metrics"
        batches = list(loader)
        found, stats = metrics(scrape(page.address)), loader.stats()
    for name, value in {"batches": len(batches), "samples": 1000, "epochs": 1, "wait_seconds": stats.waited_s}.items():
        assert found[f"stoker_{name}_total"] == {(): pytest.approx(value)}
    assert {step for _, step in found["stoker_step_seconds_total"]} >= {"read", "map x"}
    assert {state for state, _ in found["stoker_step_seconds_total"]} == {"cpu", "lock", "queued", "wait"}
    assert found["stoker_workers"] == {(): 2}
    waits = found["stoker_batch_wait_seconds_bucket"]
    assert waits["+Inf",] == found["stoker_batch_wait_seconds_count"][()] == len(batches) - 1
    assert list(waits.values()) == sorted(waits.values())


def test_a_page_ends_with_its_loader_and_leaves_neither_thread_nor_port() -> None:
    with numbers().batch(4).loader(executor="inline") as loader:
        page = stoker.observe.prometheus(loader, port=0)
        with pytest.raises(HTTPError, match="404") as refused:
            scrape(page.address.replace("metrics", "secrets"))
        refused.value.close()
        with pytest.raises(ConfigError, match=r"Address already in use.*choose another port, or 0"):
            stoker.observe.prometheus(loader, port=page.port)
    assert not [thread for thread in threading.enumerate() if "prometheus" in thread.name]
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", page.port))


def test_a_wrong_port_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with numbers().batch(4).loader(executor="inline") as loader:
        for port in (-1, 70_000, "9464"):
            with pytest.raises(ConfigError, match="must be an integer from 0 to 65535"):
                stoker.observe.prometheus(loader, port=port)  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "prometheus_client", None)  # type: ignore[arg-type]
        with pytest.raises(MissingExtra, match=r"pip install 'stoker\[prometheus\]'"):
            stoker.observe.prometheus(loader)


def test_pages_in_browsers_do_not_reach_it_unless_it_is_for_everybody() -> None:
    with numbers().batch(4).loader(executor="inline") as loader:
        page = stoker.observe.prometheus(loader, port=0)
        open_page = stoker.observe.prometheus(loader, port=0, host="0.0.0.0")
        for address, host, status in (
            (page, "evil.example", 403),
            (page, f"evil.example:{page.port}", 403),
            (page, f"localhost:{page.port}", 200),
            (page, "[::1]", 200),
            (open_page, "trainer.example", 200),
        ):
            connection = HTTPConnection("127.0.0.1", address.port, timeout=30)
            connection.request("GET", "/metrics", headers={"Host": host})
            assert connection.getresponse().status == status, host
            connection.close()


def test_those_who_say_nothing_keep_nobody_waiting_and_a_forked_child_does_not_serve() -> None:
    with numbers().batch(4).loader(executor="inline") as loader:
        page = stoker.observe.prometheus(loader, port=0)
        with socket.create_connection(("127.0.0.1", page.port)):
            assert "stoker_batches_total" in scrape(page.address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are threads
            child = os.fork()
        if not child:
            os._exit(0 if page._server.socket.fileno() == -1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert "stoker_batches_total" in scrape(page.address)
