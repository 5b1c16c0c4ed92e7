"""What the study plays: streams of messages by KIP-32's latency patterns, under a clock of their own.

The messages of a partition arrive in the order of ``arrival_ms``. Where a message comes from decides how old it is: its
CreateTime is its time of arrival less its latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.arguments import INT32_MAX, INT64_MAX, integer
from kts.config import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    import numpy.typing as npt

    Times = npt.NDArray[np.int64]

START_MS = 1_767_225_600_000  # 2026-01-01: when the study's clock starts
CHUNK_MESSAGES = 500_000  # in memory at a time
PATTERNS = ("pattern 1", "pattern 2", "pattern 3", "robustness")
WHAT = {
    "pattern 1": "small latency",
    "pattern 2": "similar large latency",
    "pattern 3": "two mirror makers, one of which copies old messages",
    "robustness": "small latency, and a client with wrong times",
}
FUTURE_MS = 3652 * DAY_MS  # how far ahead a wrong time lies


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a study plays; times are in ms.

    Parameters
    ----------
    partitions : int
        Partitions of each pattern.
    messages_per_hour : int
        Of a partition. Time-based rolling is for topics of low volume.
    duration_ms : int
        How long messages arrive.
    latency_ms : int
        The small latency, on average: ``linger.ms`` and the network.
    large_latency_ms : int
        The latency of pattern 2, and of the second mirror maker of pattern 3. KIP-32: 1 PM yesterday arrives today.
    disorder_ms : int
        By how much large latencies differ from one another.
    wrong : float
        The part of messages with a wrong time (robustness): ten years ahead, 0, or seconds for ms, in turn.
    retention_ms, roll_ms : int
        ``retention.ms`` and ``segment.ms``.
    check_ms : int
        ``log.retention.check.interval.ms``; Kafka's default is 5 minutes.
    interval_ms : int
        ``time.index.interval.ms``; KIP-33 recommends a minute.
    index_messages : int
        Messages of the log whose indexes are compared.
    value_bytes : int
        Bytes of a message's value.
    seed : int
        The same seed and settings give the same streams.
    """

    partitions: int = 50
    messages_per_hour: int = 2
    duration_ms: int = 7 * DAY_MS
    latency_ms: int = 100
    large_latency_ms: int = DAY_MS
    disorder_ms: int = 60_000
    wrong: float = 0.02
    retention_ms: int = 3 * DAY_MS
    roll_ms: int = 12 * HOUR_MS
    check_ms: int = 300_000
    interval_ms: int = 60_000
    index_messages: int = 100_000
    value_bytes: int = 100
    seed: int = 32

    def __post_init__(self) -> None:
        year = 366 * DAY_MS
        for name, most in (
            ("partitions", INT32_MAX), ("messages_per_hour", 3_600_000), ("duration_ms", year), ("latency_ms", year),
            ("large_latency_ms", year), ("disorder_ms", year), ("retention_ms", 10 * year), ("roll_ms", year),
            ("check_ms", year), ("interval_ms", year), ("index_messages", 10_000_000), ("value_bytes", 10_000),
        ):  # fmt: skip
            integer(name, getattr(self, name), 1, most)
        integer("seed", self.seed, 0, INT64_MAX)
        if not 0 <= self.wrong <= 1:
            raise ValueError(f"wrong: expected a part from 0 to 1, found {self.wrong}")
        if not 2 <= self.messages <= 100_000:
            raise ValueError(
                f"messages_per_hour: expected 2 to 100000 messages in a partition, found {self.messages} in "
                f"{self.duration_ms} ms; change duration_ms"
            )

    @property
    def messages(self) -> int:
        """Messages of a partition: an even number, half from each mirror maker in pattern 3."""
        return self.messages_per_hour * self.duration_ms // HOUR_MS // 2 * 2

    @property
    def chunk(self) -> int:
        """Partitions that are in memory at a time."""
        return CHUNK_MESSAGES // self.messages


class MessageStream(NamedTuple):
    """Messages of some partitions, a row each, in the order in which they arrive at the cluster that is studied.

    Attributes
    ----------
    created_ms : array
        When a message was created.
    create_ms : array
        The CreateTime that its client set: the same, unless the client's time is wrong.
    source_ms : array
        When it arrived at the cluster from which a mirror maker copied it.
    arrival_ms : array
        When it arrived here.
    source : array
        The cluster it comes from: 0, or 0 and 1.
    """

    created_ms: Times
    create_ms: Times
    source_ms: Times
    arrival_ms: Times
    source: npt.NDArray[np.int8]


def streams(pattern: str, settings: Settings) -> Iterator[MessageStream]:
    """The streams of a pattern, a chunk of partitions at a time. Each chunk has random numbers of its own."""
    for chunk, first in enumerate(range(0, settings.partitions, settings.chunk)):
        rows = min(settings.chunk, settings.partitions - first)
        rng = np.random.default_rng([settings.seed, PATTERNS.index(pattern), chunk])
        yield stream(pattern, settings, rows, rng)


def stream(pattern: str, settings: Settings, rows: int, rng: np.random.Generator) -> MessageStream:
    """One stream."""
    shape = rows, settings.messages
    arrival = np.sort(rng.integers(START_MS, START_MS + settings.duration_ms, shape), axis=1)
    small = rng.exponential(settings.latency_ms, shape).astype(np.int64)
    large = settings.large_latency_ms + rng.integers(0, settings.disorder_ms, shape)
    source = np.zeros(shape, np.int8)
    if pattern == "pattern 2":
        latency = large
    elif pattern == "pattern 3":
        source = rng.permuted(np.tile(np.arange(shape[1], dtype=np.int8) % 2, (rows, 1)), axis=1)
        latency = np.where(source == 1, large, small)
    else:
        latency = small
    created = arrival - latency
    first_hop = np.minimum(rng.exponential(settings.latency_ms, shape).astype(np.int64), latency)
    create = created
    if pattern == "robustness":
        kind = rng.integers(0, 3, shape)
        wrong = rng.random(shape) < settings.wrong
        times = [created + FUTURE_MS, np.zeros(shape, np.int64), created // 1000]
        create = np.where(wrong, np.choose(kind, times), created)
    return MessageStream(created, create, created + first_hop, arrival, source)
