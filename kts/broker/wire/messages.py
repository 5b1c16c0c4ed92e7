"""The layouts of all messages on the wire, parsed from tables.

A message starts with ``API first-last flexible first+`` (or ``none``), and has a ``request`` and a ``response``, whose
lines are fields as in ``kts.protocol.fields``. ``ApiKey`` has the number of each.

Source: ApiKeys and the message definitions of Kafka 3.9 (clients/src/main/resources/common/message), and the schemas of
4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from kts.protocol.fields import NONE, Field, fields_of, versions_of


class ApiKey(IntEnum):
    """The APIs that the broker serves."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class Message(NamedTuple):
    """An API: its versions, its flexible versions, and the fields of its request and response."""

    api_key: ApiKey
    versions: range
    flexible: range
    request: tuple[Field, ...]
    response: tuple[Field, ...]


def _messages(text: str) -> Iterator[Message]:
    for part in text.strip().split("\n\n"):
        lines = part.split("\n")
        name, served, _, flexible = lines[0].split()
        versions = versions_of(served, 0)
        last = versions[-1]
        at = lines.index("response")
        if lines[1] != "request":
            raise ValueError(f"{name}: expected a request, found {lines[1]!r}")
        yield Message(
            ApiKey[name],
            versions,
            NONE if flexible == "none" else versions_of(flexible, last),
            fields_of("\n".join(lines[2:at]), last),
            fields_of("\n".join(lines[at + 1 :]), last),
        )


# --- records, offsets, producer ids -----------------------------------------------------------------

_PARTITIONS = """\
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

# --- the broker, its topics and their configuration -------------------------------------------------

_TOPICS = """\
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

# --- consumer groups and their committed offsets ----------------------------------------------------

_GROUPS = """\
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

# --- log directories, ACLs, replicas, producers, transactions, the quorum ---------------------------

_CLUSTER = """\
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

MESSAGES: dict[int, Message] = {
    message.api_key: message for text in (_PARTITIONS, _TOPICS, _GROUPS, _CLUSTER) for message in _messages(text)
}
