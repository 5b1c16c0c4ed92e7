"""The cleaner of compacted logs beside Kafka's own: bytes a second, memory, and that both leave the same records."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kts

from .corpora import BATCH_BYTES, START_MS, values
from .java import Ask, program, warm_up
from .table import Report, Seconds, medians, reached

ROOT = Path(__file__).parent.parent
BROKER = ROOT / "tests" / "java" / "brokers" / "broker-4.3.1.xml"
RECORD_BYTES = {"100 B": 105, "1 KB": 1010}  # with key and framing, about
ROWS = 50_000  # that are appended at once
DEDUPE_BYTES = 128 * 2**20  # log.cleaner.dedupe.buffer.size
LEAST_SEGMENT_BYTES = 2**20  # Kafka 4 takes no less
GOAL = 1.0
SPEED_HEADER = ["log", "records", "kept", "kts MB/s", "Kafka MB/s", "kts / Kafka", "goal", "reached"]
MEMORY_HEADER = ["log", "kts MiB", "of them the map", "Kafka MiB", "of them the map"]
PROGRAM = """
import re, sys
from pathlib import Path
from bench.cleaning import cleaned

def most_kib():
    return int(re.search("VmHWM:\\\\s+(\\\\d+)", Path("/proc/self/status").read_text())[1])

before = most_kib()
done, _ = cleaned(Path(sys.argv[1]), int(sys.argv[2]))
print(most_kib() - before, done.map_bytes)
"""


@dataclass(frozen=True)
class Dirty:
    """A log to clean, whose keys have ten records each."""

    folder: Path
    size: str
    codec: str
    records: int
    segment_bytes: int

    @property
    def name(self) -> str:
        return f"v2 {self.codec} {self.size}"

    @property
    def bytes(self) -> int:
        """Of the segments that a pass takes."""
        return sum(path.stat().st_size for path in self.folder.glob("*.log"))


def opened(folder: Path, segment_bytes: int) -> kts.Log:
    return kts.Log(folder, {"cleanup.policy": "compact", "segment.bytes": segment_bytes}, release="4.3")


def cleaned(folder: Path, segment_bytes: int) -> tuple[kts.Cleaned, float]:
    """What a pass did, and the CPU seconds of this thread."""
    with opened(folder, segment_bytes) as log:
        start = time.thread_time()
        done = log.clean(force=True, dedupe_buffer_bytes=DEDUPE_BYTES)
        return done, time.thread_time() - start


def written(folder: Path, size: str, codec: str, total_bytes: int, seed: int) -> Dirty:
    rng = random.Random(f"{seed} {size}")
    records, source = total_bytes // RECORD_BYTES[size], values(size, rng)
    dirty = Dirty(folder, size, codec, records, max(total_bytes // 4, LEAST_SEGMENT_BYTES))
    with opened(folder, dirty.segment_bytes) as log:
        for first in range(0, records, ROWS):
            count = min(ROWS, records - first)
            rows = {
                "timestamp": [START_MS + first + number for number in range(count)],
                "key": [b"user-%08d" % rng.randrange(records // 10 + 1) for _ in range(count)],
                "value": list(itertools.islice(source, count)),
            }
            log.append_rows(rows, compression=codec, batch_bytes=BATCH_BYTES)
        log.roll()
    return dirty


def copies(dirty: Dirty) -> Iterator[Path]:
    """Endless copies of the log; one goes when the next comes."""
    for number in itertools.count():
        copy = dirty.folder.parent / str(number) / dirty.folder.name
        shutil.copytree(dirty.folder, copy)
        yield copy
        shutil.rmtree(copy.parent)


def contenders(dirty: Dirty, kept: int, source: Iterator[Path], ask: Ask | None) -> dict[str, Seconds]:
    """Each cleans a copy of its own, and must leave as many records."""

    def checked(records: int, seconds: float) -> float:
        if records != kept:
            raise ValueError(f"{dirty.name}: one cleaner left {kept} records, another {records}")
        return seconds

    def ours() -> float:
        done, seconds = cleaned(next(source), dirty.segment_bytes)
        return checked(done.records_after, seconds)

    if ask is None:
        return {"kts": ours}

    def theirs() -> float:
        records, nanoseconds, _ = ask(str(next(source)))
        return checked(records, nanoseconds / 1e9)

    warm_up(theirs)
    return {"kts": ours, "Kafka": theirs}


def run(report: Report, total_bytes: int, seed: int, rounds: int, scratch: Path) -> None:
    """Logs of small and of large values; memory is that of the first pass in a process of its own."""
    speeds, memories = [], []
    for size, codec in itertools.product(RECORD_BYTES, ("none", "lz4")):
        shutil.rmtree(scratch, ignore_errors=True)
        dirty = written(scratch / "log" / "t-0", size, codec, total_bytes, seed)
        source = copies(dirty)
        command = [sys.executable, "-c", PROGRAM, str(next(source)), str(dirty.segment_bytes)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peak, map_bytes = map(int, done.stdout.split())
        kept = cleaned(next(source), dirty.segment_bytes)[0].records_after
        memory = [dirty.name, f"{peak / 1024:.0f}", f"{map_bytes / 2**20:.1f}"]
        with program("CleanLoop", BROKER, (str(DEDUPE_BYTES), str(dirty.segment_bytes)), report) as ask:
            if ask is not None:
                grown = ask(str(next(source)))[2]
                memory += [f"{grown / 1024:.0f}", f"{DEDUPE_BYTES / 2**20:.1f}"]
            taken = medians(contenders(dirty, kept, source, ask), rounds)
        rates = {name: dirty.bytes / seconds / 1e6 for name, seconds in taken.items()}
        speed = [dirty.name, f"{dirty.records:,}", f"{kept:,}", f"{rates['kts']:.0f}"]
        if "Kafka" in rates:
            times = rates["kts"] / rates["Kafka"]
            speed += [f"{rates['Kafka']:.0f}", f"{times:.1f}x", f"{GOAL}x", reached(times, GOAL)]
        speeds.append([*speed, "-", "-", "-", "-"][: len(SPEED_HEADER)])
        memories.append([*memory, "-", "-"][: len(MEMORY_HEADER)])
        report.progress(" ".join(speeds[-1]))
    shutil.rmtree(scratch)
    report.table("The cleaner, against Kafka 4.3.1's, warm, by CPU", SPEED_HEADER, speeds)
    report.table("Peak memory that a first pass adds to its process", MEMORY_HEADER, memories)
