"""Records without a timestamp, by ``message.timestamp.missing``: KIP-228's rejected "Topic property".

``accept`` is what Kafka does. A leader refuses such records, or gives them its clock's time or a given one; a follower
takes what its leader stored.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.broker.asking import Asking
from support.reference import reference
from support.sets.appending import CODECS, GENERATIONS, NOW, append, column, produced, refusal, times, topic
from support.sets.generate import Rec

import kts
from kts.broker.broker import Broker
from kts.codec.validate import Validated, validate_follower
from kts.config import LogConfig
from kts.errors import InvalidTimestampError

MIXED = [Rec(i, time, b"k%d" % i, b"v" * i) for i, time in enumerate((NOW, -1, NOW - 5, -1))]
TIMED = [rec for rec in MIXED if rec.timestamp != -1]
GIVEN = 1_234_567


def ways(generation: str) -> list[tuple[int, int, int, str]]:
    """(magic of the set, codec, format of the topic, compression.type) of every path of a leader."""
    magics = (0, 1) if generation == "0.10.2" else (0, 1, 2)
    return [
        (magic, codec, to, compression)
        for magic in magics
        for codec in range(5 if magic == 2 else 4)
        for to in magics[1:]
        for compression in ("producer", "uncompressed", "lz4")
        if not (to < 2 and codec == 4 and compression == "producer")
    ]


def rows(done: Validated) -> list[tuple[Any, ...]]:
    """Key, value and timestamp of all records, read slowly."""
    return [(row["key"], row["value"], row["timestamp"]) for row in reference.decode(bytes(done.records))]


def wanted(records: list[Rec], magic: int, time: int) -> list[tuple[Any, ...]]:
    return [(rec.key, rec.value, time if magic == 0 or rec.timestamp == -1 else rec.timestamp) for rec in records]


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("missing", ["refuse", "now", str(GIVEN)])
def test_a_record_without_a_timestamp_is_refused_or_gets_one_on_every_path_of_a_leader(
    missing: str, generation: str, rng: random.Random
) -> None:
    for way in ways(generation):
        magic, codec, to, compression = way
        data = produced(rng, magic, codec, MIXED)
        config = topic(to, generation=generation, compression_type=compression, message_timestamp_missing=missing)
        if missing == "refuse":
            error = refusal(data, config)
            assert isinstance(error, InvalidTimestampError) and error.code == 32, way
            assert "no timestamp, and message.timestamp.missing is refuse" in str(error), way
            without = [0, 1, 2, 3] if magic == 0 else [1, 3]
            if generation == "0.10.2":  # it stops at the first
                without = without[:1]
            elif magic < 2 and codec == 0:  # 3.9 counts records from the start of their entry, here a message
                without = [0]
            assert [index for index, _ in error.record_errors] == without, way
            continue
        time = NOW if missing == "now" else GIVEN
        done = append(data, config)
        assert rows(done) == wanted(MIXED, magic, time), way
        assert done.max_timestamp_ms == (time if magic == 0 else NOW), way
        assert {row["codec"] for row in reference.decode(bytes(done.records))} == {
            codec if compression == "producer" else CODECS.index(compression) if compression == "lz4" else 0
        }, way


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_set_whose_records_all_have_one_is_stored_as_kafka_stores_it(generation: str, rng: random.Random) -> None:
    for magic, codec, to, compression in ways(generation):
        if magic == 0:
            continue
        data = produced(rng, magic, codec, TIMED)
        plain = topic(to, generation=generation, compression_type=compression)
        for missing in ("refuse", "now", "0"):
            config = topic(to, generation=generation, compression_type=compression, message_timestamp_missing=missing)
            assert append(data, config) == append(data, plain)


def test_a_producer_s_state_and_headers_come_through_the_given_time() -> None:
    columns = {"timestamp": [-1, 5], "value": [b"a", None], "headers": [[("h", b"1")], None]}
    who = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11, "transactional": True}
    data = kts.encode(columns, compression="zstd", **who)
    done = append(data, topic(2, message_timestamp_missing="8"))
    [batch] = kts.scan_batches(done.records).to_pylist()
    assert (batch["producerId"], batch["producerEpoch"], batch["baseSequence"]) == (7, 3, 11)
    assert batch["transactional"] and batch["count"] == 2 and batch["codec"] == 4
    table = kts.decode(done.records)
    assert table["headers"].to_pylist() == [[{"key": "h", "value": b"1"}], None]
    assert table["timestamp"].cast("int64").to_pylist() == [8, 5]


def test_the_limits_of_times_hold_for_the_given_one_and_other_faults_stay() -> None:
    early = topic(2, message_timestamp_missing="5", message_timestamp_difference_max_ms=1000)
    with pytest.raises(InvalidTimestampError, match="timestamp 5 is out of range"):
        append(kts.encode({"timestamp": [-1], "value": [b"a"]}), early)
    keyless = topic(2, message_timestamp_missing="now", cleanup_policy="compact")
    with pytest.raises(kts.InvalidRecordError, match="no key, and the topic is compacted"):
        append(kts.encode({"timestamp": [-1, NOW], "key": [b"k", None]}), keyless)


@pytest.mark.parametrize("missing", ["refuse", "now", str(GIVEN)])
@pytest.mark.parametrize("codec", CODECS)
def test_a_marked_record_has_the_time_minus_one_where_the_topic_keeps_the_mark(codec: str, missing: str) -> None:
    columns = {"timestamp": [-1, -5], "value": [b"a", b"b"]}
    marked, plain = (kts.encode(columns, compression=codec, has_timestamp=has) for has in (True, False))
    for target in ("producer", "uncompressed", "lz4"):
        settings = {"compression_type": target, "message_timestamp_missing": missing, "allow_negative_timestamps": True}
        keeps = topic(2, **settings)
        done = append(marked, keeps)
        assert times(done) == [-1, -5] and column(done, "hasTimestamp") == [True, True]
        others = [(plain, keeps)]
        if codec != "zstd":
            others.append((marked, topic(1, generation="3.9", **settings)))
        if target == "producer":  # otherwise Kafka's rules refuse to write -5 anew
            others.append((marked, topic(2, **settings | {"allow_negative_timestamps": False})))
        for data, config in others:
            if missing == "refuse":
                assert [index for index, _ in refusal(data, config).record_errors] == [0]
            else:
                assert times(append(data, config)) == [NOW if missing == "now" else GIVEN, -5]


def test_log_append_time_leaves_no_record_without_one() -> None:
    config = topic(2, message_timestamp_missing="refuse", message_timestamp_type="LogAppendTime")
    assert append(kts.encode({"timestamp": [-1], "value": [b"a"]}), config).max_timestamp_ms == NOW


@pytest.mark.parametrize("missing", ["refuse", "now", "7"])
def test_a_follower_takes_what_its_leader_stored(missing: str) -> None:
    data = kts.encode({"timestamp": [-1], "value": [b"a"]})
    done = validate_follower(data, end_offset=0, config=topic(2, message_timestamp_missing=missing))
    assert bytes(done.records) == data


def test_a_log_keeps_what_it_refuses_out_and_finds_what_it_timed(tmp_path: Path) -> None:
    data = kts.encode(
        {"timestamp": np.array([-1, 9]), "value": [b"a", b"b"]}, producer_id=1, producer_epoch=0, base_sequence=0
    )
    with kts.Log(tmp_path / "t-0", {"message.timestamp.missing": "refuse"}, clock=lambda: NOW) as log:
        with pytest.raises(InvalidTimestampError):
            log.append(data)
        assert log.log_end_offset == 0
        log.reconfigure({"message.timestamp.missing": "now"})
        assert log.append(data).max_timestamp_ms == NOW
        assert log.append(data).duplicate and log.log_end_offset == 2  # a retry, which has another time now
        assert log.offset_for_timestamp(10) == (NOW, 0)
        rows = log.append_rows({"value": [b"c"]})
        assert (rows.first_offset, rows.max_timestamp_ms) == (2, NOW)


def test_a_broker_refuses_a_producer_s_record_without_a_timestamp_with_kafka_s_code(tmp_path: Path) -> None:
    """Produce 8 and later name the records; the broker's default reaches topics that do not set their own."""
    settings = {"log.message.timestamp.missing": "refuse"}
    data = kts.encode({"timestamp": [1, -1], "value": [b"a", b"b"]})
    with Asking(Broker(tmp_path / "data", settings, clock=lambda: NOW)) as asking:
        asking.create()
        row = asking.produce("t", data, version=8)
        assert row["error_code"] == 32
        assert [(one["batch_index"], one["batch_index_error_message"]) for one in row["record_errors"]] == [
            (1, "no timestamp, and message.timestamp.missing is refuse")
        ]
        asking.create("u", message_timestamp_missing="accept")
        assert asking.produce("u", data, version=8)["error_code"] == 0


