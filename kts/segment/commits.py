"""The commit checkpoint of a log directory: segments that were written aside and are about to join the log.

A writer of whole segments (``kts.log.staging``) renames many files of many partitions. This file makes that one step:
it lists the renames before the first, and is replaced by one without them after the last. While it lists them, readers
see each partition as it was before; whoever opens the directory for writing after a crash does the rest. The file lies
beside the checkpoints, and brokers ignore it::

    0                           version
    1a2b3c4d                    CRC-32C of the line below, in hex
    {"streams": {query: batch}, "pending": [partition, ...]}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NoReturn

from kts._codec import crc32c
from kts.arguments import INT32_MAX, INT64_MAX
from kts.errors import InvalidTopicError, LogStorageError
from kts.segment.names import check_topic, parse_file_name
from kts.store import publishing
from kts.store.source import files

FILE = "kts-commit-checkpoint"
ASIDE = "kts-commit-"  # begins the names of the files that wait beside it
_NUMBER_DIGITS = 8  # of such a file; then a dash and the name that it gets


@dataclass(frozen=True)
class PendingFile:
    """A file of the log directory and the name that it gets in the partition's directory."""

    source: str
    target: str
    size: int


@dataclass(frozen=True)
class PendingPartition:
    """The segments that join a partition.

    Attributes
    ----------
    first_offset : int
        The log end offset before; the new records begin there.
    is_new : bool
        There was no such partition.
    leader_epoch : int
        Of the new batches, -1 for a message format without epochs.
    last_segment : list of int
        Base offset and size of the last segment before; empty if the partition is new.
    files : list of PendingFile
        In the order in which they are renamed: the log of a segment after its indexes.
    """

    topic: str
    partition: int
    first_offset: int
    is_new: bool
    leader_epoch: int
    last_segment: list[int]
    files: list[PendingFile]


@dataclass(frozen=True)
class Commits:
    """The content of a commit checkpoint.

    Attributes
    ----------
    streams : dict of str to int
        The last batch of each streaming query that was committed.
    pending : list of PendingPartition
        The commit that is not complete.
    """

    streams: Mapping[str, int] = field(default_factory=dict)
    pending: list[PendingPartition] = field(default_factory=list)

    def pending_of(self, topic: str, partition: int) -> PendingPartition | None:
        """What is about to join a partition."""
        return next((one for one in self.pending if (one.topic, one.partition) == (topic, partition)), None)


NO_COMMITS = Commits()


def read_commits(directory: str) -> Commits:
    """The commit checkpoint of a log directory; empty if there is none.

    Raises
    ------
    LogStorageError
        It is damaged, so nobody can tell whether a commit is complete; or it names what no commit of kts names, such as
        a file outside of the directory.
    """
    path = os.path.join(directory, FILE)
    data = files.read_if_there(path)
    if data is None:
        return NO_COMMITS
    version, _, rest = data.partition(b"\n")
    crc, _, body = rest.partition(b"\n")
    if version != b"0" or crc != b"%08x" % crc32c(body):
        _refuse(path, "a commit checkpoint of version 0 with a right checksum", "something else")
    try:
        return _Checked(path).commits(json.loads(body))
    except (ValueError, RecursionError) as error:  # no JSON, or nested without end
        _refuse(path, "one JSON object", str(error), error)


def _refuse(path: str, expected: str, found: str, cause: Exception | None = None) -> NoReturn:
    raise LogStorageError(
        f"expected {expected}, found {found}; restore the commit checkpoint, or delete it to give up the commit that it"
        " may hold",
        path=path,
    ) from cause


