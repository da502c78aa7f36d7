"""Finds out what kind of data some bytes, a file or a folder are, and which source reads them.

Used for messages: an error about unreadable data says what the data are.
"""

from __future__ import annotations

import os
import zlib
from itertools import islice

from ..kernel.records import crc32c, mask_crc
from .files.walk import is_image
from .paths import inside, is_file, is_folder
from .shards.shard_index import MAGIC as INDEX_MAGIC

#: the bytes that are enough to know a kind by, also compressed
BEGIN = 1024
_TAR_HEADER = 512
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: what `tfrecord(compression=...)` takes
PACKINGS = ("gzip", "zlib")
#: what a name is to end in, by what its bytes are compressed with
_PACKED_ENDINGS = {"gzip": ".gz", "zlib": ".zlib", "zstd": ".zst"}
TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")
_PLAIN_TFRECORDS = (".tfrecord", ".tfrecords")
TFRECORD_ENDINGS = (*_PLAIN_TFRECORDS, *(plain + packed for plain in _PLAIN_TFRECORDS for packed in (".gz", ".zlib")))
LMDB_FILE = "data.mdb"
_LMDB_MAGIC = b"\xde\xc0\xef\xbe"
_IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"II*\0", b"MM\0*")
#: names in a folder that are looked at
_LOOKED_AT = 1000

#: what each source reads, by the source's name
_READS = {
    "tar": "a tar shard",
    "tfrecord": "a TFRecord file",
    "lmdb": "an LMDB database",
    "files": "a folder of images",
    "filelist": "a list of images",
    "table": "a CSV file",
}
_FOLDERS = {"tar": "a folder of tar shards", "tfrecord": "a folder of TFRecord files", "lmdb": "an LMDB database"}
_PACKED = {"tar": "a compressed tar shard", "tfrecord": "a compressed TFRecord file"}
PACKED_TAR = f"this is {_PACKED['tar']}; use stoker.tar(...)"
_PAGE = "a web page (an error page of a server?)"
#: what nothing here reads, by its first bytes
_STRANGERS = {
    GZIP: "gzip data, not {wanted}",
    ZSTD: "zstd data, not {wanted}",
    b"BZh": "bzip2 data, which is not read; compress with gzip or zstd",
    b"\xfd7zXZ": "xz data, which is not read; compress with gzip or zstd",
    b"PAR1": "a Parquet file, not {wanted}; read it with pandas or Polars and use stoker.table(frame)",
    b"PK\x03\x04": "a zip archive, not {wanted}",
    b"<!": f"{_PAGE}, not {{wanted}}",
    b"<h": f"{_PAGE}, not {{wanted}}",
    b"<H": f"{_PAGE}, not {{wanted}}",
    b"<?xml": "an XML text (an error message of a server?), not {wanted}",
    b"{": "JSON (an error message of a server?), not {wanted}",
}


def kind_of(begin: bytes) -> str:
    """The kind of data that begin so: ``tar``, ``tfrecord``, ``lmdb``, ``image``; "" when none of them is certain."""
    if _is_tar(begin):
        return "tar"
    if is_tfrecord(begin):
        return "tfrecord"
    if begin[16:20] == _LMDB_MAGIC:
        return "lmdb"
    bmp, webp = begin[:2] == b"BM" and begin[6:10] == bytes(4), begin[:4] == b"RIFF" and begin[8:12] == b"WEBP"
    return "image" if begin.startswith(_IMAGES) or bmp or webp else ""


def packing_by_content(begin: bytes) -> str | None:
    """The compression of data with this beginning: ``gzip``, ``zlib`` or ``zstd``; None: none that can be recognised."""
    if kind_of(begin):
        return None  # the length of a record, or a name in a tar, may look like zlib
    return "gzip" if begin.startswith(GZIP) else "zstd" if begin.startswith(ZSTD) else "zlib" if _is_zlib(begin) else None


def seen_packed(packing: str, begin: bytes) -> str:
    """What bytes that are said to be compressed with `packing` are instead, and what to do; "" when nothing is known."""
    kind, found = kind_of(begin), packing_by_content(begin)
    if kind in _PACKED:
        advice = "or omit compression=" if kind == "tfrecord" else "and use stoker.tar(...)"
        return f"this is {_READS[kind]} that is not compressed; name it without {_PACKED_ENDINGS[packing]}, {advice}"
    if found is None or found == packing or (found == "zlib" and not _kind_inside(begin)):
        return ""
    advice = f", or use stoker.tfrecord(..., compression={found!r})" if found != "zstd" else ""
    return f"this is {found} data, not {packing}; name it with {_PACKED_ENDINGS[found]}{advice}"


