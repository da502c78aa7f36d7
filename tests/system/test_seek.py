"""Seek indices change the speed of decoding and nothing else: batches, fingerprints and states are the same with and without.

JPEGs of several kinds lie in folders, tar shards and TFRecords. What reaches the decoder is recorded: batches alone cannot show
whether an index was used.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.image import CenterCrop, CropBox, HorizontalFlip, RandomResizedCrop, Resize
from stoker.kernel import native
from stoker.kernel.native import SeekUse
from stoker.kernel.records import crc32c
from stoker.kernel.render import SpanInput
from stoker.pack.jobs.notes import noted
from stoker.pack.jobs.seeking import add_seeks, index_folder
from stoker.source.shards.indexing import find_index, keep_index
from stoker.source.shards.shard_index import IndexHeader, SeekStrings, ShardIndex, seek_columns
from stoker.source.shards.sidecar import FIELD, NAME, keep_sidecar, own_sidecar, sidecar_trouble
from stoker.stage import image
from stoker.storage.local import LocalBlob

from ..storage.server import Server
from ..support import image_bytes, jpeg_bytes

SAMPLES = 24
#: a picture of each kind, in turn; the last two can have no seek index
KINDS: list[Callable[[int], bytes]] = [
    lambda n: jpeg_bytes(400 + n, 300, seed=n),
    lambda n: jpeg_bytes(320, 240 + n, seed=n, subsampling=0),
    lambda n: jpeg_bytes(333, 257, seed=n, mode="L"),
    lambda n: jpeg_bytes(300, 200, seed=n, optimize=True, quality=70),
    lambda n: image_bytes(200, 160, seed=n, format="PNG"),
    lambda n: b"\xff\xd8\xff" + bytes(40) if n == -1 else image_bytes(90, 70, seed=n, format="WEBP"),
]
SOUGHT = SAMPLES * 4 // 6


def pictures() -> list[bytes]:
    return [KINDS[number % len(KINDS)](number) for number in range(SAMPLES)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, tar shards and TFRecords of the same pictures, all with seek indices."""
    root = tmp_path_factory.mktemp("seek")
    data = pictures()
    for number, picture in enumerate(data):
        path = root / "photos" / f"c{number % 3}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
    folder = os.fsencode(root / "photos")
    keep_sidecar(folder, index_folder(folder).index)
    rows = [{"__key__": f"{number:03d}", "jpg": picture, "cls": number % 3} for number, picture in enumerate(data)]
    stoker.write_tar(root / "t-{}.tar", rows, max_samples=7, seek=True)
    records = [{"image": picture, "label": number % 3} for number, picture in enumerate(data)]
    stoker.write_tfrecord(root / "r-{}.tfrecord", records, max_samples=7, seek=True)
    lines = "".join(f"c{number % 3}/{number:03d}.jpg {number % 3}\n" for number in range(SAMPLES))
    (root / "photos" / "list.txt").write_text(lines)
    return root


SIDECAR_COLUMNS = ("start", "length", "crc", "key_data", "key_ends", "mtime_ns")


def make_sparse(path: Path, kind: str, columns: tuple[str, ...], size: int = 1 << 30) -> None:
    """An index file of 15 GB, of which all but the header is a hole."""
    rows = 15 * 10**9 // 8 // len(columns)
    table = [{"name": name, "dtype": "<i8", "shape": [rows], "at": 8 * rows * at} for at, name in enumerate(columns)]
    said = {"kind": kind, "fields": ["image"], "records": rows, "size": size, "mtime_ns": 0, "etag": "", "sealed": True}
    header = json.dumps(said | {"about": {}, "columns": table}).encode()
    total = 32 + len(header) + 8 * rows * len(columns)
    with path.open("wb") as file:
        file.write(struct.pack("<8sIIIIQ", b"STOKERIX", 1, len(header), crc32c(header), 0, total) + header)
        file.truncate(total)


