"""What Kafka's own classes said about 4,500 byte strings, sound and damaged, and what kts says.

Where Kafka reports no error and every message is valid the values are equal; where it reports an error or a wrong CRC
ours is a CorruptRecordError. Where ours is stricter, the case belongs to a class in the tables below, counted and with
a reason.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import Any, NamedTuple

import pytest
from support.golden import carries_samples, oracle_cases
from support.reference.decoded import difference, rows_of

import kts

Row = dict[str, Any]


class Stricter(NamedTuple):
    """Cases that Kafka reads and kts refuses."""

    pattern: str  # of our message
    count: int
    reason: str
    carried: int | None = None  # of them in the sample of tests/data, where that is not the whole

    @property
    def expected(self) -> int:
        return self.count if self.carried is None or not carries_samples() else self.carried


STRICTER = {
    "decode-3.9": [
        Stricter(
            r"record count 0|after the 0 records",
            3,
            "a record count of 0 with record bytes after it: Kafka returns no record and does not look",
        ),
    ],
    "decode-4.3": [
        Stricter(r"after the 0 records", 1, "Kafka returns no record and does not look at what follows"),
        Stricter(r"bytes after the message's value", 1, "Kafka ignores what a message holds after its value", 0),
    ],
    "decode-0.10.2": [
        Stricter(r"bytes after the message's value", 3, "Kafka ignores what a message holds after its value"),
        Stricter(
            r"^magic -?\d+ is unknown|batch length|CRC is",
            12,
            "0.10.2 reads any magic byte as 1; 3.9 refuses those above 2 and reads 2 as a batch",
        ),
        Stricter(
            r"wrapper offset \d+ is below the last inner offset",
            5,
            "0.10.2 then takes the inner offsets as they are; 3.9 refuses",
        ),
    ],
}
RECORD_FIELDS = {"offset": "offset", "timestamp": "ts"}
BATCH_FIELDS = {
    "timestampType": "ts_type",
    "producerId": "pid",
    "producerEpoch": "epoch",
    "transactional": "txn",
    "control": "control",
    "partitionLeaderEpoch": "leader_epoch",
    "baseTimestamp": "base_ts",
    "maxTimestamp": "max_ts",
    "baseOffset": "base_offset",
    "magic": "magic",
    "codec": "codec",
}
SCAN_FIELDS = {
    "sizeInBytes": "size",
    "magic": "magic",
    "lastOffset": "last_offset",
    "maxTimestamp": "max_ts",
    "timestampType": "ts_type",
    "codec": "codec",
    "crcOk": "valid",
}
SCAN_FIELDS_OF_BATCHES = {
    "baseOffset": "base_offset",
    "baseTimestamp": "base_ts",
    "baseSequence": "base_seq",
    "producerId": "pid",
    "producerEpoch": "epoch",
    "transactional": "txn",
    "control": "control",
    "partitionLeaderEpoch": "leader_epoch",
    "count": "count",
}


def plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def decode(data: bytes) -> tuple[list[Row] | None, str]:
    """Rows with all columns, or None and our message."""
    try:
        return rows_of(kts.decode(data, kts.ALL_COLUMNS)), ""
    except kts.CorruptRecordError as error:
        return None, error.message


def valid_bytes(data: bytes) -> int | None:
    try:
        return kts.valid_bytes(data)
    except kts.CorruptRecordError:
        return None


def check_stricter(name: str, refused: list[tuple[str, str]]) -> None:
    """Each refusal belongs to exactly one class, and every class has just the cases it says."""
    found: Counter[str] = Counter()
    unknown = []
    for case, message in refused:
        classes = [entry.pattern for entry in STRICTER[name] if re.search(entry.pattern, message)]
        found.update(classes)
        if len(classes) != 1:
            unknown.append(f"{case}: {message}")
    assert not unknown
    assert found == {entry.pattern: entry.expected for entry in STRICTER[name] if entry.expected}
    for entry in STRICTER[name]:
        print(f"{name}: stricter in {entry.expected} cases: {entry.reason}")


# --- since 3.9 -------------------------------------------------------------------------------------------


def kafka_refuses(out: dict[str, Any]) -> bool:
    """Whether Kafka 3.9's consumer fails: an error anywhere, or a CRC, be it of a message inside a wrapper."""
    if "valid_bytes_error" in out or "batches_error" in out:
        return True
    for batch in out["batches"]:
        if not batch["valid"] or "codec_error" in batch or "records_error" in batch:
            return True
        for record in batch["records"]:
            if record.get("compressed") or "ensure_valid" in record or "field_error" in record:
                return True
    return False


