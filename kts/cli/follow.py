"""``kts follow``: keeps a live copy of a topic's partitions, from any Kafka."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .inputs import (
    advice_on_locks,
    config_option,
    json_option,
    parse_settings,
    proposal_option,
    say_what_was_recovered,
    shipped_option,
    with_proposals,
)
from .output import FINE, INTERRUPTED, TERMINATED, UNREADABLE, counted, note, print_json, progress, say, show_bytes

if TYPE_CHECKING:
    from kts.replica.client import Client
    from kts.replica.fetcher import Fetcher
    from kts.replica.follower import Follower
    from kts.replica.topic_copy import TopicCopy

ONCE_PATIENCE_S = 30.0
BETWEEN_TRIES_S = 0.5
CHECKPOINT_S = 5.0  # replica.high.watermark.checkpoint.interval.ms: how far readers of the copy may go
REFRESH_S = 60.0  # how often to look for new partitions and settings

EPILOG = """\b
Examples:
  kts follow --bootstrap-server localhost:9092 --topic orders --once DIR
  kts follow --bootstrap-server localhost:9092 --topic orders --once \\
      --partition 0 --json DIR
  kts follow --bootstrap-server localhost:9092 --topic orders --once \\
      --topic returns --config retention.ms=-1 DIR
  kts follow --bootstrap-server localhost:9092 --topic orders --once \\
      --proposal largest-timestamp DIR

