"""From where addresses can be reached: the same verdict on every version of Python."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.reach import common_reach, may_lead, reach_of, reach_of_host

KINDS = {
    "public": [
        "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.0.1.1", "198.17.255.255", "223.255.255.255",
        "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "::8.8.8.8",
        str(ipaddress.IPv6Address((0x20010000 << 96) | (0xFFFFFFFF ^ 0x08080808))),  # Teredo
    ],
    "private": [
        "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "100.127.255.255", "192.0.0.192", "192.0.2.1",
        "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
        "255.255.255.255", "192.88.99.1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1", "100::1",
        "64:ff9b:1::8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1", "::192.168.0.1", "4000::1", "3fff::1",
        str(ipaddress.IPv6Address((0x20010000 << 96) | (0xFFFFFFFF ^ 0x0A000001))),
    ],
    "link-local": [
        "169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::1",
    ],
    "loopback": [
        "127.0.0.1", "127.255.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::1",
        "::127.0.0.1",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_is_what_it_stands_for(kind: str) -> None:
    assert {address: reach_of(address) for address in KINDS[kind]} == dict.fromkeys(KINDS[kind], kind)


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6, network="2000::/3"))
def test_what_is_public_here_is_global_to_the_standard_library(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    wraps = isinstance(address, ipaddress.IPv6Address) and (address.teredo or address.sixtofour)
    if reach_of(str(address)) == "public" and not wraps:
        assert address.is_global and not address.is_multicast


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        ("data.example.org", "public"), ("8.8.8.8", "public"), ("localhost", "loopback"), ("LOCALHOST.", "loopback"),
        ("a.localhost", "loopback"), ("127.1", "loopback"), ("2130706433", "loopback"), ("0x7f000001", "loopback"),
        ("127.0.0.1.", "loopback"), ("169.254.169.254", "link-local"), ("::1", "loopback"), ("10.1.2.3", "private"),
    ],
)  # fmt: skip
def test_a_host_tells_what_it_can_without_being_resolved(host: str, reach: str) -> None:
    assert reach_of_host(host) == reach


def test_redirects_lead_outwards_or_stay() -> None:
    kinds = ("public", "private", "link-local", "loopback")
    assert {(a, b) for a in kinds for b in kinds if may_lead(a, b)} == {(a, b) for a in kinds for b in (a, "public")}
    assert common_reach(None, "private") == common_reach("private", "private") == "private"
    assert (
        common_reach("private", "public") == common_reach("public", "private") == common_reach("private", "loopback") == "public"
    )
