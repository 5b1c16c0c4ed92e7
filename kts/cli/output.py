"""The output of commands: exit codes, messages, tables, JSON, progress, and files that are written atomically."""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, RawIOBase
from itertools import chain
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast
from unicodedata import category

import click

from kts import compression
from kts.model import TimestampType
from kts.store.addresses import require_local

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

FINE = 0
FINDINGS = 1  # of verify
WRONG_USE = 2
UNREADABLE = 3  # or damaged input
INTERRUPTED = 130  # Ctrl-C
TERMINATED = 143

TYPE_NAMES = {member.value: member.name for member in TimestampType}
CODEC_NAMES = dict(enumerate(compression.CODEC_NAMES))
NAMES = {"timestampType": TYPE_NAMES, "codec": CODEC_NAMES}  # columns of numbers that text has by name

# Options for library arguments with another name, and what to use for arguments without an option.
OPTION_NAMES = {
    "starting_offsets": "--offsets",
    "ending_offsets": "--offsets",
}
NO_OPTION = {
    "max_decompressed_bytes": "the limit of kts.scan in Python",
    "log_start_offset": "kts.scan in Python",
}
TYPED_TIMES = "kts.typed_times"  # in a context's meta: (option, ms, text) of each time on the command line

EXPANDED = "kts.expanded"  # in a context's meta: one record a block

SPACE = 2  # between two columns
LINE_OF_A_PIPE = 1000
_BREAKS = re.compile(r"(?<=[ /])|(?<=[0-9]T)(?=[0-9])")
LEAST_SHOWN = 12  # characters of a column that is cut


