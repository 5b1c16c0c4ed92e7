"""What only a process shows: exit codes, closed pipes, Ctrl-C, terminals, what is imported, files that appear whole."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import PATIENCE_S, golden
from support.processes.cli_pipes import outcome
from support.processes.cli_runs import KTS, on_a_terminal, process
from support.waiting import wait_until

import kts

pytestmark = pytest.mark.slow

ORDERS = golden("demo", "orders").log_dir


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition whose dump takes long enough to be interrupted: one batch file, linked many times."""
    folder = tmp_path_factory.mktemp("long")
    data = kts.encode({"value": pa.array([b"x" * 1000] * 20_000)})
    (folder / "t-0").mkdir()
    (folder / "t-0" / f"{0:020d}.log").write_bytes(data)
    for number in range(1, 60):
        (folder / f"t-{number}").mkdir()
        os.link(folder / "t-0" / f"{0:020d}.log", folder / f"t-{number}" / f"{0:020d}.log")
    return folder


def test_exit_codes_are_those_of_the_help(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"\0" * 100)
    for arguments, code in (
        (["ls", ORDERS], 0),
        (["--version"], 0),
        (["verify", tmp_path / "t-0"], 1),
        (["dump"], 2),
        (["nope"], 2),
        (["dump", ORDERS, "--from", "1788256800"], 2),
        (["dump", tmp_path / "missing-0"], 2),
        (["dump", tmp_path / "t-0"], 3),
    ):
        done = process(*arguments)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
        assert (done.stderr == "") == (code == 0), arguments
    done = process("ls", tmp_path / "empty")
    assert done.returncode == 2 and "no partition directories" in done.stderr


PARTITION = ORDERS / "orders-0"
PRINTING = [
    ["--help"],
    ["--version"],
    ["dump", "--help"],
    ["ls", ORDERS],
    ["ls", ORDERS, "--json"],
    *(["dump", ORDERS, "--format", kind] for kind in ("table", "jsonl", "csv", "parquet", "arrow")),
    *(["dump", PARTITION, "--limit", 3, "--format", kind] for kind in ("jsonl", "csv", "parquet", "arrow")),
    ["batches", ORDERS],
    ["batches", ORDERS, "--json"],
    ["stats", ORDERS],
    ["stats", ORDERS, "--json"],
    ["offset-for", PARTITION, "--time", "2026-09-08", "--explain"],
    ["verify", ORDERS],
    ["truncate", PARTITION, "--to-offset", 3],
    ["reindex", ORDERS, "--json"],
    ["retention", ORDERS, "--json"],
    ["plot", ORDERS, "-o", "-", "--format", "svg"],
]


def test_a_closed_pipe_ends_every_command_quietly() -> None:
    """Two seconds: every command that prints, each with a reader that leaves before the first byte and behind some,
    the formats of `dump` also behind what fits all buffers and with Python's stdout unbuffered. Python ends with 120
    where it cannot write at its own end what is left."""
    commands = [[str(argument) for argument in arguments] for arguments in PRINTING]
    cases = [(command, read, False) for command in commands for read in (0, 100)]
    dumps = [command for command in commands if command[0] == "dump"]
    cases += [(command, 20_000, unbuffered) for unbuffered in (False, True) for command in dumps]
    for command, read, unbuffered in cases:
        code, said = outcome(command, read, "stdout", unbuffered=unbuffered)
        assert code == 0, (command, read, code, said)
        assert not re.search("Traceback|Exception|Error|Broken|kts:", said), (command, read, said)


