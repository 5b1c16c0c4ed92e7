"""What a caller gives to a log, checked before anything is touched."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from kts.arguments import integer
from kts.segment.names import parse_directory_name

_TOPIC_ID = re.compile(r"(?!A{22})[A-Za-z0-9_-]{22}")


def partition_directory(path: Any) -> tuple[str, str, int]:
    """Absolute path, topic and partition of a directory that a broker would take for a partition's."""
    try:
        text = os.fsdecode(path)
    except TypeError as error:
        raise TypeError(f"path: expected a str or a path, found {path!r}") from error
    if "\0" in text:
        raise ValueError(f"path: expected no null character, found {text!r}")
    name = os.path.basename(os.path.abspath(text))
    parsed = parse_directory_name(name)
    if parsed is None or name != f"{parsed.topic}-{parsed.partition}" or parsed.topic in (".", ".."):
        raise ValueError(f"path: expected a directory called <topic>-<partition>, found {name!r}")
    return os.path.abspath(text), parsed.topic, parsed.partition


def topic_id(value: Any) -> str | None:
    """A topic id as ``partition.metadata`` has it, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"topic_id: expected a str, found {value!r}")
    if value is not None and _TOPIC_ID.fullmatch(value) is None:
        raise ValueError(f"topic_id: expected 22 characters of URL-safe base64 that are not all A, found {value!r}")
    return value


def clock(given: Any) -> Callable[[], int]:
    """A clock whose every answer is checked: seconds as a float are a common mistake."""
    if not callable(given):
        raise TypeError(f"clock: expected a callable that gives ms as an int, found {given!r}")

    def now_ms() -> int:
        return integer("clock", given())

    return now_ms


def proposals(given: Any) -> tuple[Any, ...]:
    """Names or modes."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"proposals: expected a sequence of names, found {given!r}")
    return tuple(given)
