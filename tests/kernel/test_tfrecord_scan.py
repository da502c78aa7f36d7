"""TFRecord's framing: whole records are found, both checksums hold, and a length is believed only after its own."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stoker.errors import CorruptShard, KernelError
from stoker.kernel.records import scan_tfrecord, verify_records

from .test_crc32c import by_definition


def masked(data: bytes) -> bytes:
    crc = by_definition(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


PAYLOADS = [b"first", b"", bytes(range(100)), b"last"]
FILE = b"".join(map(record, PAYLOADS))


def test_records_as_tensorflow_writes_them() -> None:
    stored = bytes.fromhex("0300000000000000b099490e666f6f618abefe000000000000000029039807d8ea82a2")
    assert record(b"foo") + record(b"") == stored
    starts, lengths, used, needed = scan_tfrecord(array(stored))
    assert (starts.tolist(), lengths.tolist(), used, needed) == ([12, 31], [3, 0], 35, 0)


@settings(max_examples=50, deadline=None)
@given(payloads=st.lists(st.binary(max_size=300), max_size=6), cut=st.integers(0, 2000))
def test_whole_records_are_found_and_the_rest_is_told(payloads: list[bytes], cut: int) -> None:
    whole = b"".join(map(record, payloads))
    data = whole[:cut]
    starts, lengths, used, needed = scan_tfrecord(array(data))
    found = [data[start : start + length] for start, length in zip(starts, lengths)]
    assert found == payloads[: len(found)] and used == sum(len(p) + 16 for p in found)
    if len(found) == len(payloads):
        assert used == len(whole) and needed == 0
    else:
        following = len(payloads[len(found)]) + 16
        assert len(data) - used < following and needed == (following if len(data) - used >= 12 else 0)
    assert verify_records(array(data), starts, lengths).all()


def test_a_file_read_in_pieces_gives_every_record_once() -> None:
    payloads = [b"%d" % i * (i % 50) for i in range(300)]
    file, at, held, found = b"".join(map(record, payloads)), 0, b"", []
    while at < len(file) or held:
        held += file[at : at + 777]
        at += 777
        starts, lengths, used, _ = scan_tfrecord(array(held), max(0, at - len(held)))
        found += [held[start : start + length] for start, length in zip(starts, lengths)]
        held = held[used:]
    assert found == payloads


def test_more_records_than_are_taken_at_once() -> None:
    count = 70_000
    starts, lengths, used, needed = scan_tfrecord(array(record(b"") * count))
    assert used == 16 * count and needed == 0 and not lengths.any()
    assert np.array_equal(starts, np.arange(count) * 16 + 12)


def test_every_flipped_bit_is_told_with_the_offset_of_its_record() -> None:
    bounds = np.cumsum([0, *(len(payload) + 16 for payload in PAYLOADS)])
    for at in range(len(FILE)):
        for bit in range(8):
            data = bytearray(FILE)
            data[at] ^= 1 << bit
            with pytest.raises(CorruptShard, match="wrong") as caught:
                scan_tfrecord(array(bytes(data)), 10_000)
            begin = int(bounds[np.searchsorted(bounds, at, "right") - 1])
            assert caught.value.offset == 10_000 + begin


def test_payloads_need_not_be_verified_at_once_but_lengths_always_are() -> None:
    data = bytearray(FILE)
    data[13] ^= 1
    starts, lengths, _, _ = scan_tfrecord(array(bytes(data)), verify=False)
    assert len(starts) == 4
    assert verify_records(array(bytes(data)), starts, lengths).tolist() == [False, True, True, True]
    data[0] ^= 1
    with pytest.raises(CorruptShard):
        scan_tfrecord(array(bytes(data)), verify=False)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**63 - 1])
def test_an_absurd_length_is_refused_even_with_its_checksum(length: int) -> None:
    head = struct.pack("<Q", length)
    with pytest.raises(CorruptShard, match=f"claims {length} bytes") as caught:
        scan_tfrecord(array(FILE + head + masked(head)), 5)
    assert caught.value.offset == 5 + len(FILE)


def test_a_long_record_says_how_much_it_needs() -> None:
    head = struct.pack("<Q", 2**40)
    assert scan_tfrecord(array(head + masked(head)))[2:] == (0, 2**40 + 16)
    assert scan_tfrecord(array(head))[2:] == (0, 0)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"<html>Not found</html>", "not a TFRecord file: .*'<html>"),
        (b"\x1f\x8b\x08" + bytes(20), "those of gzip"),
        (b"\x78\x9c" + bytes(20), "those of zlib"),
    ],
)
def test_something_else_is_told_by_its_first_bytes(data: bytes, message: str) -> None:
    with pytest.raises(CorruptShard, match=message) as caught:
        scan_tfrecord(array(data))
    assert caught.value.offset == 0


@pytest.mark.parametrize("start, length", [(0, len(FILE) - 3), (-1, 2), (len(FILE), 0), (0, 2**62), (5, -1)])
def test_a_payload_outside_the_data_is_refused(start: int, length: int) -> None:
    with pytest.raises(KernelError, match="stk_tfrecord_verify"):
        verify_records(array(FILE), np.array([start]), np.array([length]))


def test_data_shorter_than_a_checksum_can_hold_no_payload() -> None:
    assert scan_tfrecord(array(b""))[2:] == (0, 0)
    with pytest.raises(KernelError):
        verify_records(array(b"abc"), np.array([0]), np.array([0]))
