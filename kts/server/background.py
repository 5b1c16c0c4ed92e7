"""The background tasks of a running broker: retention, cleaning, flushing, checkpoints, expiration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kts.broker.broker import Broker
from kts.broker.threads import in_thread
from kts.errors import KtsError

log = logging.getLogger("kts.broker")

TICK_S = 1.0
DELETION_CHECK_MS = 30_000


class Chore:
    """A task that runs in a thread at an interval."""

    def __init__(self, name: str, interval_ms: int, work: Callable[[], object], now: float) -> None:
        self.name = name
        self._interval_s = interval_ms / 1000
        self._work = work
        self._due = now + self._interval_s

    async def do_when_due(self, now: float) -> None:
        """Run the task if it is due. A failure is logged, and the next run tries again."""
        if now < self._due:
            return
        try:
            await in_thread(self._work)
        except KtsError as error:
            log.error("%s failed: %s", self.name, error)
        except Exception:  # a bug: the other tasks continue
            log.exception("%s failed", self.name)
        self._due = asyncio.get_running_loop().time() + self._interval_s


async def tend(broker: Broker) -> None:
    """Run all tasks until cancelled."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    config, topics = broker.config, broker.topics
    chores = [
        Chore("retention", config.log_retention_check_interval_ms, broker.run_retention, now),
        Chore("flushing", config.log_flush_scheduler_interval_ms, topics.flush_due, now),
        Chore("checkpoint", config.log_flush_offset_checkpoint_interval_ms, topics.checkpoint, now),
        # Readers of the directory rely on it. It writes all checkpoints that changed.
        Chore("high watermarks", config.replica_high_watermark_checkpoint_interval_ms, topics.checkpoint, now),
        Chore(
            "expiring producers", config.producer_id_expiration_check_interval_ms, topics.remove_expired_producers, now
        ),
        Chore("deleting", DELETION_CHECK_MS, topics.delete_due, now),
    ]
    broker.coordinator.start()
    topics.stops_cleaning = False
    cleaning = asyncio.ensure_future(clean(broker))  # a pass over a large log takes minutes: the others do not wait
    try:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                broker.coordinator.tick()
            except Exception:
                log.exception("expiring offsets failed")
            for chore in chores:
                await chore.do_when_due(loop.time())
    finally:
        topics.stops_cleaning = True
        cleaning.cancel()
        await asyncio.gather(cleaning, return_exceptions=True)


async def clean(broker: Broker) -> None:
    """Clean the logs of compacted topics, every ``log.cleaner.backoff.ms``, until cancelled."""
    loop = asyncio.get_running_loop()
    last = loop.time()
    while True:
        await asyncio.sleep(TICK_S)
        settings = broker.topics.cleaner_settings
        if settings.enabled and loop.time() - last >= settings.backoff_ms / 1000:
            await Chore("cleaning", 0, broker.run_cleaner, last).do_when_due(loop.time())
            last = loop.time()
