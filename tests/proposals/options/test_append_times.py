"""Option 3's index file by itself: what it holds, and what it does not believe."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sets.option_logs import MINUTE_MS, START_MS

import kts
from kts.proposals.options.append_times import AppendTimes, Gap, TimeIndexEntry, is_new_minute

ENTRIES = [TimeIndexEntry(START_MS, 5), TimeIndexEntry(START_MS + 7, 9), TimeIndexEntry(START_MS + 7, 12)]


def opened(path: Path, end: int = 13, entries: int | None = None) -> AppendTimes:
    index = AppendTimes(str(path), 5)
    index.load(5, end, entries)
    return index


def written(path: Path) -> Path:
    index = opened(path, 5)
    index.add(ENTRIES)
    index.rest()
    return path


def test_an_entry_is_the_log_append_time_as_int64_and_the_relative_offset_as_int32(tmp_path: Path) -> None:
    path = written(tmp_path / "x")
    assert path.read_bytes() == b"".join(struct.pack(">qi", time, offset - 5) for time, offset in ENTRIES)
    index = opened(path)
    assert (index.entries, index.gap, index.first, index.last) == (ENTRIES, None, ENTRIES[0], ENTRIES[-1])
    assert index.between(6, 9) == [ENTRIES[1]]
    assert index.after(START_MS + 1) == (ENTRIES[0], ENTRIES[1])


def test_a_minute_is_that_of_the_clock_and_not_the_time_since_the_last_entry() -> None:
    assert is_new_minute(START_MS + MINUTE_MS, START_MS + MINUTE_MS - 1)
    assert not is_new_minute(START_MS + MINUTE_MS - 1, START_MS)


@pytest.mark.parametrize(
    ("broken", "kept", "gap"),
    [
        (lambda data: None, 0, Gap(5, 12)),
        (lambda data: b"", 0, Gap(5, 12)),
        (lambda data: b"\xff" * 31, 0, Gap(5, 12)),
        (lambda data: bytes(36), 0, Gap(5, 12)),
        (lambda data: bytes(12) + data[12:], 0, Gap(5, 12)),
        (lambda data: data[:12] + bytes(12) + data[24:], 1, Gap(5, 12)),
        (lambda data: data[:12] + data[:12] + data[24:], 1, Gap(5, 12)),
        (lambda data: data[:-12], 2, Gap(9, 12)),  # the last message has no entry
        (lambda data: data[:-1], 2, Gap(9, 12)),
        (lambda data: data[:24] + bytes(12), 2, Gap(9, 12)),
        (lambda data: data[:24] + data[12:24], 2, Gap(9, 12)),
    ],
)
def test_a_lost_or_damaged_index_keeps_its_sound_entries_and_waits_until_the_leader_fills_it(
    tmp_path: Path, broken: Callable[[bytes], bytes | None], kept: int, gap: Gap
) -> None:
    path = written(tmp_path / "x")
    sound = path.read_bytes()
    data = broken(sound)
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    index = opened(path)
    assert (index.entries, index.gap) == (ENTRIES[:kept], gap)
    index.add([TimeIndexEntry(START_MS + MINUTE_MS, 13)])
    assert (path.read_bytes() if path.exists() else None) == (None if data is None else sound[: 12 * kept])
    for wrong in ([TimeIndexEntry(START_MS + 2 * MINUTE_MS, 9)], [ENTRIES[1], ENTRIES[0]][:1] * 2):
        with pytest.raises(kts.CorruptIndexError):
            index.fill(gap, wrong)
        assert index.gap == gap
    index.fill(gap, [entry for entry in ENTRIES if gap.first_offset <= entry.offset])
    assert index.gap is None
    assert path.read_bytes() == sound + struct.pack(">qi", START_MS + MINUTE_MS, 8)
    index.rest()


@pytest.mark.parametrize("at", [0, 12, 24])
def test_what_lay_behind_the_damage_does_not_come_back_when_a_leader_goes_on(tmp_path: Path, at: int) -> None:
    path = written(tmp_path / "x")
    sound = path.read_bytes()
    path.write_bytes(sound[:at] + bytes(12) + sound[at + 12 :])
    index = opened(path)
    index.trust()
    later = TimeIndexEntry(START_MS + MINUTE_MS, 13)
    index.add([later])
    index.rest()
    again = opened(path, 20, at // 12 + 1)
    assert (again.entries, again.gap) == ([*ENTRIES[: at // 12], later], None)


def test_entries_beyond_the_end_of_the_log_go_with_the_messages_that_a_crash_took(tmp_path: Path) -> None:
    path = written(tmp_path / "x")
    index = opened(path, 10)
    assert (index.entries, index.gap, path.stat().st_size) == (ENTRIES[:2], None, 24)
    index.rest()


def test_a_truncation_drops_a_closing_entry_because_the_segment_is_active_again(tmp_path: Path) -> None:
    index = opened(written(tmp_path / "x"))
    index.truncate(13)  # the entry of offset 12 is neither the first of the segment nor of a minute
    assert index.entries == ENTRIES[:2]
    index.truncate(9)
    assert (index.entries, (tmp_path / "x").stat().st_size) == (ENTRIES[:1], 12)
    index.rest()


def test_an_index_closed_with_as_many_entries_is_believed_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path / "x")
    assert opened(path, 20, 3).gap is None
    assert opened(path, 20, 4).gap == opened(path, 20).gap == Gap(12, 19)
