"""What a log knows of its producers: sequence numbers beside a model of the protocol, and transactions beside a slow
twin that reads every batch again. Neither shares code with the package."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.sets.log_records import NOW, Clock
from support.sets.log_records import batch as plain_batch
from support.sets.log_records import opened as small_log

import kts
from kts.segment.producers import Producers, Sent, Update
from kts.segment.snapshots import read_snapshot_entries
from kts.segment.transactions import TXN_ENTRY

HIGHEST = 2**31 - 1

# --- sequence numbers -----------------------------------------------------------------------------


def batch(producer: int, epoch: int, sequence: int, count: int = 1, *, time: int = 1000, **more: Any) -> bytes:
    rows = {"timestamp": [time + number for number in range(count)], "value": [b"v"] * count}
    return kts.encode(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **more)


def opened(path: Path, now: int = 5000, **more: Any) -> kts.Log:
    return kts.Log(path / "t-0", more.pop("config", None), clock=lambda: now, **more)


class Model:
    """One producer at a time, a list of what it wrote, searched from the front."""

    def __init__(self) -> None:
        self.end = 0
        self.epochs: dict[int, int] = {}
        self.wrote: dict[int, deque[tuple[int, int, int, int]]] = {}

    def append(self, producer: int, epoch: int, sequence: int, count: int, time: int) -> tuple[str, Any]:
        last = (sequence + count - 1) % (HIGHEST + 1)
        if producer in self.epochs:
            known = self.epochs[producer]
            for first_sequence, last_sequence, offset, greatest in self.wrote[producer]:
                if epoch == known and (first_sequence, last_sequence) == (sequence, last):
                    return "duplicate", (offset, offset + count - 1, greatest)
            if epoch < known:
                return "refused", 47
            following = 0 if epoch > known else (self.wrote[producer][-1][1] + 1) % (HIGHEST + 1)
            if sequence != following:
                return "refused", 45
        if self.epochs.get(producer) != epoch:
            self.epochs[producer], self.wrote[producer] = epoch, deque(maxlen=5)
        answer = self.end, self.end + count - 1
        self.wrote[producer].append((sequence, last, self.end, time + count - 1))
        self.end += count
        return "appended", answer


def outcome(log: kts.Log, *batch_of: int) -> tuple[str, Any]:
    producer, epoch, sequence, count, time = batch_of
    try:
        done = log.append(batch(producer, epoch, sequence, count, time=time))
    except kts.KtsError as error:
        return "refused", error.code
    if done.duplicate:
        assert (done.entries, len(done.records)) == (0, 0)
        return "duplicate", (done.first_offset, done.last_offset, done.log_append_time_ms)
    return "appended", (done.first_offset, done.last_offset)


def test_every_answer_is_that_of_a_slow_model(tmp_path: Path, rng: random.Random) -> None:
    model, seen = Model(), set()
    with opened(tmp_path, config={"segment.bytes": 4000}) as log:
        sent: list[tuple[int, ...]] = []
        for number in range(1500):
            producer = rng.choice([7, 2**40, 9])
            if sent and rng.random() < 0.4:
                asked = rng.choice(sent[-12:])
            else:
                known = model.epochs.get(producer, rng.randrange(3))
                epoch = max(known + rng.choices([0, 1, -1], [20, 1, 1])[0], 0)
                wrote = model.wrote.get(producer)
                following = (wrote[-1][1] + 1) % (HIGHEST + 1) if wrote and epoch == known else 0
                if not wrote:
                    following = rng.choice([0, 5, HIGHEST - 2])
                sequence = following if rng.random() < 0.8 else max(following + rng.randrange(-3, 4), 0)
                asked = (producer, epoch, min(sequence, HIGHEST), rng.randrange(1, 4), 1000 + number)
            expected = model.append(*asked)
            assert outcome(log, *asked) == expected, asked
            assert log.log_end_offset == model.end
            seen.add(expected[0] if expected[0] != "refused" else expected[1])
            sent.append(asked)
        assert len(log.segments) > 3
    assert seen == {"appended", "duplicate", 45, 47}


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_duplicate_has_the_first_ones_offsets_and_time_and_writes_nothing(
    tmp_path: Path, timestamp_type: str
) -> None:
    now = [5000]
    config = {"message.timestamp.type": timestamp_type}
    with kts.Log(tmp_path / "t-0", config, clock=lambda: now[0]) as log:
        log.append(batch(1, 0, 0, 3))
        first = log.append(batch(1, 0, 3, 2, time=2000))
        log.append(batch(1, 0, 5, 1))
        size, now[0] = log.size_bytes, 6000
        again = log.append(batch(1, 0, 3, 2, time=2000))
        assert again.duplicate
        assert not first.duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (3, 4)
        assert again.log_append_time_ms == (2001 if timestamp_type == "CreateTime" else 5000)
        assert (log.size_bytes, log.log_end_offset, again.next_offset) == (size, 6, 6)


def test_the_sixth_last_batch_is_no_duplicate_any_more_but_out_of_order(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for sequence in range(6):
            log.append(batch(1, 0, sequence))
        for sequence in range(1, 6):
            assert log.append(batch(1, 0, sequence)).first_offset == sequence
        with pytest.raises(kts.OutOfOrderSequenceError, match="expected sequence 6, found 0"):
            log.append(batch(1, 0, 0))


def test_the_same_first_sequence_with_another_count_is_out_of_order(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(1, 0, 0, 3))
        with pytest.raises(kts.OutOfOrderSequenceError):
            log.append(batch(1, 0, 0, 2))


def test_zero_follows_the_greatest_sequence_also_inside_a_batch(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        assert log.append(batch(1, 0, HIGHEST - 1, 2)).last_offset == 1
        assert log.append(batch(1, 0, 0, 1)).first_offset == 2
        assert log.append(batch(2, 0, HIGHEST, 3)).last_offset == 5
        assert log.append(batch(2, 0, HIGHEST, 3)).duplicate
        assert log.append(batch(2, 0, 2)).first_offset == 6


def test_a_newer_epoch_begins_at_zero_and_an_older_one_is_over(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(1, 3, 70))
        with pytest.raises(kts.OutOfOrderSequenceError, match="expected sequence 0 in the new epoch 4, found 71"):
            log.append(batch(1, 4, 71))
        log.append(batch(1, 4, 0))
        with pytest.raises(kts.InvalidProducerEpochError, match="expected epoch 4 or later, found 3"):
            log.append(batch(1, 3, 70))
        assert log.log_end_offset == 2


def placed(*sets: bytes, start: int) -> bytes:
    """One batch behind the other, with offsets from `start` on, as a leader gives them."""
    out = bytearray()
    for data in sets:
        out += start.to_bytes(8, "big") + data[8:]
        start += int.from_bytes(data[23:27], "big") + 1
    return bytes(out)


def test_several_batches_are_checked_in_order_and_change_nothing_until_all_are_right() -> None:
    state = Producers()
    update = state.prepare(placed(batch(1, 0, 0, 2), batch(1, 0, 2), batch(2, 0, 9), start=0), "client")
    assert isinstance(update, Update)
    state.apply(update)
    with pytest.raises(kts.OutOfOrderSequenceError, match="producer 1: expected sequence 4, found 5"):
        state.prepare(placed(batch(2, 0, 10), batch(1, 0, 3), batch(1, 0, 5), start=4), "client")
    update = state.prepare(placed(batch(2, 0, 10), batch(1, 0, 3), start=4), "client")
    assert isinstance(update, Update)
    state.apply(update)
    duplicate = state.prepare(placed(batch(1, 0, 4), batch(2, 0, 10), start=6), "client")
    assert isinstance(duplicate, Sent)
    assert (duplicate.first_offset, duplicate.last_offset) == (4, 4)
    assert [one.first_sequence for one in state.known[1].batches] == [0, 2, 3]


def test_what_is_wrong_with_the_records_is_said_before_their_sequence(tmp_path: Path) -> None:
    with opened(tmp_path, config={"max.message.bytes": 90, "segment.bytes": 95}) as log:
        log.append(batch(1, 0, 0))
        with pytest.raises(kts.RecordTooLargeError):
            log.append(batch(1, 0, 7, 5))
        damaged = bytearray(batch(1, 0, 7))
        damaged[-1] ^= 1
        with pytest.raises(kts.CorruptRecordError):
            log.append(bytes(damaged))


def test_coordinators_and_leaders_are_not_asked_for_sequences(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(1, 5, 0))
        log.append(batch(1, 5, 7), origin="coordinator")
        with pytest.raises(kts.InvalidProducerEpochError):
            log.append(batch(1, 4, 8), origin="coordinator")
        log.append_as_follower(batch(1, 4, 99, base_offset=2))
        assert log.log_end_offset == 3


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_the_last_batch_of_a_producer_alone_as_its_snapshot_does(tmp_path: Path, clean: bool) -> None:
    log = opened(tmp_path)
    for sequence in range(4):
        log.append(batch(1, 0, sequence))
    (log.close if clean else log.abandon)()
    with opened(tmp_path) as log:
        assert log.append(batch(1, 0, 3)).first_offset == 3
        with pytest.raises(kts.OutOfOrderSequenceError, match="expected sequence 4, found 2"):
            log.append(batch(1, 0, 2))
        assert log.append(batch(1, 0, 4)).first_offset == 4


def test_an_expired_producer_may_start_anywhere(tmp_path: Path) -> None:
    now = [5000]
    with kts.Log(tmp_path / "t-0", clock=lambda: now[0], producer_id_expiration_ms=100) as log:
        log.append(batch(1, 0, 0, time=4990))
        log.append(batch(2, 0, 0, time=4991))
        now[0] = 5090
        with pytest.raises(kts.OutOfOrderSequenceError):
            log.append(batch(1, 0, 50))
        assert log.remove_expired_producers() == 1
        assert log.append(batch(1, 0, 50)).first_offset == 2
        with pytest.raises(kts.OutOfOrderSequenceError):
            log.append(batch(2, 0, 50))
    with kts.Log(tmp_path / "t-0", clock=lambda: 5200, producer_id_expiration_ms=100) as log:
        assert log.append(batch(2, 0, 50)).first_offset == 3


def test_a_plain_batch_inside_of_an_open_transaction_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(1, 0, 0, transactional=True))
        with pytest.raises(kts.InvalidTxnStateError):
            log.append(batch(1, 0, 1))
        assert (log.log_end_offset, log.last_stable_offset) == (1, 0)


def test_truncation_forgets_the_sequences_that_it_cuts(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for sequence in range(4):
            log.append(batch(1, 0, sequence))
        log.truncate_to(2)
        assert log.append(batch(1, 0, 2)).first_offset == 2
        assert log.append(batch(1, 0, 1)).first_offset == 1


# --- transactions ---------------------------------------------------------------------------------

ABORT, COMMIT = 0, 1


class Written(NamedTuple):
    """A batch of the log: its offsets, its producer, and how it ends a transaction if it does."""

    first: int
    last: int
    producer: int
    transactional: bool
    marker: int | None
    next_sequence: int = 0


def marker(producer: int, kind: int) -> bytes:
    row = {"key": [bytes([0, 0, 0, kind])], "value": [bytes([0, 0, 0, 0, 0, 7])], "timestamp": [NOW]}
    return bytes(
        kts.encode(row, producer_id=producer, producer_epoch=0, transactional=True, control=True)  # type: ignore[arg-type]
    )


class Twin(NamedTuple):
    """What the batches say, read from the first one on."""

    still_open: dict[int, int]  # producer -> first offset
    aborted: list[tuple[int, int, int, int]]  # producer, first, last and last stable offset, as the index has them
    last: dict[int, tuple[int, int]]  # producer -> last data offset, and the difference to the batch's first


def twin_of(batches: list[Written]) -> Twin:
    still_open: dict[int, int] = {}
    aborted: list[tuple[int, int, int, int]] = []
    last: dict[int, tuple[int, int]] = {}
    for one in batches:
        if one.producer < 0:
            continue
        if one.marker is None:
            last[one.producer] = one.last, one.last - one.first
            if one.transactional:
                still_open.setdefault(one.producer, one.first)
            continue
        began = still_open.pop(one.producer, None)
        last.setdefault(one.producer, (-1, 0))
        if began is not None and one.marker == ABORT:
            others = min(still_open.values(), default=one.last + 1)
            aborted.append((one.producer, began, one.last, others))
    return Twin(still_open, aborted, last)


def agrees(log: kts.Log, batches: list[Written]) -> None:
    twin = twin_of(batches)
    assert log.last_stable_offset == min(twin.still_open.values(), default=log.log_end_offset)
    listed = []
    for segment in log.segments:
        path = Path(segment.txn_index_path)
        listed += [entry[1:] for entry in TXN_ENTRY.iter_unpack(path.read_bytes())] if path.exists() else []
    assert listed == twin.aborted


@pytest.mark.parametrize("unique", range(4))
def test_a_random_life_of_transactions_agrees_with_its_batches(tmp_path: Path, rng: random.Random, unique: int) -> None:
    rng.seed(rng.random() + unique)
    clock, batches = Clock(), list[Written]()
    log = small_log(tmp_path, clock, segment_bytes=rng.choice([500, 1500]))
    for _ in range(70):
        clock.now += 1
        chance, producer = rng.random(), rng.choice([1, 2, 3, 2**33])
        still_open = twin_of(batches).still_open
        if chance < 0.15:
            done = log.append(plain_batch(NOW))
            batches.append(Written(done.first_offset, done.last_offset, -1, False, None))
        elif chance < 0.6:
            count = rng.randint(1, 3)
            transactional = producer in still_open or rng.random() < 0.7
            own_batches = [one for one in batches if one.producer == producer and one.marker is None]
            first = own_batches[-1].next_sequence if own_batches else 0
            own = {"producer_id": producer, "producer_epoch": 0, "base_sequence": first}
            done = log.append(plain_batch(*[clock.now] * count, transactional=transactional, **own))
            offsets = done.first_offset, done.last_offset
            batches.append(Written(*offsets, producer, transactional, None, first + count))
        elif chance < 0.8:
            if still_open:
                producer = rng.choice(sorted(still_open))
            kind = rng.choice([ABORT, COMMIT])
            done = log.append(marker(producer, kind), origin="coordinator")
            batches.append(Written(done.first_offset, done.last_offset, producer, True, kind))
        elif chance < 0.87 and batches:
            hit = rng.choice(batches[-6:])
            target = rng.randint(hit.first, hit.last)
            log.truncate_to(target)
            batches = [one for one in batches if one.last < target]
        else:
            clean = rng.random() < 0.5
            log.close() if clean else log.abandon()
            if rng.random() < 0.3:
                for path in (tmp_path / "t-0").glob("*.snapshot"):
                    path.write_bytes(path.read_bytes()[:-1] + b"?")
                (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
            log = small_log(tmp_path, clock, segment_bytes=rng.choice([500, 1500]))
        agrees(log, batches)
    log.close()
    if log.log_end_offset:
        told = read_snapshot_entries(str(tmp_path / f"t-0/{log.log_end_offset:020d}.snapshot"))
        twin = twin_of(batches)
        assert {entry[0]: (entry[3], entry[4]) for entry in told} == twin.last
        assert {entry[0]: entry[7] for entry in told if entry[7] >= 0} == twin.still_open
