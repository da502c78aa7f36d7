"""Report pages: whole, self-contained, and safe whatever names are in them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import ConfigError
from stoker.image import CenterCrop
from stoker.observe.page_data import page_data
from stoker.observe.report import embedded, run_page, sample_pictures, step_costs, write_report
from stoker.observe.stats import Stats, StepStats

from ..loader.runs import numbers

HOSTILE = "</script><script>alert(1)</script><!-- {{title}} &amp; \u2028"
STATS = Stats(
    batches=10,
    samples=100,
    elapsed_s=2.0,
    waited_s=0.5,
    workers=2,
    task_s=1.0,
    worked=200,
    steps=(StepStats(HOSTILE, samples=200, wall_s=0.02),),
)


class Parts(HTMLParser):
    """What a page is made of; its elements are closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""
        self.links: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""
        self.links += [values[name] or "" for name in ("src", "href") if name in values]
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def report_page(title: str, stats: Stats, why: str, **more: Any) -> str:
    return run_page(page_data(title, stats, why, **more))


def data_of(text: str) -> Any:
    """The data in a page."""
    return json.loads(Parts(text).scripts[0])


def test_a_page_is_whole_and_asks_for_nothing() -> None:
    lesson = [{"epoch": n, "loss": 2.0 - n, "accuracy": 0.5, "images_per_s": 1000.0, "wait_share": 0.1} for n in range(2)]
    text = report_page("run", STATS, "because & why", plan="a > b", lesson=lesson)
    page = Parts(text)
    assert page.links == ["data:,"]
    assert not re.search(r"url\(|@import|<iframe|<form", text)
    assert "default-src 'none'" in page.policy and "connect-src" not in page.policy
    script = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{script}'" in page.policy, "the policy allows the page's own script, and no other"


def test_names_in_a_page_are_never_code() -> None:
    text = report_page(HOSTILE, STATS, HOSTILE, plan=HOSTILE, settings={HOSTILE: HOSTILE}, under=HOSTILE)
    assert len(Parts(text).scripts) == 2 and text.count("<script") == 2 and "<!-- {{" not in text
    data = data_of(text)
    assert data["title"] == data["plan"] == data["verdict"]["text"] == data["stats"]["steps"][0]["name"] == HOSTILE


def test_numbers_that_json_does_not_have_are_left_out() -> None:
    assert json.loads(embedded({"loss": float("nan"), "rows": [float("inf"), 1.5]})) == {"loss": None, "rows": [None, 1.5]}


def test_without_scripts_verdict_and_costs_are_there_as_text() -> None:
    text = report_page("run", STATS, "because <why>", settings={"python": "3 & more"})
    plain = text.split("<noscript>")[1].split("</noscript>")[0]
    assert "because &lt;why&gt;" in plain and ">100.0<" in plain and "3 &amp; more" in plain


def test_costs_are_for_each_sample_worked_on() -> None:
    assert step_costs(STATS) == {HOSTILE: 100.0}
    assert step_costs(Stats(steps=(StepStats("read", wall_s=1.0),))) == {"read": 1e6}


def test_a_report_of_nothing_is_a_page() -> None:
    assert data_of(report_page("nothing", Stats(), ""))["stats"]["measured"] is False


def test_a_users_program_writes_the_report_of_its_loader(tmp_path: Path, image_folder: Path) -> None:
    pipeline = stoker.files(image_folder).image("image", CenterCrop(24)).batch(6)
    with pipeline.loader(threads=2) as loader:
        for batch in loader:
            pass
        write_report(loader, tmp_path / "report.html", title="mine", batch=batch)
    data = data_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert (data["title"], data["state"], data["training"]) == ("mine", "ended", True)
    assert data["stats"]["samples"] == 24 and data["plan"] == pipeline.explain() and "<svg" in data["graph"]
    assert "threads=2" in data["settings"]["loader"] and data["settings"]["stoker"] == stoker.__version__
    assert data["timeline"]["rows"][0]["name"] == "loop"
    assert all(start <= stop for row in data["timeline"]["rows"] for _, start, stop in row["bars"])
    assert len(data["pictures"]) == 6 and data["pictures"][0]["src"].startswith("data:image/")
    assert batch.sample_keys[0] in data["pictures"][0]["name"]


def test_batches_without_pictures_have_none() -> None:
    assert sample_pictures(next(iter(numbers().batch(4)))) == [] == sample_pictures(None)


def test_what_is_not_a_loader_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"write_report\(loader\).*not Pipeline"):
        write_report(numbers(), tmp_path / "report.html")  # type: ignore[arg-type]
