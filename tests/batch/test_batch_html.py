"""A batch shows itself in a notebook: fields, pictures, labels and boxes, of whatever library its arrays are."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stoker.batch.batch import Batch
from stoker.batch.batch_pictures import batch_pictures

from ..support import picture


def batch(**columns: Any) -> Batch:
    rows = len(next(iter(columns.values())))
    return Batch.of(columns, rows, [f"k{row}" for row in range(rows)])


def pixels(rows: int = 3) -> NDArray[np.uint8]:
    return np.stack([picture(120, 100, seed=row) for row in range(rows)])


def shown(html: str) -> list[NDArray[np.uint8]]:
    """The pictures in it."""
    found = re.findall(r'src="data:image/\w+;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in found]


def test_fields_are_listed_with_shape_and_dtype_and_names_are_escaped() -> None:
    html = batch(**{"<b>": np.zeros((2, 5), np.int16), "text": ["<script>", "y"], "blob": [b"1", b"2"]})._repr_html_()
    assert "2 x 5" in html and "int16" in html and "&lt;b&gt;" in html and "&lt;script&gt;" in html
    assert "<script" not in html and "Batch of 2 rows" in html


def test_pictures_of_either_layout_and_type_look_the_same() -> None:
    stored = pixels()
    for value in (
        stored,
        stored.transpose(0, 3, 1, 2),
        stored.astype(np.float32) / 255,
        stored.astype(np.float64),
        [*stored],
    ):
        found = batch_pictures({"x": np.zeros(3), "image": value})
        assert len(found) == 3
        assert all(np.array_equal(row.pixels, want) for row, want in zip(found, stored))
    gray = batch_pictures({"image": stored[..., 0]})
    assert np.array_equal(gray[0].pixels[..., 2], stored[0, ..., 0])
    normalized = batch_pictures({"image": (stored.astype(np.float32) / 255 - 0.5) / 0.2})
    assert normalized[0].pixels.min() == 0 and max(row.pixels.max() for row in normalized) == 255


def test_labels_stand_below_pictures_and_boxes_over_them() -> None:
    boxes = np.array([[10, 12, 50, 60]] * 3)
    html = batch(image=pixels(), label=np.array([7, 8, 9]), box=boxes)._repr_html_()
    assert [row.shape for row in shown(html)] == [(100, 120, 3)] * 3
    assert all(f">{label}</div>" in html for label in (7, 8, 9))
    assert html.count("left:10.00%;top:10.00%;width:40.00%;height:40.00%") == 3
    several = [np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 0.5, 0.9]]), np.empty((0, 4)), np.array([[0.1, 0.1, 0.2, 0.2]])]
    found = batch_pictures({"image": pixels(), "boxes": several})
    assert [len(row.boxes) for row in found] == [1, 0, 1], "one has no area"
    outside = batch_pictures({"image": pixels(), "box": boxes * 9})
    assert not any(len(row.boxes) for row in outside), "these are not boxes of these pictures"


def test_mixed_labels_say_what_they_are_made_of() -> None:
    labels = np.array([[0, 0.7, 0.3], [1, 0, 0], [0.5, 0.25, 0.25]], np.float32)
    assert [row.label for row in batch_pictures({"image": pixels(), "label": labels})][:2] == ["1 (70%), 2 (30%)", "0 (100%)"]


def test_at_most_sixteen_rows_are_looked_at() -> None:
    class Rows(np.ndarray[Any, Any]):
        asked: list[Any] = []  # noqa: RUF012

        def __getitem__(self, key: Any) -> Any:
            self.asked.append(key)
            return np.asarray(self)[key]

    html = batch(image=pixels(40).view(Rows), label=np.arange(40))._repr_html_()
    assert len(shown(html)) == 16
    assert Rows.asked == [slice(None, 16)]


def test_tensors_show_themselves_too() -> None:
    torch = pytest.importorskip("torch")
    value = torch.from_numpy(pixels().astype(np.float32) / 255).to(torch.bfloat16).requires_grad_()
    html = batch(image=value, label=torch.arange(3))._repr_html_()
    assert len(shown(html)) == 3 and "torch.bfloat16" in html
    on_nothing = batch(image=torch.zeros((2, 8, 8, 3), device="meta"))
    assert on_nothing._repr_html_().startswith("<pre>Batch(image="), "nothing to see, and no error"


def test_what_holds_no_pictures_has_a_table_only() -> None:
    for value in (
        np.zeros((4, 7)),
        np.zeros((4, 9, 9, 7), np.uint8),
        np.zeros((0, 8, 8, 3), np.uint8),
        np.zeros((4, 8, 8), np.int64),
        np.zeros((4, 30, 20), np.float32),
    ):
        assert not shown(batch(tokens=value)._repr_html_())
    rebuilt = type(batch(x=np.zeros(2)))(np.ones(2))
    assert "1, 1" in rebuilt._repr_html_()


def test_a_notebook_shows_the_page() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(batch(image=pixels()))
    assert data["text/html"].count("<img") == 3 and data["text/plain"].startswith("Batch(")
