"""The columns of the metadata log's records beside what Kafka's own classes read."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.clusters import LOG, VERSIONS, cluster_of, records_of, written
from support.golden import scaled

import kts
from kts.cluster_records.columns import COLUMNS, column_types, decode_records
from kts.cluster_records.layout import NO_OP, record_types, write_record
from kts.cluster_records.secrets import HIDDEN, SECRETS, is_secret_setting

Row = dict[str, Any]


def decoded(values: list[bytes | None]) -> tuple[list[Row], dict[int, str]]:
    columns, refused = decode_records(COLUMNS, pa.array(values, pa.binary()))
    assert {name: column.type for name, column in columns.items()} == column_types()
    return pa.table(columns).to_pylist(), refused


def check(row: Row, expected: Row) -> None:
    """A row beside Kafka's JSON, of which secrets may be left out."""
    name = record_types()[expected["apiKey"]].name
    data = {key: value for key, value in expected["data"].items() if key not in SECRETS.get(name, ())}
    fields = json.loads(row["fields"])
    for secret in SECRETS.get(name, ()):
        assert fields.pop(secret) == HIDDEN
    if name == "Config" and data["value"] is not None and is_secret_setting(data["resourceType"], data["name"]):
        data["value"] = HIDDEN
    assert fields == data
    assert (row["recordType"], row["apiKey"], row["recordVersion"]) == (name, expected["apiKey"], expected["version"])
    assert row["topicId"] == data.get("topicId")
    assert row["partitionId"] == data.get("partitionId")
    assert row["brokerId"] == (data["id"] if name in ("FenceBroker", "UnfenceBroker") else data.get("brokerId"))
    if name == "Config":
        assert [row[key] for key in ("resourceName", "configKey", "configValue", "name")] == [
            *(data[key] for key in ("resourceName", "name", "value")),
            None,
        ]
    else:
        assert row["name"] == data.get("name", data.get("topicName"))
        assert row["configKey"] is row["configValue"] is None


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_real_brokers_are_what_kafkas_classes_read(version: str) -> None:
    for file, expected in records_of(cluster_of(version)).items():
        path = cluster_of(version) / (file if file == "bootstrap.checkpoint" else f"{LOG}/{file}")
        rows = kts.scan(path, decoder="metadata").read_all().to_pylist()
        assert [row["offset"] for row in rows] == [row["offset"] for row in expected]
        assert all(row["unknown"] is None for row in rows)
        for row, one in zip(rows, expected, strict=True):
            check(row, one)


def test_values_of_every_type_and_version_are_what_kafkas_classes_wrote() -> None:
    rows, refused = decoded([base64.b64decode(one["bytes"]) for one in written()])
    assert not refused
    for row, expected in zip(rows, written(), strict=True):
        check(row, expected)


def test_no_secret_is_in_any_column() -> None:
    values: list[bytes | None] = [
        write_record("Config", 0, {"resourceType": 4, "resourceName": "1", "name": name, "value": "wonderland"})
        for name in (
            "ssl.keystore.password",
            "listener.name.internal.ssl.key.password",
            "sasl.jaas.config",
            "my.reporter.token",
        )
    ]
    values += [
        write_record(
            "UserScramCredential",
            0,
            {
                "name": "a",
                "mechanism": 1,
                "iterations": 1,
                **dict.fromkeys(SECRETS["UserScramCredential"], b"wonderland"),
            },
        )
    ]
    rows, refused = decoded(values)
    hidden = (b"wonderland", base64.b64encode(b"wonderland"))
    assert not refused and not any(word.decode() in str(rows) for word in hidden)
    folder = cluster_of("4.3.1")
    assert b"wonderland" in (folder / LOG / f"{0:020}.log").read_bytes()
    assert "wonderland" not in str(kts.scan(folder, decoder="metadata").read_all().to_pylist())
    assert "wonderland" not in str(kts.cluster(folder))
    shown = kts.scan(folder, decoder="metadata", columns=["configKey", "configValue"]).read_all().to_pylist()
    assert {"configKey": "log.cleaner.threads", "configValue": "2"} in shown


def test_unknown_types_are_rows_and_what_is_no_record_is_refused() -> None:
    rows, refused = decoded([NO_OP, b"\1\x63\0\0", None, b"\1\2", NO_OP])
    assert refused.keys() == {2, 3}
    assert refused[2] == "value: expected a record, found null"
    assert [row["recordType"] for row in rows] == ["NoOp", None, None, None, "NoOp"]
    assert (rows[1]["apiKey"], rows[1]["unknown"], rows[1]["fields"]) == (99, "type 99", None)
    columns, refused = decode_records(["recordType"], pa.array([NO_OP, b"x"]), np.array([False, True]))
    assert columns["recordType"].to_pylist() == ["NoOp", None] and not refused


def test_damaged_values_are_refused_or_are_values(seed: int) -> None:
    rng = random.Random(seed)
    whole = [base64.b64decode(one["bytes"]) for one in written()]
    for _ in range(scaled(20, 2000)):
        values: list[bytes | None] = []
        for value in whole:
            data = bytearray(value)
            for _ in range(rng.choice([1, 1, 3])):
                data[rng.randrange(min(len(data), 60))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            values.append(bytes(data))
        rows, refused = decoded(values)
        for number, (row, value) in enumerate(zip(rows, values, strict=True)):
            if number in refused:
                assert row == dict.fromkeys(COLUMNS)
            else:
                assert value is not None and row["apiKey"] is not None
                assert (row["fields"] is None) == (row["recordType"] is None or "version" in (row["unknown"] or ""))


def test_a_damaged_record_has_file_position_and_offset(tmp_path: Any) -> None:
    with kts.Log(tmp_path / LOG) as log:
        log.append_rows([{"timestamp": 1, "value": value} for value in (NO_OP, NO_OP, b"\1\2\0\0")])
    with pytest.raises(kts.CorruptRecordError, match="offset 2 of __cluster_metadata-0 is not a record of") as error:
        kts.scan(tmp_path, decoder="metadata").read_all()
    assert (error.value.offset, error.value.position) == (2, 0)
    with pytest.raises(kts.CorruptRecordError, match="offset 2 is not a record of __cluster_metadata: Topic") as error:
        kts.cluster(tmp_path)
    assert (error.value.offset, error.value.position) == (2, 0)
    assert str(error.value.path).endswith(f"{0:020}.log")
    with pytest.warns(kts.DamageWarning, match="is left out"):
        assert kts.scan(tmp_path, decoder="metadata", on_error="skip").read_all().num_rows == 2
