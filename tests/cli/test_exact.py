"""``kts dump --exact | kts append --exact``: the same log, or a reason why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.golden import golden
from support.processes.cli_runs import run

import kts
from kts.cli import main

TXN = golden("3.9.2", "txn-none")
SOURCE = TXN.partition_dir(TXN.partitions[0])


def append(target: Path, *arguments: object, given: bytes = b"", code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["append", str(target), "--exact", *map(str, arguments)], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    return result


def segments(path: Path) -> dict[str, bytes]:
    return {log.name: log.read_bytes() for log in path.glob("*.log")}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A log of two batches: offsets 0 to 2, and 10."""
    with kts.Log(tmp_path / "there" / "t-3") as log:
        log.append_as_follower(kts.encode({"timestamp": [5, -1, 2**62], "key": [b"k", None, b"\xff"]}))
        log.append_as_follower(kts.encode({"headers": [[{"key": "é", "value": b""}]]}, base_offset=10))
    return tmp_path / "there" / "t-3"


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_transactions_come_back_from_files_of_each_format(kind: str, tmp_path: Path) -> None:
    file, target = tmp_path / f"x.{kind}", tmp_path / "again" / SOURCE.name
    run("dump", SOURCE, "--exact", "-o", file)
    answer = json.loads(append(target, "--create", "--check", "-i", file, "--json").stdout)
    assert segments(target) == segments(SOURCE)
    assert answer["complete"] and answer["logEndOffset"] == kts.open_partition(SOURCE).log_end_offset
    assert answer["batches"] == sum(len(kts.scan_batches(data)) for data in segments(SOURCE).values())
    assert "OK" in run("verify", target, "--deep").stdout


@pytest.mark.parametrize("kind", ["jsonl", "arrow"])
def test_a_pipe_has_lines_or_an_arrow_stream(small: Path, kind: str, tmp_path: Path) -> None:
    data = run("dump", small, "--exact", "--format", kind).stdout_bytes
    append(tmp_path / "again" / "t-3", "--create", given=data)
    assert segments(tmp_path / "again" / "t-3") == segments(small)


def test_a_line_says_all_of_a_record_and_its_batch(small: Path) -> None:
    lines = [json.loads(line) for line in run("dump", small, "--exact").stdout.splitlines()]
    assert lines[2] == {
        **{"topic": "t", "partition": 3, "segment": 0, "position": 0, "records": 3, "magic": 2, "attributes": 0},
        **{"baseOffset": 0, "lastOffsetDelta": 2, "baseTimestamp": 5, "maxTimestamp": 2**62},
        **{"partitionLeaderEpoch": -1, "producerId": -1, "producerEpoch": -1, "sequence": -1},
        **{"offset": 2, "timestamp": 2**62, "createTimestamp": 2**62, "key": "/w==", "value": None, "headers": []},
    }
    assert lines[3]["headers"] == [["é", ""]] and lines[3]["offset"] == 10


def test_offsets_that_exist_are_refused_and_nothing_is_appended(small: Path) -> None:
    dump, before = run("dump", small, "--exact").stdout_bytes, segments(small)
    answer = append(small, given=dump, code=3)
    assert "row 1: offset 0 exists: the log ends at 11; nothing was appended" in answer.stderr
    assert segments(small) == before


