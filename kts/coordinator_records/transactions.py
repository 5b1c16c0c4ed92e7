"""The records of ``__transaction_state``: the state of each transactional id.

The value is flexible from version 1 on; null is a tombstone.

Source: TransactionLogKey, TransactionLogValue (3.9, 4.3.1), TransactionState (4.3.1).
"""

from __future__ import annotations

from kts.coordinator_records.layout import Layout

TOPIC = "__transaction_state"
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

TRANSACTION_KEY_LAYOUT = Layout("key of a transaction", "    transactional_id string 0+", 0)
TRANSACTION_LAYOUT = Layout(
    "transaction",
    """
    producer_id                 int64   0+
    previous_producer_id        int64   1+  = -1    tag 0
    next_producer_id            int64   1+  = -1    tag 1
    producer_epoch              int16   0+
    next_producer_epoch         int16   1+  = -1    tag 3
    timeout_ms                  int32   0+
    state                       int8    0+
    partitions                  []      0+  null 0+
        topic                   string  0+
        partitions              []int32 0+
    last_update_timestamp       int64   0+
    start_timestamp             int64   0+
    client_transaction_version  int16   1+  tag 2
""",
    1,
    1,
)
