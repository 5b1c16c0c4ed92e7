"""The benchmark runs and prints its tables; what it measures is no test's business."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from support.golden import scaled

pytestmark = pytest.mark.slow

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY = CODECS[:4]
SIZES = ("tiny", "100 B", "1 KB")
SCANNED = ["v2 none 100 B", "v2 lz4 100 B", "v1 none 100 B", "v1 lz4 100 B"]
TYPES = ("CreateTime", "LogAppendTime")
# The tables of each part, and the first column of their rows; None where that is not checked.
TABLES = {
    "micro": {
        "Decode": [f"v2 {codec} {size}" for size in SIZES for codec in CODECS]
        + [f"v1 {codec} {size}" for size in SIZES for codec in LEGACY]
        + [f"v0 none {size}" for size in SIZES],
        "One call": [f"v2 none 100 B, {times} times" for times in (1, 2, 8, 32)],
        "Columns": [f"v2 none {size}{headers}" for size in SIZES[:2] for headers in ("", ", 2 or 3 headers")],
        "Scan": SCANNED,
        "Max_timestamp": [f"v1 {codec} {size}" for size in SIZES[1:] for codec in LEGACY[1:]]
        + [f"v2 {codec} {size}" for size in SIZES[1:] for codec in CODECS[1:]],
        "Rebuild of both indexes": SCANNED,
        "Checksums": [f"{size} bytes a call" for size in ("50", "130", "1,100", "16,384", "1,048,576")],
        "Encode": [
            "v2 none 100 B",
            "v2 lz4 100 B, level 0",
            "v1 none 100 B",
            "v1 lz4 100 B, level 0",
            "v2 lz4 100 B, level 9",
            "v2 zstd 100 B, level 3",
        ],
        "Append of sets": [f"v{magic} none {size}, {kind}" for magic in (2, 1) for size in SIZES[1:] for kind in TYPES],
        "Append of rows": [f"v2 {codec} {size}" for size in SIZES[1:] for codec in ("none", "lz4")],
        "Append's checks": None,
        "Requests": None,
        "Indexes": [
            f"{index}, {how}"
            for index in (
                "time index, 1,000 entries",
                "time index, 10 MiB",
                "time index, 10 MiB, traffic in bursts",
                "offset index, 1,000 entries",
                "offset index, 10 MiB",
            )
            for how in ("one at a time, kept", "one at a time, dropped", "many, random", "many, sorted")
        ],
    },
    "java": {"Decode, against Kafka's Java classes": None, "The validator, against Kafka": None},
    "linear": {
        "Linear in the size": None,
        "Records a second over the size of a batch": ["1", "10", "100", "1,000", "10,000"],
    },
    "memory": {"Memory of a stream": [f"v2 {codec} 100 B" for codec in ("none", "lz4") for _ in range(3)]},
    "proposals": {"kts.Log with and without the proposals": None},
    "broker": {
        "Messages of magic 0 and 1": [f"v{magic}" for magic in (0, 1) for _ in range(5)],
        "A broker on the wire": ["kafka-python", "librdkafka"],
        "One small request after the other": [
            "ApiVersions",
            "Metadata",
            "Produce, 1 record",
            "Fetch, 1 record",
            "ListOffsets",
        ],
    },
    "growth": {"Growth": None},
    "threads": {
        "Two threads against one": [f"v2 {codec} 100 B" for codec in CODECS for _ in ("16", "64", "256 KiB")],
        "Decompressors alone": None,
        "kts.scan of two partitions in two threads": None,
    },
}

PARTS = [*TABLES][: scaled(-2, len(TABLES))]  # the last two start Python fifty times


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of every table by its title; all rows of a table are as long as its header."""
    found: dict[str, list[list[str]]] = {}
    for part in text.split("### ")[1:]:
        title, _, rest = part.partition("\n")
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rest.splitlines() if line[:1] == "|"]
        assert {len(line) for line in lines} == {len(lines[0])}, title
        found[title] = lines[2:]
    return found


