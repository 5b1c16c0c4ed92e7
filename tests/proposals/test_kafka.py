"""Files of the proposals' indexes beside a real broker's own: it goes on as if they were not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import scaled
from support.kafka.brokers import kafka
from support.sets.log_records import NOW, batch

import kts

pytestmark = pytest.mark.slow

MINUTE = 60_000
INDEXES = ("bucket-index", "minute-map")
VERSIONS = ("3.9.2", "0.10.2.2")


def test_a_broker_goes_on_with_a_log_that_has_proposed_indexes(tmp_path: Path) -> None:
    """Buys that the KIP's file name, which ends as that of Kafka's offset index, harms no broker: two starts each."""
    for version in VERSIONS[: scaled(1, 2)]:
        old = version.startswith("0.")
        named = {"generation": "0.10.2" if old else "3.9", "proposals": INDEXES}
        with kafka(version, tmp_path / version) as (broker, client):
            broker.start()
            client.ask("create", topics={"t": {"segment.bytes": 1000}})
            broker.stop()
            path = broker.partition("t")
            with kts.Log(path, {"segment.bytes": 1000}, **named) as log:
                for minute in range(30):
                    log.append(batch(NOW + minute * MINUTE, magic=1 if old else 2))
                bases = [segment.base_offset for segment in log.segments]
            before = index_files(path)
            assert len(before) == 2 * len(bases) > 5
            broker.start()
            broker.stop()
            assert not [line for line in broker.said() if line.startswith(("ERROR", "FATAL")) and "t-0" in line]
            assert index_files(path) == ({} if old else before)  # 0.10.2 takes them for orphaned offset indexes
            with kts.Log(path, {"segment.bytes": 1000}, **named) as log:
                assert (log.recovered, log.log_end_offset) == ([], 30)
                assert [segment.base_offset for segment in log.segments] == bases
                for minute in (0, 7, 29):
                    assert log.offset_for_timestamp(NOW + minute * MINUTE) == (NOW + minute * MINUTE, minute)
            assert index_files(path) == before


def index_files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name.count(".") == 2}
