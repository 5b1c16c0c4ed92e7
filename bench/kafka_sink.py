"""Rows that Spark writes: as a log directory by kts, as uncompressed Parquet, and through its Kafka sink into a broker.

All run on the pyspark of `kafka_source`, from rows that Spark holds in memory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess

from .broker import HERE, NotHere, class_path, kafka_java, running_broker
from .java import ROOT
from .kafka_source import PARTITIONS, SPARK, TOPIC, environment, produce
from .table import Report, all_cores, reached

GOALS = {"uncompressed Parquet": 0.5, "Spark's Kafka sink": 2.0}  # rows a second of kts, as a multiple of theirs
WRITTEN = "written"  # the topic that the Kafka sink writes to


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """Write the rows of one topic in a session of two cores."""
    records = max(1000, total_bytes // 100)
    try:
        jars = class_path(HERE / "spark-pom.xml").replace(":", ",")
        kafka_java()
        python = environment()
    except NotHere as missing:
        report.text(f"The table of Spark's sinks is left out: it needs {missing}.")
        return
    with all_cores(), running_broker() as broker:
        produce(broker, records, seed)
        produce(broker, PARTITIONS, seed, WRITTEN)
        command = [str(python), "-m", "bench.kafka_sink_job", broker.address, TOPIC, WRITTEN, str(broker.data)]
        command += [str(broker.process), str(rounds), jars]
        environ = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the Spark job failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if (found["version"], found["records"]) != (SPARK, records):
        raise ValueError(f"expected {records} records written by Spark {SPARK}, found {found}")
    rates = {
        name: [records / statistics.median(column) for column in zip(*each, strict=True)]
        for name, each in found["rounds"].items()
    }
    rows = []
    for name, (by_cpu, by_clock) in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(rates["kts"], (by_cpu, by_clock), strict=True)]
        goal = [f"{GOALS[name]}x", reached(ratios[1], GOALS[name])] if name in GOALS else ["", ""]
        row = [name, f"{by_clock / 1e6:.2f}", f"{by_cpu / 1e6:.2f}", f"{ratios[1]:.2f}x", f"{ratios[0]:.2f}x"]
        rows.append([*row, *goal])
    report.table(
        f"Spark {SPARK} local[2], {records:,} rows of 100 B into {PARTITIONS} partitions",
        ["sink", "Mrows/s", "Mrows per CPU s", "kts by the clock", "kts by CPU", "goal", "reached"],
        rows,
    )
    report.text(
        "From rows that Spark has in memory. kts waits until all is on disk and commits; Parquet and the broker leave"
        " that to the system. The CPU is that of all processes, the broker's among them."
    )