def rows_of_kafka(out: dict[str, Any]) -> list[Row]:
    """The fields that Kafka 3.9 told of every record."""
    rows = []
    for batch in out["batches"]:
        shared = {ours: batch[theirs] for ours, theirs in BATCH_FIELDS.items() if theirs in batch}
        if batch["magic"] < 2:
            shared |= {"producerId": -1, "baseOffset": None, "maxTimestamp": None, "sequence": -1, "headers": None}
        for record in batch["records"]:
            row = shared | {ours: record[theirs] for ours, theirs in RECORD_FIELDS.items()}
            row |= {"key": plain(record["key"]), "value": plain(record["value"])}
            if batch["magic"] == 2:
                row["sequence"] = record["sequence"]
                row["headers"] = [(key, plain(value)) for key, value in record["headers"]] or None
            else:
                row["timestampType"] = record["ts_type"]
            if record.get("inner_magic_differs"):
                row["magic"] = 1 - batch["magic"]
            rows.append(row)
    return rows


COUNTS = {
    "decode-3.9": {"equal": 929, "both refuse": 568, "stricter": 3},
    "decode-4.3": {"equal": 942, "both refuse": 556, "stricter": 2},
}
CARRIED = {"decode-4.3": {"equal": 190, "both refuse": 109, "stricter": 1}}  # in the sample of tests/data


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_every_case_since_kafka_3_9_is_read_equal_or_refused(name: str) -> None:
    counts: Counter[str] = Counter()
    refused = []
    for case in oracle_cases(name):
        out, data = case["out"], base64.b64decode(case["in"]["bytes"])
        assert valid_bytes(data) == out.get("valid_bytes"), case["id"]
        rows, message = decode(data)
        if kafka_refuses(out):
            assert rows is None, f"{case['id']}: Kafka refuses what kts reads"
            counts["both refuse"] += 1
        elif rows is None:
            refused.append((case["id"], message))
            counts["stricter"] += 1
        else:
            expected = rows_of_kafka(out)
            common = [{name: row[name] for name in theirs} for row, theirs in zip(rows, expected, strict=False)]
            assert len(rows) == len(expected), case["id"]
            assert difference(common, expected) is None, f"{case['id']}: {difference(common, expected)}"
            counts["equal"] += 1
    check_stricter(name, refused)
    print(f"{name}: {dict(counts)}")
    assert counts == (CARRIED.get(name, COUNTS[name]) if carries_samples() else COUNTS[name])


def test_batch_headers_of_kafka_3_9_are_scanned_equal() -> None:
    compared = 0
    for case in oracle_cases("decode-3.9"):
        out, data = case["out"], base64.b64decode(case["in"]["bytes"])
        short = [batch for batch in out.get("batches", []) if batch["size"] < (61 if batch["magic"] == 2 else 26)]
        if "batches_error" in out or "valid_bytes_error" in out or short:
            with pytest.raises(kts.CorruptRecordError):
                kts.scan_batches(data)
            continue
        rows = rows_of(kts.scan_batches(data))
        assert len(rows) == len(out["batches"]), case["id"]
        for row, batch in zip(rows, out["batches"], strict=True):
            fields = SCAN_FIELDS | (SCAN_FIELDS_OF_BATCHES if batch["magic"] == 2 else {})
            for ours, theirs in fields.items():
                if ours == "codec" and "codec_error" in batch:
                    continue
                assert row[ours] == batch[theirs], f"{case['id']}: {ours}"
            compared += 1
    print(f"{compared} batches and outermost messages")
    assert compared > 2000


# --- 0.10.2 ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_case_of_kafka_0_10_2_is_read_equal_or_refused() -> None:
    counts: Counter[str] = Counter()
    refused = []
    for case in oracle_cases("decode-0.10.2"):
        out, data = case["out"], base64.b64decode(case["in"]["bytes"])
        failed = any(name.endswith("error") for name in out) or any(
            not message["valid"] or "field_error" in message for message in out["shallow"] + out["deep"]
        )
        rows, message = decode(data)
        if failed and rows is None:
            counts["both refuse"] += 1
        elif failed:
            # a size of 2^31-12 or more with fewer than 17 bytes left: 3.9 sees a cut tail before it sees the size
            assert out["valid_bytes_error"]["class"].endswith("IllegalArgumentException"), case["id"]
            assert len(data) - kts.valid_bytes(data) < 17, case["id"]
            counts["3.9 wins"] += 1
        elif rows is None:
            refused.append((case["id"], message))
            counts["stricter"] += 1
        else:
            expected = [
                {
                    "offset": record["offset"],
                    "timestamp": record["ts"],
                    "timestampType": record["ts_type"],
                    "magic": record["magic"],
                    "key": plain(record["key"]),
                    "value": plain(record["value"]),
                }
                for record in out["deep"]
            ]
            common = [{name: row[name] for name in theirs} for row, theirs in zip(rows, expected, strict=False)]
            assert len(rows) == len(expected), case["id"]
            assert difference(common, expected) is None, f"{case['id']}: {difference(common, expected)}"
            assert kts.valid_bytes(data) == out["valid_bytes"], case["id"]
            counts["equal"] += 1
    check_stricter("decode-0.10.2", refused)
    print(f"decode-0.10.2: {dict(counts)}")
    assert counts == {"equal": 952, "both refuse": 527, "stricter": 20, "3.9 wins": 1}
