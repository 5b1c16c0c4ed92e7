"""``ls``, ``batches``, ``stats``, ``offset-for`` and ``verify`` against Kafka's data and the library."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.golden import Golden, golden, golden_partitions, goldens
from support.processes.cli_runs import lines, run

import kts
from kts.cli import main

ORDERS = golden("demo", "orders")
LEGACY = golden("demo", "legacy")
HOUR = 3_600_000


# --- ls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", goldens(), ids=str)
def test_ls_knows_the_offsets_that_the_broker_had(scenario: Golden) -> None:
    for row in lines("ls", scenario.log_dir, "--json"):
        name = f"{row['topic']}-{row['partition']}"
        facts = scenario.meta["partitions"][name]
        assert row["logEndOffset"] == facts["endOffset"]
        assert row["segments"] == len(scenario.logs(name))
        assert row["sizeInBytes"] == sum(path.stat().st_size for path in scenario.logs(name))
        times = scenario.offsets_for_times(name) or {}
        answer = times.get("maxTimestamp")
        if answer and answer["timestamp"] >= 0:
            assert (row["maxTimestamp"], row["offsetOfMaxTimestamp"]) == (answer["timestamp"], answer["offset"])


def test_ls_lists_segments_and_people_can_read_it() -> None:
    rows = lines("ls", ORDERS.log_dir, "--segments", "--json")
    assert [(row["partition"], row["segment"]) for row in rows] == [
        (int(name[-1]), int(log.stem)) for name in ORDERS.partitions for log in ORDERS.logs(name)
    ]
    for row in rows:
        records = [r for r in ORDERS.expected(f"orders-{row['partition']}") if r.offset >= row["logStartOffset"]]
        inside = [record.timestamp for record in records if record.offset < row["logEndOffset"]]
        assert (row["firstTimestamp"], row["maxTimestamp"]) == (inside[0], max(inside))
    shown = run("ls", ORDERS.log_dir)
    assert "orders          0         4      0  3,042  2026-09-01T04:03:12.531Z" in shown.stdout
    assert shown.stderr == ""


def test_ls_shows_what_it_can_when_one_partition_is_damaged(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(ORDERS)
    last = scenario.logs("orders-1")[-1]
    last.write_bytes(last.read_bytes()[:-30] + bytes(200))
    result = run("ls", scenario.log_dir, "--json", code=3)
    assert [json.loads(line)["partition"] for line in result.stdout.splitlines()] == [0, 2]
    assert "orders-1 is left out" in result.stderr and str(last) in result.stderr


# --- batches --------------------------------------------------------------------------------------


def test_batches_are_the_header_scan_with_names_for_numbers() -> None:
    for scenario, name in golden_partitions():
        if scenario.version != "demo":
            continue
        rows = lines("batches", scenario.partition_dir(name), "--json")
        scanned = [
            row | {"segment": str(log)}
            for log in scenario.logs(name)
            for row in as_integers(kts.scan_batches(log.read_bytes()))
        ]
        assert [{key: row[key] for key in scanned[0]} for row in rows] == [
            row | {"codec": ["none", "gzip", "snappy", "lz4", "zstd"][row["codec"]], "timestampType": "CreateTime"}
            for row in scanned
        ]


def as_integers(headers: pa.RecordBatch) -> list[dict[str, object]]:
    columns = [column.cast("int64") if pa.types.is_timestamp(column.type) else column for column in headers.columns]
    return pa.record_batch(columns, names=headers.schema.names).to_pylist()


def test_batches_show_a_bad_crc_and_go_on(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(golden("demo", "clicks"))
    log = scenario.logs("clicks-0")[0]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    rows = lines("batches", log, "--json")
    assert [row["crcOk"] for row in rows] == [True] * (len(rows) - 1) + [False]
    shown = run("batches", log).stdout.splitlines()
    assert len(shown) == len(rows) + 1 and shown[-1].endswith("BAD CRC")
    cut = run("batches", log, "--limit", 2)
    assert len(cut.stdout.splitlines()) == 3


# --- stats ----------------------------------------------------------------------------------------


def test_stats_count_batches_where_their_greatest_time_lies() -> None:
    rows = lines("stats", ORDERS.log_dir, "--by", "1h", "--json")
    headers = [row for name in ORDERS.partitions for row in lines("batches", ORDERS.partition_dir(name), "--json")]
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for header in headers:
        counts[header["maxTimestamp"] // HOUR * HOUR] += header["count"]
        sizes[header["maxTimestamp"] // HOUR * HOUR] += header["sizeInBytes"]
    assert {row["start"]: row["count"] for row in rows} == counts
    assert {row["start"]: row["sizeInBytes"] for row in rows} == sizes
    assert sum(row["count"] for row in rows) == 9000 and all(row["countIsExact"] for row in rows)
    assert [row["start"] for row in rows] == sorted(counts)
    by_partition = lines("stats", ORDERS.log_dir, "--per", "partition", "--by", "1d", "--json")
    assert {row["partition"] for row in by_partition} == set(ORDERS.partitions)
    assert sum(row["count"] for row in by_partition) == 9000


def test_stats_say_when_a_count_is_a_guess() -> None:
    rows = lines("stats", LEGACY.log_dir, "--json")
    assert sum(row["count"] for row in rows) == 4000
    assert not any(row["countIsExact"] for row in rows)
    result = run("stats", LEGACY.log_dir, "--by", "1d")
    assert "<=4,000 records" in result.stdout and "counted by offsets" in result.stderr
    assert "█" in result.stdout or "#" in result.stdout


def test_stats_never_count_too_little() -> None:
    for scenario, name in golden_partitions():
        rows = lines("stats", scenario.partition_dir(name), "--json")
        start = scenario.log_start_offset(name)
        seen = sum(1 for row in scenario.expected(name) if row.offset >= start)
        total = sum(row["count"] for row in rows)
        assert total >= seen
        assert sum(row["sizeInBytes"] for row in rows) == sum(log.stat().st_size for log in scenario.logs(name))
        if all(row["countIsExact"] for row in rows) and start == scenario_base(scenario, name):
            assert total == seen, f"{scenario} {name}"


def scenario_base(scenario: Golden, name: str) -> int:
    return int(scenario.logs(name)[0].stem)


def test_stats_give_records_without_a_time_their_own_row() -> None:
    scenario = next(s for s in goldens() if s.name.startswith("notime"))
    rows = lines("stats", scenario.log_dir, "--json")
    assert rows[0]["start"] is None and rows[0]["startTime"] is None
    assert "no timestamp" in run("stats", scenario.log_dir).stdout


# --- offset-for -----------------------------------------------------------------------------------


def test_offset_for_answers_as_the_broker_did(writable: Callable[[Golden], Golden]) -> None:
    for scenario in (ORDERS, LEGACY, golden("demo", "clicks")):
        for name in scenario.partitions:
            path = scenario.partition_dir(name)
            for asked in (scenario.offsets_for_times(name) or {})["queries"][::6]:
                (row,) = lines("offset-for", path, "--time", asked["query"], "--unit", "ms", "--json")
                answer = asked["answer"]
                assert (row["offset"], row["timestamp"]) == (
                    (None, None) if answer is None else (answer["offset"], answer["timestamp"])
                )


def test_offset_for_explains_itself() -> None:
    path = ORDERS.partition_dir("orders-0")
    said = run("offset-for", path, "--time", "2026-09-08T10:00", "--explain").stdout
    assert "2 segments end before that time" in said
    assert "00000000000000001363.log" in said
    assert "offset 1,375, its own time is 2036-09-04T10:20:21.245Z" in said
    older = sum(r.offset > 1375 and r.timestamp < 1_788_861_600_000 for r in ORDERS.expected("orders-0"))
    assert f"later records that are older: {older}" in said
    (row,) = lines("offset-for", path, "--time", "2026-09-08T10:00", "--explain", "--json")
    assert row["offset"] == 1375 and row["explanation"]["laterOlderRecords"] == older
    assert row["explanation"]["segmentBaseOffset"] == 1363
    none = run("offset-for", path, "--time", "2100-01-01", "--explain").stdout
    assert "no record is that young" in none
    table = run("offset-for", ORDERS.log_dir, "--time", "2100-01-01").stdout
    assert table.count("no record at or after it") == 3
    run("offset-for", path, "--time", "0", "--explain", "--shipped-search", code=2)


# --- verify ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", goldens(), ids=str)
def test_verify_finds_nothing_wrong_with_what_kafka_wrote(scenario: Golden) -> None:
    assert run("verify", "--deep", scenario.log_dir).stdout.startswith("OK: ")


def damage(scenario: Golden, kind: str) -> None:
    log = scenario.logs("clicks-0")[0]
    data = bytearray(log.read_bytes())
    if kind == "crc":
        data[100] ^= 1
        log.write_bytes(data)
    elif kind == "time index":
        index = log.with_suffix(".timeindex")
        entries = bytearray(index.read_bytes())
        entries[7] ^= 1
        index.write_bytes(entries)
    elif kind == "offset index":
        index = log.with_suffix(".index")
        entries = bytearray(index.read_bytes())
        entries[7] ^= 1
        index.write_bytes(entries)
    elif kind == "missing index":
        log.with_suffix(".index").unlink()
    elif kind == "checkpoint":
        (scenario.log_dir / "replication-offset-checkpoint").write_text("rubbish\n")


@pytest.mark.parametrize("kind", ["crc", "time index", "offset index", "missing index", "checkpoint"])
def test_verify_names_each_kind_of_damage_and_exits_with_1(kind: str, writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(golden("demo", "clicks"))
    damage(scenario, kind)
    result = run("verify", scenario.log_dir, code=1)
    assert "OK" not in result.stdout and str(scenario.log_dir) in result.stdout
    rows = lines("verify", scenario.log_dir, "--json", code=1)
    assert rows[-1]["ok"] is False and rows[-1]["violations"] == len(rows) - 1 == len(result.stdout.splitlines())
    assert set(rows[0]) == {"path", "position", "offset", "kind", "message"}


def test_verify_with_jobs_says_the_same_in_the_same_order(tmp_path: Path) -> None:
    for source in (ORDERS, golden("demo", "clicks")):
        for name in source.partitions:
            shutil.copytree(source.partition_dir(name), tmp_path / name)
    assert lines("verify", tmp_path, "--jobs", 2, "--json") == lines("verify", tmp_path, "--json")
    for name in ("clicks-0", "orders-1"):
        log = min((tmp_path / name).glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1] + b"!")
    assert lines("verify", tmp_path, "--jobs", 2, "--json", code=1) == lines("verify", tmp_path, "--json", code=1)


# --- damage ---------------------------------------------------------------------------------------


def spoil(path: Path, rng: random.Random) -> None:
    """Change a file: a bit, its end, or a field at an extreme."""
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data = data[:place]
    elif kind == 2:
        data += rng.randbytes(rng.randrange(1, 60))
    else:
        data[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7])
    path.write_bytes(data)


def test_damage_of_any_kind_gives_an_exit_code_and_never_a_traceback(tmp_path: Path, rng: random.Random) -> None:
    everything = [
        (scenario, name)
        for scenario, name in golden_partitions()
        if scenario.version != "demo" and any(log.stat().st_size for log in scenario.logs(name))
    ]
    output = tmp_path / "x.parquet"
    for number in range(40):
        scenario, name = rng.choice(everything)
        folder = tmp_path / str(number) / name
        shutil.copytree(scenario.partition_dir(name), folder)
        spoil(rng.choice(sorted(path for path in folder.iterdir() if path.stat().st_size)), rng)
        for arguments in (
            ["ls", "--segments"],
            ["dump", "--on-error", rng.choice(["raise", "skip"]), "-o", output],
            ["dump", "--from", "2020-01-01", "--strict"],
            ["batches", "--json"],
            ["stats"],
            ["offset-for", "--time", "2020-01-01", "--explain"],
        ):
            result = CliRunner().invoke(main, [*map(str, arguments), str(folder)])
            assert result.exception is None or isinstance(result.exception, SystemExit), (scenario, arguments)
            assert result.exit_code in (0, 3), (scenario, arguments, result.stderr)
            assert bool(result.exit_code) <= bool(result.stderr)
        assert CliRunner().invoke(main, ["verify", "--deep", str(folder)]).exit_code in (0, 1)


def test_a_table_escapes_header_keys_that_would_steer_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(kts.encode({"value": [b"v"], "headers": [[("\x1b]0;title\x07h\n", b"x")]]}))
    shown = run("dump", log, "--format", "table").stdout
    assert "\x1b" not in shown and r"\x1b]0;title\x07h\n=x" in shown


def test_ls_names_the_file_whose_first_batch_is_damaged(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(ORDERS)
    first = scenario.logs("orders-0")[0]
    data = bytearray(first.read_bytes())
    data[16] = 0xFF
    first.write_bytes(data)
    assert str(first) in run("ls", scenario.log_dir, code=3).stderr
