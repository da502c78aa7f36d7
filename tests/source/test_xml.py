"""Annotations: what is read from them, and what is refused."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker import errors
from stoker.errors import AnnotationError
from stoker.source.files.xml import MAX_BYTES, MAX_OBJECTS, Annotation, parse_annotation, read_annotation

#: where the tested package is, for processes started here
PACKAGES = str(Path(errors.__file__).resolve().parents[1])

IMAGENET = b"""<annotation>
	<folder>n01440764</folder>
	<filename>n01440764_18</filename>
	<source>
		<database>ILSVRC_2012</database>
	</source>
	<size>
		<width>500</width>
		<height>375</height>
		<depth>3</depth>
	</size>
	<segmented>0</segmented>
	<object>
		<name>n01440764</name>
		<pose>Unspecified</pose>
		<truncated>0</truncated>
		<difficult>0</difficult>
		<bndbox>
			<xmin>16</xmin>
			<ymin>84</ymin>
			<xmax>493</xmax>
			<ymax>285</ymax>
		</bndbox>
	</object>
</annotation>
"""


def thing(name: str = "cat", xmin: str = "1", ymin: str = "2", xmax: str = "30", ymax: str = "40", more: str = "") -> str:
    box = f"<xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax>"
    return f"<object><name>{name}</name><bndbox>{box}</bndbox>{more}</object>"


def parse(*objects: str, size: str = "") -> Annotation:
    return parse_annotation(f"<annotation>{size}{''.join(objects)}</annotation>".encode(), b"/set/1.xml")


def test_an_imagenet_annotation_is_read() -> None:
    annotation = parse_annotation(IMAGENET, b"1.xml")
    assert (annotation.names, annotation.boxes) == (["n01440764"], [(84, 16, 285, 493)])


def test_every_object_is_read_in_its_order() -> None:
    annotation = parse(thing("dog"), thing("cat"), thing("dog", "5"))
    assert annotation.names == ["dog", "cat", "dog"]
    assert [box[1] for box in annotation.boxes] == [1, 1, 5]


def test_parts_of_an_object_are_not_objects() -> None:
    part = "<part><name>head</name><bndbox><xmin>9</xmin><ymin>9</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>"
    annotation = parse(thing("person", more=part))
    assert (annotation.names, annotation.boxes) == (["person"], [(2, 1, 40, 30)])


def test_names_and_numbers_may_have_blanks_around_them_and_entities_of_xml_in_them() -> None:
    annotation = parse(thing(" R&amp;D <!-- not this -->caf\u00e9\n", "\n 1.5 ", "2e0", "+30"))
    assert (annotation.names, annotation.boxes) == (["R&D caf\u00e9"], [(2, 1.5, 40, 30)])


def test_boxes_outside_the_image_and_of_no_size_are_kept_as_they_are() -> None:
    size = "<size><width>10</width><height>10</height></size>"
    annotation = parse(thing(xmin="-5", xmax="900.25"), thing(xmin="7", xmax="7", ymin="3", ymax="3"), size=size)
    assert annotation.boxes == [(2, -5, 40, 900.25), (3, 7, 3, 7)]


def test_without_objects_there_is_a_size() -> None:
    assert parse(size="<size><width>20</width><height> 10 </height><depth>3</depth></size>").size == (10, 20)


@pytest.mark.parametrize(
    "size",
    [
        "",
        "<size/>",
        "<size><width>20</width></size>",
        "<size><width>0</width><height>0</height></size>",
        "<size><width/><height></height></size>",
    ],
)
def test_a_size_of_nothing_is_no_size(size: str) -> None:
    assert parse(size=size) == Annotation([], [], None)


@pytest.mark.parametrize("width", ["x", "-1", "nan", "inf", "1e40"])
def test_a_size_that_is_no_size_is_refused(width: str) -> None:
    with pytest.raises(AnnotationError, match=r"/set/1\.xml, line 1: <size> is '"):
        parse(size=f"<size><width>{width}</width><height>5</height></size>")


@pytest.mark.parametrize("value", ["", "x", "nan", "NaN", "inf", "-inf", "1e400", "1e39", "0x10", "1 2", "1,5"])
@pytest.mark.parametrize("side", ["xmin", "ymin", "xmax", "ymax"])
def test_a_coordinate_that_is_no_finite_number_is_named(side: str, value: str) -> None:
    with pytest.raises(AnnotationError, match=rf"/set/1\.xml, line 1: object 2: <{side}> is '.*', not a finite number"):
        parse(thing(), thing(**{side: value}))


@pytest.mark.parametrize("side", ["xmin", "ymin", "xmax", "ymax"])
def test_a_missing_coordinate_is_named(side: str) -> None:
    with pytest.raises(AnnotationError, match=rf"object 1 has no <{side}> in a <bndbox>"):
        parse(thing().replace(side, "other"))


@pytest.mark.parametrize("sides", [{"xmin": "31"}, {"ymin": "40.5"}])
def test_an_inverted_box_is_refused(sides: dict[str, str]) -> None:
    with pytest.raises(AnnotationError, match=r"object 1: its <bndbox> is inverted: x from .* to 30, y from .* to 40"):
        parse(thing(**sides))


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ("<object/>", "object 1 has no <name>"),
        (thing(name=" "), "object 1 has no <name>"),
        ("<object><name>a</name></object>", "object 1 has no <ymin> in a <bndbox>"),
        (thing(more="<name>b</name>"), r"two <name> in one <object> \(object 1\)"),
        (thing(more="<bndbox><xmin>3</xmin></bndbox>"), "two <xmin> in one <bndbox>"),
    ],
)
def test_an_object_without_all_it_needs_once_is_refused(objects: str, told: str) -> None:
    with pytest.raises(AnnotationError, match=told):
        parse(objects)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "line 1: is not well-formed XML: no element found"),
        (b"<annotation>\n<object>\n", "line 3: is not well-formed XML: no element found"),
        (b"<annotation>\n</object>", "line 2: is not well-formed XML: mismatched tag"),
        (b"<annotation>&nope;</annotation>", "undefined entity"),
        (b"<annotation/>junk", "junk after document element"),
        (b"\x00\x01\x02", "is not well-formed XML"),
        (b"<annotation>\xff</annotation>", "not well-formed"),
        (b"<svg/>", "line 1: the document is a <svg>, not an <annotation>"),
        (b"<object/>", "the document is a <object>, not an <annotation>"),
        (b"<?xml version='1.0' encoding='klingon'?><annotation/>", "klingon|encoding"),
        (b"<?xml version='1.0' encoding='utf-7'?><annotation/>", "encoding"),
        (b"<?xml version='1.0' encoding='gbk'?><annotation/>", "encoding"),
    ],
)
def test_a_document_that_is_no_annotation_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(AnnotationError, match=told) as caught:
        parse_annotation(data, b"/set/1.xml")
    assert caught.value.origin == "/set/1.xml"
    assert "correct the file" in str(caught.value)


def test_other_encodings_are_read_when_they_are_declared() -> None:
    text = f"<?xml version='1.0' encoding='{{}}'?><annotation>{thing('café')}</annotation>"
    for encoding in ("utf-8", "iso-8859-1", "utf-16"):
        assert parse_annotation(text.format(encoding).encode(encoding), b"1.xml").names == ["café"]


def test_more_bytes_objects_or_depth_than_any_annotation_has_are_refused() -> None:
    with pytest.raises(AnnotationError, match="larger than 1,048,576 bytes"):
        parse_annotation(b"<annotation>" + b" " * MAX_BYTES, b"1.xml")
    sides = "".join(f"<{side}>1</{side}>" for side in ("xmin", "ymin", "xmax", "ymax"))
    small = f"<object><name>a</name><bndbox>{sides}</bndbox></object>"
    assert len(parse(*[small] * (MAX_OBJECTS - 2000)).names) == MAX_OBJECTS - 2000
    with pytest.raises(AnnotationError, match=r"larger than|more than 10,000 objects"):
        parse(*[small] * (MAX_OBJECTS + 1))
    assert parse("<d>" * 31 + "</d>" * 31).names == []
    with pytest.raises(AnnotationError, match="line 1: is nested deeper than 32 tags"):
        parse("<d>" * 32 + "</d>" * 32)


def test_objects_are_counted_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.source.files.xml.MAX_OBJECTS", 3)
    assert len(parse(*[thing()] * 3).names) == 3
    with pytest.raises(AnnotationError, match="more than 3 objects"):
        parse(*[thing()] * 4)


@given(st.binary(max_size=300) | st.text("<>/aobject&;!-[]DOCTYPEN \n", max_size=200).map(str.encode))
def test_whatever_the_bytes_nothing_but_an_annotation_error_comes_out(data: bytes) -> None:
    for document in (data, b"<annotation>" + data + b"</annotation>", b"<annotation><object>" + data):
        with contextlib.suppress(AnnotationError):
            parse_annotation(document, b"1.xml")


# ---- bombs -----------------------------------------------------------------------------------------------------------

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMBS = {
    "billion laughs": f'<!DOCTYPE annotation [<!ENTITY l0 "lol">{LAUGHS}]><annotation>&l9;</annotation>',
    "quadratic": f'<!DOCTYPE annotation [<!ENTITY a "{"a" * 50_000}">]><annotation>{"&a;" * 50_000}</annotation>',
    "external entity": '<!DOCTYPE annotation [<!ENTITY x SYSTEM "file://CANARY">]><annotation>&x;</annotation>',
    "external parameter": '<!DOCTYPE annotation [<!ENTITY % x SYSTEM "file://CANARY"> %x;]><annotation/>',
    "external subset": '<!DOCTYPE annotation SYSTEM "file://CANARY"><annotation/>',
    "document type alone": "<!DOCTYPE annotation><annotation/>",
    "deep": "<annotation>" + "<a>" * 100_000 + "</a>" * 100_000 + "</annotation>",
    "deep, never closed": "<annotation>" + "<a>" * 100_000,
    "one endless name": "<annotation><" + "a" * 1_000_000,
    "attributes": "<annotation " + " ".join(f"a{n}='{n}'" for n in range(50_000)) + "/>",
}


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "attributes"])
def test_bombs_are_refused(name: str) -> None:
    with pytest.raises(AnnotationError):
        parse_annotation(BOMBS[name].encode(), b"1.xml")


def test_bombs_cost_little_and_open_nothing(tmp_path: Path) -> None:
    """In a process that may use a little memory and time, and that notes every file opened."""
    canary = tmp_path / "canary"
    canary.write_text("<!ENTITY y 'secret'>")
    for number, text in enumerate(BOMBS.values()):
        (tmp_path / f"{number}.xml").write_text(text.replace("CANARY", str(canary)))
    program = f"""
        import resource, sys
        from stoker.errors import AnnotationError
        from stoker.source.files.xml import read_annotation, parse_annotation
        parse_annotation(b"<annotation/>", b"")
        opened = []
        sys.addaudithook(lambda event, about: opened.append((event, str(about))) if event in WATCHED else None)
        WATCHED = ("open", "socket.connect", "socket.getaddrinfo", "urllib.Request", "os.system", "subprocess.Popen")
        now = resource.getrusage(resource.RUSAGE_SELF)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (128 << 20), used + (128 << 20)))
        resource.setrlimit(resource.RLIMIT_CPU, (int(now.ru_utime) + 10, int(now.ru_utime) + 10))
        refused = 0
        for number in range({len(BOMBS)}):
            try:
                read_annotation(b"%d.xml" % number)
            except AnnotationError as error:
                assert "secret" not in str(error)
                refused += 1
        assert opened, "the hook sees openings"
        assert not [about for event, about in opened if "canary" in about or event != "open"], opened
        print(refused)
    """
    command, env = [sys.executable, "-c", textwrap.dedent(program)], {**os.environ, "PYTHONPATH": PACKAGES}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(BOMBS) - 1)), done.stderr


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_no_annotation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("1.xml", "no/folder/1.xml", "file/1.xml"):
        assert read_annotation(os.fsencode(tmp_path / name)) is None


def test_a_file_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "1.xml").write_text(f"<annotation>{thing() * 500}</annotation>")
    assert (tmp_path / "1.xml").stat().st_size > 1 << 15
    annotation = read_annotation(os.fsencode(tmp_path / "1.xml"))
    assert annotation is not None
    assert len(annotation.names) == 500


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    with open(tmp_path / "1.xml", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(AnnotationError, match=r"1\.xml: has 1,099,511,627,776 bytes, more than the 1"):
        read_annotation(os.fsencode(tmp_path / "1.xml"))


def test_a_folder_or_a_pipe_in_its_place_is_refused_and_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "1.xml").mkdir()
    os.mkfifo(tmp_path / "2.xml")
    with pytest.raises(AnnotationError, match=r"1\.xml: cannot be read: Is a directory"):
        read_annotation(os.fsencode(tmp_path / "1.xml"))
    with pytest.raises(AnnotationError, match=r"2\.xml: not a plain file"):
        read_annotation(os.fsencode(tmp_path / "2.xml"))
