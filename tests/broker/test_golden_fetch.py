"""What Kafka's brokers left, served by ours: each Fetch version gets what its clients can read of what Kafka showed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.broker.asking import Asking
from support.golden import RECORD_COLUMNS, Golden, Row, goldens, rows, scaled

import kts
from kts.broker.broker import Broker
from kts.broker.downconversion import PSEUDO_ENTRY

pytestmark = pytest.mark.slow

NOW = 1_900_000_000_000
PARTS = 3  # about so many fetches take a larger log
VERSIONS = (0, 2, 3, 4, 13)


class Seen(NamedTuple):
    """What a consumer got."""

    rows: list[Row]
    errors: set[int]


@pytest.fixture(scope="module", params=goldens()[:: scaled(2, 1)], ids=str)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Golden, Asking]]:
    scenario: Golden = request.param.copy(tmp_path_factory.mktemp("golden"))
    found = [each.get("log-start-offset-checkpoint", []) for each in scenario.meta.get("checkpoints", {}).values()]
    lines = [line for each in found for line in each]
    if lines:  # else brokers have none, or an empty one
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        (scenario.log_dir / "log-start-offset-checkpoint").write_text(text, encoding="utf-8")
    settings = {"log.retention.ms": -1, "shipped.search": True}
    with Asking(Broker(scenario.log_dir, settings, clock=lambda: NOW)) as asking:
        yield scenario, asking


def consume(asking: Asking, topic: str, partition: int, version: int, committed: bool = False) -> Seen:
    """Fetch from the beginning as clients do: drop what lies before the position, and what was aborted."""
    position = asking.list_offsets(topic, -2, version=1, partition=partition)["offset"]
    found, errors = list[Row](), set[int]()
    size = asking.broker.topics.get(topic).partitions[partition].log.size_bytes
    while True:
        settings: dict[str, Any] = {
            "isolation_level": int(committed),
            "partition_max_bytes": max(size // PARTS, 20_000),
        }
        row = asking.fetch(topic, position, version=version, partition=partition, **settings)
        if row["error_code"]:
            return Seen(found, {row["error_code"]})
        data = bytes(row["records"])
        if not data:
            return Seen(found, errors)
        if not kts.valid_bytes(data):
            # nothing whole: control batches that old clients cannot be given, or an entry larger than the limit
            if data == PSEUDO_ENTRY:
                step = asking.fetch(topic, position, version=4, partition=partition)["records"]
                position = kts.scan_batches(step).column("lastOffset")[0].as_py() + 1
            else:
                assert version <= 2
                more = asking.fetch(topic, position, version=version, partition=partition, partition_max_bytes=2**26)
                data = bytes(more["records"])
                assert kts.valid_bytes(data)
        got, following = read(data, row["aborted_transactions"] if committed else None)
        found += [one for one in got if one.offset >= position]
        if following is not None and following <= position:  # the cleaner took what followed in its batch
            step = asking.fetch(topic, position, version=4, partition=partition)["records"]
            following = kts.scan_batches(step).column("lastOffset")[0].as_py() + 1
        position = position if following is None else following


def read(data: bytes, aborted: list[dict[str, int]] | None) -> tuple[list[Row], int | None]:
    """The records of a set, without control batches and aborted transactions, and the offset behind it."""
    columns = [*RECORD_COLUMNS, "control", "transactional", "producerId", "magic"]
    table = kts.decode(data, columns)
    if not kts.valid_bytes(data):
        return [], None
    scan = kts.scan_batches(data)
    following = scan.column("lastOffset")[-1].as_py() + 1
    waiting = sorted(aborted or [], key=lambda one: one["first_offset"])
    dropped = set[int]()
    got = []
    facts = (table.column(name).to_pylist() for name in ("control", "transactional", "producerId"))
    keys = table.column("key").to_pylist()
    for row, control, transactional, producer, key in zip(rows(table), *facts, keys, strict=True):
        while aborted is not None and waiting and waiting[0]["first_offset"] <= row.offset:
            dropped.add(waiting.pop(0)["producer_id"])
        if control:
            if key is not None and key[2:4] == b"\0\0":
                dropped.discard(producer)
            continue
        if not (transactional and producer in dropped):
            got.append(row)
    return got, following


def as_seen_by(row: Row, version: int) -> Row:
    """A record without what the magic of a version has no place for."""
    if version >= 4:
        return row
    row = row._replace(headers=None)
    return row if version >= 2 else row._replace(timestamp=-1, timestamp_type=-1)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_gets_what_kafka_showed(served: tuple[Golden, Asking], version: int) -> None:
    scenario, asking = served
    for name in scenario.partitions:
        topic, _, number = name.rpartition("-")
        seen = consume(asking, topic, int(number), version)
        if version <= 3 and 76 in seen.errors:
            segments = (kts.scan_batches(path.read_bytes()).column("codec").to_pylist() for path in scenario.logs(name))
            assert 4 in {codec for codecs in segments for codec in codecs}
            continue
        assert not seen.errors
        assert seen.rows == [as_seen_by(row, version) for row in scenario.expected(name)]


def test_read_committed_consumers_get_what_kafka_showed_them(served: tuple[Golden, Asking]) -> None:
    scenario, asking = served
    for name in scenario.partitions:
        topic, _, number = name.rpartition("-")
        facts = scenario.meta["partitions"][name]
        if "readCommittedOffsets" not in facts:
            continue
        for version in (4, 12, 18):
            seen = consume(asking, topic, int(number), version, committed=True)
            assert [row.offset for row in seen.rows] == facts["readCommittedOffsets"]


def test_begin_end_and_searches_are_as_kafka_answered(served: tuple[Golden, Asking]) -> None:
    scenario, asking = served
    for name in scenario.partitions:
        answers = scenario.offsets_for_times(name)
        if answers is None:
            continue
        topic, _, number = name.rpartition("-")
        where: dict[str, Any] = {"partition": int(number), "version": 7}
        assert asking.list_offsets(topic, -2, **where)["offset"] == answers["beginningOffset"]
        assert asking.list_offsets(topic, -1, **where)["offset"] == answers["endOffset"]
        if "lastStableOffset" in answers:
            row = asking.list_offsets(topic, -1, isolation_level=1, **where)
            assert row["offset"] == answers["lastStableOffset"]
        for isolation, queries in enumerate((answers["queries"], answers.get("queriesReadCommitted", []))):
            for query in queries:
                row = asking.list_offsets(topic, query["query"], isolation_level=isolation, **where)
                answer = query["answer"]
                wanted = (-1, -1) if answer is None else (answer["timestamp"], answer["offset"])
                assert (row["timestamp"], row["offset"]) == wanted
