"""What readers see of a log: whole batches up to a bound, ranges of files that outlive their segment, and searches."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from support.sets.log_records import NOW, offsets
from support.sets.log_records import batch as timed
from support.sets.log_records import opened as small_log

import kts
from kts.store.local import FileRange

# --- ranges of files -------------------------------------------------------------------------------


def batch(number: int, size: int = 50) -> bytes:
    return kts.encode({"timestamp": [1000 + number], "value": [bytes([number % 256]) * size]}, magic=2)


def filled(path: Path, count: int = 60, **settings: Any) -> kts.Log:
    log = kts.Log(path / "t-0", {"segment.bytes": 1500, **settings}, clock=lambda: 1000)
    for number in range(count):
        log.append(batch(number))
    return log


def sent(lent: FileRange) -> bytes:
    """What sendfile moves through a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done, got = 0, b""
        while done < len(lent):
            count = os.sendfile(ours.fileno(), lent.fileno(), lent.position + done, len(lent) - done)
            if count == 0:
                break
            done += count
            got += theirs.recv(count, socket.MSG_WAITALL)
        return got


def test_a_slice_is_what_a_read_gives(tmp_path: Path, rng: random.Random) -> None:
    with filled(tmp_path) as log:
        log.advance_high_watermark(47)
        assert len(log.segments) > 3
        for _ in range(300):
            offset, most = rng.randrange(61), rng.choice([0, 1, 100, 700, 10**6])
            asked: dict[str, Any] = {"min_one_message": rng.random() < 0.5}
            asked["up_to"] = rng.choice(["log_end", "high_watermark", "last_stable"])
            read, lent = log.read(offset, most, **asked), log.slice(offset, most, **asked)
            assert lent[1:4] == read[1:]
            assert (len(lent.records), lent.records.read()) == (len(read.records), read.records)
        for offset in (-1, 61):
            with pytest.raises(kts.OffsetOutOfRangeError):
                log.slice(offset, 100)


def test_a_part_of_a_range_is_read(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        lent = log.slice(5, 1000).records
        whole = lent.read()
        assert lent.read(7) == whole[7:]
        assert lent.read(7, 10) == whole[7:17]
        assert (lent.read(990, 100), lent.read(1000), lent.read(0, 0)) == (whole[990:], b"", b"")


def test_an_empty_slice_has_no_descriptor(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        lent = log.slice(60, 1000).records
        assert (len(lent), lent.fileno(), lent.read()) == (0, -1, b"")
        lent.close()


def test_bytes_can_be_sent_after_their_segment_was_rolled_deleted_and_the_log_closed(tmp_path: Path) -> None:
    log = filled(tmp_path, **{"retention.bytes": 0, "file.delete.delay.ms": 0})
    try:
        slices = [log.slice(offset, 10_000).records for offset in (0, 30, 59)]
        before = [lent.read() for lent in slices]
        log.roll()
        log.delete_old_segments()
        log.delete_due_files()
        assert not list((tmp_path / "t-0").glob("*.deleted"))
    finally:
        log.close()
    assert [lent.read() for lent in slices] == before
    assert [sent(lent) for lent in slices] == before
    assert all(before)


def test_a_slice_of_the_active_segment_outlives_its_descriptor_and_gives_nobody_elses_bytes(tmp_path: Path) -> None:
    log = filled(tmp_path)
    lent = log.slice(59, 1000).records
    before = lent.read()
    log.close()
    others = [(tmp_path / f"other-{number}").open("wb+") for number in range(20)]
    for other in others:
        other.write(b"x" * 100_000)
        other.flush()
    assert sent(lent) == before
    for other in others:
        other.close()


def test_truncated_bytes_are_an_error_and_never_the_bytes_that_took_their_place(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        active = log.segments[-1].base_offset
        kept, cut = log.slice(active, 60, min_one_message=True).records, log.slice(active, 10_000).records
        before = kept.read()
        log.truncate_to(active + 1)
        for number in range(100, 120):
            log.append(batch(number))
        with pytest.raises(kts.LogStorageError, match="cut meanwhile"):
            cut.read()
        with contextlib.suppress(OSError):
            assert sent(cut) == b""
        assert sent(kept) == kept.read() == before


def test_a_file_that_another_program_cuts_is_an_error(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        lent = log.slice(0, 10_000).records
        os.truncate(log.segments[0].path, 100)
        with pytest.raises(kts.LogStorageError, match=r"expected \d+ bytes at 0"):
            lent.read()
        assert len(sent(lent)) == 100


def test_a_range_gives_its_descriptor_back_when_closed_or_forgotten(tmp_path: Path) -> None:
    with filled(tmp_path) as log:

        def held() -> int:
            return len(os.listdir("/proc/self/fd"))

        gc.collect()  # what other tests left open
        before = held()
        lent = [log.slice(offset, 100).records for offset in range(50)]
        assert held() == before + 50
        for one in lent[:20]:
            one.close()
            one.close()
        assert held() == before + 30
        del one, lent
        assert held() == before


# --- what is read and found ----------------------------------------------------------------------


def test_reading_stops_at_the_bound_that_was_asked_for(tmp_path: Path) -> None:
    with small_log(tmp_path, high_watermark=0) as log:
        for number in range(10):
            log.append(timed(NOW + number, NOW))
        assert (log.high_watermark, log.log_end_offset) == (0, 20)
        assert log.read(0, 1000, up_to="high_watermark").records == b""
        for mark in range(21):
            log.advance_high_watermark(mark)
            seen = offsets(log, up_to="high_watermark")
            assert seen == list(range(mark - mark % 2))  # whole batches below it
        with pytest.raises(ValueError, match="up_to"):
            log.read(0, 1, up_to="somewhere")
        assert log.read(20, 100).records == b""
        for outside in (21, -1):
            with pytest.raises(kts.OffsetOutOfRangeError, match="from 0 to 20"):
                log.read(outside, 100)


def test_an_entry_that_does_not_fit_is_cut_or_comes_whole_if_it_must(tmp_path: Path) -> None:
    with small_log(tmp_path) as log:
        whole = timed(NOW)
        log.append(whole)
        log.append(whole)
        cut = log.read(1, 10)
        assert (len(cut.records), cut.first_entry_incomplete, cut.position) == (10, True, len(whole))
        one = log.read(1, 10, min_one_message=True)
        assert (len(one.records), one.first_entry_incomplete) == (len(whole), False)
        assert log.read(0, 0).records == b""


def test_search_and_greatest_timestamp_follow_appends_and_the_log_start_offset(tmp_path: Path) -> None:
    with small_log(tmp_path) as log:
        assert (log.offset_for_timestamp(0), log.max_timestamp()) == (None, None)
        for number in range(20):
            log.append(timed(NOW + 10 * number, NOW - 5))
        assert log.offset_for_timestamp(NOW + 45) == (NOW + 50, 10)
        assert log.offset_for_timestamp(NOW - 100) == (NOW, 0)
        assert log.offset_for_timestamp(NOW + 191) is None
        assert log.max_timestamp() == (NOW + 190, 38)
        log.advance_log_start_offset(25)
        assert log.offset_for_timestamp(NOW) == (NOW + 130, 26)
        assert log.offset_for_timestamp(NOW - 5) == (NOW - 5, 25)
