"""Copies of partitions that follow their leaders, and the client that fetches for them.

::

    with Client("localhost:9092") as client, kts.Log("copy/orders-0") as log:
        Fetcher(client, [Follower(log, client)]).catch_up()
"""

from kts.broker.following.client import Client
from kts.broker.following.fetcher import Fetcher
from kts.broker.following.follower import Follower
from kts.broker.following.topic_copy import TopicCopy

__all__ = ["Client", "Fetcher", "Follower", "TopicCopy"]
