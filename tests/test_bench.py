"""The benchmark runs and prints its tables; what it measures is no test's business."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_benchmark_runs_in_small(tmp_path: Path) -> None:
    results = tmp_path / "results.md"
    command = [sys.executable, "-m", "bench", "--mib", "1", "--rounds", "1", "--only", "100 B", "-o", str(results)]
    command += ["--part", "decode", "--part", "timeindex"]
    env = os.environ | {"JAVA_HOME": str(tmp_path)}  # Java's column takes long to warm up
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = results.read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| v")]
    assert rows == [f"v2 {codec} 100 B" for codec in ("none", "gzip", "snappy", "lz4", "zstd")] + [
        f"v1 {codec} 100 B" for codec in ("none", "gzip", "snappy", "lz4")
    ] + ["v0 none 100 B"]
    assert "### Time index lookups" in text
