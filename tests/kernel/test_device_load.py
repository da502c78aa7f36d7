"""Pictures put into a load and decoded by the kernels, run on the host: the bytes that the CPU gives, whatever the files are."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from stoker.errors import KernelError
from stoker.kernel.device_load import KERNELS, DeviceLoad, kernel_source
from stoker.kernel.example_columns import BYTES, Parsing, Wanted
from stoker.kernel.file_reads import Arena, Paths
from stoker.kernel.native import Decoder, DecoderKind, Op, OpKind, Program, SeekUse, Spans, Status
from stoker.kernel.records import RecordTable, crc32c
from stoker.kernel.render import FileInput, Input, RecordInput, Renderer, SpanInput, StoredSeeks
from stoker.pack.values.example import ExampleEncoder

from ..device.emulated_device import EmulatedDecoding, aligned
from .images import center_crop, hflip, picture, random_resized_crop, resize, resize_short

CROP = Program((random_resized_crop(24, 32), hflip()), seed=3)


def encoded(width: int, height: int, kind: str = "420", seed: int = 0, **options: Any) -> bytes:
    """A JPEG of `picture`; its kind is a subsampling, ``gray`` or ``rgb``."""
    image, out = Image.fromarray(picture(width, height, seed)), io.BytesIO()
    if kind == "gray":
        image = image.convert("L")
    more = {"keep_rgb": True} if kind == "rgb" else {"subsampling": f"4:{kind[1]}:{kind[2]}"} if kind != "gray" else {}
    image.save(out, "JPEG", **{"quality": 85, **more, **options})
    return out.getvalue()


def index_of(data: bytes, step: int = 16) -> bytes:
    with Decoder() as decoder:
        return decoder.seek_index(Program(), data, step)[0]


def spans_of(parts: list[bytes]) -> Spans:
    lengths = np.array([len(part) for part in parts], np.int64)
    return Spans(np.frombuffer(b"".join(parts) or b"\0", np.uint8), np.cumsum(lengths) - lengths, lengths)


class Sides:
    """The same pictures made by the CPU, and by the device with the CPU for what that leaves."""

    def __init__(self, program: Program, size: tuple[int, int], count: int, *, pictures: int = 64) -> None:
        shape = (count, *program.shape(*size))
        self.here, self.there = np.full(shape, 7, program.dtype), np.full(shape, 9, program.dtype)
        self.program, self.pictures, self.count = program, pictures, count

    def render(self, source: Input, again: Input, first: int = 0) -> None:
        positions = np.arange(first, first + self.count)
        with Decoder() as one, Decoder() as other:
            here, there = Renderer(one, self.program), Renderer(other, self.program)
            here.begin(1, positions, self.here)
            here.add(source)
            self.device = EmulatedDecoding(there, self.program, pictures=self.pictures)
            self.rows_here, self.rows = here.rows.copy(), self.device.render(again, 1, positions, self.there).copy()

    def check(self) -> None:
        """What has no error word is the same; so is what became of it, but for who decoded it."""
        settled = np.ones(self.count, bool)
        settled[self.device.bad] = False
        rows, told = self.rows_here[settled], self.rows[settled]
        told["decoder"] = rows["decoder"]
        np.testing.assert_array_equal(rows, told)
        good = settled & (self.rows_here["status"] == Status.OK)
        np.testing.assert_array_equal(self.here[good], self.there[good])


def compared(
    program: Program, size: tuple[int, int], images: list[bytes], seeks: list[bytes], *, pictures: int = 64, first: int = 0
) -> Sides:
    sides = Sides(program, size, len(images), pictures=pictures)
    inputs = [SpanInput().tell(spans_of(images), spans_of(seeks)) for _ in range(2)]
    sides.render(inputs[0], inputs[1], first)
    sides.check()
    return sides


# ---- the same bytes -------------------------------------------------------------------------------------------------------

SIDES = st.integers(1, 40)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, tuple[int, int]]:
    size = height, width = draw(SIDES), draw(SIDES)
    first = draw(
        st.sampled_from(
            [
                (random_resized_crop(height, width),),
                (resize(height, width),),
                (center_crop(height, width),),
                (resize_short(33), center_crop(height, width)),
            ]
        )
    )
    flips = draw(st.sampled_from([(), (hflip(),), (Op(OpKind.VFLIP, 5, (0.5,)),), (hflip(1.0), Op(OpKind.VFLIP, 5, (1.0,)))]))
    floats: dict[str, Any] = {"as_float": True, "scale": (0.017, 1 / 3, 2.0), "bias": (-2.1, 0.0, 5.5)}
    return (
        Program(
            (*first, *flips),
            seed=draw(st.integers(0, 99)),
            channels=draw(st.sampled_from([1, 3])),
            planar=draw(st.booleans()),
            exact=draw(st.booleans()),
            **(floats if draw(st.booleans()) else {}),
        ),
        size,
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    programs(),
    st.sampled_from(["444", "422", "420", "411", "gray", "rgb"]),
    st.tuples(st.integers(1, 130), st.integers(1, 130)),
    st.integers(5, 100),
    st.booleans(),
    st.sampled_from([1, 4, 8, 16, 65535]),
)
def test_a_device_gives_the_bytes_that_the_cpu_gives(
    told: tuple[Program, tuple[int, int]], kind: str, sides: tuple[int, int], quality: int, optimize: bool, step: int
) -> None:
    program, size = told
    data = encoded(*sides, kind, seed=quality, quality=quality, optimize=optimize)
    made = compared(program, size, [data] * 3, [index_of(data, step)] * 3)
    if (made.rows_here["status"] == Status.OK).all():
        assert made.device.launched == 3 and not made.device.bad
        assert set(made.rows["decoder"]) == {DecoderKind.DEVICE} and set(made.rows["seek"]) == {SeekUse.USED}


@pytest.mark.parametrize("exact", [False, True])
def test_large_photographs_are_shrunk_as_they_are_on_the_cpu(exact: bool) -> None:
    images = [encoded(900, 700, kind, seed) for seed, kind in enumerate(["420", "444", "422", "gray"])]
    seeks = [index_of(image, 4) for image in images]
    shrinks = set()
    for first, size in enumerate([(40, 48), (96, 90), (160, 170), (400, 300)]):
        program = Program((random_resized_crop(*size), hflip()), seed=1, exact=exact)
        made = compared(program, size, images, seeks, first=4 * first)
        assert made.device.launched == 4 and not made.device.bad
        shrinks |= set(made.rows["shrink"].tolist())
    assert shrinks == ({1} if exact else {1, 2, 4, 8})


# ---- what a device does not take --------------------------------------------------------------------------------------------


def test_what_a_device_does_not_take_is_decoded_in_the_same_call() -> None:
    plain = encoded(80, 60)
    restarts, progressive = encoded(80, 60, restart_marker_blocks=2), encoded(80, 60, progressive=True)
    seek = index_of(plain)
    made = compared(CROP, (24, 32), [plain, plain, restarts, progressive, b"", plain[:90]], [seek, b"", b"", b"", b"", seek])
    assert made.device.launched == 1 and (made.rows["decoder"] == DecoderKind.DEVICE).tolist() == [True] + 5 * [False]
    for program in (Program((resize(24, 32),), lenient=True), Program((resize(24, 32),), decoder=DecoderKind.TURBO)):
        assert compared(program, (24, 32), [plain], [seek]).device.launched == 0
    assert compared(CROP, (24, 32), [plain], [index_of(encoded(80, 61))]).device.launched == 0


def test_only_what_a_device_has_begun_is_finished() -> None:
    whole, coloured = Program((resize(24, 32),)), Program((resize(24, 32), Op(OpKind.INVERT, 4, (1.0,))))
    out = np.zeros((2, 24, 32, 3), np.uint8)
    for program in (whole, coloured):
        renderer = Renderer(Decoder(), program)
        renderer.begin(0, np.arange(2), out)
        renderer.add(SpanInput().tell(spans_of([encoded(80, 60)] * 2)))
        before = out.copy()
        for slots in ([0], [2], [-1]):
            with pytest.raises(KernelError):
                renderer.finish(np.array(slots))
        assert (out == before).all()


# ---- damage -----------------------------------------------------------------------------------------------------------------


def test_damaged_files_and_indices_that_lie_give_what_the_cpu_gives_or_an_error_word() -> None:
    rng = np.random.default_rng(5)
    data = [np.frombuffer(encoded(70, 50, kind, quality=60), np.uint8) for kind in ("420", "444", "gray")]
    seeks = [np.frombuffer(index_of(image.tobytes(), 1), np.uint8) for image in data]
    launched = bad = 0
    for number in range(150):
        images, indices = [], []
        for image, seek in zip(data, seeks):
            image, seek = image.copy(), seek.copy()
            damaged, low = (image, 0) if number % 2 else (seek, 8)
            damaged[rng.integers(low, len(damaged))] ^= rng.integers(1, 256)
            images.append(image.tobytes())
            indices.append(seek.tobytes())
        made = compared(CROP, (24, 32), images, indices, first=3 * number)
        launched, bad = launched + made.device.launched, bad + len(made.device.bad)
    assert launched > bad > 20


def test_a_marker_amid_the_data_ends_them_on_a_device_too() -> None:
    """Whatever follows an 0xFF instead of the stuffed zero: the index still fits, since it looks at both ends alone."""
    image = encoded(160, 120, "444", quality=95)
    seek, start = index_of(image, 4), image.index(b"\xff\xda") + 100
    stuffed = [at for at in range(start, len(image) - 20) if image[at : at + 2] == b"\xff\0"][:12]
    assert len(stuffed) == 12
    wounded = [image[: at + 1] + bytes([code]) + image[at + 2 :] for at in stuffed for code in (1, 2, 3, 0xD0, 0xFE)]
    made = compared(Program((resize(120, 160),)), (120, 160), wounded, [seek] * len(wounded))
    assert len(made.device.bad) == made.device.launched == len(wounded)


# ---- loads ------------------------------------------------------------------------------------------------------------------


def test_a_load_that_is_full_is_emptied_and_filled_again(tmp_path: Path) -> None:
    """From memory, from files and from records: the call goes on where it was."""
    images = [encoded(60 + n, 50, seed=n) for n in range(7)]
    seeks = [index_of(image, 2) for image in images]
    assert compared(CROP, (24, 32), images, seeks, pictures=2).device.launched == 7
    for number, image in enumerate(images):
        (tmp_path / f"{number}.jpg").write_bytes(image)
    stored = tmp_path / "seeks"
    stored.write_bytes(b"".join(seeks))
    whole = tmp_path / "all"
    whole.write_bytes(b"".join(images))
    with Files(whole, stored) as (fd, seek_fd):
        table = table_of(images)
        found = [stored_in(table_of(seeks), seek_fd, max(map(len, seeks))) for _ in range(4)]
        paths = Paths([os.fsencode(tmp_path / f"{number}.jpg") for number in range(7)])
        files = [FileInput(paths, Arena(), each).tell(np.arange(7)) for each in found[:2]]
        records: list[Input] = [
            RecordInput(table, [0], 0, Arena(), seeks=each).tell(np.array([fd], np.int32), np.arange(7)) for each in found[2:]
        ]
        for one, other in (files, records):
            made = Sides(CROP, (24, 32), 7, pictures=2)
            made.render(one, other)
            made.check()
            assert made.device.launched == 7 and not made.device.bad


def test_a_load_that_is_full_leaves_what_else_examples_hold(tmp_path: Path) -> None:
    images = [encoded(60 + n, 50, seed=n) for n in range(5)]
    seeks, labels = [index_of(image, 2) for image in images], [b"label %d" % n for n in range(5)]
    examples = [b"".join(ExampleEncoder().encode([("image", image), ("name", name)])) for image, name in zip(images, labels)]
    (tmp_path / "seeks").write_bytes(b"".join(seeks))
    (tmp_path / "records").write_bytes(b"".join(examples))
    made, inputs, parsings, arenas = Sides(CROP, (24, 32), 5, pictures=2), [], [], []
    with Files(tmp_path / "records", tmp_path / "seeks") as (fd, seek_fd):
        for _ in range(2):
            parsing, arena = Parsing([Wanted(b"image", BYTES, 1), Wanted(b"name", BYTES, 1)], 5), Arena()
            stored = stored_in(table_of(seeks), seek_fd, max(map(len, seeks)))
            records = RecordInput(table_of(examples), [0], 0, arena, seeks=stored, examples=True)
            inputs.append(records.tell(np.array([fd], np.int32), np.arange(5), parsing=parsing))
            parsings.append(parsing)
            arenas.append(arena)
        made.render(*inputs)
    made.check()
    assert made.device.launched == 5 and not made.device.bad and [each.wrong for each in inputs] == [0, 0]
    for parsing, arena in zip(parsings, arenas):
        starts, lengths = parsing.columns[1]
        assert [arena.buffer[at : at + size].tobytes() for at, size in zip(starts, lengths)] == labels


def table_of(parts: list[bytes]) -> RecordTable:
    lengths = np.array([len(part) for part in parts], np.int64)
    sums = np.array([crc32c(part) for part in parts], np.uint32)
    return RecordTable((np.cumsum(lengths) - lengths)[:, None], lengths[:, None], sums[:, None], np.array([len(parts)]))


class Files:
    """Descriptors of files, for as long as they are needed."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths

    def __enter__(self) -> list[int]:
        self._fds = [os.open(path, os.O_RDONLY) for path in self._paths]
        return self._fds

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)


