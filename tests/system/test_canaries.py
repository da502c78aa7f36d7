"""Pickles and shell words in every file that Stoker reads: none of them ever makes the canary, here or in a worker process."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import stoker
from stoker.cli.main import app
from stoker.errors import StateError, StokerError
from stoker.storage.cache import Cache

from ..loader.runs import numbers
from ..source.making import sample_tar, tfrecord
from ..source.test_codecs import Canary
from ..storage.test_cache import SIZE, FakeBlob, content, folder_of
from ..storage.test_cache import read as read_blob
from ..support import jpeg_bytes

#: what would make a file named "canary" in the working folder, if anybody ran it
WORDS = [
    "$(touch canary)",
    "`touch canary`",
    "; touch canary ;",
    "| touch canary",
    "pipe:touch canary",
    "!!python/object/apply:os.system ['touch canary']",
    "__import__('os').system('touch canary')",
    "{__import__('os').system('touch canary')}",
]


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in the working folder that must not appear, though all here that runs would make it."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "canary"
    assert not (tmp_path / "canary").exists()


def poisons(canary: Path) -> list[bytes]:
    array = io.BytesIO()
    np.save(array, np.array([Canary(canary)], object), allow_pickle=True)
    pickles = [pickle.dumps(Canary(canary), protocol) for protocol in (0, 2, 5)]
    return [*pickles, array.getvalue(), b"\x80\x05" + pickles[2][2:], *(word.encode() for word in WORDS)]


def use(pipeline: stoker.Pipeline, **how: Any) -> None:
    """Read all of it; errors are fine."""
    with contextlib.suppress(StokerError), pipeline.loader(**(how or {"executor": "inline"})) as loader:
        list(loader)


def test_no_field_of_any_extension_is_run_by_anybody(canary: Path, tmp_path: Path) -> None:
    endings = ["pkl", "pickle", "pyd", "pth", "pt", "dill", "npy", "npz", "jpg", "cls", "json", "txt", "ten", "bin", "mp", "yaml"]
    samples = [(f"{number:03d}", dict.fromkeys(endings, data) | {"x.cls": b"1"}) for number, data in enumerate(poisons(canary))]
    (tmp_path / "a.tar").write_bytes(sample_tar(samples))
    (tmp_path / "a.tfrecord").write_bytes(tfrecord(poisons(canary)))
    for index in ("auto", "never"):
        for ending in [*endings, None]:
            tar = stoker.tar(tmp_path / "a.tar", **({} if index == "auto" else {"index": "never"}))
            use((tar if ending is None else tar.select(ending)).on_error("skip", budget=99))
    tar = stoker.tar(tmp_path / "a.tar", decode=False).batch(4, pad=dict.fromkeys(endings, list))
    use(tar, processes=1)
    use(stoker.tfrecord(tmp_path / "a.tfrecord"))
    use(stoker.tfrecord(tmp_path / "a.tfrecord").batch(4), processes=1)


def test_names_of_files_folders_members_and_classes_are_only_names(tmp_path: Path) -> None:
    shard = io.BytesIO()
    with tarfile.open(fileobj=shard, mode="w") as tar:
        for number, word in enumerate(WORDS):
            name = word.replace("/", ".")
            (tmp_path / "data" / name).mkdir(parents=True)
            (tmp_path / "data" / name / f"{name}.jpg").write_bytes(jpeg_bytes(8, 8, seed=number))
            for ending in ("cls", "txt"):
                member = tarfile.TarInfo(f"{number}{word.replace('.', '')}.{ending}")
                member.size = 1
                tar.addfile(member, io.BytesIO(b"1"))
    (tmp_path / "names.tar").write_bytes(shard.getvalue())
    pipeline = stoker.files(tmp_path / "data")
    assert set(pipeline.classes or ()) == {word.replace("/", ".") for word in WORDS}
    use(pipeline.decode("image").batch(2), processes=1)
    use(stoker.tar(tmp_path / "names.tar").batch(2), processes=1)
    (tmp_path / "list.txt").write_text("\n".join(WORDS))
    with contextlib.suppress(StokerError):
        use(stoker.filelist(tmp_path / "list.txt", root=tmp_path / "data"))
    for word in WORDS:
        for source in (stoker.tar, stoker.tfrecord, stoker.lmdb, stoker.files, stoker.filelist):
            with contextlib.suppress(StokerError):
                use(source(word))


def test_annotations_are_only_text(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "annotations").mkdir()
    for number, word in enumerate(WORDS):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(jpeg_bytes(8, 8))
        box = "<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>"
        escaped = word.replace("&", "&amp;").replace("<", "&lt;")
        (tmp_path / "annotations" / f"{number}.xml").write_text(
            f"<annotation><filename>{escaped}</filename><object><name>{escaped}</name>{box}</object></annotation>"
        )
    (tmp_path / "list.txt").write_text("\n".join(map(str, range(len(WORDS)))))
    pipeline = stoker.voc(tmp_path / "list.txt", images=tmp_path / "images", annotations=tmp_path / "annotations")
    assert set(pipeline.classes or ()) == set(WORDS)
    use(pipeline)


def test_an_index_is_never_run(canary: Path, tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"txt": str(number)} for number in range(3)])
    [index] = tmp_path.glob("*.stk")
    whole = index.read_bytes()
    for poison in poisons(canary):
        for data in (poison, whole[: len(whole) // 2] + poison + whole[len(whole) // 2 :], whole + poison):
            index.write_bytes(data)
            with contextlib.suppress(StokerError):
                use(stoker.tar(tmp_path / "a.tar"))


def test_a_state_is_never_run(canary: Path) -> None:
    pipeline = numbers().filter(bool).batch(4)
    with pipeline.loader(executor="inline") as loader:
        next(iter(loader))
        state = loader.state_dict()
        for poison in poisons(canary):
            for bad in (poison, poison.decode("latin-1"), {"state": poison}):
                with pytest.raises(StateError):
                    loader.load_state_dict(bad)  # type: ignore[arg-type]
            for name in state:
                for value in (poison, poison.decode("latin-1"), [Canary(canary)]):
                    with pytest.raises(StateError):
                        loader.load_state_dict({**state, name: value})
        loader.load_state_dict(json.loads(json.dumps(state)))


def test_no_file_of_a_cache_is_run(canary: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with contextlib.closing(Cache(str(kept), limit=1 << 24)) as cache:
        read_blob(cache.wrap(FakeBlob("a", content(1))))
        files = [path.name for path in folder_of(cache).iterdir() if path.is_file()]
    assert len(files) >= 2
    for number, poison in enumerate(poisons(canary)):
        for name in files:
            copied = tmp_path / f"{number}-{name}"
            shutil.copytree(kept, copied)
            with contextlib.closing(Cache(str(copied), limit=1 << 24)) as cache:
                (folder_of(cache) / name).write_bytes(poison)
                assert read_blob(cache.wrap(FakeBlob("a", content(1)))) == content(1)[:SIZE]
            shutil.rmtree(copied)


def test_a_list_of_bad_samples_is_only_text_when_it_is_run_again(canary: Path, tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"txt": word} for word in WORDS])
    listed = tmp_path / f"bad {WORDS[0]}.jsonl"

    def failing(text: str) -> None:
        raise ValueError(text)

    use(stoker.tar(tmp_path / "a.tar").map(txt=failing).on_error("skip", budget=99, quarantine=str(listed)))
    first, *_ = lines = listed.read_text().splitlines()
    assert len(lines) == len(WORDS)
    poison = poisons(canary)[0]
    texts = {"pickle": poison.decode("latin-1"), "words": WORDS[0]}
    changed = [json.dumps({**json.loads(first), name: text}).encode() for name in json.loads(first) for text in texts.values()]
    for data in (poison, *changed):
        listed.write_bytes(data)
        CliRunner().invoke(app, ["verify", "--replay", str(listed), str(tmp_path / "a.tar")])


def test_the_canary_sings_where_it_is_run(canary: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    pickle.loads(pickle.dumps(Canary(other)))  # noqa: S301
    assert other.exists()
