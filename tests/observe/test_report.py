"""Report pages: whole, self-contained, and safe whatever names are in them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from stoker.observe.meters import Stats
from stoker.observe.report import report_page, step_costs

STATS = Stats(batches=10, samples=100, elapsed_s=2.0, waited_s=0.5, workers=2, task_s=1.0, worked=200, steps_s={"map <b>": 0.02})


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_fetches_nothing() -> None:
    lesson = [{"epoch": n, "loss": 2.0 - n, "accuracy": 0.5, "images_per_s": 1000.0, "wait_share": 0.1} for n in range(2)]
    text = report_page("run <script>alert(1)</script>", STATS, "because & why", plan="a > b", lesson=lesson)
    parser = Balanced()
    parser.feed(text)
    assert not parser.open
    assert "<script" not in text and "alert(1)" in text
    assert not re.search(r"(src|href)=|url\(|@import|https?://", text)
    assert "map &lt;b&gt;" in text and "because &amp; why" in text and "a &gt; b" in text


def test_costs_are_for_each_sample_worked_on() -> None:
    assert step_costs(STATS) == {"map <b>": 100.0}
    assert step_costs(Stats(steps_s={"read": 1.0})) == {"read": 1e6}


def test_without_training_a_report_says_nothing_about_waiting() -> None:
    assert "The loop waited" in report_page("run", STATS, "") and "waiting for data" in report_page("run", STATS, "")
    assert "wait" not in report_page("run", STATS, "", training=False)


def test_a_report_of_nothing_is_a_page() -> None:
    assert "</html>" in report_page("nothing", Stats(), "")