@pytest.mark.parametrize("settings", [{"missing": "refuse"}, {"missing": "-1", "allow": "true"}], ids=str)
def test_a_broker_s_default_stops_no_broker_that_has_a_topic_without_timestamps(
    settings: dict[str, str], tmp_path: Path
) -> None:
    names = {"missing": "log.message.timestamp.missing", "allow": "log.allow.negative.timestamps"}
    with Asking(Broker(tmp_path, clock=lambda: NOW)) as asking:
        asking.create("old", message_format_version="0.9.0")
        asking.create("new")
    with Asking(Broker(tmp_path, {names[key]: value for key, value in settings.items()}, clock=lambda: NOW)) as asking:
        untimed = kts.encode({"value": [b"a"]}, magic=0)
        codes = [asking.produce(name, untimed, version=2)["error_code"] for name in ("old", "new")]
        assert codes == [0, 32 if settings["missing"] == "refuse" else 0]
        with pytest.raises(kts.KtsError, match="message format 0.9.0 has no timestamps"):
            asking.create("other", message_format_version="0.9.0", message_timestamp_missing="refuse")


@pytest.mark.parametrize("missing", ["refuse", "now"])
def test_the_setting_is_of_no_format_without_timestamps(missing: str) -> None:
    with pytest.raises(ValueError, match="message format 0.9.0 has no timestamps"):
        LogConfig.of({"message.format.version": "0.9.0", "message.timestamp.missing": missing})
