"""Any source into any format, and what must come back."""

from __future__ import annotations

import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.errors import ConfigError, DataLossError, ImageTooLarge, WriteError
from stoker.pack.jobs.convert import Conversion, ShardOutcome, convert_stream
from stoker.pack.jobs.planning import Options, shuffled, split
from stoker.pack.values.field_choice import choose_fields
from stoker.pack.values.stored_images import picture_kind, shrink
from stoker.pack.writers.keys import UniqueKeys, safe_key
from stoker.source.chunk import BYTES
from stoker.source.files.labelled_files import FilesSource
from stoker.source.shards.shard_index import ShardIndex
from stoker.source.shards.tar_source import TarSource
from stoker.source.source import Source
from stoker.source.streams.sequential import TarStream
from stoker.source.streams.tfrecord_stream import TfrecordStream
from stoker.storage.local import LocalBlob

from ..support import image_bytes, jpeg_bytes, read

Samples = dict[str, dict[str, Any]]
ENDINGS = {"tar": ".tar", "tfrecord": ".tfrecord", "lmdb": ".lmdb"}


def source_of(pipeline: stoker.Pipeline) -> Source:
    source = pipeline.plan.source
    assert isinstance(source, Source)
    return source


def needs(format: str) -> None:
    """Pass over a test of databases where the library that writes them is not installed."""
    if format == "lmdb":
        pytest.importorskip("lmdb")


def opened(path: str) -> Source:
    """What was written, as `stoker pack` would read it."""
    if path.endswith(".tar"):
        return source_of(stoker.tar(path))
    return source_of(stoker.tfrecord(path) if path.endswith(".tfrecord") else stoker.lmdb(path))


def packed(source: Source, path: Path, **options: Any) -> str:
    """The source in one file, of the format its name says."""
    format = next(name for name, ending in ENDINGS.items() if path.name.endswith(ending))
    needs(format)
    conversion = Conversion(source, str(path), Options(format, **options))
    assert conversion.shards == 1
    shard = conversion.write(0)
    assert shard.path and not shard.bad
    return str(path)


def decoded(path: str) -> Samples:
    """All samples of a tar by key, in a form that can be compared."""
    source = source_of(stoker.tar(path))
    rows = read(source)
    assert not rows.errors
    return {source.key(row): {name: _comparable(rows.columns[name][row]) for name in source.fields} for row in range(len(source))}


def _comparable(value: Any) -> Any:
    return (value.dtype.str, value.tolist()) if isinstance(value, (np.ndarray, np.generic)) else value


@pytest.fixture
def rich_tar(tmp_path: Path) -> str:
    """A tar with a field of every kind."""
    path = str(tmp_path / "rich.tar")
    samples = [
        {
            "__key__": f"part/{number:02d}" if number % 2 else f"{9 - number}_x",
            "jpg": jpeg_bytes(40, 30, seed=number),
            "seg.png": image_bytes(10, 10, format="PNG", mode="L", seed=number),
            "cls": number,
            "count": -number,
            "json": {"name": f"ü{number}", "list": [1, 2.5, None]},
            "txt": f"text {number}\nand more",
            "npy": np.arange(number + 1, dtype=np.float32),
            "dat": bytes(range(number)),
        }
        for number in range(7)
    ]
    stoker.write_tar(path, samples)
    return path


# ---- there and back ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ENDINGS)
def test_files_keep_image_label_and_key_through_every_format(image_folder: Path, tmp_path: Path, format: str) -> None:
    files = FilesSource(image_folder)
    middle = packed(files, tmp_path / f"middle{ENDINGS[format]}")
    result = decoded(packed(opened(middle), tmp_path / "result.tar"))
    expected = {
        f"{path.parent.name}/{path.stem}": {"jpg": path.read_bytes(), "cls": ("<i8", files.classes.index(path.parent.name))}
        for path in sorted(image_folder.glob("*/*.jpg"))
    }
    assert result == expected


