"""Copies to a bucket and back, against a real S3 server: equal, whole, resumed, with few requests."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import TESTS
from support.buckets.doors import files
from support.buckets.proxy import Answer, Asked
from support.buckets.s3 import TestBucket
from support.golden import PATIENCE_S
from support.sets.copies import SMALL, T, check_equal, logs, records, states, write
from support.waiting import wait_until

import kts
from kts.offline.copy import CopyRange, copy, copy_partitions
from kts.offline.verify import verify

pytestmark = pytest.mark.slow  # a real server


def test_a_copy_to_a_bucket_and_back_is_the_same_log(bucket: TestBucket, tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    with kts.Log(source / "t-0") as log:
        log.advance_log_start_offset(20)
    write(source, 9, name="u-3")
    there, back = f"{bucket.address}/logs", tmp_path / "back"
    assert set(states(copy(source, there))) == {"copied"}
    bucket.forget()
    assert records(there) == records(source)
    assert list(map(str, verify(there, deep=True))) == []
    assert kts.open_log_dirs(there)["t", 0].log_start_offset == 20
    for name in (there, f"{there}/new", there.replace("s3://", "s3a://") + "/"):
        with pytest.raises(kts.InvalidRequestError, match="expected a target outside of the source"):
            copy(there, name)
    copy(there, back)
    check_equal(source, back)
    kept, made = ({path.name for path in (one / "t-0").iterdir()} for one in (source, back))
    assert kept - made == {f"{18:020d}.snapshot"}  # below the log start offset
    assert made < kept
    again, third = f"{bucket.address}/again", tmp_path / "third"
    copy(there, again)
    copy(f"{bucket.address}/ag*/u-3", third)
    assert records(third) == records(source, topics=["u"])


def test_a_second_run_asks_for_names_and_puts_only_what_is_new(bucket: TestBucket, tmp_path: Path) -> None:
    source, there = write(tmp_path / "source", 60), f"{bucket.address}/logs"
    copy(source, there)
    bucket.forget()
    assert set(states(copy(source, there))) == {"equal"}
    assert bucket.proxy.counted()["PUT"] == bucket.proxy.counted()["POST"] == bucket.proxy.counted()["DELETE"] == 0
    read = {one.name for one in bucket.proxy.asked if one.method == "GET" and one.name.endswith(".log")}
    ends = [one for one in bucket.proxy.asked if one.method == "GET" and one.name.endswith(".log")]
    assert read == {path.name for path in logs(source)} and len(ends) <= len(read) + 2  # and where the copy ends
    write(source, 8)
    bucket.forget()
    done = copy(source, there)
    new = [one for one in done if one.state == "copied"]
    assert 0 < len(new) < 6 and {Path(one.path).stem for one in new} <= {path.stem for path in logs(source)[-6:]}
    assert records(there) == records(source)
    bucket.delete("logs/t-0/" + logs(source)[2].name)
    bucket.forget()
    assert [one.base_offset for one in copy(source, there) if one.state == "copied"] == [int(logs(source)[2].stem)]


def test_a_killed_copy_to_a_bucket_shows_whole_segments_in_order_and_goes_on(
    bucket: TestBucket, tmp_path: Path, rng: random.Random
) -> None:
    """A kill (-9); buys that a multipart upload that nobody completes shows nothing."""
    source, there = write(tmp_path / "source", 60), f"{bucket.address}/logs"
    expected, count = records(source), len(logs(source))
    wanted, killed = rng.randrange(1, count // 2), threading.Event()

    def put() -> int:
        return sum(one.method == "POST" and one.name.endswith(".log") for one in bucket.proxy.asked)

    def hold(asked: Asked) -> None:
        """However slow this process is, the other one does not come to its end."""
        if put() >= 2 * wanted:
            killed.wait(PATIENCE_S)
            raise ConnectionAbortedError("it was killed")

    bucket.proxy.before = hold
    command = [sys.executable, "-m", "kts.cli", "copy", str(source), there]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_until("some segments are put", lambda: put() >= 2 * wanted)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    killed.set()
    bucket.forget()
    found = records(there)
    assert 0 < found.num_rows < expected.num_rows and found == expected.slice(0, found.num_rows)
    done = states(copy(source, there))
    assert "equal" in done and "copied" in done
    assert records(there) == expected


def test_a_copy_of_another_source_of_the_same_sizes_is_replaced_whole(bucket: TestBucket, tmp_path: Path) -> None:
    """A bucket's times are those of the copy. Nothing of it stays, also where a copy was stopped half-way."""
    first, second = tmp_path / "first", tmp_path / "second"
    for source in (first, second):
        with kts.Log(source / "t-0", SMALL) as log:
            for n in range(20):
                log.append_rows({"timestamp": [T + n], "value": [source.name.ljust(9).encode() * 9]})
    assert [path.stat().st_size for path in logs(first)] == [path.stat().st_size for path in logs(second)]
    target = f"{bucket.address}/logs"
    copy(first, target)
    done = copy_partitions(list(kts.open_log_dirs(second).values()), target, CopyRange())
    assert [next(done).state for _ in range(2)] == ["copied"] * 2
    done.close()  # type: ignore[attr-defined]
    for source in (first, second):
        copy(source, target)
        for path in logs(source):
            assert files.read_bytes(f"{target}/t-0/{path.name}") == path.read_bytes()
    time.sleep(1.1)  # a bucket's times are whole seconds
    index = logs(second)[0].with_suffix(".timeindex")
    files.put(f"{target}/t-0/{index.name}", [b""])  # a copy puts it first, and is stopped
    assert states(copy(second, target)) == ["copied"] + ["equal"] * (len(logs(second)) - 1)
    assert files.read_bytes(f"{target}/t-0/{index.name}") == index.read_bytes() != b""


def test_damage_on_the_way_is_found_and_an_error_of_the_server_leaves_nothing_half(
    bucket: TestBucket, tmp_path: Path
) -> None:
    orders = TESTS / "data/golden/demo/orders"
    there, log = bucket.put_folder(orders, "orders"), min((orders / "orders-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    path = bucket.put(f"orders/orders-1/{log.name}", bytes(data))
    bucket.forget()
    with pytest.raises(kts.CorruptRecordError) as caught:
        copy(there, tmp_path / "target", partitions=[1])
    assert caught.value.path == path and caught.value.position == 0
    source, target = write(tmp_path / "source", 6), f"{bucket.address}/target"
    bucket.proxy.change = lambda asked, answer: (
        Answer(403, [], b"") if asked.method in ("PUT", "POST") and "timeindex" in asked.path else None
    )
    with pytest.raises(kts.LogStorageError, match=r"writing failed: .*; check the address and what gives access"):
        copy(source, target)
    bucket.forget()
    assert not kts.open_log_dirs(target) or records(target).num_rows == 0
    copy(source, target)
    assert records(target) == records(source)
