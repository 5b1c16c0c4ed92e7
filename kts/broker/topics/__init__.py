"""Topics and their partitions in a log directory, and the files that a broker keeps there beside them."""

from kts.broker.topics.directory import check_name
from kts.broker.topics.topics import NewTopic, Retained, Topic, Topics

__all__ = ["NewTopic", "Retained", "Topic", "Topics", "check_name"]
