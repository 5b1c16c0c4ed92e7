"""Faults that checks find, and how many of them are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kts.errors import CorruptRecordError, LogStorageError

LISTED = 20  # violations of one kind in one file; the rest are counted


@dataclass(frozen=True)
class Violation:
    """One fault in a file.

    Attributes
    ----------
    path : str
        The file.
    position : int or None
        Byte position in it.
    offset : int or None
        Kafka offset.
    kind : str
        A short name of the kind of fault.
    message : str
        What was expected and what was found.
    """

    path: str
    position: int | None
    offset: int | None
    kind: str
    message: str

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        return f"{self.path}{where}: {self.kind}: {self.message}"


@dataclass
class Findings:
    """Violations as far as they are listed, and the count of all by path and kind."""

    listed: list[Violation] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, violations: Iterable[Violation]) -> Findings:
        """The findings of one step of a check."""
        listing = Listing()
        return cls(list(listing.take(violations)), listing.counts)


class Listing:
    """At most ``LISTED`` violations of a kind in a file, then the number of the others."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def take(self, violations: Iterable[Violation]) -> Iterator[Violation]:
        """Those that are listed."""
        for one in violations:
            key = one.path, one.kind
            self.counts[key] = self.counts.get(key, 0) + 1
            if self.counts[key] <= LISTED:
                yield one

    def join(self, findings: Findings) -> Iterator[Violation]:
        """As ``take``, of all violations that these findings count."""
        if findings.counts:
            yield from self.take(findings.listed)
            listed = Counter((one.path, one.kind) for one in findings.listed)
            for key, count in findings.counts.items():
                self.counts[key] += count - listed[key]

    def rest(self) -> Iterator[Violation]:
        """The numbers of those that are not listed."""
        for (path, kind), count in self.counts.items():
            if count > LISTED:
                yield Violation(path, None, None, kind, f"{count - LISTED} more of this kind are not listed")


def limited(violations: Iterable[Violation]) -> Iterator[Violation]:
    """The violations that are listed, and the numbers of the others."""
    listing = Listing()
    yield from listing.take(violations)
    yield from listing.rest()


def unreadable(error: LogStorageError | CorruptRecordError, path: str = "") -> Violation:
    """A file that cannot be read, as a violation."""
    return Violation(error.path or path, error.position, None, "unreadable", error.message)


def readable(violations: Iterable[Violation], path: str = "") -> Iterator[Violation]:
    """The violations; a file that cannot be read is the last one."""
    try:
        yield from violations
    except (LogStorageError, CorruptRecordError) as error:
        yield unreadable(error, path)
