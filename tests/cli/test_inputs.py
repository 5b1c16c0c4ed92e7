"""What commands are given: which partitions a path and its filters mean, and the settings of one that is written."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from support.golden import golden
from support.processes.cli_runs import lines, run

import kts
from kts.cli.inputs import Size, make_config, newest_magic, open_logs, parse_settings, with_proposals

ORDERS = golden("demo", "orders").log_dir


def chosen(*paths: Path, **filters: object) -> list[str]:
    logs = open_logs([str(path) for path in paths], **filters)  # type: ignore[arg-type]
    return [f"{log.topic}-{log.partition}" for log in logs]


def test_filters_choose_among_the_partitions_of_all_paths_in_order(tmp_path: Path) -> None:
    for name in ("b-1", "a-10", "a-9", "__consumer_offsets-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(kts.encode({"value": [b"v"]}))
    everything = ["__consumer_offsets-0", "a-9", "a-10", "b-1"]
    assert chosen(tmp_path) == everything
    assert chosen(ORDERS, tmp_path) == [*everything, "orders-0", "orders-1", "orders-2"]
    assert chosen(tmp_path, topics=("b", "a")) == ["a-9", "a-10", "b-1"]
    assert chosen(tmp_path, partitions=(1, 9)) == ["a-9", "b-1"]
    assert chosen(tmp_path, internal=False) == ["a-9", "a-10", "b-1"]
    assert chosen(tmp_path, internal=False, topics=("__consumer_offsets",)) == ["__consumer_offsets-0"]
    assert chosen(tmp_path / "__consumer_offsets-0", internal=False) == ["__consumer_offsets-0"]


def test_storage_options_that_reach_nothing_are_told_once() -> None:
    """One rule for every command: with a bucket, as a target too, it is silent."""
    for command in ("ls", "dump", "verify", "stats"):
        said = run(command, ORDERS, "--storage-options", '{"region": "eu-west-1"}').stderr
        assert said.count("kts: warning: --storage-options has no effect") == 1, command
    assert chosen(ORDERS, reaches_more=True) == ["orders-0", "orders-1", "orders-2"]


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="no such file or directory; expected a partition"):
        chosen(tmp_path / "missing-0")
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="there is no topic order in .*; did you mean orders"):
        chosen(ORDERS, topics=("order",))
    with pytest.raises(
        kts.UnknownTopicOrPartitionError, match="there is no partition 7 in .*; there are the partitions 0, 1, 2"
    ):
        chosen(ORDERS, partitions=(7,))
    with pytest.raises(click.UsageError, match="no partition directories"):
        chosen(tmp_path)


def test_settings_are_kafka_s_and_the_format_is_that_of_the_last_batch(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kts.Log(path, {"message.format.version": "0.10.2"}) as log:
        log.append(kts.encode({"value": [b"v"]}, magic=1))
    assert newest_magic(str(path)) == 1
    assert make_config(["segment.bytes = 5000"], str(path)).magic == 1
    assert make_config(["segment.bytes = 5000"], str(path)).segment_bytes == 5000
    assert make_config(["message.format.version=3.9"], str(path)).magic == 2
    assert newest_magic(str(tmp_path / "missing-0")) is None
    assert make_config([], str(tmp_path / "missing-0")).magic == 2
    assert parse_settings(["a=b=c", " k = "]) == {"a": "b=c", "k": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(click.BadParameter, match="expected KEY=VALUE"):
            parse_settings([wrong])
    with pytest.raises(click.BadParameter, match="segment.bytes"):
        make_config(["segment.bytes=many"], str(path))


@pytest.mark.parametrize("command", [["ls"], ["verify"], ["stats"], ["offset-for", "--time", "0"]])
def test_a_file_that_is_no_segment_is_wrong_use(command: list[str]) -> None:
    index = ORDERS / "orders-0" / f"{0:020d}.timeindex"
    assert index.name in run(*command, index, code=2).stderr


@pytest.mark.parametrize(
    ("command", "option", "number"), [("dump", "--limit", 10**20), ("stats", "--by", "99999999999w")]
)
def test_numbers_beyond_64_bits_are_wrong_use(command: str, option: str, number: object) -> None:
    said = run(command, ORDERS, option, number, code=2).stderr
    assert f"'{option}'" in said and str(number) in said


def test_a_folder_of_log_directories_gets_a_hint_and_is_read_on_request(tmp_path: Path) -> None:
    for name in ("a/x-0", "b/c/y-0"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{0:020d}.log").write_bytes(kts.encode({"value": [b"v"]}))
    said = run("ls", tmp_path, code=2).stderr
    assert f"there are some in {tmp_path}/a: name one of these, or add --recursive" in said
    assert "--recursive" not in run("ls", tmp_path / "b" / "c" / "y-0").stderr
    assert [line["topic"] for line in lines("ls", "--recursive", tmp_path, "--json")] == ["x", "y"]
    assert [line["topic"] for line in lines("dump", tmp_path, "-r", tmp_path / "a")] == ["x", "y"]
    assert lines("verify", tmp_path, "--recursive", "--json")[-1]["partitions"] == 2
    (tmp_path / "empty").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "b").rename(tmp_path / "deep" / "er" / "b")
    assert "--recursive looks at any depth" in run("ls", tmp_path / "deep", code=2).stderr
    assert "in or below" in run("ls", tmp_path / "empty", "--recursive", code=2).stderr


def test_a_directory_that_only_has_a_partition_s_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").touch()
    for path in (tmp_path, tmp_path / "dbus-1"):
        assert "no partition directories" in run("ls", path, code=2).stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("65536", 65536), ("100k", 102_400), ("1KiB", 1024), ("1kB", 1000), ("1.5 MiB", 3 * 2**19),
        ("2g", 2**31), ("1GiB", 2**30), ("3TB", 3 * 10**12), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes_have_units(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "k", "1x", "1e3", "-1", "1.2.3", "9999999999T", "1 k k"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected"):
        Size().convert(text, None, None)
    assert Size(-1).convert("-1", None, None) == -1


def test_options_of_sizes_take_them() -> None:
    given = ["retention", ORDERS, "--now", "2026-09-20", "--retention-ms", "-1", "--json", "--retention-bytes"]
    assert lines(*given, "100k") == lines(*given, 102_400) != lines(*given, "-1")
    assert "--retention-bytes" in run(*given, "much", code=2).stderr


@pytest.mark.parametrize("name", ["proposals", " proposals ", "log.proposals"])
@pytest.mark.parametrize("key", ["proposals", "log.proposals"])
def test_a_proposal_is_given_in_one_way(name: str, key: str) -> None:
    assert with_proposals(("a=b",), ["wall-clock", "minute-map"], key) == ("a=b", f"{key}=wall-clock,minute-map")
    given = (f"{name}=minute-map",)
    assert with_proposals(given, [], key) == given
    with pytest.raises(click.UsageError, match=f"--config {name.strip()}=NAME, found both; leave out one"):
        with_proposals(given, ["minute-map"], key)
