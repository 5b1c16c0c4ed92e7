"""A topic as a stream into Spark's `noop` sink: kts on a log directory, Spark's own Kafka source on its broker.

Both run on the pyspark of `kafka_source`, with the same `maxOffsetsPerTrigger`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from typing import Any

from .broker import HERE, NotHere, class_path, kafka_java, running_broker
from .java import ROOT
from .kafka_source import OURS, PARTITIONS, SPARK, THEIRS, TOPIC, environment, produce, rates_of
from .table import Report, all_cores, reached

GOAL = 2.0
TRIGGERS, SETTLING = 10, 4  # micro-batches of a query; the first ones start processes and compile
HEADER = [
    "source", "Mrec/s", "whole query", "Mrec per CPU s", "micro-batches", "whole query", "by CPU", "goal", "reached",
]  # fmt: skip
CHECKPOINT_SECONDS = 60.0  # a broker writes its high watermarks every five


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """Read one topic as a stream in a session of two cores."""
    records = max(1000, total_bytes // 100)
    try:
        jars = class_path(HERE / "spark-pom.xml").replace(":", ",")
        kafka_java()
        python = environment()
    except NotHere as missing:
        report.text(f"The table of Spark's streams is left out: it needs {missing}.")
        return
    with all_cores(), running_broker() as broker:
        produce(broker, records, seed)
        checkpoint = broker.data / "replication-offset-checkpoint"
        until = time.monotonic() + CHECKPOINT_SECONDS
        while not checkpoint.exists() or high_watermarks(checkpoint.read_text(encoding="utf-8")) < records:
            if time.monotonic() > until:
                raise TimeoutError(f"{checkpoint} does not reach {records} records")
            time.sleep(0.1)
        command = [str(python), "-m", "bench.kafka_stream_job", broker.address, TOPIC, str(broker.data)]
        command += [str(broker.process), str(rounds), str(records // TRIGGERS), jars]
        environ = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the Spark job failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    for name, one in found.items():
        if one["records"] != records:
            raise ValueError(f"expected {records} records of {name}, found {one['records']}")
    rates = {name: (settled(one), *rates_of(one)) for name, one in found.items()}
    rows = []
    for name, by in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(by, rates[THEIRS], strict=True)]
        row = [name, *(f"{each / 1e6:.2f}" for each in by), *(f"{ratio:.1f}x" for ratio in ratios)]
        rows.append([*row, *([f"{GOAL:.0f}x", reached(ratios[0], GOAL)] if name == OURS else ["", ""])])
    report.table(
        f"Spark {SPARK} local[2], a stream of {records:,} records of 100 B in {PARTITIONS} partitions to noop",
        HEADER,
        rows,
    )
    report.text(
        f"Mrec/s is that of the micro-batches after the first {SETTLING}, each of {records // TRIGGERS:,} offsets; the"
        " whole query is from its start with a new checkpoint and `trigger(availableNow=True)` to its end, with the"
        " processes that Spark starts for a Python source; the CPU is that of all processes, the broker's among them."
    )


def settled(found: dict[str, Any]) -> float:
    """Records a second of the micro-batches of a running query, the median of its rounds."""
    rates = []
    for batches in found["batches"]:
        records, seconds = zip(*batches[SETTLING:], strict=True)
        rates.append(sum(records) / sum(seconds))
    return statistics.median(rates)


def high_watermarks(checkpoint: str) -> int:
    """The high watermarks of the topic's partitions together."""
    lines = [line.split() for line in checkpoint.splitlines()[2:]]
    return sum(int(line[2]) for line in lines if line[0] == TOPIC)
