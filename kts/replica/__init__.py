"""Copies of partitions that follow their leaders, and the client that fetches for them.

::

    with Client("localhost:9092") as client, kts.Log("copy/orders-0") as log:
        Fetcher(client, [Follower(log, client)]).catch_up()
"""

from kts.replica.client import Client
from kts.replica.fetcher import Fetcher
from kts.replica.follower import Follower
from kts.replica.topic_copy import TopicCopy

__all__ = ["Client", "Fetcher", "Follower", "TopicCopy"]
