"""``kts append``: lines of JSON into a partition, in real batches, and nothing of a batch with a bad line."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.disk.faultfs import Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os
from support.golden import PATIENCE_S, Golden, golden, rows
from support.processes.cli_runs import KTS, lines, run

import kts
from kts.cli import main

ORDERS = golden("demo", "orders")
LEGACY = golden("demo", "legacy")
NOW = 1_700_000_000_000


def append(directory: Path, *arguments: object, given: str = "", code: int = 0) -> Result:
    """The command with something on its stdin."""
    result = CliRunner().invoke(main, ["append", str(directory), *map(str, arguments)], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    return result


def said(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout.splitlines()[-1])


def content(path: Path) -> list[Any]:
    """What was appended: everything of a record but its offset."""
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    return [row[1:] for row in rows(log.scan(columns=list(kts.ALL_COLUMNS)).read_all())]


def batches(path: Path) -> list[dict[str, Any]]:
    return lines("batches", path, "--json")


# --- what comes in ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scenario, name", [(ORDERS, "orders-2"), (LEGACY, LEGACY.partitions[0])], ids=str)
@pytest.mark.parametrize("encoding", ["base64", "hex"])
def test_what_dump_writes_append_takes_back(scenario: Golden, name: str, encoding: str, tmp_path: Path) -> None:
    source, target = scenario.partition_dir(name), tmp_path / "again-0"
    text = run("dump", source, "--format", "jsonl", "--keys", encoding, "--values", encoding).stdout
    options = ["--jsonl", "--create", "--keys", encoding, "--values", encoding, "--json"]
    answer = said(append(target, *options, given=text))
    assert answer["records"] == text.count("\n") and answer["complete"]
    # Only who set the time is not taken over: what is appended is CreateTime.
    expected = [(time, *rest) for time, _, *rest in content(source)]
    assert [(time, *rest) for time, _, *rest in content(target)] == expected
    assert "OK" in run("verify", target, "--deep").stdout


def test_the_answer_names_offsets_and_counts(tmp_path: Path) -> None:
    target = tmp_path / "t-3"
    answer = said(append(target, "--create", "--json", given='{"value":"YQ=="}\n{"value":null}\n'))
    size = (target / f"{0:020d}.log").stat().st_size
    expected = {"topic": "t", "partition": 3, "baseOffset": 0, "lastOffset": 1, "records": 2, "batches": 1}
    assert answer == expected | {"sizeInBytes": size, "logEndOffset": 2, "complete": True}
    result = append(target, given="{}\n\n{}\n{}")
    assert result.stdout == "appended 3 records in 1 batch to t-3: offsets 2 to 4\n"
    nothing = said(append(target, "--json", given="\n"))
    assert (nothing["baseOffset"], nothing["lastOffset"], nothing["records"]) == (None, None, 0)
    assert append(target, given="").stdout == "appended 0 records in 0 batches to t-3\n"


def test_a_line_chooses_its_time_and_has_the_clock_s_without_one(tmp_path: Path) -> None:
    text = '{"timestamp":5}\n{}\n{"timestamp":null}\n{"timestamp":-1}\n'
    append(tmp_path / "t-0", "--create", "--now", NOW, given=text)
    assert [row[0] for row in content(tmp_path / "t-0")] == [5, NOW, NOW, -1]


def test_times_are_iso_8601_or_integers_whose_unit_is_certain(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    append(path, "--create", given='{"timestamp":"2026-09-01T12:00+02:00"}\n{"timestamp":1788256800000}\n')
    append(path, "--unit", "s", given='{"timestamp":1788256800}\n')
    assert [row[0] for row in content(path)] == [1_788_256_800_000] * 3
    result = append(path, given='{}\n{"timestamp":1788256800}\n', code=3)
    assert "line 2: timestamp: 1788256800 looks like seconds (2026-09-01T10:00:00.000Z)" in result.stderr
    assert "--unit s or --unit ms" in result.stderr


def test_minus_one_that_is_a_time_is_refused_because_nothing_would_mark_it(tmp_path: Path) -> None:
    line = '{"timestamp":-1,"hasTimestamp":true}\n'
    others = '{"timestamp":-1,"hasTimestamp":false}\n{"timestamp":-2,"hasTimestamp":true}\n{"timestamp":-1}\n'
    for number, text in enumerate((others + line, others + " " + line, others.replace("-2", '"1970"') + line)):
        result = append(tmp_path / f"t-{number}", "--create", "--batch-records", 3, given=text, code=3)
        assert "line 4: timestamp: expected a time that is stored without a mark, found -1 with" in result.stderr
        assert "3 records up to line 3 were appended" in result.stderr
        assert len(content(tmp_path / f"t-{number}")) == 3
    with kts.Log(tmp_path / "rows-0") as log:
        rows = {"timestamp": [5, -1, -1], "hasTimestamp": [True, False, True]}
        for given in (rows, [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]):
            with pytest.raises(ValueError, match="row 2: timestamp: expected a time that is stored without a mark"):
                log.append_rows(given)
        with pytest.raises(ValueError, match="'hasTimestamp': expected bool, found int64"):
            log.append_rows({"timestamp": [-1], "hasTimestamp": [1]})
        assert log.append_rows({"timestamp": [5, -1], "hasTimestamp": [True, None]}).last_offset == 1
        assert log.append_rows({"value": [b"v"], "hasTimestamp": [True]}).last_offset == 2


def test_batches_are_cut_by_records_and_by_bytes(tmp_path: Path) -> None:
    text = '{"value":"%s"}\n' % ("QUJD" * 100) * 10  # 300 bytes each
    append(tmp_path / "t-0", "--create", "--batch-records", 4, given=text)
    assert [batch["records"] for batch in batches(tmp_path / "t-0")] == [4, 4, 2]
    append(tmp_path / "t-1", "--create", "--batch-bytes", 1000, given=text)
    assert [batch["records"] for batch in batches(tmp_path / "t-1")] == [3, 3, 3, 1]
    append(tmp_path / "t-2", "--create", "--batch-bytes", 1, given=text)
    assert [batch["records"] for batch in batches(tmp_path / "t-2")] == [1] * 10
    header = '{"value":null,"headers":[["h","%s"]]}\n' % ("QUJD" * 100) * 4
    append(tmp_path / "t-3", "--create", "--batch-bytes", 700, given=header)
    assert [batch["records"] for batch in batches(tmp_path / "t-3")] == [2, 2]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_codec_compresses_each_batch(codec: str, tmp_path: Path) -> None:
    append(tmp_path / "t-0", "--create", "--compression", codec, "--batch-records", 2, given='{"value":"YWFh"}\n' * 4)
    assert [batch["codec"] for batch in batches(tmp_path / "t-0")] == [codec, codec]
    assert [row[3] for row in content(tmp_path / "t-0")] == [b"aaa"] * 4


def test_text_can_be_typed_as_it_is(tmp_path: Path) -> None:
    text = '{"key":"kéy","value":"v\\n","headers":[["h","eA=="]]}'
    append(tmp_path / "t-0", "--create", "--keys", "utf8", "--values", "utf8", "-i", "-", given=text)
    [(_, _, key, value, headers)] = content(tmp_path / "t-0")
    assert (key, value, headers) == ("kéy".encode(), b"v\n", (("h", b"x"),))


def test_the_format_of_what_is_there_stays_unless_it_is_set(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(LEGACY)
    path = scenario.partition_dir(scenario.partitions[0])
    magic = batches(path)[-1]["magic"]
    assert magic < 2
    append(path, given="{}\n")
    assert batches(path)[-1]["magic"] == magic
    append(path, "--config", "message.format.version=3.9", given="{}\n")
    assert batches(path)[-1]["magic"] == 2


def test_settings_are_kafka_s(tmp_path: Path) -> None:
    options = ["--config", "message.timestamp.type=LogAppendTime", "--config", "segment.bytes=200", "--now", NOW]
    append(tmp_path / "t-0", "--create", "--batch-records", 1, *options, given='{"timestamp":5}\n' * 6)
    assert {row[:2] for row in content(tmp_path / "t-0")} == {(NOW, 1)}
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 3


# --- what is refused --------------------------------------------------------------------------------


def test_nothing_of_the_batch_with_a_bad_line_is_appended(tmp_path: Path) -> None:
    text = '{"value":"YQ=="}\n' * 7 + "oops\n" + '{"value":"YQ=="}\n' * 20
    result = append(tmp_path / "t-0", "--create", "--batch-records", 3, "--json", given=text, code=3)
    assert "kts: line 8: expected a JSON object, found Expecting value at character 1; " in result.stderr
    assert "6 records up to line 6 were appended, nothing after it" in result.stderr
    answer = said(result)
    assert (answer["records"], answer["batches"], answer["logEndOffset"], answer["complete"]) == (6, 2, 6, False)
    assert len(content(tmp_path / "t-0")) == 6
    again = append(tmp_path / "t-0", "--batch-records", 30, given=text, code=3)
    assert "nothing was appended" in again.stderr
    assert len(content(tmp_path / "t-0")) == 6


def test_what_the_log_refuses_is_named_by_its_lines(tmp_path: Path) -> None:
    limit = ["--config", "message.timestamp.difference.max.ms=1000", "--now", NOW, "--batch-records", 3]
    text = "{}\n{}\n{}\n{}\n" + '{"timestamp":5}\n' + "{}\n"
    result = append(tmp_path / "t-0", "--create", *limit, given=text, code=3)
    assert "kts: line 5: " in result.stderr and "3 records up to line 3 were appended" in result.stderr
    assert len(content(tmp_path / "t-0")) == 3
    large = json.dumps({"value": "QUJD" * 500_000})
    result = append(tmp_path / "t-0", given=large, code=3)
    assert "max.message.bytes" in result.stderr and "lines 1 to 1" in result.stderr
    compacted = append(tmp_path / "t-0", "--config", "cleanup.policy=compact", given='{"key":"YQ=="}\n{}', code=3)
    assert "kts: line 2: " in compacted.stderr


@pytest.mark.parametrize(
    "line, wrong",
    [
        ('{"topic":"other"}', "expected topic t, found other"),
        ('{"partition":1}', "expected partition 0, found 1"),
        ('{"offset":5}', "expected offset 3, found 5"),
    ],
)
def test_check_holds_a_line_to_its_place(line: str, wrong: str, tmp_path: Path) -> None:
    append(tmp_path / "t-0", "--create", given="{}\n")
    text = '{"topic":"t","partition":0,"offset":1}\n{"offset":2}\n' + line
    result = append(tmp_path / "t-0", "--check", given=text, code=3)
    assert f"kts: line 3: {wrong}" in result.stderr
    assert len(content(tmp_path / "t-0")) == 1
    append(tmp_path / "t-0", given=text)  # not looked at otherwise
    append(tmp_path / "t-0", "--check", given='{"topic":"t","partition":0,"offset":4}\n{}\n{"offset":6}')
    assert len(content(tmp_path / "t-0")) == 7


def test_wrong_use_changes_nothing(tmp_path: Path) -> None:
    assert "t-0: no such file or directory" in append(tmp_path / "t-0", given="{}", code=2).stderr
    for directory, options, reason in (
        (tmp_path / "t-0", ["--config", "segment.byte=5"], "unknown setting 'segment.byte'; the nearest name is"),
        (tmp_path / "t-0", ["--config", "segment.bytes"], "expected KEY=VALUE, found 'segment.bytes'"),
        (tmp_path / "t-0", ["--config", "segment.bytes=x"], "segment.bytes: expected an integer, found 'x'"),
        (tmp_path / "t-0", ["--now", "soon"], "expected a time, found 'soon'"),
        (tmp_path / "nope", [], "expected a directory called <topic>-<partition>, found 'nope'"),
    ):
        result = append(directory, "--create", *options, given="{}", code=2)
        assert reason in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []
    for name in ("a-0", "a-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "partition.metadata").touch()
    assert "expected one partition directory" in append(tmp_path, given="{}", code=2).stderr


@pytest.mark.slow
def test_a_log_that_another_process_writes_to_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    program = f"import kts\nwith kts.Log({str(path)!r}): print('open', flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        result = append(path, given="{}\n", code=3)
        assert "another process" in result.stderr and "holds the lock" in result.stderr
        assert "stop the broker (or the other program) first, or work on a copy" in result.stderr
        assert str(tmp_path / ".lock") in result.stderr
    finally:
        holder.communicate("\n", timeout=PATIENCE_S)
    append(path, given="{}\n")


def test_what_start_up_recovered_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    append(path, "--create", given="{}\n")
    log = path / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    result = append(path, given="{}\n")
    assert f"at start-up, {log}: " in result.stderr and "4 bytes at position 68" in result.stderr
    assert "offsets 1 to 1" in result.stdout


@pytest.mark.slow
def test_dump_and_append_make_a_pipe(tmp_path: Path) -> None:
    source, target = ORDERS.partition_dir("orders-1"), tmp_path / "copy-0"
    dump = subprocess.Popen([*KTS, "dump", str(source), "--format", "jsonl"], stdout=subprocess.PIPE)
    command = [*KTS, "append", str(target), "--jsonl", "--create"]
    made = subprocess.run(command, stdin=dump.stdout, capture_output=True, text=True, timeout=PATIENCE_S)
    assert dump.wait(PATIENCE_S) == 0 and made.returncode == 0 and made.stderr == "", made.stderr
    assert [row[2:] for row in content(target)] == [row[2:] for row in content(source)]


@pytest.mark.slow
def test_ctrl_c_leaves_whole_batches_and_a_clean_log(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    command = [*KTS, "append", str(path), "--create", "--batch-records", "100"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stderr is not None
    child.stdin.write('{"value":"YQ=="}\n' * 1050)
    child.stdin.flush()
    log = path / f"{0:020d}.log"
    deadline = time.monotonic() + PATIENCE_S
    # Asleep in the next read: Python forgets a signal that comes just before a read, until the read is done.
    while not (log.exists() and kts.scan_batches(log.read_bytes()).num_rows == 10 and asleep(child.pid)):
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    said = child.stderr.read()
    assert child.wait(PATIENCE_S) == 130 and "kts: interrupted" in said
    assert "1,000 records up to line 1000 were appended, nothing after it" in said
    assert [batch["records"] for batch in batches(path)] == [100] * 10
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    result = append(path, given="{}\n")
    assert result.stderr == "" and "offsets 1000 to 1000" in result.stdout


def asleep(process: int) -> bool:
    """Whether a process waits in the kernel."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("S")


