"""Where a trainer listens and workers connect, and which of these addresses need keys."""

from __future__ import annotations

import ipaddress
import re
import socket

from ..errors import ConfigError

_TCP = re.compile(r"tcp://(?P<host>\[[\w:.%-]+\]|\*|\w[\w.-]*):(?P<port>\d{1,5}|\*)", re.ASCII)
#: hosts that mean all addresses of this machine
_ANYWHERE = ("*", "0.0.0.0", "[::]")
_IPC = re.compile(r"ipc:///?(?P<path>[^@\s][^\0]{0,100})")
#: bytes of a path of a socket, as long as the system takes it
_MOST_PATH = 101


def checked_address(address: object, asked: str, *, connects: bool = False) -> str:
    """An address as the library takes it, to listen at or to connect to.

    `asked` is what the user wrote, for messages: `loader(workers_at='...')`.
    """
    text = address.strip() if isinstance(address, str) else ""
    if _IPC.fullmatch(text):
        return text
    if text.startswith("ipc://") and len(text.removeprefix("ipc://").encode()) > _MOST_PATH:
        raise ConfigError(
            f"{asked}: the path of a socket is limited to {_MOST_PATH} bytes; use a shorter one, such as /tmp/stoker.sock"
        )
    found = _TCP.fullmatch(text)
    if found is None or not _is_host(found["host"]) or (found["port"] != "*" and int(found["port"]) > 65535):
        raise ConfigError(
            f"{asked}: not an address; use tcp://HOST:PORT, such as tcp://127.0.0.1:8877, or ipc:///PATH/OF/A/SOCKET"
        )
    if connects and (found["port"].strip("0*") == "" or found["host"] in _ANYWHERE):
        raise ConfigError(
            f"{asked}: a program can listen at this address, but nobody can connect to it; write the host that listens and its "
            "port, as in tcp://trainer:8877"
        )
    host = "127.0.0.1" if found["host"] == "localhost" else found["host"]
    return f"tcp://{host}:{found['port']}"


def _is_host(host: str) -> bool:
    """Whether what is in brackets is an address; names are looked up later."""
    try:
        return not host.startswith("[") or bool(ipaddress.IPv6Address(host[1:-1]))
    except ValueError:
        return False


def is_private(address: str) -> bool:
    """Whether only this machine can reach it: a loopback address, or a socket in the file system."""
    if address.startswith("ipc://"):
        return True
    found = _TCP.fullmatch(address)
    host = found["host"].strip("[]") if found else ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, an interface, or `*`: whoever answers to it
        return False


def by_ipv6(address: str) -> bool:
    """Whether IPv6 alone leads to an address: it is one, or a name that has no other. Raises OSError for an unknown name."""
    found = _TCP.fullmatch(address)
    if found is None or found["host"].startswith(("[", "*")):
        return found is not None and found["host"].startswith("[")
    try:
        return {family for family, *_ in socket.getaddrinfo(found["host"], None)} == {socket.AF_INET6}
    except UnicodeError as error:  # a part of the name is empty, or too long
        raise socket.gaierror(socket.EAI_NONAME, "not a name of a host") from error


def check_keys(address: str, keys: bool, asked: str, how: str) -> None:
    """Raise where others could reach an address that has no keys; `how` is how to make and pass them."""
    if not keys and not is_private(address):
        raise ConfigError(
            f"{asked}: other machines can reach this address, and without keys anyone who does could take part; {how}, or "
            "use tcp://127.0.0.1:PORT or ipc:///PATH, which need none"
        )
