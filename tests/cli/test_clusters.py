"""What commands take from a metadata log that lies beside the partitions, which real brokers wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.clusters import cluster_of
from support.processes.cli_runs import lines, run

import kts
from kts.cluster_records.layout import write_record

OTHER_ID = "AAAAAAAAAAAAAAAAAAAABB"
WRITTEN_MS = 1_790_000_000_000
LATER = "2026-11-28"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The log directory of a broker of 4.3.1, with partitions of its topics, and some that are not its own."""
    home = tmp_path / "data"
    shutil.copytree(cluster_of("4.3.1"), home)
    ids = {name: topic.topic_id for name, topic in kts.cluster(home).topics.items()}
    written = [("orders-0", ids["orders"]), ("orders-7", ids["orders"]), ("clicks-0", OTHER_ID), ("gone-0", OTHER_ID)]
    for name, topic_id in written:
        with kts.Log(home / name, topic_id=topic_id) as log:
            log.append_rows({"value": [b"v"], "timestamp": [WRITTEN_MS]}, unit="ms")
    return home


def test_ls_marks_partitions_that_are_not_the_clusters(home: Path) -> None:
    found = {f"{row['topic']}-{row['partition']}": row for row in lines("ls", home, "--json")}
    state = kts.cluster(home)
    assert found["orders-0"]["stray"] is None and found["__cluster_metadata-0"]["stray"] is None
    assert found["orders-0"]["topicId"] == state.topic("orders").topic_id
    assert found["orders-7"]["stray"] == "stray: the topic has 3 partitions"
    assert found["gone-0"]["stray"] == "stray: the cluster has no topic of this name"
    again = f"stray: the topic was made again, with id {state.topic('clicks').topic_id}; this one had {OTHER_ID}"
    assert found["clicks-0"]["stray"] == again
    done = run("ls", home)
    assert f"clicks-0 is {again}" in done.stdout
    assert f"strays are told by {home}/__cluster_metadata-0 (offset " in done.stderr
    assert "is stray" not in run("ls", home, "--topic", "orders", "--partition", 0).stdout


def test_ls_marks_replicas_that_were_moved_away(home: Path) -> None:
    properties = home / "meta.properties"
    properties.write_text(properties.read_text("utf-8").replace("node.id=1", "node.id=2"))
    rows = {f"{row['topic']}-{row['partition']}": row for row in lines("ls", home, "--json")}
    assert rows["orders-0"]["stray"] == "moved: its replicas are on 1, and this is node 2"


def test_ls_tells_the_log_directory_that_has_a_replica_now(home: Path, tmp_path: Path) -> None:
    """A second log directory of the node has no metadata log: it takes the first one's."""
    second = tmp_path / "second"
    second.mkdir()
    text = (home / "meta.properties").read_text("utf-8")
    own = kts.cluster(home).directory_id
    assert own is not None
    (second / "meta.properties").write_text(text.replace(own, OTHER_ID))
    shutil.move(home / "orders-0", second / "orders-0")
    rows = {f"{row['topic']}-{row['partition']}": row for row in lines("ls", home, second, "--json")}
    assert rows["orders-0"]["stray"] == f"moved: node 1 has it in the log directory {own}, and this is {OTHER_ID}"
    assert all(row["stray"] is None for row in lines("ls", second, "--json"))  # nothing is known


def test_retention_takes_the_topics_own_settings_and_says_so(home: Path) -> None:
    """`orders` has two hours; the others what the cluster's brokers have by default, which is no limit."""
    done = run("retention", home, "--now", LATER, "--json")
    rows = {f"{row['topic']}-{row['partition']}": row for row in map(json.loads, done.stdout.splitlines())}
    hours = 2 * 3_600_000
    assert (rows["orders-0"]["rule"], rows["orders-0"]["deletableAt"]) == ("retention.ms", WRITTEN_MS + hours + 1)
    assert (rows["gone-0"]["rule"], rows["gone-0"]["deletableAt"]) == (None, None)
    assert f"settings are those of {home}/__cluster_metadata-0 (offset " in done.stderr
    given = lines("retention", home, "--now", LATER, "--retention-ms", "1d", "--json")
    assert {row["deletableAt"] for row in given if row["topic"] != "__cluster_metadata"} == {WRITTEN_MS + 86_400_001}


def test_verify_compares_topic_ids_and_tells_strays(home: Path) -> None:
    state = kts.cluster(home)
    done = run("verify", home, "--json", code=1)
    *found, summary = map(json.loads, done.stdout.splitlines())
    [violation] = found
    assert (violation["kind"], violation["path"]) == ("topic-id", str(home / "clicks-0/partition.metadata"))
    assert all(str(topic_id) in violation["message"] for topic_id in (OTHER_ID, state.topic("clicks").topic_id))
    assert summary["metadataLogs"] == [str(home / "__cluster_metadata-0")]
    assert [(one["topic"], one["partition"], one["stray"]) for one in summary["strays"]] == [
        ("gone", 0, "stray: the cluster has no topic of this name"),
        ("orders", 7, "stray: the topic has 3 partitions"),
    ]
    assert summary["next"] == [f"kts cluster {home}"]
    assert f"topic ids and settings are those of {home}/__cluster_metadata-0 (offset " in done.stderr
    assert "gone-0 is stray: the cluster has no topic of this name\n" in done.stderr
    assert run("verify", home, "--topic", "orders").stdout.startswith("OK: 2 partitions, ")


def test_verify_finds_records_without_keys_in_a_compacted_topic_in_processes_too(home: Path) -> None:
    policy = {"resourceType": 2, "resourceName": "orders", "name": "cleanup.policy", "value": "compact"}
    with kts.Log(home / "__cluster_metadata-0") as log:
        log.append_rows([{"value": write_record("Config", 0, policy)}])
    [violation, summary] = lines("verify", home / "orders-0", "--deep", "--jobs", 2, "--json", code=1)
    assert (violation["kind"], violation["offset"], summary["next"]) == ("key", 0, [f"kts cluster {home}"])


def test_copy_takes_lost_topic_ids_from_there_and_says_so(home: Path, tmp_path: Path) -> None:
    (home / "orders-0/partition.metadata").unlink()
    done = run("copy", home, tmp_path / "copy")
    topic_id = kts.cluster(home).topic("orders").topic_id
    assert f"topic ids and settings are those of {home}/__cluster_metadata-0 (offset " in done.stderr
    assert f"{home}/orders-0 has no topic id: the copy has {topic_id}, the cluster's of orders" in done.stderr
    assert f"{home}/clicks-0 has the topic id {OTHER_ID}, and the cluster " in done.stderr
    ids = {log.path: log.topic_id for log in kts.open_log_dirs(tmp_path / "copy").values()}
    assert (ids[f"{tmp_path}/copy/orders-0"], ids[f"{tmp_path}/copy/clicks-0"]) == (topic_id, OTHER_ID)


def test_a_metadata_log_that_cannot_be_read_is_told_and_left_out(home: Path) -> None:
    for snapshot in (home / "__cluster_metadata-0").glob("*.checkpoint"):
        snapshot.write_bytes(snapshot.read_bytes()[:50])
    done = run("ls", home)
    assert "the cluster's metadata is left out: " in done.stderr and "orders-0" in done.stdout
    assert "is stray" not in done.stdout
