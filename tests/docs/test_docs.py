"""The documentation is true: its code runs, prints what it says, and its links lead somewhere.

In the tutorial every ``python`` block runs; elsewhere those marked ``python run`` do. The blocks of a page run in order, in one
process and one namespace, in an empty folder. A block marked ``text output`` is what the block before it prints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")

# Runs in the child: blocks come as JSON on standard input, and what each printed goes back the same way.
_DRIVER = """
import contextlib, io, json, sys

page, blocks = json.load(sys.stdin)
names = {"__name__": "docs_page"}
printed = []
for line, text in blocks:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\\n" * line + text, page, "exec"), names)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
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


RUNNABLE = [page for page in PAGES if blocks_to_run(page)]


def environment() -> dict[str, str]:
    """This process's, for a child in another folder: paths made absolute, and no threads beside the loader's."""
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def anchors(page: Path) -> set[str]:
    """The names headings can be linked by, made as GitHub makes them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_something_to_check() -> None:
    assert "tutorial.md" in map(name_of, RUNNABLE)
    assert len(RUNNABLE) > 5


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = blocks_to_run(page)
    if any("import torch" in block.text for block in blocks):
        pytest.importorskip("torch")
    given = json.dumps([name_of(page), [(block.line, block.text) for block in blocks]])
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for block, printed in zip(blocks, json.loads(done.stdout), strict=True):
        if block.output is not None:
            assert printed == block.output, f"{name_of(page)}, line {block.line + 1}"


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
