"""tf.train.Example: columns equal to what a plain reading of the wire format gives, whoever wrote the bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.example_columns import (
    BYTES,
    FLOAT,
    INT,
    MISSING,
    OK,
    OTHER_COUNT,
    OTHER_KIND,
    ExampleStats,
    FeatureStat,
    Parsed,
    Wanted,
    parse_examples,
)
from stoker.kernel.records import gather_bytes

from ..source.making import field, varint

# ---- the wire format, written and read plainly ---------------------------------------------------------------------------


def feature(kind: int, values: list[Any], packed: bool = True) -> bytes:
    """A Feature; packed or one field a value."""
    if kind == BYTES:
        content = b"".join(field(1, value) for value in values)
    elif kind == FLOAT:
        floats = [struct.pack("<f", value) for value in values]
        content = field(1, b"".join(floats)) if packed else b"".join(varint(1 << 3 | 5) + value for value in floats)
    else:
        ints = [varint(value) for value in values]
        content = field(1, b"".join(ints)) if packed else b"".join(varint(1 << 3) + value for value in ints)
    return field(kind, content)


def entry(name: bytes, value: bytes) -> bytes:
    return field(1, field(1, name) + field(2, value))


def example(features: dict[bytes, bytes]) -> bytes:
    return field(1, b"".join(entry(name, value) for name, value in features.items()))


class Malformed(Exception):
    pass


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise Malformed
        value |= (data[at + i] & 127) << 7 * i
        if data[at + i] < 128:
            if value >> 64:
                raise Malformed
            return value, at + i + 1
    raise Malformed


def read_fields(data: bytes) -> list[tuple[int, int, Any]]:
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag >> 32 or tag < 8:
            raise Malformed
        value: Any
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 in (1, 2, 5):
            length = {1: 8, 5: 4}.get(tag & 7)
            if length is None:
                length, at = read_varint(data, at)
            if length > len(data) - at:
                raise Malformed
            value, at = data[at : at + length], at + length
        else:
            raise Malformed
        fields.append((tag >> 3, tag & 7, value))
    return fields


def read_feature(data: bytes) -> tuple[int, list[Any]]:
    kind, values = 0, []
    for number, wire, content in read_fields(data):
        if number > 3 or wire != 2:
            continue
        if number != kind:
            kind, values = number, []
        for inner, inner_wire, value in read_fields(content):
            if inner != 1:
                continue
            if kind == BYTES and inner_wire == 2:
                values.append(value)
            elif kind == FLOAT and inner_wire in (2, 5):
                if len(value) % 4:
                    raise Malformed
                values += struct.unpack(f"<{len(value) // 4}f", value)
            elif kind == INT and inner_wire == 0:
                values.append(value - (1 << 64) if value >> 63 else value)
            elif kind == INT and inner_wire == 2:
                at = 0
                while at < len(value):
                    number_, at = read_varint(value, at)
                    values.append(number_ - (1 << 64) if number_ >> 63 else number_)
    return kind, values


def read_example(data: bytes) -> dict[bytes, tuple[int, list[Any]]]:
    found = {}
    for number, wire, features in read_fields(data):
        if (number, wire) != (1, 2):
            continue
        for inner, inner_wire, content in read_fields(features):
            if (inner, inner_wire) != (1, 2):
                continue
            parts = [(n, value) for n, w, value in read_fields(content) if w == 2 and n in (1, 2)]
            values = [value for n, value in parts if n == 2]
            if len(values) > 1:
                raise Malformed
            name = ([b""] + [value for n, value in parts if n == 1])[-1]
            found[name] = read_feature(values[0] if values else b"")
    return found


# ---- records of a batch --------------------------------------------------------------------------------------------------


def joined(records: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Records with a byte between them, as in a file."""
    lengths = np.array([len(record) for record in records], np.int64)
    data = np.frombuffer(b"".join(record + b"\xff" for record in records), np.uint8)
    return data, np.cumsum(lengths + 1) - lengths - 1, lengths


def parse(records: list[bytes], *wanted: Wanted, outs: tuple[Any, ...] = ()) -> Parsed:
    return parse_examples(*joined(records), wanted, outs)


