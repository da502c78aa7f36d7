"""Reports as pages: one HTML file each that requests nothing: data, style and script are inside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..batch.batch_html import data_url
from ..batch.batch_pictures import batch_pictures
from ..storage.names import AnyPath
from ..storage.text_files import write_text
from .loader_view import LoaderView
from .page_data import finite
from .stats import Stats

if TYPE_CHECKING:
    from ..loader import Loader

#: pictures of a report, and their longest side in pixels
_PICTURES, _SIDE = 12, 160

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --faint: #667085; --paper: #f6f7f9; --card: #ffffff; --line: #e3e6ec;
  --main: #d9480f; --calm: #2b8a3e; --rail: #eceff4; --other: #3b5bdb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --faint: #98a2b3; --paper: #12151c; --card: #1b202b;
  --line: #2c3342; --main: #ff8f4c; --calm: #69db7c; --rail: #262c3a; --other: #91a7ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 24px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 13px; margin: 0 0 12px; color: var(--faint); text-transform: uppercase; letter-spacing: .06em; }
.under { color: var(--faint); margin: 0 0 22px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin: 0 0 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 16px; margin: 0 0 16px; }
.tiles section { margin: 0; }
.tiles .note { margin: 0; }
.figure { font-size: 27px; font-weight: 650; font-variant-numeric: tabular-nums; }
.note { color: var(--faint); font-size: 13px; margin-top: 6px; }
table { margin-top: 12px; border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--faint); font-weight: 500; font-size: 13px; }
td { text-align: right; padding: 3px 0; border-top: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
pre { margin: 0; overflow-x: auto; font: 12.5px/1.55 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; margin-bottom: 10px; }
"""


def page(title: str, under: str, body: str, style: str = "") -> str:
    """A whole HTML document around a body. Title and subtitle are text; the body is HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="under">{escape(under)}</p>\n{body}\n</main>\n</body>\n</html>\n'
    )


def write_report(
    loader: Loader, path: AnyPath, *, title: str = "", batch: Any = None, training: bool = True, **more: Any
) -> None:
    """Write the report of a loader's run so far as one self-contained HTML file.

    `batch` is a batch of the loader, whose first pictures are shown. With ``training=False`` waiting for batches does not count.
    `more` is what else a page shows: `lesson`, `under`, `settings`.

    >>> import numpy as np, stoker, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, stoker.arrays(x=np.arange(8)).batch(2).loader() as loader:
    ...     for batch in loader:
    ...         pass
    ...     stoker.observe.write_report(loader, f"{folder}/report.html", batch=batch)
    """
    data = LoaderView(loader, "write_report(loader)", title, training).data(state="ended", recent=(), **more)
    write_text(path, run_page({**data, "pictures": sample_pictures(batch)}))


def sample_pictures(batch: Any) -> list[dict[str, str]]:
    """The first pictures of a batch as images within a page, with their labels or keys; none if it holds no pictures."""
    columns = batch if isinstance(batch, Mapping) else batch._asdict() if hasattr(batch, "_asdict") else {}
    try:
        found = batch_pictures(columns, _PICTURES)
    except Exception:  # noqa: BLE001  values may be of any library, and on any device; a report must not fail without them
        return []
    keys = [*getattr(batch, "sample_keys", ()), *[""] * len(found)]
    names = [f"{key}: {picture.label}" if key and picture.label else key or picture.label for key, picture in zip(keys, found)]
    return [{"src": data_url(picture.pixels, _SIDE), "name": name} for picture, name in zip(found, names)]


def run_page(data: Mapping[str, Any], *, live: bool = False) -> str:
    """The page of a run; if `live`, it requests the data repeatedly from its own server, and nothing else."""
    script = _part("page.js")
    parts = {
        "title": escape(data["title"]),
        "policy": page_policy(live),
        "style": _part("page.css"),
        "plain": _plain(data),
        "data": embedded(data),
        "script": script,
    }
    # In one pass: what is put in is not searched for names of parts.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


@cache
def page_policy(live: bool = False) -> str:
    """What a page may do: run its own script, show images that are in it, and, if it is live, ask its own server."""
    script = base64.b64encode(hashlib.sha256(_part("page.js").encode()).digest()).decode()
    ask = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; img-src data:; {ask}"
        "base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> str:
    """JSON that is safe inside a page: nothing in it ends a script, begins a comment, or is a line break to old parsers."""
    text = json.dumps(finite(data), allow_nan=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})


def step_costs(stats: Stats) -> dict[str, float]:
    """Worker time by step, in microseconds for each sample."""
    return {name: seconds / max(1, stats.worked) * 1e6 for name, seconds in stats.steps_s.items()}


@cache
def _part(name: str) -> str:
    return resources.files("stoker.observe").joinpath("page").joinpath(name).read_text(encoding="utf-8")


def _plain(data: Mapping[str, Any]) -> str:
    """What matters as text and tables, for readers without scripts."""
    steps = "".join(
        f"<tr><td>{escape(step['name'])}</td><td>{step['wall_s'] / max(1, step['samples']) * 1e6:,.1f}</td></tr>"
        for step in data["stats"]["steps"]
    )
    settings = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in data["settings"].items())
    return (
        f"<noscript><section><h2>As text</h2><p>{escape(data['under'])}</p><p>{escape(data['verdict']['text'])}</p>"
        f"<table><tr><th>step</th><th>us per sample</th></tr>{steps}</table>"
        f'<table class="settings">{settings}</table><pre>{escape(data["plan"])}</pre></section></noscript>'
    )
