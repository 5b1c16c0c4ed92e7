"""What brokers left of groups and transactions in `data/coordinators` and `data/groups`, and what Kafka says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from support import TESTS

FOLDER = TESTS / "data/coordinators"
GROUPS = TESTS / "data/groups/4.3.1"  # groups of every type, and transactions of version 2
VERSIONS = sorted(path.name for path in FOLDER.iterdir())
_RECORD = re.compile(r"^\| offset: (\d+) .*? key: (\{.*?\}) payload: (\{.*\}|<DELETE>)$", re.MULTILINE)
_TRANSACTION = re.compile(
    r"^\| offset: (\d+) .*transactionalId=(\S+) payload: producerId:(\d+),producerEpoch:(\d+),state=(\w+),"
    r"partitions=\[(.*)\],txnLastUpdateTimestamp=(\d+),txnTimeoutMs=(\d+)$",
    re.MULTILINE,
)


def broker(version: str) -> Path:
    """The log directory of a broker."""
    return FOLDER / version


def dumped(partition: Path) -> dict[int, tuple[dict[str, Any], dict[str, Any] | None]]:
    """Key and value of each record of a partition, by offset, as kafka-dump-log's decoder prints them."""
    said = partition.with_name(f"{partition.name}.txt").read_text(encoding="utf-8")
    found = {}
    for offset, key, value in _RECORD.findall(said):
        found[int(offset)] = (json.loads(key), None if value == "<DELETE>" else json.loads(value))
    return found


def dumped_transactions(partition: Path) -> dict[int, tuple[Any, ...]]:
    """As `dumped`, of 3.9: transactional id, producer id, epoch, state, partitions, last update, timeout."""
    said = partition.with_name(f"{partition.name}.txt").read_text(encoding="utf-8")
    found: dict[int, tuple[Any, ...]] = {}
    for offset, name, producer_id, epoch, state, partitions, update, timeout in _TRANSACTION.findall(said):
        where = {*filter(None, partitions.split(","))}
        found[int(offset)] = (name, int(producer_id), int(epoch), state, where, int(update), int(timeout))
    return found


def described(version: str) -> list[tuple[str, str, int, int, int, int]]:
    """Group, topic, partition, current offset, log end offset and lag, as kafka-consumer-groups describes them."""
    said = (broker(version) / "groups.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in said.splitlines()]
    return sorted((row[0], row[1], *map(int, row[2:6])) for row in rows if len(row) == 9 and row[0] != "GROUP")


def written() -> list[dict[str, Any]]:
    """Values of every version that Kafka 4.3.1's classes wrote: `kind`, `version`, `bytes`, and their `json`."""
    return [json.loads(line) for line in (broker("4.3.1") / "values.jsonl").read_text(encoding="utf-8").splitlines()]


def admin() -> dict[str, Any]:
    """What the Admin client said of `GROUPS` before the broker stopped: `groups`, `offsets`, and `ends` of logs."""
    return dict(json.loads((GROUPS / "admin.json").read_text(encoding="utf-8")))
