"""``kts cluster`` beside what Kafka's Admin client was told of the same brokers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.clusters import LOG, VERSIONS, cluster_of, described
from support.processes.cli_runs import lines, run


@pytest.mark.parametrize("version", VERSIONS)
def test_its_lines_are_what_the_admin_client_was_told(version: str) -> None:
    said = described(cluster_of(version))
    rows = lines("cluster", cluster_of(version), "--as-of", said["logEndOffset"] - 1, "--json")
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}
    assert of.keys() - {"voter"} == {"cluster", "broker", "controller", "topic", "config", "quota", "acl", "scramUser"}
    assert ("voter" in of) == ("kraft.version" in said["features"])
    [cluster] = of["cluster"]
    assert (cluster["clusterId"], cluster["lastOffset"]) == (said["clusterId"], said["logEndOffset"] - 1)
    assert {name: level for name, level in cluster["features"].items() if level} == said["features"]
    assert [(one["nodeId"], one["endpoints"][0]["port"]) for one in of["broker"]] == [
        (one["id"], one["port"]) for one in said["brokers"]
    ]
    for topic in of["topic"]:
        expected = said["topics"][topic["topic"]]
        assert topic["topicId"] == expected["id"]
        names = ("partition", "leader", "replicas", "isr")
        found = [{name: one[name] for name in names} for one in topic["partitions"]]
        assert found == [{name: one[name] for name in names} for one in expected["partitions"]]
    told = {(one["type"], one["name"], one["key"]) for one in said["configs"]}
    shown = {("TOPIC", one["topic"], key) for one in of["topic"] for key in one["config"]}
    shown |= {(one["resourceType"], one["resourceName"], key) for one in of["config"] for key in one["config"]}
    assert shown == told
    assert {(one["user"], one["mechanism"]) for one in of["scramUser"]} == {("alice", "SCRAM-SHA-256")}


def test_its_tables_have_topics_settings_and_rights_and_no_secret() -> None:
    said = run("cluster", cluster_of("4.3.1")).output
    for words in (
        "orders-2",
        "message.timestamp.type=LogAppendTime retention.ms=7200000",
        "min.insync.replicas=1",
        "listener.name.plaintext.ssl.key.password=[hidden]",
        "user=alice",
        "DENY   User:eve",
        "SCRAM-SHA-256        4096",
        "metadata.version=30",
    ):
        assert words in said
    assert "wonderland" not in said


def test_a_topic_alone_and_an_earlier_offset_and_time() -> None:
    folder = cluster_of("3.9.2")
    [row] = lines("cluster", folder, "--topic", "orders", "--json")
    assert row["config"] == {"message.timestamp.type": "LogAppendTime", "retention.ms": "7200000"}
    rows = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    [made] = [one for one in rows if one["data"].get("name") == "gone" and one["file"].endswith(".log")]
    assert [one["topic"] for one in lines("cluster", folder, "--as-of", made["offset"], "--topic", "gone", "--json")]
    assert run("cluster", folder, "--as-of", made["offset"] - 1, "--topic", "gone", code=2).stderr.endswith(
        f"there is no topic gone in the metadata of {folder}\n"
    )
    [first, *_] = lines("cluster", folder, "--as-of", "2100-01-01", "--json")
    assert first["lastOffset"] == lines("cluster", folder, "--json")[0]["lastOffset"]
    shown = run("cluster", folder, "--tz", "Asia/Tokyo").stdout
    assert "+09:00" in shown and "+09:00" not in run("cluster", folder).stdout


def test_topics_are_chosen_by_names_and_patterns() -> None:
    folder = cluster_of("4.3.1")
    for names, found in {
        ("ord*",): ["orders"],
        ("*",): ["clicks", "orders"],
        ("c*", "orders"): ["clicks", "orders"],
    }.items():
        given = [word for name in names for word in ("--topic", name)]
        assert [row["topic"] for row in lines("cluster", folder, *given, "--json")] == found
    said = run("cluster", folder, "--topic", "x*", code=2).stderr
    assert f"no topic matches x* in the metadata of {folder}; there are clicks, orders" in said


@pytest.mark.parametrize("text", ["", "version=1\nnode.id=x\n"])
def test_a_malformed_meta_properties_is_told_and_the_metadata_shown(tmp_path: Path, text: str) -> None:
    """A crash leaves it empty."""
    shutil.copytree(cluster_of("4.3.1") / LOG, tmp_path / LOG)
    path = tmp_path / "meta.properties"
    path.write_text(text, encoding="utf-8")
    done = run("cluster", tmp_path, "--json")
    first, *rest = map(json.loads, done.stdout.splitlines())
    assert (first["clusterId"], first["nodeId"], first["lastOffset"]) == (None, None, 83)
    assert [row["topic"] for row in rest if row["kind"] == "topic"] == ["clicks", "orders"]
    assert f"{path}; which cluster and node the directory belongs to is not known" in done.stderr
    shutil.rmtree(tmp_path / LOG)
    assert "metadata.log.dir" in run("cluster", tmp_path, code=2).stderr


def test_what_is_not_there_is_wrong_use_with_what_to_do(tmp_path: Path) -> None:
    assert "metadata.log.dir" in run("cluster", tmp_path, code=2).stderr
    assert "no such file or directory" in run("cluster", tmp_path / "none", code=2).stderr
    said = run("cluster", cluster_of("4.3.1"), "--as-of", 5000, code=2).stderr
    assert "--as-of: expected an offset of the metadata log, 0 to" in said
    said = run("cluster", cluster_of("4.3.1"), "--as-of", -1, code=2).stderr
    assert "--as-of: expected an offset of the metadata log, 0 to 83, found -1" in said
    assert "--as-of" in run("cluster", cluster_of("4.3.1"), "--as-of", "yesterday", code=2).stderr


def test_damage_ends_it_with_3_and_the_files_name(tmp_path: Path) -> None:
    shutil.copytree(cluster_of("4.3.1") / LOG, tmp_path / LOG)
    [*_, newest] = sorted((tmp_path / LOG).glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\1")
    assert str(newest) in run("cluster", tmp_path, code=3).stderr


def test_a_directory_without_a_log_warns_and_lists_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=abc\n", encoding="utf-8")
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0/partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAA")
    done = run("cluster", tmp_path)
    assert "ZooKeeper had it" in done.stderr
    assert "orders  AAAAAAAAQACAAAAAAAAAAA" in done.stdout
