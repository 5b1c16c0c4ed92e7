"""``kts dump`` against what Kafka's consumers saw."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import csv, dataset, parquet
from pyarrow.json import read_json
from support.coordinators import GROUPS, broker
from support.golden import Golden, Row, golden, golden_partitions, row_from_json
from support.processes.cli_runs import lines, run

import kts
from kts.cli.text import pieces
from kts.segment.segment import Segment


def topic_of(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def seen(scenario: Golden, partition: str) -> list[Row]:
    """What a consumer saw; records below the log start offset that are still in the files are left out."""
    return scenario.expected(partition)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "partition"), golden_partitions(), ids=str)
def test_json_lines_are_what_a_consumer_saw(scenario: Golden, partition: str) -> None:
    start = scenario.log_start_offset(partition)
    made = lines("dump", scenario.partition_dir(partition), "--offsets", f"{start}:")
    topic, number = topic_of(partition)
    assert [row_from_json(line) for line in made] == seen(scenario, partition)
    for line in made:
        assert list(line) == "topic partition offset timestamp timestampType key value headers".split()
        assert (line["topic"], line["partition"]) == (topic, number)


ORDERS = golden("demo", "orders")
EVERYTHING = [(topic_of(name), row) for name in ORDERS.partitions for row in ORDERS.expected(name)]


@pytest.mark.slow
def test_a_log_directory_comes_by_topic_partition_and_offset() -> None:
    made = lines("dump", ORDERS.log_dir)
    assert [((line["topic"], line["partition"]), row_from_json(line)) for line in made] == EVERYTHING
    several = lines("dump", *(ORDERS.partition_dir(name) for name in reversed(ORDERS.partitions)))
    assert several == made
    some = lines("dump", ORDERS.log_dir, "--topic", "orders", "--partition", "2", "--partition", "0")
    assert some == [line for line in made if line["partition"] != 1]
    files = lines("dump", *reversed(ORDERS.logs("orders-1")))
    assert files == [line for line in made if line["partition"] == 1]


FROM, TO = 1_788_776_640_000, 1_788_861_600_000  # 2026-09-07T10:24, 2026-09-08T10:00


def between(start: int | None, end: int | None, strict: bool) -> list[tuple[tuple[str, int], Row]]:
    """The range of times, the slow way."""
    kept: list[tuple[tuple[str, int], Row]] = []
    for name in ORDERS.partitions:
        records = ORDERS.expected(name)
        if strict:
            chosen = [
                r for r in records if (start is None or r.timestamp >= start) and (end is None or r.timestamp < end)
            ]
        else:
            first = next((i for i, r in enumerate(records) if start is None or r.timestamp >= start), len(records))
            last = next((i for i, r in enumerate(records) if end is not None and r.timestamp >= end), len(records))
            chosen = records[first:last]
        kept += [(topic_of(name), row) for row in chosen]
    return kept


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("start", "end"), [(FROM, TO), (None, TO), (FROM, None), (FROM, FROM)])
def test_ranges_of_time_are_those_of_a_slow_search(start: int | None, end: int | None, strict: bool) -> None:
    options: list[Any] = ["--from", start] if start is not None else []
    options += ["--to", end] if end is not None else []
    made = lines("dump", ORDERS.log_dir, *options, *["--no-strict"] * (not strict))
    assert [((line["topic"], line["partition"]), row_from_json(line)) for line in made] == between(start, end, strict)


@pytest.mark.slow
def test_ranges_of_offsets_and_limits_and_columns() -> None:
    path = ORDERS.partition_dir("orders-0")
    whole = lines("dump", path)
    assert lines("dump", path, "--offsets", "100:200") == whole[100:200]
    assert lines("dump", path, "--offsets", ":7") == whole[:7]
    assert lines("dump", path, "--offsets", "3000:") == whole[3000:]
    assert lines("dump", path, "--offsets=-2:-1") == whole
    assert lines("dump", ORDERS.log_dir, "--limit", 5000) == lines("dump", ORDERS.log_dir)[:5000]
    assert lines("dump", path, "--limit", 0) == []
    some = lines("dump", path, "--columns", "magic,offset,codec,control", "--limit", 1)
    assert some == [{"magic": 2, "offset": 0, "codec": "lz4", "control": False}]
    assert run("dump", path, "--columns", "topic", "--limit", 2).stdout == '{"topic":"orders"}\n' * 2


@pytest.mark.parametrize("kind", ["table", "jsonl", "csv"])
@pytest.mark.parametrize(
    "asked", [["--from", "2031-01-01", "--to", "2032-01-01"], ["--offsets", "0:0"], ["--key", "nobody"], ["--limit", 0]]
)
def test_a_dump_that_found_nothing_says_so(asked: list[object], kind: str) -> None:
    done = run("dump", ORDERS.log_dir, "--topic", "ord*", "--format", kind, *asked)
    assert [line for line in done.stderr.splitlines() if "0 records" in line], done.stderr
    assert "0 records" not in run("dump", ORDERS.log_dir, "--format", kind, "--limit", 1).stderr


def test_topics_by_patterns(tmp_path: Path) -> None:
    assert {line["topic"] for line in lines("ls", ORDERS.log_dir, "--topic", "o?ders", "--json")} == {"orders"}
    said = run("dump", ORDERS.log_dir, "--topic", "x*", code=2).stderr
    assert "no topic matches x*" in said and "there are orders" in said


def test_ranges_that_contradict_themselves_are_wrong_use() -> None:
    path = ORDERS.log_dir
    for options in (
        ["--offsets", "5:2"],
        ["--offsets", "5"],
        ["--offsets", "a:b"],
        ["--offsets", "-3:"],
        ["--offsets", "1:2", "--from", "0"],
        ["--from", "2026-09-02", "--to", "2026-09-01"],
        ["--strict"],
        ["--columns", "offset,offset"],
        ["--columns", "ofset"],
        ["--json", "--format", "csv"],
        ["--format", "table", "-o", "x"],
        ["-o", "x.xlsx"],
        ["-o", "/"],
        ["--limit", "-1"],
        ["--topic", "nope"],
        ["--partition", "9"],
    ):
        said = run("dump", path, *options, code=2).stderr
        assert len(said.splitlines()) <= 5 and "Traceback" not in said, options


def test_control_records_and_aborted_ones_come_only_when_asked() -> None:
    scenario = golden("3.9.2", "txn-none")
    for name in scenario.partitions:
        path = scenario.partition_dir(name)
        plain = lines("dump", path)
        control = lines("dump", path, "--include-control", "--columns", "offset,control")
        assert [line["offset"] for line in control if not line["control"]] == [line["offset"] for line in plain]
        assert any(line["control"] for line in control)
        committed = lines("dump", path, "--isolation", "read_committed")
        wanted = scenario.meta["partitions"][name].get("readCommittedOffsets")
        if wanted is not None:
            assert [line["offset"] for line in committed] == wanted


def test_text_that_is_not_utf8_is_refused_before_the_file_appears(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = kts.encode({"value": pa.array([b"fine", b"\xff\xfe"])}, base_offset=40)
    (folder / f"{40:020d}.log").write_bytes(data)
    for kind in ("jsonl", "csv", "parquet", "arrow"):
        said = run("dump", folder, "--values", "utf8", "-o", tmp_path / f"out.{kind}", code=2).stderr
        assert "the value of the record at offset 41" in said and "--values base64" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t-0"]
    assert lines("dump", folder, "--values", "hex")[1]["value"] == "fffe"


@pytest.mark.slow
def test_damage_is_exit_code_3_and_skipped_on_request(writable: Callable[[Golden], Golden], tmp_path: Path) -> None:
    scenario = writable(golden("demo", "clicks"))
    path = scenario.partition_dir("clicks-0")
    log = scenario.logs("clicks-0")[0]
    position = lines("batches", log, "--json")[3]["position"]
    data = bytearray(log.read_bytes())
    data[position + 70] ^= 1
    log.write_bytes(data)
    said = run("dump", path, "-o", tmp_path / "out.jsonl", code=3).stderr
    assert str(log) in said and str(position) in said and "Traceback" not in said
    assert not (tmp_path / "out.jsonl").exists()
    skipped = run("dump", path, "--on-error", "skip", code=1)
    left = [json.loads(line)["offset"] for line in skipped.stdout.splitlines()]
    batch = lines("batches", golden("demo", "clicks").partition_dir("clicks-0"), "--json")[3]
    lost = set(range(batch["baseOffset"], batch["lastOffset"] + 1))
    assert left == [row.offset for row in scenario.expected("clicks-0") if row.offset not in lost]
    assert "warning" in skipped.stderr and str(log) in skipped.stderr


def test_a_damaged_tail_is_told_or_skipped(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(golden("demo", "clicks"))
    last = scenario.logs("clicks-0")[-1]
    data = last.read_bytes()
    last.write_bytes(data + b"\0" * 300)
    run("dump", scenario.log_dir, code=3)
    skipped = run("dump", scenario.log_dir, "--on-error", "skip", code=1)
    assert len(skipped.stdout.splitlines()) == 8000 and str(last) in skipped.stderr
    last.write_bytes(data[:-20])  # a cut tail is a dead writer, not damage
    assert 7900 < len(run("dump", scenario.log_dir, "--on-error", "skip").stdout.splitlines()) < 8000


def test_a_table_shows_the_first_records_and_says_that_there_are_more() -> None:
    result = run("dump", ORDERS.log_dir, "--format", "table")
    assert len(result.stdout.splitlines()) == 21
    assert "first 20 records" in result.stderr
    assert "the first 1 record; more" in run("dump", ORDERS.log_dir, "--format", "table", "--limit", 1).stderr
    assert '{"order_id":500004,"customer":"C0345"' in result.stdout
    assert "2026-09-01T04:03:12.531Z" in result.stdout and "source=shop" in result.stdout
    few = run("dump", ORDERS.log_dir, "--format", "table", "--offsets", "0:1")
    assert len(few.stdout.splitlines()) == 4 and few.stderr == ""


def test_internal_topics_are_left_out_unless_named(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "t-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(kts.encode({"value": pa.array([name.encode()])}))
    assert [line["topic"] for line in lines("dump", tmp_path)] == ["t"]
    assert [line["topic"] for line in lines("dump", tmp_path, "--topic", "__consumer_offsets")] == [
        "__consumer_offsets"
    ]
    assert len(lines("dump", tmp_path / "__consumer_offsets-0")) == 1
    assert len(lines("ls", tmp_path, "--json")) == 2


def test_a_table_escapes_header_keys_that_would_steer_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(kts.encode({"value": [b"v"], "headers": [[("\x1b]0;title\x07h\n", b"x")]]}))
    shown = run("dump", log, "--format", "table").stdout
    assert "\x1b" not in shown and r"\u001b]0;title\u0007h\u000a=x" in shown


def test_records_of_internal_topics_are_decoded_to_columns(tmp_path: Path) -> None:
    made = lines("dump", broker("4.3.1"), "--decoder", "offsets")
    [first, *_] = [line for line in made if line["recordType"] == "OffsetCommit" and line["group"] == "billing"]
    assert (first["committedTopic"], first["committedPartition"], first["committedOffset"]) == ("orders", 0, 1)
    assert first["members"] is None
    [members] = [line["members"] for line in made if line["group"] == "readers" and line["members"]]
    assert members[0]["assignedPartitions"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert base64.b64decode(members[0]["subscription"]).startswith(b"\0")
    [new, *_] = [line for line in made if line["recordType"] == "ConsumerGroupMemberMetadata"]
    assert (new["group"], new["groupType"], new["subscribedTopics"]) == ("modern", "Consumer", ["orders"])
    assert json.loads(new["details"])["rebalanceTimeoutMs"] == 300_000
    assert new["committedOffset"] is None

    said = run("dump", broker("4.3.1") / "orders-0", "--decoder", "offsets", code=3).stderr
    assert "offset 0 of orders-0 is not a record of __consumer_offsets: key: expected a version" in said
    run("dump", broker("4.3.1") / "orders-0", "--decoder", "offsets", "--on-error", "skip", code=1)

    shown = run("dump", broker("4.3.1"), "--decoder", "transactions", "--format", "table").stdout.splitlines()
    assert "transactionState" in shown[0]
    assert any("Ongoing" in line and "orders-0, __consumer_offsets-1" in line for line in shown)
    shown = run("dump", GROUPS, "--decoder", "share", "--format", "table").stdout.splitlines()
    assert [line.split()[-1] for line in shown].count("True") == 1, "a deleted group"
    for suffix, rows in (("csv", 1), ("parquet", 0), ("arrow", 0)):
        out = tmp_path / f"out.{suffix}"
        run("dump", broker("4.3.1"), "--decoder", "offsets", "-o", out)
        table = csv.read_csv(out) if rows else dataset.dataset(out, format=suffix).to_table()
        assert table.num_rows == len(made)
        assert table.schema.names == list(made[0])


# --- keys, values and times as asked -----------------------------------------------------------------


BINARY = b"\xff\x00"
MIXED = [b'{"a": 1}', None, BINARY, b"text"]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A partition with one binary key and value among text ones."""
    (tmp_path / "t-0").mkdir()
    rows = {"key": pa.array(MIXED), "value": pa.array(MIXED), "timestamp": [-1, 0, 1_788_256_800_000, 2**62]}
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(kts.encode(rows))
    return tmp_path / "t-0"


