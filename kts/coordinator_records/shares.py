"""The records of ``__share_group_state``: how far a share group is in a partition (KIP-932).

The version of a key is the record's type: a snapshot, or an update of the latest snapshot. Values have version 0, which
is flexible; null is a tombstone.

Source: ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue (4.3.1).
"""

from __future__ import annotations

from kts.coordinator_records.layout import Layout

TOPIC = "__share_group_state"
SNAPSHOT, UPDATE = 0, 1
RECORD_TYPES = {SNAPSHOT: "ShareSnapshot", UPDATE: "ShareUpdate"}

_STATE_BATCHES = """
    state_batches               []     0+
        first_offset            int64  0+
        last_offset             int64  0+
        delivery_state          int8   0+
        delivery_count          int16  0+
"""
SHARE_KEY_LAYOUT = Layout(
    "key of a share partition",
    """
    group                       string 0+
    topic_id                    uuid   0+
    partition                   int32  0+
""",
    UPDATE,
)
SNAPSHOT_LAYOUT = Layout(
    "share snapshot",
    f"""
    snapshot_epoch              int32  0+
    state_epoch                 int32  0+
    leader_epoch                int32  0+
    start_offset                int64  0+
    delivery_complete_count     int32  0+  = -1 tag 0
    create_timestamp            int64  0+
    write_timestamp             int64  0+
{_STATE_BATCHES}""",
    0,
    0,
)
UPDATE_LAYOUT = Layout(
    "share update",
    f"""
    snapshot_epoch              int32  0+
    leader_epoch                int32  0+
    start_offset                int64  0+
    delivery_complete_count     int32  0+  = -1 tag 0
{_STATE_BATCHES}""",
    0,
    0,
)