Open = Callable[..., stoker.Pipeline]
SOURCES: dict[str, Callable[[Path], Open]] = {
    "files": lambda root: lambda **options: stoker.files(root / "photos", **options),
    "filelist": lambda root: lambda **options: stoker.filelist(root / "photos" / "list.txt", labels="line", **options),
    "tar": lambda root: lambda **options: stoker.tar(str(root / "t-*.tar"), **options).rename(image="jpg", label="cls"),
    "tfrecord": lambda root: lambda **options: stoker.tfrecord(str(root / "r-*.tfrecord"), **options),
}


@pytest.fixture(params=list(SOURCES))
def opened(request: pytest.FixtureRequest, made: Path) -> Open:
    return SOURCES[request.param](made)


class Recorder:
    """What became of the seek indices of the images that were decoded."""

    def __init__(self) -> None:
        self.uses: list[int] = []
        self.dropped = 0  # before they came to the decoder
        self.kernel_calls = 0  # that were given indices, apart from those that read and decode in one

    @property
    def used(self) -> int:
        return self.uses.count(SeekUse.USED)

    @property
    def unfit(self) -> int:
        return self.uses.count(SeekUse.UNFIT) + self.dropped


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found, note, tell = Recorder(), image._note_seeks, SpanInput.tell

    def noting(uses: Any, unfit: Any, *args: Any) -> None:
        found.uses += uses.tolist()
        found.dropped += len(unfit)
        note(uses, unfit, *args)

    def recording(self: SpanInput, spans: Any, seeks: Any = None, boxes: Any = None) -> Any:
        found.kernel_calls += seeks is not None
        return tell(self, spans, seeks, boxes)

    monkeypatch.setattr(image, "_note_seeks", noting)
    monkeypatch.setattr(SpanInput, "tell", recording)
    return found


