"""What followers do with the sets that they fetched: bytes, offsets and times stay as they are."""

from __future__ import annotations

import random

import pytest
from support.sets import generate
from support.sets.appending import GENERATIONS, NOW, append, produced, topic
from support.sets.generate import Rec, message

import kts
from kts.codec.validate import validate_follower

RECORDS = [Rec(i, NOW + time, b"k", b"v") for i, time in enumerate((5, 9, 1))]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_a_leader_stored_is_taken_byte_for_byte(magic: int, rng: random.Random) -> None:
    for codec in range(5 if magic == 2 else 4):
        config = topic(magic, compression_type="producer")
        leader = append(produced(rng, magic, codec, RECORDS), config)
        done = validate_follower(leader.records, end_offset=leader.first_offset, config=config)
        assert done.records == leader.records
        assert (done.last_offset, done.next_offset) == (leader.last_offset, leader.next_offset)
        assert (done.max_timestamp_ms, done.entries) == (leader.max_timestamp_ms, leader.entries)
        assert done.log_append_time_ms == -1
        assert not done.size_maybe_changed
        assert done.source_codec == done.target_codec == codec


def test_nothing_is_decompressed() -> None:
    data = message(5, 1, 3, NOW, None, b"no lz4 at all")
    done = validate_follower(data, end_offset=0, config=topic(1))
    assert (done.records, done.max_timestamp_ms, done.offset_of_max_timestamp) == (data, NOW, 5)


def test_policy_of_the_topic_is_not_applied() -> None:
    config = topic(1, cleanup_policy="compact", message_timestamp_difference_max_ms=0, compression_type="gzip")
    data = message(5, 0, 0, -1, None, None) + message(9, 1, 8, 3, None, None)
    assert validate_follower(data, end_offset=5, config=config).records == data


@pytest.mark.parametrize("generation", GENERATIONS)
def test_holes_are_fine_and_offsets_must_rise_from_the_log_end(generation: str) -> None:
    config = topic(1, generation=generation)
    sound = message(7, 1, 0, NOW, b"k", b"v") + message(20, 1, 0, NOW, b"k", b"v")
    done = validate_follower(sound, end_offset=3, config=config)
    assert (done.first_offset, done.last_offset, done.next_offset) == (7, 20, 21)
    with pytest.raises(kts.InvalidOffsetError, match="begins at offset 7, below the log end offset 8") as below:
        validate_follower(sound, end_offset=8, config=config)
    equal = message(7, 1, 0, NOW, b"k", b"v") * 2
    with pytest.raises(kts.InvalidOffsetError, match="do not rise") as order:
        validate_follower(equal, end_offset=0, config=config)
    assert below.value.code == order.value.code == -1


def test_only_0_10_2_holds_entries_against_max_message_bytes() -> None:
    data = message(0, 1, 0, NOW, b"k", bytes(100))
    with pytest.raises(kts.RecordTooLargeError):
        validate_follower(data, end_offset=0, config=topic(1, generation="0.10.2", max_message_bytes=50))
    validate_follower(data, end_offset=0, config=topic(1, generation="3.9", max_message_bytes=50))


def test_a_wrong_crc_is_refused_and_a_cut_tail_left_out() -> None:
    data = message(0, 1, 0, NOW, b"k", b"v")
    with pytest.raises(kts.CorruptRecordError):
        validate_follower(data[:-1] + b"w", end_offset=0, config=topic(1))
    done = validate_follower(data + data[:-1], end_offset=0, config=topic(1))
    assert (done.records, done.valid_bytes, done.entries) == (data, len(data), 1)
    assert validate_follower(data[:-1], end_offset=9, config=topic(1)).next_offset == 9


def test_batches_of_a_later_leader_are_left_out_with_all_behind_them() -> None:
    def batch(base: int, epoch: int) -> bytes:
        return generate.batch(generate.record(0, 0, RECORDS[0]), 1, base=base, base_time=NOW, leader_epoch=epoch)

    data = batch(0, 3) + batch(1, 4) + batch(2, 5) + batch(3, 4)
    done = validate_follower(data, end_offset=0, config=topic(2), leader_epoch=4)
    assert (done.records, done.last_offset) == (batch(0, 3) + batch(1, 4), 1)
    assert validate_follower(data, end_offset=0, config=topic(2)).entries == 4