@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
def test_every_kind_of_field_comes_back_through_any_two_formats(rich_tar: str, tmp_path: Path, format: str, second: str) -> None:
    one = packed(opened(rich_tar), tmp_path / f"one{ENDINGS[format]}")
    two = packed(opened(one), tmp_path / f"two{ENDINGS[second]}")
    assert decoded(packed(opened(two), tmp_path / "result.tar")) == decoded(rich_tar)


def test_a_tar_of_ours_is_copied_byte_for_byte(rich_tar: str, tmp_path: Path) -> None:
    assert Path(packed(opened(rich_tar), tmp_path / "copy.tar")).read_bytes() == Path(rich_tar).read_bytes()


def test_records_stay_as_they_are_between_tfrecords(tmp_path: Path) -> None:
    stoker.write_tfrecord(tmp_path / "a.tfrecord", [b"not an example", b"", b"x" * 1000])
    assert (
        Path(packed(opened(str(tmp_path / "a.tfrecord")), tmp_path / "b.tfrecord")).read_bytes()
        == (tmp_path / "a.tfrecord").read_bytes()
    )


def test_features_of_tensorflow_get_extensions_in_a_tar(tmp_path: Path) -> None:
    examples = [
        {
            "image/encoded": jpeg_bytes(seed=number),
            "image/class/label": number,
            "image/class/text": b"cat",
            "label": number,
            "box": np.array([0.5, number], np.float32),
            "ids": list(range(number)),
            "names": [b"a", "ü".encode()][: number + 1],
        }
        for number in range(3)
    ]
    stoker.write_tfrecord(tmp_path / "a.tfrecord", examples)
    found = decoded(packed(opened(str(tmp_path / "a.tfrecord")), tmp_path / "b.tar"))
    assert found["000000002"] == {
        "jpg": examples[2]["image/encoded"],
        "image.class.label.cls": ("<i8", 2),
        "image.class.text": "cat",
        "cls": ("<i8", 2),
        "box.npy": ("<f4", [0.5, 2.0]),
        "ids.npy": ("<i8", [0, 1]),
        "names.json": ["a", "ü"],
    }


def test_samples_that_lack_a_field_are_copied_as_they_are(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "1", "txt": "a", "cls": 3}, {"__key__": "2", "txt": "b"}])
    copied = packed(opened(str(tmp_path / "a.tar")), tmp_path / "b.tar")
    assert Path(copied).read_bytes() == (tmp_path / "a.tar").read_bytes()


def test_pickles_are_copied_and_never_opened(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "1", "pkl": b"cos\nsystem\n(S'false'\ntR."}])
    copied = packed(opened(str(tmp_path / "a.tar")), tmp_path / "b.lmdb")
    assert opened(copied).fields["pkl"] == BYTES


def test_arrays_with_a_shape_are_stored_whole_in_an_example(tmp_path: Path) -> None:
    needs("lmdb")
    values = np.arange(12, dtype=np.float64).reshape(2, 3, 2)
    stoker.write_lmdb(tmp_path / "a.lmdb", [{"x": values[number], "y": 0.1 + number} for number in range(2)])
    middle = packed(opened(str(tmp_path / "a.lmdb")), tmp_path / "b.tfrecord")
    found = list(decoded(packed(opened(middle), tmp_path / "c.tar")).values())
    assert found[1] == {"x.npy": ("<f8", values[1].tolist()), "y.npy": ("<f8", 1.1)}


# ---- names ------------------------------------------------------------------------------------------------------------------


def test_fields_can_be_chosen_and_renamed(rich_tar: str, tmp_path: Path) -> None:
    found = decoded(packed(opened(rich_tar), tmp_path / "b.tar", fields="image.jpg=jpg,cls"))
    assert all(sample.keys() == {"image.jpg", "cls"} for sample in found.values())
    with pytest.raises(ConfigError, match="no field 'gif'"):
        packed(opened(rich_tar), tmp_path / "c.tar", fields="cls,gif")


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="both be written as 'x'"):
        choose_fields({"a": BYTES, "b": BYTES}, {}, "tar", raw=True, chosen="x=a,x=b")