@contextmanager
def sink(path: str | None) -> Iterator[BinaryIO]:
    """A binary file to write to: stdout for None and ``-``, else a temporary file, renamed to ``path`` at the end.

    Notes
    -----
    After any error, Ctrl-C included, ``path`` is unchanged and the temporary file is removed. A device or a named pipe
    cannot be replaced and is written directly.
    """
    if path is None or path == "-":
        yield cast(BinaryIO, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    require_local(path, "-o")
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise click.BadParameter(f"{path} is a directory; name a file in it", param_hint="'-o'")
    direct = os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode)
    aside = target if direct else f"{target}.{os.getpid()}.part"
    try:
        try:
            raw = FileIO(aside, "w" if direct else "x")
        except OSError as error:
            raise click.BadParameter(f"cannot write {path}: {error.strerror}", param_hint="'-o'") from error
        with BufferedWriter(raw, 1 << 20) as file:
            yield cast(BinaryIO, file)
        if not direct:
            if os.path.exists(target):
                os.chmod(aside, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(aside, target)
    except BaseException as error:
        if not direct:
            with suppress(OSError):
                os.unlink(aside)
        if isinstance(error, OSError) and error.filename is None:  # such as a full disk
            error.filename = path
        raise


def refuse_input(path: str | None, logs: Iterable[PartitionLog]) -> None:
    """Refuse an ``-o`` among the input: in a partition's directory, or one of the given segment files."""
    if path is None or path == "-":
        return
    from kts.store.addresses import real

    target = os.path.realpath(path)
    for log in logs:
        if log.lone:
            inside = target in [real(segment.path) for segment in log.segments]
        else:
            inside = os.path.dirname(target) == real(log.path)
        if inside:
            raise click.BadParameter(
                f"{path} is among the files of {log.topic}-{log.partition}, which are only read; name another",
                param_hint="'-o'",
            )


def target_directory(out: str, log: PartitionLog) -> str:
    """Where to write a partition's new files: a directory with its name; for segment files, ``out`` itself."""
    return out if log.lone else os.path.join(out, os.path.basename(os.path.abspath(log.path)))


def refuse_terminal(path: str | None, what: str) -> None:
    """Keep binary output off a terminal."""
    if path in (None, "-") and sys.stdout.isatty():
        raise click.UsageError(f"{what} is binary and stdout is a terminal: name a file with -o, or pipe it")


def print_json(value: Any) -> None:
    """One line of compact JSON."""
    print_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def print_line(text: str) -> None:
    """A line on stdout, in place of the progress bar; one line on a terminal, whatever a name in it holds."""
    clear_progress()
    click.echo(harmless(text, one_line=True) if sys.stdout.isatty() else text)


def expand_option(function: Any) -> Any:
    """``--expand``, for commands that print tables."""

    def remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.meta[EXPANDED] = value

    words = "Tables as one record a block, with nothing cut, as psql's \\x."
    return click.option("-x", "--expand", is_flag=True, expose_value=False, callback=remember, help=words)(function)


def expanded() -> bool:
    """True if the user wants one record a block."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(EXPANDED))


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = (), shrink: Sequence[int] = ()
) -> None:
    """Print a table: bold names over a line on a terminal, plain aligned columns in a pipe, blocks with ``--expand``.

    Parameters
    ----------
    right : sequence of int
        Columns to align right. Their values are never wrapped.
    shrink : sequence of int
        Columns that may be cut if the terminal is too narrow. The others are wrapped; if that is not enough, the rows
        become blocks.
    """
    clear_progress()
    terminal = sys.stdout.isatty()
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if terminal:
        cells = [[harmless(cell, one_line=True) for cell in row] for row in cells]
    widths = fitted(headers, cells, right, shrink) if terminal else natural_widths(headers, cells)
    if expanded() or widths is None:
        click.echo("".join(blocks(headers, cells)), nl=False)
        return
    for row in cells:
        for column in shrink:
            if width_of(row[column]) > widths[column]:
                row[column] = cut_to(row[column], widths[column] - 1) + "…"
    head = [line.rstrip() + "\n" for line in aligned(headers, widths, right)]
    body = [line.rstrip() + "\n" for row in cells for line in aligned(row, widths, right)]
    if not terminal:
        click.echo("".join(head + body), nl=False)
        return
    rule = "─" * (sum(widths) + SPACE * (len(widths) - 1)) + "\n"
    styled = os.environ.get("TERM") not in (None, "dumb", "unknown")
    head = [click.style(f" {line}", bold=True) if styled else f" {line}" for line in head]
    text = "".join(["\n", *head, *(f" {line}" for line in [rule, *body]), "\n"])
    if styled:
        unshielded(sys.stdout).write(text)
    else:
        click.echo(text, nl=False)


def fitted(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], shrink: Sequence[int]
) -> list[int] | None:
    """The widths of columns in a table that fits the terminal; None if there are none."""
    widths = natural_widths(headers, rows)

    def excess() -> int:
        return 1 + sum(widths) + SPACE * (len(widths) - 1) - get_terminal_size().columns

    for column in sorted(shrink, key=lambda column: -widths[column]):
        if excess() > 0:
            widths[column] = max(min(LEAST_SHOWN, widths[column]), widths[column] - excess())
    least = list(widths)
    for column in set(range(len(widths))).difference(shrink):
        cells = [row[column] for row in rows]
        pieces = [*pieces_of(headers[column]), *(cells if column in right else chain(*map(pieces_of, cells)))]
        least[column] = max(width_of(piece.rstrip()) for piece in pieces)
    for _ in range(max(excess(), 0)):
        widest = max(range(len(widths)), key=lambda column: (widths[column] > least[column], widths[column]))
        widths[widest] -= widths[widest] > least[widest]
    return None if excess() > 0 else widths


def natural_widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The widths of columns that show everything in one line a row."""
    return [max(map(width_of, column)) for column in zip(headers, *rows, strict=True)]


def room_beside(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The characters that a terminal has left for one more column; many in a pipe."""
    if not sys.stdout.isatty():
        return LINE_OF_A_PIPE
    taken = sum(natural_widths(headers, rows)) + SPACE * len(headers)
    return get_terminal_size().columns - taken - 1


def aligned(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    """The lines of a row of a table: several if a cell is wrapped."""
    columns = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for line in range(max(map(len, columns))):
        cells = [column[line] if line < len(column) else "" for column in columns]
        pads = [" " * (width - width_of(cell)) for cell, width in zip(cells, widths, strict=True)]
        yield (" " * SPACE).join(
            pad + cell if n in right else cell + pad for n, (cell, pad) in enumerate(zip(cells, pads, strict=True))
        )


def wrapped(cell: str, width: int) -> list[str]:
    """A text in lines of at most a width, broken after spaces, slashes and the T of a time."""
    if width_of(cell) <= width:
        return [cell]
    lines = [""]
    for piece in pieces_of(cell):
        if lines[-1] and width_of((lines[-1] + piece).rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece
    return [*lines[:-1], lines[-1].rstrip()]


def pieces_of(cell: str) -> list[str]:
    """A text cut at the places where it may be broken."""
    return _BREAKS.split(cell)


def blocks(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Each row as a block with a line a column, as psql's expanded display."""
    width = max(map(width_of, headers))
    for number, row in enumerate(rows, start=1):
        title = f"-[ RECORD {number} ]"
        yield title.ljust(width + 1, "-") + "-" * 12 + "\n"
        for name, cell in zip(headers, row, strict=True):
            yield f"{name}{' ' * (width - width_of(name))} | {cell}".rstrip() + "\n"


def width_of(cell: str) -> int:
    """Columns that a text takes on a terminal."""
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def cut_to(cell: str, width: int) -> str:
    """A text cut to so many columns."""
    from rich.cells import set_cell_size

    return set_cell_size(cell, width)


def note(message: str) -> None:
    """Print a line on stderr, apart from the data on stdout. The command continues if stderr is closed."""
    clear_progress()
    with suppress(BrokenPipeError):
        text = in_options(message)
        click.echo(harmless(text, one_line=True) if sys.stderr.isatty() else text, err=True)


def in_options(message: str) -> str:
    """A library message with the command's option names for arguments, and times as the user typed them."""
    context = click.get_current_context(silent=True)
    command = None if context is None else context.command
    if context is not None and isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    if context is None or command is None:
        return message
    own = {str(param.name): max(param.opts, key=len) for param in command.params if isinstance(param, click.Option)}
    known = {name: option for name, option in OPTION_NAMES.items() if option in own.values()}
    names, first_words = NO_OPTION | known | own, {"path": "PATH"} | own
    # Not in quotes or paths: there the word is the user's.
    inside = "|".join(name for name in names if "_" in name)
    message = re.sub(rf"(?<![\w/'\".-])({inside})(?![\w/'\"-])", lambda found: names[found[0]], message)
    message = re.sub(r"\A[a-z]+(?=: )", lambda found: first_words.get(found[0], found[0]), message)
    for option, ms, text in context.meta.get(TYPED_TIMES, ()):
        for between in (" ", ": "):
            message = re.sub(rf"{option}{between}{ms}\b", f"{option}{between}{text}".replace("\\", r"\\"), message)
    return message


def say(message: str, code: int) -> int:
    """Print an error on stderr and return the exit code."""
    note(f"kts: {message}")
    return code


def spelled(error: OSError) -> str:
    """An operating system error as a sentence that names the file."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def remark(message: str) -> None:
    """Print a line on stderr if that is a terminal."""
    if sys.stderr.isatty():
        note(message)


_shown: list[Any] = []  # the progress bar that is on the screen, a rich Progress
BETWEEN_REFRESHES_S = 0.1


def clear_progress() -> None:
    """Take the progress bar off the screen; the next step draws it again."""
    for bar in _shown:
        bar.stop()
    _shown.clear()


@contextmanager
def progress(
    what: str, total: int | None, *, quiet: bool = False, sizes: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr if that is a terminal; yields the function that advances it.

    Parameters
    ----------
    total : int, optional
        Bytes (``sizes``) or records; None when unknown.

    Notes
    -----
    There is no bar if stdout is a pipe: its reader may be a pager, which has the terminal for itself.
    """
    if quiet or not sys.stderr.isatty() or is_pipe(sys.stdout):
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    amounts: ProgressColumn = DownloadColumn(binary_units=True) if sizes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amounts, TimeRemainingColumn())
    # Without a thread, which would draw between the lines that are printed, and without taking stdout over.
    console = Console(file=unshielded(sys.stderr))
    bar = Progress(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    task = bar.add_task(what, total=total)
    drawn = 0.0

    def advance(amount: int) -> None:
        nonlocal drawn
        bar.advance(task, amount)
        if time.monotonic() >= drawn + BETWEEN_REFRESHES_S:
            drawn = time.monotonic()
            if not _shown:
                bar.start()
                _shown.append(bar)
            bar.refresh()

    try:
        advance(0)
        yield advance
    finally:
        clear_progress()


def is_pipe(stream: TextIO) -> bool:
    """True if a stream is a pipe."""
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counted(count: int, thing: str) -> str:
    """``1 batch``, ``1,234 batches``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}{'es' if thing.endswith('ch') else 's'}"


def show_bytes(size: int) -> str:
    """A size such as ``1.5 MiB``."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


# --- what a terminal may be sent ---------------------------------------------------------------


# Control characters, also U+0080 to U+009F, which are escape sequences in one character; format characters that change
# the direction of text, or join or tag characters unseen; separators of lines and paragraphs; half surrogates, which
# stand for bytes of a file name that are no text.
STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MAYBE_STEERING = re.compile("[^\n -~]+")


def harmless(text: str, *, one_line: bool = False) -> str:
    r"""The text with what steers a terminal escaped, such as ``\u001b``; inside JSON strings this means the same."""

    def spelled_out(found: re.Match[str]) -> str:
        run = found[0]
        return run if run.isprintable() else "".join(map(_spelled_out, run))

    text = _MAYBE_STEERING.sub(spelled_out, text)
    return text.replace("\n", "\\u000a") if one_line else text


def _spelled_out(char: str) -> str:
    if char.isprintable() or category(char) not in STEERING:
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class _Bytes(RawIOBase):
    """The ``buffer`` of a shielded stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(harmless(self._decoder.decode(bytes(data))))
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._stream.write(harmless(self._decoder.decode(b"", final=True)))
        self._stream.flush()


class Shielded:
    """A terminal's stream that escapes what steers it; ``unshielded`` is for progress bars and bold text."""

    def __init__(self, stream: TextIO) -> None:
        self.unshielded = stream
        self.buffer = _Bytes(stream)

    def write(self, text: str) -> int:
        return self.unshielded.write(harmless(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unshielded, name)


def shielded(stream: TextIO) -> TextIO:
    """Shield a terminal's stream; files and pipes get the bytes unchanged."""
    return cast(TextIO, Shielded(stream)) if stream.isatty() else stream


def unshielded(stream: TextIO) -> TextIO:
    """The stream without its shield."""
    return stream.unshielded if isinstance(stream, Shielded) else stream


# --- keys and values that are not text ------------------------------------------------------------


class NotTextError(ValueError):
    """A value is not UTF-8, or not JSON; ``row`` is its row in the column ``column``."""

    def __init__(self, column: str, row: int, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.row = row


@contextmanager
def naming_the_record(batch: Any) -> Iterator[None]:
    """Make errors about values that are no text name the record and the option to use instead."""
    try:
        yield
    except NotTextError as error:
        names, row = batch.schema.names, error.row
        where = "a record" if "offset" not in names else f"the record at offset {batch['offset'][row].as_py()}"
        if "topic" in names and "partition" in names:
            where += f" of {batch['topic'][row].as_py()}-{batch['partition'][row].as_py()}"
        advice = f"use --{error.column}s base64 or hex, which lose nothing, or auto"
        message = f"the {error.column} of {where} {error}: {advice}"
        raise NotTextError(error.column, row, message) from None
