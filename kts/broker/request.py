"""A decoded request, and who sent it."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConnectionClose(Exception):
    """A handler's wish: no answer, and the connection is closed."""


class Peer(NamedTuple):
    """Both ends of the connection that a request came over.

    Attributes
    ----------
    host : str
        The client's address.
    local : (str, int), optional
        The address of ours that the client reached; None for a caller inside the process.
    """

    host: str = "127.0.0.1"
    local: tuple[str, int] | None = None


IN_PROCESS = Peer()


def show_address(host: str, port: int) -> str:
    """``HOST:PORT`` as clients take it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Request(NamedTuple):
    """What a handler gets.

    Attributes
    ----------
    api_key, version : int
        Which layout the body has.
    client_id : str, optional
        What the client calls itself.
    body : dict
        Fields by the names of ``messages``. Of a Produce request, ``records`` are views into the frame: they are valid
        until the handler returns.
    connection : Peer
        Where it came from.
    """

    api_key: int
    version: int
    client_id: str | None
    body: dict[str, Any]
    connection: Peer = IN_PROCESS
