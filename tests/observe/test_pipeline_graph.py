"""The graph of a pipeline: every verb is in it, costs are widths, and whatever is written in it is only text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

import stoker
from stoker.image import CenterCrop, Resize
from stoker.observe.pipeline_graph import GraphNode, graph_nodes, graph_svg
from stoker.observe.stats import Stats, StepStats

from ..loader.runs import numbers, odd, spread


def boxes(svg: str) -> dict[str, ElementTree.Element]:
    """The rectangles of an SVG, by the first line of what they are called."""
    groups = [group for group in ElementTree.fromstring(svg).iter("g") if group.find("title") is not None]
    return {(group.findtext("title") or "").split("\n")[0]: group.find("rect") for group in groups}  # type: ignore[misc]


def test_every_verb_has_its_box_from_the_source_to_the_loop() -> None:
    pixels = stoker.arrays(image=np.zeros((4, 8, 8, 3), np.uint8), label=np.arange(4))
    train = pixels.shuffle(seed=7).image("image", CenterCrop(4)).filter(odd).take(2).map(label=abs).batch(2).map_batch(spread)
    nodes = graph_nodes(train.plan)
    assert [node.name for node in nodes] == [
        "source",
        "order",
        "image",
        "filter",
        "take",
        "map",
        "batch",
        "map_batch",
        "training",
    ]
    assert [node.kind for node in nodes] == ["read", "", "native", "function", "", "function", "", "function", ""]
    text = graph_svg(nodes)
    assert all(told in text for told in ("shuffle(seed=7)", "CenterCrop(4)", "label=abs", "spread"))
    assert "us" not in re.findall(r"\w+", text), "nothing was measured"


def test_what_a_step_cost_is_found_with_its_verb_and_makes_it_wide() -> None:
    train = numbers().map(x=abs).map(y=abs).batch(2)
    steps = [
        StepStats("read", "read", 100, wall_s=0.001, bytes_out=800),
        StepStats("map y", "function", 100, wall_s=0.008),
        StepStats("map x", "function", 100, wall_s=0.001),
        StepStats("collate", "native", 100, wall_s=0.0),
    ]
    nodes = graph_nodes(train.plan, Stats(steps=tuple(steps)), device="cuda:0")
    costs = {f"{node.name} {node.detail}": node.cost_us for node in nodes}
    assert (costs["map x=abs"], costs["map y=abs"]) == (10.0, 80.0)
    assert nodes[0].bytes == 8 and nodes[-1].detail == "on cuda:0"
    widths = {name: float(rect.get("width", "0")) for name, rect in boxes(graph_svg(nodes)).items()}
    assert widths["map: y=abs"] > 2 * widths["map: x=abs"]


def test_the_steps_of_a_run_are_all_found() -> None:
    train = numbers().filter(odd).map(x=abs).batch(2).map_batch(spread)
    with train.loader(executor="inline") as batches:
        for _ in batches:
            pass
        stats = batches.stats()
    *verbs, loop = graph_nodes(train.plan, stats)
    assert loop.name == "training", "which has the cost of handing over where that is worth showing: no step's"
    assert len([node for node in verbs if node.cost_us is not None]) == len(stats.steps)


def test_pictures_of_many_sizes_count_among_the_bytes(image_folder: Path) -> None:
    train = stoker.files(image_folder).decode("image").batch(4)
    with train.loader(executor="inline") as batches:
        next(iter(batches))
        decoded = graph_nodes(train.plan, batches.stats())[1]
    assert decoded.name == "decode" and (decoded.bytes or 0) > 60 * 40 * 3


def test_two_steps_of_the_same_name_have_a_cost_each() -> None:
    pictures = np.zeros((32, 24, 24, 3), np.uint8)
    train = stoker.arrays(image=pictures).image("image", Resize(20)).cache("memory").image("image", CenterCrop(16)).batch(8)
    with train.loader(executor="inline") as batches:
        for _ in batches:
            pass
        stats = batches.stats()
    assert [step.name for step in stats.steps] == ["read", "image('image')", "cache", "image('image') #2"]
    assert len({step.samples for step in stats.steps}) == 1
    assert all(node.cost_us for node in graph_nodes(train.plan, stats) if node.name == "image")


def test_bytes_are_not_said_of_a_batch_whose_size_is_not_known() -> None:
    train = stoker.arrays(image=np.zeros((8, 4, 4, 3), np.uint8), label=np.arange(8)).map(image=len).batch(4)
    assert graph_nodes(train.plan)[-2].bytes is None


def test_hostile_names_are_text_and_nothing_is_fetched() -> None:
    nodes = [GraphNode(f"</svg><script>{number}", "a & 'b' <img src=x> " * 9, "function", 5.0, 1e6) for number in range(9)]
    svg = graph_svg(nodes, width=400)
    assert "<script" not in svg and "<img" not in svg and "url(" not in svg and "href" not in svg
    assert len(boxes(svg)) == 9
    assert graph_svg([]).startswith("<div")


def test_no_box_leaves_the_picture_where_it_wraps() -> None:
    nodes = [GraphNode(f"map{number}", "f" * 40, "function", 10.0, 100.0) for number in range(12)]
    svg = graph_svg(nodes, width=600)
    wide = float(re.search(r'viewBox="0 0 (\d+) ', svg)[1])  # type: ignore[index]
    rights = [float(rect.get("x", "0")) + float(rect.get("width", "0")) for rect in boxes(svg).values()]
    assert max(rights) <= wide <= 600
    assert len({rect.get("y") for rect in boxes(svg).values()}) > 1


def test_a_graph_of_few_boxes_is_as_wide_as_what_is_written_below_them() -> None:
    kinds = [
        GraphNode("source", "", "read", 1.0, 9.0),
        GraphNode("image", "", "native", 1.0, 9.0),
        GraphNode("map", "", "function"),
    ]
    svg = graph_svg(kinds, 300)
    told = [text for text in ElementTree.fromstring(svg).iter("text") if "bytes per sample" in (text.text or "")]
    width = float(re.findall(r'viewBox="0 0 (\d+)', svg)[0])
    assert float(told[0].get("x", "0")) + 6.5 * len(told[0].text or "") < width