def value_of(data: NDArray[np.uint8], wanted: Wanted, column: Any, row: int) -> list[Any]:
    """The values of one row of a column, as a list."""

    def cut(start: int, length: int) -> bytes:
        return data[start : start + length].tobytes()

    if wanted.kind == BYTES and wanted.count == 1:
        return [cut(int(column[0][row]), int(column[1][row]))]
    if wanted.is_list:
        begin, end = int(column[0][row]), int(column[0][row + 1])
        if wanted.kind == BYTES:
            return [cut(int(start), int(length)) for start, length in zip(column[1][begin:end], column[2][begin:end])]
        return column[1][begin:end].tolist()
    return np.atleast_1d(column[row]).tolist()


def expected_of(record: bytes, wanted: Wanted) -> tuple[int, list[Any]]:
    """(status, values) by the plain reading; values are those of an absent feature where it is not well."""
    try:
        kind, values = read_example(record).get(wanted.name, (0, []))
    except Malformed:
        kind, values = 0, []
    if not kind:
        status = MISSING
    elif kind != wanted.kind:
        status = OTHER_KIND
    else:
        status = OK if wanted.count in (-1, len(values)) else OTHER_COUNT
    if status == OK:
        return status, values
    if wanted.is_list:
        return status, []
    return status, [b""] if wanted.kind == BYTES else [0.0 if wanted.kind == FLOAT else 0] * wanted.count


def is_malformed(record: bytes) -> bool:
    try:
        read_example(record)
    except Malformed:
        return True
    return False


def check(records: list[bytes], *wanted: Wanted) -> Parsed:
    """Parse, and compare with the plain reading."""
    data, starts, lengths = joined(records)
    parsed = parse_examples(data, starts, lengths, wanted)
    for row, record in enumerate(records):
        assert (parsed.bad[row] >= 0) == is_malformed(record)
        assert -1 <= parsed.bad[row] < max(1, len(record))
        for i, each in enumerate(wanted):
            found = (int(parsed.status[row, i]), value_of(data, each, parsed.columns[i], row))
            assert str(found) == str(expected_of(record, each)), each  # as text, where not-a-numbers are equal
    return parsed


LABEL, IMAGE = Wanted(b"label", INT, 1), Wanted(b"image", BYTES, 1)


def test_images_and_labels_become_columns() -> None:
    records = [example({b"image": feature(BYTES, [bytes([i]) * 50]), b"label": feature(INT, [i - 3])}) for i in range(7)]
    data, starts, lengths = joined(records)
    parsed = parse_examples(data, starts, lengths, [IMAGE, LABEL])
    assert not parsed.status.any() and (parsed.bad == -1).all()
    assert parsed.columns[1].tolist() == [-3, -2, -1, 0, 1, 2, 3] and parsed.columns[1].dtype == np.int64
    images = np.empty((7, 5, 10), np.uint8)
    assert gather_bytes(data, *parsed.columns[0], images).all()
    assert np.array_equal(images, np.broadcast_to(np.arange(7)[:, None, None], (7, 5, 10)))


def test_an_example_as_tensorflow_writes_it() -> None:
    record = bytes.fromhex(
        "0a470a0f0a03626f78120812060a040000003f0a100a05696d61676512070a050a036162630a180a056c6162656c120f1a0d0a0b03ffffffffff"
        "ffffffff010a080a046e6f6e651200"
    )
    wanted = [Wanted(b"box", FLOAT, 1), Wanted(b"image", BYTES, 1), Wanted(b"label", INT, 2), Wanted(b"none", INT, 1)]
    parsed = check([record], *wanted)
    assert parsed.columns[0].tolist() == [0.5] and parsed.columns[2].tolist() == [[3, -1]]
    assert parsed.status.tolist() == [[OK, OK, OK, MISSING]]


def test_numbers_go_where_they_are_asked_for_when_they_fit() -> None:
    records = [example({b"label": feature(INT, [i]), b"box": feature(FLOAT, [i, 2.5])}) for i in range(3)]
    box = Wanted(b"box", FLOAT, 2)
    labels, boxes = np.full(3, 99), np.full((3, 2), 99, np.float32)
    parsed = parse(records, LABEL, box, outs=(labels, boxes))
    assert parsed.columns[0] is labels and labels.tolist() == [0, 1, 2]
    assert parsed.columns[1] is boxes and boxes.tolist() == [[0, 2.5], [1, 2.5], [2, 2.5]]
    frozen = np.zeros(3, np.int64)
    frozen.flags.writeable = False
    for other in (np.zeros(3, np.int32), np.zeros((3, 1), np.int64), np.zeros(4, np.int64), np.zeros(6, np.int64)[::2], frozen):
        parsed = parse(records, LABEL, box, outs=(other, None))
        assert parsed.columns[0] is not other and parsed.columns[0].tolist() == [0, 1, 2] and not other.any()