def test_the_extension_is_that_of_most_pictures_or_of_each(tmp_path: Path) -> None:
    for number, format in enumerate(("PNG", "PNG", "WEBP")):
        (tmp_path / f"{number}.jpg").write_bytes(image_bytes(20, 20, format=format))
    source = FilesSource(tmp_path, labels=None)
    assert list(opened(packed(source, tmp_path / "a.tar")).fields) == ["png"]
    each = packed(source, tmp_path / "b.tar", by_content=True)
    assert set(opened(each).fields) == {"png", "webp"}


def test_keys_are_made_safe_and_unique(tmp_path: Path) -> None:
    for name in ("x.jpg", "x.png", "x.gif", "a.b.jpg", "a_b.jpg", "x-2.jpg"):
        (tmp_path / name).write_bytes(jpeg_bytes(seed=len(name)))
    conversion = Conversion(FilesSource(tmp_path, labels=None), str(tmp_path / "o.tar"), Options())
    assert [conversion.keys[row] for row in range(6)] == [b"a_b", b"a_b-2", b"x-2", b"x", b"x-3", b"x-4"]
    assert conversion.keys.changed == 3
    assert conversion.write(0).samples == 6


@pytest.mark.parametrize(
    ("key", "safe"),
    [(b"/etc/passwd", b"etc/passwd"), (b"../../x", b"__/__/x"), (b"a/./b.c.d", b"a/b_c_d"), (b"a\nb", b"a_b"), (b"", b"_")],
)
def test_no_key_leads_out_of_its_folder(key: bytes, safe: bytes) -> None:
    assert safe_key(key) == safe


def test_keys_that_agree_only_in_their_hash_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.pack.writers.keys._hash", len)
    keys = [b"ab", b"cd", b"ab", b"x"]
    unique = UniqueKeys(4, keys.__getitem__)
    assert [unique[row] for row in range(4)] == [b"ab", b"cd", b"ab-2", b"x"]


def test_the_same_key_in_two_shards_becomes_two_samples(tmp_path: Path) -> None:
    for shard in "ab":
        stoker.write_tar(tmp_path / f"{shard}.tar", [{"__key__": "k", "txt": shard}])
    assert decoded(packed(opened(str(tmp_path / "?.tar")), tmp_path / "out.tar")) == {"k": {"txt": "a"}, "k-2": {"txt": "b"}}


# ---- splitting --------------------------------------------------------------------------------------------------------------


def give_up(samples: int, nbytes: int) -> None:
    """What a command does that is interrupted."""
    raise InterruptedError


def write_all(conversion: Conversion, **how: Any) -> list[ShardOutcome]:
    return [conversion.write(number, **how) for number in range(conversion.shards)]


@pytest.mark.parametrize("most", [20_480, 40_960, 100_000])
def test_a_shard_is_never_larger_than_asked_for(image_folder: Path, tmp_path: Path, most: int) -> None:
    for ending in (".tar", ".tfrecord"):
        options = Options(ending[1:], max_bytes=most)
        shards = write_all(Conversion(FilesSource(image_folder), str(tmp_path / f"{{:03d}}{ending}"), options))
        assert sum(shard.samples for shard in shards) == 24 and len(shards) > 1
        assert all(os.stat(shard.path).st_size == shard.bytes <= most for shard in shards)
    names = ("x" * 90 + "/" + "ü" * 40 + f"{number}" for number in range(9))
    stoker.write_tar(tmp_path / "long.tar", [{"__key__": name, "txt": "a" * 700, "cls": 1} for name in names])
    shards = write_all(Conversion(opened(str(tmp_path / "long.tar")), str(tmp_path / "l{}.tar"), Options(max_bytes=most)))
    assert all(shard.bytes <= most for shard in shards)


