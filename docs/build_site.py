"""Builds the documentation site: ``python docs/build_site.py [folder]``, or ``make docs``.

The Markdown is written for a code host, so links are relative to the files of this repository. For the site it is copied:
README.md becomes the front page, notebooks and linked source files become pages, and links are rewritten to the new places of
their targets. ``docs/README.md`` is the table of contents: its headings and links become the navigation. A page that it does not
link is an error, and so is a link to a file or heading that does not exist.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: pages beside docs/, and where they go
ELSEWHERE = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "examples": "examples.md",
}
#: files that become pages with their code
LANGUAGES = {".py": "python", ".c": "c", ".h": "c"}
#: what the configuration names
ASSETS = ("docs/site/extra.css", "docs/site/iframe-worker.js")

#: the front page has the whole width
FRONT_MATTER = {"index.md": "---\nhide:\n  - navigation\n  - toc\n---\n\n"}

_FENCE = re.compile(r"^(```.*?^```[ \t]*$)", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^(```\w+) (?:run|output)\b")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_NAMED = re.compile(r"\[(?P<name>[^\]]+)\]\((?P<place>[^)#\s]+)\)")


class BrokenLink(Exception):
    """A link to a file that does not exist, or a page that nothing links to."""


def place_of(path: str) -> str:
    """Where a file of the repository is on the site, before Markdown becomes HTML."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if Path(path).suffix in LANGUAGES and not path.startswith("docs/site/"):
        return f"source/{path}.md"
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
        return path.removesuffix(".ipynb") + ".md" if path.endswith(".ipynb") else path
    return f"source/{path}"


class Pages:
    """The pages of the site, as they are collected: place on the site -> Markdown."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.text: dict[str, str] = {}
        self.files: dict[str, Path] = {}

    def collect(self) -> None:
        for name in sorted(ELSEWHERE):
            if name.endswith(".md"):
                self.add(name)
        for page in sorted((self.root / "docs").rglob("*")):
            if page.suffix in (".md", ".ipynb"):
                self.add(page.relative_to(self.root).as_posix())
        for name in ASSETS:
            self.add(name)

    def add(self, path: str) -> None:
        """Adds a file of the repository, and what it links to."""
        place, file = place_of(path), self.root / path
        if place in self.text or place in self.files or file.is_dir():
            return
        if file.suffix == ".md":
            self.text[place] = ""  # links may lead back here
            self.text[place] = self.rewritten(path, file.read_text(encoding="utf-8"))
        elif file.suffix == ".ipynb":
            self.files[path.removeprefix("docs/")] = file
            text = notebook_text(json.loads(file.read_text(encoding="utf-8")))
            self.text[place] = self.rewritten(path, text) + f"\n[Download this notebook]({file.name})\n"
        elif place.endswith(".md"):
            code = file.read_text(encoding="utf-8")
            self.text[place] = f"# {path}\n\n````{LANGUAGES[file.suffix]}\n{code}````\n"
        else:
            self.files[place] = file

    def rewritten(self, path: str, text: str) -> str:
        """A page's text with links to where their targets are on the site. Of blocks of code only the marks for tests go."""
        parts = _FENCE.split(text)
        parts[1::2] = [_MARK.sub(r"\1", part, count=1) for part in parts[1::2]]
        parts[::2] = [_LINK.sub(lambda link: self.moved(path, link), part) for part in parts[::2]]
        return "".join(parts)

    def moved(self, path: str, link: re.Match[str]) -> str:
        target, hash_sign, anchor = link[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        file = Path(os.path.normpath(self.root / Path(path).parent / target))
        if not file.exists() or not file.is_relative_to(self.root):
            raise BrokenLink(f"{path} links to {link[2]}, which does not exist")
        name = file.relative_to(self.root).as_posix()
        if file.is_dir() and name not in ELSEWHERE:
            raise BrokenLink(f"{path} links to {link[2]}, a folder, which has no page")
        self.add(name)
        here = Path(place_of(path)).parent
        return f"{link[1]}{Path(os.path.relpath(place_of(name), here)).as_posix()}{hash_sign}{anchor}{link[3]}"

    def navigation(self) -> list[Any]:
        """Tabs by the second-level headings of docs/README.md, groups by its third-level headings, pages by its links."""
        nav: list[Any] = [{"Home": "index.md"}]
        seen = {"index.md", "contents.md"}
        for part in re.split(r"^## ", self.text["contents.md"], flags=re.MULTILINE)[1:]:
            heading, _, body = part.partition("\n")
            tab: list[Any] = []
            for number, group in enumerate(re.split(r"^### ", body, flags=re.MULTILINE)):
                name, _, rows = group.partition("\n") if number else ("", "", group)
                entries = []
                for link in _NAMED.finditer(rows):
                    if link["place"] in self.text and link["place"] not in seen:
                        seen.add(link["place"])
                        entries.append({link["name"].replace("`", ""): link["place"]})
                tab += [{name: entries}] if name and entries else entries
            if tab:
                nav.append({heading: tab})
        missing = sorted(place for place in self.text if place not in seen and not place.startswith("source/"))
        if missing:
            raise BrokenLink(f"docs/README.md does not link to {', '.join(missing)}")
        return nav

    def write(self, folder: Path) -> None:
        for place, text in self.text.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(FRONT_MATTER.get(place, "") + text, encoding="utf-8")
        for place, file in self.files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / place)


def notebook_text(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its text, and its code as blocks."""
    cells = (("".join(cell["source"]), cell["cell_type"]) for cell in notebook["cells"])
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for text, kind in cells) + "\n"


def configuration(pages: Pages) -> str:
    text = (pages.root / "docs" / "site" / "zensical.toml").read_text(encoding="utf-8")
    places = f'docs_dir = "pages"\nsite_dir = "site"\nnav = {inline_toml(pages.navigation())}\n'
    return text.replace("[project]\n", f"[project]\n{places}", 1)


def inline_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline_toml, value)) + "]"
    return json.dumps(value)


def build(site: Path, root: Path = ROOT) -> None:
    """Builds the site into ``site``; a broken link, or a page that nothing links to, raises."""
    pages = Pages(root)
    pages.collect()
    work = site.with_name(f"{site.name}-source")
    shutil.rmtree(work, ignore_errors=True)
    pages.write(work / "pages")
    (work / "zensical.toml").write_text(configuration(pages), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=work, check=True)
    shutil.rmtree(site, ignore_errors=True)
    (work / "site").rename(site)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