def test_nobody_who_reads_stderr_changes_nothing(tmp_path: Path) -> None:
    """Exit codes and output are as they are with a reader of what is said there."""
    (tmp_path / "t-0").mkdir()
    sound = kts.encode({"value": [b"x"]})
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(sound + b"\0" * 100)
    output = tmp_path / "out.jsonl"
    skipping = ["dump", str(tmp_path / "t-0"), "--on-error", "skip", "-o", str(output)]
    found = [outcome(arguments, 0, "stderr") for arguments in (["dump"], ["dump", "missing-0"], skipping)]
    assert found == [(2, ""), (2, ""), (1, "")]
    assert len(output.read_bytes().splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_what_stdout_cannot_take_is_an_error(tmp_path: Path) -> None:
    for arguments in (["--help"], ["ls", ORDERS], ["dump", ORDERS, "--format", "parquet"], ["dump", ORDERS]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*KTS, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S)
        assert done.returncode == 3, (arguments, done.stderr)
        assert done.stderr.startswith(b"kts: ") and b"No space left" in done.stderr and done.stderr.count(b"\n") == 1


def test_a_file_that_the_disk_cannot_take_is_named_and_removed(tmp_path: Path) -> None:
    limit = "ulimit -f 64; trap '' XFSZ; exec \"$@\""  # KiB, stands in for the disk's end
    command = ["bash", "-c", limit, "-", *KTS, "dump", str(ORDERS), "-o", str(tmp_path / "orders.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (3, f"kts: {tmp_path}/orders.jsonl: File too large\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_interrupted_dump_leaves_nothing_behind(
    number: signal.Signals, code: int, kind: str, long_log: Path, tmp_path: Path
) -> None:
    output = tmp_path / f"out.{kind}"
    output.write_text("as it was")
    command = [*KTS, "dump", str(long_log), "-o", str(output), "--values", "hex"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
        wait_until("it writes aside", lambda: len(list(tmp_path.iterdir())) > 1)
        running.send_signal(number)
        assert running.stderr is not None
        said = running.stderr.read().decode()
        assert running.wait(PATIENCE_S) == code
    assert [path.name for path in tmp_path.iterdir()] == [output.name]
    assert output.read_text() == "as it was"
    assert "Traceback" not in said and "Exception ignored" not in said
    assert ("interrupted" in said) == (number == signal.SIGINT)


INTERRUPTED_AT = """
import os, signal, sys
target, number = sys.argv.pop(1), signal.SIGINT
class Interrupt:
    def find_spec(self, name, path=None, module=None):
        if name == target and self in sys.meta_path:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
import kts_command
sys.meta_path.insert(0, Interrupt())
kts_command.main()
"""


@pytest.mark.parametrize("module", ["kts", "numpy", "click.core", "kts.cli.app", "kts.cli.dump", "pyarrow"])
def test_ctrl_c_while_modules_are_imported_ends_quietly(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT, module, "dump", str(ORDERS), "-o", str(tmp_path / "x.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 130
    assert done.stderr in ("", "kts: interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_an_import_of_pyarrow_is_not_lost(
    number: signal.Signals, code: int, long_log: Path, tmp_path: Path
) -> None:
    """A second: pyarrow imports dateutil at its first array, and drops what is raised there."""
    program = INTERRUPTED_AT.replace("signal.SIGINT", f"signal.{number.name}")
    output = tmp_path / "x.jsonl"
    command = [sys.executable, "-c", program, "dateutil.relativedelta", "dump", str(long_log), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code
    assert not list(tmp_path.iterdir())


def test_ctrl_c_that_the_caller_ignores_is_ignored(tmp_path: Path) -> None:
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){INTERRUPTED_AT}"
    command = [sys.executable, "-c", program, "pyarrow", "dump", str(ORDERS), "-o", str(tmp_path / "x.parquet")]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def session_of(leader: int) -> list[int]:
    """The processes of a session that are not zombies."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = status.parent.name, status.read_text().rpartition(")")[2].split()
            if int(rest[3]) == leader and rest[0] != "Z":
                found.append(int(pid))
    return found


def test_an_interrupted_verify_ends_its_workers(long_log: Path) -> None:
    command = [*KTS, "verify", "--deep", "--jobs", "2", str(long_log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as running:
        wait_until("it has workers", lambda: len(session_of(running.pid)) > 1 or running.poll() is not None)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode in (130, 0)  # 0 if it was done by then
    assert b"Traceback" not in said
    wait_until("its workers have ended", lambda: not session_of(running.pid))


def test_a_written_file_replaces_the_old_one_and_follows_links(tmp_path: Path) -> None:
    real = tmp_path / "real.csv"
    real.write_text("old")
    (tmp_path / "link.csv").symlink_to(real)
    assert process("dump", ORDERS, "--limit", 3, "-o", tmp_path / "link.csv").returncode == 0
    assert (tmp_path / "link.csv").is_symlink() and real.read_text().startswith('"topic"')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "real.csv"]
    mask = os.umask(0)
    os.umask(mask)
    assert real.stat().st_mode & 0o777 == 0o666 & ~mask
    assert process("dump", ORDERS, "--limit", 3, "--format", "csv", "-o", "/dev/null").returncode == 0
    assert process("dump", ORDERS, "-o", tmp_path / "no" / "x.csv").returncode == 2


def test_a_terminal_gets_tables_and_progress_and_no_binary(long_log: Path, tmp_path: Path) -> None:
    shown, code = on_a_terminal("dump", ORDERS, "--limit", 2)
    assert code == 0 and "orders" in shown and "first 2 records" in shown and '"topic"' not in shown
    shown, code = on_a_terminal("dump", ORDERS, "--format", "parquet")
    assert code == 2 and "terminal" in shown and "PAR1" not in shown
    shown, code = on_a_terminal("dump", long_log, "--partition", 0, "--partition", 1, "-o", tmp_path / "x.parquet")
    assert code == 0 and "40,000 records" in shown and "records" in shown.split("40,000 records")[0]
    assert "\x1b[" in shown
    shown, code = on_a_terminal("ls", ORDERS)
    assert code == 0 and "1 topic, 3 partitions" in shown
    done = process("dump", long_log, "--topic", "t", "--partition", 0, "-o", tmp_path / "y.parquet")
    assert (done.stdout, done.stderr) == ("", "")


def test_the_library_and_the_help_import_nothing_heavy() -> None:
    def imported(code: str) -> set[str]:
        script = f"import sys\n{code}\nprint(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return {name.split(".")[0] for name in done.stdout.split()}

    heavy = {"click", "rich", "pyarrow", "pyspark", "matplotlib", "plotly", "pandas"}
    assert imported("import kts") & heavy == set()
    group = "from kts.cli import main\nmain(['--help'], standalone_mode=False)"
    assert imported(group) & heavy <= {"click"}


def test_the_command_line_does_without_pandas(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for arguments in (["dump", str(ORDERS), "-o", str(tmp_path / "x.parquet")], ["stats", str(ORDERS)]):
        done = subprocess.run([*KTS, *arguments], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr


def test_a_terminal_that_knows_few_characters_gets_escapes() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    for arguments in (["dump", "--format", "table", "--offsets", "0:60"], ["stats"]):
        done = subprocess.run([*KTS, *arguments, str(ORDERS)], capture_output=True, encoding="latin-1", env=environment)
        assert done.returncode == 0, done.stderr
        assert "\\u2026" in done.stdout if arguments[0] == "dump" else "###" in done.stdout


def test_a_closed_stdout_is_no_traceback() -> None:
    done = subprocess.run(
        f"exec {shlex.join([*KTS, 'dump', str(ORDERS), '--limit', '5'])} >&-",
        shell=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