@pytest.mark.parametrize("packed", [True, False])
def test_lists_of_any_length_have_offsets(packed: bool) -> None:
    lists = [[], [1], [-1, 2**63 - 1, -(2**63)], [5] * 40]
    records = [example({b"n": feature(INT, values, packed), b"f": feature(FLOAT, values, packed)}) for values in lists]
    parsed = check(records, Wanted(b"n", INT, -1), Wanted(b"f", FLOAT, -1))
    assert not parsed.status.any(), "an empty list of the right kind is well"
    offsets, values = parsed.columns[0]
    assert offsets.tolist() == [0, 0, 1, 4, 44] and values[:4].tolist() == [1, -1, 2**63 - 1, -(2**63)]


def test_several_byte_strings_a_record() -> None:
    records = [example({b"w": feature(BYTES, words)}) for words in ([b"a", b""], [b"long" * 99, b"c"], [b"one"], [])]
    parsed = check(records, Wanted(b"w", BYTES, 2))
    assert parsed.status[:, 0].tolist() == [OK, OK, OTHER_COUNT, OTHER_COUNT]
    assert parsed.columns[0][0].tolist() == [0, 2, 4, 4, 4]
    assert not check(records, Wanted(b"w", BYTES, -1)).status.any()


def test_what_is_not_well_is_said_and_holds_zeros() -> None:
    records = [
        example({b"label": feature(INT, [7])}),
        example({}),
        b"",
        example({b"label": b""}),
        example({b"label": feature(FLOAT, [7.0])}),
        example({b"label": feature(INT, [])}),
        example({b"label": feature(INT, [7, 8])}),
        example({b"label": feature(INT, [9])})[:-1],
    ]
    labels = np.full(8, 99)
    parsed = parse(records, LABEL, outs=(labels,))
    assert parsed.status[:, 0].tolist() == [OK, MISSING, MISSING, MISSING, OTHER_KIND, OTHER_COUNT, OTHER_COUNT, MISSING]
    assert (parsed.bad >= 0).tolist() == [False] * 7 + [True]
    assert labels.tolist() == [7, 0, 0, 0, 0, 0, 0, 0]
    check(records, LABEL, Wanted(b"none", FLOAT, 3), Wanted(b"nor this", BYTES, 1), Wanted(b"", INT, -1))


@pytest.mark.parametrize(
    "record",
    [
        field(1, entry(b"label", feature(INT, [1])) + entry(b"label", feature(INT, [2]))),
        field(1, entry(b"label", feature(INT, [1]))) + field(1, entry(b"label", feature(INT, [2]))),
        field(1, entry(b"label", feature(INT, [1]) + feature(FLOAT, [3.0]) + feature(INT, [2]))),
        field(1, field(1, field(2, feature(INT, [2])) + field(1, b"label"))),
        field(1, field(1, field(1, b"other") + field(1, b"label") + field(2, feature(INT, [2])))),
        field(9, b"?") + b"\x40\x05" + field(1, varint(2 << 3 | 5) + b"1234" + entry(b"label", feature(INT, [2]))),
        field(1, entry(b"label", field(7, b"?") + varint(1 << 3 | 1) + bytes(8) + feature(INT, [2]))),
        field(1, entry(b"label", field(3, field(2, b"?") + varint(1 << 3 | 5) + b"1234" + field(1, varint(2))))),
        field(1, varint(1 << 3) + varint(7) + entry(b"label", feature(INT, [2]))),
    ],
    ids=["last entry wins", "features are joined", "last kind wins", "value before name", "last name wins", "unknown fields",
         "unknown in a feature", "unknown in a list", "another wire type is unknown"],
)  # fmt: skip
def test_the_laws_of_the_wire_format_hold(record: bytes) -> None:
    parsed = check([record], LABEL)
    assert parsed.columns[0].tolist() == [2] and not parsed.status.any()


