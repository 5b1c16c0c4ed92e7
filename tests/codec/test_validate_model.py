"""Random sets as producers send them, against a model of what a leader stores: offsets, times, types, keys, values."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from support.golden import scaled
from support.reference.decoded import rows_of
from support.sets.appending import CODECS, GENERATIONS, NOW, START, append, produced, topic
from support.sets.generate import Rec

import kts

SETS = scaled(500, 2000)
LIMIT = 1000
TIMES = (NOW, NOW - 5, NOW + 7, NOW - LIMIT, NOW + LIMIT, NOW - 40, -1)


class Case(NamedTuple):
    generation: str
    magic: int  # of the set
    codec: int
    format: int  # of the topic
    compression: str
    log_append_time: bool
    compacted: bool
    limited: bool
    records: list[Rec]

    @property
    def target(self) -> int:
        if self.compression == "producer":
            return self.codec
        return CODECS.index(self.compression) if self.compression in CODECS else 0

    @property
    def in_place(self) -> bool:
        return self.codec == self.target and self.magic == self.format and (self.format > 0 or not self.codec)


def random_case(rng: random.Random, generation: str) -> Case:
    newest = 1 if generation == "0.10.2" else 2
    magic = rng.randint(0, newest)
    codec = rng.randrange(5 if magic == 2 else 4)
    codecs = ("gzip", "snappy", "lz4", "zstd")[: 3 if generation == "0.10.2" else 4]
    compacted = rng.random() < 0.2
    records = []
    for i in range(rng.choice((1, 1, 2, 3, 5, 40))):
        time = rng.choice(TIMES) + (LIMIT + 1 if rng.random() < 0.01 else 0) if magic else -1
        key = None if rng.random() < (0.03 if compacted else 0.3) else rng.randbytes(rng.randrange(9))
        headers = [(b"h", rng.randbytes(3))] if magic == 2 and rng.random() < 0.02 else []
        records.append(Rec(i, time, key, None if rng.random() < 0.1 else rng.randbytes(rng.randrange(90)), headers))
    return Case(
        generation,
        magic,
        codec,
        rng.randint(0, newest),
        rng.choice(("producer", "producer", "uncompressed", *codecs)),
        rng.random() < 0.4,
        compacted,
        rng.random() < 0.5,
        records,
    )


def expected_refusal(case: Case) -> type[kts.KtsError] | None:
    """By default, not as shipped: -1 is exempt in both releases."""
    zstd = case.target == 4 and case.format < 2
    plain = not case.codec and not case.target
    policy: list[type[kts.KtsError]] = []
    for rec in case.records:
        if plain and rec.headers and case.format < 2 and not policy:
            return kts.KtsError  # records are written as they are looked at
        # 0.10.2 holds compressed records to no limit where either side has no timestamps
        held = case.limited and not case.log_append_time and rec.timestamp != -1
        if case.generation == "0.10.2" and (case.codec or case.target) and not (case.magic and case.format):
            held = False
        if case.compacted and rec.key is None:
            policy.append(kts.InvalidRecordError)
        elif held and abs(rec.timestamp - NOW) > LIMIT:
            policy.append(kts.InvalidTimestampError)
    if policy:
        first = case.generation == "0.10.2" or (case.magic < 2 and not case.codec)  # 3.9 stops behind a batch
        return policy[0] if first else max(policy, key=lambda kind: kind is kts.InvalidTimestampError)
    if zstd:
        return kts.UnsupportedCompressionTypeError
    return kts.KtsError if case.format < 2 and any(rec.headers for rec in case.records) else None


def expected_rows(case: Case) -> list[dict[str, Any]]:
    rows = []
    for i, rec in enumerate(case.records):
        time = NOW if case.log_append_time else rec.timestamp
        rows.append(
            {
                "offset": START + i,
                "timestamp": time if case.format else -1,
                "timestampType": int(case.log_append_time) if case.format else -1,
                "key": rec.key,
                "value": rec.value,
                "headers": [(name.decode(), value) for name, value in rec.headers] or None,
                "magic": case.format,
                "codec": case.target,
                "partitionLeaderEpoch": 7 if case.format == 2 else -1,
            }
        )
    return rows


def expected_max(case: Case) -> tuple[int, int]:
    """Greatest timestamp and its shallow offset: the table of kafka-behaviour.md 3.5, columns 0.10.2 and 3.8-3.9."""
    old, last = case.generation == "0.10.2", START + len(case.records) - 1
    plain = not case.codec and not case.target
    if case.log_append_time:
        if plain and case.magic == case.format and case.format < 2:
            return (NOW, START) if old or case.format else (-1, -1)
        return NOW, START if not old and not case.target and case.format < 2 else last
    own = [rec.timestamp for rec in case.records]
    top = max(own, default=-1)
    if plain and old and case.magic != case.format:
        return top, START + own.index(top) if top != -1 else last
    if not case.format:
        return -1, last if old and not (plain and case.magic == 0) else -1
    if top == -1:
        kept = case.in_place and (case.codec or case.format == 2)
        return -1, last if (old and not (plain and case.magic == case.format)) or (kept and case.codec) else -1
    return top, last if case.target or case.format == 2 else START + own.index(top)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_random_sets_are_stored_as_the_model_says(generation: str, rng: random.Random) -> None:
    accepted = 0
    for _ in range(SETS):
        case = random_case(rng, generation)
        settings = {"message_timestamp_type": "LogAppendTime" if case.log_append_time else "CreateTime"}
        settings |= {"message_timestamp_difference_max_ms": LIMIT} if case.limited else {}
        settings |= {"cleanup_policy": "compact"} if case.compacted else {}
        config = topic(case.format, generation=generation, compression_type=case.compression, **settings)
        data = produced(rng, case.magic, case.codec, case.records)
        wanted = expected_refusal(case)
        try:
            done = append(data, config, leader_epoch=7)
        except kts.KtsError as error:
            assert type(error) is wanted, (case, error)
            continue
        assert wanted is None, (case, wanted)
        accepted += 1
        names = list(expected_rows(case)[0])
        assert rows_of(kts.decode(done.records, names)) == expected_rows(case), case
        assert (done.max_timestamp_ms, done.offset_of_max_timestamp) == expected_max(case), case
        last = START + len(case.records) - 1
        assert (done.first_offset, done.last_offset, done.next_offset) == (START, last, last + 1)
        assert done.log_append_time_ms == (NOW if case.log_append_time else -1)
        assert (done.source_codec, done.target_codec) == (case.codec, case.target)
        assert done.size_maybe_changed is not case.in_place, case
        assert done.valid_bytes == len(data)
        assert done.entries == kts.scan_batches(done.records).num_rows
        if case.in_place and case.codec:
            head = 61 if case.format == 2 else 26
            assert done.records[head:] == data[head:]
    assert accepted > SETS // 2


def test_createtimestamp_of_rebuilt_batches_is_what_the_producer_wrote(rng: random.Random) -> None:
    records = [Rec(i, NOW - 100 + i, b"k", b"v") for i in range(5)]
    for codec in range(5):
        done = append(
            produced(rng, 2, codec, records),
            topic(2, message_timestamp_type="LogAppendTime", compression_type="lz4" if codec != 3 else "gzip"),
        )
        own = kts.decode(done.records, ["createTimestamp"]).column(0).cast(pa.int64()).to_pylist()
        assert own == [rec.timestamp for rec in records]
