"""What topics may be called.

Source: Topic (3.9).
"""

from __future__ import annotations

import re

from kts.errors import InvalidTopicError

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_name(name: str) -> str:
    """A topic's name, if Kafka allows it.

    Raises
    ------
    InvalidTopicError
    """
    if _LEGAL.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopicError(f"expected a topic of 1 to 249 characters of [a-zA-Z0-9._-], found {name!r}")
    return name


def one_name(name: str) -> str:
    """What names have in common that differ by '.' and '_' alone: metrics could not tell them apart."""
    return name.replace(".", "_")
