"""The layouts of the requests and responses about partitions: records, offsets, and the producer ids that guard them.

See ``kts.broker.wire.messages`` for how a line is read.

Source: the message definitions of Kafka 3.9 and the schemas of its 4.3.1 clients.
"""

TEXT = """\
PRODUCE 0-13 flexible 9+
request
    transactional_id                       string   3+    null 3+ = null
    acks                                   int16    0+
    timeout_ms                             int32    0+
    topic_data                             []       0+
        name                               string   0-12
        topic_id                           uuid     13+
        partition_data                     []       0+
            index                          int32    0+
            records                        records  0+    null 0+
response
    responses                              []       0+
        name                               string   0-12
        topic_id                           uuid     13+
        partition_responses                []       0+
            index                          int32    0+
            error_code                     int16    0+
            base_offset                    int64    0+
            log_append_time_ms             int64    2+    = -1
            log_start_offset               int64    5+    = -1
            record_errors                  []       8+
                batch_index                int32    8+
                batch_index_error_message  string   8+    null 8+ = null
            error_message                  string   8+    null 8+ = null
            current_leader                 {}       10+   tag 0
                leader_id                  int32    10+   = -1
                leader_epoch               int32    10+   = -1
    throttle_time_ms                       int32    1+
    node_endpoints                         []       10+   tag 0
        node_id                            int32    10+
        host                               string   10+
        port                               int32    10+
        rack                               string   10+   null 10+ = null

FETCH 0-18 flexible 12+
request
    cluster_id                             string   12+   null 12+ = null tag 0
    replica_id                             int32    0-14  = -1
    replica_state                          {}       15+   tag 1
        replica_id                         int32    15+   = -1
        replica_epoch                      int64    15+   = -1
    max_wait_ms                            int32    0+
    min_bytes                              int32    0+
    max_bytes                              int32    3+    = 2147483647
    isolation_level                        int8     4+
    session_id                             int32    7+
    session_epoch                          int32    7+    = -1
    topics                                 []       0+
        topic                              string   0-12
        topic_id                           uuid     13+
        partitions                         []       0+
            partition                      int32    0+
            current_leader_epoch           int32    9+    = -1
            fetch_offset                   int64    0+
            last_fetched_epoch             int32    12+   = -1
            log_start_offset               int64    5+    = -1
            partition_max_bytes            int32    0+
            replica_directory_id           uuid     17+   tag 0
            high_watermark                 int64    18+   = 9223372036854775807 tag 1
    forgotten_topics_data                  []       7+
        topic                              string   7-12
        topic_id                           uuid     13+
        partitions                         []int32  7+
    rack_id                                string   11+
response
    throttle_time_ms                       int32    1+
    error_code                             int16    7+
    session_id                             int32    7+
    responses                              []       0+
        topic                              string   0-12
        topic_id                           uuid     13+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+
            high_watermark                 int64    0+
            last_stable_offset             int64    4+    = -1
            log_start_offset               int64    5+    = -1
            diverging_epoch                {}       12+   tag 0
                epoch                      int32    12+   = -1
                end_offset                 int64    12+   = -1
            current_leader                 {}       12+   tag 1
                leader_id                  int32    12+   = -1
                leader_epoch               int32    12+   = -1
            snapshot_id                    {}       12+   tag 2
                end_offset                 int64    12+   = -1
                epoch                      int32    12+   = -1
            aborted_transactions           []       4+    null 4+
                producer_id                int64    4+
                first_offset               int64    4+
            preferred_read_replica         int32    11+   = -1
            records                        records  0+    null 0+
    node_endpoints                         []       16+   tag 0
        node_id                            int32    16+
        host                               string   16+
        port                               int32    16+
        rack                               string   16+   null 16+ = null

LIST_OFFSETS 0-11 flexible 6+
request
    replica_id                             int32    0+
    isolation_level                        int8     2+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            current_leader_epoch           int32    4+    = -1
            timestamp                      int64    0+
            max_num_offsets                int32    0     = 1
    timeout_ms                             int32    10+
response
    throttle_time_ms                       int32    2+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+
            old_style_offsets              []int64  0
            timestamp                      int64    1+    = -1
            offset                         int64    1+    = -1
            leader_epoch                   int32    4+    = -1

DELETE_RECORDS 0-2 flexible 2+
request
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            offset                         int64    0+
    timeout_ms                             int32    0+
response
    throttle_time_ms                       int32    0+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            low_watermark                  int64    0+
            error_code                     int16    0+

OFFSET_FOR_LEADER_EPOCH 0-4 flexible 4+
request
    replica_id                             int32    3+    = -2
    topics                                 []       0+
        topic                              string   0+
        partitions                         []       0+
            partition                      int32    0+
            current_leader_epoch           int32    2+    = -1
            leader_epoch                   int32    0+
response
    throttle_time_ms                       int32    2+
    topics                                 []       0+
        topic                              string   0+
        partitions                         []       0+
            error_code                     int16    0+
            partition                      int32    0+
            leader_epoch                   int32    1+    = -1
            end_offset                     int64    0+    = -1

INIT_PRODUCER_ID 0-6 flexible 2+
request
    transactional_id                       string   0+    null 0+
    transaction_timeout_ms                 int32    0+
    producer_id                            int64    3+    = -1
    producer_epoch                         int16    3+    = -1
    enable2_pc                             bool     6+
    keep_prepared_txn                      bool     6+
response
    throttle_time_ms                       int32    0+
    error_code                             int16    0+
    producer_id                            int64    0+    = -1
    producer_epoch                         int16    0+
    ongoing_txn_producer_id                int64    6+    = -1
    ongoing_txn_producer_epoch             int16    6+    = -1
"""
