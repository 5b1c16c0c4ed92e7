"""Logs of KIP-32's rejected options: who sets which time, rolling, retention and search, each named after the paper."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import scaled
from support.reference.option_messages import message
from support.sets.option_logs import MINUTE_MS, START_MS, Replica, expected_index

import kts
from kts.proposals.options import Gap, OptionLog, TimeIndexEntry, decode, encode, walk

OPTIONS = [1, 2, 3]
HOUR_MS = 60 * MINUTE_MS


# --- who sets which time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_the_log_append_time_is_assigned_by_the_broker_and_the_create_time_is_not_changed(
    tmp_path: Path, codec: str
) -> None:
    replica = Replica(tmp_path / "t-0", 1)
    assert replica.append(3, create_ms=5, codec=codec) == START_MS
    assert replica.times("createTimestamp") == [5, 6, 7]
    assert replica.times("logAppendTimestamp") == [START_MS] * 3
    assert replica.table()["offset"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_messages_from_a_mirror_maker_keep_their_create_time_and_get_the_target_brokers_log_append_time(
    tmp_path: Path, codec: str
) -> None:
    t0, t1, t2 = START_MS, START_MS + 700, START_MS + 5000
    source, target = Replica(tmp_path / "source-0", 1), Replica(tmp_path / "target-0", 1)
    source.clock.now_ms, target.clock.now_ms = t1, t2
    source.append(2, create_ms=t0, codec=codec)
    copied = source.table()  # CreateTime T0, LogAppendTime T1
    target.log.append(encode(copied.drop_columns("offset"), option=1, compression=codec))
    assert target.times("createTimestamp") == source.times("createTimestamp") == [t0, t0 + 1]
    assert (source.times("logAppendTimestamp"), target.times("logAppendTimestamp")) == ([t1, t1], [t2, t2])


@pytest.mark.parametrize(("option", "expected"), [(1, 70), (3, 50)])
def test_the_leader_corrects_the_create_time_of_a_wrapper(tmp_path: Path, option: int, expected: int) -> None:
    inner = encode({"createTimestamp": [70, 50], "value": [b"a", b"b"]}, option=option)
    packed = zlib.compressobj(wbits=31)
    sent = message(option, 1, 999, -1, None, packed.compress(inner) + packed.flush(), codec=1)
    replica = Replica(tmp_path / "t-0", option)
    replica.log.append(sent)
    assert walk(replica.contents(), option=option, verify_crc=True).create_ms.tolist() == [expected]
    assert replica.times("createTimestamp") == [70, 50]


@pytest.mark.parametrize("option", [1, 2])
def test_a_new_leader_with_a_slower_clock_repeats_the_last_append_time_until_its_clock_has_passed_it(
    tmp_path: Path, option: int
) -> None:
    broker0, broker1 = Replica(tmp_path / "a-0", option), Replica(tmp_path / "b-0", option)
    broker0.append()  # m0 at T0
    broker1.catch_up(broker0)
    assert broker1.contents() == broker0.contents()  # without changing the LogAppendTime of m0
    for late, expected in ((-500, 0), (-1, 0), (3, 3), (2, 3)):
        broker1.clock.now_ms = START_MS + late
        assert broker1.append() == START_MS + expected
    assert broker1.times("logAppendTimestamp") == [START_MS] * 3 + [START_MS + 3] * 2


@pytest.mark.parametrize("end", ["crash", "reopen"])
@pytest.mark.parametrize("option", [1, 2])
def test_a_restart_remembers_the_last_append_time_and_a_truncation_the_one_before(
    tmp_path: Path, option: int, end: str
) -> None:
    replica = Replica(tmp_path / "t-0", option)
    for late in (0, 30, 60):
        replica.clock.now_ms = START_MS + late
        replica.append(2, codec="gzip")
    replica.log.roll()  # the active segment is empty: the time lies in the one before
    getattr(replica, end)()
    replica.clock.now_ms = START_MS - 1000
    assert replica.append() == START_MS + 60
    replica.log.truncate_to(4)
    assert replica.append() == START_MS + 30


def test_option_3_does_not_expose_the_log_append_time(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "t-0", 3)
    replica.append(3, codec="gzip")
    assert replica.table()["logAppendTimestamp"].null_count == 3
    assert replica.log.index_entries() == [TimeIndexEntry(START_MS, 0)]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_set_that_is_damaged_empty_or_too_large_leaves_nothing(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option, {"max.message.bytes": 200})
    replica.append()
    before = replica.contents()
    sound = encode({"value": [b"v"]}, option=option)
    gaps = encode({"offset": [0, 2], "value": [b"a", b"b"]}, option=option, compression="gzip")
    other = encode({"value": [b"v"]}, option=option % 3 + 1)
    for sent, error, words in (
        (b"", kts.InvalidRecordError, "expected a message, found none"),
        (sound[:-1], kts.InvalidRecordError, "expected a message, found none"),
        (sound + sound[:-1] + b"x", kts.CorruptRecordError, "CRC is"),
        (sound + other, kts.CorruptRecordError, f"magic is {32 + option % 3 + 1}, expected {32 + option}"),
        (gaps, kts.CorruptRecordError, "relative offset of the inner message is 2, expected 1 or more"),
        (encode({"value": [b"v" * 200]}, option=option), kts.RecordTooLargeError, "max.message.bytes is 200"),
        (kts.encode({"value": [b"v"]}), kts.CorruptRecordError, f"magic is 2, expected {32 + option}"),
    ):
        with pytest.raises(error, match=words):
            replica.log.append(sent)
    assert replica.contents() == before
    assert (replica.log.log_end_offset, replica.log.closed) == (1, False)


# --- rolling and retention ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
def test_time_based_rolling_is_by_the_log_append_time_of_the_first_message_in_the_segment(
    tmp_path: Path, option: int
) -> None:
    replica = Replica(tmp_path / "t-0", option, {"segment.ms": HOUR_MS})
    rolled = []
    for late in (0, HOUR_MS, HOUR_MS + 1, 2 * HOUR_MS + 1, 2 * HOUR_MS + 2):
        replica.clock.now_ms = START_MS + late
        replica.append(create_ms=START_MS - 50 * HOUR_MS)  # however old the message is
        rolled.append(len(replica.log.segments))
    assert rolled == [1, 1, 2, 2, 3]
    if option == 3:
        firsts = [replica.log.index_entries(base, base)[0].append_ms - START_MS for base in replica.bases()]
        assert firsts == [0, HOUR_MS + 1, 2 * HOUR_MS + 2]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_idle_segment_rolls_when_its_first_message_is_old(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option, {"segment.ms": HOUR_MS})
    replica.append()
    replica.clock.now_ms += HOUR_MS
    assert replica.log.roll_if_due() is None
    replica.clock.now_ms += 1
    assert replica.log.roll_if_due() == 1
    replica.clock.now_ms += 9 * HOUR_MS
    assert replica.log.roll_if_due() is None  # an empty segment never does


@pytest.mark.parametrize("option", OPTIONS)
def test_time_based_retention_is_by_the_log_append_time_of_the_last_message_in_the_segment(
    tmp_path: Path, option: int
) -> None:
    replica = Replica(tmp_path / "t-0", option, {"segment.ms": HOUR_MS, "retention.ms": 24 * HOUR_MS})
    for late in (0, 20, HOUR_MS + 5 * MINUTE_MS, 3 * HOUR_MS):
        replica.clock.now_ms = START_MS + late
        replica.append(create_ms=START_MS + 900 * HOUR_MS)  # a wrong CreateTime keeps nothing
    assert replica.bases() == [0, 2, 3]
    for file in Path(replica.log.path).iterdir():
        os.utime(file, (0, 0))  # nor does a file's time delete anything
    for late, left in ((24 * HOUR_MS + 20, [0, 2, 3]), (24 * HOUR_MS + 21, [2, 3]), (26 * HOUR_MS, [3])):
        replica.clock.now_ms = START_MS + late
        replica.log.delete_old_segments()
        assert replica.bases() == left
    replica.clock.now_ms = START_MS + 27 * HOUR_MS + 1
    [gone] = replica.log.delete_old_segments()  # all of it: a new segment begins first
    assert (gone.base_offset, gone.largest_timestamp_ms, gone.rule) == (3, START_MS + 3 * HOUR_MS, "retention.ms")
    assert (replica.bases(), replica.log.log_start_offset, replica.log.log_end_offset) == ([4], 4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_a_new_replica_rolls_and_deletes_as_the_old_one_does(tmp_path: Path, option: int) -> None:
    settings = {"segment.ms": HOUR_MS, "segment.bytes": 1500, "retention.ms": 5 * HOUR_MS}
    old, new = (Replica(tmp_path / name, option, settings) for name in ("old-0", "new-0"))
    for number in range(90):
        old.clock.now_ms += 7 * MINUTE_MS
        old.append(1 + number % 3, codec=("none", "gzip")[number % 2])
    new.clock.now_ms = old.clock.now_ms
    new.catch_up(old, most_bytes=700)
    assert new.contents() == old.contents()
    assert new.bases() == old.bases() and len(new.bases()) >= 10
    for _ in range(7):
        for replica in (old, new):
            replica.log.delete_old_segments()
        assert new.bases() == old.bases()
        old.clock.now_ms += HOUR_MS
        new.clock.now_ms += HOUR_MS
    assert old.bases() == [old.log.log_end_offset]


@pytest.mark.parametrize("option", OPTIONS)
def test_retention_by_size_takes_the_oldest_segments(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option, {"segment.bytes": 1000, "retention.bytes": 2500})
    for _ in range(60):
        replica.append()
    before = replica.bases()
    gone = replica.log.delete_old_segments()
    assert [one.base_offset for one in gone] == before[: len(gone)] and gone
    assert {one.rule for one in gone} == {"retention.bytes"}
    assert 2500 <= replica.log.size_bytes < 3500


# --- option 3's time index ------------------------------------------------------------------------------------------


def test_the_index_has_an_entry_for_a_segments_first_message_its_last_and_the_first_received_in_each_minute(
    tmp_path: Path, rng: random.Random
) -> None:
    replica = Replica(tmp_path / "t-0", 3, {"segment.bytes": 1500, "segment.ms": HOUR_MS})
    for number in range(scaled(150, 600)):
        replica.clock.now_ms += rng.choice((0, 900, 20_000, 61_000))
        replica.append(rng.randrange(1, 4), codec=rng.choice(("none", "lz4")))
        if number % 40 == 17:
            replica.log.roll()
    assert replica.log.index_entries() == expected_index(replica)
    assert len(replica.log.segments) > 5
    replica.reopen()
    assert (replica.log.index_entries(), replica.log.waits_for_leader) == (expected_index(replica), ())


def indexes(*replicas: Replica) -> list[list[TimeIndexEntry]]:
    return [replica.log.index_entries() for replica in replicas]


def test_at_each_step_the_indexes_of_three_replicas_are_equal_or_one_says_that_it_waits_for_the_leader(
    tmp_path: Path, rng: random.Random
) -> None:
    """Leader changes, crashes, truncations, lost indexes and rolls, drawn at random."""
    settings = {"segment.bytes": 900, "segment.ms": HOUR_MS}
    replicas = [Replica(tmp_path / f"{name}-0", 3, settings) for name in "abc"]
    leader, waited = replicas[0], 0
    for _ in range(scaled(120, 600)):
        leader.clock.now_ms += rng.choice((0, 1000, 30_000, 120_000))
        leader.append(rng.randrange(1, 4), codec=rng.choice(("none", "gzip")))
        step, one = rng.randrange(9), rng.choice([other for other in replicas if other is not leader])
        if step < 3:
            one.fetch_from(leader, most_bytes=300)
        elif step == 3:
            one.crash()
        elif step == 4:
            one.log.truncate_to(rng.randrange(one.log.log_end_offset + 1))
        elif step == 5:
            lost = rng.choice(one.log.segments)
            one.log.close()
            Path(lost.path.replace(".log", ".appendtimes")).unlink(missing_ok=True)
            one.open()
        elif step == 6:
            one.catch_up(leader)
            leader, one.clock.now_ms = one, leader.clock.now_ms - rng.choice((0, 5000))
            for other in replicas:  # a follower of a new leader keeps what that one has
                other.log.truncate_to(leader.log.log_end_offset)
        elif step == 7:
            leader.log.roll()
        for other in replicas:
            gaps = other.log.waits_for_leader
            waited += bool(gaps)
            least = min([gap.first_offset for gap in gaps], default=other.log.log_end_offset)
            assert other.log.index_entries(0, least - 2) == leader.log.index_entries(0, least - 2)
    assert not leader.log.waits_for_leader
    for other in replicas:
        other.catch_up(leader)
        assert other.log.waits_for_leader == ()
    assert indexes(*replicas) == [leader.log.index_entries()] * 3
    assert len({replica.contents() for replica in replicas}) == 1
    assert waited


def lost(path: Path, how: str) -> None:
    """An index file that is gone, short, or damaged."""
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "zeros":
        path.write_bytes(bytes(len(data)))
    else:
        path.write_bytes(data[:-12] if how == "short" else data[:-5] if how == "torn" else data[:12] + data[:-12])


@pytest.mark.parametrize(
    ("how", "kept"), [("missing", 0), ("short", -1), ("torn", -1), ("disordered", 1), ("zeros", 0)]
)
@pytest.mark.parametrize("which", [0, -1], ids=["closed", "active"])
def test_the_index_is_not_rebuilt_from_the_local_log_but_fetched_from_the_leader(
    tmp_path: Path, how: str, kept: int, which: int
) -> None:
    leader, follower = (Replica(tmp_path / name, 3, {"segment.bytes": 2000}) for name in ("a-0", "b-0"))
    for _ in range(30):
        leader.clock.now_ms += 25_000
        leader.append(2)
    follower.catch_up(leader)
    assert len(follower.bases()) == 3 and follower.bases() == leader.bases()
    segment = follower.log.segments[which]
    first, end = segment.base_offset, segment.end_offset
    follower.log.close()
    path = Path(segment.path.replace(".log", ".appendtimes"))
    before = path.stat().st_size
    lost(path, how)
    follower.open()
    sound = leader.log.index_entries(first, end - 1)[:kept]
    assert follower.log.index_entries(first, end - 1) == sound
    assert (path.stat().st_size if path.exists() else 0) == 12 * len(sound)
    [gap] = follower.log.waits_for_leader
    assert first <= gap.first_offset <= gap.last_offset == end - 1
    with pytest.raises(kts.CorruptIndexError, match=f"waits for the leader's entries of the offsets {gap[0]} to"):
        follower.log.search(START_MS)
    follower.reopen()  # it does not forget
    assert follower.log.waits_for_leader == (gap,)
    follower.log.fill_index(gap, leader.log.index_entries(*gap))
    assert (follower.log.waits_for_leader, path.stat().st_size) == ((), before)
    assert follower.log.index_entries() == leader.log.index_entries()
    follower.reopen()
    assert (follower.log.waits_for_leader, indexes(follower)) == ((), indexes(leader))


def test_after_a_crash_a_follower_does_not_trust_the_end_of_its_index(tmp_path: Path) -> None:
    leader, follower = Replica(tmp_path / "a-0", 3), Replica(tmp_path / "b-0", 3)
    for _ in range(4):
        leader.clock.now_ms += 25_000
        leader.append(2)
    follower.catch_up(leader)
    follower.crash()
    last = leader.log.index_entries()[-1]
    assert follower.log.waits_for_leader == (Gap(last.offset, 7),)
    follower.catch_up(leader)
    assert (follower.log.waits_for_leader, indexes(follower)) == ((), indexes(leader))


def test_index_entries_are_truncated_with_the_messages(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "t-0", 3, {"segment.bytes": 900})
    for _ in range(40):
        replica.clock.now_ms += 25_000
        replica.append(2, codec="gzip")
    for offset in (71, 40, 39, replica.bases()[2], 1):
        replica.log.truncate_to(offset)
        end = replica.log.log_end_offset
        assert end == offset // 2 * 2  # a wrapper goes as a whole
        replica.stamped = {at: now for at, now in replica.stamped.items() if at < end}
        assert replica.log.index_entries() == expected_index(replica)
        replica.reopen()
        assert (replica.log.index_entries(), replica.log.waits_for_leader) == (expected_index(replica), ())


def test_a_leader_that_waits_is_the_source_of_truth_once_it_appends(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "t-0", 3)
    replica.append(3)
    replica.crash()
    assert replica.log.waits_for_leader == (Gap(0, 2),)
    replica.clock.now_ms += MINUTE_MS
    replica.append()
    assert replica.log.waits_for_leader == ()
    assert replica.log.index_entries() == [(START_MS, 0), (START_MS + MINUTE_MS, 3)]


@pytest.mark.parametrize("how", ["missing", "short", "torn", "zeros at the end", "zeros in the middle"])
@pytest.mark.parametrize("which", [0, -1], ids=["closed", "active"])
def test_a_leader_goes_on_with_the_entries_before_the_damage_and_loses_none_when_it_is_closed_and_opened_again(
    tmp_path: Path, how: str, which: int
) -> None:
    """Nobody gives it the entries that it lost: it leads."""
    replica = Replica(tmp_path / "t-0", 3, {"segment.bytes": 2000})
    for _ in range(30):
        replica.clock.now_ms += 25_000
        replica.append(2)
    replica.log.flush()
    before, segment = replica.log.index_entries(), replica.log.segments[which]
    replica.log.abandon()
    path = Path(segment.path.replace(".log", ".appendtimes"))
    data = path.read_bytes()
    count, half = len(data) // 12, len(data) // 24
    if how == "zeros at the end":
        path.write_bytes(data[:-12] + bytes(12))
    elif how == "zeros in the middle":
        path.write_bytes(data[: 12 * half] + bytes(12) + data[12 * (half + 1) :])
    else:
        lost(path, how)
    kept = {"missing": 0, "zeros in the middle": half}.get(how, count - 1)
    first = next(number for number, entry in enumerate(before) if entry.offset == segment.base_offset)
    expected = before[: first + kept] + before[first + count :]
    replica.open()
    replica.clock.now_ms = START_MS  # long ago
    assert replica.append() >= expected[-1].append_ms
    found = replica.log.index_entries()
    assert (found[: len(expected)], len(found) - len(expected) <= 1) == (expected, True)
    replica.append()
    replica.reopen()
    assert replica.log.index_entries() == found
    assert [gap.first_offset // segment.end_offset for gap in replica.log.waits_for_leader] == [0] * (which == 0)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(START_MS - 1, 2)], "does not follow"),
        ([(START_MS + 5, 3), (START_MS + 4, 4)], "does not follow"),
        ([(START_MS + 5, 3), (START_MS + 6, 3)], "does not follow"),
        ([(START_MS + 5, 9)], "does not follow"),
    ],
)
def test_entries_that_do_not_fit_the_messages_are_refused(
    tmp_path: Path, entries: list[tuple[int, int]], words: str
) -> None:
    leader, follower = Replica(tmp_path / "a-0", 3), Replica(tmp_path / "b-0", 3)
    leader.append(2)
    follower.catch_up(leader)
    leader.append(3)
    data, before = leader.log.read(2, 1000), follower.log.index_entries()
    with pytest.raises(kts.InvalidRequestError, match=words):
        follower.log.append_as_follower(data, [TimeIndexEntry(*entry) for entry in entries])
    assert (follower.log.log_end_offset, follower.log.index_entries()) == (2, before)
    with pytest.raises(kts.InvalidRequestError, match="gap: expected one of"):
        follower.log.fill_index(Gap(0, 1), [])
    follower.catch_up(leader)
    assert indexes(follower) == indexes(leader)


@pytest.mark.parametrize("option", [1, 2])
def test_only_option_3_has_index_entries_to_fetch(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    data = encode({"value": [b"v"]}, option=option)
    for call in (
        lambda: replica.log.index_entries(),
        lambda: replica.log.fill_index(Gap(0, 0), []),
        lambda: replica.log.append_as_follower(data, [TimeIndexEntry(1, 0)]),
    ):
        with pytest.raises(kts.UnsupportedForMessageFormatError, match="LogAppendTime in its messages"):
            call()
    assert replica.log.waits_for_leader == ()


# --- followers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
def test_a_follower_takes_only_what_follows_its_log(tmp_path: Path, option: int) -> None:
    leader, follower = Replica(tmp_path / "a-0", option), Replica(tmp_path / "b-0", option)
    for _ in range(4):
        leader.clock.now_ms += 10
        leader.append(2, codec="snappy")
    data = leader.contents()
    follower.log.append_as_follower(data[:-3])  # an incomplete message at the end is fetched again
    assert follower.log.log_end_offset == 6
    with pytest.raises(kts.InvalidOffsetError, match=f"expected an offset from 6 to {5 + 2**31}, found 1"):
        follower.log.append_as_follower(data)
    damaged = bytearray(leader.log.read(6, 1000))
    damaged[-1] ^= 1
    with pytest.raises(kts.CorruptRecordError, match="CRC is"):
        follower.log.append_as_follower(bytes(damaged))
    if option != 3:
        late = encode({"offset": [8], "logAppendTimestamp": [START_MS], "value": [b"v"]}, option=option)
        with pytest.raises(kts.InvalidTimestampError, match=f"expected a LogAppendTime from {START_MS + 30} on"):
            follower.log.append_as_follower(late)
    follower.catch_up(leader)
    assert follower.contents() == data


@pytest.mark.parametrize("option", OPTIONS)
def test_a_jump_of_offsets_that_no_segment_has_room_for_is_refused(tmp_path: Path, option: int) -> None:
    """The jump of the second message is as far as a new segment's relative offsets go."""
    replica = Replica(tmp_path / "t-0", option)
    replica.append(2)
    most = 2 + 2**31 - 1
    times = {} if option == 3 else {"logAppendTimestamp": [START_MS]}
    for far in (most + 1, 2**62):
        with pytest.raises(kts.InvalidOffsetError, match=f"expected an offset from 2 to {most}, found {far}"):
            replica.log.append_as_follower(encode({"offset": [far], "value": [b"v"], **times}, option=option))
    assert replica.log.log_end_offset == 2
    replica.log.append_as_follower(encode({"offset": [most], "value": [b"v"], **times}, option=option))
    replica.log.lead()
    replica.append()
    assert replica.table()["offset"].to_pylist() == [0, 1, most, most + 1]
    assert len(replica.log.segments) == 3
    replica.crash()
    assert (replica.log.log_end_offset, replica.log.recovered) == (most + 2, [])


