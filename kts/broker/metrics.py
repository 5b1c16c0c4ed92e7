"""Counters of record conversions by topic: Kafka's, with bytes and CPU time in addition."""

from __future__ import annotations

import threading
from typing import NamedTuple

from kts.segment.locks import new_in_children

PRODUCE = "ProduceMessageConversionsPerSec"
FETCH = "FetchMessageConversionsPerSec"
METERS = (PRODUCE, FETCH)


class Conversions(NamedTuple):
    """Record sets that were converted to another format or codec since the start.

    Attributes
    ----------
    messages : int
        The records in them, as Kafka's meter counts them.
    sets : int
        Record sets, each of one partition in one request.
    bytes_in, bytes_out : int
        Their sizes before and after.
    cpu_ns : int
        CPU time of the conversion.
    """

    messages: int = 0
    sets: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_ns: int = 0


class Metrics:
    """The counters of a broker. Thread-safe.

    Notes
    -----
    As in Kafka, a produced set counts if it could not be stored as sent (another magic or codec, new inner offsets),
    and a fetched set if it was down-converted.

    Source: BrokerTopicMetrics, RecordValidationStats (3.9); KIP-188.
    """

    def __init__(self) -> None:
        self._lock: threading.Lock
        new_in_children(self, _lock=threading.Lock)
        self._meters: dict[tuple[str, str], Conversions] = {}

    def add(self, meter: str, topic: str, *, messages: int, bytes_in: int, bytes_out: int, cpu_ns: int = 0) -> None:
        """Count a converted set.

        Parameters
        ----------
        meter : str
            ``PRODUCE`` or ``FETCH``.
        cpu_ns : int
            By ``time.thread_time_ns``, around the conversion.
        """
        if meter not in METERS:
            raise ValueError(f"meter: expected one of {', '.join(METERS)}, found {meter!r}")
        with self._lock:
            known = self._meters.get((meter, topic), Conversions())
            self._meters[meter, topic] = _sum(known, Conversions(messages, 1, bytes_in, bytes_out, cpu_ns))

    def conversions(self, meter: str, topic: str | None = None) -> Conversions:
        """The counters of a topic, or the sum of all topics."""
        with self._lock:
            known = [found for (name, of), found in self._meters.items() if name == meter and topic in (None, of)]
        return _sum(*known)


def _sum(*parts: Conversions) -> Conversions:
    return Conversions(*map(sum, zip(*parts, strict=True))) if parts else Conversions()
