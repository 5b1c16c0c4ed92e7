"""A Spark application on a standalone cluster of two workers; prints what it saw as one JSON object.

Usage: cluster_job.py SETTINGS MASTER ARCHIVE LOG_DIRECTORY WORK_DIRECTORY. The settings of the session are JSON. While
the file WORK_DIRECTORY/hide-kts exists, `import kts` fails in executors (sitecustomize.py there does that), as on a
machine where the wheel is not installed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

from kts.cli import main as kts
from kts.spark import sync

HIDE = """
import os
import sys


class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "kts" and os.path.exists({flag!r}):
            raise ModuleNotFoundError("No module named 'kts'", name="kts")


sys.meta_path.insert(0, Hide())
"""
COMMANDS = [
    ["verify", "--deep", "--json"],
    ["stats", "--by", "1d", "--per", "partition", "--json"],
    ["retention", "--now", "2026-09-20", "--json"],
    ["reindex", "--json", "--out"],
    ["convert", "--to-magic", "2", "--compression", "gzip", "--json", "--out"],
]


def error_of(action: Callable[[], Any]) -> str:
    """What the user reads when an action fails; empty if it does not."""
    try:
        action()
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""


def told(*arguments: str) -> list[Any]:
    """What a command prints, and its exit code."""
    done = CliRunner().invoke(kts, [*arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return [done.stdout, done.stderr, done.exit_code]


def main(settings: dict[str, str], master: str, archive: Path, log_directory: Path, work: Path) -> dict[str, Any]:
    """Run the queries and gather what they gave."""
    flag = work / "hide-kts"
    site = work / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(HIDE.format(flag=str(flag)), encoding="utf-8")
    spark = (
        SparkSession.builder.config(map=settings)
        .master(master)
        .config("spark.archives", f"{archive}#env")
        .config("spark.executor.memory", "600m")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.task.maxFailures", "1")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.locality.wait", "0s")
        .config("spark.executorEnv.PYTHONPATH", str(site))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def load(path: Path) -> Any:
        return spark.read.format("kts").option("minPartitions", "4").load(str(path))

    seen: dict[str, Any] = {}
    flag.touch()  # first of all: a worker that has imported kts is used again
    seen["without_kts"] = error_of(load(log_directory).count)
    seen["verify_without_kts"] = told("verify", str(log_directory), "--spark", master)
    flag.unlink()
    relative = os.path.relpath(log_directory)  # executors have other working directories
    rows = load(Path(relative)).selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS ms").collect()
    seen["rows"] = sorted([*row] for row in rows)
    seen["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver counts, too
    pythons = spark.sparkContext.range(8, numSlices=8).map(lambda _: sys.executable).distinct().collect()
    seen["pythons"] = sorted(pythons)
    seen["commands"] = []
    for number, command in enumerate(COMMANDS):
        outs = [[f"{number}-{where}"] * (command[-1] == "--out") for where in ("here", "there")]
        here = told(*command, *outs[0], relative)
        there = told(*command, *outs[1], relative, "--spark", master)
        seen["commands"].append([" ".join(command), here, there])
    runs = [sync(spark, relative, "./table") for _ in range(2)]
    seen["added"] = [done.tables[0].records for done in runs]
    moved = log_directory.with_name("moved")
    planned = load(log_directory).rdd
    planned.getNumPartitions()  # plans; from here on only executors look at the path
    log_directory.rename(moved)
    seen["unseen_path"] = error_of(planned.count)
    moved.rename(log_directory)
    seen["after"] = load(log_directory).count()
    spark.stop()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), sys.argv[2], *map(Path, sys.argv[3:]))))
