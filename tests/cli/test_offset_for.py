"""``kts offset-for``: the answers of the broker, and how they are explained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import Golden, golden
from support.processes.cli_runs import lines, run
from support.sets.log_records import NOW, batch

import kts

ORDERS = golden("demo", "orders")
LEGACY = golden("demo", "legacy")


def test_offset_for_answers_as_the_broker_did(writable: Callable[[Golden], Golden]) -> None:
    for scenario in (ORDERS, LEGACY, golden("demo", "clicks")):
        for name in scenario.partitions:
            path = scenario.partition_dir(name)
            for asked in (scenario.offsets_for_times(name) or {})["queries"][::6]:
                (row,) = lines("offset-for", path, "--time", asked["query"], "--unit", "ms", "--json")
                answer = asked["answer"]
                assert (row["offset"], row["timestamp"]) == (
                    (None, None) if answer is None else (answer["offset"], answer["timestamp"])
                )


def test_offset_for_explains_itself() -> None:
    path = ORDERS.partition_dir("orders-0")
    said = run("offset-for", path, "--time", "2026-09-08T10:00", "--explain").stdout
    assert "2 segments end before that time" in said
    assert "00000000000000001363.log" in said
    assert "offset 1,375, its own time is 2036-09-04T10:20:21.245Z" in said
    older = sum(r.offset > 1375 and r.timestamp < 1_788_861_600_000 for r in ORDERS.expected("orders-0"))
    assert f"later records that are older: {older}" in said
    (row,) = lines("offset-for", path, "--time", "2026-09-08T10:00", "--explain", "--json")
    assert row["offset"] == 1375 and row["explanation"]["laterOlderRecords"] == older
    assert row["explanation"]["segmentBaseOffset"] == 1363
    none = run("offset-for", path, "--time", "2100-01-01", "--explain").stdout
    assert "no record is that young" in none
    table = run("offset-for", ORDERS.log_dir, "--time", "2100-01-01").stdout
    assert table.count("no record at or after it") == 3
    run("offset-for", path, "--time", "0", "--explain", "--shipped-search", code=2)


@pytest.mark.parametrize("proposal", ["bucket-index", "minute-map"])
def test_the_index_of_a_proposal_gives_the_brokers_answers(proposal: str, writable: Callable[[Golden], Golden]) -> None:
    for scenario in (ORDERS, LEGACY):
        for name in scenario.partitions:
            path = scenario.partition_dir(name)
            before = sorted(file.name for file in path.iterdir())
            for asked in (scenario.offsets_for_times(name) or {})["queries"][::9]:
                named = ["--time", asked["query"], "--unit", "ms", "--json", "--proposal", proposal]
                (row,) = lines("offset-for", path, *named)
                answer = asked["answer"]
                assert (row["offset"], row["timestamp"]) == (
                    (None, None) if answer is None else (answer["offset"], answer["timestamp"])
                )
            assert sorted(file.name for file in path.iterdir()) == before


def test_a_search_by_a_proposal_reads_its_files_if_the_log_has_them(tmp_path: Path) -> None:
    settings = {"segment.bytes": 1000, "proposals": "bucket-index", "time.index.interval.ms": 1000}
    with kts.Log(tmp_path / "t-0", settings) as log:
        for second in range(60):
            log.append(batch(NOW + second * 1000))
        bases = [segment.base_offset for segment in log.segments]
    asked = ["offset-for", tmp_path / "t-0", "--time", NOW + 20_000, "--unit", "ms", "--proposal"]
    (row,) = lines(*asked, "bucket-index", "--explain", "--json")
    told = row["explanation"]
    assert (row["offset"], told["segmentsRebuilt"], told["recordsRead"]) == (20, [], 1)
    # An entry a second from the files; the last segment, which has none yet that is closed, gets one a minute.
    assert told["entries"] == bases[-1]
    (other,) = lines(*asked, "minute-map", "--explain", "--json")
    assert (other["offset"], other["explanation"]["segmentsRebuilt"]) == (20, bases[:-1])
    assert other["explanation"]["bytesRead"] > told["bytesRead"]
    said = run(*asked, "minute-map", "--explain").stdout
    assert f"built here for {len(bases) - 1} closed segments without a valid file" in said
    assert "answer: offset 20, its own time is 2023-11-14T22:13:40.000Z" in said
    none = run(*asked[:2], "--time", "2100-01-01", "--explain", "--proposal", "bucket-index").stdout
    assert "the index alone says that no record is that young" in none
    (fine,) = lines(*asked, "minute-map", "--json", "--config", "allow.negative.timestamps=true")
    assert fine["offset"] == 20


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("--proposal wall-clock", "'wall-clock' is not one of 'bucket-index', 'minute-map'"),
        ("--proposal bucket-index --shipped-search", "leave out --shipped-search"),
        ("--proposal bucket-index --config time.index.interval.ms=0", "expected 1 to 2^63-1, found '0'"),
        ("--config time.index.interval.ms=5", "give --proposal, or leave out --config"),
    ],
)
def test_a_proposal_without_an_index_and_settings_without_a_proposal_are_wrong_use(wrong: str, words: str) -> None:
    said = run("offset-for", ORDERS.partition_dir("orders-0"), "--time", "0", *wrong.split(), code=2).stderr
    assert words in " ".join(said.split())
