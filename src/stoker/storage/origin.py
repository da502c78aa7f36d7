"""The server that an HTTP request goes to, as named by a URL."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

#: a host that may stand in a request: a name, or an address
HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
PORTS = {"http": 80, "https": 443}
#: what is said of a URL whose "@" comes too late
LOGIN_ADVICE = "a name or password with '/', '?' or '#', which must be written as %2F, %3F and %23"


class Origin(NamedTuple):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port, as they are written in a URL."""
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """A host as written in a URL."""
    return f"[{host}]" if ":" in host else host


def basic_login(name: str | None, password: str | None) -> str | None:
    """Name and password of a URL as the value of a header; None if there is no name."""
    if name is None:
        return None
    pair = b":".join(unquote_to_bytes(part.encode("utf-8", "surrogateescape")) for part in (name, password or ""))
    return "Basic " + base64.b64encode(pair).decode()
