"""``kts doctor``: findings with what to type next, exit codes, and the settings that lie beside."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from support.clusters import cluster_of
from support.golden import golden
from support.processes.cli_runs import lines, run
from support.tiered import session

import kts

NOW = "2026-11-01"


def test_findings_end_with_1_and_say_what_to_type_next() -> None:
    orders = golden("demo", "orders").log_dir
    done = run("doctor", orders, "--now", NOW, code=1)
    rows = lines("doctor", orders, "--now", NOW, "--json", code=1)
    assert [row["kind"] for row in rows] == ["future", "time-index", "does-not-expire", "refused"]
    for row in rows:
        assert row["message"] in done.stdout and f"next, {row['kind']}: " in done.stderr
        command, *rest = shlex.split(row["advice"].split(";")[0].split(" shows")[0])
        assert command == "kts"
        run(*rest, code=int("--check-release" in rest))
    assert rows == [
        {name: row[name] for name in rows[0]} for row in kts.doctor(orders, now=NOW).to_pylist()
    ]  # the same in Python


def test_a_sound_topic_is_ok() -> None:
    for deep in ((), ("--deep",)):
        done = run("doctor", golden("demo", "clicks").log_dir, *deep)
        assert done.stdout == f"OK: 1 partition{', every record' * len(deep)}\n"
        assert not lines("doctor", golden("demo", "clicks").log_dir, *deep, "--json")


def test_a_named_release_also_refuses_formats() -> None:
    legacy = golden("demo", "legacy").log_dir
    assert run("doctor", legacy).stdout.startswith("OK")
    (row,) = lines("doctor", legacy, "--release", "4.3", "--json", code=1)
    assert (row["kind"], row["count"]) == ("refused", 4000) and "message format 1" in row["message"]


def test_settings_replace_those_of_the_topic() -> None:
    orders = golden("demo", "orders").log_dir
    how = ("--now", NOW, "--json", "--config", "cleanup.policy=compact")
    assert "does-not-expire" not in {row["kind"] for row in lines("doctor", orders, *how, code=1)}
    run("doctor", orders, "--config", "retention.ms=soon", code=2)


def test_a_damaged_partition_is_left_out_and_told(tmp_path: Path) -> None:
    clicks = golden("demo", "clicks").copy(tmp_path)
    log = clicks.logs("clicks-0")[0]
    data = bytearray(log.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    log.write_bytes(data)
    done = run("doctor", clicks.log_dir, code=3)
    assert "clicks-0 is left out" in done.stderr and "OK" not in done.stdout


def test_the_settings_of_the_cluster_beside_are_the_limits(tmp_path: Path) -> None:
    """In the cluster of this metadata log, orders has a retention of two hours."""
    now = 1_797_000_000_000
    shutil.copytree(cluster_of("4.3.1"), tmp_path / "data")
    for topic in ("orders", "other"):
        with kts.Log(tmp_path / f"data/{topic}-0", {"segment.ms": 2**60}, release="3.9") as log:
            for number in range(50):
                log.append_rows([{"timestamp": now - 86_400_000 + number - 3 * 3_600_000 * (number == 20)}])
    rows = lines("doctor", tmp_path / "data", "--now", now, "--unit", "ms", "--json", code=1)
    assert [(row["topic"], row["kind"], row["offset"]) for row in rows] == [("orders", "late", 20)]
    assert "retention.ms (2h)" in rows[0]["message"]
    assert kts.doctor(tmp_path / "data", now=now).to_pylist() == rows


def test_what_tiered_storage_alone_has_is_judged_too() -> None:
    played = session("local")
    told = [lines("doctor", *where, "--remote", played.remote, "--json", code=1) for where in ((), (played.data,))]
    for rows in told:
        assert {row["topic"] for row in rows} == {"jumpy"}  # a record 30 days ahead every 45 records
        ahead = [row["offset"] for row in rows if row["kind"] == "ahead"]
        assert ahead[:4] == [15, 60, 105, 150]
        assert {row["kind"] for row in rows} <= {"ahead", "time-index", "small-segments"}
