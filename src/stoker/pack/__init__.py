"""Writers: samples go in; tar shards, TFRecord files and LMDB databases come out, whole or not at all, indexes beside them.

The same samples always give the same bytes. What is written here is read by `stoker.source` and by the tools each format comes
from: GNU tar, Python's tarfile and webdataset; TensorFlow; py-lmdb.
"""

from __future__ import annotations

from .lmdb import write_lmdb
from .shards import Written
from .tar import TarWriter, write_tar
from .tfrecord import TfrecordWriter, write_tfrecord

__all__ = ["TarWriter", "TfrecordWriter", "Written", "write_lmdb", "write_tar", "write_tfrecord"]