def test_lists_of_one_kind_are_joined() -> None:
    split = feature(INT, [1, 2]) + feature(INT, [3], packed=False) + feature(INT, []) + feature(INT, [4])
    parsed = check([example({b"n": split})], Wanted(b"n", INT, 4))
    assert parsed.columns[0].tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    "record, where",
    [
        (b"\x0a", 0), (b"\x0a\x05abc", 0), (b"\x80", 0), (b"\x00\x00", 0), (b"\x07", 0), (b"\x0b\x0c", 0),
        (b"\x08" + b"\xff" * 10, 0), (b"\x08" + b"\xff" * 9 + b"\x02", 0), (b"\x09\x00\x00", 0),
        (field(5, b"fine") + b"\x0d\x00", 6),
        (field(1, b"\x0a\x09abc"), 2),
        (field(1, field(1, field(1, b"a") + b"\x12\x09")), 7),
        (field(1, field(1, field(1, b"a") + field(2, b"") + field(2, b""))), 9),
        (field(1, entry(b"a", field(2, field(1, b"12345")))), 11),
        (field(1, entry(b"a", field(3, field(1, b"\x80")))), 11),
    ],
)  # fmt: skip
def test_what_is_no_example_is_told_with_its_byte(record: bytes, where: int) -> None:
    fine = example({b"label": feature(INT, [1])})
    parsed = check([fine, record, fine], LABEL, Wanted(b"a", INT, 1))
    assert parsed.bad.tolist() == [-1, where, -1]
    assert parsed.columns[0].tolist() == [1, 0, 1]


NAMES = st.sampled_from([b"a", b"b", b"label", b"\xff", b""])
FEATURES = st.one_of(
    st.builds(feature, st.just(BYTES), st.lists(st.binary(max_size=5), max_size=3)),
    st.builds(feature, st.just(FLOAT), st.lists(st.floats(width=32), max_size=3), st.booleans()),
    st.builds(feature, st.just(INT), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), st.booleans()),
    st.just(b""),
    st.builds(lambda a, b: a + b, st.builds(feature, st.just(INT), st.just([1])), st.builds(feature, st.just(INT), st.just([2]))),
)
RECORDS = st.builds(
    lambda entries, rest: field(1, b"".join(entry(*each) for each in entries)) + rest,
    st.lists(st.tuples(NAMES, FEATURES), max_size=5),
    st.sampled_from([b"", field(4, b"rest"), varint(3 << 3) + varint(7)]),
)
WANTED = st.lists(st.builds(Wanted, NAMES, st.sampled_from([BYTES, FLOAT, INT]), st.integers(-1, 3)), unique_by=lambda w: w.name)


@settings(max_examples=150, deadline=None)
@given(records=st.lists(RECORDS, max_size=4), wanted=WANTED)
def test_any_records_are_read_as_the_plain_reading_has_them(records: list[bytes], wanted: list[Wanted]) -> None:
    check(records, *wanted)


@settings(max_examples=150, deadline=None)
@given(record=RECORDS, wanted=WANTED, at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_records_are_read_or_refused_as_the_plain_reading_has_them(
    record: bytes, wanted: list[Wanted], at: int, byte: int, cut: int
) -> None:
    changed = bytearray(record)
    if at < len(changed):
        changed[at] = byte
    check([bytes(changed), record[:cut], record], *wanted)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60), wanted=WANTED)
def test_any_bytes_are_read_or_refused(data: bytes, wanted: list[Wanted]) -> None:
    check([data, field(1, data), field(1, field(1, data))], *wanted)


def test_no_records_and_no_features_are_fine() -> None:
    parsed = parse([], LABEL, IMAGE, Wanted(b"n", INT, -1))
    assert parsed.columns[0].shape == (0,) and parsed.columns[2][0].tolist() == [0] and parsed.status.shape == (0, 3)
    parsed = parse([example({}), b"\x07"])
    assert parsed.columns == () and parsed.bad.tolist() == [-1, 0]


