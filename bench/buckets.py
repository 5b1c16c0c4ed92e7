"""A bucket on a real S3 server: scans and checks against plain parallel downloads of the same objects."""

from __future__ import annotations

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import kts

from .table import Report, all_cores, medians, reached, wall_seconds

if TYPE_CHECKING:
    from pyarrow import fs

TESTS = Path(__file__).parent.parent / "tests"
SEGMENTS, GOAL, SHARE_GOAL = 8, 0.8, 0.02
REQUESTS = 16
PLAIN = "plain parallel downloads"
RANGES = {PLAIN: 2**23, f"{PLAIN}, ranges of 16 MiB": 2**24}  # 8 MiB is what boto3 and the aws command ask for


def run(report: Report, size: int, rounds: int, scratch: Path) -> None:
    """Two tables: bytes a second, and the bytes that the server sent for 1 % of the time."""
    if not shutil.which("go"):
        report.text("No Go: a bucket was not measured.")
        return
    sys.path.insert(0, str(TESTS))
    from support.buckets.gateway import s3_gateway
    from support.buckets.s3 import ENVIRONMENT, TestBucket
    from support.sets.biglog import FIRST_MS, RECORD_BYTES, write_log

    records = max(size // SEGMENTS // (RECORD_BYTES + 10), 1_000)
    shutil.rmtree(scratch, ignore_errors=True)
    with all_cores(), s3_gateway() as proxy:
        bucket = TestBucket(proxy, f"bench{time.time_ns()}")
        write_log(scratch / "orders-0", SEGMENTS, records)
        there = bucket.put_folder(scratch / "orders-0", "orders-0")
        os.environ.update(ENVIRONMENT | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.behind}"})
        logs = [f"{bucket.name}/orders-0/{path.name}" for path in sorted((scratch / "orders-0").glob("*.log"))]
        total = sum(path.stat().st_size for path in (scratch / "orders-0").glob("*.log"))
        contenders = {
            **{name: partial(download, logs, total, size) for name, size in RANGES.items()},
            f"{PLAIN} into files, pyarrow.fs.copy_files": lambda: copied(logs[0], total, scratch / "copy"),
            "scan, offsets": lambda: scanned(there, ["offset"], SEGMENTS * records),
            "scan, keys and values": lambda: scanned(there, None, SEGMENTS * records),
            "verify": lambda: checked(there),
        }
        found = medians({name: wall_seconds(work) for name, work in contenders.items()}, rounds)
        plain = found[PLAIN]
        report.table(
            f"A bucket of {total / 2**20:.0f} MiB in {SEGMENTS} segments, the server on the same cores",
            ["what", "MiB/s", "of plain downloads", "goal", "reached"],
            [
                [
                    name,
                    f"{total / 2**20 / seconds:.0f}",
                    f"{plain / seconds:.0%}",
                    "" if name.startswith(PLAIN) else f"{GOAL:.0%}",
                    "" if name.startswith(PLAIN) else reached(plain / seconds, GOAL),
                ]
                for name, seconds in found.items()
            ],
        )
        os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
        length = SEGMENTS * records // 100
        rows = []
        for first in (0, SEGMENTS * records // 2, SEGMENTS * records - length):
            bucket.forget()
            times = {"starting_timestamp": FIRST_MS + first, "ending_timestamp": FIRST_MS + first + length}
            times["allowed_lateness"] = SEGMENTS * records // 2400  # as an hour of 100 days
            if kts.scan(there, columns=["offset"], **times).read_all().num_rows != length:
                raise ValueError(f"expected {length} rows from offset {first}")
            share, asked = proxy.body_bytes / total, proxy.counted()
            row = [f"{share:.2%}", f"{SHARE_GOAL:.0%}", "yes" if share <= SHARE_GOAL else "no"]
            rows.append([f"from {first / SEGMENTS / records:.0%}", *row, *(str(asked[kind]) for kind in KINDS)])
        report.table("1 % of the time, counted at the server", ["where", "sent", "goal", "reached", *KINDS], rows)
    shutil.rmtree(scratch, ignore_errors=True)


KINDS = ("LIST", "HEAD", "GET")


def client() -> fs.S3FileSystem:
    from pyarrow import fs

    return fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])


def download(names: list[str], total: int, part_bytes: int) -> None:
    """All bytes of the objects, in ranges side by side."""
    files = client()
    opened = {name: files.open_input_file(name) for name in names}
    ranges = [(one, start) for one in opened.values() for start in range(0, one.size(), part_bytes)]
    with ThreadPoolExecutor(REQUESTS) as threads:
        found = sum(threads.map(lambda one: len(one[0].read_at(part_bytes, one[1])), ranges))
    if found != total:
        raise ValueError(f"expected {total} bytes, found {found}")


def copied(name: str, total: int, folder: Path) -> None:
    """The object's directory as files."""
    from pyarrow import fs

    folder.mkdir(exist_ok=True)
    fs.copy_files(os.path.dirname(name), str(folder), client(), fs.LocalFileSystem(), chunk_size=2**23)
    found = sum(path.stat().st_size for path in folder.glob("*.log"))
    if found != total:
        raise ValueError(f"expected {total} bytes, found {found}")


def scanned(path: str, columns: list[str] | None, records: int) -> None:
    found = sum(batch.num_rows for batch in kts.scan(path, columns=columns))
    if found != records:
        raise ValueError(f"expected {records} records, found {found}")


def checked(path: str) -> None:
    from kts.offline.verify import verify

    if found := list(verify(path)):
        raise ValueError(f"expected a sound log, found {found[0]}")
