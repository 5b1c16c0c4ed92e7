"""``kts batches``: the header scan with names for numbers, and bad CRCs."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from support.golden import Golden, golden, golden_partitions
from support.processes.cli_runs import lines, run

import kts


def test_batches_are_the_header_scan_with_names_for_numbers() -> None:
    for scenario, name in golden_partitions():
        if scenario.version != "demo":
            continue
        rows = lines("batches", scenario.partition_dir(name), "--json")
        scanned = [
            row | {"segment": int(log.name[:20]), "path": str(log), "records": row.pop("count")}
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
