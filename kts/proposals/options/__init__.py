"""KIP-32's rejected options 1, 2 and 3: messages, segments, indexes and logs of their own. Option 4 is ``kts.Log``.

- Option 1: CreateTime and LogAppendTime in each message (magic 33).
- Option 2: LogAppendTime only (magic 34).
- Option 3: CreateTime only (magic 35). LogAppendTime lies in a time index, which followers fetch from the leader.

``encode``, ``decode`` and ``walk`` are for bytes, ``OptionLog`` for a partition. Nothing else reads these formats, and
everything else refuses them by name.
"""

from kts.proposals.options.append_times import Gap, TimeIndexEntry
from kts.proposals.options.log import Appended, OptionLog
from kts.proposals.options.messages import MAGICS, Entries, decode, encode, walk

__all__ = ["MAGICS", "Appended", "Entries", "Gap", "OptionLog", "TimeIndexEntry", "decode", "encode", "walk"]
