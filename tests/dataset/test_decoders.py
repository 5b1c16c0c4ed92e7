"""The decoders of a scan, as its doors see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clusters import cluster_of
from support.coordinators import broker

import kts
from kts.dataset.decoders import DECODED_COLUMNS, DECODERS, column_types


def test_every_decoder_has_columns_of_known_types_and_reads_an_internal_topic() -> None:
    assert DECODERS.keys() >= {"offsets", "transactions", "metadata"}
    assert {decoder.topic[:2] for decoder in DECODERS.values()} == {"__"}
    assert set(DECODED_COLUMNS) == column_types().keys()
    with pytest.raises(ValueError, match="decoder: expected .*metadata"):
        kts.scan("x", decoder="none")


def test_keys_and_values_of_the_metadata_log_are_columns_only_if_they_are_named() -> None:
    folder = cluster_of("4.3.1")
    found = kts.scan(folder, decoder="metadata").read_all()
    assert found.column_names == ["topic", "partition", "offset", "timestamp", *DECODERS["metadata"].columns]
    named = kts.scan(folder, decoder="metadata", columns=["value", "recordType"]).read_all()
    assert named["value"][0].as_py().startswith(b"\1")
    assert "value" in kts.scan(broker("4.3.1"), decoder="offsets").schema.names


def test_control_records_have_no_columns_and_are_left_out_unless_asked_for() -> None:
    newest = sorted(Path(cluster_of("4.3.1") / "__cluster_metadata-0").glob("*.checkpoint"))[-1]
    rows = kts.scan(newest, decoder="metadata", include_control=True).read_all().to_pylist()
    control = [row["offset"] for row in rows if row["recordType"] is None]
    assert control == [0, 1, 2, rows[-1]["offset"]]  # header, version of KRaft, voters, footer
    assert kts.scan(newest, decoder="metadata").read_all().num_rows == len(rows) - len(control)