def stored_in(table: RecordTable, fd: int, longest: int) -> StoredSeeks:
    return StoredSeeks(table, np.array([fd], np.int32), longest)


def test_a_picture_that_fits_no_load_is_decoded_by_the_cpu() -> None:
    data = encoded(200, 150)
    with Decoder() as decoder:
        renderer = Renderer(decoder, CROP)
        renderer.load = DeviceLoad(aligned(1 << 16), 1, 1 << 15)
        renderer.load.begin(CROP, 24, 32)
        out: NDArray[np.uint8] = np.zeros((1, 24, 32, 3), np.uint8)
        renderer.begin(0, np.arange(1), out)
        renderer.add(SpanInput().tell(spans_of([data]), spans_of([index_of(data)])))
    assert renderer.rows["decoder"][0] == DecoderKind.OWN and renderer.load.pictures == 0 and out.any()


def test_a_load_says_what_it_lacks() -> None:
    with pytest.raises(KernelError, match="aligned to 64"):
        DeviceLoad(aligned(1 << 20)[1:], 4, 1 << 20)
    with pytest.raises(KernelError, match="takes more than"):
        DeviceLoad(aligned(1000), 4, 1 << 20)
    with pytest.raises(KernelError, match="1 to 65536 pictures"):
        DeviceLoad(aligned(1000), 0, 1 << 20)
    data = encoded(60, 50)
    load = DeviceLoad(aligned(1 << 20), 1, 1 << 30)
    load.begin(CROP, 24, 32)
    with Decoder() as decoder:
        renderer = Renderer(decoder, CROP)
        renderer.load = load
        renderer.begin(0, np.arange(2), np.zeros((2, 24, 32, 3), np.uint8))
        source = SpanInput().tell(spans_of([data] * 2), spans_of([index_of(data)] * 2))
        with pytest.raises(KernelError, match="nobody empties it"):
            renderer.add(source)
        load.when_full = lambda: None
        load.begin(CROP, 24, 32)
        renderer.begin(0, np.arange(2), np.zeros((2, 24, 32, 3), np.uint8))
        with pytest.raises(KernelError, match="must call `begin`"):
            renderer.add(source)


def test_the_source_is_one_text_with_every_kernel() -> None:
    source = kernel_source()
    assert '#include "' not in source and all(f"KERNEL({name}," in source for name in KERNELS)
