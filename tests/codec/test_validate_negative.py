"""Times before 1970 (KIP-228): as shipped they are kept in place and refused where written; allowed, they are times."""

from __future__ import annotations

import random

import pytest
from support.sets.appending import CODECS, GENERATIONS, NOW, START, append, produced, refusal, times, topic
from support.sets.generate import Rec

import kts
from kts.codec.validate import validate_follower
from kts.config import LogConfig

NEGATIVE = [Rec(i, time, b"k", b"v") for i, time in enumerate((-10, -1, -5, -(2**63)))]


def allowing(magic: int, **settings: object) -> LogConfig:
    return topic(magic, allow_negative_timestamps=True, **settings)


def ways(generation: str) -> list[tuple[int, int, int, str]]:
    """(magic of the set, codec, format of the topic, compression.type) of every path."""
    magics = (1,) if generation == "0.10.2" else (1, 2)
    return [
        (magic, codec, to, compression)
        for magic in magics
        for codec in range(5 if magic == 2 else 4)
        for to in magics
        for compression in ("producer", "uncompressed", "lz4")
        if not (to < 2 and codec == 4 and compression == "producer")
    ]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_allowed_they_come_through_every_path_and_the_greatest_is_found(generation: str, rng: random.Random) -> None:
    for magic, codec, to, compression in ways(generation):
        data = produced(rng, magic, codec, NEGATIVE)
        done = append(data, allowing(to, generation=generation, compression_type=compression))
        assert times(done) == [rec.timestamp for rec in NEGATIVE], (magic, codec, to, compression)
        assert done.max_timestamp_ms == -5, (magic, codec, to, compression)
        shallow = codec if compression == "producer" else CODECS.index(compression) if compression == "lz4" else 0
        assert done.offset_of_max_timestamp == START + (3 if shallow or to == 2 else 2)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_off_they_are_kept_in_place_and_do_not_count(generation: str, rng: random.Random) -> None:
    for magic, codec, to, compression in ways(generation):
        if magic == to and compression == "producer":
            done = append(produced(rng, magic, codec, NEGATIVE), topic(to, generation=generation))
            # 3.9 gives every plain message the greatest time it found in it, and that is never below -1
            kept = not (generation == "3.9" and magic == 1 and codec == 0)
            assert times(done) == [rec.timestamp if kept else -1 for rec in NEGATIVE]
            assert done.max_timestamp_ms == -1


def test_off_they_are_refused_where_records_are_written_anew(rng: random.Random) -> None:
    for magic, codec, to, compression in ways("3.9"):
        target = codec if compression == "producer" else CODECS.index(compression) if compression == "lz4" else 0
        if magic == to and codec == target:
            continue
        error = refusal(
            produced(rng, magic, codec, NEGATIVE), topic(to, generation="3.9", compression_type=compression)
        )
        assert error.code == -1
        assert "allow.negative.timestamps" in str(error)
        assert error.record_index == 0


def test_0_10_2_recompresses_them_and_refuses_to_convert_them(rng: random.Random) -> None:
    data = produced(rng, 1, 0, NEGATIVE)
    assert times(append(data, topic(1, compression_type="gzip"))) == [rec.timestamp for rec in NEGATIVE]
    assert refusal(data, topic(0)).code == -1
    assert append(data, allowing(0)).entries == 4


@pytest.mark.parametrize("magic", [1, 2])
def test_none_is_still_no_time_and_the_greatest_of_nothing(magic: int, rng: random.Random) -> None:
    for records in ([Rec(0, -1, b"k", b"v")], [Rec(i, -1, None, None) for i in range(3)]):
        for codec in (0, 3):
            done = append(produced(rng, magic, codec, records), allowing(magic))
            assert done.max_timestamp_ms == -1


def test_the_limit_holds_for_them_too(rng: random.Random) -> None:
    config = allowing(1, message_timestamp_difference_max_ms=1000)
    data = produced(rng, 1, 0, [Rec(0, -500, b"k", b"v")])
    assert append(data, config, now_ms=500).max_timestamp_ms == -500
    assert refusal(data, config, now_ms=501).code == 32


def test_a_follower_finds_the_greatest_of_them(rng: random.Random) -> None:
    data = produced(rng, 1, 0, NEGATIVE)
    assert validate_follower(data, end_offset=0, config=allowing(1)).max_timestamp_ms == -5
    assert validate_follower(data, end_offset=0, config=topic(1)).max_timestamp_ms == -1


EXTREMES = (-(2**63), -(2**63) + 1, -(2**62), -2, 0, 1, NOW, 2**62, 2**63 - 2, 2**63 - 1)
LIMITS = (0, 1, NOW, 2**63 - 2, 2**63 - 1)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_limits_hold_for_times_and_clocks_that_are_farthest_from_each_other(
    generation: str, codec: int, rng: random.Random
) -> None:
    """A difference that wraps around, as Java's does, lets the worst times pass; 2^63-1 is no limit."""
    magic = 1 if generation == "0.10.2" else 2
    for time in EXTREMES:
        data = produced(rng, magic, codec, [Rec(0, time, b"k", b"v")])
        for limit in LIMITS:
            settings: dict[str, int] = {"message_timestamp_difference_max_ms": limit}
            before = after = limit
            if generation == "3.9" and rng.random() < 0.7:
                before, after = rng.choice([(limit, 2**63 - 1), (2**63 - 1, limit)])
                settings = {"message_timestamp_before_max_ms": before, "message_timestamp_after_max_ms": after}
            config = topic(magic, generation=generation, **settings)
            for now in EXTREMES:
                behind, ahead = now - time, time - now
                if (before == 2**63 - 1 or behind <= before) and (after == 2**63 - 1 or ahead <= after):
                    append(data, config, now_ms=now)
                else:
                    assert isinstance(refusal(data, config, now_ms=now), kts.InvalidTimestampError), (time, now)
