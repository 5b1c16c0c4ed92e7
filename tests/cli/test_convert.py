"""`kts convert`: the same log in another message format, beside the old one, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import PATIENCE_S, Golden, golden, goldens, scaled
from support.processes.cli_runs import KTS, lines, run
from support.reference.decoded import rows_of

import kts

T = 1_500_000_000_000
LEGACY = golden("demo", "legacy")
MAGICS = {
    scenario: {
        magic
        for partition in scenario.partitions
        for log in scenario.logs(partition)
        for magic in kts.scan_batches(log.read_bytes()).column("magic").to_pylist()
    }
    for scenario in goldens()
}
OLD = [scenario for scenario, magics in MAGICS.items() if magics and magics <= {0, 1}]
NEW = [scenario for scenario, magics in MAGICS.items() if 2 in magics]


def tree(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file's content and modification time."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    table = kts.scan(path, **options).read_all()
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table.column(at).cast(pa.int64())).to_pylist()


def entries(log: Path) -> list[dict[str, Any]]:
    return rows_of(kts.scan_batches(log.read_bytes()))


def as_magic(record: dict[str, Any], magic: int) -> dict[str, Any]:
    """A record as it is told in another format: magic 0 has no time, and the others a type for every record."""
    if magic == 0:
        return record | {"timestamp": -1, "timestampType": -1, "headers": None}
    return record | {"timestampType": max(record["timestampType"], 0)} | ({"headers": None} if magic == 1 else {})


@pytest.mark.slow
@pytest.mark.parametrize("scenario", OLD, ids=str)
def test_old_logs_become_magic_2_and_nothing_else_changes(
    scenario: Golden, tmp_path: Path, writable: Callable[[Golden], Golden]
) -> None:
    source, out = writable(scenario).log_dir, tmp_path / "out"
    before = tree(source)
    *segments, summary = lines("convert", source, "--to-magic", "2", "--out", out, "--json")
    assert tree(source) == before
    assert run("verify", "--deep", out).stdout.startswith("OK")

    assert rows(out) == [as_magic(record, 2) for record in rows(source)]
    assert summary["records"] == sum(segment["records"] for segment in segments) == len(rows(source))
    for partition in scenario.partitions:
        old, new = kts.open(source / partition), kts.open(out / partition)
        assert [one.base_offset for one in new.segments] == [one.base_offset for one in old.segments]
        assert [one.modified_ms for one in new.segments] == [one.modified_ms for one in old.segments]
        assert (new.log_start_offset, new.log_end_offset) == (old.log_start_offset, old.log_end_offset)
        assert new.max_timestamp() == old.max_timestamp()
        for one in new.segments:
            found = entries(Path(one.path))
            assert all(entry["magic"] == 2 and entry["crcOk"] for entry in found)
            name = os.path.basename(one.path)
            codecs = {entry["codec"] for entry in entries(source / partition / name)}
            assert {entry["codec"] for entry in found} == codecs


def test_times_are_found_at_the_offsets_where_they_were(tmp_path: Path) -> None:
    """Three seconds: of every old scenario each fourth time that its broker was asked for, or each at full length."""
    asked = 0
    for scenario in OLD:
        queries = {
            name: (scenario.offsets_for_times(name) or {"queries": []})["queries"] for name in scenario.partitions
        }
        if not any(queries.values()):
            continue
        out = tmp_path / str(scenario)
        run("convert", scenario.log_dir, "--to-magic", "2", "--out", out)
        for partition, all_of_it in queries.items():
            old, new = kts.open(scenario.partition_dir(partition)), kts.open(out / partition)
            for target in [query["query"] for query in all_of_it[:: scaled(4, 1)]]:
                for how in ({}, {"shipped_search": True}):
                    found, expected = (log.offset_for_timestamp(target, **how) for log in (new, old))
                    assert found == expected, (scenario, target, how)
                    asked += 1
    assert asked > 1000


NO_TRANSACTIONS = "has neither transactions nor control batches"
NO_ZSTD = "has no zstd; name another codec"
NO_HEADERS = "has no record headers"
NO_RECORDS = "the last batch has no records"


def refusals(scenario: Golden) -> set[str]:
    """Why a scenario of magic 2 cannot be had in another format without being told how; empty if it can."""
    logs = [[entry for log in scenario.logs(p) for entry in entries(log)] for p in scenario.partitions]
    found = [entry for entries in logs for entry in entries]
    reasons = {
        NO_TRANSACTIONS: any(entry["control"] or entry["transactional"] for entry in found),
        NO_ZSTD: any(entry["codec"] == 4 for entry in found),
        NO_HEADERS: any(record["headers"] for record in rows(scenario.log_dir)),
        NO_RECORDS: any(entries and entries[-1]["count"] == 0 for entries in logs),
    }
    return {reason for reason, holds in reasons.items() if holds}


@pytest.mark.slow
@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize("scenario", NEW, ids=str)
def test_magic_2_goes_down_or_is_refused_with_the_reason(scenario: Golden, to_magic: int, tmp_path: Path) -> None:
    reasons = refusals(scenario)
    arguments = ("convert", scenario.log_dir, "--to-magic", to_magic, "--out", tmp_path / "out", "--json")
    if reasons:
        said = run(*arguments, code=3)
        assert any(reason in said.stderr for reason in reasons) and ".log" in said.stderr
        assert said.stdout == ""
        assert not list(tmp_path.iterdir())
        return
    summary = lines(*arguments)[-1]
    assert run("verify", "--deep", tmp_path / "out").stdout.startswith("OK")
    assert rows(tmp_path / "out") == [as_magic(record, to_magic) for record in rows(scenario.log_dir)]
    assert summary["records"] == len(rows(scenario.log_dir))
    for path in (tmp_path / "out").rglob("*.log"):
        assert all(entry["magic"] == to_magic for entry in entries(path))


def test_the_golden_scenarios_go_both_ways_and_have_every_reason() -> None:
    reasons = [refusals(scenario) for scenario in NEW]
    assert len(OLD) > 60
    assert sum(not found for found in reasons) > 20
    assert set.union(*reasons) >= {NO_TRANSACTIONS, NO_ZSTD, NO_HEADERS}


def test_up_and_down_again_gives_the_segments_back(tmp_path: Path) -> None:
    scenario = golden("0.10.2.2", "ct-none")
    run("convert", scenario.log_dir, "--to-magic", 2, "--out", tmp_path / "up")
    run("convert", tmp_path / "up", "--to-magic", 1, "--out", tmp_path / "down")
    for partition in scenario.partitions:
        for log in scenario.logs(partition):
            assert (tmp_path / "down" / partition / log.name).read_bytes() == log.read_bytes()


# --- options --------------------------------------------------------------------------------------


def test_zstd_and_headers_go_down_when_told_how(tmp_path: Path) -> None:
    scenario = golden("3.9.2", "headers")
    options = ("--drop-headers", "--compression", "none")
    run("convert", scenario.log_dir, "--to-magic", 1, *options, "--out", tmp_path / "plain")
    assert rows(tmp_path / "plain") == [as_magic(record, 1) for record in rows(scenario.log_dir)]
    scenario = golden("3.9.2", "ct-zstd")
    run(
        "convert",
        scenario.log_dir,
        "--to-magic",
        1,
        "--compression",
        "lz4",
        "--drop-headers",
        "--out",
        tmp_path / "lz4",
    )
    assert rows(tmp_path / "lz4") == [as_magic(record, 1) for record in rows(scenario.log_dir)]
    assert {entry["codec"] for log in (tmp_path / "lz4").rglob("*.log") for entry in entries(log)} == {3}


def test_transactions_stay_when_only_the_codec_changes(tmp_path: Path) -> None:
    scenario = golden("3.9.2", "txn-none")
    out = tmp_path / "out"
    run("convert", scenario.log_dir, "--to-magic", 2, "--compression", "zstd", "--level", 9, "--out", out)
    assert run("verify", "--deep", out).stdout.startswith("OK")
    for isolation in ("read_uncommitted", "read_committed"):
        same = {"isolation": isolation, "include_control": isolation == "read_uncommitted"}
        assert rows(out, **same) == rows(scenario.log_dir, **same)
    (partition,) = scenario.partitions
    kept = [".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    for name in os.listdir(scenario.partition_dir(partition)):
        if name.endswith(tuple(kept)):
            assert (out / partition / name).read_bytes() == (scenario.partition_dir(partition) / name).read_bytes()


def test_batches_have_about_the_size_that_was_asked_for(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "t-0", 2000)
    for size in (1000, 100_000):
        run("convert", partition, "--to-magic", 2, "--batch-bytes", size, "--out", tmp_path / str(size))
        largest = max(entry["sizeInBytes"] for entry in entries(tmp_path / f"{size}/t-0/{0:020d}.log"))
        assert size - 200 < largest <= size


def one_segment(partition: Path, records: int, **options: Any) -> Path:
    partition.mkdir(parents=True)
    table = {"timestamp": range(T, T + records), "value": [b"%d" % (i % 1000) + b"v" * 90 for i in range(records)]}
    (partition / f"{0:020d}.log").write_bytes(kts.encode(table, magic=1, **options))
    return partition


def test_index_settings_are_the_topics(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "t-0", 2000)
    arguments = ("--batch-bytes", 500, "--index-interval-bytes", 2000, "--segment-index-bytes", 120)
    run("convert", partition, "--to-magic", 2, *arguments, "--out", tmp_path / "out")
    log = tmp_path / "out/t-0" / f"{0:020d}.log"
    index = kts.OffsetIndex(log.with_suffix(".index").read_bytes(), 0)
    at, expected = 0, []
    for entry in entries(log):
        if entry["position"] > at + 2000 and len(expected) < 120 // 12 - 1:  # the time index is full before the other
            at = entry["position"]
            expected.append((entry["lastOffset"], at))
    offsets, positions = (column.tolist() for column in index.entries())
    assert list(zip(offsets, positions, strict=True)) == expected


def test_times_before_1970_are_refused_or_converted(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.write_bytes(kts.encode({"timestamp": [T, -5], "value": [b"a", b"b"]}, magic=1))
    said = run("convert", tmp_path / "t-0", "--to-magic", 2, "--out", tmp_path / "out", code=3)
    assert "timestamp -5 lies before 1970" in said.stderr
    assert f"at position {entries(log)[1]['position']} of {log}" in said.stderr
    run("convert", tmp_path / "t-0", "--to-magic", 2, "--allow-negative-timestamps", "--out", tmp_path / "out")
    assert [record["timestamp"] for record in rows(tmp_path / "out")] == [T, -5]


# --- what SRC may be ------------------------------------------------------------------------------


def test_a_segment_file_is_converted_alone(tmp_path: Path) -> None:
    log = LEGACY.logs("legacy-0")[1]
    run("convert", log, "--to-magic", 2, "--out", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == [log.stem + suffix for suffix in (".index", ".log", ".timeindex")]
    found = rows(tmp_path / "out" / log.name, columns=["offset", "timestamp", "key", "value"])
    assert found == rows(log, columns=["offset", "timestamp", "key", "value"])


def test_a_log_directory_keeps_its_checkpoints_and_only_what_was_asked_is_converted(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    for name in ("a-0", "a-1", "b-0"):
        one_segment(source / name, 10)
    (source / "c-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    beside = {"recovery-point-offset-checkpoint": "0\n1\na 0 10\n", "meta.properties": "broker.id=1\n"}
    beside |= {".kafka_cleanshutdown": "", "replication-offset-checkpoint": "0\n1\na 0 10\n"}
    for name, content in beside.items():
        (source / name).write_text(content)
    (source / ".lock").touch()
    run("convert", source, "--to-magic", 2, "--out", tmp_path / "all")
    assert sorted(os.listdir(tmp_path / "all")) == sorted([*beside, "a-0", "a-1", "b-0"])
    assert {name: (tmp_path / "all" / name).read_text() for name in beside} == beside
    run("convert", source, "--to-magic", 2, "--topic", "a", "--partition", 1, "--out", tmp_path / "some")
    assert os.listdir(tmp_path / "some") == ["a-1"]


def test_empty_segments_and_partitions_stay(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "t-0", 5)
    (partition / f"{5:020d}.log").touch()
    (tmp_path / "t-1").mkdir()
    run("convert", partition, "--to-magic", 2, "--out", tmp_path / "out")
    assert (tmp_path / "out/t-0" / f"{5:020d}.log").read_bytes() == b""
    assert kts.open(tmp_path / "out/t-0").log_end_offset == 5
    assert lines("convert", tmp_path / "t-1", "--to-magic", 2, "--out", tmp_path / "none", "--json")[0]["segments"] == 0


def test_mixed_formats_become_one(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    parts = [kts.encode({"timestamp": [T], "value": [b"x"]}, magic=i % 3, base_offset=i) for i in range(9)]
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(parts))
    for magic in range(3):
        run("convert", tmp_path / "t-0", "--to-magic", magic, "--out", tmp_path / f"out{magic}")
        found = entries(tmp_path / f"out{magic}/t-0" / f"{0:020d}.log")
        assert {entry["magic"] for entry in found} == {magic}
        assert [record["offset"] for record in rows(tmp_path / f"out{magic}")] == [*range(9)]


# --- whole or not at all --------------------------------------------------------------------------


def test_out_must_be_missing_or_empty_and_elsewhere(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "src/t-0", 5)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    for out in (full, full / "file"):
        said = run("convert", partition, "--to-magic", 2, "--out", out, code=2)
        assert "exists and is not empty" in said.stderr
    for out in (partition, partition / "new", tmp_path, tmp_path / "src"):
        said = run("convert", partition, "--to-magic", 2, "--out", out, code=2)
        assert "or around it; name another" in said.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    run("convert", partition, "--to-magic", 2, "--out", empty)
    assert os.listdir(empty) == ["t-0"]
    assert sorted(os.listdir(tmp_path)) == ["empty", "full", "src"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to-magic", "3"], "'3' is not one of"),
        ([], "Missing option '--to-magic'"),
        (["--to-magic", "1", "--compression", "zstd"], "compression zstd needs magic 2, found magic 1"),
        (["--to-magic", "2", "--level", "3"], "--level needs a --compression"),
        (["--to-magic", "2", "--compression", "snappy", "--level", "3"], "level: snappy has no levels, found 3"),
        (["--to-magic", "2", "--topic", "nope"], "no topic nope"),
    ],
)
def test_wrong_use_is_told_before_anything_is_written(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = run("convert", LEGACY.log_dir, *arguments, "--out", tmp_path / "out", code=2)
    assert said in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("magic", [1, 2])
def test_damage_is_told_with_its_place_and_nothing_is_left(magic: int, tmp_path: Path) -> None:
    for name in ("t-0", "t-1"):
        one_segment(tmp_path / "src" / name, 1000)
    log = tmp_path / "src/t-1" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    place = entries(log)[700]["position"]
    data[place + 50] ^= 1
    log.write_bytes(data)
    before = tree(tmp_path)
    said = run("convert", tmp_path / "src", "--to-magic", magic, "--out", tmp_path / "out", code=3)
    assert "CRC" in said.stderr and f"at position {place} of {log}" in said.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("tail", ["cut", "zeros"])
def test_a_tail_that_a_dead_writer_left_is_left_out_and_told(tail: str, tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "t-0", 100)
    log = partition / f"{0:020d}.log"
    data = log.read_bytes()
    log.write_bytes(data[:-10] if tail == "cut" else data + bytes(5000))
    whole = 99 if tail == "cut" else 100
    said = run("convert", partition, "--to-magic", 2, "--out", tmp_path / "out", "--json")
    place, extra = (
        (entries(log)[-1]["position"] + entries(log)[-1]["sizeInBytes"], None) if tail == "cut" else (len(data), 5000)
    )
    left_out = log.stat().st_size - place
    assert extra in (None, left_out)
    assert f"left out {left_out:,} bytes of a cut tail at position {place}" in said.stderr
    assert json.loads(said.stdout.splitlines()[-1])["leftOutBytes"] == left_out
    assert len(rows(tmp_path / "out")) == whole
    (partition / f"{100:020d}.log").touch()  # now it is not the last segment
    said = run("convert", partition, "--to-magic", 2, "--out", tmp_path / "again", code=3)
    assert f"at position {place} of {log}" in said.stderr
    assert not (tmp_path / "again").exists()


def test_garbage_behind_the_last_entry_is_damage(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "t-0", 10)
    log = partition / f"{0:020d}.log"
    end = log.stat().st_size
    with log.open("ab") as file:
        file.write(bytes(11) + b"\x05" * 40)
    said = run("convert", partition, "--to-magic", 2, "--out", tmp_path / "out", code=3)
    assert f"at position {end} of {log}" in said.stderr


def test_a_size_that_hides_the_rest_of_the_last_segment_is_damage_and_no_cut_tail(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "t-0", 100)
    log = partition / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    place, behind = (entries(log)[row]["position"] for row in (40, 41))
    data[place + 8] = 0x40
    log.write_bytes(data)
    said = run("convert", partition, "--to-magic", 2, "--out", tmp_path / "out", code=3)
    assert f"sound entries follow at position {behind}, at position {place} of {log}" in said.stderr
    assert os.listdir(tmp_path) == ["t-0"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_conversion_leaves_nothing(number: int, code: int, tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "src/t-0", 50_000)
    log = partition / f"{0:020d}.log"
    for copy in range(1, 40):
        (tmp_path / f"src/t-{copy}").mkdir()
        os.link(log, tmp_path / f"src/t-{copy}" / log.name)
    command = [*KTS, "convert", str(tmp_path / "src"), "--to-magic", "2", "--compression", "gzip", "--out"]
    with subprocess.Popen([*command, str(tmp_path / "out")], stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + PATIENCE_S
        while not list(tmp_path.glob("out.*.part/t-1")):
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        running.send_signal(number)
        assert running.wait(PATIENCE_S) == code
    assert os.listdir(tmp_path) == ["src"]


# --- memory ---------------------------------------------------------------------------------------

PROGRAM = """
import resource, sys
from kts.cli import main
import pyarrow.compute, kts