@pytest.fixture(params=["in one call", "one after the other"])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Pictures are read and decoded in one call where that can be, and the other way where it cannot."""
    if request.param != "in one call":
        monkeypatch.setattr("stoker.source.shards.seeks.SeekTable.stored", lambda self, scratch: None)
    return bool(request.param == "in one call")


def crops(pipeline: stoker.Pipeline, size: int = 64) -> stoker.Pipeline:
    return pipeline.shuffle(seed=3).image("image", RandomResizedCrop(size), HorizontalFlip()).batch(5, drop_last=False)


def delivered(pipeline: stoker.Pipeline, **options: Any) -> list[tuple[list[str], bytes, list[int]]]:
    with pipeline.loader(**(options or {"executor": "inline"})) as loader:  # which works nothing ahead, so counts are exact
        return [(batch.sample_keys, batch["image"].tobytes(), batch["label"].tolist()) for batch in loader]


# ---- nothing but speed ---------------------------------------------------------------------------------------------------


def test_batches_are_the_same_with_and_without(opened: Open, recorder: Recorder, together: bool) -> None:
    plain = delivered(crops(opened(seek=False)))
    assert not recorder.uses
    assert delivered(crops(opened())) == plain
    assert recorder.used == SOUGHT and not recorder.unfit
    assert delivered(crops(opened()), threads=3) == plain


def test_pictures_are_read_found_and_decoded_in_one_call_where_they_can_be(made: Path, recorder: Recorder) -> None:
    def pixels(seek: bool) -> list[bytes]:
        tar, files = stoker.tar(str(made / "t-*.tar"), seek=seek), stoker.files(made / "photos", seek=seek)
        cropped = [tar.image("jpg", RandomResizedCrop(64)), files.image("image", RandomResizedCrop(64))]
        with cropped[0].batch(6).loader(executor="inline") as one, cropped[1].batch(6).loader(executor="inline") as two:
            return [batch["jpg"].tobytes() for batch in one] + [batch["image"].tobytes() for batch in two]

    assert pixels(True) == pixels(False)
    assert recorder.used == 2 * SOUGHT and recorder.kernel_calls == 0


@pytest.mark.parametrize(
    "ops",
    [(CenterCrop(48),), (Resize(40), CenterCrop(32)), (RandomResizedCrop(16, scale=(0.02, 0.05)),)],
    ids=["center", "resized", "tiny crops"],
)
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "exact"])
def test_pixels_do_not_depend_on_the_index_whatever_is_done_to_them(made: Path, ops: Any, fast: bool, recorder: Recorder) -> None:
    batches = [
        delivered(opened.image("image", *ops, fast=fast).batch(6))
        for opened in (SOURCES["tar"](made)(seek=False), SOURCES["tar"](made)())
    ]
    assert batches[0] == batches[1] and recorder.used == SOUGHT


def test_fingerprints_and_states_are_the_same(opened: Open) -> None:
    plain, sought = crops(opened(seek=False)), crops(opened())
    assert plain.fingerprint() == sought.fingerprint()
    whole = delivered(plain)
    for first, second in ((plain, sought), (sought, plain)):
        with first.loader() as loader:
            batches = iter(loader)
            next(batches), next(batches)
            state = loader.state_dict()
        with second.loader() as loader:
            loader.load_state_dict(state)
            rest = [(batch.sample_keys, batch["image"].tobytes(), batch["label"].tolist()) for batch in loader]
        assert rest == whole[2:]


def test_adding_seek_indices_to_shards_changes_no_fingerprint(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "a", "jpg": pictures()[0], "cls": 1}])
    before, blob = stoker.tar(tmp_path / "a.tar").fingerprint(), LocalBlob(os.fsencode(tmp_path / "a.tar"))
    data = (tmp_path / "a.tar").read_bytes()
    index = find_index(blob, "tar")
    assert index is not None
    keep_index(blob, add_seeks(blob, index))
    assert stoker.tar(tmp_path / "a.tar").fingerprint() == before
    assert (tmp_path / "a.tar").read_bytes() == data
    back = find_index(blob, "tar")
    assert back is not None and back.sealed and back.seeks is not None and (back.start == index.start).all()


# ---- the way to the decoder -------------------------------------------------------------------------------------------------


def test_seek_indices_pass_stages_that_leave_the_picture_alone(opened: Open, recorder: Recorder) -> None:
    pipeline = (
        opened()
        .map(label=lambda label: label + 1)
        .filter(lambda sample: sample["label"] != 2)
        .rename(photo="image")
        .select("photo", "label")
        .shuffle(seed=1, window=6)
        .image("photo", CenterCrop(32))
        .rename(image="photo")
        .batch(4)
    )
    found = delivered(pipeline)
    assert sum(len(keys) for keys, _, _ in found) == SAMPLES * 2 // 3
    assert recorder.used == sum(n % 3 != 1 and n % 6 < 4 for n in range(SAMPLES))


@pytest.mark.parametrize(
    "change",
    [
        lambda pipeline: pipeline.map(image=lambda image: image + b"\0"),
        lambda pipeline: pipeline.map(lambda sample: {**sample}),
        lambda pipeline: pipeline.flat_map(lambda sample: [sample]),
        lambda pipeline: pipeline.batch(4).unbatch(),
    ],
    ids=["map of the field", "map of samples", "flat_map", "an inner batch"],
)
def test_what_a_function_may_have_changed_has_no_seek_index(made: Path, change: Any, recorder: Recorder) -> None:
    pipeline = change(SOURCES["tar"](made)()).image("image", CenterCrop(32)).batch(4)
    assert len(delivered(pipeline)) == SAMPLES // 4
    assert not recorder.used


def test_skipped_samples_take_their_seek_indices_with_them(made: Path, recorder: Recorder) -> None:
    def refuse(label: int) -> list[int]:
        if label == 1:
            raise ValueError("not this one")
        return [0, 0, 8, 8]

    # Boxes that a function makes have to be there first, so that the rows are read, refused, and then decoded.
    pipeline = (
        SOURCES["tar"](made)()
        .map(label=refuse)
        .image("image", CenterCrop(32), boxes="label")
        .batch(6)
        .on_error("skip", budget=20)
    )
    delivered(pipeline)
    assert recorder.used == sum(n % 3 != 1 and n % 6 < 4 for n in range(SAMPLES))


def test_mixed_sources_keep_theirs(made: Path, recorder: Recorder) -> None:
    def mixed(seek: bool) -> stoker.Pipeline:
        return stoker.mix([SOURCES[name](made)(seek=seek) for name in ("tar", "tfrecord", "files")], until="first")

    plain = delivered(crops(mixed(False)))
    assert not recorder.used
    assert delivered(crops(mixed(True))) == plain
    assert recorder.used == 3 * SOUGHT and not recorder.unfit


def test_a_mix_of_shards_with_and_without_seeks_uses_what_there_is(made: Path, tmp_path: Path, recorder: Recorder) -> None:
    for path in made.glob("t-*.tar*"):
        shutil.copy(path, tmp_path)
    for number in (0, 2):
        blob = LocalBlob(os.fsencode(tmp_path / f"t-{number:06d}.tar"))
        index = find_index(blob, "tar")
        assert index is not None
        keep_index(blob, replace(index, seeks=None, tail=type(index.tail)()))
    assert delivered(crops(SOURCES["tar"](tmp_path)())) == delivered(crops(SOURCES["tar"](made)(seek=False)))
    assert recorder.used == sum(n % 6 < 4 for n in [*range(7, 14), *range(21, 24)])


def test_nothing_is_read_of_them_for_who_wants_bytes(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("seek indices were read")

    monkeypatch.setattr("stoker.source.shards.seeks.SeekTable.read", refuse)
    monkeypatch.setattr("stoker.source.shards.seeks.SeekTable.stored", refuse)
    for name in SOURCES:
        opened = SOURCES[name](made)()
        assert sum(len(batch["image"]) for batch in opened.batch(6)) == SAMPLES
        assert len(list(opened.decode("image").batch(6))) == SAMPLES // 6


def test_pipelines_travel_with_their_seek_indices(opened: Open, recorder: Recorder) -> None:
    pipeline = pickle.loads(pickle.dumps(crops(opened())))  # noqa: S301
    assert delivered(pipeline) == delivered(crops(opened(seek=False)))
    assert recorder.used == SOUGHT


def test_objects_of_one_picture_share_its_seek_index(tmp_path: Path, recorder: Recorder) -> None:
    def side(value: int) -> str:
        return f"<xmin>{value}</xmin><ymin>{value}</ymin><xmax>{value + 90}</xmax><ymax>{value + 80}</ymax>"

    def boxed(value: int) -> str:
        return f"<object><name>cat</name><bndbox>{side(value)}</bndbox></object>"

    for name in ("images", "notes"):
        (tmp_path / name).mkdir()
    for number in range(3):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(jpeg_bytes(300, 200, seed=number))
        text = f"<annotation>{boxed(5)}{boxed(40 + number)}</annotation>"
        (tmp_path / "notes" / f"{number}.xml").write_text(text)
    (tmp_path / "list.txt").write_text("0\n1\n2\n")
    folder = os.fsencode(tmp_path / "images")
    keep_sidecar(folder, index_folder(folder).index)

    def opened(seek: bool) -> stoker.Pipeline:
        return stoker.voc(tmp_path / "list.txt", images=tmp_path / "images", annotations=tmp_path / "notes", seek=seek)

    assert opened(True).plan.source.seeks("image") == 6  # type: ignore[union-attr]
    boxes = [opened(seek).image("image", CropBox("box"), Resize((32, 32))).shuffle(seed=1).batch(6) for seek in (False, True)]
    plain, sought = (next(iter(pipeline))["image"].tobytes() for pipeline in boxes)
    assert plain == sought and recorder.used == 6


# ---- what does not fit ------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder, with its sidecar; times of change differ, which does not matter."""
    shutil.copytree(made / "photos", tmp_path / "photos")
    return tmp_path / "photos"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "seek ind" in record.getMessage()]


