"""A Kafka broker inside a test: a real log in a directory, real clients on a socket, and time in the test's hand.

``pip install kts`` brings the pytest fixtures ``kts_broker`` and ``kts_broker_factory``; elsewhere ``KtsBroker`` is a
context manager.
"""

from __future__ import annotations

from kts.testing.broker import KtsBroker
from kts.testing.clock import Clock
from kts.testing.records import ConsumerRecord, Expired, RecordMetadata

__all__ = ["Clock", "ConsumerRecord", "Expired", "KtsBroker", "RecordMetadata"]
