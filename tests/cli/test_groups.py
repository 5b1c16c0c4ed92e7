"""``kts groups`` beside what kafka-consumer-groups said of the broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.coordinators import broker, described
from support.processes.cli_runs import lines, run


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_groups_have_the_offsets_and_lags_that_kafka_describes(version: str) -> None:
    names = ["group", "topic", "partition", "currentOffset", "logEndOffset", "lag"]
    made = lines("groups", broker(version), "--json")
    assert [tuple(row[name] for name in names) for row in made] == described(version)
    assert made[0].keys() == {*names, "leaderEpoch", "metadata", "commitTimestamp", "expireTimestamp"}
    shown = [line.split() for line in run("groups", broker(version)).stdout.splitlines()]
    assert shown[0][:6] == ["group", "topic", "partition", "current", "offset", "log"]
    assert [(a, b, *map(int, numbers)) for a, b, *numbers, _ in shown[1:]] == described(version)


def test_groups_and_topics_are_selected() -> None:
    made = lines("groups", broker("4.3.1"), "--json", "--group", "billing", "--group", "audit", "--topic", "orders")
    assert [(row["group"], row["partition"]) for row in made] == [("billing", 0), ("billing", 1)]


def test_an_unknown_name_is_wrong_use_and_no_offsets_are_said() -> None:
    said = run("groups", broker("4.3.1"), "--group", "bilings", code=2).stderr
    assert "--group: there is no committed offset of group bilings; did you mean billing?" in said
    assert "there are no committed offsets" in run("groups", broker("4.3.1") / "clicks-0").stderr


def test_an_export_has_the_lines_of_kafka_consumer_groups() -> None:
    assert run("groups", broker("4.3.1"), "--export", "--group", "billing").stdout == "orders,0,5\norders,1,7\n"
    both = run("groups", broker("4.3.1"), "--export", "--group", "billing", "--group", "audit").stdout
    assert both == "audit,clicks,0,1\nbilling,orders,0,5\nbilling,orders,1,7\n"
    assert "exclude each other" in run("groups", broker("4.3.1"), "--export", "--json", code=2).stderr


def test_the_end_of_a_partition_elsewhere_is_empty_and_a_directory_without_groups_is_wrong_use(tmp_path: Path) -> None:
    alone = run("groups", broker("3.9.2") / "__consumer_offsets-0").stdout.splitlines()
    assert [len(line.split()) for line in alone[1:]] == [5, 5]
    shutil.copytree(broker("3.9.2") / "orders-0", tmp_path / "orders-0")
    assert "there is no topic __consumer_offsets" in run("groups", tmp_path, code=2).stderr


def test_damage_ends_it_with_3_or_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    shutil.copytree(broker("3.9.2") / folder.name, folder)
    [log] = folder.glob("*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"\1")
    assert str(log) in run("groups", tmp_path, code=3).stderr
    assert "damaged and left out" in run("groups", tmp_path, "--on-error", "skip", code=1).stderr
