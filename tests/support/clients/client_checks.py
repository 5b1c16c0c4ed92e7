"""What is asked of every real client, against `kts serve` as against Apache Kafka."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence

import pytest
from support.clients.client_places import Place
from support.clients.client_proxy import CuttingProxy
from support.clients.client_records import APPEND, CREATE, NONE, NOON_MS, Record, Row, make, search, search_one_segment
from support.clients.clients import Client
from support.golden import scaled

import kts

COUNT = scaled(2500, 10_000)  # more than a request takes, at both lengths
MANY = 10_000  # requests enough to lose three answers
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TYPES = {-1: NONE, 0: CREATE, 1: APPEND}


def topic_name(client: Client, *what: object) -> str:
    return "-".join([client.name.replace(" ", "-"), *map(str, what)])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def on_disk(place: Place, topic: str, partition: int = 0) -> list[Row]:
    """What `kts.scan` finds in the broker's log directory while it runs."""
    columns = ["offset", "key", "value", "timestamp", "timestampType", "headers"]
    table = kts.scan(place.data, topics=[topic], partitions=[partition], columns=columns).read_all()
    times = table["timestamp"].cast("int64").to_pylist()
    found = []
    for time_ms, one in zip(times, table.drop_columns("timestamp").to_pylist(), strict=True):
        headers = tuple((each["key"], each["value"]) for each in one["headers"] or ())
        where = partition, one["offset"], one["key"], one["value"]
        found.append(Row(*where, time_ms, TYPES[one["timestampType"]], headers))
    return found


def same(found: Sequence[object], expected: Sequence[object], what: str) -> None:
    """Equal, or the first that differs."""
    if list(found) == list(expected):
        return
    pairs = zip(found, expected, strict=False)
    first = next((f"{number}: found {a}, expected {b}" for number, (a, b) in enumerate(pairs) if a != b), "none")
    raise AssertionError(f"{what}: {len(found)} found, {len(expected)} expected; first that differs: {first}")


def records_for(client: Client, rng: random.Random, count: int) -> list[Record]:
    """What this client can send; a tenth of them leave the time to the client's own clock."""
    records = [client.sent(one) for one in make(rng, count, text=client.takes_lines)]
    return [one._replace(timestamp=None) if rng.random() < 0.1 else one for one in records]