def seen_as(asked: str, begin: bytes) -> str:
    """What bytes that could not be read by the source `asked` seem to be, and what to do; "" when nothing is known."""
    kind = kind_of(begin)
    if kind == asked:
        return ""
    if kind == "image":
        return "this is a single image; use stoker.files(...) with its folder"
    if kind:
        return f"this is {_READS[kind]}, not {_READS[asked]}; use stoker.{kind}(...)"
    if begin.startswith(INDEX_MAGIC):
        return "this is the index of a shard; name the shard itself"
    inner = _kind_inside(begin)
    if inner in _PACKED and inner != asked:
        return f"this is {_PACKED[inner]}; use stoker.{inner}(...)"
    packing = packing_by_content(begin)
    if packing in ("gzip", "zstd") and asked in _PACKED:
        return f"this is {packing} data; name it .{asked}{_PACKED_ENDINGS[packing]}"
    stranger = next((told for magic, told in _STRANGERS.items() if begin.startswith(magic)), "")
    return stranger and "this is " + stranger.format(wanted=_READS[asked])


def seen_at(asked: str, path: bytes) -> str:
    """The same of a local file or folder."""
    if is_folder(path):
        kind = _kind_of_folder(path)
        return f"this is {_FOLDERS.get(kind, _READS[kind])}; use stoker.{kind}(...)" if kind not in ("", asked) else ""
    if not is_file(path):
        return ""
    if asked != "tar" and is_packed_tar(os.fsdecode(path)):
        return PACKED_TAR
    if asked != "table" and path.lower().endswith(b".csv"):
        return f"this is {_READS['table']}; use stoker.table(...)"
    if asked != "filelist" and path.lower().endswith(b".txt"):
        return f"this is {_READS['filelist']}; use stoker.filelist(...)"
    return seen_as(asked, first_bytes(path))


def is_packed_tar(name: str) -> bool:
    """Whether a file is a compressed tar shard, by its name."""
    return name.lower().endswith(TAR_ENDINGS[1:])


def first_bytes(path: bytes) -> bytes:
    """The beginning of a local file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(BEGIN)
    except OSError:
        return b""


def _kind_of_folder(path: bytes) -> str:
    """By the names in it; a folder of folders by the names in the first of those."""
    names = _names_in(path)
    if LMDB_FILE in names:
        return "lmdb"
    for kind, endings in (("tar", TAR_ENDINGS), ("tfrecord", TFRECORD_ENDINGS)):
        if any(name.lower().endswith(endings) for name in names):
            return kind
    inner = next((folder for name in names if is_folder(folder := inside(path) + os.fsencode(name))), None)
    images = [*names, *([] if inner is None else _names_in(inner))]
    return "files" if any(is_image(os.fsencode(name)) for name in images) else ""


def _names_in(path: bytes) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(os.fsdecode(entry.name) for entry in islice(entries, _LOOKED_AT))
    except OSError:
        return []


def _kind_inside(begin: bytes) -> str:
    """The kind of what data that begin so unpack to; "" where they are not gzip or zlib."""
    if packing_by_content(begin) not in PACKINGS:
        return ""
    try:
        return kind_of(zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(begin, BEGIN))  # 32: either header
    except zlib.error:
        return ""


def _is_zlib(begin: bytes) -> bool:
    """Whether bytes may begin a zlib stream: deflate with a window of up to 32 KiB, and two bytes that 31 divides."""
    return len(begin) >= 2 and begin[0] & 15 == 8 and begin[0] >> 4 <= 7 and int.from_bytes(begin[:2], "big") % 31 == 0


def _is_tar(begin: bytes) -> bool:
    """Whether these bytes begin with a tar header whose checksum is right."""
    if len(begin) < _TAR_HEADER:
        return False
    try:
        told = int(begin[148:156].strip(b" \0") or b"-1", 8)
    except ValueError:
        return False
    return told == sum(begin[:148]) + sum(begin[156:_TAR_HEADER]) + 8 * ord(" ")


def is_tfrecord(begin: bytes) -> bool:
    """Whether these bytes begin with a record's length and its checksum."""
    return len(begin) >= 12 and int(mask_crc(crc32c(begin[:8]))) == int.from_bytes(begin[8:12], "little")
