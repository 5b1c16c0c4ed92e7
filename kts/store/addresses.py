"""Addresses: what a path means before anything is read.

A path with a scheme (``s3://bucket/key``) is of a source that serves it. Every other path is of this machine.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from kts.errors import LogStorageError

StorageOptions = Mapping[str, Any] | None  # how a user reaches a store
RemoteOptions = Mapping[str, Any] | None  # what a user says of tiered storage

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)")
_makers: dict[str, Callable[..., Any]] = {}  # by scheme: what makes the source of a path, given options
_modules: list[str] = []  # those that serve schemes once they are loaded


def serve_schemes(schemes: Iterable[str], maker: Callable[..., Any]) -> None:
    """Let a function make the sources of paths with these schemes; it gets the path, and how its store is reached."""
    _makers.update(dict.fromkeys(schemes, maker))


def serve_from(module: str) -> None:
    """Load a module, which calls ``serve_schemes``, when a path with a scheme is first met."""
    _modules.append(module)


def _served() -> dict[str, Callable[..., Any]]:
    """What serves the schemes, all of it loaded."""
    for module in _modules:
        import_module(module)
    return _makers


def scheme_of(path: str) -> str | None:
    """The scheme of a path, as ``s3``; None for a path of this machine."""
    if "://" not in path:
        return None
    found = _SCHEME.match(path)
    return None if found is None else found["scheme"].lower()


def maker_of(path: str) -> Callable[..., Any] | None:
    """What makes the source of a path; None for a path of this machine."""
    scheme = scheme_of(path)
    if scheme is None:
        return None
    makers = _served()
    if scheme not in makers:
        message = f"{scheme}:// is not supported; expected a path or one of {', '.join(served())}"
        raise LogStorageError(message, path=path)
    return makers[scheme]


def served() -> list[str]:
    """How the addresses begin that a user may give."""
    return [f"{one}://" for one in sorted({*_served(), "file"}) if "+" not in one]


def is_served(path: str) -> bool:
    """Whether a path belongs to a store."""
    scheme = scheme_of(path)
    return scheme is not None and scheme in _served()


def is_elsewhere(path: str) -> bool:
    """Whether a path does not lie on this machine."""
    return scheme_of(path) not in (None, "file")


def require_local(path: str, what: str) -> None:
    """Refuse a path of a store, for work that writes or locks."""
    if scheme_of(path) is not None:
        raise LogStorageError(
            f"{what} needs a path of this machine, found a {scheme_of(path)}:// address: work on a local directory;"
            " kts copy copies from and to a bucket",
            path=path,
            errno=errno.EROFS,
        )


def absolute(path: str) -> str:
    """The path as other processes may use it: absolute, without a slash at its end."""
    return os.path.abspath(path) if scheme_of(path) is None else path.rstrip("/")


def real(path: str) -> str:
    """The path without links, to compare it with others."""
    return os.path.realpath(path) if scheme_of(path) is None else path.rstrip("/")


def plain(path: str) -> str:
    """A ``file://`` address as a path of this machine; any other path as it is."""
    if scheme_of(path) != "file":
        return path
    parts = urlsplit(path)
    if parts.netloc not in ("", "localhost"):
        raise LogStorageError(f"expected file:///path, found the host {parts.netloc}", path=path)
    return unquote(parts.path)


def has_pattern(path: str) -> bool:
    """Whether a path has characters of a pattern."""
    return any(character in path for character in "*?[")
