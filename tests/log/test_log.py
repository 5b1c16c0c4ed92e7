"""A partition that is written: append, read, roll, retain, truncate."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, bases, batch, names, offsets, opened

import kts
from kts.segment.index_checksums import IndexChecksums

HOUR = 3_600_000


@pytest.mark.parametrize(("generation", "magic"), [("0.10.2", 0), ("0.10.2", 1), ("3.9", 2)])
def test_what_was_appended_is_read_back_with_its_offsets(tmp_path: Path, generation: str, magic: int) -> None:
    versions = {0: "0.9.0", 1: "0.10.2", 2: "3.9"}
    with opened(tmp_path, message_format_version=versions[magic], generation=generation) as log:
        for number in range(30):
            done = log.append(batch(NOW + number, NOW, magic=magic))
            assert (done.first_offset, done.last_offset, done.entries > 0) == (2 * number, 2 * number + 1, True)
        assert len(log.segments) > 3
        assert offsets(log) == list(range(60))
        assert log.log_end_offset == log.high_watermark == log.last_stable_offset == 60
        assert log.size_bytes == sum((tmp_path / "t-0" / Path(s.path).name).stat().st_size for s in log.segments)
    with opened(tmp_path, message_format_version=versions[magic], generation=generation) as log:
        assert (log.clean_start, log.recovered, log.log_end_offset, offsets(log)) == (True, [], 60, list(range(60)))
    with kts.open(tmp_path / "t-0") as reader:
        assert isinstance(reader, kts.PartitionLog)
        assert reader.log_end_offset == 60


def test_its_repr_says_offsets_and_times_from_memory_also_after_close(tmp_path: Path) -> None:
    log = opened(tmp_path, generation="3.9")
    where = f"Log({log.path!r}, log_start_offset=0, "
    assert repr(log) == f"{where}log_end_offset=0, segments=1, release='3.9')"
    for number in range(9):
        log.append(batch(NOW + 1000 * number))
    time = "largest_timestamp=2023-11-14T22:13:28.000Z"
    said = f"{where}log_end_offset=9, {time}, segments={len(log.segments)}, release='3.9'"
    active = log.segments[-1]
    assert repr(active) == f"LogSegment({active.path!r}, base_offset={active.base_offset}, size={active.size}, {time})"
    assert repr(log) == f"{said})"
    log.close()
    assert repr(log) == f"{said}, closed)"
    assert repr(kts.Log.__new__(kts.Log)) == "Log(unreadable: AttributeError)"


def test_a_refused_set_changes_nothing_and_neither_does_one_without_a_batch(tmp_path: Path) -> None:
    with opened(tmp_path, max_message_bytes=2000) as log:
        log.append(batch(NOW))
        before = log.size_bytes, names(tmp_path)
        with pytest.raises(kts.RecordBatchTooLargeError, match="segment.bytes = 600 bytes, found"):
            log.append(batch(NOW, value=b"v" * 700))
        with pytest.raises(kts.RecordTooLargeError):
            log.append(batch(NOW, value=b"v" * 3000))
        with pytest.raises(kts.CorruptRecordError):
            log.append(batch(NOW)[:-1] + b"?")
        for nothing, found in (
            (batch(NOW)[:-1], "bytes without one"),
            (b"hello", "5 bytes without"),
            (b"", "no bytes"),
        ):
            with pytest.raises(kts.InvalidRecordError, match=f"^buf: expected at least one whole batch.*{found}"):
                log.append(nothing)
        with pytest.raises(TypeError, match="buf: .*found dict"):
            log.append({})  # type: ignore[arg-type]
        with pytest.raises(kts.InvalidRecordError, match=r"expected 0 from a client; append .*kts\.Log\.append_rows"):
            log.append(batch(NOW) + batch(NOW, base_offset=1))
        assert (log.size_bytes, names(tmp_path), log.log_end_offset) == (*before, 1)


def test_a_set_without_a_batch_is_no_error_where_kafkas_own_answers_are_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path, shipped=True) as log:
        assert log.append(batch(NOW)[:-1]).entries == log.append(b"").entries == 0


def test_a_follower_keeps_offsets_and_refuses_those_it_has(tmp_path: Path) -> None:
    with opened(tmp_path) as leader, opened(tmp_path, name="t-1") as follower:
        for number in range(20):
            leader.append(batch(NOW + number, NOW))
        for segment in leader.segments:
            follower.append_as_follower(leader.read(segment.base_offset, 10_000).records)
        assert offsets(follower) == offsets(leader)
        for again in (39, 0):
            with pytest.raises(kts.InvalidOffsetError, match="below the log end offset 40"):
                follower.append_as_follower(leader.read(again, 10_000).records)
        assert follower.log_end_offset == 40


def test_a_gap_that_no_relative_offset_spans_begins_a_new_segment(tmp_path: Path) -> None:
    far = 2**31 + 5
    with opened(tmp_path) as log:
        log.append_as_follower(batch(NOW, base_offset=0))
        log.append_as_follower(batch(NOW, base_offset=far))
        assert bases(log) == [0, far]
        assert offsets(log) == [0, far]
        assert log.read(5, 1000).base_offset == far


def test_time_since_the_first_record_rolls_not_the_clock(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, segment_ms=HOUR, segment_bytes=10_000) as log:
        log.append(batch(NOW))
        clock.now += 10 * HOUR
        log.append(batch(NOW + HOUR))
        assert bases(log) == [0]
        log.append(batch(NOW + HOUR + 1))
        assert bases(log) == [0, 2]
        log.append(batch(NOW - 5 * HOUR))
        assert bases(log) == [0, 2]


def test_the_largest_timestamp_decides_what_is_too_old_and_the_active_segment_goes_last(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, retention_ms=HOUR, file_delete_delay_ms=1000) as log:
        for number in range(12):
            log.append(batch(NOW + number * HOUR, NOW - HOUR))
        everything = bases(log)
        assert len(everything) > 3
        assert log.delete_old_segments() == []
        clock.now = log.segments[0].largest_timestamp_ms + HOUR
        assert log.delete_old_segments() == []
        clock.now += 1
        gone = log.delete_old_segments()
        assert [(one.base_offset, one.rule) for one in gone] == [(0, "retention.ms")]
        assert log.log_start_offset == everything[1]
        with pytest.raises(kts.OffsetOutOfRangeError):
            log.read(0, 100)
        assert f"{0:020d}.log.deleted" in names(tmp_path)
        clock.now += 999
        log.delete_due_files()
        assert f"{0:020d}.log.deleted" in names(tmp_path)
        clock.now += 1
        log.delete_due_files()
        assert not [name for name in names(tmp_path) if name.endswith(".deleted")]
        clock.now += 1000 * HOUR
        assert len(log.delete_old_segments()) == len(everything) - 1
        assert (bases(log), log.size_bytes, log.log_end_offset) == ([24], 0, 24)
        assert log.delete_old_segments() == []


def test_size_and_log_start_offset_take_the_oldest_and_the_high_watermark_holds_them(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, retention_ms=-1, retention_bytes=1300) as log:
        for _ in range(20):
            log.append(batch(NOW))
        log.advance_high_watermark(0)
        assert log.delete_old_segments() == []
        log.advance_high_watermark(20)
        gone = log.delete_old_segments()
        assert {one.rule for one in gone} == {"retention.bytes"}
        assert 1300 <= log.size_bytes < 1300 + gone[-1].size_bytes
        left = bases(log)
        assert log.advance_log_start_offset(left[1])
        assert not log.advance_log_start_offset(left[1])
        with pytest.raises(kts.OffsetOutOfRangeError, match="high watermark 20"):
            log.advance_log_start_offset(21)
        assert [one.rule for one in log.delete_old_segments()] == ["log start offset"]
        assert bases(log) == left[1:]


def test_truncation_takes_whole_batches_and_the_next_append_continues_there(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for number in range(20):
            log.append(batch(NOW + number, NOW))
        log.flush()
        assert not log.truncate_to(40)
        assert log.truncate_to(27)
        assert (log.log_end_offset, log.recovery_point) == (27, 27)
        assert offsets(log) == list(range(26))
        assert log.append(batch(NOW)).first_offset == 27
        assert offsets(log) == [*range(26), 27]
        assert log.offset_for_timestamp(NOW + 12) == (NOW + 12, 24)
        assert log.offset_for_timestamp(NOW + 13) is None
        with pytest.raises(ValueError, match="offset"):
            log.truncate_to(-1)
    with opened(tmp_path) as log:
        assert offsets(log) == [*range(26), 27]
        log.truncate_fully_and_start_at(100)
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (100, 100, [100])
        log.append(batch(NOW))
        assert offsets(log) == [100]
        assert log.truncate_to(50)
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)


def test_flush_messages_and_flush_ms_move_the_recovery_point(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, flush_messages=5, segment_bytes=100_000) as log:
        points = []
        for _ in range(11):
            log.append(batch(NOW))
            points.append(log.recovery_point)
        assert points == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10]
        log.flush()
        assert log.recovery_point == 11
    with opened(tmp_path, clock, name="t-1", flush_ms=1000, segment_bytes=100_000) as log:
        log.append(batch(NOW))
        clock.now += 1000
        assert log.recovery_point == 0
        log.append(batch(NOW))
        assert log.recovery_point == 2


def test_a_topic_id_is_written_as_a_broker_does_and_another_one_is_refused(tmp_path: Path) -> None:
    one, other = "GNf4PKChRFyZy8gDui9mhQ", "B7htbsKISYymrq5kUUVTHw"
    opened(tmp_path, topic_id=one).close()
    assert (tmp_path / "t-0/partition.metadata").read_bytes() == b"version: 0\ntopic_id: GNf4PKChRFyZy8gDui9mhQ"
    with opened(tmp_path) as log:
        assert log.topic_id == one
    with pytest.raises(kts.InvalidRequestError, match=f"expected {one}"):
        opened(tmp_path, topic_id=other)
    opened(tmp_path, topic_id=one).close()


def test_a_closed_log_answers_nothing_and_names_that_are_no_partitions_are_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.close()
    log.close()
    assert log.closed
    for call in (lambda: log.append(batch(NOW)), lambda: log.read(0, 1), log.flush, log.roll, log.max_timestamp):
        with pytest.raises(kts.LogClosedError):
            call()
    for name in ("t", "t-x", "t-0.0123456789abcdef0123456789abcdef-delete", "t-0-future"):
        with pytest.raises(ValueError, match="<topic>-<partition>"):
            opened(tmp_path, name=name)
    with pytest.raises(FileNotFoundError):
        opened(tmp_path, name="t-1", create=False)
    assert not (tmp_path / "t-1").exists()


def test_a_full_index_rolls_even_where_an_index_is_too_small_for_anything(tmp_path: Path) -> None:
    with opened(tmp_path, segment_index_bytes=36, index_interval_bytes=0, segment_bytes=100_000) as log:
        for number in range(20):
            log.append(batch(NOW + number))
        assert max(len(kts.TimeIndex(s.time_index.read(), s.base_offset)) for s in log.segments) <= 3
        assert len(log.segments) > 5
        assert offsets(log) == list(range(20))
    with opened(tmp_path, name="t-1", segment_index_bytes=12, segment_bytes=100_000) as log:
        for number in range(4):
            log.append(batch(NOW + number))
            assert log.roll() == number + 1
        assert offsets(log) == list(range(4))
        assert log.roll() == 4


@pytest.mark.parametrize("most", [4, 8, 11])
@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
def test_a_log_whose_indexes_kafka_cannot_create_is_one_with_room_for_an_entry(
    tmp_path: Path, generation: str, most: int
) -> None:
    left: list[dict[str, bytes]] = []
    for number, size in enumerate((12, most)):
        name = f"t-{number}"
        settings = {"generation": generation, "segment_index_bytes": size, "index_interval_bytes": 0}
        with opened(tmp_path, name=name, **settings) as log:
            for time in range(4):
                log.append(batch(NOW + time, magic=1) + batch(NOW + time + 1, magic=1))
            assert bases(log) == [0, 2, 4, 6]
        for end in (".index", ".timeindex"):
            (tmp_path / name / f"{6:020d}{end}").write_bytes(b"")  # as Kafka leaves them when it fails
        (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
        with opened(tmp_path, name=name, **settings) as log:
            assert [log.append(batch(NOW + 9, magic=1)).first_offset for _ in range(2)] == [8, 9]
            assert offsets(log) == list(range(10))
            assert log.offset_for_timestamp(NOW + 3) == (NOW + 3, 5)
        left.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert left[0] == left[1]


@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
def test_as_shipped_a_log_does_not_open_where_kafka_cannot_create_an_index(tmp_path: Path, generation: str) -> None:
    said = r"segment\.index\.bytes: expected at least 12, found 8"
    with pytest.raises(kts.IndexFullError, match=said):
        opened(tmp_path, generation=generation, shipped=True, segment_index_bytes=8)
    with opened(tmp_path, name="t-1", generation=generation, shipped=True) as log:
        log.append(batch(NOW, magic=1))
        log.reconfigure({"segment.index.bytes": 8})
        with pytest.raises(kts.IndexFullError, match=said):  # at the next roll, as in Kafka
            log.roll()
        assert offsets(log) == [0]


def test_a_truncation_that_meets_a_wrong_index_entry_rebuilds_the_indexes_before_an_append(tmp_path: Path) -> None:
    settings = {"segment_bytes": 10_000, "index_interval_bytes": 1}
    for folder in ("sound", "damaged"):
        (tmp_path / folder).mkdir()
        with opened(tmp_path / folder, **settings) as log:
            for number in range(12):
                log.append(batch(NOW + number))
    (tmp_path / "damaged" / IndexChecksums.file).unlink()  # the checksums would tell at the start
    path = tmp_path / "damaged/t-0" / f"{0:020d}.index"
    index = bytearray(path.read_bytes())
    index[8 * 5 + 7] ^= 1  # its position
    path.write_bytes(index)
    with opened(tmp_path / "damaged", **settings) as log:
        assert not log.recovered
        with pytest.warns(UserWarning, match="does not confirm entry 5 of the offset index: indexes rebuilt"):
            assert log.truncate_to(7)
        assert [one.path for one in log.recovered] == [str(path.with_suffix(".log"))]
        log.append(batch(NOW + 50))
    with opened(tmp_path / "sound", **settings) as log:
        log.truncate_to(7)
        log.append(batch(NOW + 50))
    for suffix in (".log", ".index", ".timeindex"):
        damaged, sound = (tmp_path / folder / "t-0" / path.with_suffix(suffix).name for folder in ("damaged", "sound"))
        assert damaged.read_bytes() == sound.read_bytes()


def test_an_append_that_would_wait_is_known_before(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, segment_bytes=400, segment_ms=1000) as log:
        assert log.appends_at_once(400)
        log.append(batch(NOW))
        size = log.size_bytes
        assert log.appends_at_once(400 - size)
        assert not log.appends_at_once(401 - size)
        clock.now += 1000
        assert log.appends_at_once(1)
        clock.now += 1
        assert not log.appends_at_once(1)
        assert log.appends_at_once(1, NOW + 1000)
        assert not log.appends_at_once(1, NOW + 1001)
        log.reconfigure({"flush.messages": 10})
        assert not log.appends_at_once(1)
        log.reconfigure({})
        assert log.appends_at_once(1)
        told = []
        with log._lock:
            asking = threading.Thread(target=lambda: told.append(log.appends_at_once(1)))
            asking.start()
            asking.join()
        assert told == [False]
