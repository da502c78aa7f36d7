"""The documentation is true: its code runs, prints what it says, and its links lead somewhere.

In the tutorial every ``python`` block runs; elsewhere those marked ``python run`` do. The blocks of a page run in order, in one
namespace and an empty folder. A block marked ``text output`` is what the block before it prints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")

# Runs pages in a child: they come as JSON on standard input, and what their blocks printed, or the traceback, goes back so.
_DRIVER = """
import contextlib, io, json, os, sys, traceback


def run(page, blocks):
    names, printed = {"__name__": "docs_page"}, []
    for line, text in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\\n" * line + text, page, "exec"), names)
        printed.append(out.getvalue())
    return printed


results = {}
for page, folder, blocks in json.load(sys.stdin):
    os.makedirs(folder)
    os.chdir(folder)
    try:
        results[page] = run(page, blocks)
    except BaseException:
        results[page] = traceback.format_exc()
json.dump(results, sys.stdout)
"""


class Block(NamedTuple):
    line: int  # of its first line of text, counted from 0
    text: str
    output: str | None


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def blocks_to_run(page: Path) -> list[Block]:
    """The page's runnable blocks, each with the output it claims."""
    content = page.read_text(encoding="utf-8")
    every = page.name == "tutorial.md"
    blocks: list[Block] = []
    for found in _BLOCK.finditer(content):
        info = found["info"].split()
        if info[:1] == ["python"] and (every or "run" in info):
            blocks.append(Block(content.count("\n", 0, found.start("text")), found["text"], None))
        elif info == ["text", "output"]:
            assert blocks, f"{name_of(page)}: output before any code that could print it"
            blocks[-1] = blocks[-1]._replace(output=found["text"])
    return blocks


def needs_torch(page: Path) -> bool:
    return any(re.search(r"^(import|from) torch\b", block.text, re.MULTILINE) for block in blocks_to_run(page))


RUNNABLE = [page for page in PAGES if blocks_to_run(page)]

#: a page's name -> what each of its blocks printed, or a traceback
Results = Callable[[Path], "list[str] | str"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs all pages, in two processes side by side: importing torch takes longer than all that do without it."""
    root = tmp_path_factory.mktemp("docs")
    with_torch = [page for page in RUNNABLE if needs_torch(page)]
    children = [start(pages, root) for pages in (with_torch, [page for page in RUNNABLE if page not in with_torch])]
    known: dict[str, list[str] | str] = {}
    for child, given in children:
        out, err = child.communicate(given, timeout=110)
        assert child.returncode == 0, err
        known |= json.loads(out)
    return lambda page: known[name_of(page)]


def start(pages: list[Path], root: Path) -> tuple[subprocess.Popen[str], str]:
    """A child, and what to tell it. Paths in its environment are absolute: it works in folders of its own."""
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    child = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    told = [(name_of(page), str(root / name_of(page)), [block[:2] for block in blocks_to_run(page)]) for page in pages]
    return child, json.dumps(told)


def anchors(page: Path) -> set[str]:
    """The names headings can be linked by, made as GitHub makes them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_something_to_check() -> None:
    assert "tutorial.md" in map(name_of, RUNNABLE)
    assert len(RUNNABLE) > 5


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, results: Results) -> None:
    if needs_torch(page):
        pytest.importorskip("torch")
    printed = results(page)
    assert isinstance(printed, list), printed
    for block, text in zip(blocks_to_run(page), printed, strict=True):
        if block.output is not None:
            assert text == block.output, f"{name_of(page)}, line {block.line + 1}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_that_is_not_run_is_at_least_python(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(content):
        if found["info"].split()[:1] == ["python"]:
            compile(found["text"], f"{name_of(page)}, line {content.count(chr(10), 0, found.start()) + 1}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # another site
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{name_of(page)} links to {link}, which is not there"
        if anchor:
            assert anchor in anchors(found), f"{name_of(page)} links to {link}, but {found.name} has no such heading"


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(index)}
    missing = [name_of(page) for page in PAGES if page.name != "README.md" and page not in linked]
    assert not missing
