"""A language model is to be trained on texts: from shards of documents to padded tensors with a mask, each document once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.source.sample_names import NamedColumns, NamedSample

torch = pytest.importorskip("torch")

COUNT = 37
PAD = 0


@pytest.fixture
def documents(tmp_path: Path) -> dict[str, str]:
    """Documents of none to eleven words in several shards, by key."""
    documents = {f"doc/{n:03}": " ".join(f"word{n + at}" for at in range(n * 5 % 12)) for n in range(COUNT)}
    samples = ({"__key__": key, "txt": text, "cls": n % 3} for n, (key, text) in enumerate(documents.items()))
    stoker.write_tar(tmp_path / "text-{:03d}.tar", samples, max_samples=10)
    return documents


def tokens_of(text: str) -> list[int]:
    """A tokenizer: a number above 0 for every word."""
    return [1 + int(word.removeprefix("word")) for word in text.split()]


def tokenized(sample: NamedSample) -> dict[str, Any]:
    return {"tokens": np.array(tokens_of(sample["txt"]), np.int64), "label": sample["cls"], "source": sample.key}


def with_mask(columns: NamedColumns) -> dict[str, Any]:
    """The batch with a mask of what is not padding; the keys say which documents it holds."""
    assert columns.sample_keys == columns["source"] and columns.rows == len(columns["tokens"])
    return {"tokens": columns["tokens"], "mask": columns["tokens"] != PAD, "label": columns["label"]}


def test_texts_become_padded_tensors_with_a_mask_and_each_is_seen_once(tmp_path: Path, documents: dict[str, str]) -> None:
    pipeline = (
        stoker.tar(str(tmp_path / "text-*.tar"))
        .shuffle(seed=3)
        .map(tokenized)
        .batch(8, drop_last=False, pad={"tokens": PAD})
        .map_batch(with_mask)
    )
    with pipeline.loader(format="torch") as loader:
        for _ in range(2):
            seen: dict[str, list[int]] = {}
            for batch in loader:
                tokens, mask, label = batch
                assert tokens.dtype == label.dtype == torch.int64 and mask.dtype == torch.bool and tokens.shape == mask.shape
                assert tokens.shape[1] == int(mask.sum(1).max()), "padded to the longest text of the batch, and no further"
                for key, row, real in zip(batch.sample_keys, tokens, mask):
                    assert key not in seen
                    seen[key] = row[real].tolist()
            assert seen == {key: tokens_of(text) for key, text in documents.items()}


def test_a_text_the_tokenizer_cannot_read_is_named(tmp_path: Path, documents: dict[str, str]) -> None:
    stoker.write_tar(tmp_path / "bad.tar", [{"__key__": "doc/bad", "txt": "word1 oops", "cls": 0}])
    pipeline = stoker.tar(str(tmp_path / "*.tar")).map(tokenized).batch(8, pad={"tokens": PAD})
    with pytest.raises(stoker.errors.FunctionError, match=r"tokenized raised ValueError on sample 'doc/bad'.*'oops'") as caught:
        list(pipeline)
    assert caught.value.origin == f"{tmp_path / 'bad.tar'}, byte 512"
