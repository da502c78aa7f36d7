"""Files of AWS's tools: whose keys, region and endpoint count, and what is said of files that do not serve."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import RemoteError
from stoker.storage import aws_profile, objects
from stoker.storage.objects import ObjectRemote
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience, RemoteFault

from .server import Server

Write = Callable[[str, str], object]
KEYS = "aws_access_key_id = AKIDcanary{0}\naws_secret_access_key = canary{0}\n"
FOUND = {"access_key_id": "AKIDcanary1", "secret_access_key": "canary1"}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of the home's; the environment says nothing of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    objects._stores.clear()  # each was made for an environment that is gone
    return lambda name, text: (tmp_path / ".aws" / name).write_text(text)


def test_the_default_profile_is_both_files_together(write: Write) -> None:
    assert aws_profile.settings() == {}
    write("credentials", f"[default]\n{KEYS.format(1)}aws_session_token = canary-token\n[other]\n{KEYS.format(2)}")
    write("config", "[default]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:9000\ns3 =\n  max_queue_size = 10\n")
    more = {"token": "canary-token", "region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"}
    assert aws_profile.settings() == FOUND | more


def test_a_profile_that_is_named_counts_alone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("credentials", f"[default]\n{KEYS.format(2)}")
    write("config", f"[default]\nregion = eu-west-1\n[profile mine]\nregion = us-east-2\n{KEYS.format(1)}")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert aws_profile.settings() == FOUND | {"region": "us-east-2"}


def test_each_of_the_variables_comes_before_the_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("credentials", f"[default]\n{KEYS.format(1)}")
    write("config", "[default]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:9000\n")
    whole = aws_profile.settings()
    for name, gone in {
        "AWS_ACCESS_KEY_ID": set(FOUND),
        "AWS_WEB_IDENTITY_TOKEN_FILE": set(FOUND),
        "AWS_DEFAULT_REGION": {"region"},
        "AWS_ENDPOINT_URL_S3": {"endpoint"},
    }.items():
        with monkeypatch.context() as changed:
            changed.setenv(name, "x")
            assert aws_profile.settings().keys() == whole.keys() - gone
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert aws_profile.settings().keys() == whole.keys() - {"endpoint"}


def test_files_may_be_elsewhere(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text(f"[default]\n{KEYS.format(1)}")
    (tmp_path / "settings").write_text("[default]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "~/keys")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "settings"))
    assert aws_profile.settings() == FOUND | {"region": "eu-west-1"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", r"neither /\S+/credentials nor /\S+/config has a profile mine; check AWS_PROFILE$"),
        ("[profile mine]\nregion = x\n", r"the profile mine has no keys; set the variables that `aws configure export-"),
        ("[profile mine]\naws_access_key_id = AKIDcanary\n", "the profile mine has no keys"),
        ("[profile mine]\nsso_session = canary\n", "mine gets its credentials by sso_session, which is not supported; set the"),
        ("[profile mine]\ncredential_process = touch canary\n", "by credential_process, which is not supported"),
        ("AKIDcanary\n", r"/\S+/config does not consist of sections and settings; repair it, or set the variables AWS_A"),
        (f"[profile mine]\nendpoint_url = canary:9000\n{KEYS.format(1)}", "config is not a URL; write http:// or https://"),
        ("#" * (1 << 20) + "\n", r"/\S+/config is too large; repair it"),
    ],
)
def test_a_profile_that_does_not_serve_is_an_error_that_shows_no_secret(
    config: str, message: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("config", config)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with pytest.raises(RemoteError, match=f"s3://bucket/a.tar: .*{message}") as caught:
        RemoteBlob(ObjectRemote("s3://bucket/a.tar"), Patience()).stat()
    shown = traceback.TracebackException(caught.type, caught.value, caught.tb.tb_next, capture_locals=True)
    assert "canary" not in "".join(shown.format())


def test_files_that_nobody_needs_may_be_anything(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has credentials in the environment reads as before; and only a profile that was named has to have keys."""
    write("config", "[default]\nrole_arn = arn\n")
    assert aws_profile.settings() == {}
    write("config", "nonsense\n")
    with pytest.raises(RemoteFault):
        aws_profile.settings()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert aws_profile.settings() == {}


@given(text=st.text())
def test_whatever_stands_in_a_file_is_settings_or_an_error(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "config"
    path.write_text(f"[default]\nregion = here\n{text}", "utf-8", "surrogatepass", newline="")
    try:
        found = aws_profile._section(path, ("default",))
    except RemoteFault as fault:
        assert fault.remedy and "here" not in str(fault)
    else:
        assert all(isinstance(value, str) for value in found.values())


def test_keys_of_a_profile_read_objects_and_new_ones_count_once_they_are_written(
    write: Write, server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr(objects, "_FILES_S", 0.0)
    server.put("/bucket/a.tar", b"abc")

    def written(number: int) -> str:
        return f"[default]\n{KEYS.format(number)}endpoint_url = {server.origin}\n"

    def signed_by() -> set[str]:
        """Whose keys requests were signed with since the last call; of reads by signed URLs, and of others."""
        asked = [request.path + request.headers.get("authorization", "") for request in server.asked("/bucket/a.tar")]
        server.log.clear()
        return {name for name in ("AKIDcanary1", "AKIDcanary2") for text in asked if name in text}

    write("credentials", written(1))
    blob = RemoteBlob(ObjectRemote("s3://bucket/a.tar"), quick)
    assert blob.read_all(10) == b"abc"
    assert signed_by() == {"AKIDcanary1"}
    write("credentials", "nonsense while it is written")
    assert blob.read_all(10) == b"abc"
    assert signed_by() == {"AKIDcanary1"}
    write("credentials", written(2))
    blob._remote._signed = None  # type: ignore[attr-defined]  # which is good for some minutes more
    assert blob.read_all(10) == b"abc"
    assert signed_by() == {"AKIDcanary2"}
