"""The benchmark runs and prints its tables; what it measures is no test's business."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The tables of each part, and the first column of their rows.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY = CODECS[:4]
TABLES = {
    "decode": {
        "Decode, 1 MiB a corpus": [f"v2 {codec} 100 B" for codec in CODECS]
        + [f"v1 {codec} 100 B" for codec in LEGACY]
        + ["v0 none 100 B"],
        "Decode, against the goals": None,
        "Decode of compressed sets, as a share of the floor": [f"v2 {codec} 100 B" for codec in CODECS[1:]]
        + [f"v1 {codec} 100 B" for codec in LEGACY[1:] for _ in ("outer CRCs", "inner CRCs too")],
        "Decode, against aiokafka and an Arrow table": ["v2 none 100 B", "v1 none 100 B", "v0 none 100 B"],
    },
    "columns": {
        "Two fixed columns": ["v2 none tiny", "v2 none 100 B"],
        "Keys and values beside headers": [
            f"v2 none {size}, {headers}" for size in ("tiny", "100 B") for headers in ("no headers", "2 or 3 headers")
        ],
    },
    "threads": {
        "Two threads against one": [f"v2 {codec} 100 B" for codec in CODECS for _ in ("16", "64", "256 KiB")],
        "Decompressors alone": None,
    },
    "linear": {
        "Linear in the size": None,
        "Records a second over the size of a batch": ["1", "10", "100", "1,000", "10,000"],
    },
    "scan": {
        "Scan of headers": ["v2 none 100 B", "v2 lz4 100 B", "v1 none 100 B", "v1 lz4 100 B"],
        "Greatest timestamp": [f"v1 {codec} {size}" for size in ("100 B", "1 KB") for codec in LEGACY[1:]]
        + [f"v2 {codec} {size}" for size in ("100 B", "1 KB") for codec in CODECS[1:]],
    },
    "rebuild": {"Rebuild of both indexes": ["v2 none 100 B", "v2 lz4 100 B", "v1 none 100 B", "v1 lz4 100 B"]},
    "checksums": {"Checksums": ["50", "130", "1,100", "16,384", "1,048,576"]},
    "encode": {
        "Encode": ["v2 none", "v2 lz4 level 0", "v1 none", "v1 lz4 level 0", "v2 lz4 level 9", "v2 zstd level 3"]
    },
    "append": {
        "Leader append through kts.Log": [
            f"v{magic} none {size}" for magic in (2, 1) for size in ("100 B", "1 KB") for _ in range(2)
        ],
        "The validator, against Kafka": None,
    },
    "memory": {"Memory of a stream": [f"v2 {codec} 100 B" for codec in ("none", "lz4") for _ in range(3)]},
    "timeindex": {"Time index lookups": None},
    "growth": {"Growth": None},
    "broker": {
        "A broker on the wire": ["kafka-python", "librdkafka"],
        "One small request after the other": [
            "ApiVersions",
            "Metadata",
            "Produce, 1 record",
            "Fetch, 1 record",
            "ListOffsets",
        ],
    },
}


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of every table by its title; all rows of a table are as long as its header."""
    found: dict[str, list[list[str]]] = {}
    for part in text.split("### ")[1:]:
        title, _, rest = part.partition("\n")
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rest.splitlines() if line[:1] == "|"]
        assert {len(line) for line in lines} == {len(lines[0])}, title
        found[title] = lines[2:]
    return found


@pytest.mark.parametrize("part", TABLES)
def test_a_part_of_the_benchmark_runs_in_small(part: str, tmp_path: Path) -> None:
    results = tmp_path / "results.md"
    command = [sys.executable, "-m", "bench", "--mib", "1", "--rounds", "1", "--only", "100 B", "-o", str(results)]
    env = os.environ | {"JAVA_HOME": str(tmp_path)}  # Java's column takes long to warm up
    done = subprocess.run([*command, "--part", part], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = tables(results.read_text(encoding="utf-8"))
    if part == "threads" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: no table of two threads")
    for title, rows in TABLES[part].items():
        [made] = [lines for full, lines in found.items() if full.startswith(title)]
        assert made, title
        assert all(all(line) for line in made), title
        if rows is not None:
            assert [line[0] for line in made] == rows
    assert len(found) == len(TABLES[part])
    if part == "linear":
        assert "aiokafka" in (tmp_path / "batch_size.svg").read_text(encoding="utf-8")
    if part == "growth":
        assert (tmp_path / "growth.svg").read_text(encoding="utf-8").startswith("<?xml")
