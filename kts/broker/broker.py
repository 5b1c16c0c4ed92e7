"""The state of a broker: its topics, groups, producer ids and counters. ``handlers`` answers requests from it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self

from kts.broker.groups import Coordinator, GroupSettings
from kts.broker.metrics import Metrics
from kts.broker.producer_ids import ProducerIds, largest_producer_id
from kts.broker.request import Request, show_address
from kts.broker.settings.broker import BrokerConfig
from kts.broker.topics import Topics
from kts.log.log import wall_clock


class Broker:
    """One broker over a log directory; a context manager.

    Parameters
    ----------
    directory : path
        A log directory, Kafka's own or a new one; it is locked while it is open.
    config : mapping, optional
        Settings by Kafka's names.
    clock : function, optional
        Now in ms since the epoch, for everything that goes into logs or judges them.

    Raises
    ------
    KtsError
        The directory cannot be served.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config: Mapping[str, Any] | BrokerConfig | None = None,
        *,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.config = BrokerConfig.of(config)
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
        """Its number in the cluster of one."""
        return self.topics.node_id

    @property
    def cluster_id(self) -> str:
        """The cluster's name, as ``meta.properties`` has it."""
        return self.topics.cluster_id

    def advertised(self, request: Request) -> tuple[str, int]:
        """Host and port that a client is told to connect to: ``advertised.listeners``, else the name or address that
        the broker listens on, else (that is all of the machine's) where the client came in."""
        named = self.listener if self.listener is not None and not _is_every_address(self.listener[0]) else None
        found = self.config.advertised_listener or named or request.connection.local
        return found or self.listener or ("127.0.0.1", 9092)

    def addresses(self, request: Request) -> dict[str, str]:
        """``listeners`` and ``advertised.listeners`` as they are, of a broker that listens."""
        if self.listener is None:
            return {}
        found = {"listeners": self.listener, "advertised.listeners": self.advertised(request)}
        return {name: f"PLAINTEXT://{show_address(*address)}" for name, address in found.items()}

    def close(self) -> None:
        """Close all logs cleanly; a second call does nothing.

        Raises
        ------
        LogStorageError
            Some log could not be written: the next start recovers it.
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
