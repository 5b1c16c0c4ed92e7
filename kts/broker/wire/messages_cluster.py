"""The layouts of the requests and responses about the cluster: log directories, ACLs, where partitions are and who
leads them, producers, transactions, the controllers' quorum.

See ``kts.broker.wire.messages`` for how a line is read.

Source: the message definitions of Kafka 3.9 and the schemas of its 4.3.1 clients.
"""

TEXT = """\
DESCRIBE_LOG_DIRS 0-5 flexible 2+
request
    topics                                 []       0+    null 0+
        topic                              string   0+
        partitions                         []int32  0+
response
    throttle_time_ms                       int32    0+
    error_code                             int16    3+
    results                                []       0+
        error_code                         int16    0+
        log_dir                            string   0+
        topics                             []       0+
            name                           string   0+
            partitions                     []       0+
                partition_index            int32    0+
                partition_size             int64    0+
                offset_lag                 int64    0+
                is_future_key              bool     0+
        total_bytes                        int64    4+    = -1
        usable_bytes                       int64    4+    = -1
        is_cordoned                        bool     5+

DESCRIBE_ACLS 0-3 flexible 2+
request
    resource_type_filter                   int8     0+
    resource_name_filter                   string   0+    null 0+
    pattern_type_filter                    int8     1+    = 3
    principal_filter                       string   0+    null 0+
    host_filter                            string   0+    null 0+
    operation                              int8     0+
    permission_type                        int8     0+
response
    throttle_time_ms                       int32    0+
    error_code                             int16    0+
    error_message                          string   0+    null 0+
    resources                              []       0+
        resource_type                      int8     0+
        resource_name                      string   0+
        pattern_type                       int8     1+    = 3
        acls                               []       0+
            principal                      string   0+
            host                           string   0+
            operation                      int8     0+
            permission_type                int8     0+

CREATE_ACLS 0-3 flexible 2+
request
    creations                              []       0+
        resource_type                      int8     0+
        resource_name                      string   0+
        resource_pattern_type              int8     1+    = 3
        principal                          string   0+
        host                               string   0+
        operation                          int8     0+
        permission_type                    int8     0+
response
    throttle_time_ms                       int32    0+
    results                                []       0+
        error_code                         int16    0+
        error_message                      string   0+    null 0+

DELETE_ACLS 0-3 flexible 2+
request
    filters                                []       0+
        resource_type_filter               int8     0+
        resource_name_filter               string   0+    null 0+
        pattern_type_filter                int8     1+    = 3
        principal_filter                   string   0+    null 0+
        host_filter                        string   0+    null 0+
        operation                          int8     0+
        permission_type                    int8     0+
response
    throttle_time_ms                       int32    0+
    filter_results                         []       0+
        error_code                         int16    0+
        error_message                      string   0+    null 0+
        matching_acls                      []       0+
            error_code                     int16    0+
            error_message                  string   0+    null 0+
            resource_type                  int8     0+
            resource_name                  string   0+
            pattern_type                   int8     1+    = 3
            principal                      string   0+
            host                           string   0+
            operation                      int8     0+
            permission_type                int8     0+

ALTER_PARTITION_REASSIGNMENTS 0-1 flexible 0+
request
    timeout_ms                             int32    0+    = 60000
    allow_replication_factor_change        bool     1+    = true
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            replicas                       []int32  0+    null 0+ = null
response
    throttle_time_ms                       int32    0+
    allow_replication_factor_change        bool     1+    = true
    error_code                             int16    0+
    error_message                          string   0+    null 0+
    responses                              []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+
            error_message                  string   0+    null 0+

LIST_PARTITION_REASSIGNMENTS 0 flexible 0+
request
    timeout_ms                             int32    0+    = 60000
    topics                                 []       0+    null 0+ = null
        name                               string   0+
        partition_indexes                  []int32  0+
response
    throttle_time_ms                       int32    0+
    error_code                             int16    0+
    error_message                          string   0+    null 0+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            replicas                       []int32  0+
            adding_replicas                []int32  0+
            removing_replicas              []int32  0+

ELECT_LEADERS 0-2 flexible 2+
request
    election_type                          int8     1+
    topic_partitions                       []       0+    null 0+
        topic                              string   0+
        partitions                         []int32  0+
    timeout_ms                             int32    0+    = 60000
response
    throttle_time_ms                       int32    0+
    error_code                             int16    1+
    replica_election_results               []       0+
        topic                              string   0+
        partition_result                   []       0+
            partition_id                   int32    0+
            error_code                     int16    0+
            error_message                  string   0+    null 0+

DESCRIBE_PRODUCERS 0 flexible 0+
request
    topics                                 []       0+
        name                               string   0+
        partition_indexes                  []int32  0+
response
    throttle_time_ms                       int32    0+
    topics                                 []       0+
        name                               string   0+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+
            error_message                  string   0+    null 0+ = null
            active_producers               []       0+
                producer_id                int64    0+
                producer_epoch             int32    0+
                last_sequence              int32    0+    = -1
                last_timestamp             int64    0+    = -1
                coordinator_epoch          int32    0+
                current_txn_start_offset   int64    0+    = -1

LIST_TRANSACTIONS 0-2 flexible 0+
request
    state_filters                          []string 0+
    producer_id_filters                    []int64  0+
    duration_filter                        int64    1+    = -1
    transactional_id_pattern               string   2+    null 2+ = null
response
    throttle_time_ms                       int32    0+
    error_code                             int16    0+
    unknown_state_filters                  []string 0+
    transaction_states                     []       0+
        transactional_id                   string   0+
        producer_id                        int64    0+
        transaction_state                  string   0+

DESCRIBE_TRANSACTIONS 0 flexible 0+
request
    transactional_ids                      []string 0+
response
    throttle_time_ms                       int32    0+
    transaction_states                     []       0+
        error_code                         int16    0+
        transactional_id                   string   0+
        transaction_state                  string   0+
        transaction_timeout_ms             int32    0+
        transaction_start_time_ms          int64    0+
        producer_id                        int64    0+
        producer_epoch                     int16    0+
        topics                             []       0+
            topic                          string   0+
            partitions                     []int32  0+

DESCRIBE_QUORUM 0-2 flexible 0+
request
    topics                                 []       0+
        topic_name                         string   0+
        partitions                         []       0+
            partition_index                int32    0+
response
    error_code                             int16    0+
    error_message                          string   2+    null 2+
    topics                                 []       0+
        topic_name                         string   0+
        partitions                         []       0+
            partition_index                int32    0+
            error_code                     int16    0+
            error_message                  string   2+    null 2+
            leader_id                      int32    0+
            leader_epoch                   int32    0+
            high_watermark                 int64    0+
            current_voters                 []       0+
                replica_id                 int32    0+
                replica_directory_id       uuid     2+
                log_end_offset             int64    0+
                last_fetch_timestamp       int64    1+    = -1
                last_caught_up_timestamp   int64    1+    = -1
            observers                      []       0+
                replica_id                 int32    0+
                replica_directory_id       uuid     2+
                log_end_offset             int64    0+
                last_fetch_timestamp       int64    1+    = -1
                last_caught_up_timestamp   int64    1+    = -1
    nodes                                  []       2+
        node_id                            int32    2+
        listeners                          []       2+
            name                           string   2+
            host                           string   2+
            port                           uint16   2+
"""
