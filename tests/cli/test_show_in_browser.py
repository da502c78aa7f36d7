"""The page of `stoker show --html` in a real browser: no network, narrow and wide, light and dark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..observe.browser import dump, needs_browser
from .test_show import annotated_folder

pytestmark = needs_browser

_AROUND = """<!doctype html><meta charset="utf-8"><body>%s<pre id="seen"></pre><script>
onload = () => {
  document.getElementById("seen").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, all = (what) => [...page.querySelectorAll(what)];
    const inside = (box, picture) => box.left >= picture.left - 1 && box.right <= picture.right + 1;
    return {
      tooWide: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      unseen: all("img, .charts svg").filter((each) => !each.clientWidth || each.naturalWidth === 0).length,
      outside: all(".held i").filter((each) => !inside(each.getBoundingClientRect(),
        each.parentElement.getBoundingClientRect())).length,
      boxes: all(".held i").length,
      colour: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
      fetched: frame.contentWindow.performance.getEntriesByType("resource").length,
    };
  }));
};
</script>"""


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_any_window_and_boxes_lie_on_their_pictures(stoker: Any, tmp_path: Path, dark: bool) -> None:
    page = tmp_path / "sheet.html"
    assert stoker("show", annotated_folder(tmp_path), "--html", page).exit_code == 0
    around = tmp_path / "around.html"
    frames = "".join(f'<iframe src="{page.as_uri()}" width="{width}" height="900"></iframe>' for width in (340, 1100))
    around.write_text(_AROUND % frames)
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    html = dump(tmp_path, around.as_uri(), "--allow-file-access-from-files", *scheme)
    for seen in json.loads(html.split('<pre id="seen">')[1].split("</pre>")[0]):
        assert seen.pop("boxes") > 3
        assert (sum(map(int, seen.pop("colour")[4:-1].split(","))) < 200) is dark
        assert seen == {"tooWide": 0, "unseen": 0, "outside": 0, "fetched": 0}
