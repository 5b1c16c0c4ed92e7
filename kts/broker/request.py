"""A decoded request and its sender."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConnectionClose(Exception):
    """Raised by a handler to close the connection without an answer."""


Body = dict[str, Any]  # a struct of a request or response, by the names of its fields


class Peer(NamedTuple):
    """Both ends of a client connection.

    Attributes
    ----------
    host : str
        The client's address.
    local : (str, int), optional
        The broker's address that the client reached; None for a caller in the same process.
    """

    host: str = "127.0.0.1"
    local: tuple[str, int] | None = None


IN_PROCESS = Peer()


class Request(NamedTuple):
    """The argument of a handler.

    Attributes
    ----------
    api_key, version : int
        They decide the layout of the body.
    client_id : str, optional
        The client's name for itself.
    body : dict
        Fields by their names in ``wire.messages``. The ``records`` of a Produce request are views of the frame, valid
        until the handler returns.
    connection : Peer
        Where the request came from.
    """

    api_key: int
    version: int
    client_id: str | None
    body: Body
    connection: Peer = IN_PROCESS