def check_codec(place: Place, client: Client, codec: str, timestamp_type: str, rng: random.Random) -> str:
    """Sent, answered, stored and read back: the same offsets, times, types, keys, values and headers everywhere."""
    topic = place.create(topic_name(client, codec, timestamp_type), message_timestamp_type=timestamp_type)
    records = records_for(client, rng, COUNT if timestamp_type == CREATE else COUNT // 10)
    before = now_ms()
    sent = client.produce(place.bootstrap, topic, records, codec=codec)
    after = now_ms()
    stored = on_disk(place, topic)
    same([one[:4] for one in stored], [(0, at, one.key, one.value) for at, one in enumerate(records)], "stored")
    same([one.headers for one in stored], [one.headers for one in records], "headers")
    assert {one.timestamp_type for one in stored} == {timestamp_type}
    for row, record in zip(stored, records, strict=True):
        if timestamp_type == CREATE and not client.sees_times:
            assert row.timestamp == -1, row  # a client without times sends none
        elif timestamp_type == CREATE and record.timestamp is not None:
            assert row.timestamp == record.timestamp, row
        else:  # the clock of the client, or of the broker
            assert row.timestamp is not None and before <= row.timestamp <= after, (row, before, after)
    batches = kts.scan(place.data, topics=[topic], columns=["codec", "baseOffset"]).read_all()
    if client.tells:
        times = [one.timestamp if client.sees_times and client.tells_times else None for one in stored]
        if client.tells_first_time:
            times = [times[base] for base in batches["baseOffset"].to_pylist()]
        same(sent, list(zip(range(len(records)), times, strict=True)), "RecordMetadata")
    # Some clients leave a batch as it is that would become larger.
    assert {CODECS.index(codec)} <= set(batches["codec"].to_pylist()) <= {CODECS.index(codec), 0}
    same(client.consume(place.bootstrap, topic), [client.seen(one) for one in stored], "consumed")
    return topic


def check_times(place: Place, client: Client, timestamp_type: str, rng: random.Random) -> None:
    """`offsets_for_times`, first and end offset over several segments, before and after DeleteRecords."""
    configs = {"message_timestamp_type": timestamp_type, place.segment_bytes: 20_000, "index_interval_bytes": 500}
    topic = place.create(topic_name(client, "times", timestamp_type), **configs)
    for codec in ("none", "gzip", "none"):
        client.produce(place.bootstrap, topic, records_for(client, rng, 400), codec=codec)
    stored = on_disk(place, topic)
    assert len(list((place.data / f"{topic}-0").glob("*.log"))) > 2
    assert client.ends(place.bootstrap, topic) == (0, len(stored)) == (0, 1200)
    known = [one.timestamp or 0 for one in stored]
    targets = [0, min(known), max(known), max(known) + 1, NOON_MS * 2]
    targets += [rng.choice(known) + rng.choice((-1, 0, 1)) for _ in range(25)]

    def compare(first: int) -> None:
        found = client.times(place.bootstrap, topic, targets)
        expected = search(stored[first:], targets)
        if not place.is_kts:  # Kafka looks into one segment only, which may lie before the first offset
            bases = sorted(int(log.stem) for log in (place.data / f"{topic}-0").glob("*.log"))
            expected = search_one_segment(stored, bases, first, targets)
        if not any(one is not None and one[1] is not None for one in found):  # librdkafka gives offsets only
            expected = [None if one is None else (one[0], None) for one in expected]  # type: ignore[misc]
        same(found, expected, f"offsets for {targets}")

    if client.searches:
        compare(0)
    first = rng.randrange(300, 900)
    place.delete_records(topic, first)
    assert client.ends(place.bootstrap, topic) == (first, 1200)
    if client.searches:
        compare(first)
    same(client.consume(place.bootstrap, topic), [client.seen(one) for one in stored[first:]], "left")


def check_group(place: Place, client: Client, rng: random.Random) -> None:
    """Two members share four partitions, each record comes once; who joins later goes on where they ended."""
    topic = place.create(topic_name(client, "group"), 4)
    group = f"{topic}-readers"
    for half in range(2):
        with client.join(place.bootstrap, topic, group, members=2, partitions=4) as members:
            for partition in range(4):
                client.produce(place.bootstrap, topic, records_for(client, rng, 250), partition=partition)
            got = members.gather(1000)
        assert all(got), "a member got nothing"
        expected = [row for partition in range(4) for row in on_disk(place, topic, partition)[half * 250 :]]
        assert len(expected) == 1000
        same(sorted(row for one in got for row in map(_place, one)), sorted(map(_place, expected)), "read once")
        same(
            [row for one in got for row in sorted(one, key=_place)],
            [client.seen(row) for one in got for row in sorted(_rows_at(expected, one), key=_place)],
            "read",
        )
        committed = client.committed(place.bootstrap, topic, group, 4)
        assert committed == [(half + 1) * 250] * 4


def _place(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


def _rows_at(rows: Sequence[Row], places: Sequence[Row]) -> list[Row]:
    at = {_place(row): row for row in rows}
    return [at[_place(one)] for one in places]


def check_cut(
    place: Place, client: Client, timestamp_type: str, rng: random.Random, *, idempotent: bool = True
) -> bool:
    """Answers to Produce requests get lost with their connections; whether all is stored once and in order.

    Nothing may be lost in any case. What an idempotent producer is told of a batch that it sends again is where and
    when it was stored the first time; under CreateTime too Kafka answers with a time then, the batch's largest.
    """
    topic = topic_name(client, "cut", "idempotent" if idempotent else "again", timestamp_type)
    place.create(topic, message_timestamp_type=timestamp_type)
    records = records_for(client, rng, MANY)
    with CuttingProxy(place.bootstrap, cuts=3) as proxy:
        sent = client.produce(proxy.bootstrap, topic, records, idempotent=idempotent)
        assert proxy.cuts >= 2, f"{proxy.cuts} cuts in {proxy.produced} requests"  # two may share a connection
    stored = on_disk(place, topic)
    found = [(one.key, one.value) for one in stored]
    expected = [(one.key, one.value) for one in records]
    assert set(found) == set(expected)
    if found != expected:
        return False
    if idempotent:
        assert [one.offset for one in sent] == list(range(MANY))
        largest = kts.scan(place.data, topics=[topic], columns=["maxTimestamp"]).read_all()["maxTimestamp"].to_pylist()
        for one, row, most in zip(sent, stored, largest, strict=True):
            told = client.tells_times and not client.tells_first_time
            assert one.timestamp in (row.timestamp, most) or not told, (one, row, most)
    return True


def check_transaction(place: Place, client: Client) -> None:
    """Refused for good: the client stops trying, so what it says is the refusal, and not that time has run out."""
    if not place.is_kts:
        client.begin_transaction(place.bootstrap)
        return
    with pytest.raises(Exception) as refused:
        client.begin_transaction(place.bootstrap)
    said = f"{type(refused.value).__name__} {refused.value}"
    assert re.search(r"(?i)TRANSACTIONAL.?ID.?AUTHORIZATION", said), said