def anonymous_mib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

import kts.offline.convert as partitions
before, peak = anonymous_mib(), [0.0]
convert = partitions.convert
def watched(*arguments, **named):
    made = convert(*arguments, **named)
    peak[0] = max(peak[0], anonymous_mib() - before)
    return made
partitions.convert = watched
code = main(sys.argv[1:], standalone_mode=False)
print(round(peak[0]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_large_segment_is_converted_in_little_memory(codec: str, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    log = tmp_path / "t-0" / f"{0:020d}.log"
    value = pa.array([b"%09d" % i + b"v" * 91 for i in range(100_000)])
    with log.open("wb") as file:
        for part in range(20):
            file.write(kts.encode({"value": value}, magic=1, compression=codec, base_offset=part * 100_000))
    arguments = ["convert", str(tmp_path / "t-0"), "--to-magic", "2", "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    assert "2,000,000 records as magic 2" in done.stdout
    peak = int(done.stdout.splitlines()[-1])
    print(f"{log.stat().st_size >> 20} MiB {codec}: {peak} MiB above the interpreter")
    shutil.rmtree(tmp_path / "out")
    assert peak < 150


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    partition = one_segment(tmp_path / "src/t-0", 20_000)
    limit = "ulimit -f 512; trap '' XFSZ; exec \"$@\""  # KiB, stands in for the disk's end
    command = [*KTS, "convert", str(partition), "--to-magic", "2", "--out", str(tmp_path / "out")]
    done = subprocess.run(["bash", "-c", limit, "-", *command], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 3
    assert "writing" in done.stderr and "File too large" in done.stderr
    assert os.listdir(tmp_path) == ["src"]


# --- the plan of a migration ------------------------------------------------------------------------


def test_a_plan_needs_no_target_and_writes_nothing_and_fits_80_columns() -> None:
    before = tree(LEGACY.log_dir)
    said = run("convert", LEGACY.log_dir, "--plan")
    assert said.stderr == ""
    assert max(map(len, said.stdout.splitlines())) <= 80
    header, *rows, census = said.stdout.splitlines()
    assert header.split() == ["topic", "step", "request", "converts", "size", "requests"]
    steps = [["legacy", "phase", "1"], ["legacy-0", "canary"], ["legacy", "phase", "2"], ["legacy", "rollback"]]
    assert [row.partition("Fetch")[0].split() for row in rows if "Fetch" in row] == steps
    assert census == "1 topic, 1 partition: v1 124.8 KiB"
    assert tree(LEGACY.log_dir) == before


def test_a_plan_as_json_has_the_tables_figures(tmp_path: Path) -> None:
    *rows, summary = lines("convert", LEGACY.log_dir, "--plan", "--json")
    size = sum(file.stat().st_size for file in LEGACY.logs("legacy-0"))
    assert summary == {"topics": 1, "partitions": 1, "sizeInBytesByMagic": {"0": 0, "1": size, "2": 0}}
    old = {"topic": "legacy", "partition": None, "fromMagics": [1], "toMagic": 0, "sizeInBytes": size, "exact": True}
    sent, read = {"request": "Produce 2", "requests": 80}, {"request": "Fetch 1", "requests": 4}
    assert rows == [
        old | sent | {"step": "phase 1"},
        old | read | {"step": "phase 1"},
        old | read | {"step": "canary", "partition": 0},
        old | read | {"step": "phase 2"},
        old | sent | {"step": "rollback"},
        old | read | {"step": "rollback"},
    ]


def test_a_plan_says_of_v2_that_the_migration_is_not_about_it_and_marks_what_is_estimated() -> None:
    said = run("convert", golden("demo", "orders").log_dir, "--plan")
    assert "v2 is unknown to 0.9 and 0.10" in said.stderr
    assert "~781.2 KiB" in said.stdout
    empty = run("convert", golden("0.10.2.2", "empty").log_dir, "--plan").stdout
    assert empty.count("nothing") == 4 and "no records" in empty


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--plan", "--to-magic", "2"], "--plan writes nothing; leave out --to-magic and --out"),
        (["--plan", "--out", "x"], "--plan writes nothing; leave out --to-magic and --out"),
        (["--to-magic", "2"], "Missing option '--out'; or show a migration with --plan"),
        (["--out", "x"], "Missing option '--to-magic'; or show a migration with --plan"),
    ],
)
def test_a_target_is_needed_without_a_plan_and_refused_with_one(arguments: list[str], told: str) -> None:
    assert told in run("convert", LEGACY.log_dir, *arguments, code=2).stderr
