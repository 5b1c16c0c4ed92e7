"""Whole records into Spark's `noop` sink: kts on a broker's log directory, Spark's own Kafka source on the broker.

Both run on pyspark 4.2.0, in an environment that is made once for this.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from .broker import BUILD, HERE, Broker, NotHere, class_path, kafka_java, running_broker
from .java import ROOT
from .table import Report, all_cores, reached

SPARK = "4.2.0"
GOAL = 4.0
TOPIC, PARTITIONS = "bench", 2
OURS, THEIRS, MOST = "kts", "Spark's Kafka source", "ready-made batches"


def environment() -> Path:
    """The Python of an environment with that Spark and what kts needs; kts itself is this checkout.

    Raises
    ------
    NotHere
        Where pip cannot get the packages.
    """
    folder = BUILD / f"pyspark-{SPARK}"
    python, ready = folder / "bin" / "python", folder / "ready"
    project = ROOT / "pyproject.toml"
    if not ready.exists() or ready.stat().st_mtime < project.stat().st_mtime:
        needed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", f"pyspark[sql]=={SPARK}", "pandas>=2.2,<3", *needed]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotHere(f"pyspark {SPARK}, which pip could not get: {done.stderr[-300:].strip()}")
        ready.touch()
    return python


def produce(broker: Broker, records: int, seed: int, topic: str = TOPIC) -> None:
    """Make a topic and fill it through Kafka's own producer."""
    arguments = [broker.address, topic, str(PARTITIONS), str(records), str(seed)]
    done = subprocess.run(
        kafka_java(str(HERE / "Produce.java"), *arguments, heap="512m"), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the producer failed:\n{done.stderr[-3000:]}")


def job(python: Path, broker: Broker, records: int, cores: int, rounds: int, jars: str) -> dict[str, Any]:
    """What `kafka_source_job` found in a session with so many cores."""
    command = [str(python), "-m", "bench.kafka_source_job", broker.address, TOPIC, str(broker.data)]
    command += [*map(str, (broker.process, records, cores, rounds)), jars]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the Spark job failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """Read one topic in sessions of one and of two cores."""
    records, rows = max(1000, total_bytes // 100), []
    try:
        jars = class_path(HERE / "spark-pom.xml").replace(":", ",")
        kafka_java()
        python = environment()
    except NotHere as missing:
        report.text(f"The table of Spark's Kafka source is left out: it needs {missing}.")
        return
    with all_cores(), running_broker() as broker:
        produce(broker, records, seed)
        for cores in (1, 2):
            found = job(python, broker, records, cores, rounds, jars)
            if found[OURS]["records"] != records or found[THEIRS]["records"] != records:
                raise ValueError(f"expected {records} records, found {found}")
            rates = {name: rates_of(one) for name, one in found.items()}
            for name, by in rates.items():
                ratios = [ours / theirs for ours, theirs in zip(by, rates[THEIRS], strict=True)]
                row = [f"local[{cores}] {name}", *(f"{each / 1e6:.2f}" for each in by)]
                row += [f"{ratio:.1f}x" for ratio in ratios]
                rows.append([*row, *([f"{GOAL:.0f}x", reached(ratios[0], GOAL)] if name == OURS else ["", ""])])
    report.table(
        f"Spark {SPARK}, a topic of {records:,} records of 100 B in a real broker, to noop",
        ["source", "Mrec/s", "Mrec per CPU s", "by the clock", "by CPU", "goal", "reached"],
        rows,
    )
    report.text(
        "Ready-made batches are what Spark makes of a Python data source that costs nothing; none is faster. The CPU"
        " is that of all processes, the broker's among them."
    )


def rates_of(found: dict[str, Any]) -> tuple[float, float]:
    """Records a second by the clock, and a CPU second of Spark's processes and the broker."""
    if found["version"] != SPARK or len(found["columns"]) != 7:
        raise ValueError(f"expected 7 columns in Spark {SPARK}, found {found}")
    cpu, clock = (statistics.median(column) for column in zip(*found["rounds"], strict=True))
    return found["records"] / clock, found["records"] / cpu