def test_with_auto_a_binary_record_ends_no_dump(mixed: Path, tmp_path: Path) -> None:
    asked = ["--keys", "auto", "--values", "auto"]
    wanted = ['{"a": 1}', None, "0xff00", "text"]
    assert [(line["key"], line["value"]) for line in lines("dump", mixed, *asked)] == list(
        zip(wanted, wanted, strict=True)
    )
    run("dump", mixed, *asked, "-o", tmp_path / "x.parquet")
    assert parquet.read_table(tmp_path / "x.parquet")["value"].to_pylist() == wanted
    table = run("dump", mixed, "--format", "table").stdout
    assert "0xff00" in table and "null" in table, "auto is the default of tables"
    assert lines("dump", mixed)[2]["value"] == "/wA=", "and base64 that of JSON lines"


def test_json_values_are_values_and_others_end_the_dump(mixed: Path, tmp_path: Path) -> None:
    assert lines("dump", mixed, "--values", "json", "--offsets", ":2", "--columns", "value") == [
        {"value": {"a": 1}},
        {"value": None},
    ]
    for first, found in ((2, "is not UTF-8 (byte 0xff at 0)"), (3, "is not JSON")):
        said = run("dump", mixed, "--values", "json", "--offsets", f"{first}:", code=2).stderr
        assert f"the value of the record at offset {first} of t-0 {found}" in said and "--values base64" in said


