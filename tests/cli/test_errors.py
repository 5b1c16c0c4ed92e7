"""Errors speak of options, not of Python's arguments, and give back times as they were typed."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.golden import golden
from support.processes.cli_runs import run

from kts.cli.app import COMMANDS, cli
from kts.cli.output import NO_OPTION, OPTION_NAMES, in_options

WORDS = {"read_uncommitted", "read_committed", "high_watermark"}  # values of options, as Kafka has them
SOURCE = str(golden("demo", "orders").path)
PARTITION = f"{SOURCE}/orders-0"
NEEDED = {  # what each command must be given, for all else to be looked at
    "dump": [PARTITION, "--from", "now", "--limit", "1"],
    "offset-for": [PARTITION, "--time", "now"],
    "append": ["missing-0"],
    "truncate": [PARTITION, "--to-offset", "5"],
    "convert": [PARTITION, "--to-magic", "2", "--out", "never"],
    "plot": [PARTITION, "-o", "never.svg"],
    "serve": ["missing", "--listen", "8.8.8.8:1"],
    "follow": ["missing", "--from", "127.0.0.1:1", "--topic", "t", "--once", "--patience", "0"],
}
FILES = {"out", "output", "source"}  # any text is a file's name


def sub_command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def argument_names(said: str) -> set[str]:
    return set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", re.sub(r"\S*/\S*", "", said))) - WORDS


def wrong_uses() -> list[tuple[str, str]]:
    found = []
    for name in COMMANDS:
        for param in sub_command(name).params:
            if isinstance(param, click.Option) and not param.is_flag and param.name not in FILES:
                found.append((name, max(param.opts, key=len)))
    return found


@pytest.mark.parametrize(("name", "option"), wrong_uses())
def test_a_wrong_value_is_refused_without_an_argument_name(
    name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [name, *NEEDED.get(name, [PARTITION]), option, "\u2126"])
    assert done.exit_code in (2, 3) and isinstance(done.exception, SystemExit)
    assert argument_names(done.stderr) == set(), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_library_names_the_option() -> None:
    said = run("dump", SOURCE, "--from", "2026-09-02T10:00", "--to", "2026-09-01", code=2).stderr
    assert "--from: 2026-09-02T10:00 is behind --to 2026-09-01" in said
    said = run("dump", SOURCE, "--from", "-1h", "--to", "-2h", code=2).stderr
    assert "--from: -1h is behind --to -2h" in said
    said = run("dump", SOURCE, "--columns", "keys", code=2).stderr
    assert "--columns: unknown column 'keys'" in said
    out = ["--out", "never"]
    said = run("convert", PARTITION, "--to-magic", "2", "--compression", "zstd", "--level", "900", *out, code=2).stderr
    assert "--level: zstd takes" in said
    headers = golden("3.9.2", "headers").partition_dir("headers-0")
    said = run("convert", headers, "--to-magic", "1", *out, code=3).stderr
    assert "--drop-headers leaves them out" in said
    assert argument_names(said) == set()
    said = run("dump", f"{PARTITION}/{0:020d}.index", code=2).stderr
    assert "PATH: expected a directory or a .log file" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_an_option_or_words_that_need_none(name: str) -> None:
    command = sub_command(name)
    options = {param.name: max(param.opts, key=len) for param in command.params if isinstance(param, click.Option)}
    with click.Context(command):
        for argument in NO_OPTION:
            assert argument_names(in_options(f"raise {argument} if the data is trusted")) == set()
        for argument, option in OPTION_NAMES.items():
            if option in options.values():
                assert in_options(f"{argument}: expected an int") == f"{option}: expected an int"
        for argument, option in options.items():
            if argument is not None and "_" in argument:
                assert in_options(f"{argument}: 5, give {argument}=6") == f"{option}: 5, give {option}=6"


def test_words_of_the_user_stay_as_they_are() -> None:
    with click.Context(sub_command("convert")):
        for said in (
            "expected a topic, found 'drop_headers'",
            "/data/drop_headers-0/1.log: damaged",
            "drop_headers-0: no",
        ):
            assert in_options(said) == said
    assert in_options("drop_headers: outside of any command") == "drop_headers: outside of any command"
