"""Where a broker may listen: on this machine only, unless somebody says otherwise."""

from __future__ import annotations

import ipaddress
import socket

from kts.errors import InvalidRequestError

DEFAULT_PORT = 9092


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine to this machine only."""
    if not host:
        return False
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)


def check_address(host: str, insecure: bool) -> None:
    """Refuse what others could reach: there is neither TLS nor SASL.

    Raises
    ------
    InvalidRequestError
        The address is not a loopback address.
    """
    if not insecure and not is_loopback(host):
        raise InvalidRequestError(
            f"expected a loopback address such as 127.0.0.1, found {host or 'all addresses'}: everybody who reaches it"
            " could read, write and delete, for there is neither encryption nor a password"
        )
