"""A Kafka broker inside a test: a real log, real clients on a socket, and a clock that the test sets.

The wheel installs the pytest fixtures ``kts_broker`` and ``kts_broker_factory``. Elsewhere, use ``KtsBroker``
as a context manager.
"""

from __future__ import annotations

from kts.broker.topics import Compacted
from kts.testing.broker import KtsBroker
from kts.testing.clock import Clock
from kts.testing.records import ConsumerRecord, Expired, RecordMetadata

__all__ = ["Clock", "Compacted", "ConsumerRecord", "Expired", "KtsBroker", "RecordMetadata"]
