"""The statistics of a loader for Prometheus to collect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..registry import needed
from .followers import Follower
from .meters import Meters
from .page_server import PageAnswer, PageServer, names_this_machine
from .stats import Histogram, Stats

if TYPE_CHECKING:
    from ..loader import Loader


#: name, what it counts, and the field of `Stats`
_COUNTERS = (
    ("stoker_batches", "batches handed out", "batches"),
    ("stoker_samples", "samples handed out", "samples"),
    ("stoker_batch_bytes", "bytes of the batches handed out", "bytes"),
    ("stoker_epochs", "epochs that have ended", "epochs"),
    ("stoker_elapsed_seconds", "time from the first batch to the last one handed out", "elapsed_s"),
    ("stoker_wait_seconds", "time the training loop waited for batches", "waited_s"),
    ("stoker_hand_over_seconds", "time it took to hand batches over to a device or another library", "handed_s"),
    ("stoker_task_seconds", "time of workers in tasks", "task_s"),
    ("stoker_task_core_seconds", "time of workers in tasks, on a core", "cpu_s"),
    ("stoker_skipped_samples", "bad samples skipped", "skipped"),
    ("stoker_retries", "reads and calls of functions that were tried again", "retried"),
    ("stoker_damaged_images", "images decoded as far as they go", "damaged"),
    ("stoker_pillow_images", "images decoded by Pillow", "pillow"),
    ("stoker_cache_hits", "samples found in a cache", "cache_hits"),
    ("stoker_cache_misses", "samples not found in a cache", "cache_misses"),
    ("stoker_lost_tasks", "tasks whose worker ended before they did, and which ran again", "lost"),
)
#: bounds of waits are powers of two, in microseconds: always the same ones, from 16 us to 67 s
_POWERS = range(4, 27)
#: how a step spends its time, by field of `StepStats`
_STATES = (("cpu", "cpu_s"), ("lock", "lock_s"), ("queued", "queued_s"), ("wait", "wait_s"))


def prometheus(loader: Loader, port: int = 9464, host: str = "127.0.0.1") -> PrometheusPage:
    """Serve what a loader measures to Prometheus, at ``http://127.0.0.1:9464/metrics``, until the loader is closed.

    By default only programs on this machine can reach it, and no page in a browser; with ``host="0.0.0.0"`` everyone who can
    reach the machine, without authentication. Port 0 is any free port; the page's `address` contains it. Needs the package
    `prometheus-client`. Every metric has the label ``rank``; processes on one machine need different ports.
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 65536:
        raise ConfigError(f"observe.prometheus(port={port!r}): must be an integer from 0 to 65535")
    client = needed("prometheus_client", "prometheus", "observe.prometheus()")
    return PrometheusPage(loader, port, host, client)


class PrometheusPage(Follower):
    """A page of metrics; made by `stoker.observe.prometheus`. `address` is where it is."""

    def __init__(self, loader: Loader, port: int, host: str, client: Any) -> None:
        super().__init__(loader, "observe.prometheus(loader)")
        registry = client.CollectorRegistry()
        registry.register(_MetricsCollector(self._meters, str(self.rank)))
        try:
            server = _MetricsServer(host, port, partial(client.generate_latest, registry), client.CONTENT_TYPE_LATEST)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"observe.prometheus(port={port}, host={host!r}): cannot listen there "
                f"({getattr(error, 'strerror', None) or error}); choose another port, or 0 for one that is free"
            ) from error
        self._server, self.port = server, server.port
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"
        server.start("stoker-prometheus")
        self._begin(loader)

    def __repr__(self) -> str:
        return f"PrometheusPage({self.address!r})"

    def _finish(self) -> None:
        self._server.stop()


class _MetricsServer(PageServer):
    def __init__(self, host: str, port: int, page: Callable[[], bytes], kind: str) -> None:
        self.page, self.kind = page, kind
        super().__init__(host, port, _MetricsAnswer)
        self.loopback = self.server_address[0] in ("127.0.0.1", "::1")


class _MetricsAnswer(PageAnswer):
    server: _MetricsServer

    def do_GET(self) -> None:  # noqa: N802
        host = self.headers.get("Host")
        if host is not None and self.server.loopback and not names_this_machine(host):
            self.send_error(403, "asked by the name of another machine")
        elif self.path.partition("?")[0] in ("/", "/metrics"):
            self.send_page(200, self.server.kind, self.server.page())
        else:
            self.send_error(404)


class _MetricsCollector:
    """Metrics of the present moment, made when they are asked for."""

    def __init__(self, meters: Meters, rank: str) -> None:
        self._meters, self._rank = meters, rank
        self._core = needed("prometheus_client.core", "prometheus", "observe.prometheus()")

    def describe(self) -> list[Any]:
        """Nothing, so that registering does not ask for statistics."""
        return []

    def collect(self) -> Iterator[Any]:
        stats = self._meters.snapshot()
        for name, what, field in _COUNTERS:
            yield self._family("Counter", name, what, (), [((), getattr(stats, field))])
        yield from self._steps(stats)
        workers = [((str(worker.number),), worker.busy_s) for worker in stats.by_worker]
        yield self._family("Counter", "stoker_worker_busy_seconds", "time in tasks, by worker", ("worker",), workers)
        occupancy = self._meters.occupancy()
        gauges = (
            ("stoker_workers", "workers that run tasks", stats.workers),
            ("stoker_cores", "cores this process may use", stats.cores),
            ("stoker_ready_units", "batches, or groups of small ones, that are complete", occupancy.ready),
            ("stoker_in_flight_units", "batches, or groups of small ones, in progress or complete", occupancy.in_flight),
            ("stoker_in_flight_bytes", "memory of these", occupancy.nbytes),
            ("stoker_budget_bytes", "memory they may take", occupancy.budget),
        )
        for name, what, value in gauges:
            yield self._family("Gauge", name, what, (), [((), value)])
        step_s = stats.loop.step_s
        yield self._family("Counter", "stoker_loop_seconds", "time of the training loop with batches", (), [((), step_s)])
        waits = self._core.HistogramMetricFamily("stoker_batch_wait_seconds", "waits of the training loop", labels=["rank"])
        waits.add_metric([self._rank], buckets=_buckets(stats.loop.waits), sum_value=stats.waited_s)
        yield waits

    def _steps(self, stats: Stats) -> Iterator[Any]:
        times = [((step.name, state), getattr(step, field)) for step in stats.steps for state, field in _STATES]
        what = "time of workers by step: on a core, waiting for the interpreter lock, for a core, for anything else"
        yield self._family("Counter", "stoker_step_seconds", what, ("step", "state"), times)
        samples = [((step.name,), step.samples) for step in stats.steps]
        yield self._family("Counter", "stoker_step_samples", "samples that came into a step", ("step",), samples)
        sizes = [((step.name,), step.bytes_out) for step in stats.steps]
        yield self._family("Counter", "stoker_step_bytes", "bytes that came out of a step", ("step",), sizes)

    def _family(self, kind: str, name: str, what: str, labels: tuple[str, ...], values: Sequence[tuple[Any, float]]) -> Any:
        family = getattr(self._core, f"{kind}MetricFamily")(name, what, labels=["rank", *labels])
        for given, value in values:
            family.add_metric([self._rank, *given], value)
        return family


def _buckets(waits: Histogram) -> list[tuple[str, float]]:
    """So many waits up to so many seconds."""
    bounds = [(f"{2**power * 1e-6:.6f}", float(sum(waits.counts[: 2 * power + 1]))) for power in _POWERS]
    return [*bounds, ("+Inf", float(waits.total))]
