"""Tiered storage as real brokers left it, and what Java consumers saw: `golden/tiered` of KTS_KAFKA_DATA, or packed.

Each session is a broker's log directory, its store, its keys and expectations; `tests/data/README.md` names them.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

import kts
from support import TESTS
from support.golden import RECORD_COLUMNS, Row, data_root, json_lines, row_from_json, rows

PACKED = TESTS / "data" / "tiered"
PREFIXES = {"aiven-prefix": "cold/cluster-a/", "aiven-s3": "pre/fix-"}


@dataclass(frozen=True)
class Session:
    """One broker with one configuration of a plugin."""

    path: Path

    def __str__(self) -> str:
        return self.path.name

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.path / "meta.json").read_text(encoding="utf-8"))

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def store(self) -> Path:
        return self.path / "remote"

    @property
    def remote(self) -> str:
        """The store with the prefix of its keys."""
        return f"{self.store}/{PREFIXES.get(self.path.name, '')}"

    @property
    def keys(self) -> dict[str, str]:
        return {path.name.split(".")[0]: str(path) for path in sorted(self.path.glob("keys/*.private.pem"))}

    @property
    def options(self) -> dict[str, Any]:
        return {"private_keys": self.keys}

    @property
    def partitions(self) -> list[str]:
        return sorted(self.meta["partitions"])

    def facts(self, partition: str) -> dict[str, Any]:
        return self.meta["partitions"][partition]

    def expected(self, partition: str) -> list[Row]:
        """What a consumer read; where 3.9.2 sends lost records to one that fetches much, the one that fetches little.

        That has neither types nor headers: the records of that topic have CreateTime and none.
        """
        if partition.startswith("diverged-"):
            lines = json_lines(self.path / "expected" / f"{partition}.small.jsonl")
            return [row_from_json({"timestampType": "CreateTime", "headers": [], **line}) for line in lines]
        return [row_from_json(line) for line in json_lines(self.path / "expected" / f"{partition}.jsonl")]

    def times(self, partition: str) -> dict[str, Any]:
        return json.loads((self.path / "offsets_for_times" / f"{partition}.json").read_text(encoding="utf-8"))

    def open(self, **options: Any) -> kts.LogDirs:
        """The log directory and its store as one."""
        return kts.open_log_dirs(self.data, remote=self.remote, remote_options=self.options | options)

    def store_alone(self, **options: Any) -> kts.LogDirs:
        return kts.open_log_dirs(None, remote=self.remote, remote_options=self.options | options)

    def log(self, partition: str) -> kts.PartitionLog:
        topic, _, number = partition.rpartition("-")
        return self.open()[topic, int(number)]

    def copy(self, folder: Path) -> Session:
        """A copy to damage."""
        return Session(Path(shutil.copytree(self.path, folder / self.path.name)))


def records(log: kts.PartitionLog, **options: Any) -> list[Row]:
    return rows(log.scan(columns=RECORD_COLUMNS, **options).read_all())


def offsets(log: kts.PartitionLog, **options: Any) -> list[int]:
    table: pa.Table = log.scan(columns=["offset"], **options).read_all()
    return table["offset"].to_pylist()


def names() -> list[str]:
    """Every session that is carried, and what a larger KTS_KAFKA_DATA adds."""
    there = {path.parent.name for path in (data_root() / "golden" / "tiered").glob("*/meta.json")}
    return sorted(there | {path.name.split(".")[0] for path in PACKED.glob("*.tar.xz")})


@cache
def session(name: str) -> Session:
    path = data_root() / "golden" / "tiered" / name
    if path.is_dir():
        return Session(path)
    with tarfile.open(PACKED / f"{name}.tar.xz") as packed:
        packed.extractall(_folder(), filter="data")
    return Session(_folder() / name)


@cache
def _folder() -> Path:
    path = tempfile.mkdtemp(prefix="kts-tiered-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)
