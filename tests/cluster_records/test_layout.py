"""Each type and version of the metadata log's records, beside Kafka's bytes."""

from __future__ import annotations

import base64

import pytest
from support.clusters import VERSIONS, cluster_of, written

import kts
from kts.cluster_records.layout import NO_OP, read_record, record_types, write_record
from kts.protocol.writing import uvarint

VALUES = [base64.b64decode(one["bytes"]) for one in written()]


def test_every_type_and_version_is_read_and_written_as_by_kafka() -> None:
    known = {(one.api_key, version) for one in record_types().values() for version in range(one.newest + 1)}
    assert {(one["apiKey"], one["version"]) for one in written()} == known
    for value in VALUES:
        found = read_record(value)
        assert found.name is not None and found.fields is not None and found.unknown is None
        assert write_record(found.name, found.version, found.fields) == value


@pytest.mark.parametrize("version", VERSIONS)
def test_a_brokers_records_are_written_as_it_wrote_them(version: str) -> None:
    for value in (
        kts.scan(cluster_of(version) / "__cluster_metadata-0", columns=["value"]).read_all()["value"].to_pylist()
    ):
        found = read_record(value)
        assert write_record(found.name or "", found.version, found.fields or {}) == value


def test_a_record_that_is_cut_or_goes_on_is_refused() -> None:
    for value in VALUES:
        for end in range(min(len(value), 300)):
            with pytest.raises(kts.KtsError):
                read_record(value[:end])
        with pytest.raises(kts.KtsError, match="expected the end of the record, found 1 more bytes"):
            read_record(value + b"\0")


def test_another_frame_and_numbers_beyond_16_bits_are_refused() -> None:
    for value, said in (
        (b"\0\x14\0\0", "expected frame version 1, found 0"),
        (b"\1" + uvarint(40_000) + b"\0\0", "expected a type of at most 32767, found 40000"),
        (b"\1\x14" + uvarint(40_000) + b"\0", "expected a version of at most 32767, found 40000"),
        (b"\1\2\0\0", "Topic version 0, name: expected a length of string, found -1, null"),
    ):
        with pytest.raises(kts.KtsError, match=said):
            read_record(value)


def test_what_is_newer_than_the_table_is_told_and_is_no_error() -> None:
    assert read_record(NO_OP).unknown is None
    newer = read_record(b"\1\x63\2anything")
    assert (newer.api_key, newer.name, newer.version, newer.fields, newer.unknown) == (99, None, 2, None, "type 99")
    newer = read_record(b"\1\2\5anything")
    assert (newer.name, newer.version, newer.fields, newer.unknown) == ("Topic", 5, None, "version 5 of Topic")
    newer = read_record(b"\1\2\0\2a" + bytes(16) + b"\2\x07\1x\x09\0")
    assert newer.fields == {"name": "a", "topicId": bytes(16)}
    assert newer.unknown == "tagged field 7, tagged field 9 of Topic"
