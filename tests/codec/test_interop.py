"""kts and Kafka's own classes over the same bytes, in bulk: what each writes the other reads, and both refuse alike.

Where one refuses what the other reads, the case belongs to a class of DIFFERENCES; every class is met in each run.
"""

from __future__ import annotations

import os
import random
import re
import struct
import zlib
from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from support.golden import scaled
from support.kafka.interop import Dump, Read, difference, read_by_kafka, read_by_kts, without
from support.kafka.interop_damage import damaged
from support.kafka.interop_encoded import Encoded, batches_of, encoded
from support.kafka.jvm import Program, java_program
from support.reference import reference
from support.reference.agreement import check
from support.sets import generate
from support.sets.codec_streams import STRICTER, TABLES, batch_of

import kts

BATCHES = scaled(4_000, 50_000)
BATCHES_OF_A_SET = 2  # as java/RandomSets.java builds them, before it compacts some
STRANGER = scaled(800, 6_000)  # damaged sets that neither would write so
MOST_GUARDED = 1 << 16  # bytes that `check` takes
SEED = int(os.environ["KTS_SEED"])
REPLAY = f"replay with KTS_SEED={SEED}"


class Difference(NamedTuple):
    """A kind of set that one reads and the other refuses; of two that fit it is the first."""

    refused_by: str
    pattern: str  # of the message
    reason: str


DIFFERENCES = [
    Difference("kts", "in a batch of 0 records$", "Kafka does not look at the records of a batch that declares none"),
    Difference("kts", "after the message's value", "Kafka does not look at what a message holds after its value"),
    Difference("kts", "inner message magic", "Kafka reads an inner message of any magic but 0 as one of magic 1"),
    Difference("kts", "snappy stream goes on with a damaged", "snappy-java ends a read there and goes on behind it"),
    Difference("kts", "second lz4 frame", "Kafka drops what follows the first frame"),
    Difference("kts", "lz4 block holds no bytes", "Kafka takes it for the end or fails, by the size of its buffer"),
    Difference("kts", "zstd data is not a sequence of whole", "zstd-jni drops a cut frame that lies in its buffer"),
    Difference("Kafka", "OutOfMemoryError", "Kafka makes room for all that an inner message claims, then finds it cut"),
    Difference(
        "Kafka",
        "(EOFException|Cannot decompress empty stream|Stream ended prematurely), opens nothing$",
        "Kafka opens the stream of a compressed batch that has neither records nor bytes",
    ),
]


@pytest.fixture(scope="module")
def kafka() -> Program:
    """Kafka's own classes, to be asked."""
    return java_program("Interop")


@pytest.fixture(scope="module")
def by_kts(kafka: Program) -> Encoded:
    """Sets that kts wrote."""
    del kafka  # without Java they need not be made
    return encoded(SEED, BATCHES)


