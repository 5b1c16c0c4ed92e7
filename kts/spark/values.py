"""Typed access to option values, which Spark hands over as strings; every complaint names the option."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

PartitionValues = dict[str, dict[int, int]]

_INT64 = range(-(1 << 63), 1 << 63)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Values:
    """Option values by name; names in any case."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = raw

    def text(self, name: str) -> str | None:
        value = self._raw.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise wrong(name, "true or false", text)
        return text.lower() == "true"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = self.text(name)
        if text is None:
            return allowed[0]
        if text.lower() not in allowed:
            raise wrong(name, " or ".join(allowed), text)
        return text.lower()

    def positive(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = integer(text)
        if number is None or number < 1:
            raise wrong(name, "a whole number above 0", text)
        return number

    def size(self, name: str, default: int, limit: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"(\d{1,15})\s*([kmg]?)b?", text.lower())
        number = int(match[1]) * _SIZE_UNITS[match[2]] if match else 0
        if not 1 <= number <= limit:
            raise wrong(name, f"a size in bytes from 1 to {limit}, such as 4194304 or 4m", text)
        return number

    def milliseconds(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = integer(text)
        if number is None:
            raise wrong(name, "milliseconds since 1970 as a whole number, such as 1704067200000", text)
        return number

    def numbers(self, name: str, shape: str, lowest: int = _INT64.start) -> PartitionValues | None:
        """JSON ``{"topic": {"0": number}}``."""
        text = self.text(name)
        if text is None:
            return None
        result: PartitionValues = {}
        for topic, numbers in self._json_object(name, text, shape).items():
            if not isinstance(numbers, dict):
                raise wrong(name, shape, text)
            for partition, number in numbers.items():
                index = integer(partition)
                if index is None or index < 0 or type(number) is not int or number not in _INT64 or number < lowest:
                    raise wrong(name, shape, f"{partition!r}: {number!r} under {topic!r}")
                result.setdefault(topic, {})[index] = number
        return result

    def partitions(self, name: str) -> dict[str, tuple[int, ...]] | None:
        """JSON ``{"topic": [0, 1]}``."""
        text = self.text(name)
        if text is None:
            return None
        shape = 'JSON such as {"orders": [0, 1]}'
        result = {}
        for topic, indexes in self._json_object(name, text, shape).items():
            if not isinstance(indexes, list) or not all(type(i) is int and i >= 0 for i in indexes):
                raise wrong(name, shape, f"{indexes!r} under {topic!r}")
            result[topic] = tuple(sorted(set(indexes)))
        return result

    @staticmethod
    def _json_object(name: str, text: str, shape: str) -> dict[str, object]:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise wrong(name, shape, text) from error
        if not isinstance(value, dict) or not value:
            raise wrong(name, shape, text)
        return value


def wrong(name: str, expected: str, found: str) -> ValueError:
    """An error about the value of an option."""
    if not found:
        return ValueError(f"option {name} is empty: expected {expected}")
    return ValueError(f"option {name}: expected {expected}, found {found!r}")


def integer(text: str) -> int | None:
    """The 64-bit whole number that ``text`` spells, else None."""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    return number if number is not None and number in _INT64 else None
