"""Files that wait for their deletion: each goes when its delay is over, whatever the clock does."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, batch, names, opened

from kts.log.deletions import DeletionQueue

DAY = 86_400_000
BACK = [1, 59_999, 365 * DAY, NOW + 5]  # the last one to before 1970


def test_what_is_due_goes_in_the_order_of_its_time_and_once() -> None:
    queue, gone = DeletionQueue(), list[str]()
    queue.add(0, 100, lambda: gone.append("later"))
    queue.add(0, 50, lambda: gone.append("first"))
    queue.add(10, 40, lambda: gone.append("second"))
    assert not queue.is_due(49)
    queue.sweep(49)
    assert gone == []
    assert queue.is_due(50)
    queue.sweep(50)
    assert gone == ["first", "second"]
    assert not queue.is_due(99)
    queue.sweep(1000)
    assert gone == ["first", "second", "later"]
    assert not queue.is_due(10**15)


def test_a_delay_runs_on_from_where_the_clock_was_put_back_to() -> None:
    queue, gone = DeletionQueue(), list[str]()
    queue.add(DAY, 100, lambda: gone.append("old"))
    assert queue.is_due(5)  # the step back is noticed
    queue.sweep(5)
    assert gone == []
    queue.add(5, 60, lambda: gone.append("new"))
    queue.sweep(64)
    assert gone == []
    queue.sweep(65)
    assert gone == ["new"]
    queue.sweep(105)
    assert gone == ["new", "old"]


@pytest.mark.parametrize("back", BACK)
def test_files_wait_no_longer_than_their_delay_when_the_clock_is_put_back(tmp_path: Path, back: int) -> None:
    """Else they fill the disk until the clock has caught up, or the next start."""
    clock = Clock()

    def deleted() -> list[str]:
        return [name for name in names(tmp_path) if name.endswith(".deleted")]

    with opened(tmp_path, clock, retention_ms=DAY, file_delete_delay_ms=60_000) as log:
        for _ in range(20):
            log.append(batch(NOW - 2 * DAY))
        assert log.delete_old_segments()
        clock.now += 30_000 - back
        log.delete_due_files()
        assert deleted()
        clock.now += 60_000
        log.append(batch(NOW))
        assert not deleted()
