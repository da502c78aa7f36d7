"""Proxies named in the environment, by the rules of the standard library. No other module reads these variables.

They are ``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy``, in lower or upper case. A proxy is ``http://host:port``,
with name and password before the host if it needs them; these are sent to the proxy and never shown. As in other programs,
``no_proxy`` may also contain blanks between its entries, and networks.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from .origin import HOST, LOGIN_ADVICE, PORTS, Origin, basic_login

#: kinds of proxies there are, so that an error may name them; what else is in a variable is not shown
_KINDS = ("https", "socks", "socks4", "socks4a", "socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that requests go through."""

    origin: Origin
    #: name and password, as a header's value
    login: str | None = field(repr=False)

    @property
    def authority(self) -> str:
        """Host and port, for messages."""
        return self.origin.authority


def proxy_for(origin: Origin) -> Proxy | None:
    """The proxy that the environment names for an origin. Raises ValueError, without secrets, when it cannot be used."""
    named = getproxies_environment()
    kind = origin.scheme if origin.scheme in named else "all"
    if kind not in named or _is_exempt(origin, named.get("no", "").replace(",", " ").split()):
        return None
    url = named[kind].strip()
    try:
        return _proxy_at(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise ValueError(f"{kind}_proxy holds {error}; use http://host:port, or name {origin.host} in no_proxy") from None


def _is_exempt(origin: Origin, entries: list[str]) -> bool:
    """Whether an entry of ``no_proxy`` is of this origin: as in the standard library, or a network that its address is in."""
    if proxy_bypass_environment(origin.authority, {"no": ",".join(entries)}):
        return True
    try:
        address = ipaddress.ip_address(origin.host)
    except ValueError:
        return False
    for entry in entries:
        with suppress(ValueError):
            if address in ipaddress.ip_network(entry, strict=False):
                return True
    return False


def _proxy_at(url: str) -> Proxy:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        raise ValueError("something that is not a proxy's URL") from None
    if scheme in _KINDS:
        raise ValueError(f"a proxy of the kind {scheme}://, which is not supported")
    if "@" in parts.path + parts.query + parts.fragment:  # what was read as host and port is a name, and a part of its password
        raise ValueError(LOGIN_ADVICE)
    if scheme != "http" or not HOST.fullmatch(host):
        raise ValueError("something that is not a proxy's URL")
    return Proxy(Origin(scheme, host, PORTS[scheme] if port is None else port), basic_login(parts.username, parts.password))
