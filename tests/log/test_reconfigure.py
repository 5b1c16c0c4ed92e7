"""Settings that change while a log is open: what is written stays, what comes follows the new ones."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock

import kts
from kts.offline.verify import verify


def batch(number: int, magic: int = 2, **more: int) -> bytes:
    return kts.encode({"timestamp": [NOW + number], "value": [b"%d" % number]}, magic=magic, **more)


def values(log: kts.Log) -> list[int]:
    out, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        rows = kts.decode(log.read(offset, 10**6).records, ["offset", "value"])
        kept = [row for row in rows.to_pylist() if row["offset"] >= offset]
        out += [int(row["value"]) for row in kept]
        offset = kept[-1]["offset"] + 1
    return out


def magics(log: kts.Log) -> list[int]:
    found: list[int] = []
    for segment in log.segments:
        found += kts.scan_batches(Path(segment.path).read_bytes()).column("magic").to_pylist()
    return found


def test_sizes_and_times_of_rolling_retention_and_stamps_change_at_once(tmp_path: Path) -> None:
    clock = Clock(NOW)
    with kts.Log(tmp_path / "t-0", clock=clock) as log:
        for number in range(10):
            log.append(batch(number))
        assert len(log.segments) == 1
        log.reconfigure({"segment.bytes": 100, "message.timestamp.type": "LogAppendTime", "max.message.bytes": 200})
        clock.now = NOW + 5000
        for number in range(10, 15):
            assert log.append(batch(number)).log_append_time_ms == NOW + 5000
        assert len(log.segments) == 6
        with pytest.raises(kts.RecordTooLargeError):
            log.append(kts.encode({"timestamp": [NOW], "value": [b"x" * 300]}))
        log.reconfigure({"retention.bytes": 100})
        assert log.config.message_timestamp_type == "CreateTime"
        assert log.delete_old_segments()
        assert log.log_start_offset > 9
        assert values(log)[-1] == 14


def test_a_bad_setting_changes_nothing(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"segment.bytes": 500}, clock=Clock(NOW)) as log:
        before = log.config
        for bad in ({"segment.bytes": 0}, {"no.such.name": 1}, {"segment.index.bytes": 3}):
            with pytest.raises(ValueError, match=next(iter(bad))):
                log.reconfigure(bad)
        with pytest.raises(TypeError):
            log.reconfigure(7)  # type: ignore[arg-type]
        assert log.config is before
    with pytest.raises(kts.LogClosedError):
        log.reconfigure({})


@pytest.mark.parametrize("generation", [None, "3.9"])
def test_the_message_format_changes_down_and_up_and_nothing_is_lost(
    tmp_path: Path, rng: random.Random, generation: str | None
) -> None:
    clock, expected, told = Clock(NOW), [], []
    settings = {"segment.bytes": 700, "index.interval.bytes": 100}
    formats = {"0.9.0": 0, "0.10.0": 1, "3.9": 2}
    with kts.Log(
        tmp_path / "t-0", {**settings, "message.format.version": "3.9"}, generation=generation, clock=clock
    ) as log:
        for _ in range(12):
            version = rng.choice(sorted(formats))
            log.reconfigure({**settings, "message.format.version": version})
            assert log.config.magic == formats[version]
            assert log.generation == (generation or ("3.9" if version == "3.9" else "0.10.2"))
            for _ in range(rng.randrange(8)):
                clock.now += 1
                log.append(batch(len(expected), magic=formats[version]), leader_epoch=len(told))
                expected.append(len(expected))
                told.append(formats[version])
            assert values(log) == expected
            assert magics(log) == told
            assert log.log_end_offset == len(expected)
    assert [one for path in sorted((tmp_path / "t-0").glob("*.log")) for one in verify(str(path))] == []
    with kts.Log(tmp_path / "t-0", {**settings, "message.format.version": "3.9"}, clock=clock) as log:
        assert log.recovered == []
        assert values(log) == expected


def test_log_start_sequences_and_rolling_go_on_where_they_were(tmp_path: Path) -> None:
    clock = Clock(NOW)
    old, new = {"message.format.version": "0.10.2", "segment.ms": 100}, {"segment.ms": 100}
    with kts.Log(tmp_path / "t-0", new, clock=clock) as log:
        for number in range(4):
            log.append(batch(number, producer_id=1, producer_epoch=0, base_sequence=number))
        log.advance_log_start_offset(2)
        log.reconfigure(old)
        clock.now += 50
        log.append(batch(50, magic=1))
        log.reconfigure(new)
        assert (log.log_start_offset, values(log)) == (2, [2, 3, 50])
        assert log.append(batch(3, producer_id=1, producer_epoch=0, base_sequence=3)).first_offset == 3
        assert len(log.segments) == 1
        log.append(batch(101))
        assert len(log.segments) == 2


def test_leader_epochs_are_those_of_record_batches_alone(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", generation="3.9", clock=Clock(NOW)) as log:
        log.append(batch(0), leader_epoch=4)
        assert log.leader_epochs == [(4, 0)]
        log.reconfigure({"message.format.version": "0.10.0"})
        assert log.leader_epochs == []
        assert not (tmp_path / "t-0/leader-epoch-checkpoint").exists()
        log.append(batch(1, magic=1), leader_epoch=5)
        log.reconfigure({})
        log.append(batch(2), leader_epoch=6)
        assert log.leader_epochs == [(6, 2)]


def test_readers_see_whole_answers_while_the_format_changes(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    stop = threading.Event()
    with kts.Log(tmp_path / "t-0", {"segment.bytes": 500}, clock=Clock(NOW)) as log:
        for number in range(30):
            log.append(batch(number))

        def reading() -> None:
            try:
                while not stop.is_set():
                    assert values(log)[:30] == list(range(30))
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=reading) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(20):
            version = ("3.9", "0.10.2")[turn % 2]
            log.reconfigure({"segment.bytes": 500, "message.format.version": version})
            log.append(batch(30 + turn, magic=2 - turn % 2))
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert values(log) == list(range(50))


def test_a_range_lent_before_the_format_changed_still_gives_its_bytes(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", clock=Clock(NOW)) as log:
        log.append(batch(0))
        lent = log.slice(0, 1000).records
        log.reconfigure({"message.format.version": "0.10.2"})
        assert lent.read() == log.read(0, 1000).records