def test_headers_into_an_old_format_are_refused(tmp_path: Path) -> None:
    options = ["--create", "--config", "message.format.version=0.10.2"]
    result = append(tmp_path / "t-0", *options, given='{"headers":[["h","eA=="]]}', code=3)
    assert "kts: lines 1 to 1: " in result.stderr and "headers" in result.stderr


def test_a_full_disk_is_named_with_the_lines_that_did_not_fit(tmp_path: Path) -> None:
    text = '{"value":"YQ=="}\n' * 20
    most = 0
    for at in (2, 5, 8):
        path = tmp_path / str(at) / "t-0"
        append(path, "--create", given="{}\n")
        system = FaultyOs(str(path.parent), Fault(at, frozenset(["pwrite"]), errno.ENOSPC, lasting=True))
        with in_place_of_os(system):
            result = append(path, "--batch-records", 2, "--json", given=text, code=3)
        assert "No space left on device" in result.stderr
        [(first, last)] = re.findall(r"^kts: lines (\d+) to (\d+): ", result.stderr)
        appended = int(first) - 1
        assert int(last) == appended + 2
        assert (f"{appended} records up to line {appended}" if appended else "nothing was appended") in result.stderr
        answer = json.loads(result.stdout.splitlines()[-1])
        assert (answer["records"], answer["complete"]) == (appended, False)
        assert len(content(path)) == 1 + appended
        assert f"offsets {1 + appended} to {1 + appended}" in append(path, given="{}\n").stdout
        most = max(most, appended)
    assert most >= 4


def test_proposal_is_a_short_form_of_its_setting(tmp_path: Path) -> None:
    given = "".join(json.dumps({"timestamp": NOW + minute * 60_000}) + "\n" for minute in range(5))
    append(tmp_path / "a-0", "--create", "--batch-records", 1, "--proposal", "bucket-index", given=given)
    append(tmp_path / "b-0", "--create", "--batch-records", 1, "--config", "proposals=bucket-index", given=given)
    ours, theirs = ((tmp_path / name / f"{0:020d}.time.index").read_bytes() for name in ("a-0", "b-0"))
    assert ours == theirs and len(ours) == 5 * 12
    for wrong in (
        ["--proposal", "wall-clock", "--proposal", "earliest-timestamp"],
        ["--proposal", "minute-map", "--config", "proposals=bucket-index"],
        ["--proposal", "buckets"],
    ):
        append(tmp_path / "c-0", "--create", *wrong, given=given, code=2)
    assert not (tmp_path / "c-0").exists()
