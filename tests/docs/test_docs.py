"""The documentation is true: its code runs, prints what it says, and its links lead somewhere.

In the tutorials every ``python`` and ``sh`` block runs; elsewhere those marked ``python run`` and ``sh run`` do. The blocks of a
page run in order, in one namespace and an empty folder; ``stoker`` is the command of this tree. A block marked ``text output`` is
what the block before it prints.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

from ..support import jpeg_bytes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
#: pages beside the documentation whose links, and names of files, must be right too
FRONT = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")]

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
#: packages a page may do without: what in its code needs them
_EXTRAS = {
    "torch": r"^(import|from) torch\b|format=\"torch\"",
    "lmdb": r"\bwrite_lmdb\b|\.lmdb\b",
    "zstandard": r"\.zst\b",
    "msgpack_numpy": r"^import msgpack_numpy\b",
    "tensorboard": r"observe\.tensorboard\(\"",
    "prometheus_client": r"observe\.prometheus\(\w",
}

# Runs pages in a child: they come as JSON on standard input, and what their blocks printed, or the traceback, goes back so.
_DRIVER = """
import contextlib, io, json, os, subprocess, sys, traceback


def run_python(page, line, text, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\\n" * line + text, page, "exec"), names)
    return out.getvalue()


def run_sh(page, line, text):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{page}, line {line + 1}: exit status {done.returncode}\\n{done.stdout}{done.stderr}")
    return done.stdout


def run(page, blocks):
    names = {"__name__": "docs_page"}
    printed = [
        run_python(page, line, text, names) if kind == "python" else run_sh(page, line, text) for kind, line, text in blocks
    ]
    explained[page] = {name: made.explain() for name, made in names.items() if type(made).__name__ == "Pipeline"}
    return printed


results = {}
explained = {}
for page, folder, blocks in json.load(sys.stdin):
    os.makedirs(folder)
    os.chdir(folder)
    try:
        results[page] = run(page, blocks)
    except BaseException:
        results[page] = traceback.format_exc()
json.dump((results, explained), sys.stdout)
"""


class Block(NamedTuple):
    kind: str  # "python" or "sh"
    line: int  # of its first line of text, counted from 0
    text: str
    output: str | None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_to_run(page: Path) -> list[Block]:
    """The page's runnable blocks, each with the output it claims."""
    content = page.read_text(encoding="utf-8")
    every = page.name.startswith("tutorial")
    blocks: list[Block] = []
    for found in _BLOCK.finditer(content):
        info = found["info"].split()
        if info[:1] in (["python"], ["sh"]) and (every or "run" in info):
            blocks.append(Block(info[0], content.count("\n", 0, found.start("text")), found["text"], None))
        elif info == ["text", "output"]:
            assert blocks, f"{name_of(page)}: output before any code that could print it"
            blocks[-1] = blocks[-1]._replace(output=found["text"])
    return blocks


def needed(page: Path) -> list[str]:
    """The optional packages a page's code uses."""
    text = "\n".join(block.text for block in blocks_to_run(page))
    return [name for name, sign in _EXTRAS.items() if re.search(sign, text, re.MULTILINE)]


def uses_shell(page: Path) -> bool:
    return any(block.kind == "sh" for block in blocks_to_run(page))


RUNNABLE = [page for page in PAGES if blocks_to_run(page)]

#: a page -> what each of its blocks printed, or a traceback; and what its pipelines explain of themselves, by name
Results = Callable[[Path], "tuple[list[str] | str, dict[str, str]]"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs pages: those with torch in one process, as importing it takes longer than all that do without it; those without in
    another beside it; and a page with a shell by itself, when it is asked for, because every command in it starts anew."""
    root = tmp_path_factory.mktemp("docs")
    groups: dict[str, list[Path]] = {"torch": [], "rest": []}
    for page in RUNNABLE:
        if not uses_shell(page):
            groups["torch" if "torch" in needed(page) else "rest"].append(page)
    known: dict[str, tuple[list[str] | str, dict[str, str]]] = {}
    for child in [start(pages, root) for pages in groups.values()]:
        known |= finish(*child)

    def result(page: Path) -> tuple[list[str] | str, dict[str, str]]:
        if name_of(page) not in known:
            known.update(finish(*start([page], root)))
        return known[name_of(page)]

    return result


def finish(child: subprocess.Popen[str], given: str) -> dict[str, tuple[list[str] | str, dict[str, str]]]:
    """What a child's pages printed, and explain."""
    out, err = child.communicate(given, timeout=110)
    assert child.returncode == 0, err
    printed, explained = json.loads(out)
    return {page: (printed[page], explained.get(page, {})) for page in printed}


def start(pages: list[Path], root: Path) -> tuple[subprocess.Popen[str], str]:
    """A child, and what to tell it. Paths in its environment are absolute: it works in folders of its own."""
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    child = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PATH": f"{command_folder(root)}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join(paths),
            "XDG_CACHE_HOME": str(root / "cache"),
            "COLUMNS": "120",
            "OMP_NUM_THREADS": "1",
        },
    )
    told = [(name_of(page), str(root / name_of(page)), [block[:3] for block in blocks_to_run(page)]) for page in pages]
    return child, json.dumps(told)


