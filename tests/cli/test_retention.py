"""``kts retention``: what would go, when, and what keeps it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.golden import golden
from support.processes.cli_runs import lines, run
from support.tiered import names, session

import kts
import kts.times
from kts.log import policies
from kts.testing import KtsBroker

NOW = "2026-09-20"
WEEK = 7 * 86_400_000


def files_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}


def test_every_segment_has_a_row_and_nothing_is_touched(tmp_path: Path) -> None:
    orders = golden("demo", "orders").copy(tmp_path)
    partition = orders.partition_dir("orders-0")
    before = files_of(partition)
    rows = lines("retention", orders.log_dir, "--now", NOW, "--json")
    assert [(row["partition"], row["segment"]) for row in rows] == sorted(
        (number, int(log.name[:20])) for number in range(3) for log in orders.logs(f"orders-{number}")
    )
    assert files_of(partition) == before
    said = run("retention", orders.log_dir, "--now", NOW)
    assert said.stdout.count("goes by retention.ms") == sum(row["rule"] == "retention.ms" for row in rows)
    assert f"{sum(row['rule'] is not None for row in rows)} segments of {len(rows)} would go" in said.stderr


def test_a_segment_from_the_future_is_named_with_what_it_blocks() -> None:
    orders = golden("demo", "orders")
    rows = lines("retention", orders.partition_dir("orders-0"), "--now", NOW, "--json")
    (future,) = [row for row in rows if row["fromFuture"]]
    assert future["why"] == "its largest timestamp is from the future"
    blocked = [row for row in rows if row["segment"] > future["segment"]]
    assert blocked
    for row in blocked:
        assert row["keptBy"] == future["segment"]
        assert row["why"] == f"waits for segment {future['segment']}, which has a timestamp from the future"
        assert row["deletableAt"] == future["deletableAt"] == future["maxTimestamp"] + WEEK + 1
    table = run("retention", orders.partition_dir("orders-0"), "--now", NOW).stdout
    assert f"waits for segment {future['segment']}" in table


def test_each_segment_goes_at_the_time_that_is_said_and_not_a_millisecond_before() -> None:
    directory = golden("demo", "orders").partition_dir("orders-1")
    for row in lines("retention", directory, "--now", NOW, "--json"):
        at = row["deletableAt"]
        for now, goes in ((at - 1, False), (at, True)):
            told = lines("retention", directory, "--now", now, "--unit", "ms", "--json")
            (same,) = [one for one in told if one["segment"] == row["segment"]]
            assert (same["rule"] is not None) is goes


def test_what_is_said_is_what_a_log_does(tmp_path: Path) -> None:
    scenario = golden("3.9.2", "segments-none").copy(tmp_path)
    directory = scenario.partition_dir("segments-none-0")
    with kts.open(directory) as reader:
        assert isinstance(reader, kts.PartitionLog)
        facts = policies.facts_of(reader)
    middle = facts.segments[len(facts.segments) // 2].largest_timestamp_ms
    for settings in ({"retention.ms": 1000}, {"retention.ms": -1, "retention.bytes": 9000}):
        options = [text for key, value in settings.items() for text in (f"--{key.replace('.', '-')}", value)]
        rows = lines("retention", directory, "--now", middle, "--unit", "ms", *options, "--json")
        gone = [row["segment"] for row in rows if row["rule"]]
        assert gone
        shutil.copytree(directory, tmp_path / "again/segments-none-0", dirs_exist_ok=True)
        with kts.Log(tmp_path / "again/segments-none-0", settings, clock=lambda: middle) as log:
            assert [one.base_offset for one in log.delete_old_segments()] == gone
        shutil.rmtree(tmp_path / "again")


def test_without_timestamps_the_time_of_the_file_counts(tmp_path: Path) -> None:
    scenario = golden("0.10.2.2", "fmt09-gzip").copy(tmp_path)
    partition = scenario.partitions[0]
    (log,) = scenario.logs(partition)
    os.utime(log, ns=(10**18, 10**18))
    (row,) = lines("retention", log.parent, "--now", "now", "--json")
    assert (row["maxTimestamp"], row["fromFileTime"], row["deletableAt"]) == (10**12, True, 10**12 + WEEK + 1)
    assert "(file)" in run("retention", log.parent).stdout


def test_by_kafka_20609_a_segment_from_the_future_goes_by_its_files_time(tmp_path: Path) -> None:
    orders = golden("demo", "orders").copy(tmp_path)
    written_ms = kts.times.parse_time("2026-09-10")
    for log in orders.logs("orders-0"):
        os.utime(log, ns=(written_ms * 10**6,) * 2)
    asked = ["retention", orders.partition_dir("orders-0"), "--now", NOW, "--json"]
    plain, by_file = lines(*asked), lines(*asked, "--rule", "KAFKA-20609")
    [first] = [number for number, row in enumerate(plain) if row["fromFuture"] and row["rule"] is None][:1]
    assert plain[first]["deletableAt"] == plain[first]["maxTimestamp"] + WEEK + 1
    assert by_file[first]["rule"] == "retention.ms" and by_file[first]["deletableAt"] == written_ms + WEEK + 1
    assert by_file[first]["why"] == "goes by retention.ms and the time of its file, by KAFKA-20609"


TIERED = ["--config", "remote.storage.enable=true", "--retention-ms", "-1", "--now", NOW]


@pytest.mark.parametrize("name", names())
def test_what_the_local_retention_of_a_real_broker_left_stays(name: str) -> None:
    """And with less it leaves what tiered storage does not have."""
    of = session(name)
    keys = [word for key, path in of.keys.items() for word in ("--remote-key", f"{key}={path}")]
    for topic, told in of.meta["topics"].items():
        assert told["configs"]["remote.storage.enable"] == "true"
        limit = told["configs"]["local.retention.bytes"]
        asked = ["retention", of.data, "--remote", of.remote, *keys, "--topic", topic, *TIERED, "--json", "--config"]
        local = [row for row in lines(*asked, f"local.retention.bytes={limit}") if row["path"].startswith(str(of.data))]
        assert local and {row["rule"] for row in local} <= {None, "log start offset"}
        less = [row for row in lines(*asked, "local.retention.bytes=0") if row["path"].startswith(str(of.data))]
        assert {row["rule"] for row in less} <= {None, "local.retention.bytes", "log start offset"}
        for (own, number), log in of.open().items():
            if own == topic and (until := log.copied_until) is not None:
                mine = [row for row in less if row["partition"] == number]
                ends = [*(row["segment"] for row in mine[1:]), log.log_end_offset]
                assert [row["rule"] is not None for row in mine] == [end <= until for end in ends]


def test_limits_of_local_segments_are_applied_and_told() -> None:
    orders = golden("demo", "orders")
    local = ["--config", "local.retention.ms=1000"]
    done = run("retention", orders.log_dir, *TIERED, *local)
    told = "local.retention.ms=1000 and local.retention.bytes=-1, once they are copied (--remote shows which are)"
    assert f"orders has tiered storage: its local segments go by {told}" in done.stderr
    assert "goes by local.retention.ms" in done.stdout
    for off in (["--config", "remote.storage.enable=false"], ["--config", "remote.log.copy.disable=true"]):
        done = run("retention", orders.log_dir, *TIERED, *local, *off)
        assert "tiered storage" not in done.stderr and "local" not in done.stdout
    own = run("retention", orders.log_dir, *TIERED, "--retention-ms", "1d").stdout
    assert "goes by retention.ms" in own and "local" not in own
    said = run("retention", orders.log_dir, *TIERED, "--config", "local.retention.ms=x", code=2).stderr
    assert "local.retention.ms: expected an integer, found 'x'" in said


def test_bytes_and_the_log_start_offset_take_segments_too() -> None:
    directory = golden("demo", "orders").partition_dir("orders-2")
    never = ["--retention-ms", "-1", "--now", NOW, "--json"]
    rows = lines("retention", directory, *never)
    assert {row["rule"] for row in rows} == {None}
    assert {row["why"] for row in rows} == {"retention.ms is unlimited"}
    by_size = lines("retention", directory, "--retention-bytes", 100_000, *never)
    assert [row["rule"] for row in by_size] == ["retention.bytes", *[None] * (len(rows) - 1)]
    assert by_size[1]["bytesMissing"] == 100_000 - sum(row["sizeInBytes"] for row in rows[2:])
    by_offset = lines("retention", directory, "--log-start-offset", rows[1]["segment"] + 3, *never)
    assert [row["rule"] for row in by_offset] == ["log start offset", *[None] * (len(rows) - 1)]
    compacted = lines("retention", directory, "--cleanup-policy", "compact", "--now", NOW, "--json")
    assert {row["why"] for row in compacted} == {"cleanup.policy has no delete"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--retention-ms", "soon"], "expected a length of time"),
        (["--retention-ms", "-2"], "retention.ms"),
        (["--now", "soon"], "--now"),
        (["--cleanup-policy", "shred"], "cleanup.policy"),
        (["--log-start-offset", "5"], "found 3"),
        (["--log-start-offset", "-5"], "--log-start-offset"),
    ],
)
def test_wrong_use_is_told_with_the_option(options: list[str], said: str) -> None:
    assert said in run("retention", golden("demo", "orders").log_dir, *options, code=2).stderr


def test_a_damaged_partition_is_left_out_and_the_exit_code_says_so(tmp_path: Path) -> None:
    orders = golden("demo", "orders").copy(tmp_path)
    last = orders.logs("orders-1")[-1]
    last.write_bytes(last.read_bytes() + b"\0" * 100)
    done = run("retention", orders.log_dir, "--now", NOW, "--json", code=3)
    assert "orders-1 is left out" in done.stderr
    assert '"partition":1' not in done.stdout and '"partition":2' in done.stdout


def test_time_rules_are_those_of_the_library() -> None:
    policy = policies.RetentionPolicy(WEEK)
    with kts.open(golden("demo", "orders").partition_dir("orders-0")) as log:
        assert isinstance(log, kts.PartitionLog)
        told = policies.outlook(policies.facts_of(log), policy, 1_789_862_400_000)
    rows = lines("retention", golden("demo", "orders").partition_dir("orders-0"), "--now", NOW, "--json")
    assert [one.why for one in told] == [row["why"] for row in rows]


def test_settings_that_make_segments_of_one_message_are_said_on_stderr() -> None:
    directory = golden("demo", "orders").partition_dir("orders-1")
    hour = ["--config", "segment.ms=3600000"]
    assert "segment.ms" not in run("retention", directory, "--now", NOW).stderr
    told = run(
        "retention", directory, "--now", NOW, *hour, "--config", "max.message.time.difference.ms=86400000"
    ).stderr
    assert "up to 47 at once: set message.timestamp.difference.max.ms to at most 1800000" in told
    assert "segment.ms to at least 172800000" in told
    assert "unlimited" in run("retention", directory, "--now", NOW, *hour, "--json").stderr
    fine = [*hour, "--config", "message.timestamp.difference.max.ms=1800000"]
    assert "segment.ms" not in run("retention", directory, "--now", NOW, *fine).stderr


def test_settings_may_be_given_by_kafkas_names_and_options_replace_them() -> None:
    directory = golden("demo", "orders").partition_dir("orders-1")

    def rows(*arguments: str) -> list[object]:
        return lines("retention", directory, "--now", NOW, "--json", *arguments)

    day = rows("--retention-ms", "1d")
    assert rows("--config", "log.retention.hours=24") == day != rows()
    assert rows("--config", "retention.ms=7", "--retention-ms", "1d") == day
    assert "unknown setting" in run("retention", directory, "--config", "no=1", code=2).stderr


def test_the_settings_of_a_served_directory_count_and_options_replace_them(tmp_path: Path) -> None:
    with KtsBroker(tmp_path, {"log.retention.check.interval.ms": 1 << 40}) as broker:
        broker.create_topic("a", config={"retention.ms": "86400000", "segment.ms": "3600000"})
        broker.create_topic("b")
        for topic in ("a", "b"):
            broker.produce(topic, b"v", timestamp_ms=1_760_000_000_000)
        broker.broker.topics.alter_broker({"log.retention.ms": "172800000"}, cluster=True)

    def told(*options: str) -> dict[object, object]:
        rows = lines("retention", tmp_path, "--now", 1_760_000_000_000, "--unit", "ms", "--json", *options)
        return {row["topic"]: row["deletableAt"] and row["deletableAt"] - 1_760_000_000_001 for row in rows}

    day = 86_400_000
    assert told() == {"a": day, "b": 2 * day}
    assert told("--retention-ms", "7") == told("--config", "log.retention.ms=7") == {"a": 7, "b": 7}
    assert told("--config", "log.retention.hours=1") == {"a": 3_600_000, "b": 3_600_000}
    assert told("--config", "retention.ms=-1") == {"a": None, "b": None}
    assert "segment.ms" in run("retention", tmp_path, "--topic", "a").stderr
    assert "segment.ms" not in run("retention", tmp_path, "--topic", "b").stderr
    assert "segment.ms" not in run("retention", tmp_path, "--config", "log.roll.hours=168").stderr
    (tmp_path / "kts-topics.json").write_text("no")
    assert "kts-topics.json" in run("retention", tmp_path, code=3).stderr