DIR is a log directory: orders-0, orders-1 ... are created in it, or continued. Offsets, timestamps, leader epochs and
bytes are the leader's. So are the segments, if its settings are known (from Kafka 0.11 on) and unchanged. Without
--once the command runs until it is stopped: Ctrl-C closes the copy cleanly, and after a kill the next run continues
after the last whole batch. Records that diverge from the leader's are truncated, as in a replica. Truncations and other
unusual events are reported on stderr.
"""


@click.command("follow", short_help="Copy a topic from a broker, live, batch for batch.", epilog=EPILOG)
@click.argument("directory", metavar="DIR")
@click.option(
    "--bootstrap-server",
    "leader",
    metavar="HOST:PORT",
    required=True,
    help="A broker of the cluster; more with commas.",
)
@click.option("--topic", "topics", metavar="NAME", multiple=True, required=True, help="The topic to copy; repeatable.")
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition; repeatable."
)
@click.option("--once", is_flag=True, help="End when everything up to the high watermark is copied.")
@click.option(
    "--patience",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="How long to retry an unavailable leader. Default 30 with --once, else forever.",
)
@click.option("--no-retention", is_flag=True, help="Keep old segments, even those that the leader has deleted.")
@config_option
@proposal_option
@shipped_option
@json_option
def command(
    directory: str,
    leader: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    once: bool,
    patience: float | None,
    no_retention: bool,
    settings: tuple[str, ...],
    proposals: tuple[str, ...],
    shipped: bool,
    as_json: bool,
) -> int:
    """Copy partitions of a topic from their leaders, kts or Apache Kafka from 0.9 on, as a replica does.

    Copies all partitions of the topic, or those that --partition names. The leader's topic settings decide segment
    size, format and retention; --config overrides them. Kafka 0.9 and 0.10 cannot describe their settings: then the
    copy deletes nothing, unless --config says so.
    """
    from kts.errors import InvalidTopicError
    from kts.replica.client import Client
    from kts.replica.fetcher import Fetcher
    from kts.replica.topic_copy import TopicCopy
    from kts.segment.names import check_topic

    for topic in topics:
        try:
            check_topic(topic)
        except InvalidTopicError as error:
            raise click.BadParameter(str(error), param_hint="'--topic'") from error
    try:
        client = Client(leader)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--bootstrap-server'") from error
    given = parse_settings(with_proposals(settings, proposals))
    patience_s = ONCE_PATIENCE_S if once and patience is None else patience
    stop = Stop(lambda: client.waiting)
    fetcher = Fetcher(client, [], patience_s=patience_s, retention=not no_retention, tell=note, sleep=stop.sleep)
    code = FINE
    with ExitStack() as stack:
        stack.enter_context(client)
        stack.enter_context(stop.instead_of_interrupting())
        try:
            copies = []
            for topic in dict.fromkeys(topics):
                copy = TopicCopy(
                    client, directory, topic, partitions=partitions, settings=given, shipped=shipped, tell=note
                )
                copies.append(stack.enter_context(copy))
                patiently(partial(find, copy, client), patience_s, stop)
                with advice_on_locks():
                    fetcher.followers += copy.open()
            for follower in fetcher.followers:
                say_what_was_recovered(follower.log)
            follow(fetcher, copies, once, stop)
        except (KeyboardInterrupt, SystemExit):
            if stop.code is None:
                raise
    for follower in fetcher.followers:
        report(follower, as_json)
    for failure in fetcher.failed.values():
        code = say(str(failure), UNREADABLE)
    return code if stop.code is None else stop.code


def follow(fetcher: Fetcher, copies: Sequence[TopicCopy], once: bool, stop: Stop) -> None:
    """Copy until all is done or a signal stops it."""
    refreshed = checkpointed = time.monotonic()
    with progress("copied", None) as advance:
        while not done(fetcher, once) and stop.code is None:
            advance(fetcher.step())
            if time.monotonic() - checkpointed >= CHECKPOINT_S:
                for follower in fetcher.followers:
                    follower.log.checkpoint()
                checkpointed = time.monotonic()
            if time.monotonic() - refreshed >= REFRESH_S:
                for copy in copies:
                    fetcher.followers += copy.refresh()
                refreshed = time.monotonic()


def find(copy: TopicCopy, client: Client) -> None:
    """Look up the partitions to copy. Invalid settings are a usage error."""
    try:
        copy.find()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--config'") from error
    if client.any_broker().is_0_9:
        note(f"{client.any_broker()} answers as Kafka 0.9 does, and is treated as Kafka 0.9")


def patiently(ask: Callable[[], None], patience_s: float | None, stop: Stop) -> None:
    """Call ``ask``, and retry while the leader is unavailable."""
    from kts.broker.codes import ApiError
    from kts.replica.fetcher import PASSING

    since = time.monotonic()
    told = False
    while True:
        try:
            ask()
            return
        except ApiError as error:
            if error.error not in PASSING or (patience_s is not None and time.monotonic() - since >= patience_s):
                raise
            if not told:
                note(f"{error}; trying again")
                told = True
        stop.sleep(BETWEEN_TRIES_S)
        if stop.code is not None:
            raise SystemExit(stop.code)


def done(fetcher: Fetcher, once: bool) -> bool:
    """True if every copy has failed, or with ``--once`` caught up."""
    going = [each for each in fetcher.followers if each not in fetcher.failed]
    return not going or (once and all(each.caught_up for each in going))


def report(follower: Follower, as_json: bool) -> None:
    """Print the offsets of a copy, and how much was copied."""
    log = follower.log
    if as_json:
        print_json(
            {
                "topic": log.topic,
                "partition": log.partition,
                "topicId": log.topic_id,
                "logStartOffset": log.log_start_offset,
                "logEndOffset": log.log_end_offset,
                "highWatermark": follower.high_watermark,
                "leaderEpoch": follower.leader_epoch,
                "copiedBatches": follower.copied_batches,
                "copiedBytes": follower.copied_bytes,
                "truncations": follower.truncations,
                "complete": follower.caught_up,
            }
        )
        return
    copied = f"{counted(follower.copied_batches, 'batch')}, {show_bytes(follower.copied_bytes)}"
    click.echo(f"{follower}: offsets {log.log_start_offset} to {log.log_end_offset}: copied {copied}")


# --- stopping ----------------------------------------------------------------------------------


class Stop:
    """Delays a signal until the log can be closed cleanly; a second signal interrupts at once.

    Parameters
    ----------
    interruptible : callable
        Returns True if the signal may interrupt now without loss.

    Attributes
    ----------
    code : int or None
        The exit code of the signal; None before a signal.
    """

    def __init__(self, interruptible: Callable[[], bool]) -> None:
        self.code: int | None = None
        self._interruptible = interruptible

    def _came(self, number: int, frame: object) -> None:
        again = self.code is not None
        self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED
        if again or self._interruptible():
            raise SystemExit(self.code)

    @contextmanager
    def instead_of_interrupting(self) -> Iterator[None]:
        """Handle both signals in this block."""
        before: dict[int, Any] = {}
        try:
            for number in (int(signal.SIGINT), int(signal.SIGTERM)):
                try:
                    before[number] = signal.signal(number, self._came)
                except ValueError:  # not the main thread
                    break
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or a signal arrives."""
        until = time.monotonic() + seconds
        while self.code is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
