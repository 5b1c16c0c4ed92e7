"""Malformed requests, each handled to its end; and names that point elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from support.broker.asking import Asking
from support.broker.malformed_play import play
from support.broker.served import serve
from support.clients.raw_client import RawClient, batch
from support.golden import scaled

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey

pytestmark = pytest.mark.slow

REQUESTS, PROCESSES = scaled(20_000, 1_000_000), 2
BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "x/../../y",
    "/etc/x",
    "a/b",
    "a\\b",
    "a\0b",
    "x" * 250,
    "ü",
    "a b",
    "a\n",
    "~",
    "a:b",
]


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below, as it is without following links: kind, size, time of the last change."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(base, name)
            status = os.lstat(path)
            found[os.path.relpath(path, folder)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def test_malformed_requests_are_refused_or_answered(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("as it was")
    before = tree(tmp_path)
    ends: Counter[str] = Counter()
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        share = REQUESTS // PROCESSES
        done = [pool.submit(play, tmp_path / f"data{each}", rng.random(), share) for each in range(PROCESSES)]
        for each in done:
            ended, faults = each.result()
            assert faults == []
            ends += ended
    print(ends)
    assert ends.total() == REQUESTS
    assert min(ends[end] for end in ("answered", "malformed", "unsupported")) > REQUESTS // 50
    after = tree(tmp_path)
    assert {path: found for path, found in after.items() if not path.startswith("data")} == before


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_topics_makes_nothing_anywhere(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "around" / "data"
    with Asking(Broker(folder)) as asking:
        before = tree(tmp_path)
        made = asking.ask(
            ApiKey.CREATE_TOPICS,
            4,
            {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000},
        )
        assert made["topics"][0]["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
        for version in (0, 4, 12):
            found = asking.ask(
                ApiKey.METADATA, version, {"topics": [{"name": name}], "allow_auto_topic_creation": True}
            )
            assert [each["error_code"] for each in found["topics"]] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert asking.produce(name, batch([b"x"]))["error_code"] in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
        gone = asking.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": [name], "timeout_ms": 1000})
        assert gone["responses"][0]["error_code"] in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
        assert tree(tmp_path) == before


def test_links_and_pipes_in_the_directory_lead_nowhere(tmp_path: Path) -> None:
    folder, outside = tmp_path / "data", tmp_path / "outside"
    outside.mkdir()
    (outside / "00000000000000000000.log").write_bytes(b"somebody's")
    with Asking(Broker(folder)) as asking:
        asking.broker.topics.create("good")
        asking.broker.topics.create("linked-file")
    inside = folder / "linked-file-0"
    for path in inside.glob("*.log"):
        path.unlink()
    (inside / "00000000000000000000.log").symlink_to(outside / "00000000000000000000.log")
    (folder / "linked-0").symlink_to(outside)
    (folder / "gone-0").symlink_to(tmp_path / "nowhere")
    (folder / "circle-0").symlink_to(folder / "circle-0")
    os.mkfifo(folder / "pipe-0")
    before = tree(outside)
    with serve(folder) as broker, RawClient(broker.address) as client:
        names = ["good", "linked", "gone", "circle", "pipe", "linked-file"]
        assert client.produce("good", batch([b"value"]))["error_code"] == 0
        client.ask(
            ApiKey.METADATA, 4, {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
        )
        for name in names[1:]:
            assert client.produce(name, batch([b"value"]))["error_code"] != 0
        client.ask(ApiKey.DELETE_TOPICS, 1, {"topic_names": names[1:], "timeout_ms": 1000})
        assert broker.stop() == 0
    assert tree(outside) == before
    assert not (tmp_path / "nowhere").exists()


def test_a_file_of_the_directory_that_is_a_link_is_never_written_through(tmp_path: Path) -> None:
    folder, outside = tmp_path / "data", tmp_path / "outside"
    outside.write_text("somebody's")
    Broker(folder).close()
    for name in ("meta.properties", "kts-topics.json", "recovery-point-offset-checkpoint"):
        path = folder / name
        kept = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        path.symlink_to(outside)
        try:
            Broker(folder).close()
        except Exception as error:
            assert name in str(error), error
        assert outside.read_text() == "somebody's"
        path.unlink(missing_ok=True)
        if kept is not None:
            path.write_bytes(kept)