def run_bench(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Java's column takes long to warm up: without a home it is left out. A worker of xdist measures nothing."""
    env = os.environ | {"JAVA_HOME": str(home), "PYTEST_ADDOPTS": ""}  # the benchmark runs pytest, too
    env.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which one run of these parts, in small, wrote."""
    folder = tmp_path_factory.mktemp("bench")
    parts = [word for part in PARTS for word in ("--part", part)]
    results = ["-o", str(folder / "results.md")]
    done = run_bench(*parts, "--mib", "0.05", "--rounds", "1", *results, home=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


TITLES = [title for part in PARTS for title in TABLES[part] if part != "threads" or len(os.sched_getaffinity(0)) > 1]


def test_the_parts_of_the_benchmark_make_these_tables_and_no_others(small: Path) -> None:
    found = list(tables((small / "results.md").read_text(encoding="utf-8")))
    assert len(found) == len(TITLES)
    assert all(full.startswith(title) for full, title in zip(found, TITLES, strict=True)), found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_benchmark_runs_in_small(part: str, small: Path) -> None:
    found = dict(zip(TITLES, tables((small / "results.md").read_text(encoding="utf-8")).values(), strict=True))
    if part == "threads" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: no table of two threads")
    for title, rows in TABLES[part].items():
        assert found[title], title
        assert all(all(line) for line in found[title]), title
        if rows is not None:
            firsts = [line[0] for line in found[title]]
            assert (list(dict.fromkeys(firsts)) if part == "micro" else firsts) == rows  # of micro, a row a ratio
    if part == "linear":
        assert "aiokafka" in (small / "batch_size.svg").read_text(encoding="utf-8")
    if part == "growth":
        assert (small / "growth.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_tables_are_measured_beside_the_writers_of_their_sinks(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from bench import tables; from bench.table import Report;"
    code += "report = Report(); tables.run(report, 50_000, 1, 1, Path(sys.argv[1])); report.write(Path(sys.argv[2]))"
    results = tmp_path / "results.md"
    command = [sys.executable, "-c", code, str(tmp_path / "scratch"), str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = tables(results.read_text(encoding="utf-8")).values()
    assert [(line[0].split()[-1], line[2]) for line in made] == [
        ("folder", "pyarrow.dataset.write_dataset"),
        ("Iceberg", "append of pyiceberg"),
    ]


def test_the_latest_state_is_measured_with_its_memory(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from bench import latest_state; from bench.table import Report;"
    code += "report, scratch = Report(), Path(sys.argv[1]); latest_state.run(report, 5000, 1, 1, scratch);"
    code += "latest_state.run_tables(report, 5000, 1, scratch); report.write(Path(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(tmp_path / "scratch"), str(tmp_path / "results.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made, kept = tables((tmp_path / "results.md").read_text(encoding="utf-8")).values()
    assert [line[1] for line in kept] == ["5,000", "1", "1", "500", "5,000"]
    assert [(line[0], int(line[1].replace(",", "")) > 1000) for line in made] == [("5,000", False), ("5,000", True)]


def test_the_cleaner_is_measured_with_its_memory(tmp_path: Path) -> None:
    done = run_bench("--part", "cleaner", "--mib", "0.05", "--rounds", "1", "-o", str(tmp_path / "a.md"), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    speed, memory = tables((tmp_path / "a.md").read_text(encoding="utf-8")).values()
    names = [f"v2 {codec} {size}" for size in SIZES[1:] for codec in ("none", "lz4")]
    assert [line[0] for line in speed] == [line[0] for line in memory] == names
    assert all(int(line[1].replace(",", "")) > int(line[2].replace(",", "")) > 0 for line in speed)


def test_avro_values_are_measured_beside_fastavro(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from bench import avro_values; from bench.table import Report;"
    code += "report = Report(); avro_values.run(report, 100_000, 1, 1); report.write(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path / "results.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = tables((tmp_path / "results.md").read_text(encoding="utf-8")).values()
    assert [float(line[1]) > 0 for line in made] == [True] * 3 and made[2][0].startswith("fastavro")


def test_a_comparison_of_two_checkouts_runs_in_small(tmp_path: Path) -> None:
    """Here of one with itself, which may well look slower by chance."""
    results = tmp_path / "compared.md"
    arguments = ["--compare", str(ROOT), "--processes", "2", "--rounds", "1", "--mib", "0.05", "--only", "scan: v2"]
    done = run_bench(*arguments, "-o", str(results), home=tmp_path)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    [made] = tables(results.read_text(encoding="utf-8")).values()
    assert [line[:2] for line in made] == [["v2 none 100 B", "scan_batches"], ["v2 lz4 100 B", "scan_batches"]]
    assert all(re.fullmatch(r"[\d.]+%", line[4]) for line in made)


def test_a_comparison_needs_a_checkout_whose_kts_can_be_loaded(tmp_path: Path) -> None:
    done = run_bench("--compare", str(tmp_path), "--only", "scan", home=tmp_path)
    assert done.returncode == 1
    assert f"expected the kts of {tmp_path}" in done.stderr
