"""One segment of an option's log: slices of any size, and the indexes beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import scaled
from support.sets.option_logs import START_MS, Replica

import kts
from kts._timeindex import OffsetIndex, TimeIndex
from kts.proposals.options import walk


@pytest.mark.parametrize("option", [1, 2, 3])
def test_slices_of_any_size_give_the_same_entries(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    for number in range(12):
        replica.append(1 + number % 3, size=10 + 60 * (number % 4), codec=("none", "gzip")[number % 2])
    [segment] = replica.log.segments
    whole = walk(replica.contents(), option=option)
    for most in range(1, scaled(400, 1500), 7):
        found = [one for one in segment.slices(0, verify_crc=True, most_bytes=most)]
        assert [position for one in found for position in one.position] == whole.position.tolist()
        assert [offset for one in found for offset in one.last_offset] == whole.last_offset.tolist()
        assert found[-1].end == whole.end == segment.size


@pytest.mark.parametrize("option", [1, 2, 3])
def test_kafkas_indexes_of_a_closed_segment_are_sound_and_complete(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    for _ in range(40):
        replica.clock.now_ms += 5
        replica.append(2)
    replica.log.roll()
    stem = replica.log.segments[0].path.removesuffix(".log")
    offsets = OffsetIndex(Path(f"{stem}.index").read_bytes(), 0)
    assert offsets.check() == [] and len(offsets.entries()[0]) > 5
    found = walk(replica.contents(), option=option)
    known = dict(zip(found.position.tolist(), found.last_offset.tolist(), strict=True))
    assert all(known[position] == offset for offset, position in zip(*map(list, offsets.entries()), strict=True))
    if option == 3:
        assert not Path(f"{stem}.timeindex").exists()
        assert Path(f"{stem}.appendtimes").stat().st_size == 24
    else:
        times = TimeIndex(Path(f"{stem}.timeindex").read_bytes(), 0)
        assert times.check() == []
        assert (times.entries()[0][-1], times.entries()[1][-1]) == (START_MS + 200, 79)
        replica.log.abandon()
        Path(f"{stem}.timeindex").unlink()
        replica.open()
        assert (TimeIndex(Path(f"{stem}.timeindex").read_bytes(), 0).entries()[0] == times.entries()[0]).all()


@pytest.mark.parametrize("option", [1, 2, 3])
def test_a_length_that_lies_ends_the_segment_without_memory_for_it(tmp_path: Path, option: int) -> None:
    replica = Replica(tmp_path / "t-0", option)
    replica.append(3)
    whole, [segment] = replica.contents(), replica.log.segments
    path = Path(segment.path)
    replica.log.abandon()
    path.write_bytes(whole + whole[:8] + b"\x7f\x00\x00\x00" + whole[12:17])
    replica.open()
    assert replica.log.recovered[0].reason == "an entry is cut, 17 bytes are left"
    assert replica.contents() == whole
    replica.log.close()
    path.write_bytes(whole + whole)  # sound, but the offsets go back
    with pytest.raises(kts.CorruptRecordError, match="expected whole entries"):
        replica.open()