@pytest.fixture(scope="module")
def by_kafka(kafka: Program) -> Dump:
    """Sets that Kafka wrote, and how it reads them."""
    return Dump(kafka("write", SEED, BATCHES // BATCHES_OF_A_SET))


def sets_of(dump: Dump) -> list[bytes]:
    return dump.strings("set", pa.binary()).to_pylist()


def assert_same(sets: list[bytes], ours: Read, theirs: Read) -> None:
    """Every set is read by both, with equal values."""
    assert set(theirs.errors) == {None}, f"{REPLAY}: Kafka refuses"
    assert set(ours.errors) == {None}, f"{REPLAY}: kts refuses"
    found = difference(ours, theirs)
    assert found is None, f"{REPLAY}: set {found[0]}: {found[1]}; {sets[found[0]].hex()}"
    assert ours.valid_bytes == theirs.valid_bytes == [len(data) for data in sets], REPLAY


def told(read: Read) -> str:
    kinds = Counter(zip(read.batches["magic"].to_pylist(), read.batches["codec"].to_pylist(), strict=True))
    assert len(kinds) == 13  # every codec of every magic
    return f"{len(read.errors)} sets, {read.batches.num_rows} batches and messages, {read.records.num_rows} records"


def test_kafka_reads_what_kts_writes(kafka: Program, by_kts: Encoded) -> None:
    theirs = read_by_kafka(Dump(kafka("read", sets=by_kts.sets)))
    assert_same(by_kts.sets, read_by_kts(by_kts.sets), theirs)
    for name in by_kts.rows.column_names:
        assert theirs.records[name].equals(by_kts.rows[name]), f"{REPLAY}: {name}"
    for name, (got, wanted) in batches_of(by_kts, theirs).items():
        wrong = np.flatnonzero(got != wanted)
        assert not wrong.size, f"{REPLAY}: {name}: {got[wrong[:3]]}, expected {wanted[wrong[:3]]}"
    print(told(theirs))


def test_kts_reads_what_kafka_writes(by_kafka: Dump) -> None:
    theirs, sets = read_by_kafka(by_kafka), sets_of(by_kafka)
    assert len(sets) == BATCHES // BATCHES_OF_A_SET
    assert_same(sets, read_by_kts(sets), theirs)
    print(told(theirs))


def test_kafka_reads_batches_that_kts_takes_over(kafka: Program, by_kafka: Dump) -> None:
    """Decoded and encoded again as they were, only the compressed bytes may differ."""
    sets = sets_of(by_kafka)[:5000]
    again = [kts.encode(kts.decode(data, kts.ALL_COLUMNS), preserve_batches=True) for data in sets]
    before, after = (read_by_kafka(Dump(kafka("read", sets=some))) for some in (sets, again))
    assert set(after.errors) == {None}, REPLAY
    left_out = ["position", "sizeInBytes"]
    assert after.records.drop_columns(left_out[:1]).equals(before.records.drop_columns(left_out[:1])), REPLAY
    counts = before.batches["count"].fill_null(1).to_numpy()  # an empty batch left no row to come back from
    kept = before.batches.filter(pa.array(counts > 0))
    assert after.batches.drop_columns(left_out).equals(kept.drop_columns(left_out)), REPLAY


def odd_sets() -> list[bytes]:
    """One of each class of difference at least."""
    record = generate.record(0, 0, generate.Rec(0, 0, b"k", b"v"))
    sets = [generate.batch(record, 0), generate.batch(b"", 0, attributes=1)]
    sets += [batch_of(codec, case) for codec, table in TABLES.values() for case in table if case.verdict == STRICTER]
    sound = generate.message(0, 1, 0, 5, b"k", b"v")
    unknown = bytearray(sound)
    unknown[16] = 5
    unknown[12:16] = struct.pack(">I", zlib.crc32(unknown[16:]))
    longer = generate.reseal(sound[:11] + bytes([len(sound) - 12 + 2]) + sound[12:] + b"xx")
    cut = sound + struct.pack(">qi", 1, 2**31 - 1) + b"cut"
    rng = random.Random(0)
    wrappers = [generate.message(1, 1, 2, 5, None, generate.snappy(rng, plain)) for plain in (bytes(unknown), cut)]
    return [*sets, longer, *wrappers]


def empty_streams(data: bytes) -> str:
    """Says so if there is a compressed batch without a record and without a byte behind its header."""
    rows = reference.scan_batches(data)
    return ", opens nothing" if any(r["count"] == 0 and r["codec"] and r["sizeInBytes"] == 61 for r in rows) else ""


def test_damaged_sets_are_refused_by_both_or_read_alike(kafka: Program, by_kts: Encoded, by_kafka: Dump) -> None:
    rng = random.Random(SEED)
    stranger = [generate.random_buffer(rng, 2)[0] for _ in range(STRANGER // 4)]
    sets = odd_sets() + damaged(rng, stranger, STRANGER) + damaged(rng, by_kts.sets + sets_of(by_kafka), BATCHES)
    ours, theirs = read_by_kts(sets), read_by_kafka(Dump(kafka("read", sets=sets)))
    counts: Counter[str] = Counter()
    not_read = set()
    for i, (our_error, their_error) in enumerate(zip(ours.errors, theirs.errors, strict=True)):
        if our_error is None and their_error is None:
            counts["both read"] += 1
            continue
        not_read.add(i)
        if our_error is not None and their_error is not None:
            counts["both refuse"] += 1
            continue
        where = f"{REPLAY}: kts: {our_error}; Kafka: {their_error}; {sets[i].hex()}"
        refused_by, message = ("kts", our_error) if our_error else ("Kafka", f"{their_error}{empty_streams(sets[i])}")
        reasons = [d.reason for d in DIFFERENCES if d.refused_by == refused_by and re.search(d.pattern, message)]
        assert reasons, where
        if len(sets[i]) <= MOST_GUARDED:
            check(sets[i], where)  # the reference says what kts says
        counts[f"{refused_by} refuses: {reasons[0]}"] += 1
    found = difference(without(ours, not_read), without(theirs, not_read))
    assert found is None, f"{REPLAY}: set {found[0]}: {found[1]}; {sets[found[0]].hex()}"
    assert ours.valid_bytes == theirs.valid_bytes, REPLAY
    print(*(f"{count:6} {what}" for what, count in counts.most_common()), sep="\n")
    assert {f"{d.refused_by} refuses: {d.reason}" for d in DIFFERENCES} == set(counts) - {"both read", "both refuse"}
    assert counts["both read"] > BATCHES / 5
    assert counts["both refuse"] > BATCHES / 5