class _Checked:
    """What the JSON of a commit checkpoint says, checked: the directory may be from somebody else.

    All names are those of files directly in the log directory or in one of its partitions.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def commits(self, found: object) -> Commits:
        """The whole file."""
        content = self.fields_of(found, Commits, "the content")
        streams = self.need(content["streams"], dict, "streams")
        for query, batch in streams.items():
            self.integer(batch, 0, INT64_MAX, f"the batch of the query {query!r}")
        pending = [self.partition(one) for one in self.need(content["pending"], list, "pending")]
        self.each_once([f"{one.topic}-{one.partition}" for one in pending], "partition")
        self.each_once([file.source for one in pending for file in one.files], "source")
        return Commits(streams, pending)

    def partition(self, found: object) -> PendingPartition:
        """The segments that join a partition."""
        one = self.fields_of(found, PendingPartition, "a partition")
        topic = self.need(one["topic"], str, "topic")
        try:
            check_topic(topic)
        except InvalidTopicError as error:
            raise LogStorageError(error.message, path=self.path) from error
        number = self.integer(one["partition"], 0, INT32_MAX, f"the partition of {topic}")
        name = f"{topic}-{number}"
        first = self.integer(one["first_offset"], 0, INT64_MAX, f"first_offset of {name}")
        self.need(one["is_new"], bool, f"is_new of {name}")
        self.integer(one["leader_epoch"], -1, INT32_MAX, f"leader_epoch of {name}")
        last = self.need(one["last_segment"], list, f"last_segment of {name}")
        if len(last) not in (0, 2):
            self.refuse("no numbers or two", last, f"last_segment of {name}")
        for part in last:
            self.integer(part, 0, INT64_MAX, f"last_segment of {name}")
        joined = [self.file(file, name, first) for file in self.need(one["files"], list, f"files of {name}")]
        self.each_once([file.target for file in joined], f"target of {name}")
        return PendingPartition(**one | {"files": joined})

    def file(self, found: object, of: str, first_offset: int) -> PendingFile:
        """A file that joins a partition: it gets the name of a segment, and its name now follows from that."""
        one = self.fields_of(found, PendingFile, f"a file of {of}")
        target, source = (self.need(one[name], str, f"{name} of a file of {of}") for name in ("target", "source"))
        parsed = parse_file_name(target)
        if parsed is None or parsed.tier_id or parsed.transition or parsed.base_offset < first_offset:
            self.refuse(f"a segment file at or above offset {first_offset}", target, f"a target of {of}")
        number = source.removeprefix(ASIDE)[:_NUMBER_DIGITS]
        if not (number.isascii() and number.isdigit()) or source != f"{ASIDE}{number}-{target}":
            self.refuse(f"{ASIDE}, {_NUMBER_DIGITS} digits and -{target}", source, f"a source of {of}")
        self.integer(one["size"], 0, INT64_MAX, f"the size of {source}")
        return PendingFile(**one)

    def fields_of(self, found: object, kind: type, what: str) -> dict[str, Any]:
        """An object with exactly the fields of a class."""
        content: dict[str, Any] = self.need(found, dict, what)
        names = [each.name for each in fields(kind)]
        if sorted(content) != sorted(names):
            self.refuse(f"the fields {', '.join(names)}", ", ".join(content) or "none", what)
        return content

    def need(self, found: object, kind: type, what: str) -> Any:
        """A value of a type; True is no number."""
        if type(found) is not kind:
            self.refuse(kind.__name__, type(found).__name__, what)
        return found

    def integer(self, found: object, lowest: int, highest: int, what: str) -> int:
        """A number in a range."""
        number: int = self.need(found, int, what)
        if not lowest <= number <= highest:
            self.refuse(f"{lowest} to {highest}", number, what)
        return number

    def each_once(self, found: list[str], what: str) -> None:
        """Refuse a name that comes twice."""
        twice = {one for one in found if found.count(one) > 1} if len(found) > len(set(found)) else set()
        if twice:
            self.refuse("each once", min(twice), what)

    def refuse(self, expected: object, found: object, what: str) -> NoReturn:
        """Raise what is wrong, and where."""
        _refuse(self.path, f"{what}: {expected}", repr(found)[:200])


def write_commits(directory: str, commits: Commits) -> None:
    """Replace the commit checkpoint atomically."""
    body = json.dumps(asdict(commits)).encode() + b"\n"
    publishing.publish(os.path.join(directory, FILE), b"0\n%08x\n" % crc32c(body) + body)
