"""The structs passed to and from the native library, as in ``native/include/stoker.h``; compared with it when it is loaded."""

from __future__ import annotations

import numpy as np

MAX_OPS, MAX_PARAMS = 16, 12


def _words(*names: str) -> np.dtype[np.void]:
    """A struct of which every field has 8 bytes: numbers and addresses."""
    return np.dtype([(name, np.int64) for name in names])


def _integers(*names: str) -> list[tuple[str, type[np.int32]]]:
    return [(name, np.int32) for name in names]


#: a member of a tar that holds a field of a sample; it fills the tar from `header` to ``start + length`` rounded up to 512
MEMBER = np.dtype([("header", "<i8"), ("start", "<i8"), ("length", "<i8"), ("sample", "<i8"), ("field", "<i4"), ("crc", "<u4")])
TAR_INFO = _words(
    "position", "samples", "ignored", "ended", "forgotten", "keys", "key_bytes", "fields", "field_bytes", "names", "name_bytes"
)  # fmt: skip
JPEG_INFO = np.dtype(_integers("width", "height", "components", "progressive", "scans", "supported", "orientation"))
OP = np.dtype([("kind", np.int32), ("stream", np.uint32), ("p", np.float64, MAX_PARAMS)], align=True)
AUGMENT = np.dtype([*_integers("kind", "mirrored", "relative", "fill"), ("probability", np.float64), ("magnitude", np.float64)])
CHOICE = np.dtype([("effect", AUGMENT, 2)])
PROGRAM = np.dtype(
    [
        ("seed", np.uint64),
        ("max_pixels", np.int64),
        *_integers("max_scans", "channels", "layout", "out_type", "exact", "lenient", "decoder", "n_ops", "orient"),
        ("scale", np.float32, 3),
        ("bias", np.float32, 3),
        ("ops", OP, MAX_OPS),
        ("choices", np.uintp),
        ("n_choices", np.int64),
    ],
    align=True,
)
#: what became of a picture: the results of a call are an array of these, filled in place
ROW_DTYPE = np.dtype(
    [
        *_integers("status", "width", "height", "out_width", "out_height", "flip", "shrink", "warnings", "decoder", "seek"),
        ("dest", np.int32, 4),
        ("clip", np.int32, 4),
        ("view", np.float64, 4),
        ("matrix", np.float64, 6),
        ("where", np.int64),
        ("message", "S120"),
    ],
    align=True,
)
SPANS = _words("data", "size", "starts", "lengths")
IMAGES = np.dtype(
    [
        ("pixels", np.uintp),
        *((name, np.int64) for name in ("count", "stride", "row_stride")),
        *_integers("width", "height", "channels"),
    ],
    align=True,
)
BLOCKS = _words("size", "count", "keys", "data", "lengths")
READING = _words(
    "table", "fields", "width", "behind", "gap", "image", "at", "lengths", "status", "wanted", "n_wanted", "cells", "bad",
    "pixels",
)  # fmt: skip
INPUT = _words("kind", "count", "which", "slots", "boxes", "from", "seeks", "buffer", "capacity", "needed", "done", "wrong")
PICTURES = _words(
    "decoder", "program", "count", "positions", "epoch", "out_width", "out_height", "out", "out_stride", "rows", "bad", "read_ns",
    "read_cpu_ns", "read_bytes", "load",
)  # fmt: skip
DEVICE_LOAD = _words(
    "memory", "capacity", "slots", "most_pictures", "most_device_bytes", "pictures", "full", "data_at", "data_end", "errors_at",
    "coefficients_at", "work_at", "device_bytes", "blocks", "work_bytes", "chunks", "tiles", "keep", "fetches", "fetched",
    "unfinished",
)  # fmt: skip
KEEP = _words("memory", "capacity", "used")
FETCH = _words("from", "to", "size")
#: what kernels are given, with addresses on the device
DEVICE_LAUNCH = np.dtype(
    [
        *((name, np.int64) for name in ("pictures", "data", "errors", "coefficients", "work", "out", "out_stride")),
        *_integers("count", "out_width", "out_height", "channels", "planar", "floats"),
        ("scale", np.float32, 3),
        ("bias", np.float32, 3),
    ],
    align=True,
)
#: bytes of a picture's descriptor, which only C looks into (``device_picture.h``)
DEVICE_PICTURE = np.dtype("V2296")

#: by the names they have in C
STRUCTS = {
    "stk_file_blocks": BLOCKS,
    "stk_member": MEMBER,
    "stk_tar_info": TAR_INFO,
    "stk_wanted": _words("name", "name_length", "kind", "count", "out", "also"),
    "stk_feature_stat": _words("kind", "least", "most", "present"),
    "stk_jpeg_info": JPEG_INFO,
    "stk_augment": AUGMENT,
    "stk_choice": CHOICE,
    "stk_op": OP,
    "stk_program": PROGRAM,
    "stk_row": ROW_DTYPE,
    "stk_spans": SPANS,
    "stk_files": _words("names", "starts", "count"),
    "stk_images": IMAGES,
    "stk_reading": READING,
    "stk_stored_seeks": _words("table", "buffer", "capacity", "sums", "kept"),
    "stk_input": INPUT,
    "stk_pictures": PICTURES,
    "stk_keep": KEEP,
    "stk_fetch": FETCH,
    "stk_device_load": DEVICE_LOAD,
    "stk_device_picture": DEVICE_PICTURE,
    "stk_device_launch": DEVICE_LAUNCH,
    "stk_box": _words("first", "run_bytes", "runs", "run_step", "planes", "plane_step"),
}
