"""The site: every page is on it, every link leads somewhere, and it needs no other host."""

from __future__ import annotations

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

from .test_docs import DOCS, PAGES, ROOT

pytest.importorskip("zensical", reason="the site is built with the extra `docs`")

#: tags that load what they name, and the attribute with its name
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
    "use": "href",
}


class Page(HTMLParser):
    """What an HTML page loads, links to, and can be linked by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.words = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.update(value for name, value in attrs if name in ("id", "name") and value)
        if link := found.get(LOADED.get(tag, "")):
            self.loads.append(link)
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)

    def handle_data(self, data: str) -> None:
        self.words += data


def load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", DOCS / "build_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builder = load_builder()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site") / "site"
    builder.build(folder)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_is_on_the_site_and_in_its_navigation(site: Path, pages: dict[Path, Page]) -> None:
    front = pages[site / "index.html"]
    linked = {(site / unquote(link.partition("#")[0])).resolve() for link in front.links if not re.match(r"[a-z]+:", link)}
    for page in PAGES:
        place = site / Path(builder.place_of(page.relative_to(ROOT).as_posix())).with_suffix(".html")
        assert place in pages, f"{page} is not on the site"
        assert place in linked or place.name == "contents.html", f"the navigation does not lead to {page}"


def test_links_and_anchors_of_the_site_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    checked = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # the server shows it in place of any page, so its links begin at the root
        for link in page.links + page.loads:
            if re.match(r"[a-z]+:", link):
                continue  # another site
            target, _, anchor = unquote(link).partition("#")
            found = (path.parent / target.partition("?")[0]).resolve() if target else path
            assert found.is_file(), f"{path.relative_to(site)} links to {link}, which does not exist"
            assert not anchor or found not in pages or anchor in pages[found].anchors, (
                f"{path.relative_to(site)}: no anchor {link}"
            )
            checked += 1
    assert checked > 1000


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert not [link for link in page.loads if re.match(r"([a-z]+:)?//", link)], path
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)\"']*", style.read_text(encoding="utf-8")), style


def test_the_front_page_has_the_lines_the_figures_and_the_pictures_of_the_readme(site: Path, pages: dict[Path, Page]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    front = pages[site / "index.html"]
    words = " ".join(front.words.split())
    code = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    assert 8 <= len(code.splitlines()) <= 25
    assert " ".join(code.split()) in words
    cells = [cell.strip() for row in re.findall(r"^\|(.*)\|$", readme, re.MULTILINE) for cell in row.split("|")]
    assert len([cell for cell in cells if re.match(r"[\d,]+$", cell)]) >= 5
    for cell in cells:
        if not re.fullmatch(r"[-: ]*", cell):
            assert re.sub(r"[*`]", "", cell) in words
    assert {"images/operations.png", "images/report.png"} <= set(front.loads)


def test_every_page_can_be_searched_for_also_without_a_server(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["items"]}
    for page in PAGES:
        place = Path(builder.place_of(page.relative_to(ROOT).as_posix())).with_suffix(".html").as_posix()
        assert place in found, f"the search does not find {page}"
    assert "__index" in (site / "search.js").read_text(encoding="utf-8")


def test_pages_are_light_or_dark_as_the_reader_likes(pages: dict[Path, Page]) -> None:
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert 'data-md-color-scheme="slate"' in text and 'data-md-color-scheme="default"' in text, path


def test_a_link_to_a_missing_file_ends_the_build() -> None:
    with pytest.raises(builder.BrokenLink, match=r"docs/tutorial\.md links to howto/missing\.md"):
        builder.Pages().rewritten("docs/tutorial.md", "see [there](howto/missing.md)")


def test_a_link_to_a_folder_without_a_page_ends_the_build() -> None:
    with pytest.raises(builder.BrokenLink, match="a folder, which has no page"):
        builder.Pages().rewritten("docs/README.md", "see [these](notebooks)")
    assert builder.Pages().rewritten("docs/README.md", "see [these](../examples)") == "see [these](examples.md)"


def test_a_page_that_the_contents_do_not_link_ends_the_build() -> None:
    pages = builder.Pages()
    pages.collect()
    pages.text["howto/forgotten.md"] = "# Forgotten\n"
    with pytest.raises(builder.BrokenLink, match=r"does not link to howto/forgotten\.md"):
        pages.navigation()


def test_links_in_code_stay_as_they_are_and_marks_for_tests_go() -> None:
    text = "```python run\nprint('[a](missing.md)')\n```\n\n[b](tutorial.md#1-some-images)\n"
    assert builder.Pages().rewritten("docs/README.md", text) == text.replace("python run", "python")
