"""Locks in a forked process: one that another thread of the parent held would never be released there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

_made: weakref.WeakKeyDictionary[object, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()


def new_in_children(owner: object, **makers: Callable[[], Any]) -> None:
    """Set attributes of an object, and set them again in a forked child: its locks, which nobody would release there.

    What they protect is a copy in the child, which no other thread changes; whether the child may use it at all is
    checked elsewhere.
    """
    _made[owner] = makers
    _make(owner, makers)


def _make(owner: object, makers: dict[str, Callable[[], Any]]) -> None:
    for name, make in makers.items():
        setattr(owner, name, make())


def _in_child() -> None:
    for owner, makers in list(_made.items()):
        _make(owner, makers)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
