"""The pytest fixtures ``kts_broker`` and ``kts_broker_factory``: a Kafka broker inside the test process.

It stands outside of the package, so that pytest loads it for nothing where no test asks for a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kts.testing import KtsBroker

MARKER = "kts_broker"
OPTION = "kts_broker_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting for all brokers of a project."""
    parser.addini(OPTION, "settings of every kts_broker, a line each: name=value", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """The marker, for --strict-markers and --markers."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(config={{name: value}}, topics={{name: partitions}}, time=ms or datetime, directory=path): "
        "how the fixture kts_broker is made",
    )


def settings(config: pytest.Config) -> dict[str, str]:
    """The settings of the ini file."""
    found = {}
    for line in config.getini(OPTION):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{OPTION}: expected name=value, found {line!r}")
        found[name.strip()] = value.strip()
    return found


@pytest.fixture
def kts_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., KtsBroker]]:
    """Makes running Kafka brokers, as many as asked for; takes what kts.testing.KtsBroker takes, and topics.

    All are closed after the test, and their directories removed but for those that the test chose.
    """
    from contextlib import ExitStack

    from kts.testing import KtsBroker

    with ExitStack() as stack:

        def make(
            config: dict[str, Any] | None = None, *, topics: dict[str, int] | None = None, **options: Any
        ) -> KtsBroker:
            broker = KtsBroker(config=settings(request.config) | (config or {}), **options)
            stack.callback(broker.close)
            broker.start()
            for name, partitions in (topics or {}).items():
                broker.create_topic(name, partitions)
            return broker

        yield make


@pytest.fixture
def kts_broker(request: pytest.FixtureRequest, kts_broker_factory: Callable[..., KtsBroker]) -> KtsBroker:
    """A running Kafka broker on loopback, empty, gone after the test; see kts.testing.KtsBroker.

    ``@pytest.mark.kts_broker(config=..., topics=..., time=...)`` on a test, class or module says how it is made.
    """
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError(f"{MARKER}: expected config=, topics=, time= or directory=, found {marker.args}")
        for name, value in marker.kwargs.items():
            merged = isinstance(value, dict) and name in options
            options[name] = options[name] | value if merged else value
    return kts_broker_factory(**options)
