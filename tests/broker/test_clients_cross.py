"""What each client wrote through `kts serve`, read by all, in every message format."""

from __future__ import annotations

from support.clients.client_all import NAMES
from support.clients.client_cross import MAGIC, NewestCrossReads
from support.clients.client_places import place


class TestCrossReads(NewestCrossReads):
    writers = NAMES
    versions = tuple(MAGIC)
    place = staticmethod(place)
