"""franz-go and sarama, each one process of go/clients."""

from __future__ import annotations

from functools import cache

from support import TESTS
from support.clients.client_loop import LoopClient
from support.clients.client_records import Row
from support.processes.json_loop import CommandLoop
from support.processes.toolchains import go_built

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@cache
def loop(name: str) -> CommandLoop:
    """The client of that name, for all tests of this process."""
    return CommandLoop([go_built(TESTS / "go/clients"), name])


class FranzGo(LoopClient):
    name = "franz-go"
    codecs = CODECS
    tells_times = False

    def loop(self) -> CommandLoop:
        return loop(self.name)


class Sarama(LoopClient):
    """It shows no types of times."""

    name = "sarama"
    codecs = CODECS

    def loop(self) -> CommandLoop:
        return loop(self.name)

    def seen(self, row: Row, magic: int = 2) -> Row:
        return row._replace(timestamp_type=None)
