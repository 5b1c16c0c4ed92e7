"""What a command prints: errors in the words of its options, tables, and files that appear whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.golden import golden
from support.processes.cli_runs import run

import kts
from kts.cli.app import COMMANDS, cli
from kts.cli.output import NO_OPTION, OPTION_NAMES, counted, in_options, print_table, show_bytes, sink

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


@pytest.mark.parametrize("name", [f"{0:020d}.log", "new.jsonl"])
def test_output_never_goes_among_the_files_that_are_read(name: str, tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    log = partition / f"{0:020d}.log"
    log.write_bytes(kts.encode({"value": [b"x"]}))
    before = log.read_bytes()
    assert "which are only read" in run("dump", partition, "-o", partition / name, "--format", "jsonl", code=2).stderr
    assert "which are only read" in run("dump", tmp_path, "-o", partition / name, "--format", "jsonl", code=2).stderr
    assert [path.name for path in partition.iterdir()] == [log.name]
    run("dump", log, "-o", log, "--format", "jsonl", code=2)
    assert log.read_bytes() == before


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.touch(0o600)
    run("dump", SOURCE, "--limit", "1", "-o", secret)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.stat().st_size > 0


def test_a_file_appears_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), sink(str(path)) as file:
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old"
        raise KeyError
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"old"]
    with sink(str(path)) as file:
        file.write(b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"new"]
    with pytest.raises(click.BadParameter, match="is a directory"), sink(str(tmp_path)):
        pass


def test_a_table_in_a_pipe_is_aligned_by_width_not_by_length(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "size"), [("a", 5), ("\u6f22\u5b57", 1234), (None, "")], right=(1,))
    assert capsys.readouterr().out == "name  size\na        5\n\u6f22\u5b57  1234\n\n"


@pytest.mark.parametrize(
    ("count", "thing", "expected"),
    [(1, "batch", "1 batch"), (0, "batch", "0 batches"), (1234, "segment", "1,234 segments")],
)
def test_things_are_counted_in_the_plural(count: int, thing: str, expected: str) -> None:
    assert counted(count, thing) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (2**50, "1024.0 TiB")]
)
def test_sizes_have_the_largest_unit_that_fits(size: int, expected: str) -> None:
    assert show_bytes(size) == expected