def test_times_are_iso_on_request_and_in_the_zone_that_is_asked_for(mixed: Path, tmp_path: Path) -> None:
    def times(*options: str) -> list[Any]:
        return [line["timestamp"] for line in lines("dump", mixed, "--columns", "timestamp", *options)]

    assert times() == [-1, 0, 1_788_256_800_000, 2**62]
    assert times("--times", "iso") == [None, "1970-01-01T00:00:00.000Z", "2026-09-01T10:00:00.000Z", 2**62]
    berlin = ["--tz", "Europe/Berlin"]
    assert times("--times", "iso", *berlin)[2] == "2026-09-01T12:00:00.000+02:00"
    assert "2026-09-01T12:00:00.000+02:00" in run("dump", mixed, "--format", "table", *berlin).stdout
    assert times(*berlin, "--from", "2026-09-01T12:00", "--to", "2026-09-01T12:01", "--strict") == [1_788_256_800_000]
    assert times(*berlin, "--from", "2026-09-01T12:00Z", "--to", "2026-09-01T13:00Z", "--strict") == []
    run("dump", mixed, "--times", "iso", "-o", tmp_path / "x.csv")
    assert '"2026-09-01T10:00:00.000Z"' in (tmp_path / "x.csv").read_text()
    assert "expected a time zone" in run("dump", mixed, "--tz", "Mars/Olympus", code=2).stderr
    assert (
        "--times is for JSON lines and CSV" in run("dump", mixed, "--times", "iso", "--format", "table", code=2).stderr
    )


