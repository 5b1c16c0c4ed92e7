"""``kts study``: its tables, its JSON and its exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.golden import golden
from support.processes.cli_runs import lines, run

pytestmark = pytest.mark.slow

SMALL = ("--partitions", "2", "--index-messages", "1000")


def test_the_tables_say_paper_and_measurement() -> None:
    said = run("study", *SMALL)
    assert "pattern 2: similar large latency" in said.stdout
    assert "pattern 2   CT         CT         yes" in said.stdout
    words = " ".join(said.stdout.split())
    assert "pattern 2: the paper says LAT, measured is CT or LAT. Both figures are within their tolerance" in words
    assert "pattern 2: CreateTime by KIP-32's rule has 672 segments, all of one message, where LogAppendTime" in words
    assert "the rules count the same" in said.stderr
    assert max(map(len, said.stdout.splitlines())) <= 80


def test_json_has_every_figure_and_the_settings_that_were_given() -> None:
    (report,) = lines("study", *SMALL, "--roll", "6h", "--large-latency", "2d", "--json")
    assert report["settings"]["roll_ms"] == 6 * 3_600_000 and report["settings"]["large_latency_ms"] == 2 * 86_400_000
    assert len(report["options"]) == 30 and len(report["indexes"]) == 3
    assert len(report["retention"]) == 4 and len(report["rolling"]) == 12
    single = report["patterns"]["pattern 2"]["rules"]["earliest-timestamp"]
    assert single["segmentsOfOneMessage"] == single["segments"] == single["messages"]


def test_wrong_settings_are_wrong_use() -> None:
    assert "--roll" in run("study", "--roll", "12", code=2).stderr
    assert "--partitions" in run("study", "--partitions", "0", code=2).stderr


def test_the_page_is_written_beside_the_tables(tmp_path: Path) -> None:
    said = run(
        "study", "--partitions", "1", "--index-messages", "100", "--duration", "1d", "-o", tmp_path / "study.html"
    )
    assert "Retention: which time" in said.stdout
    assert (tmp_path / "study.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_directory_is_advised() -> None:
    folder = golden("demo", "orders").log_dir
    said = run("study", folder, "--roll", "7d", "--retention", "7d").stdout
    assert "450 batches of 3 partitions" in said and "CreateTime after arrival" in said
    assert "option 4 LogAppendTime would serve it\nmessage.timestamp.type=LogAppendTime" in said
    (report,) = lines("study", folder, "--topic", "orders", "--json")
    assert report["topic"] == "orders" and report["advice"]["settings"]["message.timestamp.type"] == "LogAppendTime"
    assert "The rules play all 450 batches with a known CreateTime." in said
    assert "give one" in run("study", "--topic", "orders", code=2).stderr
    assert "kts plot" in run("study", folder, "-o", "x.html", code=2).stderr


def test_a_directory_of_several_topics_has_a_line_for_each(tmp_path: Path) -> None:
    for name, topic in (("orders", "orders"), ("clicks", "clicks")):
        shutil.copytree(golden("demo", name).log_dir, tmp_path, dirs_exist_ok=True)
        assert (tmp_path / f"{topic}-0").is_dir()
    said = run("study", tmp_path, "--roll", "7d", "--retention", "7d").stdout.splitlines()
    assert said[1].split() == ["topic", "read", "batches", "future", "retention", "rolling", "option", "limits"]
    assert said[2].split()[:4] == ["clicks", "1/1", "100", "0"] and "4 CreateTime" in said[2] and " d" in said[2]
    assert said[3].split()[:5] == ["orders", "3/3", "450", "2", "LAT"] and "4 LogAppendTime" in said[3]
    assert [report["topic"] for report in lines("study", tmp_path, "--json")] == ["clicks", "orders"]
