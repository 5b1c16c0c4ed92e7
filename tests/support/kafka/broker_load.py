"""What a broker says while it loads a partition, and which of it a broker never says of files that it left itself."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import NamedTuple

from support.kafka.brokers import Broker

STORAGE = re.compile(r"^[A-Z]+ (kafka\.log|kafka\.cluster\.Partition|org\.apache\.kafka\.storage)\b")
LOADED = re.compile(r"Logs loading complete|Loaded \d+ logs")
# All that a clean load says, as read in the brokers' own logs over their own files.
CLEAN = [
    re.compile(r"Completed load of (log|Log\()"),
    re.compile(r"\] Loading producer state till offset (?P<till>\d+)( with message format version 2)?$"),
    re.compile(r"\] Reloading from producer snapshot and rebuilding producer state from offset (?P<reloading>\d+)$"),
    re.compile(r"\] Loading producer state from snapshot file 'SnapshotFile\(offset=(?P<snapshot>\d+), "),
    re.compile(r"\] Producer state recovery took .* and \d+ms for segment recovery from offset (?P<recovery>\d+)$"),
    re.compile(r"\] Log loaded for partition .* with initial high watermark (?P<high_watermark>\d+)$"),
]
# What only partitions say that went on after their last clean stop: the snapshot of that stop is no segment's.
STALE_SNAPSHOT = re.compile(r"SnapshotFile: Deleted producer state snapshot ")
COMPLETED = [
    re.compile(r"load of log \S+ with (?P<segments>\d+) log segments and log end offset (?P<end>\d+) in"),
    re.compile(r"logStartOffset=(?P<start>\d+), logEndOffset=(?P<end>\d+)\) with (?P<segments>\d+) segments"),
]


class Load(NamedTuple):
    """What a broker found; None where its version says nothing of it."""

    segments: int
    log_end_offset: int
    log_start_offset: int | None
    high_watermark: int | None
    snapshot: int | None  # the offset of the producer snapshot that it took


def about(said: list[str], topic: str) -> list[str]:
    """What the broker's storage said of the topic's only partition."""
    name = re.compile(rf"(?<![\w.-]){re.escape(topic)}-0(?![\w-])")
    return [line for line in said if STORAGE.match(line) and name.search(line)]


def while_loading(said: list[str]) -> list[str]:
    """The lines until all logs were loaded."""
    end = next((i for i, line in enumerate(said) if LOADED.search(line)), None)
    if end is None:
        raise ValueError("the broker never said that its logs are loaded")
    return said[:end]


def errors(said: list[str]) -> list[str]:
    """The errors of its storage while it loads. A controller that is asked before it leads logs one, too."""
    return [line for line in while_loading(said) if STORAGE.match(line) and line.startswith(("ERROR", "FATAL"))]


def complaints(said: list[str], topic: str, *, stale_snapshot: bool = False) -> list[str]:
    """What it said of the partition that it does not say of one which it closed itself."""
    normal = [*CLEAN, STALE_SNAPSHOT] if stale_snapshot else CLEAN
    return [line for line in about(said, topic) if not any(each.search(line) for each in normal)]


def load(said: list[str], topic: str) -> Load:
    """What the broker found when it loaded the partition."""
    found: dict[str, int] = {}
    for line in about(said, topic):
        for pattern in [*CLEAN, *COMPLETED]:
            match = pattern.search(line)
            found |= {name: int(value) for name, value in match.groupdict().items()} if match else {}
    if "end" not in found:
        raise ValueError(f"the broker loaded no partition of {topic}")
    return Load(found["segments"], found["end"], *(found.get(key) for key in ("start", "high_watermark", "snapshot")))


def partition_files(broker: Broker, topic: str) -> dict[str, bytes]:
    """The files of the topic's partition, by name; a broker that has just started may still write a checkpoint.

    Before it leads a partition, 3.9 and later have dropped an epoch without records from the leader epochs, and not yet
    begun the next: a client that was served knows that it leads.
    """
    for _ in range(500):
        with contextlib.suppress(FileNotFoundError):
            found = files_in(broker.partition(topic))
            if not any(name.endswith(".tmp") for name in found):
                return found
        time.sleep(0.01)
    raise TimeoutError(f"the broker does not come to rest with {topic}")


def files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


Files = dict[str, bytes]  # by name
INDEXES = (".index", ".timeindex")
EPOCHS = "leader-epoch-checkpoint"


def stale_snapshots(files: Files, start: int, end: int) -> list[str]:
    """The producer snapshots that every broker deletes when it loads them: not behind the log start offset, or of no
    segment. Brokers leave such too: one at the log start offset, and those of truncations and of earlier stops."""
    bases = {name.removesuffix(".log") for name in files if name.endswith(".log")}
    offsets = {name: name.removesuffix(".snapshot") for name in files if name.endswith(".snapshot")}
    return [name for name, at in offsets.items() if int(at) <= start or (at not in bases and int(at) != end)]


def epochs(checkpoint: bytes) -> list[list[int]]:
    """`[epoch, start offset]` for each line of a leader-epoch-checkpoint."""
    return [[int(number) for number in line.split()] for line in checkpoint.splitlines()[2:]]


def differing(before: Files, after: Files, *, running: bool = False) -> list[str]:
    """The names of the files that differ. Each start may begin a new leader epoch. While the broker runs, the active
    segment's indexes may have room behind their entries: zeros."""
    active = max(name for name in before if name.endswith(".log")).removesuffix(".log")
    names = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if running and old is not None and new is not None and name in (active + suffix for suffix in INDEXES):
            new = new[: len(old)] + new[len(old) :].lstrip(b"\0")
        same = old == new
        if name == EPOCHS:
            kept = {start: epoch for epoch, start in epochs(new or b"")}  # a new one takes the place of an empty one
            same = all(kept.get(start, -1) >= epoch for epoch, start in epochs(old or b""))
        if not same:
            names.append(name)
    return names
