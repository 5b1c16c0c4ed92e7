"""Releases of pyspark beside this environment's own, each installed once under ``build``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka.jvm import TARGET, one_at_a_time, require_spark, spark_environ


def release(version: str) -> Path:
    """The folder that holds the package `pyspark` of a version."""
    require_spark()
    target = TARGET / f"pyspark-{version}"
    ready = target / "ready"
    with one_at_a_time():
        if not ready.exists():
            shutil.rmtree(target, ignore_errors=True)
            install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target), f"pyspark=={version}"]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(f"pip could not get pyspark {version}:\n{done.stderr[-2000:]}")
            ready.touch()
    return target


def release_environ(version: str) -> dict[str, str]:
    """What is set for a process that starts a session of that version; all other packages are this environment's."""
    packages = release(version)
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")]), *filter(None, sys.path)]
    return spark_environ(packages / "pyspark") | {"PYTHONPATH": os.pathsep.join(paths)}
