"""Private versions of APIs, answered by something outside of the broker.

ApiVersions does not list them, and their frames have the limits of their API.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kts.broker import wire
from kts.broker.request import Request
from kts.broker.threads import in_thread
from kts.broker.topics import Retained
from kts.broker.wire import Fields
from kts.broker.wire.messages import ApiKey
from kts.errors import KtsError, UnsupportedVersionError
from kts.log.log import Deleted

logger = logging.getLogger(__name__)


class BrokerExtension(Protocol):
    """What answers private versions of APIs. Pass it to ``KtsBroker`` or ``Broker`` as one of ``extensions``."""

    @property
    def private_versions(self) -> Mapping[tuple[int, int], tuple[Fields, Fields]]:
        """The fields of request and response by API key and version; as for ``wire.private_layouts``."""

    def answer(self, api_key: int, body: dict[str, Any]) -> dict[str, Any] | None:
        """The body of the response to a request of a private version, in one of several threads; None for no answer.

        ``records`` of the request are views of its frame, valid until this returns. A KtsError closes the connection.
        """

    def run_retention(self) -> Iterable[tuple[str, int, Deleted]]:
        """Roll and delete what is due in its logs, when the broker does so in its own, in one of several threads.

        Returns topic, partition and segment of each that was deleted. A KtsError is logged.
        """


class PrivateVersions:
    """The private versions of a broker's extensions.

    Raises
    ------
    ValueError
        Two extensions answer the same version, or a version may be Kafka's.
    """

    def __init__(self, extensions: Iterable[BrokerExtension]) -> None:
        self.layouts: dict[tuple[int, int], wire.ApiLayout] = {}
        self._extensions: dict[tuple[int, int], BrokerExtension] = {}
        self._all = tuple(extensions)
        for extension in self._all:
            layouts = wire.private_layouts(extension.private_versions)
            if twice := layouts.keys() & self.layouts.keys():
                names = ", ".join(sorted(self.layouts[key].name for key in twice))
                raise ValueError(f"extensions: expected each private version once, found {names} twice")
            self.layouts |= layouts
            self._extensions |= dict.fromkeys(layouts, extension)

    async def handle(self, request: Request) -> dict[str, Any] | None:
        """Answer a request.

        Raises
        ------
        UnsupportedVersionError
            No extension answers its version.
        KtsError
            The extension refuses the whole request.
        """
        extension = self._extensions.get((request.api_key, request.version))
        if extension is None:
            name = ApiKey(request.api_key).name
            raise UnsupportedVersionError(f"expected a version of {name} that is served, found {request.version}")
        return await in_thread(extension.answer, request.api_key, request.body)

    def run_retention(self) -> list[Retained]:
        """Apply retention in all extensions; one that fails does not affect the others."""
        gone: list[Retained] = []
        for extension in self._all:
            try:
                gone += (Retained(*one) for one in extension.run_retention())
            except KtsError as error:
                logger.error("retention of %r failed: %s", extension, error)
        return gone
