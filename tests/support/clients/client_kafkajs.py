"""kafkajs, one process of node/clients."""

from __future__ import annotations

import shutil
from functools import cache

from support import TESTS
from support.clients.client_loop import LoopClient
from support.clients.client_records import Headers, Record, Row
from support.processes.json_loop import CommandLoop
from support.processes.toolchains import npm_packages

SOURCES = TESTS / "node/clients"
KAFKAJS = "2.2.4"


@cache
def loop() -> CommandLoop:
    """The client, for all tests of this process."""
    folder = npm_packages(f"kafkajs-{KAFKAJS}", f"kafkajs@{KAFKAJS}")
    return CommandLoop(["node", shutil.copy(SOURCES / "loop.mjs", folder)])


class KafkaJs(LoopClient):
    """It shows no types of times; headers are by their names, and none is null. Other codecs come from others."""

    name = "kafkajs"
    codecs = ("none", "gzip")
    null_headers = False

    def loop(self) -> CommandLoop:
        return loop()

    def sent(self, record: Record) -> Record:
        one = super().sent(record)
        return one._replace(headers=_by_name(one.headers))

    def seen(self, row: Row, magic: int = 2) -> Row:
        return row._replace(timestamp_type=None, headers=_by_name(row.headers or ()))


def _by_name(headers: Headers) -> Headers:
    names = dict.fromkeys(name for name, _ in headers)
    return tuple(one for name in names for one in headers if one[0] == name)
