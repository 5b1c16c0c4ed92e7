"""The command line ``kts``: one command is one function over the library."""

from __future__ import annotations

from .app import cli as main

__all__ = ["main"]
