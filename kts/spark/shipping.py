"""Sends objects from the driver to executors. A worker without kts, or with another version, raises a clear error."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kts import __version__


def _make_loader() -> Callable[[str, bytes], Any]:
    def load(version: str, payload: bytes) -> Any:
        # Runs in workers that may lack kts. A function defined inside a function is pickled by value, so it must use
        # nothing of this module.
        import pickle
        import socket
        import sys

        here = f"the Python worker on {socket.gethostname()} ({sys.executable})"
        cure = (
            f"Install the wheel (kafka-timestamps {version}) for that interpreter on every executor, or ship a packed "
            "environment: --archives env.tar.gz#env with PYSPARK_PYTHON=./env/bin/python"
        )
        try:
            import kts.spark.shipping
        except ImportError as error:
            raise ImportError(f"{here} cannot import kts: {error}. {cure}") from error
        if kts.__version__ != version:
            raise ImportError(f"{here} has kts {kts.__version__}, and the driver has kts {version}. {cure}")
        kts.spark.shipping.acknowledge()
        cls, state = pickle.loads(payload)
        made = cls.__new__(cls)
        made.__dict__.update(state)
        return made

    return load


_load = _make_loader()


def acknowledge() -> None:
    """Acknowledge at once what the JVM sent to this worker.

    It sends the reader, then the partition, over a TCP connection that keeps the second until the first is acknowledged
    (Nagle's algorithm), and Linux alone would do that 40 ms later.
    """
    # Where sockets have a time limit by default, a new object for a connection would stop that from blocking for all.
    if sys.platform != "linux" or socket.getdefaulttimeout() is not None:
        return
    names: list[str] = []
    with suppress(OSError):  # no /proc
        names = os.listdir("/proc/self/fd")
    for name in names:
        with suppress(OSError):  # no connection of TCP
            one = socket.socket(fileno=int(name))
            try:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            finally:
                one.detach()


def ship(thing: object) -> tuple[Any, ...]:
    """The result of ``__reduce__`` for an object that an executor loads, with a clear error if kts is missing there."""
    return _load, (__version__, pickle.dumps((type(thing), thing.__dict__)))
