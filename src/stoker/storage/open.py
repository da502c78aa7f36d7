"""Opens what a user named, by its scheme. All schemes are listed here; none runs a command, none is a plug-in."""

from __future__ import annotations

import re

from ..errors import ConfigError
from .blob import Blob
from .cache import Cache
from .http import HttpRemote
from .local import LocalBlob
from .names import AnyPath, file_name, file_url_path
from .objects import STORES, ObjectRemote
from .once import Once
from .remote import RemoteBlob
from .retry import Patience

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: words that mean a scheme to some program, also without the slashes; for a local file of that name write ./pipe:x
_WORDS = re.compile(
    r"(pipe|exec|shell|cmd|file|data|https?|ftps?|sftp|ssh|scp|rsync|s3a?|gs|gcs|az|abfss?|adl|hdfs|hf|webhdfs|zip|gopen|javascript):",
    re.IGNORECASE,
)
ALLOWED = "a path, file:///path, http://, https://, s3://, gs:// or az://"


def open_blob(
    url: AnyPath,
    *,
    cache: Cache | None = None,
    patience: Patience | None = None,
    once: Once | None = None,
) -> Blob:
    """The file at a path or URL, not yet looked at; a remote one is read through `cache`, if there is one.

    Files that share `once` share their warnings.

    A `Path` and bytes are always paths; text may be a URL. In ``file:`` URLs ``%20`` and its like are decoded, in ``http(s):``
    they go to the server as they are, the names of objects are taken literally.

    >>> open_blob("train-0000.tar").name
    'train-0000.tar'
    """
    if not isinstance(url, str):
        return LocalBlob(file_name(url))
    found = _SCHEME.match(url)
    if found is None:
        word = _WORDS.match(url)
        if word is not None:
            raise ConfigError(
                f"{word[1]}: cannot be read from; use {ALLOWED}; for a local file of that name write ./{word[1]}:..."
            )
        return LocalBlob(file_name(url))
    scheme = found[1].lower()
    if scheme == "file":
        return LocalBlob(file_name(file_url_path(url)))
    if scheme in ("http", "https"):
        blob = RemoteBlob(HttpRemote(url, once), patience)
    elif scheme in STORES:
        blob = RemoteBlob(ObjectRemote(url, once), patience)
    else:
        raise ConfigError(f"{scheme}:// cannot be read from; use {ALLOWED}")
    return cache.wrap(blob) if cache is not None else blob
