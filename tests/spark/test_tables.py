"""``kts.spark.sync`` and ``kts sync`` leave the same Iceberg table, and each goes on where the other one ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.golden import scaled
from support.kafka.jvm import require_spark
from support.processes.dying import DIES_TOO
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.tables import data_files, iceberg_table, query

import kts
from kts.codec.micros import MAX_MS
from kts.tables import sync

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
NOW = 1_767_225_600_000  # 2026-01-01


class Session:
    """The application of ``sync_job.py``, asked line by line."""

    def __init__(self, work: Path) -> None:
        script = Path(__file__).with_name("sync_job.py")
        settings = json.dumps(iceberg_settings(work))
        self.said = work / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*DIES_TOO, sys.executable, str(script), settings],
                env=os.environ | iceberg_environ(),
                cwd=work,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def sync(self, **asked: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.said.read_text(errors="replace")[-4000:]
        return json.loads(line)

    def close(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0, self.said.read_text(errors="replace")[-4000:]


# Iceberg's Spark is a second environment, which `make test` does not fetch.
@pytest.mark.parametrize("first", ["spark"][: scaled(0, 1)])
def test_spark_and_pyiceberg_go_on_in_one_table(tmp_path: Path, first: str) -> None:
    # Half a minute of Spark: that both leave the same table can only be seen from both.
    require_spark()
    schema = tmp_path / "schema.json"
    schema.write_text(SCHEMA)
    catalog = tmp_path / "catalog.sqlite"
    decoded = {"value_format": "json", "value_schema": str(schema)}
    session = Session(tmp_path)
    offsets: list[tuple[int, int]] = []
    refused: list[tuple[int, int]] = []
    with kts.Log(tmp_path / "logs" / "t-0") as one, kts.Log(tmp_path / "logs" / "t-1") as other:
        for turn in range(4):
            for number, log in enumerate((one, other)):
                end = log.log_end_offset
                values = [b'{"a":%d}' % offset if offset % 3 else b"{" for offset in range(end, end + 7)]
                times = [NOW, NOW + 86_400_000, MAX_MS + 1, *[NOW] * 4]
                log.append_rows({"value": values, "timestamp": times}, unit="ms")
                log.checkpoint()
                for offset in range(end, end + 7):
                    (offsets if offset % 3 else refused).append((number, offset))
            path = str(tmp_path / "logs")
            if (turn % 2 == 0) == (first == "spark"):
                found = session.sync(path=path, table="lake.db.rows", **decoded)
                assert set(found) == {"lake.db.rows", "lake.db.rows_rejected"}, found
                assert found["lake.db.rows"]["rows"] == sorted(map(list, offsets))
                assert found["lake.db.rows_rejected"]["rows"] == sorted(map(list, refused))
                added = [found[name]["added"][0] for name in found]
            else:
                done = sync(path, "lake.db.rows", catalog=catalog, **decoded)  # type: ignore[arg-type]
                added = [table.records for table in done.tables]
            assert sum(added) == 14 and added[0] > added[1] > 0
    assert session.sync(path=path, table="lake.db.rows", **decoded)["lake.db.rows"]["added"] == [0, 0, 0, 0]
    wrong = session.sync(path=path, table="lake.db.rows")
    assert wrong["raised"] == "InvalidRequestError" and "expected the column value of type binary" in wrong["said"]
    session.close()

    rows = query(data_files(catalog), 'SELECT partition, "offset", value.a, timestampMs FROM rows ORDER BY ALL')
    assert [row[:2] for row in rows] == sorted(offsets) and all(row[1] == row[2] for row in rows)
    counts = "count(*) FILTER (day IS NULL), count(*) FILTER (timestamp IS NULL), count(*) FILTER (timestampMs > 2e15)"
    (none, unheld, far) = query(data_files(catalog), f"SELECT {counts} FROM rows")[0]
    assert none == unheld == far > 0
    assert [ref for ref in iceberg_table(catalog).refs() if ref != "main"] == []
