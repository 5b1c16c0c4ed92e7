"""Every record that a broker's consumers saw is what kts reads from the directories that this broker left."""

from __future__ import annotations

import pytest
from support.golden import RECORD_COLUMNS, Golden, golden_partitions, goldens, rows

import kts

PARTITIONS = golden_partitions()
every_partition = pytest.mark.parametrize(
    ("scenario", "partition"), PARTITIONS, ids=[f"{scenario}/{partition}" for scenario, partition in PARTITIONS]
)


def log_start_beside_the_directory(scenario: Golden, partition: str) -> bool:
    """Whether DeleteRecords moved the log start: the broker notes that in a file outside the partition's directory."""
    topic, _, number = partition.rpartition("-")
    lines = scenario.meta.get("checkpoints", {}).get(topic, {}).get("log-start-offset-checkpoint", [])
    return any(line.split()[:2] == [topic, number] and int(line.split()[2]) > 0 for line in lines)


@pytest.mark.slow
@every_partition
def test_scan_gives_every_record_that_a_consumer_saw(scenario: Golden, partition: str) -> None:
    start = scenario.log_start_offset(partition)
    table = kts.scan(scenario.partition_dir(partition), columns=RECORD_COLUMNS, log_start_offset=start).read_all()
    assert rows(table) == scenario.expected(partition)


@pytest.mark.slow
@every_partition
def test_scan_of_views_gives_the_same_records(scenario: Golden, partition: str) -> None:
    data = b"".join(log.read_bytes() for log in scenario.logs(partition))
    seen = rows(kts.decode(data, RECORD_COLUMNS, views=True))
    assert seen == rows(kts.decode(data, RECORD_COLUMNS))


@pytest.mark.slow
@every_partition
def test_decoded_log_files_hold_every_record_that_a_consumer_saw(scenario: Golden, partition: str) -> None:
    data = b"".join(log.read_bytes() for log in scenario.logs(partition))
    assert kts.valid_bytes(data) == len(data)
    decoded = kts.decode(data, [*RECORD_COLUMNS, "control"])
    start = scenario.log_start_offset(partition)
    seen = [
        row
        for row, control in zip(rows(decoded), decoded.column("control").to_pylist(), strict=True)
        if not control and row.offset >= start
    ]
    assert seen == scenario.expected(partition)


@every_partition
def test_begin_and_end_offsets_are_the_brokers(scenario: Golden, partition: str) -> None:
    facts = scenario.meta["partitions"][partition]
    outside = facts["beginningOffset"] if log_start_beside_the_directory(scenario, partition) else None
    with kts.open(scenario.partition_dir(partition), log_start_offset=outside) as log:
        assert (log.topic, log.partition) == (partition.rpartition("-")[0], int(partition.rpartition("-")[2]))
        assert (log.log_start_offset, log.log_end_offset) == (facts["beginningOffset"], facts["endOffset"])


COMMITTED = [(s, p) for s, p in PARTITIONS if "readCommittedOffsets" in s.meta["partitions"][p]]


@pytest.mark.parametrize(("scenario", "partition"), COMMITTED, ids=[f"{s}/{p}" for s, p in COMMITTED])
def test_read_committed_leaves_out_what_was_aborted_or_is_open(scenario: Golden, partition: str) -> None:
    facts = scenario.meta["partitions"][partition]
    committed = set(facts["readCommittedOffsets"])
    table = kts.scan(
        scenario.partition_dir(partition),
        columns=RECORD_COLUMNS,
        log_start_offset=facts["beginningOffset"],
        isolation="read_committed",
    ).read_all()
    assert rows(table) == [row for row in scenario.expected(partition) if row.offset in committed]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", goldens(), ids=str)
def test_a_log_directory_is_scanned_in_the_order_topic_partition_offset(scenario: Golden) -> None:
    topics: dict[str, dict[int, int]] = {}
    for partition in scenario.partitions:
        topic, _, number = partition.rpartition("-")
        topics.setdefault(topic, {})[int(number)] = scenario.log_start_offset(partition)
    table = kts.scan(
        scenario.log_dir, columns=["topic", "partition", *RECORD_COLUMNS], starting_offsets=topics
    ).read_all()
    wanted = [
        (topic, number, row)
        for topic in sorted(topics)
        for number in sorted(topics[topic])
        for row in scenario.expected(f"{topic}-{number}")
    ]
    names = zip(table.column("topic").to_pylist(), table.column("partition").to_pylist(), rows(table), strict=True)
    assert list(names) == wanted