def test_a_file_that_changed_is_decoded_without_and_told_once(
    photos: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture, together: bool
) -> None:
    sizes = {}
    for number in (0, 6):  # one of another size, one of the same with a byte changed far behind its beginning
        path = photos / f"c{number % 3}" / f"{number:03d}.jpg"
        data = bytearray(path.read_bytes())
        sizes[number] = len(data)
        if number:
            at = data.rindex(b"\xff\xd9") - 400
            data[at] = data[at] ^ 1 if data[at] not in (0xFE, 0xFF) else 0x55
            path.write_bytes(data)
        else:
            path.write_bytes(jpeg_bytes(390, 310, seed=99))
    with crops(stoker.files(photos, seek=False)).on_error("skip", budget=2).loader(executor="inline") as loader:
        plain = [batch["image"].tobytes() for _ in range(2) for batch in loader]
    caplog.set_level(logging.WARNING, logger="stoker")
    with crops(stoker.files(photos)).on_error("skip", budget=2).loader(executor="inline") as loader:
        assert [batch["image"].tobytes() for _ in range(2) for batch in loader] == plain
        stats = loader.stats()
        assert (stats.seeks_used, stats.seeks_unfit) == (2 * (SOUGHT - 2), 4)
        assert "4 of 32 seek indices did not fit" in loader.why()
    assert recorder.unfit == 4 and recorder.used == 2 * (SOUGHT - 2)
    assert len(told(caplog)) == 1 and "stoker index --jpeg --force" in told(caplog)[0] and str(photos) in told(caplog)[0]


