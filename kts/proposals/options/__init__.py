"""KIP-32's rejected options 1, 2 and 3: messages, segments, indexes and logs of their own. Option 4 is ``kts.Log``.

- Option 1: CreateTime and LogAppendTime in each message (magic 33).
- Option 2: LogAppendTime only (magic 34).
- Option 3: CreateTime only (magic 35). LogAppendTime lies in a time index, which followers fetch from the leader.

``encode``, ``decode`` and ``walk`` are for bytes, ``OptionLog`` for a partition, ``OptionLeader`` and
``OptionFollower`` for its replicas, ``Producer`` and ``Consumer`` for clients. Nothing else reads these formats, and
everything else refuses them by name.
"""

from kts.proposals.options.append_times import Gap, TimeIndexEntry
from kts.proposals.options.client import Consumer, ConsumerRecord, Producer, ProducerRecord, RecordMetadata
from kts.proposals.options.follower import OptionFollower
from kts.proposals.options.leader import OptionLeader
from kts.proposals.options.log import Appended, OptionLog
from kts.proposals.options.messages import MAGICS, Entries, decode, encode, walk
from kts.proposals.options.wire import PRIVATE_VERSIONS

__all__ = [
    "MAGICS",
    "PRIVATE_VERSIONS",
    "Appended",
    "Consumer",
    "ConsumerRecord",
    "Entries",
    "Gap",
    "OptionFollower",
    "OptionLeader",
    "OptionLog",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "TimeIndexEntry",
    "decode",
    "encode",
    "walk",
]
