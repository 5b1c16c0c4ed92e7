"""ListOffsets for one partition: special timestamps, the search by time, and the times of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking

from kts.broker.broker import Broker

NOW = 1_500_000_000_000
NOTHING = (0, -1, -1)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as found:
        yield found


def found(row: Any) -> tuple[int, int, int]:
    return row["error_code"], row["timestamp"], row["offset"]


@pytest.mark.parametrize("version", range(1, 12))
def test_special_times_and_searches(asking: Asking, version: int) -> None:
    asking.create()
    asking.append(10, 30)
    asking.append(20, 40, 5)
    assert asking.delete_records(1) == (0, 1)

    def ask(target: int, **more: Any) -> tuple[int, int, int]:
        return found(asking.list_offsets("t", target, version=version, **more))

    assert ask(-1) == (0, -1, 5)
    assert ask(-2) == (0, -1, 1)
    assert ask(-3) == ((0, 40, 3) if version >= 7 else (35, -1, -1))
    assert ask(-4) == ((0, -1, 1) if version >= 8 else (35, -1, -1))
    assert ask(-5) == (NOTHING if version >= 9 else (35, -1, -1))
    assert ask(-6) == (NOTHING if version >= 11 else (35, -1, -1))
    assert ask(-7) == ask(-(2**63)) == (35, -1, -1)
    assert ask(0) == ask(20) == ask(30) == (0, 30, 1)  # 12.65: not the older one behind it
    assert ask(31) == ask(40) == (0, 40, 3)
    assert ask(41) == ask(2**63 - 1) == NOTHING


@pytest.mark.parametrize("version", range(1, 12))
def test_an_empty_log_has_begin_and_end_and_no_times(asking: Asking, version: int) -> None:
    asking.create()
    assert found(asking.list_offsets("t", -1, version=version)) == (0, -1, 0)
    assert found(asking.list_offsets("t", -2, version=version)) == (0, -1, 0)
    assert found(asking.list_offsets("t", 5, version=version)) == NOTHING
    if version >= 7:
        assert found(asking.list_offsets("t", -3, version=version)) == NOTHING


def test_records_without_a_time_have_a_greatest_one_and_are_never_found(asking: Asking) -> None:
    asking.create()
    asking.append(-1, -1)
    assert found(asking.list_offsets("t", -3)) == (0, -1, 0)
    assert found(asking.list_offsets("t", 0)) == NOTHING


@pytest.mark.parametrize("version", range(1, 12))
def test_a_format_without_times_has_no_search(asking: Asking, version: int) -> None:
    asking.create(message_format_version="0.9.0")
    asking.append(-1, -1, magic=0)
    for target in (0, 5, 2**62, *((-3,) if version >= 7 else ())):
        assert found(asking.list_offsets("t", target, version=version)) == (43, -1, -1)
    assert found(asking.list_offsets("t", -1, version=version)) == (0, -1, 2)
    assert found(asking.list_offsets("t", -2, version=version)) == (0, -1, 0)


def test_version_0_knows_segments_by_the_times_of_their_files(asking: Asking) -> None:
    asking.create(segment_bytes="100")
    for at in range(4):
        log = asking.append(NOW + at)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    for at, segment in enumerate(log.segments):
        os.utime(segment.path, ns=((1000 + 100 * at) * 10**6,) * 2)

    def ask(time: int, count: int, **more: Any) -> list[int]:
        row = asking.list_offsets("t", time, version=0, max_num_offsets=count, **more)
        assert row["error_code"] == 0
        return row["old_style_offsets"]

    assert ask(-1, 1) == [4]
    assert ask(-1, 3) == [4, 3, 2]
    assert ask(-1, 99) == [4, 3, 2, 1, 0]
    assert ask(-2, 9) == [0]
    assert ask(1150, 1) == [1]  # 12.71: the older of the two segments
    assert ask(1300, 9) == [3, 2, 1, 0]
    assert ask(999, 9) == []
    assert ask(NOW, 2) == [4, 3]
    assert ask(-1, 0) == ask(-1, -5) == []
    assert asking.delete_records(2) == (0, 2)
    assert ask(-2, 9) == [2]
    log.advance_high_watermark(3)
    assert ask(-1, 2) == [3, 3]
    assert ask(-1, 2, replica_id=1) == [4, 3]
    assert asking.list_offsets("t", -3, version=0)["error_code"] == 35
    assert asking.list_offsets("u", -1, version=0)["error_code"] == 3
    asking.create("empty")
    row = asking.list_offsets("empty", -1, version=0, max_num_offsets=5)
    assert row["old_style_offsets"] == [0]


def test_times_before_1970_can_be_asked_for_where_the_topic_allows_them(asking: Asking) -> None:
    """KIP-228; the reserved numbers keep their meaning."""
    asking.create(allow_negative_timestamps="true")
    asking.append(-5000, -100, 7)
    for version in (1, 7, 11):
        assert found(asking.list_offsets("t", -5000, version=version)) == (0, -5000, 0)
        assert found(asking.list_offsets("t", -4999, version=version)) == (0, -100, 1)
        assert found(asking.list_offsets("t", -7, version=version)) == (0, 7, 2)
        assert found(asking.list_offsets("t", -2, version=version)) == (0, -1, 0)
