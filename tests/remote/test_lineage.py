"""Which copy holds an offset: overlaps, lost branches, forks, gaps and deletions."""

from __future__ import annotations

import random

from kts.arguments import INT64_MAX
from kts.remote.lineage import Epochs, Part, Piece, best_end, parts_of
from kts.remote.metadata import COPY_FINISHED, DELETE_STARTED, Copy, PartitionId

OF = PartitionId("t", "i", 0)


def copy(name: str, start: int, end: int, *epochs: tuple[int, int], state: int = COPY_FINISHED) -> Copy:
    return Copy(OF, name, start, end, epochs or ((0, start),), 100, 5, 1, state)


def pieces(changes: list[Copy], lineage: list[tuple[int, int]], start: int = 0, stop: int = INT64_MAX) -> object:
    found = Epochs(changes).pieces(lineage, start, stop)
    return [(None if one.copy is None else one.copy.segment_id, one.start, one.end) for one in found]


def test_copies_follow_one_another_up_to_the_local_segments() -> None:
    changes = [copy("a", 0, 9), copy("b", 10, 19), copy("c", 20, 29)]
    assert pieces(changes, [(0, 0)], 5, 25) == [("a", 5, 10), ("b", 10, 20), ("c", 20, 25)]
    assert pieces(changes, [(0, 0)], 30, 40) == []


def test_a_newer_copy_that_covers_another_replaces_it() -> None:
    changes = [copy("a", 0, 33), copy("b", 63, 95), copy("x", 34, 62), copy("c", 49, 100)]
    assert pieces(changes, [(0, 0)]) == [("a", 0, 34), ("x", 34, 63), ("c", 63, 101)]
    assert parts_of(Epochs(changes).pieces([(0, 0)], 0)) == [
        Part(changes[0], 0, None),
        Part(changes[2], 34, 49),  # the two have the same records there
        Part(changes[3], 49, None),
    ]


def test_a_lost_branch_is_left_at_the_fork() -> None:
    lost, kept = copy("lost", 96, 149, (1, 96)), copy("kept", 111, 160, (1, 111), (3, 130))
    changes = [lost, copy("gone", 150, 205, (1, 150)), kept]
    assert pieces(changes, [(1, 82), (3, 130)], 96) == [("lost", 96, 130), ("kept", 130, 161)]
    parts = parts_of(Epochs(changes).pieces([(1, 82), (3, 130)], 96))
    assert parts == [Part(lost, 96, 111), Part(kept, 111, None)]


def test_offsets_that_no_copy_has_are_a_piece_of_their_own() -> None:
    changes = [copy("a", 0, 9), copy("c", 20, 29)]
    assert pieces(changes, [(0, 0)]) == [("a", 0, 10), (None, 10, 20), ("c", 20, 30)]
    assert pieces(changes, [(0, 0)], 0, 50)[-1] == (None, 30, 50)  # type: ignore[index]
    assert parts_of([Piece(None, 10, 20)], 20) == [Part(None, 10, 20)]


def test_what_lies_before_the_first_copy_is_no_gap() -> None:
    assert pieces([copy("b", 10, 19)], [(0, 0)], 3) == [("b", 10, 20)]


def test_a_copy_whose_deletion_began_is_not_used() -> None:
    a, b = copy("a", 0, 9), copy("b", 10, 19)
    assert pieces([a, b, a._replace(state=DELETE_STARTED)], [(0, 0)]) == [("b", 10, 20)]
    other = copy("other", 0, 9)
    assert pieces([a, other, a._replace(state=DELETE_STARTED)], [(0, 0)]) == [("other", 0, 10)]


def test_epochs_without_records_are_passed_over() -> None:
    changes = [copy("a", 0, 96), copy("b", 97, 150, (4, 97))]
    assert pieces(changes, [(0, 0), (2, 97), (4, 97), (6, 151)]) == [("a", 0, 97), ("b", 97, 151)]


def test_the_lineage_of_the_store_is_that_of_the_newest_epoch() -> None:
    old, new = copy("old", 150, 257, (1, 150)), copy("new", 144, 172, (3, 144))
    assert best_end([old, new]) is new
    assert best_end([]) is None


def test_random_histories_of_leaders_give_each_offset_from_a_true_copy() -> None:
    """Leaders with logs that fork, each copying from where it likes: what is chosen is the last leader's log."""
    for seed in range(300):
        rng = random.Random(seed)
        log: list[int] = []  # the epoch of each offset
        changes: list[Copy] = []
        truth: dict[str, list[int]] = {}
        copied = 0
        for epoch in range(rng.randint(1, 5)):
            if log and rng.random() < 0.4:  # an unclean election: the new leader lacks the end
                del log[rng.randint(max(copied - 30, 0), len(log)) :]
                copied = min(copied, len(log))
            log += [epoch] * rng.randint(1, 60)
            start = copied if rng.random() < 0.6 else rng.randint(0, copied)
            while start < len(log) and rng.random() < 0.9:
                end = min(start + rng.randint(1, 25), len(log))
                starts = {log[offset]: offset for offset in range(end - 1, start - 1, -1)}
                name = f"{epoch}-{start}-{end}"
                changes.append(copy(name, start, end - 1, *sorted(starts.items())))
                truth[name] = log[:end]
                start = copied = end
        lineage = sorted({epoch: log.index(epoch) for epoch in log}.items())
        found = parts_of(Epochs(changes).pieces(lineage, 0))
        for number, part in enumerate(found):
            if part.copy is None:
                continue
            stop = part.copy.end_offset + 1 if part.end is None else part.end
            here = truth[part.copy.segment_id][part.base_offset : stop]
            assert here == log[part.base_offset : stop], (seed, part)
            if number + 1 < len(found):
                assert stop == found[number + 1].base_offset, (seed, found)