# --- some of the records -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 7, 5000])
def test_the_tail_is_the_end_of_the_whole(count: int) -> None:
    whole = [lines("dump", ORDERS.partition_dir(name)) for name in ORDERS.partitions]
    assert lines("dump", ORDERS.log_dir, "--tail", count) == [line for part in whole for line in part[-count:]]
    wanted = [line for line in whole[1] if b'"C0061"' in base64.b64decode(line["value"])]
    part = ORDERS.partition_dir("orders-1")
    assert lines("dump", part, "--tail", count, "--grep", '"C0061"') == wanted[-count:]
    assert lines("dump", part, "--tail", count, "--offsets", "10:500") == whole[1][10:500][-count:]
    before = ["--to", "2026-09-05", "--tail", count]
    assert lines("dump", part, *before) == lines("dump", part, "--to", "2026-09-05")[-count:]


def test_the_tail_reads_the_end_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cheap however long the log is: it reads only the last segment."""
    read = list[str]()
    slices = Segment.slices

    def noted(self: Segment, *arguments: Any, **named: Any) -> Any:
        read.append(self.path)
        return slices(self, *arguments, **named)

    monkeypatch.setattr(Segment, "slices", noted)
    lines("dump", ORDERS.partition_dir("orders-0"), "--tail", 3)
    assert set(read) == {str(ORDERS.logs("orders-0")[-1])}


def test_records_are_chosen_by_key_and_by_what_they_contain() -> None:
    path = ORDERS.partition_dir("orders-0")
    whole = lines("dump", path, "--keys", "utf8", "--values", "utf8")

    def chosen(*options: str) -> list[Any]:
        return lines("dump", path, "--keys", "utf8", "--values", "utf8", *options)

    assert chosen("--key", "C0345") == [line for line in whole if line["key"] == "C0345"] != []
    regex = r"(?i)\bESPRESSO.*GBP|^C00\d9$"
    wanted = [line for line in whole if re.search(regex, line["value"]) or re.search(regex, line["key"])]
    assert chosen("--grep", regex) == wanted != []
    assert (
        chosen("--grep", "espresso", "--key", "C0345", "--limit", "2")
        == [line for line in whole if "espresso" in line["value"] and line["key"] == "C0345"][:2]
    )
    assert [list(line) for line in chosen("--grep", regex, "--columns", "offset")] == [["offset"]] * len(wanted)
    assert "missing )" in run("dump", path, "--grep", "(", code=2).stderr
    assert chosen("--key", "\u00e9") == []


def test_grep_finds_characters_and_what_is_no_text(mixed: Path) -> None:
    assert [line["offset"] for line in lines("dump", mixed, "--grep", "^te.t$")] == [3]
    assert [line["offset"] for line in lines("dump", mixed, "--grep", "\\x00")] == [2]
    assert [line["offset"] for line in lines("dump", mixed, "--key", "text")] == [3]


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".csv.gz", ".jsonl.zst", ".csv.zst"])
def test_files_are_compressed_by_their_suffix(suffix: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / f"x{suffix[:-3].rstrip('.')}", tmp_path / f"x{suffix}"
    if suffix.endswith("zst"):
        plain = tmp_path / f"x{suffix[:-4]}"
    run("dump", ORDERS.log_dir, "-o", plain)
    run("dump", ORDERS.log_dir, "-o", packed)
    data = packed.read_bytes()
    assert len(data) < plain.stat().st_size / 3
    read = gzip.decompress(data) if suffix.endswith("gz") else zstandard.ZstdDecompressor().stream_reader(data).read()
    assert read == plain.read_bytes()
    assert "leave out" in run("dump", ORDERS.log_dir, "-o", tmp_path / "x.parquet.gz", code=2).stderr
    assert sorted(tmp_path.iterdir()) == sorted([plain, packed])


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_text_is_the_same_on_one_core_and_on_several(
    count: int, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces are converted and compressed side by side; their order is that of the records, up to a value in error."""
    monkeypatch.setattr("kts.cli.text.pieces", partial(pieces, limit=1 << 14))
    for module in ("text", "dump"):
        monkeypatch.setattr(f"kts.cli.{module}.cores", lambda: count)
    expected = kts.scan(ORDERS.log_dir, columns=["topic", "partition", "offset"]).read_all().to_pylist()
    for suffix in (".jsonl", ".jsonl.gz", ".csv", ".csv.gz"):
        path = tmp_path / f"x{suffix}"
        run("dump", ORDERS.log_dir, "-o", path)
        data = gzip.decompress(path.read_bytes()) if suffix.endswith(".gz") else path.read_bytes()
        read = csv.read_csv(pa.BufferReader(data)) if ".csv" in suffix else read_json(pa.BufferReader(data))
        assert read.select(["topic", "partition", "offset"]).to_pylist() == expected
    refused = run("dump", mixed, "--values", "utf8", "--format", "jsonl", code=2)
    assert "the value of the record at offset 2 of t-0 is not UTF-8" in refused.stderr


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".csv.gz", ".jsonl.zst"])
def test_a_full_disk_ends_a_dump_with_the_name_of_its_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.symlink_to("/dev/full")
    assert f"kts: {path}: No space left on device" in run("dump", ORDERS.log_dir, "-o", path, code=3).stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tail 5 --limit 5", "--tail and --limit exclude each other"),
        ("--tail 0", "'--tail': 0 is not in the range"),
        ("--allowed-lateness 1h", "give --to, without --no-strict"),
        ("--no-strict", "--no-strict needs --from or --to"),
        ("--no-strict --to 2026-09-02 --allowed-lateness 1h", "give --to, without --no-strict"),
        ("--to 2026-09-02 --allowed-lateness soon", "found 'soon', or unlimited"),
        ("--expand --json", "leave out --json, --format and -o"),
        ("--expand -o x.csv", "leave out --json, --format and -o"),
        ("-o x.gz", "there is no suffix that names a format"),
        ("-o x.doc", "no format has the suffix .doc"),
    ],
)
def test_what_excludes_each_other_is_wrong_use(options: str, words: str) -> None:
    assert words in run("dump", ORDERS.log_dir, *options.split(), code=2).stderr


def test_expanded_records_are_whole() -> None:
    shown = run("dump", ORDERS.log_dir, "--expand", "--limit", 2).stdout
    assert shown.count("-[ RECORD ") == 2
    value = ORDERS.expected("orders-0")[0].value
    assert value is not None and f"value     | {value.decode()}\n" in shown


def test_jobs_change_nothing_but_the_time() -> None:
    one = run("dump", ORDERS.log_dir, "--format", "jsonl")
    assert run("dump", ORDERS.log_dir, "--format", "jsonl", "--jobs", 3).stdout == one.stdout
    assert one.stdout.count("\n") == len(EVERYTHING)
    assert "--jobs" in run("dump", ORDERS.log_dir, "--jobs", 0, code=2).stderr
