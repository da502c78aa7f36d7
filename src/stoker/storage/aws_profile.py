"""Credentials, region and endpoint from the files of AWS's own tools, which obstore does not read.

Environment variables come first, as in those tools: keys of a profile are used if the environment has no credentials, its region
and endpoint if the environment names none. Nothing is run or contacted to get credentials: a profile that needs a program, a
browser or a role is an error if the user named it, and ignored if it is only the default.
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from .names import printable
from .retry import RemoteFault

#: variables with credentials that obstore knows, or with a way to get them
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
_REGIONS, _ENDPOINTS = ("AWS_REGION", "AWS_DEFAULT_REGION"), ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
#: settings of a profile, by obstore's names
_KEYS = {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key"}
_TOKEN = {"token": "aws_session_token"}
#: settings by which a profile says how to get its credentials
_WAYS = ("credential_process", "sso_session", "sso_start_url", "role_arn", "login_session")
#: a larger file is none of theirs
_MOST_BYTES = 1 << 20
_HTTP = re.compile(r"https?://[^/]", re.IGNORECASE)

#: files, and how each was when it was looked at: its time and size; None: there was none
Seen = tuple[tuple[Path, tuple[int, int] | None], ...]


@dataclass(frozen=True, slots=True)
class _Profile:
    """A profile's settings. Its `repr`, which tools show that print the variables of a traceback, holds no secret."""

    values: dict[str, str] = field(repr=False)

    def has(self, *names: str) -> bool:
        return all(self.values.get(name) for name in names)

    def named(self, names: dict[str, str]) -> dict[str, str]:
        return {name: self.values[own] for name, own in names.items() if self.values.get(own)}


def settings() -> dict[str, str]:
    """Settings that obstore needs in addition to the environment. Raises RemoteFault, which quotes nothing of a file."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    secrets, config = _files()
    own = _is_set(_CREDENTIALS)
    try:
        profile = _read(secrets, config, name)
    except RemoteFault:
        if not own:
            raise
        return {}  # the file is not needed
    wanted: dict[str, str] = {}
    if not own:
        if profile.has(*_KEYS.values()):
            wanted |= _KEYS | _TOKEN
        elif name:
            _refuse_profile(name, profile, secrets, config)
    if not _is_set(_REGIONS):
        wanted["region"] = "region"
    if not _is_set(_ENDPOINTS) and os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        wanted["endpoint"] = "endpoint_url"
        if profile.has("endpoint_url"):
            check_address(f"endpoint_url in {config}", profile.values["endpoint_url"])
    return profile.named(wanted)


def seen() -> Seen:
    """The present state of the files."""
    return tuple((path, _stamp(path)) for path in _files())


def check_address(name: str, value: str) -> None:
    """Raise if the address of a server is not a URL: obstore would panic, and print its stack."""
    if not _HTTP.match(value):
        remedy = "write http:// or https:// before the host, as in http://127.0.0.1:9000"
        raise RemoteFault(f"{name} is not a URL", again=False, remedy=remedy)


def _read(secrets: Path, config: Path, name: str | None) -> _Profile:
    configured = _section(config, (f"profile {name}", name) if name else ("default", "profile default"))
    return _Profile(configured | _section(secrets, (name or "default",)))


def _refuse_profile(name: str, profile: _Profile, secrets: Path, config: Path) -> None:
    shown = printable(os.fsencode(name))
    if not profile.values:
        raise RemoteFault(f"neither {secrets} nor {config} has a profile {shown}", again=False, remedy="check AWS_PROFILE")
    way = next((way for way in _WAYS if profile.has(way)), None)
    remedy = f"set the variables that `aws configure export-credentials --profile {shown} --format env` prints"
    why = "has no keys" if way is None else f"gets its credentials by {way}, which is not supported"
    raise RemoteFault(f"the profile {shown} {why}", again=False, remedy=remedy)


def _files() -> tuple[Path, Path]:
    """Where credentials are, and configuration."""
    secrets = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return _expanded(secrets), _expanded(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config")


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111  Path's own raises where a user has no home


def _is_set(names: tuple[str, ...]) -> bool:
    return any(os.environ.get(name) for name in names)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _section(path: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The first of these sections that a file has; nothing where there is none, or no file."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        why = "is too large" if path.stat().st_size > _MOST_BYTES else ""
        if not why:
            parser.read_string(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (configparser.Error, UnicodeDecodeError):
        why = "does not consist of sections and settings"
    except OSError as error:
        why = f"cannot be read ({os.strerror(error.errno or 0)})"
    if why:  # not above: those errors hold lines of the file
        raise RemoteFault(f"{path} {why}", again=False, remedy="repair it, or set the variables AWS_ACCESS_KEY_ID and so on")
    found = next((name for name in names if parser.has_section(name)), None)
    return {} if found is None else {key: value or "" for key, value in parser.items(found)}
