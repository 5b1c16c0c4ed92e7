"""The layouts of the requests and responses about consumer groups and the offsets that they commit.

See ``kts.broker.wire.messages`` for how a line is read.

Source: the message definitions of Kafka 3.9 and the schemas of its 4.3.1 clients.
"""

TEXT = """\
FIND_COORDINATOR 0-6 flexible 3+
request
    key                                    string   0-3
    key_type                               int8     1+
    coordinator_keys                       []string 4+
response
    throttle_time_ms                       int32    1+
    error_code                             int16    0-3
    error_message                          string   1-3   null 1-3
    node_id                                int32    0-3
    host                                   string   0-3
    port                                   int32    0-3
    coordinators                           []       4+
        key                                string   4+
        node_id                            int32    4+
        host                               string   4+
        port                               int32    4+
        error_code                         int16    4+
        error_message                      string   4+    null 4+

JOIN_GROUP 0-9 flexible 6+
request
    group_id                               string   0+
    session_timeout_ms                     int32    0+
    rebalance_timeout_ms                   int32    1+    = -1
    member_id                              string   0+
    group_instance_id                      string   5+    null 5+ = null
    protocol_type                          string   0+
    protocols                              []       0+
        name                               string   0+
        metadata                           bytes    0+
    reason                                 string   8+    null 8+ = null
response
    throttle_time_ms                       int32    2+
    error_code                             int16    0+
    generation_id                          int32    0+    = -1
    protocol_type                          string   7+    null 7+ = null
    protocol_name                          string   0+    null 7+
    leader                                 string   0+
    skip_assignment                        bool     9+
    member_id                              string   0+
    members                                []       0+
        member_id                          string   0+
        group_instance_id                  string   5+    null 5+ = null
        metadata                           bytes    0+

SYNC_GROUP 0-5 flexible 4+
request
    group_id                               string   0+
    generation_id                          int32    0+
    member_id                              string   0+
    group_instance_id                      string   3+    null 3+ = null
    protocol_type                          string   5+    null 5+ = null
    protocol_name                          string   5+    null 5+ = null
    assignments                            []       0+
        member_id                          string   0+
        assignment                         bytes    0+
response
    throttle_time_ms                       int32    1+
    error_code                             int16    0+
    protocol_type                          string   5+    null 5+ = null
    protocol_name                          string   5+    null 5+ = null
    assignment                             bytes    0+

HEARTBEAT 0-4 flexible 4+
request
    group_id                               string   0+
    generation_id                          int32    0+
    member_id                              string   0+
    group_instance_id                      string   3+    null 3+ = null
response
    throttle_time_ms                       int32    1+
    error_code                             int16    0+

LEAVE_GROUP 0-5 flexible 4+
request
    group_id                               string   0+
    member_id                              string   0-2
    members                                []       3+
        member_id                          string   3+
        group_instance_id                  string   3+    null 3+ = null
        reason                             string   5+    null 5+ = null
response
    throttle_time_ms                       int32    1+
    error_code                             int16    0+
    members                                []       3+
        member_id                          string   3+
        group_instance_id                  string   3+    null 3+
        error_code                         int16    3+

OFFSET_COMMIT 0-10 flexible 8+
request
    group_id                               string   0+
    generation_id_or_member_epoch          int32    1+    = -1
    member_id                              string   1+
    group_instance_id                      string   7+    null 7+ = null
    retention_time_ms                      int64    2-4   = -1
    topics                                 []       0+
        name                               string   0-9
        topic_id                           uuid     10+
        partitions                         []       0+
            partition_index                int32    0+
            committed_offset               int64    0+
            committed_leader_epoch         int32    6+    = -1
            commit_timestamp               int64    1     = -1
            committed_metadata             string   0+    null 0+
response
    throttle_time_ms                       int32    3+
    topics                                 []       0+
        name                               string   0-9
        topic_id                           uuid     10+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+

OFFSET_FETCH 0-10 flexible 6+
request
    group_id                               string   0-7
    topics                                 []       0-7   null 2-7
        name                               string   0-7
        partition_indexes                  []int32  0-7
    groups                                 []       8+
        group_id                           string   8+
        member_id                          string   9+    null 9+ = null
        member_epoch                       int32    9+    = -1
        topics                             []       8+    null 8+
            name                           string   8-9
            topic_id                       uuid     10+
            partition_indexes              []int32  8+
    require_stable                         bool     7+
response
    throttle_time_ms                       int32    3+
    topics                                 []       0-7
        name                               string   0-7
        partitions                         []       0-7
            partition_index                int32    0-7
            committed_offset               int64    0-7
            committed_leader_epoch         int32    5-7   = -1
            metadata                       string   0-7   null 0-7
            error_code                     int16    0-7
    error_code                             int16    2-7
    groups                                 []       8+
        group_id                           string   8+
        topics                             []       8+
            name                           string   8-9
            topic_id                       uuid     10+
            partitions                     []       8+
                partition_index            int32    8+
                committed_offset           int64    8+
                committed_leader_epoch     int32    8+    = -1
                metadata                   string   8+    null 8+
                error_code                 int16    8+
        error_code                         int16    8+

OFFSET_DELETE 0 flexible none
request
    group_id                               string   0+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
response
    error_code                             int16    0+
    throttle_time_ms                       int32    0+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+

LIST_GROUPS 0-5 flexible 3+
request
    states_filter                          []string 4+
    types_filter                           []string 5+
response
    throttle_time_ms                       int32    1+
    error_code                             int16    0+
    groups                                 []       0+
        group_id                           string   0+
        protocol_type                      string   0+
        group_state                        string   4+
        group_type                         string   5+

DESCRIBE_GROUPS 0-6 flexible 5+
request
    groups                                 []string 0+
    include_authorized_operations          bool     3+
response
    throttle_time_ms                       int32    1+
    groups                                 []       0+
        error_code                         int16    0+
        error_message                      string   6+    null 6+ = null
        group_id                           string   0+
        group_state                        string   0+
        protocol_type                      string   0+
        protocol_data                      string   0+
        members                            []       0+
            member_id                      string   0+
            group_instance_id              string   4+    null 4+ = null
            client_id                      string   0+
            client_host                    string   0+
            member_metadata                bytes    0+
            member_assignment              bytes    0+
        authorized_operations              int32    3+    = -2147483648

DELETE_GROUPS 0-2 flexible 2+
request
    groups_names                           []string 0+
response
    throttle_time_ms                       int32    0+
    results                                []       0+
        group_id                           string   0+
        error_code                         int16    0+
"""
