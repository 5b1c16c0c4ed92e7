"""The proposals' indexes of a log that is open: they answer while records are appended."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.golden import scaled
from support.sets.log_records import NOW, batch, opened
from support.waiting import wait_until

import kts
from kts.proposals.answers import Start
from kts.proposals.bucket_index import BucketIndex, BucketIndexMode

MINUTE = 60_000
T = NOW // MINUTE * MINUTE
INDEXES = ("bucket-index", "minute-map")


def mode(log: kts.Log, name: str) -> Any:
    assert log.proposals is not None
    return log.proposals[name]


@pytest.mark.parametrize("name", INDEXES)
def test_the_index_of_an_open_log_answers(name: str, tmp_path: Path) -> None:
    with opened(tmp_path, proposals=(name,)) as log:
        index = mode(log, name)
        assert index.search(log, T).found is None
        for minute in range(20):
            log.append(batch(T + minute * MINUTE, T + minute * MINUTE + 5))
        assert len(log.segments) > 3
        for minute in range(20):
            assert index.search(log, T + minute * MINUTE + 1).found == (T + minute * MINUTE + 5, 2 * minute + 1)
        assert index.search(log, T + 20 * MINUTE).found is None
        log.advance_log_start_offset(10)
        assert index.search(log, T).found == (T + 5 * MINUTE, 10)


@pytest.mark.parametrize("truncates", [False, True], ids=["appends", "truncates"])
@pytest.mark.parametrize("name", INDEXES)
def test_a_search_while_records_are_appended_finds_every_record_below_the_end(
    name: str, truncates: bool, tmp_path: Path
) -> None:
    found: list[tuple[int, object]] = []
    sets = [batch(T + number * 1000) for number in range(scaled(150, 3000))]
    with opened(tmp_path, segment_bytes=3000, proposals=(name,)) as log:
        index, done = mode(log, name), threading.Event()

        def search(by_index: bool) -> None:
            while not done.is_set():
                end = log.log_end_offset
                target = T + (end - 1) * 1000
                if end:
                    answer = index.search(log, target).found if by_index else log.offset_for_timestamp(target)
                    found.append((end, answer))

        with ThreadPoolExecutor(2) as threads:
            searching = [threads.submit(search, each) for each in (False, True)]
            try:
                for number, one in enumerate(sets):
                    log.append(one)
                    if truncates and number % 50 == 49:  # the records come back as they were
                        log.truncate_to(number - 5)
                        for again in sets[number - 5 : number + 1]:
                            log.append(again)
                wait_until("searches", lambda: len(found) > 20 or searching[0].done() or searching[1].done())
            finally:
                done.set()
            for one in searching:
                one.result()
        assert len(log.segments) > 3
    wrong = [one for one in found if one[1] != (T + (one[0] - 1) * 1000, one[0] - 1)]
    assert [one for one in wrong if not truncates or one[1] is not None] == []  # truncated after its end was read


class Interrupted(BucketIndex):
    """A rule during whose search something happens once."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: Any = None

    def starts(self, target_ms: int) -> Any:
        found = list(super().starts(target_ms))
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return iter(found)


def test_a_search_that_a_truncation_overtakes_begins_again(tmp_path: Path) -> None:
    index = BucketIndexMode()
    index.rule = rule = Interrupted()
    with opened(tmp_path, proposals=(index,)) as log:
        log.append(batch(T))
        log.append(batch(T + 10 * MINUTE))

        def rewrite() -> None:
            log.truncate_to(0)
            for minute in (20, 0, 10):
                log.append(batch(T + minute * MINUTE))

        assert list(rule.starts(T + 10 * MINUTE)) == [Start(0, 1)]  # where offset 2 would be the answer
        rule.happens = rewrite
        assert index.search(log, T + 10 * MINUTE).found == (T + 20 * MINUTE, 0)


class Overtaken:
    """A log whose oldest two segments are deleted when a search knows where to read, and begins."""

    def __init__(self, log: kts.Log) -> None:
        self.path, self.topic, self.partition = log.path, log.topic, log.partition
        self.log_end_offset = log.log_end_offset
        self._log = log

    @property
    def log_start_offset(self) -> int:
        self._log.advance_log_start_offset(self._log.segments[2].base_offset)
        assert len(self._log.delete_old_segments()) == 2
        return 0


@pytest.mark.parametrize("name", INDEXES)
def test_a_search_that_retention_overtakes_goes_on_in_later_segments(name: str, tmp_path: Path) -> None:
    with opened(tmp_path, proposals=(name,), file_delete_delay_ms=0) as log:
        for minute in range(20):
            log.append(batch(T + minute * MINUTE))
        kept = log.segments[2].base_offset
        assert mode(log, name).search(Overtaken(log), T + 2 * MINUTE).found == (T + kept * MINUTE, kept)


def test_a_record_that_is_not_published_yet_is_not_found(tmp_path: Path) -> None:
    with opened(tmp_path, proposals=INDEXES) as log:
        log.append(batch(T))
        log.append(batch(T + MINUTE))
        earlier = SimpleNamespace(
            path=log.path, topic=log.topic, partition=log.partition, log_start_offset=0, log_end_offset=1
        )
        for name in INDEXES:
            assert mode(log, name).search(earlier, T).found == (T, 0)
            assert mode(log, name).search(earlier, T + 1).found is None


def test_a_record_that_is_published_and_not_indexed_yet_is_found(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=10_000, proposals=INDEXES) as log:
        log.append(batch(T))
        indexes = [mode(log, name) for name in INDEXES]
        listeners, log._listeners = log._listeners, {}  # as between the two steps of an append
        log.append(batch(T + MINUTE))
        for index in indexes:
            assert index.search(log, T + 1).found == (T + MINUTE, 1)
        log._listeners = listeners


def test_a_log_with_an_index_searches_by_it(tmp_path: Path) -> None:
    with opened(tmp_path, proposals=INDEXES, segment_bytes=10_000) as log:
        for minute in range(10):
            log.append(batch(T + minute * MINUTE))
        assert log.offset_for_timestamp(T + 5 * MINUTE) == (T + 5 * MINUTE, 5)
        rule = mode(log, "bucket-index").rule
        rule.segments[0].extend([T + 20 * MINUTE], [9])
        rule.largest = T + 5 * MINUTE, 5  # an index that is wrong on purpose
        assert log.offset_for_timestamp(T + 6 * MINUTE) is None
        assert log.offset_for_timestamp(T + 6 * MINUTE, shipped_search=True) == (T + 6 * MINUTE, 6)


def test_a_log_that_follows_a_proposal_is_not_appended_to_in_an_event_loop(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=10_000) as log:
        assert log.appends_at_once(100)
        log.reconfigure({"proposals": "largest-timestamp"})
        assert not log.appends_at_once(100)  # an old record would roll


def test_where_minus_one_is_a_time_no_proposed_index_hides_it(tmp_path: Path) -> None:
    settings = {"allow_negative_timestamps": True, "message_timestamp_missing": "-1"}
    with opened(tmp_path, proposals=INDEXES, **settings) as log:
        log.append(batch(-5))
        log.append(batch(-1))
        log.append(batch(7))
        assert [log.offset_for_timestamp(target) for target in (-4, 0)] == [(-1, 1), (7, 2)]
