"""Files by their addresses alone, as a user names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kts.remote import buckets
from kts.store.protocol import ByteRange, Readable
from kts.store.source import in_order, source_of


class ByAddress:
    """The methods of a source, each of the one that its path leads to."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(path: str, *given: Any, **named: Any) -> Any:
            return getattr(source_of(path), name)(path, *given, **named)

        return ask

    def in_order(self, ranges: Sequence[ByteRange]) -> Iterator[Readable | None]:
        return in_order((source_of(one.path), one) for one in ranges)


files = ByAddress()


def reach(path: str, options: Mapping[str, Any]) -> None:
    """Let these be the first options of a bucket: those of all who name none."""
    buckets._buckets.pop(buckets.root_of(path), None)
    buckets.bucket_of(path, options)


def refresh(path: str) -> None:
    """As for a caller that names a path."""
    source_of(path).refresh()