def test_an_index_of_another_picture_is_noticed_by_the_decoder(
    made: Path, tmp_path: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checksum is right: somebody made it so."""
    for path in made.glob("r-*.tfrecord*"):
        shutil.copy(path, tmp_path)
    blob = LocalBlob(os.fsencode(tmp_path / "r-000000.tfrecord"))
    index = find_index(blob, "tfrecord")
    assert index is not None and index.seeks is not None
    with native.Decoder() as decoder:
        stranger, _ = decoder.seek_index(native.Program(), jpeg_bytes(500, 400, seed=77))
    strings = SeekStrings()
    for length in index.seeks["image"].length.tolist():
        strings.add(stranger if length else b"")
    columns, tail = seek_columns({"image": strings}, len(index))
    keep_index(blob, replace(index, seeks=columns, tail=tail))
    caplog.set_level(logging.WARNING, logger="stoker")
    assert delivered(crops(SOURCES["tfrecord"](tmp_path)())) == delivered(crops(SOURCES["tfrecord"](made)(seek=False)))
    wrong = sum(n % 6 < 4 for n in range(7))
    assert (recorder.unfit, recorder.used) == (wrong, SOUGHT - wrong)
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("change", ["damaged", "gone", "replaced"])
def test_a_tail_that_goes_bad_while_a_run_is_on_costs_speed_alone(
    change: str, made: Path, tmp_path: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture, together: bool
) -> None:
    for path in made.glob("t-*.tar*"):
        shutil.copy(path, tmp_path)

    def opened(folder: Path, **options: Any) -> stoker.Pipeline:
        read = stoker.tar(str(folder / "t-*.tar"), **options).shuffle(seed=3)
        return read.image("jpg", RandomResizedCrop(64)).rename(image="jpg", label="cls").batch(5, drop_last=False)

    pipeline, path = opened(tmp_path), tmp_path / "t-000001.tar.stk"
    tail = ShardIndex.read(LocalBlob(os.fsencode(path))).tail
    if change == "damaged":
        data = bytearray(path.read_bytes())
        data[tail.at :] = bytes(byte ^ 0xA5 for byte in data[tail.at :])
        about = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    elif change == "gone":
        path.unlink()
    else:
        path.write_bytes(b"something else")
    caplog.set_level(logging.WARNING, logger="stoker")
    assert delivered(pipeline) == delivered(opened(made, seek=False))
    assert bool(recorder.kernel_calls) != together
    wrong = sum(n % 6 < 4 for n in range(7, 14))
    assert (recorder.unfit, recorder.used) == (wrong, SOUGHT - wrong)
    assert len(told(caplog)) == 1


def test_a_damaged_sidecar_is_told_of_and_left_alone(photos: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    sidecar = photos / NAME.decode()
    data = bytearray(sidecar.read_bytes())
    data[60] ^= 1
    sidecar.write_bytes(data)
    caplog.set_level(logging.WARNING, logger="stoker")
    assert delivered(crops(stoker.files(photos))) == delivered(crops(stoker.files(photos, seek=False)))
    assert not recorder.used
    assert len(told(caplog)) == 1 and "its checksum is wrong" in told(caplog)[0] and "--jpeg --force" in told(caplog)[0]


@pytest.mark.parametrize("lacking", [True, False])
def test_a_sparse_sidecar_of_15_gb_is_refused_before_memory_is_taken(
    photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lacking: bool
) -> None:
    """Whether it has the columns of a sidecar or not: it is too large for the files there are."""
    monkeypatch.setattr(IndexHeader, "load", lambda header: pytest.fail("it was read"))
    make_sparse(photos / NAME.decode(), "files", ("start", "length") if lacking else (*SIDECAR_COLUMNS, "more"))
    assert stoker.files(photos).plan.source.seeks("image") == 0  # type: ignore[union-attr]
    assert own_sidecar(os.fsencode(photos)) is None
    why = "of another kind" if lacking else "15.0 GB of columns, too much for 2"
    assert why in sidecar_trouble(os.fsencode(photos)) and caplog.text.count(why) == 2


def test_a_sidecar_is_bounded_by_the_number_of_files(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.source.shards.sidecar._FREE_BYTES", 100)
    assert stoker.files(photos).plan.source.seeks("image") == SOUGHT  # type: ignore[union-attr]
    assert own_sidecar(os.fsencode(photos)) is not None


@pytest.mark.parametrize("kind", ["tar", "files", "another"])
def test_a_sparse_index_is_not_read_for_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Of an index of 15 GB, its kind or the size of the shard tell enough."""
    with stoker.TarWriter(tmp_path / "a.tar", about={"made": {"by": "us"}}) as shard:
        shard.write({"cls": 1})
    assert (told := noted(str(tmp_path / "a.tar"), "made")) is not None and told[0] == {"by": "us"}
    monkeypatch.setattr(IndexHeader, "load", lambda header: pytest.fail("it was read"))
    size = 1 << 40 if kind == "tar" else (tmp_path / "a.tar").stat().st_size
    make_sparse(tmp_path / "a.tar.stk", kind, ("start", "length"), size)
    assert noted(str(tmp_path / "a.tar"), "made") is None


def test_a_sidecar_of_a_stranger_is_not_believed(
    photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stoker.source.shards.sidecar._owners", lambda folder: frozenset([-7]))
    assert stoker.files(photos).plan.source.seeks("image") == 0  # type: ignore[union-attr]
    assert "belongs to user" in caplog.text


# ---- where they are found ---------------------------------------------------------------------------------------------------


def test_a_list_of_some_files_and_a_part_of_a_folder_find_the_sidecar_above(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    some = [photos / "c1" / "001.jpg", photos / "c0" / "003.jpg", photos / "c0" / "000.jpg", photos / "c0" / "004.jpg"]
    (tmp_path / "elsewhere" / "some.txt").write_text("".join(f"{path}\n" for path in some))
    assert stoker.filelist(tmp_path / "elsewhere" / "some.txt").plan.source.seeks("image") == 3  # type: ignore[union-attr]
    assert stoker.files(photos / "c2", labels=None).plan.source.seeks("image") == 4  # type: ignore[union-attr]
    assert stoker.files(photos, "**/00*.jpg").plan.source.seeks("image") == 8  # type: ignore[union-attr]
    assert stoker.files(tmp_path, labels=None).plan.source.seeks("image") == 0  # type: ignore[union-attr]


def test_files_that_came_later_have_none(photos: Path, recorder: Recorder) -> None:
    (photos / "c0" / "later.jpg").write_bytes(jpeg_bytes(300, 200, seed=5))
    (photos / "c0" / "000.jpg").unlink()
    assert delivered(crops(stoker.files(photos))) == delivered(crops(stoker.files(photos, seek=False)))
    assert recorder.used == SOUGHT - 1


def test_only_files_that_changed_are_read_again(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(photos)
    keep_sidecar(folder, index_folder(folder).index)
    fresh = jpeg_bytes(340, 220, seed=1)
    (photos / "c1" / "001.jpg").write_bytes(fresh)
    asked: list[bytes] = []
    make = native.Decoder.seek_index
    monkeypatch.setattr(
        native.Decoder,
        "seek_index",
        lambda self, program, data, step: asked.append(bytes(data)) or make(self, program, data, step),
    )
    again = index_folder(folder, own_sidecar(folder))
    assert again.kept == SAMPLES - 1 and asked == [fresh]
    assert again.index.to_bytes() == index_folder(folder).index.to_bytes()


def test_where_a_folder_cannot_be_written_to_its_sidecar_is_kept_in_the_users_cache(
    photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorder: Recorder
) -> None:
    from stoker.errors import WriteError
    from stoker.source.shards import shard_index

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (photos / NAME.decode()).unlink()
    publish = shard_index.publish

    def refuse(path: bytes, *parts: bytes) -> None:
        if path.startswith(os.fsencode(photos)):
            raise WriteError("read-only")
        publish(path, *parts)

    monkeypatch.setattr(shard_index, "publish", refuse)
    folder = os.fsencode(photos)
    assert str(tmp_path / "home") in keep_sidecar(folder, index_folder(folder).index)
    delivered(crops(stoker.files(photos)))
    assert recorder.used == SOUGHT


@pytest.fixture
def server(made: Path) -> Iterator[Server]:
    with Server() as running:
        running.put_all(made.glob("t-*.tar*"))
        yield running


@pytest.mark.parametrize("block", [None, "64KiB"], ids=["whole shards", "blocks"])
def test_remote_shards_use_them_through_their_cache(
    server: Server, made: Path, tmp_path: Path, recorder: Recorder, block: str | None
) -> None:
    url, cache = f"{server.origin}/t-{{000000..000003}}.tar", stoker.Cache(tmp_path / "cache", block=block)
    plain = delivered(crops(SOURCES["tar"](made)(seek=False)))
    pipeline = crops(stoker.tar(url, cache=cache).rename(image="jpg", label="cls"))
    assert delivered(pipeline) == plain
    assert recorder.used == SOUGHT and not recorder.unfit
    assert delivered(pipeline, epoch=0) == plain and cache.counts().damaged == 0


def test_remote_shards_without_a_cache_are_decoded_without_them(server: Server, made: Path, recorder: Recorder) -> None:
    pipeline = crops(stoker.tar(f"{server.origin}/t-{{000000..000003}}.tar").rename(image="jpg", label="cls"))
    assert delivered(pipeline) == delivered(crops(SOURCES["tar"](made)(seek=False)))
    assert not recorder.used


# ---- what is told -----------------------------------------------------------------------------------------------------------


def test_explain_says_whether_a_pipeline_reads_with_seek_indices(made: Path, opened: Open) -> None:
    assert f"seek index for {SOUGHT} of {SAMPLES} pictures in " in crops(opened()).explain()
    assert "seek index" not in crops(opened(seek=False)).explain()
    changed = crops(opened().map(image=lambda image: image))
    assert "seek index" not in changed.explain() and "seek index" not in opened().batch(4).explain()


def test_pictures_too_large_or_damaged_have_no_seek_index(tmp_path: Path) -> None:
    whole = jpeg_bytes(300, 200, seed=1)
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "whole.jpg").write_bytes(whole)
    made = index_folder(os.fsencode(tmp_path))
    assert made.index.seeks is not None and (made.index.seeks[FIELD].length > 0).sum() == 1
    assert [bool(length) for length in made.index.seeks["image"].length.tolist()] == [False, False, True]
    assert np.array_equal(made.index.length[:, 0], [len(whole) // 2, 0, len(whole)])


def test_the_cache_is_told_of_seek_indices_once_somebody_decodes(server: Server, tmp_path: Path) -> None:
    def fetched(folder: str, epochs: int, pipeline: Callable[[stoker.Pipeline], stoker.Pipeline]) -> int:
        cache = stoker.Cache(tmp_path / folder)
        opened = stoker.tar(f"{server.origin}/t-{{000000..000003}}.tar", cache=cache).rename(image="jpg", label="cls")
        with pipeline(opened).loader(executor="inline") as loader:
            for _ in range(epochs):
                assert sum(batch.rows for batch in loader) == SAMPLES
        return cache.counts().fetched

    assert fetched("bytes", 2, lambda opened: opened.batch(4)) == 4
    assert fetched("pixels", 2, lambda opened: opened.image("image", CenterCrop(32)).batch(4)) == 8