def test_wrong_calls_are_refused() -> None:
    data, starts, lengths = joined([example({})])
    with pytest.raises(KernelError, match="twice"):
        parse_examples(data, starts, lengths, [LABEL, Wanted(b"label", FLOAT, 1)])
    with pytest.raises(KernelError, match="kind 4"):
        parse_examples(data, starts, lengths, [Wanted(b"a", 4, 1)])
    for start, length in ((0, 99), (-1, 1), (99, 0)):
        with pytest.raises(KernelError, match="stk_examples_parse"):
            parse_examples(data, np.array([start]), np.array([length]), [LABEL])
        with pytest.raises(KernelError, match="stk_examples_add"):
            ExampleStats().add(data, np.array([start]), np.array([length]))


# ---- rows of bytes -------------------------------------------------------------------------------------------------------


def test_rows_of_another_length_are_told_and_become_zeros() -> None:
    data = np.arange(100, dtype=np.uint8)
    out = np.full((3, 2, 2), 255, np.uint16)
    right = gather_bytes(data, np.array([0, 10, 92]), np.array([8, 7, 8]), out)
    assert right.tolist() == [True, False, True]
    assert out[0].tobytes() == bytes(range(8)) and not out[1].any() and out[2].tobytes() == bytes(range(92, 100))


def test_rows_may_lie_apart_but_must_fit() -> None:
    data = np.arange(100, dtype=np.uint8)
    wide = np.zeros((3, 10), np.uint8)
    assert gather_bytes(data, np.array([0, 10, 20]), np.array([4, 4, 4]), wide[:, :4]).all()
    assert wide[1].tolist() == [10, 11, 12, 13, 0, 0, 0, 0, 0, 0]
    for out in (np.zeros((2, 4), np.uint8), np.zeros((4, 3), np.uint8).T):
        with pytest.raises(KernelError, match=r"do not fit|not contiguous"):
            gather_bytes(data, np.array([0, 10, 20]), np.array([4, 4, 4]), out)
    with pytest.raises(KernelError, match="stk_gather_bytes"):
        gather_bytes(data, np.array([97]), np.array([4]), np.zeros((1, 4), np.uint8))


# ---- statistics ----------------------------------------------------------------------------------------------------------


def test_features_are_learned_over_all_records() -> None:
    stats = ExampleStats()
    assert (stats.examples, stats.others, stats.features) == (0, 0, ())
    stats.add(*joined([example({b"a": feature(INT, [1, 2]), b"b": feature(BYTES, [b"x"])}), b"\x07", example({})]))
    stats.add(*joined([example({b"a": feature(INT, []), b"b": feature(FLOAT, [1.0]), b"c": b""})]))
    assert (stats.examples, stats.others) == (3, 1)
    assert stats.features == (
        FeatureStat(b"a", INT, 0, 2, 2),
        FeatureStat(b"b", -1, 1, 1, 2),
        FeatureStat(b"c", 0, 0, 0, 0),
    )


def test_a_record_that_turns_out_bad_teaches_nothing() -> None:
    stats = ExampleStats()
    stats.add(*joined([field(1, entry(b"a", feature(INT, [1])) + b"\x07"), example({b"b": feature(INT, [1])})]))
    assert stats.others == 1 and stats.features == (FeatureStat(b"b", INT, 1, 1, 1),)


def test_a_name_given_twice_counts_once_with_its_last_value() -> None:
    stats = ExampleStats()
    stats.add(*joined([field(1, entry(b"a", feature(INT, [1, 2, 3])) + entry(b"a", feature(BYTES, [b"x"])))]))
    assert stats.features == (FeatureStat(b"a", BYTES, 1, 1, 1),)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(RECORDS, max_size=6))
def test_statistics_are_those_of_the_plain_reading(records: list[bytes]) -> None:
    stats, expected = ExampleStats(), {}
    stats.add(*joined(records))
    for record in records:
        for name, (kind, values) in read_example(record).items():
            expected.setdefault(name, []).extend([(kind, len(values))] if kind else [])
    assert stats.examples == len(records) and {stat.name for stat in stats.features} == set(expected)
    for stat in stats.features:
        seen = expected[stat.name]
        kinds, counts = {kind for kind, _ in seen}, [count for _, count in seen]
        assert stat.present == len(seen) and stat.kind == (0 if not kinds else -1 if len(kinds) > 1 else kinds.pop())
        assert (stat.least, stat.most) == (min(counts, default=0), max(counts, default=0))
