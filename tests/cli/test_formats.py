"""The columnar formats of ``kts dump``: the same records, whole files, and what Parquet makes of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.golden import golden, golden_partitions, rows
from support.processes.cli_runs import run

import kts

ORDERS = golden("demo", "orders")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columnar_files_hold_the_same_records(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"orders.{kind}"
    assert run("dump", ORDERS.log_dir, "-o", path).stdout == ""
    table = parquet.read_table(path) if kind == "parquet" else pa.ipc.open_file(path).read_all()
    assert table.schema.names == "key value topic partition offset timestamp timestampType headers".split()
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert table.schema.field("value").type == pa.binary()
    expected = [(name, row) for name in ORDERS.partitions for row in ORDERS.expected(name)]
    assert rows(table) == [row for _, row in expected]
    places = zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)
    assert [f"{topic}-{partition}" for topic, partition in places] == [name for name, _ in expected]
    as_text = tmp_path / f"text.{kind}"
    run("dump", ORDERS.log_dir, "-o", as_text, "--values", "utf8", "--keys", "hex")
    again = parquet.read_table(as_text) if kind == "parquet" else pa.ipc.open_file(as_text).read_all()
    assert again["value"].to_pylist() == [None if v is None else v.decode() for v in table["value"].to_pylist()]
    assert again["key"].to_pylist() == [None if k is None else k.hex() for k in table["key"].to_pylist()]


@pytest.mark.parametrize(("different", "encoding"), [(100, "RLE_DICTIONARY"), (1000, "PLAIN")])
def test_parquet_has_a_dictionary_of_keys_that_repeat(different: int, encoding: str, tmp_path: Path) -> None:
    keys = [b"user-%d" % (number % different) for number in range(1000)]
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(kts.encode({"key": keys, "timestamp": [(-1) ** n * 2**52 for n in range(1000)]}))
    run("dump", path, "-o", tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table["key"].to_pylist() == keys
    assert table["offset"].to_pylist() == list(range(1000))
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [(-1) ** n * 2**52 for n in range(1000)]
    group = parquet.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    assert encoding in encodings["key"] and ("RLE_DICTIONARY" in encodings["key"]) == (different == 100)
    assert "DELTA_BINARY_PACKED" in encodings["offset"] and "DELTA_BINARY_PACKED" in encodings["timestamp"]
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}


def test_extreme_timestamps_keep_their_64_bits_but_in_parquet_what_microseconds_hold(tmp_path: Path) -> None:
    """Spark reads no Parquet file with a time in ms that microseconds do not hold: see tests/spark/test_frames.py."""
    extremes = [
        (scenario, name) for scenario, name in golden_partitions() if scenario.name.startswith(("extreme", "notime"))
    ]
    assert extremes
    for scenario, name in extremes:
        expected = scenario.expected(name)
        path = scenario.partition_dir(name)
        for kind in ("parquet", "arrow", "csv"):
            run("dump", path, "-o", tmp_path / f"x.{kind}")
        far = [row.timestamp for row in expected if abs(row.timestamp) > (2**63 - 1) // 1000]
        times = parquet.read_table(tmp_path / "x.parquet")["timestamp"].cast(pa.int64()).to_pylist()
        assert times == [None if row.timestamp in far else row.timestamp for row in expected]
        told = run("dump", path, "-o", tmp_path / "x.parquet").stderr
        assert (f"{len(far)} times are null" in told) == bool(far) and str(far[0] if far else "") in told
        assert rows(pa.ipc.open_file(tmp_path / "x.arrow").read_all()) == expected
        with (tmp_path / "x.csv").open(newline="") as file:
            assert [int(row["timestamp"]) for row in csv.DictReader(file)] == [row.timestamp for row in expected]


def test_arrow_in_a_pipe_is_a_stream() -> None:
    made = run("dump", ORDERS.partition_dir("orders-0"), "--format", "arrow").stdout_bytes
    assert rows(pa.ipc.open_stream(made).read_all()) == ORDERS.expected("orders-0")


def test_nothing_to_write_is_still_a_whole_file(tmp_path: Path) -> None:
    for kind in ("parquet", "arrow", "csv", "jsonl"):
        run("dump", ORDERS.log_dir, "--offsets", "0:0", "-o", tmp_path / f"x.{kind}")
    assert parquet.read_table(tmp_path / "x.parquet").num_rows == 0
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().num_rows == 0
    assert (tmp_path / "x.csv").read_text().startswith('"topic","partition"')
    assert (tmp_path / "x.jsonl").read_bytes() == b""