def test_a_sample_larger_than_a_shard_gets_one_of_its_own(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": str(number), "bin": bytes(5000)} for number in range(3)])
    conversion = Conversion(opened(str(tmp_path / "a.tar")), str(tmp_path / "{}.tar"), Options(max_bytes=100))
    assert [shard.samples for shard in write_all(conversion)] == [1, 1, 1]


def test_splitting_counts_and_measures() -> None:
    sizes = np.array([5, 5, 5, 5, 5])
    assert split(sizes, 10, None).tolist() == [0, 2, 4, 5]
    assert split(sizes, 100, 2).tolist() == [0, 2, 4, 5]
    assert split(sizes, None, None).tolist() == [0, 5]


def test_a_shuffle_is_a_permutation_that_depends_on_the_seed() -> None:
    assert sorted(shuffled(100, 1).tolist()) == list(range(100))
    assert shuffled(100, 1).tolist() == shuffled(100, 1).tolist() != shuffled(100, 2).tolist()


def test_one_file_is_refused_when_it_takes_several(image_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"out-\{:06d\}\.tar"):
        Conversion(FilesSource(image_folder), str(tmp_path / "out.tar"), Options(max_samples=3))


# ---- again ------------------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.tar"))}


def make(folder: Path, tmp_path: Path, name: str, **options: Any) -> Conversion:
    (tmp_path / name).mkdir(exist_ok=True)
    return Conversion(FilesSource(folder), str(tmp_path / name / "{}.tar"), Options(max_samples=5, **options))


def test_shards_are_the_same_in_whatever_order_they_are_written(image_folder: Path, tmp_path: Path) -> None:
    forth, back = (make(image_folder, tmp_path, name, seed=3) for name in ("a", "b"))
    for number in range(forth.shards):
        forth.write(number)
        back.write(back.shards - 1 - number)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") and forth.shards == 5


def test_what_was_made_by_the_same_recipe_stands(image_folder: Path, tmp_path: Path) -> None:
    first = make(image_folder, tmp_path, "a")
    first.write(1)
    first.write(4)
    again = make(image_folder, tmp_path, "a").standing()
    assert {number: (shard.samples, shard.kept) for number, shard in again.items()} == {1: (5, True), 4: (4, True)}


@pytest.mark.parametrize("change", ["options", "data", "index", "size", "no index", "moved"])
def test_what_was_made_otherwise_is_in_the_way(image_folder: Path, tmp_path: Path, change: str) -> None:
    photos = tmp_path / "photos"
    for path in image_folder.glob("*/*.jpg"):
        (photos / path.parent.name).mkdir(parents=True, exist_ok=True)
        (photos / path.parent.name / path.name).write_bytes(path.read_bytes())
    make(photos, tmp_path, "a").write(1)
    shard, index = tmp_path / "a" / "000001.tar", tmp_path / "a" / "000001.tar.stk"
    options: dict[str, Any] = {}
    if change == "options":
        options = {"resize_max": 50}
    elif change == "data":
        (photos / "owl" / "owl_00.jpg").write_bytes(jpeg_bytes(10, 10))
    elif change == "index":
        index.write_bytes(index.read_bytes()[:-1])
    elif change == "size":
        shard.write_bytes(shard.read_bytes() + bytes(512))
    elif change == "no index":
        index.unlink()
    else:
        shard.rename(tmp_path / "a" / "000002.tar")
        index.rename(tmp_path / "a" / "000002.tar.stk")
    before = contents(tmp_path / "a")
    with pytest.raises(WriteError, match="already there"):
        make(photos, tmp_path, "a", **options).standing()
    assert contents(tmp_path / "a") == before


def test_overwriting_replaces_and_more_shards_than_planned_are_in_the_way(image_folder: Path, tmp_path: Path) -> None:
    write_all(make(image_folder, tmp_path, "a"))
    fewer = Conversion(FilesSource(image_folder), str(tmp_path / "a" / "{}.tar"), Options(max_samples=6), overwrite=True)
    with pytest.raises(WriteError, match=r"000004\.tar is already there.*delete"):
        fewer.standing()
    for path in (tmp_path / "a").glob("000004*"):
        path.unlink()
    assert fewer.standing() == {} and [shard.samples for shard in write_all(fewer)] == [6, 6, 6, 6]
    assert len(source_of(stoker.tar(tmp_path / "a"))) == 24


def test_an_index_without_its_shard_is_replaced(image_folder: Path, tmp_path: Path) -> None:
    conversion = make(image_folder, tmp_path, "a")
    conversion.write(0)
    (tmp_path / "a" / "000000.tar").unlink()  # as if killed between the two
    assert conversion.standing() == {}
    assert conversion.write(0).samples == 5
    assert set(conversion.standing()) == {0}


def test_a_file_in_the_place_of_the_index_is_not_touched(image_folder: Path, tmp_path: Path) -> None:
    conversion = make(image_folder, tmp_path, "a")
    note = tmp_path / "a" / "000000.tar.stk"
    note.write_text("mine")
    with pytest.raises(WriteError, match="is not an index"):
        conversion.write(0)
    assert note.read_text() == "mine" and not list((tmp_path / "a").glob(".*"))


def test_a_source_cannot_be_written_over(rich_tar: str) -> None:
    with pytest.raises(ConfigError, match="would be read and written at the same time"):
        Conversion(opened(rich_tar), rich_tar, Options(max_bytes=None), overwrite=True).standing()


def test_stopping_leaves_nothing_half_written(image_folder: Path, tmp_path: Path) -> None:
    conversion = make(image_folder, tmp_path, "a")
    with pytest.raises(InterruptedError):
        conversion.write(0, moved=give_up)
    assert list((tmp_path / "a").iterdir()) == []


# ---- bad samples ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Source:
    """Twelve samples in a tar, of which two were damaged after they were indexed."""
    path = tmp_path / "damaged.tar"
    stoker.write_tar(path, [{"__key__": f"k{number:02d}", "txt": f"text of sample {number:02d}"} for number in range(12)])
    data = bytearray(path.read_bytes())
    for number in (4, 5):
        data[data.index(f"text of sample {number:02d}".encode())] ^= 1
    index = path.with_name("damaged.tar.stk").read_bytes()
    path.write_bytes(data)
    path.with_name("damaged.tar.stk").write_bytes(index)
    return opened(str(path))


@pytest.mark.parametrize("format", ENDINGS)
def test_bad_samples_keep_their_shard_back_and_are_all_named(damaged: Source, tmp_path: Path, format: str) -> None:
    needs(format)
    pattern = tmp_path / ("o.lmdb" if format == "lmdb" else f"{{}}{ENDINGS[format]}")
    conversion = Conversion(damaged, str(pattern), Options(format, max_samples=3))
    shards = write_all(conversion)
    assert [bad.key for shard in shards for bad in shard.bad] == ["k04", "k05"]
    assert "checksum" in shards[0 if format == "lmdb" else 1].bad[0].reason
    assert [bool(shard.path) for shard in shards] == ([False] if format == "lmdb" else [True, False, True, True])
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("format", ENDINGS)
def test_bad_samples_can_be_left_out_and_are_remembered(damaged: Source, tmp_path: Path, format: str) -> None:
    needs(format)
    pattern = tmp_path / ("o.lmdb" if format == "lmdb" else f"{{}}{ENDINGS[format]}")
    conversion = Conversion(damaged, str(pattern), Options(format, max_samples=3))
    shards = write_all(conversion, skip_bad=True)
    assert sum(shard.samples for shard in shards) == 10
    if format != "lmdb":
        assert conversion.standing()[1].bad == shards[1].bad and len(shards[1].bad) == 2


def test_a_shard_of_bad_samples_only_is_an_error(damaged: Source, tmp_path: Path) -> None:
    conversion = Conversion(damaged, str(tmp_path / "{}.tar"), Options(max_samples=2))
    with pytest.raises(DataLossError, match="every sample"):
        conversion.write(2, skip_bad=True)


# ---- pictures ---------------------------------------------------------------------------------------------------------------


def sides(data: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(data)).size


def test_only_pictures_that_are_too_large_change() -> None:
    small, large = jpeg_bytes(100, 60), jpeg_bytes(400, 200)
    assert shrink(small, 100, 90) is small
    assert sides(shrink(large, 100, 90)) == (100, 50)
    assert sides(shrink(image_bytes(30, 300, format="PNG"), 100, 90)) == (10, 100)
    webp = image_bytes(300, 300, format="WEBP")
    assert shrink(webp, 100, 90) is webp and shrink(b"text", 1, 90) == b"text"


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_the_mode_of_a_jpeg_stays(mode: str) -> None:
    made = Image.open(io.BytesIO(shrink(jpeg_bytes(200, 100, mode=mode), 50, 80)))
    assert (made.mode, made.format, made.size) == (mode, "JPEG", (50, 25))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
def test_the_mode_of_a_png_stays(mode: str) -> None:
    image = Image.fromarray(np.arange(200 * 100, dtype=np.uint16).reshape(100, 200)) if mode == "I;16" else None
    out = io.BytesIO()
    (image or Image.open(io.BytesIO(jpeg_bytes(200, 100))).convert(mode)).save(out, "PNG")
    made = Image.open(io.BytesIO(shrink(out.getvalue(), 50, 80)))
    assert (made.mode, made.format, made.size) == (mode, "PNG", (50, 25))


def test_thousands_of_scans_are_not_made_smaller() -> None:
    whole = jpeg_bytes(200, 100, progressive=True)
    with pytest.raises(ImageTooLarge, match="scans"):
        shrink(whole[:-2] + whole[whole.rindex(b"\xff\xda") : -2] * 1000 + b"\xff\xd9", 50, 80)


def test_profile_and_orientation_stay() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = jpeg_bytes(200, 100, exif=exif, icc_profile=b"a profile")
    made = Image.open(io.BytesIO(shrink(data, 50, 80)))
    assert made.getexif()[0x0112] == 6 and made.info["icc_profile"] == b"a profile"


def test_a_picture_that_cannot_be_made_smaller_is_a_bad_sample(tmp_path: Path) -> None:
    (tmp_path / "cut.jpg").write_bytes(jpeg_bytes(400, 300)[:-900])
    (tmp_path / "good.jpg").write_bytes(jpeg_bytes(400, 300))
    conversion = Conversion(FilesSource(tmp_path, labels=None), str(tmp_path / "o.tar"), Options(resize_max=100))
    assert [bad.key for bad in conversion.write(0).bad] == ["cut.jpg"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "jpg"),
        (b"P6\n3 3\n255\n", "ppm"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "webp"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "avif"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
        (b"\xff\x4f\xff\x51\0", "j2k"),
        (b"\0\0\0\x1cftypmp42\0\0\0\0", ""),
        (b"P6ABC", ""),
        (b"BMW", ""),
        (b"", ""),
    ],
)
def test_pictures_are_known_by_their_first_bytes(data: bytes, kind: str) -> None:
    assert picture_kind(data) == kind


