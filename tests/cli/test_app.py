"""The group of commands: help, examples that work, and the exit code of every failure."""

from __future__ import annotations

import errno
import re
import shlex
import warnings
from pathlib import Path

import click
import pytest
from support.clusters import cluster_of
from support.coordinators import broker
from support.golden import golden
from support.processes.cli_runs import run

import kts
from kts.cli import main
from kts.cli.app import COMMANDS

LIVE = {"follow", "serve"}  # test_follow.py and test_serve.py run their examples


def command_named(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def examples(name: str | None) -> list[list[str]]:
    """The lines after "Examples", as arguments behind `kts`."""
    epilog = (main if name is None else command_named(name)).epilog or ""
    return [shlex.split(line)[1:] for line in re.findall(r"^  (kts .*)$", epilog.replace("\\\n", ""), re.MULTILINE)]


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_fits_80_columns(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = run(*([] if name is None else [name]), "--help").stdout.splitlines()
    assert [line for line in said if len(line) > 80] == []
    assert max(map(len, said)) > 70


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_examples_and_json(name: str) -> None:
    command = command_named(name)
    assert command.help and command.short_help
    assert examples(name)
    said = run(name, "--help").stdout
    assert "--json" in said and "Examples:" in said
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [one for name in (None, *COMMANDS) if name not in LIVE for one in examples(name)], ids=" ".join
)
def test_every_example_works(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    orders = golden("demo", "orders")
    writes = arguments[0] in ("append", "clean", "truncate")
    of_groups = "groups" in arguments or "--decoder" in arguments
    of_cluster = "cluster" in arguments or "metadata" in arguments
    of_broker = (of_cluster and cluster_of("4.3.1")) or (of_groups and broker("4.3.1"))
    folder = str(of_broker or (orders.copy(tmp_path) if writes else orders).log_dir)
    if "-i" in arguments:
        how = ("--exact",) if "--exact" in arguments else ("--limit", 5, "--format", "jsonl")
        run("dump", f"{folder}/orders-1", *how, "-o", arguments[arguments.index("-i") + 1])
    if arguments[0] == "tables":
        run("sync", folder, "lake.db.orders", "--catalog", "lake.sqlite")
    small = ("--partitions", 1, "--index-messages", 1000) if arguments[0] == "study" else ()
    finds = "--check-release" in arguments or arguments[0] == "doctor"  # two times from the future
    run(*(argument.replace("DIR", folder) for argument in arguments), *small, code=int(finds))
    if "-o" in arguments:
        assert (tmp_path / arguments[arguments.index("-o") + 1]).stat().st_size > 1000


def test_the_group_lists_all_commands_and_the_exit_codes() -> None:
    said = run("--help").stdout
    assert all(f"  {name} " in said for name in COMMANDS)
    for line in ("0  fine", "1  findings", "2  wrong use", "3  damaged or unreadable input"):
        assert line in said
    assert run("-h").stdout == said


def test_an_unknown_command_and_an_unknown_option_are_wrong_use() -> None:
    assert "No such command" in run("list", code=2).stderr
    assert "No such option" in run("ls", "--nope", code=2).stderr
    assert "Missing argument" in run("ls", code=2).stderr


FAILURES = [
    (kts.OffsetOutOfRangeError("no such offset"), 2, "no such offset"),
    (kts.UnknownTopicOrPartitionError("no topic 'x'"), 2, "no topic 'x'"),
    (kts.CorruptRecordError("CRC 1, found 2", position=5), 3, "CRC 1, found 2, at position 5"),
    (OSError(errno.ENOSPC, "No space left on device", "/full/x"), 3, "/full/x: No space left on device"),
    (OSError("something else"), 3, "something else"),
    (BrokenPipeError(), 0, ""),
    (KeyboardInterrupt(), 130, "interrupted"),
]


@pytest.mark.parametrize(("failure", "code", "said"), FAILURES, ids=lambda value: type(value).__name__)
def test_each_failure_has_its_exit_code_and_one_line(
    failure: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise failure

    monkeypatch.setattr(command_named("ls"), "callback", fail)
    done = run("ls", "somewhere", code=code)
    assert (done.stdout, done.stderr) == ("", f"kts: {said}\n" if said else "")


def test_a_warning_of_the_library_is_a_line_and_one_for_programmers_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(**_: object) -> None:
        warnings.warn(kts.KtsWarning("the tail is damaged", "x.log"), stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    monkeypatch.setattr(command_named("ls"), "callback", warn)
    assert run("ls", "somewhere").stderr == "kts: warning: the tail is damaged\n"
