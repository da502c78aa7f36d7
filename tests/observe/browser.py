"""Pages in a real browser: what it shows, measured by a page of ours around it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")

#: the page under test in frames of several widths, and what can be seen of each, as JSON
_AROUND = """<!doctype html><meta charset="utf-8"><body>%s<pre id="seen"></pre><script>
onload = () => setTimeout(() => {
  const seen = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, all = (what) => [...page.querySelectorAll(what)];
    const style = frame.contentWindow.getComputedStyle(page.body), shown = all("section").filter((each) => each.offsetHeight);
    return {
      text: page.querySelector("main").innerText,
      state: page.getElementById("state").innerText,
      sections: shown.map((each) => each.id).filter((id) => id),
      charts: all(".plot > svg").map((svg) => ({ label: svg.getAttribute("aria-label"), width: svg.clientWidth,
        ticks: svg.querySelectorAll(".tick").length,
        units: [...svg.querySelectorAll(".unit")].map((each) => each.textContent) })),
      tooWide: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      colours: [style.color, style.backgroundColor],
      fetched: frame.contentWindow.performance.getEntriesByType("resource").map((each) => each.name),
      broken: Boolean(frame.contentWindow.broken) || all("main img:not([src^='data:image/'])").length > 0,
    };
  });
  document.getElementById("seen").textContent = JSON.stringify(seen);
}, 1000);
</script>"""


def look(folder: Path, page: Path, widths: list[int], *, dark: bool = False) -> list[dict[str, Any]]:
    """What a browser without a network shows of a page, in windows of these widths."""
    frames = "".join(f'<iframe src="{page.as_uri()}" width="{width}" height="900"></iframe>' for width in widths)
    around = folder / "around.html"
    around.write_text(_AROUND % frames, encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    html = dump(folder, around.as_uri(), "--allow-file-access-from-files", *scheme)
    found: list[dict[str, Any]] = json.loads(_text(html.split('<pre id="seen">')[1].split("</pre>")[0]))
    return found


def dump(folder: Path, url: str, *options: str) -> str:
    """A page as HTML after its scripts have run. Anything that a page may not do, or fails at, is an error."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={folder / 'profile'}",
            "--enable-logging=stderr", "--virtual-time-budget=6000", "--dump-dom", *options, url,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert said == []
    return done.stdout


def _text(html: str) -> str:
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", "\u00a0"), ("&amp;", "&")):
        html = html.replace(entity, sign)
    return html
