"""The group of commands, and the exit code of every failure."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from io import BufferedWriter, FileIO, TextIOWrapper
from opcode import opmap
from types import FrameType
from typing import Any

import click

from kts import __version__

from .output import (
    FINDINGS,
    FINE,
    INTERRUPTED,
    TERMINATED,
    UNREADABLE,
    WRONG_USE,
    in_options,
    note,
    say,
    shielded,
    spelled,
)

COMMANDS = {
    "ls": "ls",
    "dump": "dump",
    "batches": "batches",
    "stats": "stats",
    "offset-for": "offset_for",
    "verify": "verify",
    "doctor": "doctor",
    "append": "append",
    "truncate": "truncate",
    "clean": "clean",
    "reindex": "reindex",
    "convert": "convert",
    "copy": "copy",
    "plot": "plot",
    "retention": "retention",
    "groups": "groups",
    "cluster": "cluster",
    "study": "study",
    "sync": "sync",
    "tables": "tables",
    "serve": "serve",
    "follow": "follow",
}
ABOUT_KTS = {"demo": "demo", "help": "help", "completion": "completion"}  # commands that read no data of yours


_IMPORTING = "<frozen importlib."
_IMPORTS = (opmap["IMPORT_NAME"], os.path.join("importlib", "__init__.py"))  # an instruction; where import_module is
_Handler = Callable[[int, FrameType | None], Any]


class WithoutPandas(MetaPathFinder):
    """Keeps pyarrow from importing pandas, which takes longer than everything else a command imports."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=fullname)


class Commands(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *ABOUT_KTS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = (COMMANDS | ABOUT_KTS).get(cmd_name)
        if module is None:
            return None
        command: click.Command = import_module(f".{module}", __package__).command
        return command

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        if args is None:  # called as a program, not by a test
            sys.meta_path.insert(0, WithoutPandas())
            if sys.stdout is None:  # closed by the caller (>&-)
                sys.stdout = TextIOWrapper(BufferedWriter(FileIO(os.devnull, "w")))
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, TextIOWrapper):  # a terminal may not support every character of the data
                    stream.reconfigure(errors="backslashreplace")
            sys.stdout, sys.stderr = (stream and shielded(stream) for stream in (sys.stdout, sys.stderr))
        try:
            return super().main(args, *rest, **named)
        except BrokenPipeError:  # stderr was closed before click could print the error
            raise SystemExit(WRONG_USE) from None

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        try:
            return super().make_context(*args, **named)
        except OSError as error:  # --help and --version print here
            raise click.exceptions.Exit(failed(error)) from error

    def invoke(self, ctx: click.Context) -> Any:
        with told_warnings() as skipped_damage, stopped_by_sigterm():
            code = self._outcome(ctx)
            ctx.exit(FINDINGS if code == FINE and skipped_damage() else code)

    def _outcome(self, ctx: click.Context) -> int:
        from kts.errors import KtsError, OffsetOutOfRangeError, UnknownTopicOrPartitionError

        try:
            with interruptible():
                code = super().invoke(ctx)
                sys.stdout.flush()
            return int(code or FINE)
        except click.UsageError as error:
            raise click.UsageError(in_options(error.format_message()), error.ctx) from error
        except KeyboardInterrupt:
            return say("interrupted", INTERRUPTED)
        except (UnknownTopicOrPartitionError, OffsetOutOfRangeError) as error:
            return say(str(error), WRONG_USE)
        except KtsError as error:
            return say(str(error), UNREADABLE)
        except OSError as error:
            return failed(error)


def failed(error: OSError) -> int:
    """Print an operating system error and return its exit code. A closed pipe is no failure."""
    return FINE if isinstance(error, BrokenPipeError) else say(spelled(error), UNREADABLE)


@contextmanager
def told_warnings() -> Iterator[Callable[[], bool]]:
    """Print the library's warnings as plain lines on stderr, each once; yields a function that says if damage was
    skipped."""

    from kts.errors import DamageWarning

    skipped, told = False, set[str]()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        nonlocal skipped
        skipped |= issubclass(category, DamageWarning)
        if str(message) not in told:
            told.add(str(message))
            note(f"kts: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield lambda: skipped


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C run the clean-up. Outside this block the ``kts`` script handles it."""
    before = signal.getsignal(signal.SIGINT)
    ours = getattr(before, "__module__", None) == "kts_command"
    if ours:
        signal.signal(signal.SIGINT, _when_imported(signal.default_int_handler))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Make SIGTERM run the clean-up too."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _when_imported(stop))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _when_imported(handle: _Handler) -> _Handler:
    """A handler that lets an import come to its end that compiled code asked for, for two seconds at most: pyarrow
    imports modules at its first array and drops what is raised there, and with it the signal."""
    puts_off = 100

    def later(number: int, frame: FrameType | None) -> None:
        nonlocal puts_off
        if not puts_off or not _imports_for_compiled_code(frame):
            handle(number, frame)
            return
        puts_off -= 1
        again = threading.Timer(0.02, signal.pthread_kill, (threading.main_thread().ident, number))
        again.daemon = True
        again.start()

    return later


def _imports_for_compiled_code(frame: FrameType | None) -> bool:
    """Whether an import is under way that neither a statement nor ``import_module`` began."""
    while frame is not None:
        caller = frame.f_back
        if caller is not None and frame.f_code.co_filename.startswith(_IMPORTING):
            name = caller.f_code.co_filename
            by_statement = caller.f_code.co_code[caller.f_lasti] == _IMPORTS[0]
            if not (by_statement or name.startswith(_IMPORTING) or name.endswith(_IMPORTS[1])):
                return True
        frame = caller
    return False


EPILOG = """\b
Examples (DIR is a log directory, as /var/kafka-logs):
  kts ls DIR
  kts dump DIR/orders-0 --from 2026-09-01T10:00 --to 2026-09-01T10:05
  kts offset-for DIR/orders-0 --time 2026-09-01T10:00 --explain

\b
Completion in this shell (kts completion --help says more):
  eval "$(kts completion bash)"

\b
Exit codes:
  0  fine               2  wrong use
  1  findings           3  damaged or unreadable input
"""


@click.group(
    cls=Commands, epilog=EPILOG, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="kts %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Kafka log directories as tables, by time, without a broker.

    A PATH is a partition directory (orders-0), a segment file (.log), or a log directory with partitions inside; more
    than one may be given. Commands that only read take an address in a bucket, too (s3://, gs://, abfss://,
    webhdfs://). Only append, copy (DST), sync (TABLE), serve, follow and --in-place change files.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
