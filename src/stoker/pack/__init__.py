"""Writers: samples go in; tar shards, TFRecord files and LMDB databases come out, whole or not at all, with their indexes.

The same samples always give the same bytes. What is written here is read by `stoker.source` and by the tools of each format: GNU
tar, Python's tarfile and webdataset; TensorFlow; py-lmdb.
"""

from __future__ import annotations

from .writers.lmdb_writer import write_lmdb
from .writers.shard_writer import WrittenShards
from .writers.tar_writer import TarWriter, write_tar
from .writers.tfrecord_writer import TfrecordWriter, write_tfrecord

__all__ = ["TarWriter", "TfrecordWriter", "WrittenShards", "write_lmdb", "write_tar", "write_tfrecord"]
