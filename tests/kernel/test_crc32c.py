"""CRC-32C: the same number as the definition gives, whatever computes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import KernelError
from stoker.kernel.records import crc32c, crc32c_spans, mask_crc

from ..support import Simd


@pytest.fixture(params=[0, -1], ids=["scalar", "best"])
def code(request: pytest.FixtureRequest, simd: Simd) -> None:
    simd(request.param)


def by_definition(data: bytes, value: int = 0) -> int:
    register = value ^ 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    "data, crc",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_known_answers(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("length", [1, 7, 8, 9, 383, 384, 385, 767, 768, 1000, 3071, 3072, 3073, 3456, 6200])
def test_every_way_through_the_kernel_gives_what_the_definition_gives(length: int) -> None:
    data = np.random.default_rng(length).bytes(length + 3)
    for shift in range(3):
        assert crc32c(data[shift : shift + length], 7) == by_definition(data[shift : shift + length], 7)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=5000), cut=st.integers(0, 5000), value=st.integers(0, 2**32 - 1))
def test_a_checksum_goes_on_where_another_ended(data: bytes, cut: int, value: int) -> None:
    assert crc32c(data[cut:], crc32c(data[:cut], value)) == crc32c(data, value)


def test_any_run_of_bytes_will_do() -> None:
    data = bytes(range(200))
    kinds = [data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8), memoryview(b"__" + data)[2:]]
    assert len({crc32c(kind) for kind in kinds}) == 1
    for wrong in (np.zeros(4, np.int32), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]):
        with pytest.raises(KernelError, match="contiguous run of uint8"):
            crc32c(wrong)


def test_a_long_run_and_a_short_one_are_computed_alike() -> None:
    data = np.random.default_rng(1).bytes(200_000)  # the long one lets others have the GIL meanwhile
    assert crc32c(data) == crc32c(data[1000:], crc32c(data[:1000]))


def test_spans_are_checksummed_each_by_itself() -> None:
    data = np.frombuffer(np.random.default_rng(2).bytes(5000), np.uint8)
    starts, lengths = np.array([0, 100, 4000, 5000, 17]), np.array([5000, 33, 1000, 0, -1])
    expected = [crc32c(data[start : start + max(0, length)]) for start, length in zip(starts, lengths)]
    assert crc32c_spans(data, starts, lengths).tolist() == expected
    assert crc32c_spans(data, np.array([], np.int64), np.array([], np.int64)).size == 0
    begun = crc32c_spans(data, starts, lengths // 2)
    assert crc32c_spans(data, starts + np.maximum(lengths // 2, 0), lengths - lengths // 2, begun).tolist() == expected


@pytest.mark.parametrize("start, length", [(0, 11), (-1, 2), (10, 1), (11, 1), (5, 2**62), (2**62, 2**62)])
def test_a_span_outside_the_data_is_refused(start: int, length: int) -> None:
    with pytest.raises(KernelError, match="stk_crc32c_spans"):
        crc32c_spans(np.zeros(10, np.uint8), np.array([0, start]), np.array([1, length]))


def test_the_mask_is_the_one_of_tfrecord() -> None:
    # The length of an empty record, as TensorFlow writes it: eight zeros and these four bytes.
    assert mask_crc(crc32c(bytes(8))) == int.from_bytes(b"\x29\x03\x98\x07", "little")
    crcs = np.array([0, 1, 0xFFFFFFFF, 0x12345678, 0x80000000], np.uint32)
    masked = mask_crc(crcs)
    assert masked.dtype == np.uint32 and masked.tolist() == [mask_crc(int(crc)) for crc in crcs]
