"""Produce: every version, every refusal, and what the log holds afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking, answer
from support.golden import PATIENCE_S

import kts
from kts.broker.broker import Broker
from kts.broker.metrics import PRODUCE
from kts.broker.request import ConnectionClose
from kts.broker.wire.messages import ApiKey

NOW = 1_500_000_000_000
COLUMNS = ["offset", "timestamp", "timestampType", "key", "value", "magic"]


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as found:
        yield found


def batch(*times: int, codec: str = "none", magic: int = 2, **more: Any) -> bytes:
    rows = {"timestamp": list(times), "key": [b"k"] * len(times), "value": [b"v%d" % at for at in range(len(times))]}
    return kts.encode(rows, magic=magic, compression=codec, **more)


def topic(asking: Asking, name: str = "t", partitions: int = 1, **configs: str) -> kts.Log:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return asking.broker.topics.create(name, partitions, settings).partitions[0].log


def held(log: kts.Log) -> list[tuple[Any, ...]]:
    """Offset, timestamp, type, key, value and magic of all records."""
    table = kts.decode(log.read(0, 2**30).records, COLUMNS)
    times = table.column("timestamp").cast("int64").to_pylist()
    rest = [table.column(name).to_pylist() for name in ("timestampType", "key", "value", "magic")]
    return list(zip(table.column("offset").to_pylist(), times, *rest, strict=True))


@pytest.mark.parametrize("version", range(14))
def test_every_version_appends_and_says_what_it_has_fields_for(asking: Asking, version: int) -> None:
    log = topic(asking)
    for base in (0, 2):
        row = asking.produce("t", batch(NOW, NOW + 1), version=version)
        assert (row["error_code"], row["base_offset"], row["log_append_time_ms"]) == (0, base, -1)
        assert row["log_start_offset"] == (0 if version >= 5 else -1)
    assert [row[:2] for row in held(log)] == [(0, NOW), (1, NOW + 1), (2, NOW), (3, NOW + 1)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_up_to_version_2_records_without_a_whole_entry_are_no_error_and_write_nothing(
    asking: Asking, version: int
) -> None:
    log = topic(asking)
    for nothing in (b"", b"hello", batch(NOW)[:-1]):
        row = asking.produce("t", nothing, version=version)
        assert (row["error_code"], row["base_offset"]) == (0, -1)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_data_and_not_the_version_says_which_magic_it_is(asking: Asking, version: int) -> None:
    for name, settings, target in (("a", {}, 2), ("b", {"message_format_version": "0.10.2"}, 1),
                                   ("c", {"message_format_version": "0.9.0"}, 0)):  # fmt: skip
        log = topic(asking, name, **settings)
        for magic in (0, 1, 2):
            row = asking.produce(name, batch(NOW, magic=magic), version=version)
            assert (row["error_code"], row["base_offset"]) == (0, magic)
        times = [-1, NOW, NOW] if target else [-1, -1, -1]
        assert [(row[0], row[1], row[5]) for row in held(log)] == [(at, times[at], target) for at in range(3)]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Asking]:
    """A broker of the 0.10.2 protocol."""
    settings = {"inter.broker.protocol.version": "0.10.2"}
    with Asking(Broker(tmp_path / "old", settings, clock=lambda: NOW)) as found:
        yield found


@pytest.mark.parametrize("protocol", ["0.10.2", "3.9"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_new_producers_write_to_old_formats(asking: Asking, old: Asking, codec: str, protocol: str) -> None:
    asking = old if protocol == "0.10.2" else asking
    log = topic(asking, message_format_version="0.10.0")
    assert asking.produce("t", batch(NOW, NOW + 1, codec=codec), version=9)["error_code"] == 0
    assert held(log) == [(0, NOW, 0, b"k", b"v0", 1), (1, NOW + 1, 0, b"k", b"v1", 1)]
    assert kts.scan_batches(log.read(0, 2**20).records).column("codec")[0].as_py() == kts.compression.codec_id(codec, 1)
    done = asking.broker.metrics.conversions(PRODUCE, "t")
    assert (done.messages, done.sets) == (2, 1)
    appended = batch(NOW, timestamp_type="LogAppendTime", log_append_time_ms=NOW)
    refused = {32: appended, 76: batch(NOW, codec="zstd")}
    refused[43] = batch(NOW, producer_id=5, producer_epoch=0, base_sequence=0)
    for code, data in refused.items():
        assert asking.produce("t", data, version=9)["error_code"] == code
    headers = kts.encode({"timestamp": [NOW], "value": [b"v"], "headers": [[{"key": "h", "value": b"1"}]]})
    assert asking.produce("t", headers, version=9)["error_code"] == (43 if asking is old else -1)
    assert log.log_end_offset == 2


def test_from_version_3_on_a_set_is_one_batch_of_magic_2(asking: Asking) -> None:
    log = topic(asking)
    one = batch(NOW)
    for version in (3, 6, 7, 9, 13):
        for wrong in (b"", one[:-1], one[:20], one + one, batch(NOW, magic=1), batch(NOW, magic=0, codec="gzip")):
            row = asking.produce("t", wrong, version=version)
            assert (row["error_code"], row["base_offset"]) == (87, -1)
        negative = one[:8] + b"\xff\xff\xff\xf0" + one[12:]
        assert asking.produce("t", negative, version=version)["error_code"] == 2
        code = asking.produce("t", batch(NOW, codec="zstd"), version=version)["error_code"]
        assert code == (0 if version >= 7 else 76)
        assert asking.produce("t", None, version=version)["error_code"] == 42
    assert log.log_end_offset == 3
    assert asking.produce("t", one + b"stray", version=9)["error_code"] == 0
    assert asking.produce("t", one + one, version=2)["base_offset"] == -1  # magic 2 has one batch in every version


def test_acks_0_has_no_answer_and_a_refusal_closes_the_connection(asking: Asking) -> None:
    log = topic(asking)
    assert asking.produce("t", batch(NOW), acks=0) is None
    assert log.log_end_offset == 1
    for refused in ({"topic": "missing", "records": batch(NOW)}, {"topic": "t", "records": b""}):
        with pytest.raises(ConnectionClose):
            asking.produce(**refused, acks=0)
    ours = batch(NOW, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(ConnectionClose):
        asking.produce("t", ours, acks=0, transactional_id="x")
    assert asking.produce("t", batch(NOW), acks=1)["base_offset"] == 1


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(asking: Asking, acks: int) -> None:
    log = topic(asking)
    for version in (0, 2, 9, 13):
        assert asking.produce("t", batch(NOW), acks=acks, version=version)["error_code"] == 21
        assert asking.produce("t", batch(NOW), acks=acks, version=version, partition=7)["error_code"] == 3
    assert log.log_end_offset == 0


def test_transactions_are_refused_as_unauthorized_in_all_partitions(asking: Asking) -> None:
    log = topic(asking, partitions=2)
    ours = batch(NOW, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    found = asking.broker.topics.get("t")
    rows = [{"index": 0, "records": batch(NOW)}, {"index": 1, "records": ours}]
    body = {"acks": -1, "topic_data": [{"name": "t", "topic_id": found.topic_id, "partition_data": rows}]}
    for version in (3, 8, 13):
        response = asking.ask(ApiKey.PRODUCE, version, body)["responses"][0]["partition_responses"]
        assert [row["error_code"] for row in response] == [53, 53]
        row = asking.produce("t", ours, version=version, transactional_id="x")
        assert row["error_code"] == 53
        if version >= 8:
            assert row["error_message"].startswith("kts has no transactions yet: leave transactional.id out")
    assert log.log_end_offset == 0
    # a name alone is no transaction, for Kafka neither
    assert asking.produce("t", batch(NOW), transactional_id="x")["error_code"] == 0


def test_a_refused_partition_leaves_the_others_alone(asking: Asking) -> None:
    topic(asking, partitions=3)
    known = asking.broker.topics.get("t").topic_id
    sets = {0: batch(NOW), 1: batch(NOW)[:-1] + b"?", 7: batch(NOW), 2: batch(NOW)}
    rows = [{"index": index, "records": records} for index, records in sets.items()]
    topics = [{"name": "t", "topic_id": known, "partition_data": rows},
              {"name": "u", "topic_id": b"\7" * 16, "partition_data": rows[:1]}]  # fmt: skip
    for version in (0, 2, 9, 13):
        answers = asking.ask(ApiKey.PRODUCE, version, {"acks": 1, "topic_data": topics})["responses"]
        assert [row["index"] for row in answers[0]["partition_responses"]] == [0, 1, 7, 2]
        codes = [row["error_code"] for one in answers for row in one["partition_responses"]]
        assert codes == [0, 2, 3, 0, 100 if version >= 13 else 3]


def test_a_first_entry_that_cannot_be_read_takes_the_whole_request_along(asking: Asking) -> None:
    """Kafka looks for transactions in all of them before it does anything."""
    log = topic(asking, partitions=2)
    for wrong in (b"damaged" * 20, batch(NOW)[:8] + b"\0\0\0\5" + batch(NOW)[12:]):
        rows = [{"index": 0, "records": batch(NOW)}, {"index": 1, "records": wrong}]
        for version in (2, 3, 12):
            body = {"acks": 1, "topic_data": [{"name": "t", "partition_data": rows}]}
            answers = asking.ask(ApiKey.PRODUCE, version, body)["responses"][0]["partition_responses"]
            assert [row["error_code"] for row in answers] == [2, 2]
    assert log.log_end_offset == 0


def test_internal_topics_are_for_the_admin_client(asking: Asking) -> None:
    log = topic(asking, "__consumer_offsets")
    assert asking.produce("__consumer_offsets", batch(NOW))["error_code"] == 17
    rows = [{"index": 0, "records": batch(NOW)}]
    body = {"acks": 1, "topic_data": [{"name": "__consumer_offsets", "partition_data": rows}]}
    response = asking.ask(ApiKey.PRODUCE, 9, body, client_id="__admin_client")
    assert response["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert log.log_end_offset == 1


def test_records_that_are_refused_are_named_from_version_8_on(asking: Asking) -> None:
    log = topic(asking, cleanup_policy="compact")
    rows = {"timestamp": [NOW] * 3, "key": [b"k", None, None], "value": [b"v"] * 3}
    for version in (3, 7, 8, 13):
        row = asking.produce("t", kts.encode(rows), version=version)
        assert (row["error_code"], row["base_offset"], row["log_append_time_ms"]) == (87, -1, -1)
        named = [one["batch_index"] for one in row["record_errors"]]
        assert named == ([1, 2] if version >= 8 else [])
        assert bool(row["error_message"]) == (version >= 8)
    assert log.log_end_offset == 0


def test_the_limit_to_the_difference_refuses_the_whole_set(asking: Asking) -> None:
    log = topic(asking, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    assert asking.produce("t", batch(NOW - 1000, NOW + 1000, -1))["error_code"] == 0
    row = asking.produce("t", batch(NOW, NOW - 1001, NOW + 1001))
    assert (row["error_code"], row["base_offset"]) == (32, -1)
    assert [one["batch_index"] for one in row["record_errors"]] == [1, 2]
    assert log.log_end_offset == 3


@pytest.mark.parametrize(("form", "codec"), [("3.0", "none"), ("3.0", "lz4"), ("0.10.2", "none"), ("0.10.2", "gzip")])
def test_log_append_time_is_answered_and_stamped(asking: Asking, form: str, codec: str) -> None:
    log = topic(asking, message_timestamp_type="LogAppendTime", message_format_version=form)
    row = asking.produce("t", batch(5, 6, 7, codec=codec, magic=1), version=2)
    assert (row["error_code"], row["base_offset"], row["log_append_time_ms"]) == (0, 0, NOW)
    assert [one[1:3] for one in held(log)] == [(NOW, 1)] * 3
    refused = asking.produce("missing", batch(5), version=2)
    assert (refused["error_code"], refused["log_append_time_ms"]) == (3, -1)


def test_a_duplicate_has_the_answer_of_the_first(asking: Asking) -> None:
    log = topic(asking)
    producer = {"producer_id": 9, "producer_epoch": 0}
    sent = [batch(NOW + at, NOW, base_sequence=2 * at, **producer) for at in range(6)]
    for at, data in enumerate(sent):
        assert asking.produce("t", data)["base_offset"] == 2 * at
    for at in (1, 5, 3):
        row = asking.produce("t", sent[at])
        assert (row["error_code"], row["base_offset"], row["log_append_time_ms"]) == (0, 2 * at, NOW + at)
    assert asking.produce("t", sent[0])["error_code"] == 45  # older than the five that are known
    assert asking.produce("t", batch(NOW, base_sequence=14, **producer))["error_code"] == 45
    newer = {"producer_id": 9, "producer_epoch": 1}
    assert asking.produce("t", batch(NOW, base_sequence=3, **newer))["error_code"] == 45
    assert asking.produce("t", batch(NOW, base_sequence=0, **newer))["base_offset"] == 12
    assert asking.produce("t", batch(NOW, base_sequence=12, **producer))["error_code"] == 47
    assert log.log_end_offset == 13


def test_too_few_replicas_are_refused_where_kafka_does(asking: Asking, old: Asking) -> None:
    """3.9 never asks for more replicas than there are; 0.10.2 does."""
    for each in (asking, old):
        topic(each, min_insync_replicas="2")
    for acks, code in ((-1, 19), (1, 0)):
        assert asking.produce("t", batch(NOW), acks=acks)["error_code"] == 0
        assert old.produce("t", batch(NOW, magic=1), acks=acks, version=2)["error_code"] == code


def test_unforeseen_errors_are_the_partitions_own(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    topic(asking, partitions=2)
    partitions = asking.broker.topics.get("t").partitions

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(partitions[0], "append", fails)
    assert asking.produce("t", batch(NOW))["error_code"] == -1
    assert asking.produce("t", batch(NOW), partition=1)["error_code"] == 0


def test_a_failed_log_is_a_storage_error_and_a_deleted_one_unknown(asking: Asking) -> None:
    log = topic(asking)
    log.abandon()
    assert asking.produce("t", batch(NOW))["error_code"] == 56
    assert asking.fetch("t")["error_code"] == 56
    assert asking.fetch("t", version=5)["error_code"] == 6
    assert asking.list_offsets("t", 5)["error_code"] == 56


def test_an_append_that_waits_in_a_thread_holds_up_nobody_else(asking: Asking) -> None:
    log = topic(asking, partitions=2)
    large = kts.encode({"timestamp": [NOW], "value": [b"x" * 400_000]})

    async def run() -> list[Any]:
        locked, unlock = threading.Event(), threading.Event()

        def hold() -> None:
            with log._lock:
                locked.set()
                unlock.wait(PATIENCE_S)

        holder = threading.Thread(target=hold)
        holder.start()
        await asyncio.to_thread(locked.wait, 60)
        topic_id = asking.broker.topics.get("t").topic_id

        def send(index: int, data: bytes) -> asyncio.Task[Any]:
            rows = [{"index": index, "records": data}]
            body = {"acks": 1, "topic_data": [{"name": "t", "topic_id": topic_id, "partition_data": rows}]}
            return asyncio.create_task(answer(asking.broker, ApiKey.PRODUCE, 9, body))

        first = send(0, large)
        await asyncio.sleep(0)
        second, other = send(0, batch(NOW)), send(1, batch(NOW))
        found = [await other]
        assert not first.done() and not second.done()
        unlock.set()
        found += [await first, await second]
        holder.join()
        return found

    rows = [one["responses"][0]["partition_responses"][0] for one in asking.runner.run(run())]
    assert [row["error_code"] for row in rows] == [0, 0, 0]
    assert log.log_end_offset == 2
