"""Calls and defaults as the reference writes them are those of the code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from typing import Any

import pytest

import stoker
import stoker.image
from stoker import Patience, Pipeline
from stoker.loader import Loader
from stoker.observe.meters import Meters

from .test_docs import DOCS

PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md"))}
#: where a name is looked for, by the page it is on
OWNERS: dict[str, tuple[Any, ...]] = {"loader.md": (Loader, Pipeline, stoker), "image.md": (stoker.image,)}
#: arguments that image operations cannot do without
NEEDED = {"size": 4, "degrees": 3, "padding": 1, "kernel_size": 3, "threshold": 9, "bits": 4, "factor": 0.5, "mean": 0, "std": 1}


def written(call: str) -> dict[str, Any] | None:
    """The parameters of a call in the reference, each with its default or `inspect.Parameter.empty`; None: it is an example."""
    try:
        [function] = ast.parse(f"def call({call}): ...").body
    except SyntaxError:
        return None
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    names = [each.arg for each in given.posonlyargs + given.args]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(given.defaults)) + list(given.defaults) + given.kw_defaults
    try:
        values = [inspect.Parameter.empty if each is None else ast.literal_eval(each) for each in defaults]
    except ValueError:
        return None
    return dict(zip(names + [each.arg for each in given.kwonlyargs], values))


def signatures() -> list[tuple[str, str, Any, dict[str, Any]]]:
    """Page, name, what it names and the parameters as written, of each call that names all parameters there are."""
    found = []
    for page, text in PAGES.items():
        for name, call in re.findall(r"`(?:stoker\.)?(\w+)\(([^`]*)\)`", text):
            owners = OWNERS.get(page, (stoker, Pipeline))
            owner = next((getattr(owner, name) for owner in owners if hasattr(owner, name)), None)
            parameters = written(call) if callable(owner) else None
            common = {"self", "stream"} if page == "image.md" else {"self"}  # every operation that draws has a stream
            if owner is not None and parameters and parameters.keys() == inspect.signature(owner).parameters.keys() - common:
                found.append((page, name, owner, parameters))
    return found


def test_signatures_in_the_reference_have_the_defaults_of_the_code() -> None:
    checked = signatures()
    for page, name, owner, parameters in checked:
        defaults = {each: value for each, value in parameters.items() if value is not inspect.Parameter.empty}
        if not defaults or (page, name) == ("state.md", "state_dict"):  # an example
            continue
        if dataclasses.is_dataclass(owner) and page == "image.md":  # operations put what they are given in one form
            needed = {each: NEEDED[each] for each in parameters if each not in defaults}
            assert owner(**needed, **defaults) == owner(**needed), f"{page}: {name}"  # type: ignore[operator]
        else:
            real = {each: inspect.signature(owner).parameters[each].default for each in defaults}
            assert real == defaults, f"{page}: {name}"
    assert len(checked) > 40, "most calls are written in full"


def test_the_table_of_patience_has_its_numbers() -> None:
    rows = re.findall(r"^\| (`\w+_s`.*?|`progress_bytes`.*?) \| ([^|]*) \|", PAGES["storage.md"], re.MULTILINE)
    told = [pair for names, values in rows for pair in zip(re.findall(r"`(\w+)`", names), values.split(", "))]
    assert {name: float(value.replace(",", "")) for name, value in told} == dataclasses.asdict(Patience())


@pytest.mark.parametrize("page", ["reference/loader.md", "howto/why-slow.md"])
def test_pages_that_say_how_long_a_trace_is_say_what_is_kept(page: str) -> None:
    assert f"{Meters.MOST_SPANS:,} tasks and waits" in (DOCS / page).read_text(encoding="utf-8")


def test_the_defaults_of_a_loader_are_those_of_its_table() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGES["loader.md"].split("## Iterating")[0], re.MULTILINE))
    parameters = inspect.signature(Pipeline.loader).parameters
    assert rows.keys() == parameters.keys() - {"self"}
    for name in ("executor", "memory", "format", "device", "epoch", "watchdog_s"):
        assert ast.literal_eval(rows[name].strip("`")) == parameters[name].default, name


#: operations of torchvision by what the page of comparison calls them
ELSEWHERE = {"elastic deformation": "ElasticTransform", "perspective": "RandomPerspective"}


def test_what_the_comparison_says_is_missing_is_missing_and_what_it_says_is_there_is_there() -> None:
    page = " ".join((DOCS / "explanation" / "why-switch.md").read_text(encoding="utf-8").split())
    [missing] = re.findall(r"does not have natively \(([^)]*)\)", page)
    ours = " ".join(stoker.image.__all__).lower()
    for words, name in ELSEWHERE.items():
        assert words in missing and name.lower() not in ours and words.split()[0] not in ours
    assert not re.search("jitter|blur|rotat|erasing|augment|mixup|cutmix", missing, re.IGNORECASE)
    [there] = re.findall(r"range from crops and colours to (\w+) and (\w+)", page)
    assert set(there) <= set(stoker.image.__all__)
