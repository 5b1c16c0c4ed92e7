"""A broker that starts, stops and restarts inside this process, and whose time is set by hand."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Self

from kts.broker.broker import Broker
from kts.config import INT64_MAX
from kts.errors import InvalidRequestError, LogClosedError
from kts.server.server import ServerThread
from kts.testing.clock import Clock
from kts.testing.records import Expired

# Nothing happens by itself: retention runs when a test says so. The rest makes groups quick to begin.
DEFAULTS = {"log.retention.check.interval.ms": INT64_MAX, "group.initial.rebalance.delay.ms": 0}


class RunningBroker:
    """What ``KtsBroker`` is besides its topics and records; see there."""

    def __init__(
        self,
        directory: str | PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        time: int | datetime | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.clock = Clock(time)
        self._config = {**DEFAULTS, **(config or {})}
        self._process = os.getpid()
        self._temporary: weakref.finalize[[str, int], Any] | None = None
        if directory is None:
            directory = tempfile.mkdtemp(prefix="kts-broker-")
            self._temporary = weakref.finalize(self, _remove, directory, self._process)
        self.directory = str(directory)
        self._address = (host, port)
        self._closed = False
        self._broker: Broker | None = None
        self._server: ServerThread | None = None
        self._turns = itertools.count()  # records without a key go to the partitions in turn

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the logs and listen; clients may connect when this returns."""
        if self._broker is not None and not self._is_fork():
            raise InvalidRequestError(f"expected a stopped broker, found one that listens on {self.bootstrap_servers}")
        if self._closed or self._is_fork():
            raise LogClosedError(f"expected a stopped broker, found {self._found()}")
        broker = Broker(self.directory, self._config, clock=self.clock)
        try:
            server = ServerThread(broker, *self._address)
            self._address = server.start()
        except BaseException:
            broker.close()
            raise
        self._broker, self._server = broker, server
        return self

    def stop(self) -> None:
        """Close connections and logs as a broker that is shut down cleanly; ``start`` goes on with them.

        In a forked process this and ``close`` do nothing: the broker is the parent's.
        """
        if self._is_fork():
            return
        server, broker = self._server, self._broker
        self._server = self._broker = None
        try:
            if server is not None:
                server.stop()
        finally:
            if broker is not None:
                broker.close()

    def kill(self) -> None:
        """End as a process does that is killed: nothing is closed or noted; ``start`` recovers what was written."""
        if self._is_fork():
            raise LogClosedError(f"expected a broker of this process, found {self._found()}")
        server, broker = self._server, self._broker
        self._server = self._broker = None
        try:
            if server is not None:
                server.stop()
        finally:
            if broker is not None:
                broker.topics.abandon()

    def restart(self, config: Mapping[str, Any] | None = None) -> None:
        """Stop and start on the same port: leader epochs rise by one, group members have to join again.

        Parameters
        ----------
        config : mapping, optional
            Settings that change from now on.
        """
        self.stop()
        self._config |= config or {}
        self.start()

    def close(self) -> None:
        """Stop for good, and remove the directory if it was a temporary one."""
        if self._is_fork():
            return
        self._closed = True
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary()

    def __enter__(self) -> Self:
        if self._broker is None:
            try:
                self.start()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._broker is not None else "stopped"
        return f"<{type(self).__name__} {state}, {self.directory}>"

    @property
    def broker(self) -> Broker:
        """What serves the requests, with all that is not for every test."""
        if self._broker is None or self._is_fork():
            raise LogClosedError(f"expected a running broker, found {self._found()}")
        return self._broker

    def _is_fork(self) -> bool:
        return self._process != os.getpid()

    def _found(self) -> str:
        if self._is_fork():
            return f"one of process {self._process}, of which this is a fork"
        return "a closed one" if self._closed else "a stopped one"

    @property
    def host(self) -> str:
        """Where it listens."""
        return self._address[0]

    @property
    def port(self) -> int:
        """Where it listens; 0 before the first start, unless one was asked for."""
        return self._address[1]

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as clients take it."""
        return f"{self.host}:{self.port}"

    def _in_loop(self, call: Callable[[], object]) -> None:
        """Do what belongs to the server's event loop, and wait for it."""

        async def there() -> None:
            call()

        if self._server is not None:
            self._server.run(there())

    # --- time -------------------------------------------------------------------------------------

    def set_time(self, time: int | datetime | None) -> None:
        """Stop the broker's clock at a time, backwards too.

        Parameters
        ----------
        time : int, datetime or None
            Ms since the epoch or a datetime with a time zone; None goes with the wall clock again.
        """
        self.clock.set(time)

    def advance(self, by: int | timedelta) -> int:
        """Move the broker's clock on, by ms or a timedelta, and stop it there.

        Returns
        -------
        int
            The broker's time, in ms.
        """
        return self.clock.advance(by)

    def run_retention(self) -> list[Expired]:
        """Delete what is over time or size now, as a broker does every five minutes; what went, and by which rule."""
        return [Expired(one.topic, one.partition, *one.segment) for one in self.broker.topics.run_retention()]


def _remove(directory: str, process: int) -> None:
    """Remove a temporary directory, but not in a fork of the process that made it."""
    if process == os.getpid():
        shutil.rmtree(directory, ignore_errors=True)
