"""The page of a run in a real browser: without a network, light and dark, narrow and wide, live."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from stoker.observe.advice import Advice
from stoker.observe.live import _WatchServer
from stoker.observe.loader_view import LoaderView
from stoker.observe.page_data import page_data
from stoker.observe.pipeline_graph import GraphNode, graph_svg
from stoker.observe.report import run_page, sample_pictures
from stoker.observe.stats import Histogram, LoopStats, Moment, SlowSample, Stats, StepStats, WorkerStats
from stoker.observe.verdict import Verdict

from .browser import dump, look, needs_browser

pytestmark = needs_browser

ATTACK = "<img src=x onerror='broken=1'></script><script>broken=1</script>"
HISTORY = tuple(
    Moment(at, 0.25, 4, 128 + at % 3, 0.1, 0.4, 2, at % 4, 6, 50_000_000, 2_000_000_000)
    for at in (0.25 * n for n in range(1, 41))
)
STATS = Stats(
    batches=160,
    samples=5120,
    elapsed_s=10.0,
    waited_s=4.1,
    first_batch_s=0.031,
    task_s=18.0,
    workers=2,
    cores=2,
    worked=5120,
    steps=(
        StepStats("read", "read", 5120, 4.0, 1.0, 0.0, 1.0, 2.0, 560_000_000, 560_000_000),
        StepStats(f"map {ATTACK}", "function", 5120, 14.0, 9.0, 4.0, 1.0, 0.0, 560_000_000, 770_000_000),
    ),
    by_worker=(WorkerStats(0, 320, 9.0, 5.0), WorkerStats(1, 318, 9.0, 5.0)),
    loop=LoopStats(160, 5.9, waits=Histogram((0,) * 20 + (60, 40, 0, 30, 20, 10))),
    sample_costs=Histogram((0,) * 18 + (100, 4000, 1000, 20)),
    slowest=(SlowSample(f"photo/{ATTACK}.jpg", 1.5),),
    history=HISTORY,
    host="here",
)


def report(**more: Any) -> dict[str, Any]:
    bars = [["wait", 0.0, 0.1], ["step", 0.1, 0.2], ["wait", 0.2, 0.25]]
    rows = [{"name": "loop", "bars": bars}, {"name": "worker 0", "bars": [["tasks", 0.0, 0.12], ["tasks", 0.13, 0.25]]}]
    given: dict[str, Any] = {
        "graph": graph_svg([GraphNode("source", ATTACK, "read", 700.0, 1e5), GraphNode("map", ATTACK, "function", 2700.0, 1e5)]),
        "timeline": {"length_s": 0.25, "rows": rows},
        "lesson": [
            {
                "epoch": n,
                "loss": 2 / n if n < 3 else float("nan"),
                "accuracy": 1 - 1 / n,
                "images_per_s": 900.0,
                "wait_share": 0.1,
            }
            for n in (1, 2, 3)
        ],
        "pictures": sample_pictures({"image": np.zeros((2, 8, 8, 3), np.uint8), "label": np.arange(2)}),
        "settings": {"python": "3", ATTACK: ATTACK},
        "plan": f"source   {ATTACK}",
    }
    why = Verdict(f"The verdict: {ATTACK}", "decode", (Advice(f"a cache {ATTACK}", "`cache()`", 2.6, "storage"),))
    return page_data(f"train {ATTACK}", STATS, why, **{**given, **more})


def written(folder: Path, data: dict[str, Any]) -> Path:
    page = folder / "report.html"
    page.write_text(run_page(data), encoding="utf-8")
    return page


def brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_a_report_shows_everything_at_every_width_and_asks_for_nothing(tmp_path: Path) -> None:
    seen = look(tmp_path, written(tmp_path, report()), [340, 760, 1500])
    for page in seen:
        assert f"The verdict: {ATTACK}" in page["text"] and not page["broken"]
        assert f"2.6x\na cache {ATTACK}" in page["text"] and "then the limit is: storage" in page["text"]
        assert page["tooWide"] <= 0 and page["fetched"] == []
        assert page["sections"] == [
            "verdict", "graph", "history", "steps", "timeline", "queue", "spread", "lesson", "pictures", "settings",
        ]  # fmt: skip
        charts = {chart["label"]: chart for chart in page["charts"]}
        assert len(charts) == 9
        for chart in charts.values():
            assert chart["ticks"] >= 2 and all(chart["units"]) and chart["units"]
        assert charts["Throughput"]["units"] == ["samples/s", "since the first batch (s)"]
        assert charts["Memory"]["units"][0] == "MB" and "2.0 GB allowed" in page["text"]
        assert "41 %" in page["text"] and "per sample" in page["text"] and page["state"] == "finished"
        assert brightness(page["colours"][1]) > 600 > 200 > brightness(page["colours"][0])
    assert seen[0]["charts"][0]["width"] < 340 < seen[1]["charts"][0]["width"] < seen[2]["charts"][0]["width"]


def test_a_report_of_little_is_dark_where_that_is_wanted_and_has_no_empty_charts(tmp_path: Path) -> None:
    little = replace(STATS, steps=(), history=(), slowest=(), sample_costs=Histogram(), loop=LoopStats())
    data = {
        **report(timeline=None, graph="", lesson=(), pictures=(), training=False),
        "stats": page_data("", little, "")["stats"],
    }
    [page] = look(tmp_path, written(tmp_path, data), [600], dark=True)
    assert page["sections"] == ["verdict", "settings"] and page["charts"] == []
    assert brightness(page["colours"][1]) < 150 and brightness(page["colours"][0]) > 600
    assert "waited" not in page["text"]


def test_small_amounts_have_units_of_their_size_and_what_never_came_has_no_time(tmp_path: Path) -> None:
    small = replace(STATS, batches=0, history=tuple(replace(each, nbytes=15_400) for each in HISTORY))
    [page] = look(tmp_path, written(tmp_path, {**report(), "stats": page_data("", small, "")["stats"]}), [900])
    charts = {chart["label"]: chart for chart in page["charts"]}
    assert charts["Memory"]["units"][0] == "kB"
    assert "First batch" not in page["text"]


def test_a_loop_that_waits_looks_like_it_however_many_steps_it_took(tmp_path: Path) -> None:
    bars = [
        bar for n in range(1000) for bar in (["wait", n / 500, n / 500 + 0.00199], ["step", n / 500 + 0.00199, (n + 1) / 500])
    ]
    data = report(timeline={"length_s": 2.0, "rows": [{"name": "loop", "bars": bars}]})
    html = dump(tmp_path, written(tmp_path, data).as_uri())
    drawn = re.search(r'<path d="([^"]+)" style="fill: var\(--loop-step\);', html)
    assert drawn is not None
    assert sum(map(float, re.findall(r"h([\d.]+)v", drawn[1]))) < 20, "pixels of some 800"


def test_a_live_page_asks_again_until_the_loader_is_closed(tmp_path: Path) -> None:
    class View:
        closed, asked = False, 0

        def record(self) -> None: ...

        def stop_recording(self) -> None: ...

        def data(self, **more: Any) -> dict[str, Any]:
            self.asked += 1
            recent = [(float(at), 500.0, 0.1, 0.9) for at in range(-12, 1)]
            data = report(state="running" if self.asked < 3 else "closed", under=f"look {self.asked}", recent=recent)
            return {**data, "stats": {**data["stats"], "elapsed_s": 500.0}}  # so long that one wants to see the end of it

    view = View()
    server = _WatchServer(cast(LoaderView, view), 0)
    server.start("serving")
    try:
        html = dump(tmp_path, f"http://127.0.0.1:{server.port}/?token={server.token}")
    finally:
        server.stop()
    assert "look 3" in html and "Throughput lately" in html and "closed: this is its last state" in html and view.asked == 3
    assert server.token not in html
