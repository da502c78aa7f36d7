"""From what a user writes to the file it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import ConfigError
from stoker.storage.cache import Cache
from stoker.storage.cache_blob import CachedBlob
from stoker.storage.local import LocalBlob
from stoker.storage.open import open_blob
from stoker.storage.remote import RemoteBlob


def test_paths_are_local_files(tmp_path: Path) -> None:
    path = tmp_path / "a b#c?.tar"
    path.write_bytes(b"data")
    for spec in (str(path), path, bytes(path), path.as_uri(), "file://localhost" + path.as_uri()[7:]):
        blob = open_blob(spec)
        assert isinstance(blob, LocalBlob) and blob.read_all(10) == b"data", spec
        blob.close()


@pytest.mark.parametrize("name", ["-o/etc/x", "$(id)", "|touch canary", "a:b.tar", "C:stuff", "v1:2.tar", "a;b", "x://y"])
def test_a_path_is_never_anything_but_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spec in ["./" + name, Path(name), name.encode()]:
        assert isinstance(open_blob(spec), LocalBlob)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["http://h/a.tar", "https://h/a.tar", "HTTPS://H/a.tar", "s3://b/a.tar", "gs://b/a.tar", "az://b/a.tar"]
)
def test_urls_are_remote_files(url: str, tmp_path: Path) -> None:
    blob = open_blob(url)
    assert isinstance(blob, RemoteBlob) and blob.name == "a.tar"
    assert isinstance(open_blob(url, cache=Cache(tmp_path)), CachedBlob)


def test_a_cache_is_for_remote_files_only(tmp_path: Path) -> None:
    assert isinstance(open_blob("/a.tar", cache=Cache(tmp_path)), LocalBlob)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/a", "sftp://h/a", "hdfs://h/a", "gopen://x", "pipe://touch", "data://x", "ssh://h", "s3a://b/a", "x-y.z+1://a",
        "pipe:touch canary", "PIPE:cat x", "exec:id", "data:text/plain,x", "file:a.tar", "http:a", "s3:b/a", "hf:b",
    ],
)  # fmt: skip
def test_any_other_scheme_is_refused_and_the_allowed_ones_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be read from; use a path, file:///path, http://, https://, s3://"):
        open_blob(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["file://", "file://host/a", "file://a", "file:///a?b", "file:///a#b", "", b"", "a\0b", "file:///a%00b"]
)
def test_what_names_no_file_is_refused(url: str | bytes) -> None:
    with pytest.raises(ConfigError):
        open_blob(url)
