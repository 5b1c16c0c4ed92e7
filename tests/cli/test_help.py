"""``kts help``, and kts alone."""

from __future__ import annotations

from support.processes.cli_runs import run


def test_kts_alone_and_kts_help_show_the_help() -> None:
    said = run("--help").stdout
    assert run().stdout == said and run("help").stdout == said
    assert run("help", "dump").stdout == run("dump", "--help").stdout
    assert "No such command" in run("help", "dumb", code=2).stderr
