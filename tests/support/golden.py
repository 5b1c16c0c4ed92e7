"""What Kafka brokers left behind and what their consumers saw, as test data; the comparison form of a record."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from support import TESTS

PATIENCE_S = 300.0  # for what takes seconds, or less, on a machine that does nothing else


def is_full() -> bool:
    """Whether random tests have their full length: KTS_LENGTH=full."""
    length = os.environ.get("KTS_LENGTH", "short")
    if length not in ("short", "full"):
        raise ValueError(f"KTS_LENGTH is short or full, not {length!r}")
    return length == "full"


def scaled(short: int, full: int) -> int:
    """The length of a random test; what calls this gets the mark `scaled`."""
    return full if is_full() else short


TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def data_root() -> Path:
    """The folder with `golden/` and `oracle/`: KTS_KAFKA_DATA, else the copies in `tests/data`."""
    root = Path(os.environ.get("KTS_KAFKA_DATA") or TESTS / "data").resolve()
    if not (root / "golden").is_dir():
        raise FileNotFoundError(
            f"{root} has no folder 'golden'; set KTS_KAFKA_DATA to a folder with golden/ and oracle/, or unset it"
        )
    return root


def oracle_file(name: str) -> Path:
    """The path of one file of recorded verdicts, as `oracle_file("decode-3.9")`."""
    return data_root() / "oracle" / f"{name}.jsonl.gz"


def carries_samples() -> bool:
    """Whether verdicts are read from `tests/data`, which has a sample of some families."""
    return data_root() == (TESTS / "data").resolve()


def oracle_cases(name: str) -> list[dict[str, Any]]:
    """All cases of one file of recorded verdicts, as `oracle_cases("decode-3.9")`."""
    return json_lines(oracle_file(name))


def json_lines(path: Path) -> list[dict[str, Any]]:
    """One object a line, gzip or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Row(NamedTuple):
    """One record in the form that every comparison uses; headers are None where there are none."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


RECORD_COLUMNS = ["offset", "timestamp", "timestampType", "key", "value", "headers"]


def rows(table: pa.RecordBatch | pa.Table) -> list[Row]:
    """The records of a batch or table that has the columns RECORD_COLUMNS (others may be there too)."""
    columns = [table.column("offset"), table.column("timestamp").cast(pa.int64())]
    columns += [table.column(name) for name in RECORD_COLUMNS[2:5]]
    headers = [
        None if pairs is None else tuple((pair["key"], pair["value"]) for pair in pairs)
        for pairs in table.column("headers").to_pylist()
    ]
    return [Row(*fields) for fields in zip(*(column.to_pylist() for column in columns), headers, strict=True)]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def row_from_json(line: dict[str, Any]) -> Row:
    """A line of `expected.jsonl` as a Row."""
    headers = tuple((name, _bytes(value)) for name, value in line["headers"])
    return Row(
        line["offset"],
        line["timestamp"],
        TIMESTAMP_TYPES[line["timestampType"]],
        _bytes(line["key"]),
        _bytes(line["value"]),
        headers or None,
    )


@lru_cache(maxsize=16)  # several tests in a row ask for the same ones
def _expected(path: Path) -> tuple[Row, ...]:
    return tuple(row_from_json(line) for line in json_lines(path))


@dataclass(frozen=True)
class Golden:
    """One scenario: the partition directories that a broker left, and what its consumers saw."""

    version: str
    name: str
    path: Path
    log_dir: Path  # holds the partition directories; below `path` where a killed broker recovered

    def __str__(self) -> str:
        return f"{self.version}/{self.name}"

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.path / "meta.json").read_text(encoding="utf-8"))

    @property
    def partitions(self) -> list[str]:
        """Names of the partition directories, as `orders-0`."""
        return sorted(self.meta["partitions"])

    def partition_dir(self, partition: str) -> Path:
        return self.log_dir / partition

    def logs(self, partition: str) -> list[Path]:
        """The `.log` files of a partition in the order of their base offsets."""
        return sorted(self.partition_dir(partition).glob("*.log"))

    def log_start_offset(self, partition: str) -> int:
        return self.meta["partitions"][partition]["beginningOffset"]

    def _beside(self, stem: str, partition: str, suffix: str) -> Path | None:
        for name in (f"{stem}{suffix}", f"{stem}.{partition}{suffix}", f"{stem}.{partition}{suffix}.gz"):
            if (self.path / name).exists():
                return self.path / name
        return None

    def expected(self, partition: str) -> list[Row]:
        """What a read_uncommitted consumer saw, from the beginning."""
        path = self._beside("expected", partition, ".jsonl")
        if path is None:
            raise FileNotFoundError(f"{self.path} has no expected.jsonl for {partition}")
        return list(_expected(path))

    def offsets_for_times(self, partition: str) -> dict[str, Any] | None:
        """The broker's answers to timestamp queries; None before 0.10.2."""
        path = self._beside("offsets_for_times", partition, ".json")
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))

    def copy(self, folder: Path) -> Golden:
        """A writable copy in `folder` whose `.log` files have the modification times that the broker's had."""
        target = folder / self.version / self.name
        for source in [self.path, *self.path.rglob("*")]:
            copied = target / source.relative_to(self.path)
            if source.is_dir():
                copied.mkdir(parents=True, exist_ok=True)
            elif source.suffix != ".gz" or "expected" in source.name:
                shutil.copyfile(source, copied)
        log_dir = target / self.log_dir.relative_to(self.path)
        for partition, facts in self.meta["partitions"].items():
            for name, modified_ms in facts["logModifiedMs"].items():
                os.utime(log_dir / partition / name, ns=(modified_ms * 1_000_000,) * 2)
        return replace(self, path=target, log_dir=log_dir)


@cache
def goldens() -> list[Golden]:
    """Every scenario under the data root, `demo/*` included; those of tiered storage have another layout."""
    found = []
    for meta in sorted(data_root().glob("golden/*/*/meta.json")):
        path = meta.parent
        if (path / "remote").is_dir():
            continue
        recovered = path / "recovered"
        found.append(Golden(path.parent.name, path.name, path, recovered if recovered.is_dir() else path))
    return found


def golden(version: str, name: str) -> Golden:
    """One scenario by name; the tests that call it need one of those that `tests/data` carries."""
    return next(scenario for scenario in goldens() if (scenario.version, scenario.name) == (version, name))


def golden_partitions() -> list[tuple[Golden, str]]:
    """Every partition of every scenario."""
    return [(scenario, partition) for scenario in goldens() for partition in scenario.partitions]


def golden_logs() -> list[Path]:
    """Every `.log` file of every scenario."""
    return [log for scenario, partition in golden_partitions() for log in scenario.logs(partition)]