# --- search ---------------------------------------------------------------------------------------------------------


def filled(path: Path, option: int, rng: random.Random) -> Replica:
    replica = Replica(path, option, {"segment.bytes": 2500})
    for _ in range(scaled(120, 500)):
        replica.clock.now_ms += rng.choice((0, 0, 3, 40_000, 90_000))
        create = replica.clock.now_ms - rng.choice((5, 50_000, 10_000_000))
        replica.append(rng.randrange(1, 5), create_ms=create, codec=rng.choice(("none", "none", "gzip", "lz4")))
    return replica


def targets(times: list[int], rng: random.Random) -> list[int]:
    near = [time + shift for time in rng.sample(times, 40) for shift in (-1, 0, 1)]
    return [*near, times[0] - 10**6, times[-1] + 1, times[-1] + 10**6, START_MS // MINUTE_MS * MINUTE_MS]


@pytest.mark.parametrize("end", ["nothing", "crash", "reopen"])
@pytest.mark.parametrize("option", [1, 2])
def test_a_search_by_log_append_time_is_exact_because_it_increases_monotonically(
    tmp_path: Path, option: int, end: str, rng: random.Random
) -> None:
    replica = filled(tmp_path / "t-0", option, rng)
    if end != "nothing":
        getattr(replica, end)()
    times = replica.times("logAppendTimestamp")
    assert times == sorted(times)
    most = 0
    for target in targets(times, rng):
        answer = replica.log.search(target)
        expected = next(((time, offset) for offset, time in enumerate(times) if time >= target), None)
        assert answer.found == expected, target
        most = max(most, answer.bytes_read)
    assert most < 2500  # the index leads into one segment


def test_a_search_finds_messages_of_1970(tmp_path: Path) -> None:
    """LogAppendTime 0 is a time."""
    replica = Replica(tmp_path / "t-0", 1)
    for now in (0, 0, 5):
        replica.clock.now_ms = now
        replica.append()
        replica.log.roll()
    assert [replica.log.search(target).found for target in (-9, 0, 1, 6)] == [(0, 0), (0, 0), (5, 2), None]


@pytest.mark.parametrize("option", [1, 3])
def test_a_search_by_create_time_finds_the_first_in_the_log_and_reads_all_before_it(
    tmp_path: Path, option: int, rng: random.Random
) -> None:
    replica = filled(tmp_path / "t-0", option, rng)
    times = replica.times("createTimestamp")
    for target in targets(times, rng):
        expected = next(((time, offset) for offset, time in enumerate(times) if time >= target), None)
        answer = replica.log.search(target, by="CreateTime")
        assert answer.found == expected, target
        if expected is None:
            assert answer.bytes_read == replica.log.size_bytes
    assert replica.log.search(max(times), by="CreateTime").found is not None


def test_a_search_in_option_3_is_exact_by_the_minute_and_all_messages_before_the_answer_are_earlier(
    tmp_path: Path, rng: random.Random
) -> None:
    replica = filled(tmp_path / "t-0", 3, rng)
    times = [replica.stamped[offset] for offset in range(replica.log.log_end_offset)]
    inexact = 0
    for target in targets(times, rng):
        answer = replica.log.search(target)
        assert answer.bytes_read == 0
        exact = next((offset for offset, time in enumerate(times) if time >= target), None)
        if answer.found is None:
            assert exact is None, target
            continue
        offset = answer.found.offset
        assert all(time < target for time in times[:offset])
        if answer.found.timestamp_ms != -1:
            assert (answer.found.timestamp_ms, offset) == (times[offset], exact)
        else:  # no message in between is of an earlier minute
            inexact += offset != exact
            assert all(time // MINUTE_MS >= target // MINUTE_MS for time in times[offset:])
    assert inexact


def test_option_2_has_no_create_time_to_search(tmp_path: Path) -> None:
    with pytest.raises(kts.UnsupportedForMessageFormatError, match="option 2 has no CreateTime"):
        Replica(tmp_path / "t-0", 2).log.search(0, by="CreateTime")


# --- start, end, errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
def test_reads_begin_with_the_entry_that_contains_the_offset(tmp_path: Path, option: int, rng: random.Random) -> None:
    replica = filled(tmp_path / "t-0", option, rng)
    end = replica.log.log_end_offset
    for offset in rng.sample(range(end), 50):
        most = rng.choice((0, 1, 500, 10_000))
        data = replica.log.read(offset, most)
        found = walk(data, option=option, verify_crc=True)
        assert found.end == len(data) and (len(found.size) == 1 or len(data) <= most)
        offsets = decode(data)["offset"].to_pylist()
        assert offset in offsets[: decode(data[: int(found.size[0])]).num_rows]
    assert replica.log.read(end, 100) == b""
    for outside in (-1, end + 1):
        with pytest.raises(kts.OffsetOutOfRangeError, match=f"expected an offset from 0 to {end}, found {outside}"):
            replica.log.read(outside, 100)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_torn_tail_is_cut_after_a_crash_and_refused_after_a_close(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    for _ in range(3):
        replica.append(2, codec="gzip")
    whole, path = replica.contents(), Path(replica.log.segments[-1].path)
    size = replica.log.segments[-1].size
    replica.log.abandon()
    path.write_bytes(path.read_bytes() + whole[:40])
    replica.open()
    [cut] = replica.log.recovered
    assert (cut.path, cut.position, cut.bytes_cut) == (str(path), size, 40)
    assert (replica.contents(), replica.log.log_end_offset) == (whole, 6)
    replica.log.close()
    path.write_bytes(whole[:-1])
    with pytest.raises(kts.CorruptRecordError, match=f"expected whole entries up to {size - 1}"):
        replica.open()
    assert path.read_bytes() == whole[:-1]
    path.write_bytes(whole)
    replica.open()
    assert replica.contents() == whole


@pytest.mark.parametrize("option", OPTIONS)
def test_offsets_that_jump_out_of_the_segment_are_cut_after_a_crash(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    replica.append(2)
    path = Path(replica.log.segments[-1].path)
    replica.log.abandon()
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + encode({"offset": [2**31], "value": [b"v"]}, option=option))
    replica.open()
    [cut] = replica.log.recovered
    assert (cut.position, replica.log.log_end_offset) == (size, 2)
    assert cut.reason == f"expected an offset from 2 to {2**31 - 1} at position {size}"
    replica.append()
    assert replica.table()["offset"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("option", OPTIONS)
def test_recovery_and_search_decompress_as_much_as_the_log_may_and_a_bound_that_is_too_small_cuts_nothing(
    tmp_path: Path, option: int
) -> None:
    replica = Replica(tmp_path / "t-0", option)
    for size in (10, 5000, 10):
        replica.append(2, codec="gzip", size=size)
    [segment] = replica.log.segments
    whole, position = replica.contents(), int(walk(replica.contents(), option=option).position[1])
    by = "CreateTime" if option != 2 else "LogAppendTime"
    path = tmp_path / "t-0"

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(kts.DecompressionLimitError, match="max_decompressed_bytes") as caught:
            call()
        assert (caught.value.path, caught.value.position) == (segment.path, position)

    replica.log.abandon()
    refused(lambda: OptionLog(path, option=option, max_decompressed_bytes=1000))
    assert Path(segment.path).read_bytes() == whole
    with OptionLog(path, option=option, max_decompressed_bytes=20_000) as log:
        assert (log.recovered, log.log_end_offset) == ([], 6)
    with OptionLog(path, option=option, max_decompressed_bytes=1000) as log:  # it was closed: nothing is decompressed
        if option == 2:
            assert log.search(START_MS).found == (START_MS, 0)
        else:
            refused(lambda: log.search(START_MS + 9, by=by))


@pytest.mark.parametrize("option", OPTIONS)
def test_a_log_that_cannot_be_closed_cleanly_is_closed_and_unlocked_all_the_same(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    replica.append(3)
    whole = replica.contents()
    (tmp_path / "t-0" / "append-time-checkpoint").mkdir()  # a file of this name cannot be written
    with pytest.raises(kts.LogStorageError, match="renaming"):
        replica.log.close()
    assert replica.log.closed
    (tmp_path / "t-0" / "append-time-checkpoint").rmdir()
    replica.open()
    assert (replica.contents(), replica.log.recovered) == (whole, [])


@pytest.mark.parametrize("option", OPTIONS)
def test_a_closed_segment_keeps_its_damage_and_rebuilds_its_indexes(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option, {"segment.bytes": 2000})
    for _ in range(60):
        replica.clock.now_ms += 1000
        replica.append(2)
    first = replica.log.segments[0].path
    whole = replica.contents()
    replica.log.close()
    index = Path(first.replace(".log", ".index"))
    sound = index.read_bytes()
    for bad in (None, b"", sound[:-3], sound[:-8] + b"\x7f\xff\xff\xff" * 2):
        index.unlink(missing_ok=True)
        if bad is not None:
            index.write_bytes(bad)
        replica.open()
        assert replica.contents() == whole
        assert [replica.log.read(offset, 1) for offset in range(30)] == [
            whole[at : at + size] for at, size in zip(*walk(whole, option=option)[:2], strict=True)
        ][:30]
        replica.log.close()
        assert index.read_bytes() == sound
    log = Path(first)
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(kts.CorruptRecordError, match="expected whole entries") as caught:
        replica.open()
    assert caught.value.path == first


@pytest.mark.parametrize("option", OPTIONS)
def test_truncation_to_the_start_and_below_it_begins_there(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option, {"segment.bytes": 900, "retention.bytes": 1000})
    for _ in range(40):
        replica.append()
    replica.log.delete_old_segments()
    start = replica.log.log_start_offset
    assert start > 0
    replica.log.truncate_to(start)
    assert (replica.bases(), replica.log.log_end_offset, replica.contents()) == ([start], start, b"")
    replica.append()
    replica.log.truncate_to(start - 5)
    for _ in range(2):
        assert (replica.bases(), replica.log.log_end_offset) == ([start - 5], start - 5)
        replica.reopen()
    replica.append()
    assert replica.table()["offset"].to_pylist() == [start - 5]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_directory_of_another_option_or_of_kafka_is_refused_and_not_changed(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    replica.append(3)
    replica.log.abandon()
    with kts.Log(tmp_path / "k-0") as log:
        log.append(kts.encode({"value": [b"v"]}))
    for path in (tmp_path / "t-0", tmp_path / "k-0"):
        before = {file.name: file.read_bytes() for file in path.glob("*.log")}
        with pytest.raises(kts.CorruptRecordError, match=r"magic is \d+, expected \d+"):
            OptionLog(path, option=option % 3 + 1)
        assert {file.name: file.read_bytes() for file in path.glob("*.log")} == before


def test_one_writer_at_a_time_and_none_after_close(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "t-0", 1)
    for other in (lambda: OptionLog(tmp_path / "t-0", option=1), lambda: kts.Log(tmp_path / "t-0")):
        with pytest.raises(kts.LogLockedError):
            other()
    with replica.log as log:
        assert not log.closed
    for call in (lambda: replica.append(), lambda: log.roll(), lambda: log.truncate_to(0), lambda: log.flush()):
        with pytest.raises(kts.LogClosedError):
            call()
    log.close()
    with pytest.raises(ValueError, match="expected a directory called <topic>-<partition>, found 'nothing'"):
        OptionLog(tmp_path / "nothing", option=1)
    with pytest.raises(ValueError, match="option 4 is Kafka's format"):
        OptionLog(tmp_path / "u-0", option=4)
