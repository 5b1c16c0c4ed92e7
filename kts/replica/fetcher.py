"""Fetch rounds for any number of followers: find leaders, truncate, fetch, and retry what fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kts.broker.codes import ApiError, ErrorCode
from kts.errors import CorruptRecordError, InvalidOffsetError, InvalidRequestError, KtsError
from kts.replica.client import Client, Connection
from kts.replica.follower import Follower

BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 2.0
MOST_DAMAGED = 5  # malformed answers until a follower fails
FIRST_RETENTION_S, RETENTION_S = 30.0, 300.0  # log.retention.check.interval.ms
PASSING = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CORRUPT_MESSAGE,
    }
)


@dataclass
class Trouble:
    """The repeated failures of a follower."""

    error: KtsError
    since_s: float
    not_before_s: float
    times: int = 0
    damaged: int = 0


class Fetcher:
    """Runs followers. Transient failures are retried with growing delays.

    The retention of the copies follows their own settings, 30 s after the start and then every 5 minutes, and so do
    proposals that roll an idle log. Segments below the leader's log start offset are deleted at once.

    Parameters
    ----------
    client : Client
    followers : sequence of Follower
    max_wait_ms, min_bytes, max_bytes : int
        ``replica.fetch.wait.max.ms``, ``replica.fetch.min.bytes``, ``replica.fetch.response.max.bytes``.
    patience_s : float
        A partition that fails for longer has failed for good; None means no limit.
    retention : bool
        False keeps every segment.
    tell : callable
        Gets a message when a follower begins to fail, and when it recovers.
    monotonic, sleep : callable
        A clock in seconds, and a function that sleeps for a number of seconds.

    Attributes
    ----------
    failed : dict of Follower to KtsError
        The followers that failed for good.
    """

    def __init__(
        self,
        client: Client,
        followers: Sequence[Follower],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 10 * 2**20,
        patience_s: float | None = None,
        retention: bool = True,
        tell: Callable[[str], None] = lambda message: None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.followers = list(followers)
        self.failed: dict[Follower, KtsError] = {}
        self.troubles: dict[Follower, Trouble] = {}
        self._client = client
        self._max_wait_ms, self._min_bytes, self._max_bytes = max_wait_ms, min_bytes, max_bytes
        self._patience_s = patience_s
        self._retention = retention
        self._tell = tell
        self._next_retention_s = monotonic() + FIRST_RETENTION_S
        self._round = 0
        self._monotonic, self._sleep = monotonic, sleep

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Run until a condition holds or all followers have failed."""
        while len(self.failed) < len(self.followers) and (until is None or not until()):
            self.step()

    def catch_up(self) -> None:
        """Run until nothing is left to copy.

        Raises
        ------
        KtsError
            A follower failed for good.
        """
        for follower in self.followers:
            follower.caught_up = False
        self.run(lambda: bool(self.failed) or all(each.caught_up for each in self.followers))
        for error in self.failed.values():
            raise error

    def step(self) -> int:
        """Run one round; returns the bytes that were appended.

        Notes
        -----
        Waits at the leader if there is nothing to copy, and here if all followers wait for a retry.
        """
        now = self._monotonic()
        going = [each for each in self.followers if each not in self.failed]
        ready = [each for each in going if each not in self.troubles or self.troubles[each].not_before_s <= now]
        if not ready:
            if going:
                self._sleep(max(min(self.troubles[each].not_before_s for each in going) - now, 0.0))
            return 0
        self._find_leaders([each for each in ready if each.leader is None])
        by_leader: dict[Connection, list[Follower]] = {}
        for follower in ready:
            if self._goes_well(follower, follower.truncate_if_needed) and follower.leader is not None:
                by_leader.setdefault(follower.leader, []).append(follower)
        again_s = min((self.troubles[each].not_before_s - now for each in going if each not in ready), default=1e9)
        waits_ms = min(self._max_wait_ms, 1 + int(1000 * again_s))
        self._round += 1
        appended = sum(self._fetch(leader, each, waits_ms // len(by_leader)) for leader, each in by_leader.items())
        self._keep_house(ready, now >= self._next_retention_s)
        return appended

    def _keep_house(self, followers: Sequence[Follower], due: bool) -> None:
        if due:
            self._next_retention_s = self._monotonic() + RETENTION_S
        for follower in followers:
            log = follower.log
            if due:
                self._goes_well(follower, log.roll_if_due)
            unused = len(log.segments) > 1 and log.segments[1].base_offset <= log.log_start_offset
            if self._retention and (due or unused):
                self._goes_well(follower, log.delete_old_segments)

    def _find_leaders(self, followers: Sequence[Follower]) -> None:
        for topic in dict.fromkeys(each.topic for each in followers):
            of_topic = [each for each in followers if each.topic == topic]
            try:
                metadata = self._client.metadata(topic)
            except KtsError as error:
                for follower in of_topic:
                    self._trouble(follower, error)
                continue
            for follower in of_topic:
                try:
                    follower.find_leader(metadata)
                except ApiError as error:
                    self._trouble(follower, error)
                except InvalidRequestError as error:  # another topic with that name: final
                    self.failed[follower] = error

    def _fetch(self, leader: Connection, followers: Sequence[Follower], max_wait_ms: int) -> int:
        first = self._round % len(followers)  # a leader fills its answer in the order of the request
        try:
            answers = self._client.fetch(
                leader,
                [each.wanted() for each in (*followers[first:], *followers[:first])],
                max_wait_ms=max_wait_ms,
                min_bytes=self._min_bytes,
                max_bytes=self._max_bytes,
            )
        except KtsError as error:
            for follower in followers:
                self._trouble(follower, error)
            return 0
        appended = 0
        for follower in followers:
            answer = answers.get((follower.topic, follower.partition))
            before = follower.copied_bytes
            if answer is None:
                self._trouble(follower, InvalidRequestError(f"Fetch from {leader}: no answer for {follower}"))
            elif self._goes_well(follower, partial(follower.take, answer)) and follower in self.troubles:
                del self.troubles[follower]
                self._tell(f"{follower}: continues at offset {follower.log.log_end_offset}")
            appended += follower.copied_bytes - before
        return appended

    def _goes_well(self, follower: Follower, work: Callable[[], object]) -> bool:
        if follower.leader is None:
            return False
        try:
            work()
        except KtsError as error:
            self._trouble(follower, error)
            return False
        return True

    def _trouble(self, follower: Follower, error: KtsError) -> None:
        """Note a failure: retry later or give up."""
        now = self._monotonic()
        follower.lose_leader()
        trouble = self.troubles.get(follower)
        if trouble is None:
            trouble = self.troubles[follower] = Trouble(error, now, now)
            self._tell(f"{follower}: {error}")
        trouble.error = error
        trouble.times += 1
        trouble.not_before_s = now + min(BACKOFF_S * 2 ** min(trouble.times - 1, 10), LONGEST_BACKOFF_S)
        damaged = isinstance(error, CorruptRecordError | InvalidOffsetError | InvalidRequestError)
        trouble.damaged += damaged
        passes = damaged or (isinstance(error, ApiError) and error.error in PASSING)
        too_long = self._patience_s is not None and now - trouble.since_s >= self._patience_s
        if not passes or trouble.damaged >= MOST_DAMAGED or too_long:
            self.failed[follower] = error
