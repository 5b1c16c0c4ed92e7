"""The pytest fixtures ``kts_broker`` and ``kts_broker_factory``: a Kafka broker inside the test process.

It lies outside the package, so that pytest does not import kts unless a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kts.testing import KtsBroker

MARKER = "kts_broker"
OPTION = "kts_broker_config"
RELEASE = "kts_release"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini options for all brokers of a project: the release of Kafka, and settings."""
    parser.addini(RELEASE, "release of Kafka that every kts_broker follows, as 4.3", default="")
    parser.addini(OPTION, "settings of every kts_broker, one name=value per line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(config={{name: value}}, release=name, topics={{name: partitions}}, time=ms or datetime, "
        "directory=path): configures the fixture kts_broker",
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
    """Creates running Kafka brokers. Takes the arguments of kts.testing.KtsBroker, and topics.

    All are closed after the test. Directories that the test did not choose are removed.
    """
    from contextlib import ExitStack

    from kts.testing import KtsBroker

    with ExitStack() as stack:

        def make(
            config: dict[str, Any] | None = None,
            *,
            release: str | None = None,
            topics: dict[str, int] | None = None,
            **options: Any,
        ) -> KtsBroker:
            named = release or request.config.getini(RELEASE) or None
            broker = KtsBroker(config=settings(request.config) | (config or {}), release=named, **options)
            stack.callback(broker.close)
            broker.start()
            for name, partitions in (topics or {}).items():
                broker.create_topic(name, partitions)
            return broker

        yield make


@pytest.fixture
def kts_broker(request: pytest.FixtureRequest, kts_broker_factory: Callable[..., KtsBroker]) -> KtsBroker:
    """A running Kafka broker on loopback, empty, closed after the test; see kts.testing.KtsBroker.

    ``@pytest.mark.kts_broker(config=..., release=..., topics=..., time=...)`` on a test, class or module configures it.
    """
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError(f"{MARKER}: expected names, as release=, found {marker.args}")
        for name, value in marker.kwargs.items():
            merged = isinstance(value, dict) and name in options
            options[name] = options[name] | value if merged else value
    return kts_broker_factory(**options)
