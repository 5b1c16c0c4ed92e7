"""Options of the Spark source: names, defaults, precedence, and complaints that name the option. Needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kts.options import Flag
from kts.spark.options import DECLARED, EITHER, KNOWN, STREAM, Bound, Options, parse_options

FLAGS = {name for one in DECLARED if isinstance(one.kind, Flag) for name in one.spark_names}


def parse(**given: object) -> Options:
    return parse_options({"path": "/logs", **{name: str(value) for name, value in given.items()}})


def refusal(**given: object) -> str:
    with pytest.raises(ValueError) as caught:
        parse(**given)
    return str(caught.value)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parse()
    assert options.paths == ("/logs",)
    assert (options.assign, options.subscribe, options.subscribe_pattern) == (None, None, None)
    assert (options.start.kind, options.end.kind) == ("earliest", "latest")
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert options.latest_when_unmatched is False
    assert (options.min_partitions, options.max_records) == (None, None)
    assert (options.granularity, options.scan.isolation, options.timestamp_overflow) == (
        "record",
        "read_uncommitted",
        "error",
    )
    scan = options.scan
    assert (scan.verify_crc, scan.strict_time_range, scan.include_control) == (True, True, False)
    assert scan.batch_bytes == 4 << 20


@pytest.mark.parametrize("name", KNOWN)
def test_names_are_found_in_any_case(name: str) -> None:
    value = {
        "path": "/logs",
        "paths": '["/a"]',
        "assign": '{"t": [0]}',
        "subscribe": "t",
        "subscribePattern": "t.*",
        "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
        "endingOffsetsByTimestamp": '{"t": {"0": 5}}',
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "startingOffsetsByTimestampStrategy": "latest",
        "isolation": "read_committed",
        "granularity": "record",
        "deep": "false",
        "onError": "raise",
        "timestampOverflow": "null",
        "timeUnit": "s",
        "decoder": "offsets",
        "maxTriggerDelay": "7m",
        "storageOptions": '{"region": "eu-west-1"}',
        "remote": "/tiered",
        "remoteOptions": '{"layout": "aiven"}',
    }.get(name, "true" if name in FLAGS else "7")
    if name in ("strictTimeRange", "allowedLateness"):
        assert not parse(stricttimerange="FALSE", startingtimestamp="1").scan.strict_time_range
        lenient = parse(ALLOWEDLATENESS="2 min".replace(" ", ""), endingtimestamp="1")
        assert lenient.scan.times.allowed_lateness_ms == 120_000
        return
    needed = {"remoteOptions": {"remote": "/tiered"}, "tombstones": {"latest": "true"}}.get(name, {})
    given = {"path": "/logs"} | needed
    both = [parse_options({**given, spelled: value}, EITHER) for spelled in (name, name.lower(), name.upper())]
    assert both[0] == both[1] == both[2]


def test_tiered_storage_alone_needs_no_path() -> None:
    options = parse_options({"remote": "file:///tiered/pre-", "remoteOptions": '{"private_keys": {"k1": "/k1.pem"}}'})
    assert (options.paths, options.remote, options.shown) == ((), "/tiered/pre-", "/tiered/pre-")
    assert options.remote_options == {"private_keys": {"k1": "/k1.pem"}}
    relative = parse_options({"remote": "tiered/pre-"}).remote  # executors have other working directories
    assert relative == f"{Path.cwd()}/tiered/pre-"
    with pytest.raises(ValueError, match="option remoteOptions: set remote as well"):
        parse_options({"path": "/logs", "remoteOptions": '{"layout": "local"}'})
    with pytest.raises(ValueError, match="option remoteOptions: expected JSON such as"):
        parse_options({"path": "/logs", "remote": "/tiered", "remoteOptions": "aiven"})
    with pytest.raises(ValueError, match="option remote: kts reads .* found 'wasb://x/y'"):
        parse_options({"path": "/logs", "remote": "wasb://x/y"})


def test_the_more_general_time_wins_over_the_more_special_and_offsets() -> None:
    by_time = json.dumps({"t": {"0": 20}})
    offsets = json.dumps({"t": {"0": 7}})
    everything = {"Timestamp": 10, "OffsetsByTimestamp": by_time, "Offsets": offsets}
    for side, end in (("starting", "start"), ("ending", "end")):
        expected = {
            "Timestamp": Bound("timestamp", f"{side}Timestamp", timestamp_ms=10),
            "OffsetsByTimestamp": Bound("timestamps", f"{side}OffsetsByTimestamp", values={"t": {0: 20}}),
            "Offsets": Bound("offsets", f"{side}Offsets", values={"t": {0: 7}}),
        }
        left = dict(everything)
        for name in everything:
            assert getattr(parse(**{side + key: value for key, value in left.items()}), end) == expected[name]
            del left[name]


def test_several_paths_and_file_addresses() -> None:
    assert parse_options({"paths": '["/a", "/b", "/a"]'}).paths == ("/a", "/b")
    assert parse_options({"path": "file:///var/my%20logs"}).paths == ("/var/my logs",)
    assert parse_options({"path": "logs:old/here"}).paths == ("logs:old/here",)
    assert parse_options({"path": "s3a://bucket/logs"}).paths == ("s3a://bucket/logs",)
    with pytest.raises(ValueError, match=r"option path: kts reads .*s3://.* dbfs data first"):
        parse_options({"path": "dbfs:/bucket/logs"})
    with pytest.raises(ValueError, match=r"option path is missing.*\.load\("):
        parse_options({})


def test_subscriptions() -> None:
    assert parse(subscribe=" a, b ,,a").subscribe == ("a", "b")
    assert parse(assign='{"t": [2, 0, 2], "u": [1]}').assign == {"t": (0, 2), "u": (1,)}
    assert parse(subscribePattern="o.*").subscribe_pattern == "o.*"
    assert "assign and subscribe exclude each other" in refusal(assign='{"t": [0]}', subscribe="t")
    assert "subscribe and subscribePattern exclude" in refusal(subscribePattern="t", subscribe="t")
    assert refusal(subscribe=" , ").startswith("option subscribe: expected topic names")
    assert "Python regular expression" in refusal(subscribePattern="(")


@pytest.mark.parametrize(
    "value", ["t", "[1]", "{}", '{"t": 0}', '{"t": ["0"]}', '{"t": [-1]}', '{"t": [true]}', '{"t": [']
)
def test_a_malformed_assignment_is_refused_by_name(value: str) -> None:
    assert refusal(assign=value).startswith('option assign: expected JSON such as {"orders": [0, 1]}, found')


def test_booleans_are_read_as_spark_reads_them() -> None:
    assert parse(verifyCrc="False").scan.verify_crc is False
    assert parse(includeHeaders=" TRUE ").include_headers is True
    for value in ("1", "yes", "t", ""):
        assert refusal(failOnDataLoss=value).startswith("option failOnDataLoss")


def test_numbers_and_sizes() -> None:
    assert parse(minPartitions="12").min_partitions == 12
    assert parse(maxBatchBytes="1m").scan.batch_bytes == 1 << 20
    assert parse(maxBatchBytes="512kb").scan.batch_bytes == 512 << 10
    for name in ("minPartitions", "maxRecordsPerPartition"):
        for value in ("0", "-1", "1.5", "many", "", "9" * 30):
            assert refusal(**{name: value}).startswith(f"option {name}")
    for value in ("0", "-1", "4 MiB", "2g", "m"):
        assert refusal(maxBatchBytes=value).startswith("option maxBatchBytes: expected a size in bytes")


def test_times_are_milliseconds_of_64_bits_or_iso_8601() -> None:
    assert parse(startingTimestamp="-5").start.timestamp_ms == -5
    assert parse(startingTimestamp="2026-09-01T12:00+02:00").start.timestamp_ms == 1_788_256_800_000
    by_partition = parse(endingOffsetsByTimestamp='{"t": {"0": "2026-09-01T10:00", "1": 1788256800000}}')
    assert by_partition.end.values == {"t": {0: 1_788_256_800_000, 1: 1_788_256_800_000}}
    assert parse(endingTimestamp=str(2**63 - 1), timeUnit="ms").end.timestamp_ms == 2**63 - 1
    for value in ("2024-13-01", "1e3", str(2**63), "", "1_000"):
        assert refusal(startingTimestamp=value).startswith("option startingTimestamp")
        assert refusal(endingOffsetsByTimestamp=value).startswith("option endingOffsetsByTimestamp")


def test_times_that_look_like_another_unit_are_refused_unless_timeunit_is_given() -> None:
    said = "1788256800 looks like seconds (2026-09-01T10:00:00.000Z)"
    for side in ("starting", "ending"):
        for option, value in (("Timestamp", "1788256800"), ("OffsetsByTimestamp", '{"t": {"0": 1788256800}}')):
            refused = refusal(**{side + option: value})
            assert refused.startswith(f"option {side}{option}: {said}")
            assert refused.endswith("Say which with timeUnit=s or timeUnit=ms")
    assert parse(startingTimestamp="1788256800", timeUnit="S").start.timestamp_ms == 1_788_256_800_000
    assert parse(startingTimestamp="1788256800", timeunit="ms").start.timestamp_ms == 1_788_256_800
    assert refusal(timeUnit="min") == "option timeUnit: expected s or ms or us or ns, found 'min'"


def test_offsets_that_leave_nothing_to_read_are_refused() -> None:
    assert parse(startingOffsets='{"t": {"0": -2}}').start.values == {"t": {0: -2}}
    assert parse(endingOffsets='{"t": {"0": -1}}').end.values == {"t": {0: -1}}
    assert "option startingOffsets" in refusal(startingOffsets="latest")
    assert "option endingOffsets" in refusal(endingOffsets="earliest")
    assert "t-0, found '-1 (latest)'" in refusal(startingOffsets='{"t": {"0": -1}}')
    assert "t-0, found '-2 (earliest)'" in refusal(endingOffsets='{"t": {"0": -2}}')
    for value in ('{"t": {"0": -3}}', '{"t": {"x": 1}}', '{"t": {"0": 1.5}}', '{"t": [1]}', '{"t": {"0": true}}', "5"):
        assert refusal(startingOffsets=value).startswith("option startingOffsets: expected earliest or JSON")


@pytest.mark.parametrize("name", ["paths", "startingOffsets", "assign", "storageOptions", "remoteOptions"])
def test_json_without_end_is_malformed_json(name: str) -> None:
    assert refusal(**{name: "[" * 100_000}).startswith(f"option {name}: expected ")


def test_log_start_offset_is_a_number_or_one_for_each_partition() -> None:
    assert parse(logStartOffset="17").log_start_offset == 17
    assert parse(logStartOffset='{"t": {"1": 17}}').log_start_offset == {"t": {1: 17}}
    for value in ("-1", "x", '{"t": {"1": -1}}'):
        assert refusal(logStartOffset=value).startswith("option logStartOffset")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("granularity", "file", "record or batch or segment or finding or damage"),
        ("decoder", "groups", "offsets or transactions or share or metadata"),
        ("isolation", "serializable", "read_uncommitted or read_committed"),
        ("timestampOverflow", "wrap", "error or null or clamp"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error or latest"),
    ],
)
def test_a_wrong_choice_shows_the_right_ones(name: str, value: str, allowed: str) -> None:
    assert refusal(**{name: value}) == f"option {name}: expected {allowed}, found {value!r}"


def test_unknown_options_are_refused_with_the_nearest_known_one() -> None:
    assert refusal(startingTimestmp="5") == "option startingTimestmp is unknown: did you mean startingTimestamp?"
    assert refusal(topic="t").startswith("option topic is unknown")
    assert "known are path, paths, assign" in refusal(zzz="1")


@pytest.mark.parametrize(
    "name",
    [
        "kafka.bootstrap.servers",
        "kafka.group.id",
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
    ],
)
def test_options_for_a_broker_are_refused_as_such(name: str) -> None:
    assert f"option {name} is for clients of a broker" in refusal(**{name: "x"})


def test_the_other_name_of_isolation_is_pointed_out() -> None:
    assert "use isolation" in refusal(**{"kafka.isolation.level": "read_committed"})


def test_options_for_streams_are_refused_in_a_batch_query_and_the_other_way_around() -> None:
    assert refusal(maxoffsetspertrigger="5").startswith("option maxOffsetsPerTrigger is for streaming queries")
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(ValueError, match=f"option {name} is for batch queries"):
            parse_options({"path": "/logs", name.lower(): "latest"}, STREAM)


def test_the_limits_of_micro_batches() -> None:
    def limits(**given: str) -> tuple[int | None, int | None, int]:
        found = parse_options({"path": "/logs", **given}, STREAM)
        return found.max_offsets, found.min_offsets, found.max_delay_ms

    assert limits() == (None, None, 900_000)
    assert limits(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7", maxTriggerDelay="90s") == (7, 7, 90_000)
    assert limits(maxTriggerDelay="15min") == limits(maxTriggerDelay="900000") == (None, None, 900_000)
    for given, match in (
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: expected a whole number above 0, found '0'"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: expected a length of time such as 15m"),
        ({"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"}, "8 is above 7"),
        ({"maxOffsetsPerTrigger": "7", "granularity": "batch"}, "option maxOffsetsPerTrigger is about records"),
    ):
        with pytest.raises(ValueError, match=match):
            limits(**given)


def test_a_stream_starts_at_the_latest_offset_and_a_batch_query_at_the_earliest() -> None:
    assert parse_options({"path": "/logs"}, STREAM).start.kind == "latest"
    assert parse_options({"path": "/logs"}).start.kind == "earliest"
    assert parse_options({"path": "/logs", "startingOffsets": "Earliest"}, STREAM).start.kind == "earliest"
    mixed = parse_options({"path": "/logs", "startingOffsets": '{"orders": {"0": -1, "1": -2}}'}, STREAM)
    assert mixed.start.values == {"orders": {0: -1, 1: -2}}
    with pytest.raises(ValueError, match="option startingOffsets: expected earliest, latest or JSON"):
        parse_options({"path": "/logs", "startingOffsets": "soon"}, STREAM)


def test_create_table_is_pointed_to_a_view() -> None:
    assert "CREATE TEMPORARY VIEW" in refusal(location="file:/logs")


def test_contradictions_are_refused() -> None:
    assert "strictTimeRange needs a time" in refusal(strictTimeRange="true")
    assert "allowedLateness is about the end" in refusal(allowedLateness="1h", startingTimestamp=1)
    assert "allowedLateness is about the end" in refusal(
        allowedLateness="1h", endingTimestamp=1, strictTimeRange="false"
    )
    assert "option allowedLateness: expected a length" in refusal(allowedLateness="soon", endingTimestamp=1)
    assert "includeHeaders is about records" in refusal(includeHeaders="true", granularity="batch")
    assert "decoder is about records" in refusal(decoder="offsets", granularity="batch")
    assert "read_committed is about records" in refusal(isolation="read_committed", granularity="batch")
    assert "latest is about records" in refusal(latest="true", granularity="batch")
    assert "minPartitions: with latest=true a task has whole partitions" in refusal(latest="true", minPartitions=2)
    assert "tombstones is about the latest state" in refusal(tombstones="true")
    assert "minPartitions is about records" in refusal(minPartitions=2, granularity="batch"), "a cut shows one twice"
