"""The memory of a streaming query, over many micro-batches run back to back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.golden import PATIENCE_S, scaled
from support.processes.tree import below

import kts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP = 10  # micro-batches that do not count
ROOM_BYTES = 16 << 20  # for what allocators keep: over 3,600 micro-batches, less than 5 KiB each
PLANNER = b"python_streaming_source_runner"


class Sample(NamedTuple):
    """Bytes after a micro-batch: of the Python process on the driver that plans, and of the JVM's heap."""

    batch: int
    planner: int
    heap: int


def sample(spark: SparkSession, batch: int) -> Sample:
    jvm = spark._jvm  # type: ignore[attr-defined]
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    planner = 0
    for process in below(jvm.ProcessHandle.current().pid()):
        command = Path(f"/proc/{process}/cmdline")
        if command.exists() and PLANNER in command.read_bytes():
            fields = dict(line.split(":", 1) for line in command.with_name("status").read_text().splitlines())
            planner += int(fields["RssAnon"].split()[0]) << 10
    return Sample(batch, planner, runtime.totalMemory() - runtime.freeMemory())


# Half a minute of Spark, the least that shows a leak of each micro-batch; `make soak` runs 3,600 of them.
@pytest.mark.parametrize("triggers", [int(os.environ.get("KTS_TRIGGERS") or 60)][: scaled(0, 1)])
def test_memory_is_flat_over_micro_batches_run_back_to_back(spark: SparkSession, tmp_path: Path, triggers: int) -> None:
    with kts.Log(tmp_path / "logs" / "orders-0") as log:
        log.append_rows({"value": [b"x"] * (WARM_UP + triggers)})
    table = spark.readStream.format("kts").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1)
    write = table.load(str(tmp_path / "logs")).writeStream.format("noop")
    query = write.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    samples: list[Sample] = []
    until = time.monotonic() + PATIENCE_S + 10 * triggers
    while not query.awaitTermination(1) and time.monotonic() < until:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= (samples[-1].batch + triggers // 10 if samples else WARM_UP):
            samples.append(sample(spark, int(progress["batchId"])))
    last = query.lastProgress
    assert last is not None and last["batchId"] >= WARM_UP + triggers - 1
    half = len(samples) // 2
    assert half and all(one.planner for one in samples)
    print(*samples, sep="\n")
    for name in ("planner", "heap"):
        early, late = (min(getattr(one, name) for one in part) for part in (samples[:half], samples[half:]))
        assert late - early < ROOM_BYTES, (name, samples)