def command_folder(root: Path) -> Path:
    """A folder with `stoker` and `python3` in it: this Python, and this tree's command run by it."""
    folder = root / "bin"
    folder.mkdir(exist_ok=True)
    for name, words in (("stoker", "-m stoker.cli.main "), ("python3", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (folder / name).chmod(0o755)
    return folder


def anchors(page: Path) -> set[str]:
    """The names headings can be linked by, made as GitHub makes them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_something_to_check() -> None:
    assert {"docs/tutorial.md", "docs/tutorial-shards.md"} <= set(map(name_of, RUNNABLE))
    assert len(RUNNABLE) > 15


def skip_unless_runnable(page: Path) -> None:
    for package in needed(page):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if uses_shell(page) and shutil.which("bash") is None:
        pytest.skip("bash is not installed")


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, results: Results) -> None:
    skip_unless_runnable(page)
    printed, _ = results(page)
    assert isinstance(printed, list), printed
    for block, text in zip(blocks_to_run(page), printed, strict=True):
        if block.output is not None:
            assert text == block.output, f"{name_of(page)}, line {block.line + 1}"


#: why pipelines of the documentation, which show other things, read and decode in two calls
APART = re.compile(
    r"(map|filter|flat_map|decode|image)\(\) comes before it|the source is a stream|only one field is|vary in size|boxes"
    r"|this source reads it by itself"
)


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_pipelines_of_a_page_read_and_decode_in_one_call(page: Path, results: Results) -> None:
    skip_unless_runnable(page)
    _, explained = results(page)
    calls = [line for text in explained.values() for line in text.splitlines() if "reading and decoding:" in line]
    apart = [line for line in calls if "one native call" not in line]
    assert not [line for line in apart if not APART.search(line)], explained
    if page.name.startswith("tutorial"):
        assert calls and not apart, explained


def test_the_pipelines_of_the_readme_read_and_decode_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder, and its shards, which it renames and gives to the same stages, are made up here."""
    for name in ("a", "b"):
        (tmp_path / "photos" / "train" / name).mkdir(parents=True)
        (tmp_path / "photos" / "train" / name / "1.jpg").write_bytes(jpeg_bytes(30, 30))
    monkeypatch.chdir(tmp_path)
    stoker.write_tar("a.tar", [{"__key__": "0", "jpg": jpeg_bytes(30, 30), "cls": 1}])
    tar = stoker.tar
    monkeypatch.setattr(stoker, "tar", lambda *shards, **options: tar("a.tar"))
    code = [found["text"] for found in _BLOCK.finditer((ROOT / "README.md").read_text()) if found["info"] == "python"]
    names: dict[str, Any] = {}
    for text in code:
        kinds = (ast.Import, ast.ImportFrom, ast.Assign)
        made = ast.Module([part for part in ast.parse(text).body if isinstance(part, kinds)], [])
        before = names.get("train")
        exec(compile(made, "README.md", "exec"), names)  # noqa: S102  our own page
        if names["train"] is not before:
            pipeline = names["train"]
            stages = pipeline if "image(" in text else pipeline.image("image", RandomResizedCrop(224), HorizontalFlip())
            assert "reading and decoding: one native call" in stages.explain(), text
    assert "tar" in names["train"].explain(), "the last one is of shards"


@pytest.mark.parametrize("page", PAGES + FRONT, ids=name_of)
def test_code_that_is_not_run_is_at_least_python(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(content):
        if found["info"].split()[:1] == ["python"]:
            compile(found["text"], f"{name_of(page)}, line {content.count(chr(10), 0, found.start()) + 1}", "exec")


@pytest.mark.parametrize("page", PAGES + FRONT, ids=name_of)
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


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|c|h))`", text))
    places = (ROOT, ROOT / "src" / "stoker")
    missing = [name for name in sorted(named) if not any((place / name).exists() for place in places)]
    assert named and not missing


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(index)}
    missing = [name_of(page) for page in PAGES if page.name != "README.md" and page not in linked]
    assert not missing


def test_the_example_of_the_readme_runs_and_gives_a_model_what_it_takes(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "train").symlink_to(image_folder)
    monkeypatch.chdir(tmp_path)
    example = next(block["text"] for block in _BLOCK.finditer(FRONT[0].read_text(encoding="utf-8")) if "loader(" in block["text"])
    for large, small in {"range(90)": "range(1)", ".batch(256)": ".batch(4)", "Crop(224)": "Crop(32)"}.items():
        assert large in example
        example = example.replace(large, small)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)  # noqa: S102
    images = names["images"]
    assert images.dtype.is_floating_point and images.shape == (4, 3, 32, 32) and 0 <= images.min() <= images.max() <= 1
