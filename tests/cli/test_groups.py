"""``kts groups`` beside what kafka-consumer-groups and the Admin client said of the broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.coordinators import GROUPS, admin, broker, described
from support.processes.cli_runs import lines, run


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_groups_have_the_offsets_and_lags_that_kafka_describes(version: str) -> None:
    names = ["group", "topic", "partition", "currentOffset", "logEndOffset", "lag"]
    made = lines("groups", broker(version), "--json")
    assert [tuple(row[name] for name in names) for row in made] == described(version)
    assert made[0].keys() == {*names, "leaderEpoch", "metadata", "commitTimestamp", "expireTimestamp", "type"}
    shown = [line.split() for line in run("groups", broker(version)).stdout.splitlines()]
    assert shown[0][:6] == ["group", "topic", "partition", "current", "offset", "log"]
    assert [(a, b, *map(int, numbers)) for a, b, *numbers, _, _ in shown[1:]] == described(version)


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


def test_share_groups_have_start_offsets_and_are_not_exported() -> None:
    made = lines("groups", GROUPS, "--json", "--group", "share-open")
    assert [(row["topic"], row["partition"], row["currentOffset"], row["lag"]) for row in made] == [
        ("clicks", 0, 2, 3),
        ("orders", 0, 13, 2),
        ("orders", 1, 10, 0),
    ]
    exported = run("groups", GROUPS, "--export").stdout
    assert "modern,orders,0,10" in exported and "share" not in exported


def test_an_export_tells_the_share_groups_that_it_leaves_out() -> None:
    done = run("groups", GROUPS, "--export")
    assert "share groups have no committed offsets and are left out: share-" in done.stderr
    alone = run("groups", GROUPS, "--export", "--group", "share-open")
    assert alone.stdout == "" and "left out: share-open" in alone.stderr


def test_groups_of_every_type_are_listed_with_their_states() -> None:
    made = {row["group"]: row for row in lines("groups", GROUPS, "--state", "--json")}
    assert {group: (row["type"], row["state"], row["members"]) for group, row in made.items()} == {
        group: (said["type"], said["state"], len(said["members"])) for group, said in admin()["groups"].items()
    }
    shown = run("groups", GROUPS, "--state", "--group", "streams").stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["group", "type", "state", "epoch", "members", "protocol"],
        ["streams", "Streams", "Stable", "2", "1"],
    ]
    assert (
        "there is no group modrn; did you mean modern"
        in run("groups", GROUPS, "--state", "--group", "modrn", code=2).stderr
    )


def test_members_are_listed_with_what_is_assigned_to_them() -> None:
    made = lines("groups", GROUPS, "--members", "--json", "--group", "modern")
    assert [(row["clientId"], row["groupInstanceId"], row["rackId"]) for row in made] == [
        ("one", None, "r1"),
        ("two", "fixed", None),
    ]
    shown = run("groups", GROUPS, "--members").stdout.splitlines()
    [streams] = [line for line in shown if line.startswith("streams")]
    assert streams.endswith("active 0_0, active 0_1")
    [old] = [line for line in shown if line.startswith("old")]
    assert old.endswith("clicks-0, orders-0, orders-1")
    assert "there are no members" in run("groups", GROUPS, "--members", "--group", "simple").stderr


def test_a_command_has_one_view() -> None:
    assert "exclude each other" in run("groups", GROUPS, "--state", "--members", code=2).stderr
    assert "--topic is about offsets" in run("groups", GROUPS, "--members", "--topic", "orders", code=2).stderr


def test_the_end_of_a_partition_elsewhere_is_empty_and_a_directory_without_groups_is_wrong_use(tmp_path: Path) -> None:
    alone = run("groups", broker("3.9.2") / "__consumer_offsets-0").stdout.splitlines()
    assert [len(line.split()) for line in alone[1:]] == [6, 6]
    shutil.copytree(broker("3.9.2") / "orders-0", tmp_path / "orders-0")
    assert "there is no topic __consumer_offsets" in run("groups", tmp_path, code=2).stderr


def test_damage_ends_it_with_3_or_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    shutil.copytree(broker("3.9.2") / folder.name, folder)
    [log] = folder.glob("*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"\1")
    assert str(log) in run("groups", tmp_path, code=3).stderr
    assert "damaged and left out" in run("groups", tmp_path, "--on-error", "skip", code=1).stderr
