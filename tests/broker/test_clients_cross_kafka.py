"""The control: the same reads from Apache Kafka, of the old formats from 0.10.2.2, of the newest from 3.9.2."""

from __future__ import annotations

from support.clients.client_all import NAMES
from support.clients.client_cross import CrossReads, NewestCrossReads
from support.clients.client_places import old_broker, real_broker


class TestCrossReadsFromOldKafka(CrossReads):
    writers = ("Java 0.9.0.1", "kafka-python", "Java 3.9.2")
    readers = tuple(name for name in NAMES if name != "Java 4.3.1")  # which does not talk to so old a broker
    versions = ("0.9.0", "0.10.2")
    place = staticmethod(old_broker)


class TestCrossReadsFromKafka(NewestCrossReads):
    writers = ("Java 0.9.0.1", "Java 4.3.1")
    versions = ("newest",)
    place = staticmethod(real_broker)
