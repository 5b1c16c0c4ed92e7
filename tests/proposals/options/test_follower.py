"""KIP-32's option 3 on three replicas: followers fetch the time index from the leader, as they fetch the messages.

Real brokers, sockets and files. After each step the replicas have the same index, byte for byte, or the one that
differs says that it waits for the leader.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.broker.option_replicas import SUFFIX, Replica, agree, catch_up, follow, replicas
from support.golden import scaled

from kts.errors import InvalidRequestError, KtsError, NotLeaderError
from kts.proposals.options import OptionFollower, OptionLeader, OptionLog, TimeIndexEntry
from kts.replica.client import Connection

T = 1_500_000_000_000 - 1_500_000_000_000 % 60_000  # a full minute
MINUTE_MS = 60_000


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Replica]]:
    with replicas(tmp_path, start_ms=T, segment_bytes=600, index_interval_bytes=100) as found:
        yield found


def produce(leader: Replica, minutes: int, sets: int = 3) -> None:
    """Some sets in each minute, 10 s apart."""
    for _ in range(minutes):
        for _ in range(sets):
            leader.produce(3, compression="gzip" if sets % 2 else "none")
            leader.clock.now_ms += 10_000
        leader.clock.now_ms += MINUTE_MS - sets * 10_000


def test_an_index_entry_is_for_the_first_message_the_last_and_the_first_received_in_the_minute(
    three: list[Replica],
) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 20)  # nine messages a minute, received at :00, :10 and :20
    catch_up([b, c])
    agree(three)
    assert len(b.log.segments) > 3
    for segment in b.log.segments[:-1]:
        last = segment.end_offset - 1
        expected = {segment.base_offset, last, *(9 * n for n in range(20) if segment.base_offset < 9 * n <= last)}
        assert segment.append_times is not None
        entries = {entry.offset: entry.append_ms for entry in segment.append_times.entries}
        assert entries == {offset: T + offset // 9 * MINUTE_MS + offset % 9 // 3 * 10_000 for offset in expected}


def test_a_follower_takes_logappendtime_from_the_leader_whatever_its_own_clock_says(tmp_path: Path) -> None:
    with replicas(tmp_path, 2, start_ms=T) as (a, b):
        b.clock = type(b.clock)(T + 10**9)
        b.restart()
        follow(a, [b])
        produce(a, 3)
        catch_up([b])
        agree([a, b])
        assert b.log.last_append_ms < T + 10**9


def test_a_new_replica_copies_the_whole_index(three: list[Replica]) -> None:
    a, b, c = three
    follow(a, [b])
    produce(a, 30)
    follow_one = c.follow(a)
    follow_one.catch_up()
    catch_up([b])
    agree(three)
    assert len(a.files(SUFFIX)) > 3


def test_the_leader_adds_the_entry_of_the_last_message_when_it_rolls_and_followers_take_it(
    three: list[Replica],
) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 1)
    catch_up([b, c])
    before = b.log.index_entries()
    a.log.roll()
    catch_up([b])
    assert b.log.index_entries() == [*before, TimeIndexEntry(a.log.last_append_ms, 8)]
    produce(a, 1)
    catch_up([b, c])
    agree(three)
    assert [segment.base_offset for segment in c.log.segments] == [0, 9]


def test_when_messages_are_truncated_so_are_their_entries(three: list[Replica]) -> None:
    """A leads, and appends what nobody fetches; B leads next. A comes back as a follower."""
    a, b, c = three
    follow(a, [b, c])
    produce(a, 5)
    catch_up([b, c])
    end = a.log.log_end_offset
    produce(a, 7)  # nobody has these
    lost = a.log.index_entries(end)
    assert len(lost) > 5
    follow(b, [c])
    produce(b, 2)
    follower = a.follow(b)
    follower.catch_up()
    catch_up([c])
    agree(three)
    assert follower.truncations == 1
    assert not {*lost} & {*a.log.index_entries(end)}


def test_the_index_is_not_rebuilt_from_the_log_after_a_crash_but_fetched_from_the_leader(
    three: list[Replica],
) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 10)
    catch_up([b, c])
    b.kill()
    [*_, last] = sorted(b.path.glob(f"*{SUFFIX}"))
    last.write_bytes(last.read_bytes()[:12])
    b.open()
    [gap] = b.log.waits_for_leader
    agree(three)  # B says that it waits
    assert b.files(SUFFIX) != a.files(SUFFIX)
    produce(a, 1)
    b.follow(a).catch_up()
    catch_up([c])
    assert not b.log.waits_for_leader
    assert gap.last_offset < b.log.log_end_offset
    agree(three)


@pytest.mark.parametrize("lost", ["active", "first", "all", "garbage"])
def test_a_lost_index_comes_from_the_leader(three: list[Replica], lost: str) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 10)
    catch_up([b, c])
    c.kill()
    found = sorted(c.path.glob(f"*{SUFFIX}"))
    for path in {"active": found[-1:], "first": found[:1], "all": found, "garbage": found[1:2]}[lost]:
        path.unlink() if lost != "garbage" else path.write_bytes(b"\xff" * 31)
    c.open()
    assert c.log.waits_for_leader
    agree(three)
    follower = c.follow(a)
    assert follower.catch_up() == 0  # no message came again
    agree(three)
    assert follower.truncations == 0
    c.restart()
    assert not c.log.waits_for_leader
    agree(three)


def test_an_index_rebuilt_at_recovery_would_have_the_time_of_the_recovery(three: list[Replica], tmp_path: Path) -> None:
    """KIP-32: "the LAT in the index file will be very close, or even the same". So nothing rebuilds it: a replica that
    lost it waits, and gets the true times from the leader."""
    a, b, _ = three
    follow(a, [b])
    produce(a, 10)
    catch_up([b])
    recovered_ms = T + 60 * MINUTE_MS
    with OptionLog(tmp_path / "rebuilt" / "orders-0", option=3, clock=lambda: recovered_ms) as rebuilt:
        for segment in a.log.segments:
            rebuilt.append(a.log.read(segment.base_offset, segment.size))
        assert {entry.append_ms for entry in rebuilt.index_entries()} == {recovered_ms}
    b.kill()
    for path in b.path.glob(f"*{SUFFIX}"):
        path.unlink()
    b.open()
    b.follow(a).catch_up()
    assert {entry.append_ms // MINUTE_MS for entry in b.log.index_entries()} == {T // MINUTE_MS + n for n in range(10)}


def test_a_crash_that_took_messages_takes_their_entries(three: list[Replica]) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 4)
    catch_up([b, c])
    b.kill()
    [*_, last] = sorted(b.path.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-7])
    b.open()
    assert b.log.log_end_offset < a.log.log_end_offset
    agree([a, c])
    b.follow(a).catch_up()
    agree(three)


def test_a_leader_that_lost_its_index_and_leads_again_is_the_truth(three: list[Replica]) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 10)
    catch_up([b, c])
    a.kill()
    [*_, last] = sorted(a.path.glob(f"*{SUFFIX}"))
    last.write_bytes(last.read_bytes()[:12])
    a.open()
    assert a.log.waits_for_leader
    agree(three)
    follow(a, [b, c])  # nobody has the entries that it lost
    produce(a, 3)
    catch_up([b, c])
    agree(three)


@pytest.mark.parametrize("minute", [1, 10], ids=["a clock behind", "on time"])
def test_an_index_with_a_gap_is_compared_up_to_the_gap(tmp_path: Path, minute: int) -> None:
    """A lost most of its index, and leads. B has more of it than A, and lost the end."""
    with replicas(tmp_path, start_ms=T) as three:
        a, b, c = three
        follow(a, [b, c])
        produce(a, 6)
        catch_up([b, c])
        for replica, entries in ((a, 1), (b, 4)):
            replica.kill()
            [path] = replica.path.glob(f"*{SUFFIX}")
            path.write_bytes(path.read_bytes()[: 12 * entries])
            replica.open()
            assert len(replica.log.index_entries()) == entries
        assert [gap.first_offset for gap in b.log.waits_for_leader] == [27]
        a.clock.now_ms = T + minute * MINUTE_MS
        a.lead()
        a.produce(3)
        for replica in (b, c):
            replica.follow(a).catch_up()
        agree(three)
        assert [entry.offset for entry in b.log.index_entries()] == [0, 54]
        produce(a, 2)
        catch_up([b, c])
        agree(three)


def test_a_follower_that_rolled_by_itself_takes_the_entry_of_the_last_message_when_the_leader_rolls(
    three: list[Replica],
) -> None:
    a, b, c = three
    follow(a, [b, c])
    produce(a, 1)
    catch_up([b, c])
    b.log.roll()
    a.log.roll()
    a.produce(1)
    catch_up([b, c])
    assert [entry.offset for entry in b.log.index_entries()] == [0, 8, 9]
    agree(three)


def test_with_a_new_leader_whose_clock_is_behind_the_times_of_the_index_do_not_go_back(three: list[Replica]) -> None:
    """max(last appended, now), which option 3 takes from the index."""
    a, b, c = three
    follow(a, [b, c])
    produce(a, 4)
    catch_up([b, c])
    a.clock.now_ms = T  # one clock for all three
    follow(b, [a, c])
    produce(b, 8)
    catch_up([a, c])
    agree(three)
    times = [entry.append_ms for entry in c.log.index_entries()]
    assert times == sorted(times)
    assert times[-1] > T + 4 * MINUTE_MS


def test_a_new_leader_knows_logappendtime_by_the_minute_only(three: list[Replica]) -> None:
    """What the paper does not say: the last message has no entry yet, so max(last appended, now) goes on from the entry
    before. And if that leader rolls first, nobody can write the entry of that message."""
    a, b, c = three
    follow(a, [b, c])
    a.produce(2)
    a.clock.now_ms += 50_000
    a.produce(2)
    assert a.log.last_append_ms == T + 50_000
    catch_up([b, c])
    assert b.log.last_append_ms == T
    a.clock.now_ms = T + 10_000
    follow(b, [a, c])
    b.log.roll()
    b.produce(1)
    catch_up([a, c])
    agree(three)
    assert b.log.index_entries() == [(T, 0), (T + 10_000, 4)]


def test_retention_and_rolling_by_the_index_entries_agree_on_each_replica(tmp_path: Path) -> None:
    """Messages whose CreateTime says nothing: a week ago, or in a year."""
    hour = 60 * MINUTE_MS
    with replicas(tmp_path, start_ms=T, segment_ms=hour, retention_ms=3 * hour) as three:
        a, b, c = three
        follow(a, [b, c])
        for number in range(30):
            a.produce(2, create_time_ms=T - 7 * 24 * hour if number % 2 else T + 365 * 24 * hour)
            a.clock.now_ms += 20 * MINUTE_MS
            if number % 3 == 0:
                catch_up([b, c])
        catch_up([b, c])
        agree(three)
        assert [segment.base_offset for segment in a.log.segments] == [8 * number for number in range(8)]
        assert [
            [segment.base_offset for segment in replica.log.segments] == [8 * n for n in range(8)] for replica in three
        ] == [True] * 3
        deleted = [replica.log.delete_old_segments() for replica in three]
        assert deleted[0] == deleted[1] == deleted[2]
        assert [one.base_offset for one in deleted[0]] == [0, 8, 16, 24, 32]
        agree(three)
        produce(a, 2)
        catch_up([b, c])
        agree(three)


def test_a_replica_that_joins_after_retention_begins_where_the_leader_begins(tmp_path: Path) -> None:
    hour = 60 * MINUTE_MS
    with replicas(tmp_path, start_ms=T, segment_ms=hour, retention_ms=3 * hour) as three:
        a, b, c = three
        follow(a, [b])
        for _ in range(12):
            a.produce(2)
            a.clock.now_ms += hour
        catch_up([b])
        for replica in (a, b):
            replica.log.delete_old_segments()
        assert a.log.log_start_offset > 0
        c.follow(a).catch_up()
        assert c.log.log_start_offset == a.log.log_start_offset
        agree(three)


@pytest.mark.parametrize("option", [1, 2])
def test_options_1_and_2_need_no_index_from_the_leader(tmp_path: Path, option: int) -> None:
    """LogAppendTime is in the messages: the copies of the indexes are equal without it."""
    with replicas(tmp_path, option=option, start_ms=T, segment_bytes=600, index_interval_bytes=100) as three:
        a, b, c = three
        follow(a, [b, c])
        produce(a, 10)
        catch_up([b, c])
        follow(b, [a, c])
        produce(b, 10)
        catch_up([a, c])
        times = {}
        for replica in three:
            replica.restart()
            times[replica.name] = replica.files(".timeindex")
            assert replica.files(".log") == a.files(".log")
        assert times["A"] == times["B"] == times["C"]
        assert len(times["A"]) > 3


def test_a_leader_of_an_old_epoch_is_refused(three: list[Replica]) -> None:
    a, b, c = three
    follow(a, [b, c], 3)
    produce(a, 1)
    catch_up([b, c])
    follow(b, [c], 4)
    produce(b, 1)
    catch_up([c])
    follower = c.follow(a)  # A does not know yet that it leads no longer
    with pytest.raises(NotLeaderError, match="expected a last fetched epoch up to 3, found 4"):
        follower.step()
    with pytest.raises(InvalidRequestError, match="leader_epoch: expected more than 4"):
        OptionLeader([c.log], leader_epoch=4)


def test_a_copy_whose_epochs_are_lost_is_not_compared_by_guess(three: list[Replica]) -> None:
    a, b, _ = three
    follow(a, [b])
    produce(a, 1)
    catch_up([b])
    b.kill()
    (b.path / "leader-epoch-checkpoint").unlink()
    b.open()
    with pytest.raises(InvalidRequestError, match="delete the directory to copy it again"):
        b.follow(a)


def test_a_consumer_is_no_follower(three: list[Replica]) -> None:
    with pytest.raises(ValueError, match="replica_id: expected 0 or more, found -1"):
        OptionFollower(three[0].log, three[1].connect(), replica_id=-1)


def test_three_replicas_agree_after_each_step_of_a_random_life(tmp_path: Path, rng: random.Random) -> None:
    """Crashes that take messages or entries, lost indexes, leader changes, rolls and retention, in any order. A second
    or more, for the cases that nobody thought of."""
    with replicas(
        tmp_path, start_ms=T, segment_bytes=1500, segment_ms=20 * MINUTE_MS, retention_ms=120 * MINUTE_MS
    ) as three:
        epoch, leader = 0, three[0]
        follow(leader, three[1:], epoch)
        for _ in range(scaled(120, 600)):
            step = rng.choice(["produce", "produce", "catch up", "roll", "retention", "kill", "lead", "restart"])
            others = [replica for replica in three if replica is not leader]
            print(step, leader, leader.log.log_end_offset)
            if step == "produce":
                leader.clock.now_ms += rng.choice([0, 1000, MINUTE_MS // 2, 3 * MINUTE_MS, -MINUTE_MS])
                leader.produce(rng.randrange(1, 9), compression=rng.choice(["none", "gzip", "lz4"]))
            elif step == "catch up":
                catch_up(rng.sample(others, rng.randrange(1, 3)))
            elif step == "roll":
                leader.log.roll()
            elif step == "retention":
                catch_up(others)
                starts = {(*replica.log.delete_old_segments(), replica.log.log_start_offset) for replica in three}
                assert len(starts) == 1
            elif step == "kill":
                one = rng.choice(others)
                one.kill()
                damage(one, rng)
                one.open()
                one.follow(leader).catch_up()
            elif step == "restart":
                one = rng.choice(others)
                one.restart()
                one.follow(leader).catch_up()
            else:
                epoch += 1
                leader = rng.choice(three)
                follow(leader, [replica for replica in three if replica is not leader], epoch)
            if rng.random() < 0.5:
                catch_up([replica for replica in three if replica is not leader])
                agree(three)
        catch_up([replica for replica in three if replica is not leader])
        agree(three)


def damage(one: Replica, rng: random.Random) -> None:
    """What a crash may do to the active segment: lose the end of its files; or an index is lost."""
    log = sorted(one.path.glob("*.log"))[-1]
    if rng.random() < 0.3:
        log.write_bytes(log.read_bytes()[: rng.randrange(log.stat().st_size + 1)])
    found = sorted(one.path.glob(f"*{SUFFIX}"))
    if found and rng.random() < 0.5:
        data = found[-1].read_bytes()
        found[-1].write_bytes(data[: rng.randrange(len(data) + 1)])
    if found and rng.random() < 0.3:
        rng.choice(found).unlink()


class Liar:
    """A connection that changes a number in an answer."""

    def __init__(self, honest: Connection, rng: random.Random) -> None:
        self.honest, self.rng = honest, rng

    def ask(self, api: int, version: int, body: Mapping[str, Any], /) -> dict[str, Any]:
        answer = self.honest.ask(api, version, body)
        [row] = answer["topics"][0]["partitions"]
        rows = self.rng.choice([[row], row.get("time_index") or [row]])
        found = self.rng.choice(rows)
        names = [name for name, value in found.items() if isinstance(value, int) and name != "partition"]
        name = self.rng.choice(names)
        found[name] = self.rng.choice([-1, 0, 1, found[name] - 1, found[name] + 1, 2**31 - 1])
        if self.rng.random() < 0.2 and row.get("records"):
            row["records"] = row["records"][: self.rng.randrange(len(row["records"]))]
        return answer


def test_a_leader_that_lies_is_refused_or_leaves_a_log_that_opens(tmp_path: Path, rng: random.Random) -> None:
    """No answer raises anything but a KtsError, and none is asked for without end. A second, for all fields' edges."""
    with replicas(tmp_path, 1, start_ms=T, segment_bytes=600) as [leader]:
        leader.lead()
        produce(leader, 20)
        refused = 0
        for number in range(scaled(40, 400)):
            path = tmp_path / str(number) / "orders-0"
            settings = {"segment.bytes": 600}
            with OptionLog(path, option=3, config=settings) as log, leader.connect() as connection:
                follower = OptionFollower(log, Liar(connection, rng), max_bytes=300)
                try:
                    for _ in range(30):
                        follower.step()
                except KtsError:
                    refused += 1
            OptionLog(path, option=3, config=settings).close()
        assert refused > 10