# ---- in sequence ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ENDINGS)
def test_what_comes_in_sequence_is_written_too(rich_tar: str, tmp_path: Path, format: str) -> None:
    needs(format)
    stream = TarStream([LocalBlob(os.fsencode(rich_tar))], decode=False)
    written, bad = convert_stream(stream, str(tmp_path / f"o{ENDINGS[format]}"), Options(format))
    assert written.samples == 7 and not bad
    assert decoded(packed(opened(written.paths[0]), tmp_path / "back.tar")) == decoded(rich_tar)


@pytest.mark.parametrize("key", [None, "__key__"])
@pytest.mark.parametrize("format", ENDINGS)
def test_compressed_tfrecords_become_what_plain_ones_become(tmp_path: Path, format: str, key: str | None) -> None:
    needs(format)
    plain, ending = tmp_path / "plain.tfrecord", ENDINGS[format]
    samples = [{"__key__": f"k/{n}", "image": jpeg_bytes(seed=n), "label": n, "ids": [n] * n, "b": [b"x"] * n} for n in range(3)]
    stoker.write_tfrecord(plain, samples, key=key)
    (tmp_path / "a.zlib").write_bytes(zlib.compress(plain.read_bytes()))
    stream = TfrecordStream([LocalBlob(os.fsencode(tmp_path / "a.zlib"))], ["zlib"])
    written, bad = convert_stream(stream, str(tmp_path / f"o{ending}"), Options(format))
    assert written.samples == 3 and not bad
    expected = packed(opened(str(plain)), tmp_path / f"p{ending}")
    one, other = (
        decoded(packed(opened(path), tmp_path / f"{Path(path).stem}-back.tar")) for path in (written.paths[0], expected)
    )
    assert list(one.values()) == list(other.values()) and "jpg" in one[min(one)]
    assert [int(name) if key is None else name for name in one] == [int(name) if key is None else name for name in other]
    if format == "tfrecord":
        assert Path(written.paths[0]).read_bytes() == plain.read_bytes()


