"""The state of a broker: its topics, groups, producer ids and counters. ``handlers`` answers requests from it."""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Self

from kts.arguments import show_address
from kts.broker.extensions import BrokerExtension, PrivateVersions
from kts.broker.groups import Coordinator, GroupSettings
from kts.broker.metrics import Metrics
from kts.broker.producer_ids import ProducerIds, largest_producer_id
from kts.broker.request import Request
from kts.broker.settings.broker import BrokerConfig
from kts.broker.topics import Compacted, Retained, Topics
from kts.store.addresses import require_local
from kts.times import wall_clock

logger = logging.getLogger(__name__)


class Broker:
    """One broker over a log directory; a context manager.

    Parameters
    ----------
    directory : path
        A log directory, Kafka's or a new one. It stays locked until ``close``.
    config : mapping, optional
        Settings by Kafka's names.
    clock : function, optional
        Returns ms since the epoch, for everything that is written or expires.
    extensions : iterable of BrokerExtension
        They answer private versions of APIs, and stay open when the broker closes.

    Raises
    ------
    KtsError
        The directory cannot be used.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config: Mapping[str, Any] | BrokerConfig | None = None,
        *,
        clock: Callable[[], int] | None = None,
        extensions: Iterable[BrokerExtension] = (),
    ) -> None:
        require_local(os.fspath(directory), "a broker")
        self.private = PrivateVersions(extensions)
        self.config = BrokerConfig.of(config)
        if given := self.config.without_effect:
            logger.warning("settings without an effect here: %s", ", ".join(given))
        self.clock = wall_clock if clock is None else clock
        self.metrics = Metrics()
        self.listener: tuple[str, int] | None = None
        self.closed = False
        self.topics = Topics(directory, self.config, self.clock)
        try:
            self.coordinator = Coordinator(self.topics, GroupSettings.of(self.config), self.clock)
            self.producer_ids = ProducerIds(self.topics.directory, self._largest_producer_id)
        except BaseException:
            self.topics.abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        return self.topics.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, from ``meta.properties``."""
        return self.topics.cluster_id

    def advertised(self, request: Request) -> tuple[str, int]:
        """The host and port for clients: ``advertised.listeners``, else the address that the broker listens on, or, if
        that is all addresses, the one that the client reached."""
        named = self.listener if self.listener is not None and not _is_every_address(self.listener[0]) else None
        found = self.config.advertised_listener or named or request.connection.local
        return found or self.listener or ("127.0.0.1", 9092)

    def addresses(self, request: Request) -> dict[str, str]:
        """The current ``listeners`` and ``advertised.listeners``; empty if the broker does not listen."""
        if self.listener is None:
            return {}
        found = {"listeners": self.listener, "advertised.listeners": self.advertised(request)}
        return {name: f"PLAINTEXT://{show_address(*address)}" for name, address in found.items()}

    def run_retention(self) -> list[Retained]:
        """Apply the retention of all topics now, and that of the extensions' logs. Returns what was deleted."""
        return [*self.topics.run_retention(), *self.private.run_retention()]

    def run_cleaner(self, *, force: bool = False) -> list[Compacted]:
        """Clean the logs of all compacted topics that are due, or all. Returns what was done."""
        return self.topics.run_cleaner(force=force)

    def close(self) -> None:
        """Close all logs cleanly. A second call does nothing.

        Raises
        ------
        LogStorageError
            A log could not be written. The next start recovers it.
        """
        self.closed = True
        self.coordinator.close()
        self.topics.close()

    def _largest_producer_id(self) -> int:
        return largest_producer_id(self.topics)


def _is_every_address(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


Handler = Callable[[Broker, Request], Coroutine[Any, Any, dict[str, Any] | None]]  # answers requests of one API
