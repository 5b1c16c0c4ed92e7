"""KIP-33's minute map: the first offset of each minute, late ones too."""

from __future__ import annotations

from support.sets.shallow_entries import MINUTE, T, messages

from kts.proposals.minute_map import MinuteMap


def test_each_minute_has_its_first_offset_also_a_late_one() -> None:
    index = MinuteMap()
    index.create(0)
    index.add(0, messages(0, T + 5, T + 2 * MINUTE, T + 6))
    index.add(0, messages(3, T + MINUTE, T + 2 * MINUTE + 7, -1, T - 1))
    expected = [(T, 0), (T + 2 * MINUTE, 1), (T + MINUTE, 3), (T - MINUTE, 6)]
    assert index.segments[0].pairs() == expected


def test_each_segment_has_a_map_of_its_own_which_goes_with_it() -> None:
    index = MinuteMap()
    for base in (0, 1):
        index.create(base)
        index.add(base, messages(base, T))
    assert {base: entries.pairs() for base, entries in index.segments.items()} == {0: [(T, 0)], 1: [(T, 1)]}
    index.remove(0)
    assert list(index.segments) == [1]
    assert [start.offset for start in index.starts(T)] == [1]


def test_the_minute_map_reads_from_the_very_entry_where_a_later_minute_comes_first() -> None:
    index = MinuteMap()
    index.create(0)
    index.add(0, messages(0, T, T + 3 * MINUTE, T + MINUTE))
    assert [start.offset for start in index.starts(T + MINUTE + 5)] == [1]
    assert list(index.starts(T + 4 * MINUTE)) == []
