"""Where a copy is cut: Kafka's rules one by one, and elections at random, compared with the logs themselves."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import kts
from kts.log.epochs import end_offset_for
from kts.replica.divergence import Truncation, first_difference, record_from, truncation

EPOCHS = [(1, 10), (3, 20), (6, 30)]
END = 40
Log = list[tuple[int, int]]  # at each offset the leader epoch, and a number that no other record has


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((6, 35), Truncation(35, True)),  # the leader has less of the epoch
        ((6, 99), Truncation(END, True)),  # it has more
        ((3, 25), Truncation(25, True)),
        ((3, 99), Truncation(30, True)),  # and ours of that epoch ends first
        ((5, 33), Truncation(30, False)),  # an epoch that we do not know: cut what is newer, ask again
        ((2, 15), Truncation(20, False)),
        ((0, 5), Truncation(5, True)),  # older than all of ours
        ((-1, 35), Truncation(35, True)),  # Kafka before 2.0
        ((-1, 99), Truncation(END, True)),
        ((-1, -1), None),
    ],
)
def test_the_leaders_answer_says_where_to_cut(answer: tuple[int, int], expected: Truncation | None) -> None:
    assert truncation(EPOCHS, 6, *answer, END) == expected


@pytest.mark.parametrize("answer", [(7, 35), (2**31 - 1, 2**63 - 1), (6, -2), (3, -(2**63))])
def test_answers_that_no_leader_gives_are_refused(answer: tuple[int, int]) -> None:
    with pytest.raises(kts.InvalidRequestError, match="expected an epoch up to 6"):
        truncation(EPOCHS, 6, *answer, END)


def epochs(log: Log) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset, (epoch, _) in enumerate(log):
        if not found or found[-1][0] != epoch:
            found.append((epoch, offset))
    return found


def follow(copy: Log, leader: Log, its_epochs: list[tuple[int, int]]) -> int:
    """Cut a copy as its leader's answers say; the number of questions."""
    questions = 0
    while copy:
        questions += 1
        known = epochs(copy)
        asked = known[-1][0]
        cut = truncation(known, asked, *end_offset_for(its_epochs, asked, len(leader)), len(copy))
        assert cut is not None
        del copy[cut.offset :]
        if cut.completed:
            break
    return questions


def test_after_random_elections_a_copy_is_the_beginning_of_its_leaders_log(rng: random.Random) -> None:
    """Unclean ones too, as KIP-279 is about; every record that both have in common stays."""
    cuts = most_questions = record = 0
    for _ in range(300):
        logs: list[Log] = [[], [], []]
        away = rng.choice((0.4, 0.8))  # who is seldom there has much that nobody knows: it takes more questions
        for epoch in range(rng.randint(1, 40)):
            leader = rng.choice(logs)
            its_epochs = [*epochs(leader), (epoch, len(leader))]  # a leader notes its own at once
            for _ in range(rng.randint(0, 4)):
                leader.append((epoch, record := record + 1))
            for copy in logs:
                if copy is leader or rng.random() < away:
                    continue
                common = len(os.path.commonprefix([copy, leader]))
                before = len(copy)
                most_questions = max(most_questions, follow(copy, leader, its_epochs))
                assert copy == leader[:common]
                cuts += len(copy) < before
                copy += leader[common : rng.randint(common, len(leader))]
    assert cuts > 100 and most_questions > 2


def entry(rows: dict[int, int]) -> bytes:
    """A batch of records, each with its offset as key and a number as value."""
    return kts.encode(
        {
            "offset": pa.array(list(rows), pa.int64()),
            "key": pa.array([b"%d" % offset for offset in rows]),
            "value": pa.array([b"%d" % number for number in rows.values()]),
        }
    )


class Reader:
    """A log that is read a few records at a time."""

    def __init__(self, log: dict[int, int]) -> None:
        self.log = log
        self.questions = 0

    def __call__(self, offset: int) -> bytes:
        self.questions += 1
        found = [each for each in sorted(self.log) if each >= offset][:3]
        return entry({each: self.log[each] for each in found}) if found else b""


@pytest.mark.slow
def test_records_are_compared_where_there_are_no_epochs(rng: random.Random) -> None:
    parted = 0
    for _ in range(200):
        end, parts = rng.randint(1, 60), rng.randint(0, 60)
        theirs = {offset: offset for offset in range(end)}
        ours = {offset: number if offset < parts else -1 for offset, number in theirs.items()}
        gaps = rng.choice([0, 0, end // 3])
        for log in (ours, theirs):  # as a cleaner leaves them
            for offset in rng.sample(range(end), gaps):
                log.pop(offset, None)
        mine, other = Reader(ours), Reader(theirs)
        found = first_difference(mine, other, 0, end)
        both = sorted(set(ours) & set(theirs))
        last_same = max((offset for offset in both if offset < parts), default=-1)
        assert found == (last_same + 1 if any(offset >= parts for offset in both) else None)
        parted += found is not None
        assert gaps or mine.questions + other.questions <= 2 * 8
    assert parted > 10


def test_an_offset_inside_of_a_batch_is_looked_up_there() -> None:
    batch = entry({5: 50, 7: 70, 8: 80})
    assert record_from(batch, 6)[:1] == (7,)  # type: ignore[index]
    assert record_from(batch, 9) is None
