"""Leader epochs: what contradicts a new one goes, where one ended, and the file that says the same."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from support.sets.log_records import NOW, batch, opened

import kts
from kts.log.epochs import LeaderEpochs, end_offset_for, epoch_for

EPOCHS = [(1, 10), (3, 20), (6, 30)]
END = 40


def test_an_entry_that_contradicts_a_new_one_is_dropped(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path))
    for epoch, start in ((1, 10), (3, 20), (6, 30)):
        epochs.assign(epoch, start)
    epochs.assign(6, 35)  # goes on
    epochs.assign(-1, 50)  # a batch without an epoch
    assert (epochs.entries, epochs.latest) == (EPOCHS, 6)
    epochs.assign(7, 30)
    assert epochs.entries == [(1, 10), (3, 20), (7, 30)]
    epochs.assign(2, 40)
    assert epochs.entries == [(1, 10), (2, 40)]
    epochs.assign(5, 10)
    assert epochs.entries == [(5, 10)]


def test_after_any_change_the_file_says_what_the_log_knows(tmp_path: Path, rng: random.Random) -> None:
    epochs, seen = LeaderEpochs(str(tmp_path)), set[int]()
    for _ in range(300):
        offset = rng.randrange(100)
        change = rng.randrange(8)
        if change == 0:
            epochs.truncate_from_end(offset)
            assert all(start < offset for _, start in epochs.entries)
        elif change == 1:
            inside = epoch_for(epochs.entries, offset)
            epochs.truncate_from_start(offset)
            assert inside == -1 or epochs.entries[0] == (inside, offset)
        else:
            epochs.assign(epochs.latest + rng.randrange(-1, 3), offset)
        known = epochs.entries
        assert known == sorted(known)
        assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(known))
        assert LeaderEpochs(str(tmp_path)).entries == known
        seen.add(len(known))
    assert len(seen) > 4


def test_the_epoch_of_a_new_leader_is_written_with_its_first_batch_or_when_asked(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path))
    epochs.assign(1, 0)
    epochs.begin(2, 5)
    assert epochs.entries == [(1, 0), (2, 5)]
    assert LeaderEpochs(str(tmp_path)).entries == [(1, 0)]
    epochs.write()
    assert LeaderEpochs(str(tmp_path)).entries == [(1, 0), (2, 5)]


def test_a_malformed_file_counts_as_empty_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n1 10\n")
    epochs = LeaderEpochs(str(tmp_path))
    assert (epochs.entries, epochs.fault) == ([], "line 2: expected 2 lines, found 1")
    epochs.assign(4, 0)
    assert LeaderEpochs(str(tmp_path)).fault is None


def test_a_format_without_epochs_knows_none_and_writes_no_file(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path), kept=False)
    epochs.assign(1, 0)
    epochs.begin(2, 0)
    epochs.write()
    assert (epochs.latest, list(tmp_path.iterdir())) == (-1, [])
    assert end_offset_for(epochs.entries, 0, 100) == (-1, -1)


@pytest.mark.parametrize(("offset", "expected"), [(0, -1), (9, -1), (10, 1), (19, 1), (20, 3), (30, 6), (10**6, 6)])
def test_an_offset_is_of_the_last_epoch_that_began_at_or_before_it(offset: int, expected: int) -> None:
    assert epoch_for(EPOCHS, offset) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 30)), (5, (3, 30)), (6, (6, END)), (7, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, expected: tuple[int, int]) -> None:
    assert end_offset_for(EPOCHS, epoch, END) == expected


def test_epochs_begin_with_the_first_batch_that_has_them(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(NOW))
        log.append(batch(NOW), leader_epoch=3)
        log.append(batch(NOW))
        assert log.leader_epochs == [(0, 0), (3, 1)]
        with pytest.raises(kts.InvalidRequestError, match="at least 3"):
            log.append(batch(NOW), leader_epoch=2)
        log.append_as_follower(batch(NOW, base_offset=3, partition_leader_epoch=7))
        assert (tmp_path / "t-0/leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 1\n7 3\n"
        log.truncate_to(3)
        assert log.leader_epochs == [(0, 0), (3, 1)]
        log.advance_log_start_offset(2)
        assert (tmp_path / "t-0/leader-epoch-checkpoint").read_text() == "0\n1\n3 2\n"
