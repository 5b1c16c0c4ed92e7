"""The layouts of the requests and responses about the broker itself, its topics and their configuration.

See ``kts.broker.wire.messages`` for how a line is read.

Source: the message definitions of Kafka 3.9 and the schemas of its 4.3.1 clients.
"""

TEXT = """\
API_VERSIONS 0-4 flexible 3+
request
    client_software_name                   string   3+
    client_software_version                string   3+
response
    error_code                             int16    0+
    api_keys                               []       0+
        api_key                            int16    0+
        min_version                        int16    0+
        max_version                        int16    0+
    throttle_time_ms                       int32    1+
    supported_features                     []       3+    tag 0
        name                               string   3+
        min_version                        int16    3+
        max_version                        int16    3+
    finalized_features_epoch               int64    3+    = -1 tag 1
    finalized_features                     []       3+    tag 2
        name                               string   3+
        max_version_level                  int16    3+
        min_version_level                  int16    3+
    zk_migration_ready                     bool     3+     tag 3

METADATA 0-13 flexible 9+
request
    topics                                 []       0+    null 1+
        topic_id                           uuid     10+
        name                               string   0+    null 10+
    allow_auto_topic_creation              bool     4+    = true
    include_cluster_authorized_operations  bool     8-10
    include_topic_authorized_operations    bool     8+
response
    throttle_time_ms                       int32    3+
    brokers                                []       0+
        node_id                            int32    0+
        host                               string   0+
        port                               int32    0+
        rack                               string   1+    null 1+ = null
    cluster_id                             string   2+    null 2+ = null
    controller_id                          int32    1+    = -1
    topics                                 []       0+
        error_code                         int16    0+
        name                               string   0+    null 12+
        topic_id                           uuid     10+
        is_internal                        bool     1+
        partitions                         []       0+
            error_code                     int16    0+
            partition_index                int32    0+
            leader_id                      int32    0+
            leader_epoch                   int32    7+    = -1
            replica_nodes                  []int32  0+
            isr_nodes                      []int32  0+
            offline_replicas               []int32  5+
        topic_authorized_operations        int32    8+    = -2147483648
    cluster_authorized_operations          int32    8-10  = -2147483648
    error_code                             int16    13+

DESCRIBE_CLUSTER 0-2 flexible 0+
request
    include_cluster_authorized_operations  bool     0+
    endpoint_type                          int8     1+    = 1
    include_fenced_brokers                 bool     2+
response
    throttle_time_ms                       int32    0+
    error_code                             int16    0+
    error_message                          string   0+    null 0+ = null
    endpoint_type                          int8     1+    = 1
    cluster_id                             string   0+
    controller_id                          int32    0+    = -1
    brokers                                []       0+
        broker_id                          int32    0+
        host                               string   0+
        port                               int32    0+
        rack                               string   0+    null 0+ = null
        is_fenced                          bool     2+
    cluster_authorized_operations          int32    0+    = -2147483648

CREATE_TOPICS 0-7 flexible 5+
request
    topics                                 []       0+
        name                               string   0+
        num_partitions                     int32    0+
        replication_factor                 int16    0+
        assignments                        []       0+
            partition_index                int32    0+
            broker_ids                     []int32  0+
        configs                            []       0+
            name                           string   0+
            value                          string   0+    null 0+
    timeout_ms                             int32    0+    = 60000
    validate_only                          bool     1+
response
    throttle_time_ms                       int32    2+
    topics                                 []       0+
        name                               string   0+
        topic_id                           uuid     7+
        error_code                         int16    0+
        error_message                      string   1+    null 0+
        topic_config_error_code            int16    5+    tag 0
        num_partitions                     int32    5+    = -1
        replication_factor                 int16    5+    = -1
        configs                            []       5+    null 5+
            name                           string   5+
            value                          string   5+    null 5+
            read_only                      bool     5+
            config_source                  int8     5+    = -1
            is_sensitive                   bool     5+

DELETE_TOPICS 0-6 flexible 4+
request
    topics                                 []       6+
        name                               string   6+    null 6+ = null
        topic_id                           uuid     6+
    topic_names                            []string 0-5
    timeout_ms                             int32    0+
response
    throttle_time_ms                       int32    1+
    responses                              []       0+
        name                               string   0+    null 6+
        topic_id                           uuid     6+
        error_code                         int16    0+
        error_message                      string   5+    null 5+ = null

CREATE_PARTITIONS 0-3 flexible 2+
request
    topics                                 []       0+
        name                               string   0+
        count                              int32    0+
        assignments                        []       0+    null 0+
            broker_ids                     []int32  0+
    timeout_ms                             int32    0+
    validate_only                          bool     0+
response
    throttle_time_ms                       int32    0+
    results                                []       0+
        name                               string   0+
        error_code                         int16    0+
        error_message                      string   0+    null 0+ = null

DESCRIBE_CONFIGS 0-4 flexible 4+
request
    resources                              []       0+
        resource_type                      int8     0+
        resource_name                      string   0+
        configuration_keys                 []string 0+    null 0+
    include_synonyms                       bool     1+
    include_documentation                  bool     3+
response
    throttle_time_ms                       int32    0+
    results                                []       0+
        error_code                         int16    0+
        error_message                      string   0+    null 0+
        resource_type                      int8     0+
        resource_name                      string   0+
        configs                            []       0+
            name                           string   0+
            value                          string   0+    null 0+
            read_only                      bool     0+
            is_default                     bool     0
            config_source                  int8     1+    = -1
            is_sensitive                   bool     0+
            synonyms                       []       1+
                name                       string   1+
                value                      string   1+    null 0+
                source                     int8     1+
            config_type                    int8     3+
            documentation                  string   3+    null 0+

ALTER_CONFIGS 0-2 flexible 2+
request
    resources                              []       0+
        resource_type                      int8     0+
        resource_name                      string   0+
        configs                            []       0+
            name                           string   0+
            value                          string   0+    null 0+
    validate_only                          bool     0+
response
    throttle_time_ms                       int32    0+
    responses                              []       0+
        error_code                         int16    0+
        error_message                      string   0+    null 0+
        resource_type                      int8     0+
        resource_name                      string   0+

INCREMENTAL_ALTER_CONFIGS 0-1 flexible 1+
request
    resources                              []       0+
        resource_type                      int8     0+
        resource_name                      string   0+
        configs                            []       0+
            name                           string   0+
            config_operation               int8     0+
            value                          string   0+    null 0+
    validate_only                          bool     0+
response
    throttle_time_ms                       int32    0+
    responses                              []       0+
        error_code                         int16    0+
        error_message                      string   0+    null 0+
        resource_type                      int8     0+
        resource_name                      string   0+
"""
