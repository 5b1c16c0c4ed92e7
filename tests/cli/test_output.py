"""What a command prints: errors in the words of its options, tables, and files that appear whole or not at all."""

from __future__ import annotations

import os
import pty
import re
import tempfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.golden import golden
from support.processes.cli_forks import forks
from support.processes.cli_runs import lines, on_a_terminal, run

import kts
from kts.cli.app import COMMANDS, cli
from kts.cli.output import NO_OPTION, OPTION_NAMES, counted, in_options, print_table, show_bytes, sink, wrapped

WORDS = {"read_uncommitted", "read_committed", "high_watermark"}  # values of options, as Kafka has them
SOURCE = str(golden("demo", "orders").path)
PARTITION = f"{SOURCE}/orders-0"
NEEDED = {  # what each command must be given, for all else to be looked at
    "dump": [PARTITION, "--from", "now", "--limit", "1"],
    "offset-for": [PARTITION, "--time", "now"],
    "append": ["missing-0"],
    "truncate": [PARTITION, "--to-offset", "5"],
    "convert": [PARTITION, "--to-magic", "2", "--out", "never"],
    "copy": [PARTITION, "never", "--from", "now"],
    "plot": [PARTITION, "-o", "never.svg"],
    "serve": ["missing", "--listen", "8.8.8.8:1"],
    "follow": ["missing", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--once", "--patience", "0"],
}
FREE = {"out", "output", "source", "key", "grep"}  # any text is a file's name, a key, a regular expression


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
            if isinstance(param, click.Option) and not param.is_flag and param.name not in FREE:
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
    assert "--from: 2026-09-02T10:00 is after --to 2026-09-01" in said
    said = run("dump", SOURCE, "--from", "-1h", "--to", "-2h", code=2).stderr
    assert "--from: -1h is after --to -2h" in said
    said = run("dump", SOURCE, "--columns", "keys", code=2).stderr
    assert "--columns: unknown column 'keys'" in said
    out = ["--out", "never"]
    said = run("convert", PARTITION, "--to-magic", "2", "--compression", "zstd", "--level", "900", *out, code=2).stderr
    assert "--level: zstd takes" in said
    headers = golden("3.9.2", "headers").partition_dir("headers-0")
    said = run("convert", headers, "--to-magic", "1", *out, code=3).stderr
    assert "--drop-headers leaves them out" in said
    assert argument_names(said) == set()
    said = run("verify", f"{PARTITION}/{0:020d}.index", code=2).stderr
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


# --- tables on a terminal ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "width", "expected"),
    [
        ("waits for segment 5", 10, ["waits for", "segment 5"]),
        ("2026-09-01T04:03:12.531Z", 13, ["2026-09-01T", "04:03:12.531Z"]),
        ("/var/kafka-logs/orders-0/x.log", 20, ["/var/kafka-logs/", "orders-0/x.log"]),
        ("short", 9, ["short"]),
        ("unbreakable", 4, ["unbreakable"]),
        ("", 4, [""]),
    ],
)
def test_text_is_wrapped_where_it_may_be_broken(cell: str, width: int, expected: list[str]) -> None:
    assert wrapped(cell, width) == expected


TABLES = [
    ["ls", SOURCE],
    ["ls", SOURCE, "--segments"],
    ["dump", SOURCE, "--limit", "5"],
    ["batches", PARTITION, "--limit", "5"],
    ["stats", SOURCE, "--by", "1h"],
    ["offset-for", SOURCE, "--time", "2026-09-05"],
    ["retention", SOURCE, "--now", "2026-09-20"],
    ["truncate", PARTITION, "--to-offset", "500"],
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", TABLES, ids=lambda arguments: " ".join(arguments[::2]))
def test_tables_fit_80_columns_and_lose_nothing_that_matters(arguments: list[str]) -> None:
    """Two seconds: every table, on a terminal of that width."""
    shown, code = on_a_terminal(*arguments, term="dumb", columns=80)
    assert code in (0, 1)
    if "-[ RECORD" not in shown:
        table = [line for line in shown.splitlines() if line.startswith(" ")]
        assert table and max(map(len, table)) <= 80
    if arguments[0] == "retention":
        reasons = " ".join(row["why"] for row in lines(*arguments, "--json"))
        assert "…" not in shown and set(reasons.split()) <= set(shown.split())


@pytest.mark.slow
def test_expanded_values_are_whole_on_a_terminal_too() -> None:
    shown, _ = on_a_terminal("dump", SOURCE, "--limit", 1, "--expand", term="dumb", columns=40)
    (record,) = lines("dump", SOURCE, "--limit", 1, "--values", "utf8")
    assert record["value"] in shown.replace("\r\n", "\n") and len(record["value"]) > 100


@pytest.mark.parametrize("arguments", TABLES, ids=lambda arguments: " ".join(arguments[::2]))
def test_expanded_tables_are_blocks_of_the_same_cells(arguments: list[str]) -> None:
    plain, shown = run(*arguments).stdout, run(*arguments, "--expand").stdout
    first = re.search(r"-\[ RECORD 1 \]-+\n((?:.* \|.*\n)+)", shown)
    assert first is not None
    cells = [line.partition("|")[2].strip() for line in first[1].splitlines()]
    if arguments[0] not in ("dump", "stats"):  # which cut values, and draw bars
        assert all(cell in plain.splitlines()[1] for cell in cells)


# --- progress ------------------------------------------------------------------------------------------


def on_two(stdout: str, *arguments: object) -> tuple[str, str, int]:
    """What a command shows on a terminal that is its stderr, and what it writes to stdout."""
    master, slave = pty.openpty()
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as file, open(os.devnull, "rb") as nothing:
        one = forks()
        target = writing if stdout == "pipe" else file.fileno()
        one.start([str(argument) for argument in arguments], [nothing.fileno(), target, slave], TERM="xterm")
        os.close(writing)
        os.close(slave)
        with os.fdopen(reading, "rb") as pipe:
            written = pipe.read()
        shown = b""
        while part := reads(master):
            shown += part
        code = one.exit_code()
        written = written or os.pread(file.fileno(), 1 << 20, 0)
    os.close(master)
    return shown.decode(), written.decode(), code


def reads(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:
        return b""


@pytest.mark.slow
def test_progress_leaves_a_pager_and_the_lines_alone(tmp_path: Path) -> None:
    folder = golden("demo", "orders").copy(tmp_path)
    for log in folder.logs("orders-0"):
        log.write_bytes(log.read_bytes()[:-1] + b"x")
    for command in (["stats", folder.log_dir], ["verify", folder.log_dir]):
        shown, written, _ = on_two("pipe", *command)
        assert "\x1b" not in shown and written, "a pager has the terminal for itself"
    shown, written, code = on_two("file", "verify", folder.log_dir)
    violations = run("verify", folder.log_dir, code=1).stdout
    assert code == 1 and written == violations, "what is printed goes where stdout goes"
    assert "checked" in shown and "crc" not in shown.lower()
    shown, _ = on_a_terminal("verify", folder.log_dir)
    for line in violations.splitlines():
        before = shown.replace("\r\n", "\n").split(line)[0]
        assert before.rpartition("\n")[2] == "" or before.endswith(("\x1b[2K", "\r", "\x1b[?25h")), (
            "the bar was cleared"
        )