def test_what_comes_in_sequence_is_not_shuffled(rich_tar: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="read at random"):
        convert_stream(TarStream([LocalBlob(os.fsencode(rich_tar))], decode=False), str(tmp_path / "o.tar"), Options(seed=1))


def test_a_bad_sample_in_sequence_is_named_or_left_out(tmp_path: Path) -> None:
    needs("lmdb")
    samples = [{"__key__": str(number), "cls": b"7" if number else b"seven"} for number in range(3)]
    stoker.write_tar(tmp_path / "a.tar", samples)
    for skip_bad in (False, True):
        stream = TarStream([LocalBlob(os.fsencode(tmp_path / "a.tar"))], decode=False)
        written, bad = convert_stream(stream, str(tmp_path / "o.lmdb"), Options("lmdb"), skip_bad=skip_bad)
        assert [entry.key for entry in bad] == ["0"] and written.samples == (2 if skip_bad else 0)


def test_class_names_are_in_every_index_unless_they_are_too_long(image_folder: Path, tmp_path: Path) -> None:
    for ending, format in ENDINGS.items():
        if ending == "lmdb":
            continue
        source = FilesSource(image_folder)
        conversion = Conversion(source, str(tmp_path / f"{{}}{format}"), Options(ending, max_samples=12))
        for shard in write_all(conversion):
            index = ShardIndex.from_bytes(Path(f"{shard.path}.stk").read_bytes(), shard.path)
            assert index.about["classes"] == ["cat", "dog", "owl"]
    source.classes = tuple(f"{number:06d}" for number in range(20_000))
    shard = Conversion(source, str(tmp_path / "long.tar"), Options()).write(0)
    assert "classes" not in ShardIndex.from_bytes(Path(f"{shard.path}.stk").read_bytes(), shard.path).about


def test_the_note_in_an_index_is_plain_json(image_folder: Path, tmp_path: Path) -> None:
    shard = make(image_folder, tmp_path, "a").write(0)
    source = source_of(stoker.tar(shard.path))
    assert isinstance(source, TarSource)
    note = source.indexes[0].about["pack"]
    assert json.loads(json.dumps(note)) == note and note["shards"] == 5
