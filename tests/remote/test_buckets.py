"""Buckets as stores of files: listings, access, and errors that say what to do."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support import TESTS
from support.buckets.doors import files, reach
from support.buckets.proxy import Answer, Asked, Proxy
from support.buckets.s3 import TestBucket
from support.golden import PATIENCE_S
from support.tiered import session

import kts
from kts.broker.broker import Broker
from kts.cli import main
from kts.offline.truncate import truncate_in_place
from kts.proposals.comparing import time_index_size
from kts.remote import buckets
from kts.replica.topic_copy import TopicCopy
from kts.store import local
from kts.store.local import WritableFile

pytestmark = pytest.mark.slow  # a real server


def test_a_listing_answers_for_the_names_sizes_and_times_of_its_files(bucket: TestBucket) -> None:
    for name in ("b", "a", "sub/c"):
        bucket.put(f"dir/{name}", name.encode() * 10)
    bucket.forget()
    folder = f"{bucket.address}/dir"
    found = [(one.name, one.path, one.is_dir(), one.is_file()) for one in files.list_directory(folder)]
    assert found == [
        ("a", f"{folder}/a", False, True),
        ("b", f"{folder}/b", False, True),
        ("sub", f"{folder}/sub", True, False),
    ]
    assert files.size_of(f"{folder}/a") == 10
    assert files.modified_ms(f"{folder}/a") > 1_600_000_000_000
    assert files.exists(f"{folder}/b") and not files.exists(f"{folder}/c")
    assert files.directory_exists(f"{folder}/sub") and not files.directory_exists(f"{folder}/a")
    assert bucket.proxy.counted() == {"LIST": 1}


@pytest.mark.parametrize("by_options", [False, True], ids=["environment", "options"])
def test_a_caller_that_names_a_path_sees_all_below_it_as_it_is_now(bucket: TestBucket, by_options: bool) -> None:
    given = bucket.options if by_options else None
    bucket.put("logs/orders-0/00000000000000000000.log", b"")
    folder = f"{bucket.address}/logs"
    there = buckets.bucket_of(folder, given)
    there.refresh()
    assert files.names_in(f"{folder}/orders-0") == ["00000000000000000000.log"]
    bucket.put("logs/orders-0/00000000000000000007.txnindex", b"x")
    later = f"{folder}/orders-0/00000000000000000007.txnindex"
    assert not files.exists(later)  # as the listing has it
    assert buckets.bucket_of(folder, given) is there
    assert kts.open(folder, storage_options=given)
    assert files.exists(later) and files.size_of(later) == 1


def test_names_that_told_that_there_is_a_directory_answer_once_for_what_is_in_it(bucket: TestBucket) -> None:
    bucket.put("dir/a", b"a")
    bucket.forget()
    folder = f"{bucket.address}/dir"
    assert files.exists(folder) and files.names_in(folder) == ["a"]
    assert bucket.proxy.counted() == {"LIST": 1}
    bucket.put("dir/b", b"b")
    assert files.names_in(folder) == ["a", "b"]
    bucket.forget()
    assert files.exists(folder)
    files.put(f"{folder}/c", [b"c"])
    assert files.names_in(folder) == ["a", "b", "c"]


def test_without_a_listing_each_question_is_asked(bucket: TestBucket) -> None:
    path = bucket.put("dir/a", b"a")
    bucket.forget()
    assert files.exists(path) and not files.exists(path + "b")
    assert files.directory_exists(f"{bucket.address}/dir") and files.directory_exists(bucket.address)
    before = files.identity(path)
    bucket.put("dir/a", b"ab")
    bucket.forget()
    assert files.identity(path) not in (None, before)
    with pytest.raises(kts.LogStorageError) as raised:
        files.names_in(f"{bucket.address}/none")
    assert raised.value.errno == errno.ENOENT


def test_patterns_match_in_a_bucket_as_on_a_disk(bucket: TestBucket, tmp_path: Path) -> None:
    for name in ("x/orders-0/a", "x/orders-1/a", "y/orders-0/a", "y/clicks-0/a", "y/.orders-0/a"):
        bucket.put(f"logs/{name}", b"a")
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"a")
    for pattern in ("*/orders-*", "x/orders-[1-9]", "?/clicks-0", "*/*-0/a", "*", "x/*/", "none/*", "*/none"):
        here = [Path(one).relative_to(tmp_path).as_posix() for one in files.matching(f"{tmp_path}/{pattern}")]
        there = [
            one.removeprefix(f"{bucket.address}/logs/") for one in files.matching(f"{bucket.address}/logs/{pattern}")
        ]
        assert there == here
    assert files.matching(f"{bucket.address}/*/x") == [f"{bucket.address}/logs/x"]


def test_storage_options_reach_a_bucket_without_the_environment(
    bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("orders-0/00000000000000000000.log", b"")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    log = kts.open_partition(f"{bucket.address}/orders-0", storage_options=bucket.options)
    assert (log.topic, log.partition, log.log_end_offset) == ("orders", 0, 0)
    with pytest.raises(ValueError, match="storage_options: .*colour.*pyarrow.fs.S3FileSystem"):
        kts.open(bucket.address, storage_options={"colour": 1})
    with pytest.raises(TypeError, match="storage_options: expected a dictionary, found str"):
        kts.open(bucket.address, storage_options="x")  # type: ignore[call-overload]


def test_the_metadata_topic_is_reached_by_the_options_of_the_store(
    bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies in a bucket here, and the store on the disk: the options are the topic's, and have an effect."""
    one = session("aiven-plain")
    there = bucket.put_folder(one.data, "data")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", kts.KtsWarning)
        logs = kts.open(
            None, remote=one.remote, remote_options=one.options | {"metadata": there}, storage_options=bucket.options
        )
    assert isinstance(logs, kts.LogDirs)
    here = one.store_alone(metadata=one.data)
    assert list(logs) == list(here)
    for key, log in logs.items():
        assert [segment.base_offset for segment in log.segments] == [one.base_offset for one in here[key].segments]


