"""Topics whose schemas a real registry wrote, and whose records real serialisers wrote: `tests/data/registry`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support import TESTS

import kts
import kts.avro
from kts.errors import UnknownTopicOrPartitionError
from kts.tables import avro_schemas, sync
from kts.tables.values import RECORD, registered

DATA = TESTS / "data/registry/karapace"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())


def rows(folder: Path, column: str) -> dict[int, Any]:
    """A column by offset."""
    tables = [pq.read_table(path, columns=["offset", column]) for path in folder.glob("day=*/*.parquet")]
    return {row["offset"]: row[column] for table in tables for row in table.to_pylist()}


def test_the_newest_versions_are_those_that_the_registry_answered() -> None:
    schemas = registered(kts.scan(DATA / "_schemas-0", columns=RECORD).read_all())
    newest = {subject: (one.format, json.loads(one.text)) for subject, one in schemas.newest.items()}
    assert newest == {
        subject: (one.get("schemaType", "AVRO").lower(), json.loads(one["schema"]))
        for subject, one in EXPECTED["newest"].items()
    }


@pytest.mark.parametrize(("topic", "value_format"), [("orders", "avro"), ("clicks", "json")])
def test_values_decode_as_by_confluents_deserialisers(tmp_path: Path, topic: str, value_format: str) -> None:
    done = sync(DATA, tmp_path / "t", topics=topic, value_format=value_format, registry=True)
    found = rows(tmp_path / "t", "value")
    refused = rows(tmp_path / "t_rejected", "reason")
    expected = {offset: value for offset, value in EXPECTED["records"][topic]}
    wrong = {offset for offset, value in expected.items() if value is not None and "error" in value}
    assert {*refused} == wrong and [one.records for one in done.tables] == [len(expected) - len(wrong), len(wrong)]
    assert len(wrong) > 0 and all(refused.values())
    plain = json.loads(json.dumps(found, default=str))
    assert plain == {str(offset): value for offset, value in expected.items() if offset not in wrong}


def test_a_columns_values_decode_by_the_schemas_of_the_topic() -> None:
    schemas = avro_schemas(DATA)
    newest = json.loads(EXPECTED["newest"]["orders-value"]["schema"])
    [number] = [number for number, one in schemas.items() if json.loads(one.text) == newest]
    decoder = kts.avro.AvroDecoder(schemas, reader_schema=schemas[number])
    scanned = kts.scan(DATA / "orders-0", columns=["offset", "value"]).read_all().combine_chunks()
    found = decoder.decode_all(scanned.column("value").chunk(0))
    made = dict(zip(scanned.column("offset").to_pylist(), found.values.to_pylist(), strict=True))
    expected = {offset: value for offset, value in EXPECTED["records"]["orders"]}
    wrong = {offset for offset, value in expected.items() if value is not None and "error" in value}
    plain = json.loads(json.dumps(made, default=str))
    assert plain == {str(offset): None if offset in wrong else value for offset, value in expected.items()}
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic _schemas"):
        avro_schemas(DATA / "orders-0")
