"""Checks of arguments, each in one place: an error names the argument, what is valid and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

INT16_MAX = 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 2**20  # of one batch or wrapper message
DEDUPE_BUFFER_BYTES = 128 * 2**20  # log.cleaner.dedupe.buffer.size
MOST_THREADS = 256  # of a scan


def integer(name: str, value: Any, lowest: int = INT64_MIN, highest: int = INT64_MAX) -> int:
    """Return an int in a range; True and False are not ints.

    Raises
    ------
    TypeError, ValueError
        Not an int; out of range.

    Examples
    --------
    >>> integer("batch_bytes", 16384, 1)
    16384
    """
    if type(value) is int:
        number = value
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int, found {value!r}")
    else:
        number = int(value.__index__())
    if not lowest <= number <= highest:
        raise ValueError(f"{name}: expected {lowest} to {highest}, found {value}")
    return number


def optional_offset(name: str, value: Any) -> int | None:
    """Return an offset, 0 to 2^63-1, or None."""
    return None if value is None else integer(name, value, 0)


def timestamp(name: str, value: Any) -> int:
    """Return a timestamp: any 64-bit number of ms.

    Raises
    ------
    TypeError, ValueError
        Not an int; outside of 64 bits.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int (ms since the epoch), found {type(value).__name__}")
    number = int(value.__index__())
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError(f"{name}: {number} is outside the 64-bit range")
    return number


def boolean(name: str, value: Any) -> bool:
    """Return True or False; ``shipped="3.9"`` is a mistake, not a true value.

    Raises
    ------
    TypeError
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, found {value!r}")
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return one of some words.

    Raises
    ------
    TypeError, ValueError
        Not a str; not one of them.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")
    return value


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """A hint at the known name that is most similar to an unknown one, in any case; None if none is similar.

    Examples
    --------
    >>> suggestion("Ofset", ["offset", "timestamp"])
    'did you mean offset?'
    """
    by_low = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_low, n=1)
    return f"did you mean {by_low[close[0]]}?" if close else None


def magic(name: str, value: Any) -> int:
    """Return a magic: 0, 1 or 2.

    Raises
    ------
    ValueError
    """
    if value not in (0, 1, 2) or isinstance(value, bool):
        raise ValueError(f"{name}: expected 0, 1 or 2, found {value!r}")
    return int(value)


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse ``HOST:PORT`` or ``[IPV6]:PORT``.

    Parameters
    ----------
    text : str
    default_port : int, optional
        For an address to listen on: the port if there is none. The host may be empty then, and the port 0.

    Returns
    -------
    (str, int)

    Raises
    ------
    ValueError
        What was expected, what was found.

    Examples
    --------
    >>> parse_address("[::1]:9092")
    ('::1', 9092)
    """
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        well_formed = bool(bracket) and rest[:1] in ("", ":")
        port = rest[1:]
    elif text.count(":") > 1:  # an IPv6 address without brackets has no port
        host, port, well_formed = text, "", True
    else:
        host, _, port = text.partition(":")
        well_formed = True
    listening = default_port is not None
    if not well_formed or not (listening or (host and port)):
        raise ValueError(f"expected HOST:PORT, found {text!r}")
    if default_port is not None and not port:
        return host, default_port
    lowest = 0 if listening else 1
    if not (port.isascii() and port.isdigit() and lowest <= int(port) <= 65535):
        raise ValueError(f"expected HOST:PORT with a port from {lowest} to 65535, found {text!r}")
    return host, int(port)


def show_address(host: str, port: int) -> str:
    """``HOST:PORT``, with IPv6 addresses in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
