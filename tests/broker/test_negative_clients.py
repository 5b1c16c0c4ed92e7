"""Which clients write, read and find times before 1970: the table of docs/negative-times.md, from a run of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clients.client_all import Clients
from support.clients.client_places import Place, kts_serve
from support.clients.client_records import Record

import kts

OLD = -386_380_800_000  # 1957-10-04
TIMES = [OLD, OLD + 5, -7, 9]
PAGE = Path(__file__).parents[2] / "docs/negative-times.md"
NAMES = ("Java 0.10.2.2", "Java 3.9.2", "Java 4.3.1", "confluent-kafka", "kafka-python", "aiokafka")
SHOWN = {"confluent-kafka": "librdkafka (confluent-kafka)"}
REFUSED = re.compile("Invalid timestamp: -|target time cannot be negative|target time for partition .* is -")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with kts_serve(tmp_path_factory.mktemp("broker")) as found:
        found.create("t", allow_negative_timestamps="true")
        records = [Record(b"k", b"v", time) for time in TIMES]
        Clients()["confluent-kafka"].produce(found.bootstrap, "t", records)
        yield found


def table() -> dict[str, list[str]]:
    """The cells of the page's table, by the client."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.M
    )
    return {client: cells for client, *cells in rows}


def tried(work: Callable[[], str]) -> str:
    """What it gives, or that the client itself refuses; anything else is an error."""
    try:
        return work()
    except Exception as error:
        if not REFUSED.search(str(error)):
            raise
        return "refuses"


@pytest.mark.parametrize("name", NAMES)
def test_the_table_says_what_a_client_does(broker: Place, clients: Clients, name: str) -> None:
    client, own = clients[name], broker.create(f"by-{name.replace(' ', '-')}", allow_negative_timestamps="true")

    def write() -> str:
        client.produce(broker.bootstrap, own, [Record(None, b"v", time) for time in TIMES])
        stored = kts.scan(broker.data, topics=[own], columns=["timestamp"]).read_all()["timestamp"]
        return "yes" if stored.cast("int64").to_pylist() == TIMES else "others"

    def read() -> str:
        return "yes" if [row.timestamp for row in client.consume(broker.bootstrap, "t")] == TIMES else "others"

    def search(target: int) -> str:
        [found] = client.times(broker.bootstrap, "t", [target])
        at = None if found is None else found[0]
        expected = next((offset for offset, time in enumerate(TIMES) if time >= target), None)
        return "yes" if at == expected else "the end" if at in (None, len(TIMES)) else "others"

    found = [tried(write), tried(read), tried(lambda: search(OLD + 1)), tried(lambda: search(-1))]
    assert found == table()[SHOWN.get(name, name)]


def test_the_table_says_what_kts_does(broker: Place) -> None:
    with kts.open_partition(broker.data / "t-0") as log:
        assert [log.offset_for_timestamp(target) for target in (OLD + 1, -1)] == [(OLD + 5, 1), (9, 3)]
        assert log.scan(columns=["timestamp"]).read_all()["timestamp"].cast("int64").to_pylist() == TIMES
    assert table()['kts (`kts.Log`, `kts append`, `format("kts")`)'] == ["yes"] * 4
