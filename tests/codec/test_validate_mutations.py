"""Damaged sets: whatever is accepted by default can be read back, and lies where it was said to lie."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from support.damage.guard import GuardedBuffer
from support.golden import scaled
from support.sets import generate
from support.sets.appending import GENERATIONS, NOW, START, append, produced, topic
from support.sets.generate import Rec

import kts
from kts.codec.validate import validate_follower
from kts.config import LogConfig

ROUNDS = scaled(2_500, 4_000)
COMPRESSION = ("producer", "producer", "uncompressed", "lz4", "snappy")


def random_set(rng: random.Random, newest: int) -> bytes:
    """Sound, or with one small damage, or random entries of every kind one after the other."""
    if rng.random() < 0.15:
        return generate.random_buffer(rng, 3)[0]
    magic = rng.randint(0, newest)
    times = (NOW, NOW - 3, -1, 5, -7) if rng.random() < 0.1 else (NOW, NOW - 3, -1)
    records = [
        Rec(i, rng.choice(times), generate.blob(rng), generate.blob(rng), generate.headers(rng) if magic == 2 else ())
        for i in range(rng.choice((1, 2, 3, 6)))
    ]
    data = produced(rng, magic, rng.choice((0, 0, 1, 2, 3)), records)
    return generate.mutate(rng, data) if rng.random() < 0.8 else data


def random_topic(rng: random.Random, generation: str) -> LogConfig:
    newest = 1 if generation == "0.10.2" else 2
    return topic(
        rng.randint(0, newest),
        generation=generation,
        message_timestamp_type=rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        compression_type=rng.choice(COMPRESSION),
        cleanup_policy=rng.choice(("delete", "delete", "compact")),
        allow_negative_timestamps=rng.random() < 0.2,
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_is_accepted_is_read_back_with_the_offsets_it_got(generation: str, rng: random.Random) -> None:
    memory = GuardedBuffer(1 << 17)
    ends: Counter[str] = Counter()
    for _ in range(ROUNDS):
        config, data = random_topic(rng, generation), random_set(rng, 1 if generation == "0.10.2" else 2)
        buf = memory.put(data)
        try:
            done = append(buf, config)  # type: ignore[arg-type]
        except kts.KtsError as error:
            ends[type(error).__name__] += 1
            continue
        ends["accepted"] += 1
        rows = kts.decode(done.records, ["offset", "magic"])
        offsets = rows.column(0).to_pylist()
        assert offsets == list(range(START, done.next_offset)), (data.hex(), config)
        assert set(rows.column(1).to_pylist()) <= {config.magic}, (data.hex(), config)
        assert (done.entries == 0) == (not offsets)
        top = kts.max_timestamp(done.records)
        if not config.allow_negative_timestamps and config.magic == 2 and offsets:
            assert done.max_timestamp_ms == top.timestamp_ms, (data.hex(), config)
    assert ends["accepted"] > ROUNDS / 10
    assert len(ends) > 4


@pytest.mark.parametrize("generation", GENERATIONS)
def test_shipped_rules_and_followers_end_in_an_answer_or_an_error_of_ours(generation: str, rng: random.Random) -> None:
    memory = GuardedBuffer(1 << 17)
    for _ in range(ROUNDS):
        config, data = random_topic(rng, generation), random_set(rng, 2)
        buf = memory.put(data)
        origin = rng.choice(("client", "client", "coordinator", "replication"))
        try:
            done = append(buf, config, shipped=True, origin=origin, leader_epoch=3)  # type: ignore[arg-type]
            assert done.next_offset >= START
        except kts.KtsError as error:
            assert error.code in (-1, 2, 10, 32, 43, 76, 87)
        try:
            done = validate_follower(buf, end_offset=0, config=config)
            assert done.records == data[: done.valid_bytes]
        except kts.KtsError as error:
            assert error.code in (-1, 2, 10)
