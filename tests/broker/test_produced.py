"""The records of one partition as a producer sent them: what is asked of their headers."""

from __future__ import annotations

from typing import Any

import pytest

import kts
from kts.broker.produced import COMPRESSED_BYTES, PLAIN_BYTES, ProducedRecords
from kts.config import LogConfig
from kts.errors import CorruptRecordError, InvalidRecordError, KtsError

NOW = 1_700_000_000_000


def batch(magic: int = 2, codec: str = "none", count: int = 1, size: int = 1, **more: Any) -> bytes:
    rows = {"timestamp": [NOW + at for at in range(count)], "value": [b"v" * size] * count}
    return kts.encode(rows, magic=magic, compression=codec, **more)


def produced(data: bytes) -> ProducedRecords:
    return ProducedRecords(memoryview(data))


def code_of(data: bytes, version: int) -> int:
    """What Produce of a version answers to records that are not one batch; 0 for one."""
    try:
        produced(data).check_one_batch(version)
    except KtsError as error:
        return error.code
    return 0


def test_from_version_3_on_it_must_be_one_whole_batch_of_magic_2() -> None:
    one = batch()
    assert {code_of(data, 2) for data in (b"", one[:-1], one + one, batch(1), batch(0, "gzip"))} == {0}
    for version in (3, 7, 13):
        assert code_of(one, version) == 0
        for wrong in (b"", one[:20], one[:-1], one + one, one + b"stray", batch(1), batch(0, "gzip")):
            # Bytes behind a batch that are no entry are not seen as a second one.
            assert code_of(wrong, version) == (0 if wrong.endswith(b"stray") else 87)
        assert code_of(one[:8] + b"\xff\xff\xff\xf0" + one[12:], version) == 2
        assert code_of(batch(codec="zstd"), version) == (76 if version < 7 else 0)


def test_records_are_empty_without_a_whole_entry_and_without_damage() -> None:
    one = batch()
    assert produced(b"").is_empty and produced(one[:-1]).is_empty and produced(b"hello").is_empty
    assert not produced(one).is_empty and not produced(one + b"stray").is_empty
    assert not produced(one[:8] + b"\0\0\0\5" + one[12:]).is_empty


def test_only_a_size_or_a_magic_that_no_entry_has_makes_records_unreadable() -> None:
    one = batch()
    damaged_crc = one[:-1] + bytes([one[-1] ^ 1])
    for fine in (b"", one, one[:30], damaged_crc, one + b"\0"):
        produced(fine).check_readable()
    for wrong in (one[:8] + b"\0\0\0\5" + one[12:], one[:16] + b"\7" + one[17:]):
        with pytest.raises(CorruptRecordError):
            produced(wrong).check_readable()


def test_transactions_and_times_are_those_of_the_first_header() -> None:
    ours = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert not produced(b"").is_transactional and not produced(batch(**ours)).is_transactional
    assert produced(batch(transactional=True, **ours) + batch()).is_transactional
    assert [produced(batch(magic, count=3)).max_timestamp for magic in (1, 2)] == [NOW, NOW + 2]  # magic 1: 3 messages
    assert produced(batch(0)).max_timestamp is produced(b"").max_timestamp is None


def test_a_topic_of_an_old_protocol_gets_its_own_format() -> None:
    old = LogConfig.of({"message.format.version": "0.10.0"})
    new = LogConfig.of(None, generation="3.9")
    assert old.generation == "0.10.2"
    for data, config in ((batch(), new), (batch(1), old), (b"", old)):
        found = produced(data)
        assert found.in_topic_format(config) is found.records
    converted = produced(batch(codec="gzip", count=2)).in_topic_format(old)
    rows = kts.decode(converted, ["timestamp", "value", "magic"])
    assert rows.column("magic").to_pylist() == [1, 1]
    assert rows.column("timestamp").cast("int64").to_pylist() == [NOW, NOW + 1]
    idempotent = batch(producer_id=5, producer_epoch=0, base_sequence=0)
    headers = kts.encode({"value": [b"v"], "headers": [[{"key": "h", "value": b"1"}]]})
    for wrong, code in ((idempotent, 43), (headers, 43), (batch(codec="zstd"), 76)):
        with pytest.raises(KtsError) as raised:
            produced(wrong).in_topic_format(old)
        assert raised.value.code == code


def test_what_has_to_be_decompressed_or_is_large_takes_a_thread() -> None:
    plain, gzip = LogConfig(), LogConfig.of({"compression.type": "gzip"})
    zstd = LogConfig.of({"compression.type": "zstd"})

    def long(data: bytes, config: LogConfig) -> bool:
        return produced(data).needs_thread(config)

    assert not long(b"", plain) and not long(batch(), plain) and not long(batch(codec="gzip"), plain)
    assert long(batch(size=PLAIN_BYTES), plain) and not long(batch(size=PLAIN_BYTES - 200), plain)
    assert long(batch(size=COMPRESSED_BYTES), gzip) and not long(batch(size=COMPRESSED_BYTES - 200), gzip)
    assert long(batch(codec="zstd"), plain) and long(batch(), zstd)  # a few bytes may become many


def test_a_refusal_says_what_was_expected_and_found() -> None:
    with pytest.raises(InvalidRecordError, match="^Produce 3: expected magic 2, found 1$"):
        produced(batch(1)).check_one_batch(3)
    with pytest.raises(InvalidRecordError, match="^Produce 9: expected one record batch, found no whole one$"):
        produced(batch()[:-1]).check_one_batch(9)
