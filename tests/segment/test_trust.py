"""What the log confirms of its indexes: each entry once, and no answer by another one."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import kts
from kts.segment.log_segment import LogSegment

NOW = 10**12
COUNT = 40


def written(path: Path) -> LogSegment:
    """A closed segment with an index entry for every batch but the first, opened again."""
    (path / "t-0").mkdir()
    segment = LogSegment(str(path / "t-0"), 0, {"index.interval.bytes": 0}, now_ms=NOW)
    for offset in range(COUNT):
        one = kts.encode({"offset": [offset], "timestamp": [NOW + offset], "value": [b"x" * 50]}, base_offset=offset)
        segment.append(one, offset, offset, NOW + offset, offset)
    segment.close()
    return reopened(path)


def reopened(path: Path) -> LogSegment:
    segment = LogSegment(str(path / "t-0"), 0, {"index.interval.bytes": 0}, now_ms=NOW)
    segment.found = []  # type: ignore[attr-defined]
    segment.trust.on_corrupt = lambda it: it.found.append(it.trust.corrupt)  # type: ignore[attr-defined]
    return segment


def positions(segment: LogSegment) -> list[int]:
    return [segment.trust.place(offset) for offset in range(COUNT)]


def overwrite(path: Path, suffix: str, at: int, number: int, size: int) -> None:
    file = path / "t-0" / f"{0:020}{suffix}"
    data = bytearray(file.read_bytes())
    data[at : at + size] = number.to_bytes(size, "big", signed=True)
    file.write_bytes(data)


def test_every_entry_of_a_sound_index_is_believed_and_leads_to_its_batch(tmp_path: Path) -> None:
    segment = written(tmp_path)
    size = segment.size // COUNT
    assert segment.offset_index.entries == COUNT - 1
    assert positions(segment) == [offset * size for offset in range(COUNT)]
    assert segment.trust.last_believed() == segment.time_index.entries - 1
    assert segment.trust.corrupt is None and not segment.found  # type: ignore[attr-defined]


def test_a_wrong_position_is_told_once_and_every_answer_begins_at_a_batch_before_the_offset(tmp_path: Path) -> None:
    size = written(tmp_path).size // COUNT
    overwrite(tmp_path, ".index", 8 * 20 + 4, 21 * size + 7, 4)
    segment = reopened(tmp_path)
    found = positions(segment)
    assert all(place % size == 0 and place <= offset * size for offset, place in enumerate(found))
    assert found[21] < 21 * size and found[22] == 22 * size
    assert segment.found == ["the log does not confirm entry 20 of the offset index"]  # type: ignore[attr-defined]


def test_a_wrong_time_is_not_used_and_the_search_goes_on_before_it(tmp_path: Path) -> None:
    size = written(tmp_path).size // COUNT
    overwrite(tmp_path, ".timeindex", 12 * 20, NOW + 20, 8)  # the entry of the batch with NOW + 21
    segment = reopened(tmp_path)
    assert segment.trust.place_of_time(NOW + 20, 0) <= 20 * size
    found = segment.find_offset_by_timestamp(NOW + 21)
    assert found is not None and found.offset == 21
    assert "time index" in str(segment.trust.corrupt)


def test_indexes_are_as_they_were_sealed_or_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for path, is_changed in ((tmp_path / "a", False), (tmp_path / "b", True)):
        segment = written(path)
        positions(segment)
        segment.recover()
        sealed = segment.trust.seal()
        segment.close()
        if is_changed:
            overwrite(path, ".index", 4, 9, 4)
        again = reopened(path)
        again.load_seal(sealed)
        assert again.trust.is_as_sealed(again.offset_index) is not is_changed
        assert (again.trust.corrupt is not None) is is_changed


def test_a_rebuild_forgets_that_an_index_was_corrupt(tmp_path: Path) -> None:
    written(tmp_path)
    overwrite(tmp_path, ".index", 8 * 20 + 4, 1, 4)
    segment = reopened(tmp_path)
    expected = [offset * (segment.size // COUNT) for offset in range(COUNT)]
    assert positions(segment) != expected and segment.trust.corrupt is not None
    segment.recover()
    assert segment.trust.corrupt is None and positions(segment) == expected


def test_a_segment_that_is_let_go_of_is_gone_at_once(tmp_path: Path) -> None:
    segment = written(tmp_path)
    positions(segment)
    gone = weakref.ref(segment)
    gc.disable()
    try:
        del segment
        assert gone() is None
    finally:
        gc.enable()
