"""Pipelines and loaders show themselves in a notebook."""

from __future__ import annotations

import numpy as np
import pytest

import stoker

from ..loader.runs import numbers


def test_a_pipeline_shows_its_graph_and_its_explanation_and_runs_nothing() -> None:
    def never(*_: object) -> object:
        raise AssertionError("called")

    html = numbers().shuffle(seed=7).map(never).batch(2)._repr_html_()
    assert "<svg" in html and "shuffle(seed=7)" in html and "<details>" in html and "resume" in html
    assert stoker.stream(never).batch(2)._repr_html_()  # type: ignore[arg-type]


def test_a_pipeline_with_a_mistake_says_which() -> None:
    html = stoker.arrays(x=np.arange(3)).select("<y>")._repr_html_()
    assert html.startswith("<pre") and "ConfigError" in html and "&lt;y&gt;" in html and "<y>" not in html


def test_an_explanation_is_shown_with_its_lines() -> None:
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    told = numbers().batch(2).explain()
    assert pretty(told) == told and told.count("\n") > 5


def test_a_loader_shows_where_it_is_and_what_it_measured() -> None:
    with numbers().map(x=abs).batch(2).loader(threads=2, memory="1GB") as batches:
        before = batches._repr_html_()
        assert "nothing yet" in before and "2 threads" in before and "1.0 GB" in before
        for _ in batches:
            pass
        after = batches._repr_html_()
    assert "epoch 1, row 0" in after and "samples per second" in after and " µs</text>" in after
    assert "closed" in batches._repr_html_()
    with numbers().loader(executor="inline") as one_by_one:
        assert "inline" in one_by_one._repr_html_()


def test_a_notebook_shows_them() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(numbers().batch(2))
    assert "<svg" in data["text/html"] and data["text/plain"].startswith("Pipeline(")
