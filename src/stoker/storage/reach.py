"""From where an address can be reached. A redirect never leads further into a private network than its own server."""

from __future__ import annotations

import ipaddress
import socket
from typing import Union

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
PUBLIC, PRIVATE, LINK_LOCAL, LOOPBACK = "public", "private", "link-local", "loopback"

# Written out rather than asked of `ipaddress`, whose verdict about several of these differs between versions of Python.
_IPV4 = [
    (ipaddress.IPv4Network(network), reach)
    for network, reach in (
        ("127.0.0.0/8", LOOPBACK), ("0.0.0.0/8", LOOPBACK), ("169.254.0.0/16", LINK_LOCAL), ("10.0.0.0/8", PRIVATE),
        ("100.64.0.0/10", PRIVATE), ("172.16.0.0/12", PRIVATE), ("192.0.0.0/24", PRIVATE), ("192.0.2.0/24", PRIVATE),
        ("192.88.99.0/24", PRIVATE), ("192.168.0.0/16", PRIVATE), ("198.18.0.0/15", PRIVATE), ("198.51.100.0/24", PRIVATE),
        ("203.0.113.0/24", PRIVATE), ("224.0.0.0/4", PRIVATE), ("240.0.0.0/4", PRIVATE),
    )
]  # fmt: skip
#: the first that holds an address tells; what none holds is private. Only 2000::/3 is assigned to the public Internet.
_IPV6 = [
    (ipaddress.IPv6Network(network), reach)
    for network, reach in (
        ("::/127", LOOPBACK), ("fe80::/10", LINK_LOCAL), ("2001::/23", PRIVATE), ("2001:db8::/32", PRIVATE),
        ("3fff::/20", PRIVATE), ("2000::/3", PUBLIC),
    )
]  # fmt: skip
#: IPv6 networks whose addresses end in an IPv4 address that they stand for: mapped, compatible, NAT64
_ENDS_IN_IPV4 = [ipaddress.IPv6Network(network) for network in ("::ffff:0:0/96", "::/96", "64:ff9b::/96")]
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def reach_of(address: str) -> str:
    """'public', 'private', 'link-local' or 'loopback'; an address that maps to another one counts as that one.

    >>> reach_of("192.168.1.7"), reach_of("64:ff9b::127.0.0.1"), reach_of("2606:4700::1")
    ('private', 'loopback', 'public')
    """
    found = _unwrapped(ipaddress.ip_address(address.partition("%")[0]))
    if isinstance(found, ipaddress.IPv4Address):
        return next((reach for network, reach in _IPV4 if found in network), PUBLIC)
    return next((reach for network, reach in _IPV6 if found in network), PRIVATE)


def reach_of_host(host: str) -> str:
    """The same of a host as a URL names it, without resolving it: a name that does not say otherwise counts as public."""
    host = host.rstrip(".").lower()
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return LOOPBACK
    try:
        # As resolvers read them, "127.1" and "0x7f000001" are addresses too.
        return reach_of(host if ":" in host else socket.inet_ntoa(socket.inet_aton(host)))
    except (OSError, ValueError):
        return PUBLIC


def common_reach(sender: str | None, next_sender: str) -> str:
    """The reach of a chain of redirects: what all of its servers have, else that of the outermost, which is public."""
    return next_sender if sender in (None, next_sender) else PUBLIC


def may_lead(sender: str, here: str) -> bool:
    """Whether a redirect from a server of reach `sender` may lead to one of reach `here`."""
    return here in (PUBLIC, sender)


def _unwrapped(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address) or int(address) < 2:
        return address
    if any(address in network for network in _ENDS_IN_IPV4):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.sixtofour or address