def test_a_log_goes_on_after_a_gap(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "again" / "t-3"
    lines = run("dump", small, "--exact").stdout_bytes.splitlines(keepends=True)
    append(target, "--create", given=b"".join(lines[:3]))
    append(target, given=lines[3])
    assert segments(target) == segments(small)


def test_blank_lines_are_no_rows(small: Path, tmp_path: Path) -> None:
    text = run("dump", small, "--exact").stdout_bytes.replace(b"\n", b"\n\n")
    append(tmp_path / "again" / "t-3", "--create", given=text)
    assert segments(tmp_path / "again" / "t-3") == segments(small)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda lines: lines[:1], "row 1: expected 3 rows of its batch, found 1; nothing was appended"),
        (lambda lines: [*lines[:3], b'{"offset":1}\n'], "row 4: topic is missing; 1 batch up to row 3 were appended"),
        (lambda lines: [*lines, b"null\n"], "line 5: not of kts dump --exact: expected a JSON object"),
        (lambda lines: [*lines, b'{"x":1}\n'], "line 5: not of kts dump --exact"),
        (lambda lines: [*lines, lines[0][:-9]], "line 5: not of kts dump --exact"),
        (lambda lines: [*lines, lines[3].replace(b'"key":null', b'"key":"?"')], "line 5: not of kts dump --exact"),
        (lambda lines: [lines[3].replace(b'"magic":2', b'"magic":900')], "line 1: not of kts dump --exact"),
        (lambda lines: [lines[3].replace(b'"magic":2', b'"magic":9')], "row 1: .*magic 9"),
        (lambda lines: [], "expected rows of kts dump --exact, found none; nothing was appended"),
    ],
)
def test_what_is_no_exact_dump_is_named_with_its_place(change, words: str, small: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import re

    lines = run("dump", small, "--exact").stdout_bytes.splitlines(keepends=True)
    answer = append(tmp_path / "again" / "t-3", "--create", given=b"".join(change(lines)), code=3)
    assert re.search(words, answer.stderr), answer.stderr


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_another_file_and_a_cut_one_are_refused(kind: str, small: Path, tmp_path: Path) -> None:
    plain, cut = tmp_path / f"plain.{kind}", tmp_path / f"cut.{kind}"
    run("dump", small, "-o", plain)
    run("dump", small, "--exact", "-o", cut)
    cut.write_bytes(cut.read_bytes()[:-20])
    target = tmp_path / "again" / "t-3"
    assert "there is no column segment" in append(target, "--create", "-i", plain, code=3).stderr
    assert "not a whole file" in append(target, "--create", "-i", cut, code=3).stderr


def test_another_partition_is_refused_with_check_and_renamed_without(small: Path, tmp_path: Path) -> None:
    dump = run("dump", small, "--exact").stdout_bytes
    refused = append(tmp_path / "again" / "u-0", "--create", "--check", given=dump, code=3)
    assert "row 1: expected u-0, found t-3" in refused.stderr
    append(tmp_path / "again" / "u-0", given=dump)
    assert segments(tmp_path / "again" / "u-0") == segments(small)


@pytest.mark.parametrize(
    "options",
    [["--limit", 1], ["--offsets", "0:1"], ["--keys", "utf8"], ["--isolation", "read_committed"], ["--tail", 1]],
)
def test_an_exact_dump_has_no_choice_of_records(options: list[object], small: Path) -> None:
    answer = run("dump", small, "--exact", *options, code=2)
    assert f"--exact keeps all batches as they are: leave out {options[0]}" in " ".join(answer.stderr.split())


def test_an_exact_dump_has_one_partition_and_a_format_that_holds_it(small: Path) -> None:
    shutil.copytree(small, small.with_name("t-4"))
    assert "here are 2" in run("dump", small.parent, "--exact", code=2).stderr
    assert run("dump", small.parent, "--exact", "--partition", 4).stdout.count("\n") == 4
    assert "the format is csv" in run("dump", small, "--exact", "--format", "csv", code=2).stderr


def test_deleted_records_in_an_exact_dump_are_told(small: Path) -> None:
    with kts.Log(small) as log:
        log.advance_high_watermark(11)
        log.advance_log_start_offset(1)
    answer = run("dump", small, "--exact")
    assert answer.stdout.count("\n") == 4 and "before the log start offset 1" in answer.stderr


def test_an_exact_append_takes_no_codec(small: Path) -> None:
    answer = append(small, "--compression", "zstd", code=2)
    assert "leave out --compression" in " ".join(answer.stderr.split())