def test_the_index_of_a_proposal_is_read_where_its_log_lies(bucket: TestBucket, tmp_path: Path) -> None:
    config = {"segment.bytes": 2000, "proposals": "bucket-index", "time.index.interval.ms": 5}
    with kts.Log(tmp_path / "orders-0", config) as log:
        for row in range(90):
            log.append_rows({"timestamp": [1_700_000_000_000 + row], "value": [b"%d" % row * 20]})
    there = kts.open_partition(bucket.put_folder(tmp_path / "orders-0", "orders-0"))
    here = kts.open_partition(tmp_path / "orders-0")
    assert time_index_size(there) == time_index_size(here)
    assert time_index_size(here).file_bytes > 0


def test_readers_with_other_options_that_are_drained_by_turns_do_not_mix(
    bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bucket.put_folder(TESTS / "data/golden/demo/orders/orders-0", "orders-0")
    expected = kts.scan(TESTS / "data/golden/demo/orders/orders-0").read_all()
    with Proxy(bucket.proxy.behind) as other:
        ways = [bucket.options, bucket.options | {"endpoint_override": other.endpoint}]
        logs = [kts.open_partition(folder, storage_options=way) for way in ways]
        assert [log.path for log in logs] == [folder, folder]
        readers = [log.scan(batch_bytes=1 << 14) for log in logs]
        found: list[list[pa.RecordBatch]] = [[], []]
        for turn in zip_longest(*readers):
            for own, batch in zip(found, turn, strict=True):
                own += [batch] if batch is not None else []
        assert [pa.Table.from_batches(own) for own in found] == [expected, expected]
        assert bucket.proxy.counted()["GET"] == other.counted()["GET"] > 1
        other.change = lambda asked, answer: Answer(403, [], b"")
        logs.append(kts.open_partition(folder, storage_options=ways[0]))
        with pytest.raises(kts.LogStorageError, match="check the address"):
            kts.open_partition(folder, storage_options=ways[1]).scan().read_all()
        assert logs[0].scan().read_all() == logs[2].scan().read_all() == expected and logs[2].path == logs[0].path
    monkeypatch.setattr(buckets, "_buckets", {})  # as in another process
    log = pickle.loads(pickle.dumps(logs[0]))
    assert log.source is not logs[0].source and log.source.options == ways[0]
    assert bucket.options["secret_key"] not in repr(log.source)
    assert log.scan().read_all() == expected


def test_options_that_gave_no_access_keep_no_address(bucket: TestBucket) -> None:
    folder = bucket.put_folder(TESTS / "data/golden/demo/orders/orders-0", "orders-0")
    plain = kts.open_partition(folder).path
    bad = bucket.options | {"access_key": "nobody", "secret_key": "x"}
    for _ in range(2):
        with pytest.raises(kts.LogStorageError, match="check the address"):
            kts.open_partition(folder, storage_options=bad)
    after = kts.open_partition(folder, storage_options=bucket.options)
    assert plain == after.path == folder and after.log_end_offset
    assert kts.open_partition(folder).source is not after.source


FORK = """
import os, sys, kts
log = kts.open_partition(sys.argv[1])
before = log.scan().read_all()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0 if log.scan().read_all() == before and len(before) else 3)
"""


def test_a_forked_process_reads_by_threads_of_its_own(bucket: TestBucket) -> None:
    """Costs a start of Python; buys that no child waits for what the parent's threads would do."""
    folder = bucket.put_folder(TESTS / "data/golden/demo/orders/orders-0", "orders-0")
    done = subprocess.run([sys.executable, "-c", FORK, folder], timeout=PATIENCE_S, check=False)
    assert done.returncode == 0


def test_a_refused_key_is_an_error_with_address_reason_and_what_to_set(
    bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bucket.put("orders-0/00000000000000000000.log", b"")
    bucket.forget()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for ask in (files.read_bytes, files.names_in, kts.open):
        with pytest.raises(kts.LogStorageError, match="AWS_SECRET_ACCESS_KEY") as raised:
            ask(path if ask is files.read_bytes else f"{bucket.address}/orders-0")
        assert "AWS Error" in raised.value.message
        assert raised.value.path is not None and raised.value.path.startswith(f"{bucket.address}/orders-0")


def test_a_server_that_only_fails_is_an_error_after_its_attempts(bucket: TestBucket) -> None:
    reach(path := bucket.put("x", b"x"), bucket.options | {"max_attempts": 2})

    def fail(asked: Asked, answer: Answer) -> Answer:
        return Answer(503, [("Content-Type", "application/xml")], b"<Error><Code>SlowDown</Code></Error>")

    bucket.proxy.change = fail
    with pytest.raises(kts.LogStorageError, match="check the address"):
        files.read_bytes(path)
    assert bucket.proxy.counted() == {"HEAD": 2}


@pytest.mark.parametrize("address", ["s3:///orders-0", "gs:///orders-0", "webhdfs:///orders-0"])
def test_an_address_without_a_bucket_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected an address such as .*://bucket/key, found one without a bucket"):
        kts.open(address)


def test_an_error_that_arrow_has_no_word_for_is_one_of_the_bucket() -> None:
    """A key that is no Base64: Arrow raises neither an OSError nor a ValueError."""
    with pytest.raises(kts.LogStorageError, match="check the address and what gives access: AZURE_STORAGE_KEY"):
        kts.open("abfss://c@none.dfs.core.windows.net/x", storage_options={"account_key": "x"})


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(kts.LogStorageError, match=r"ftp:// is not supported; .* one of abfs://.*file://.*gs://.*s3://"):
        kts.open("ftp://host/logs")


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that fails if it is asked for anything."""

    def asked(*_: object) -> None:
        raise AssertionError("the bucket was asked")

    monkeypatch.setattr(buckets.Bucket, "_library", asked)


WRITES: list[Callable[[str], object]] = [
    kts.Log,
    Broker,
    lambda path: WritableFile(f"{path}/x", create=True),
    local.make_directory,
    lambda path: truncate_in_place(path, 0),
    lambda path: TopicCopy(object(), path, "orders"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("write", WRITES)
def test_writing_to_a_bucket_is_refused_before_anything_is_asked(write: Callable[[str], object], unasked: None) -> None:
    with pytest.raises(kts.LogStorageError, match="needs a path of this machine"):
        write("s3://bucket/orders-0")


COMMANDS = [
    "append s3://bucket/orders-0",
    "truncate s3://bucket/orders-0 --to-offset 3 --in-place",
    "reindex s3://bucket/orders-0 --in-place",
    "reindex s3://bucket/orders-0 --out s3://bucket/made",
    "convert s3://bucket/orders-0 --to-magic 2 --out s3://bucket/made",
    "serve s3://bucket/logs",
    "follow s3://bucket/logs --bootstrap-server 127.0.0.1:9 --topic orders",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_write_to_a_bucket_are_refused_before_anything_is_asked(command: str, unasked: None) -> None:
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code and "needs a path of this machine" in done.output, (done.output, done.exception)
