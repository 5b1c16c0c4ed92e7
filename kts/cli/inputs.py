"""The inputs of commands: paths and filters, topic settings, and the logs they open."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from kts.arguments import INT64_MAX
from kts.behaviour import DEFAULT, GENERATIONS, Behaviour
from kts.config import FORMAT_OF_MAGIC, LogConfig
from kts.dataset.options import LogOptions, ScanOptions
from kts.errors import KtsError, LogLockedError, UnknownTopicOrPartitionError
from kts.options import Bytes, Choice, FilePath, Flag, Moment, Number, Option, Several, options_of
from kts.store.addresses import has_pattern, require_local
from kts.store.source import Source, source_of

from .output import FINE, UNREADABLE, note, say, spelled
from .times import resolve

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.log.log import Log

ENCODINGS = ("base64", "utf8", "hex")  # of keys and values in text
_SIZE = re.compile(r"(?P<number>-?[0-9]+(\.[0-9]+)?) ?(?P<unit>[A-Za-z]*)")
SIZE_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    SIZE_UNITS |= {_prefix: 1024**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}b": 1000**_power}
SIZE_WORDS = "k, KiB, M, MiB, G, GiB, T and TiB count in 1024; kB, MB, GB and TB in 1000"
# In a context's meta:
RECURSIVE, STORAGE_OPTIONS, REMOTE, IN_PLACE = "kts.recursive", "kts.storage_options", "kts.remote", "kts.in_place"


class Size(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases
    """A number of bytes, also as ``100k`` or ``1GiB``."""

    name = "SIZE"

    def __init__(self, lowest: int = 0, highest: int = INT64_MAX) -> None:
        self.lowest, self.highest = lowest, highest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _SIZE.fullmatch(str(value).strip())
        unit = found and SIZE_UNITS.get(found["unit"].lower())
        if found is None or unit is None:
            self.fail(f"expected a size such as 65536, 100k or 1GiB, found {value!r}; {SIZE_WORDS}", param, ctx)
        size = int(Fraction(found["number"]) * unit)
        if not self.lowest <= size <= self.highest:
            self.fail(f"expected {self.lowest} to {self.highest} bytes, found {value}", param, ctx)
        return size


def declared(owner: type, *names: str) -> Callable[[Any], Any]:
    """The options of a command that a class declares: all that the command line has, or those of these names."""
    chosen = [one for one in options_of(owner).values() if (one.name in names if names else one.command)]

    def decorate(function: Any) -> Any:
        for one in reversed(chosen):
            function = declared_option(one)(function)
        return function

    return decorate


def declared_option(one: Option, **more: Any) -> Callable[[Any], Any]:
    """An option of a command as it is declared."""
    flag, how = one.flag, dict[str, Any](metavar=one.kind.metavar)
    shown = "" if one.default is None else f" Default {one.default}."
    match one.kind:
        case Flag():
            flag = f"{flag}/--no-{flag[2:]}" if one.default else flag
            how, shown = how | {"is_flag": True, "default": None if one.default else False}, ""
        case Choice(choices=choices):
            how |= {"type": click.Choice(choices), "default": one.default}
        case Bytes(lowest=lowest):
            how, shown = how | {"type": Size(lowest)}, f" Default {one.default >> 20}MiB."
        case Number(lowest=lowest, highest=highest):
            how["type"] = click.IntRange(lowest, None if highest == INT64_MAX else highest)
        case Several(of=of):
            how, shown = how | {"multiple": True, "type": click.IntRange(0) if of is int else None}, " Repeatable."
        case FilePath():
            how["type"] = click.Path()
    return click.option(flag, one.name, help=one.doc.replace("``", "") + shown, **how | more)


def paths_argument(function: Any) -> Any:
    """One or more paths, ``--recursive``, which replaces each by the log directories in it, and how to reach them."""
    return _paths(storage_options_option(function), gone_down)


def tiered_paths_argument(function: Any) -> Any:
    """As ``paths_argument``, for commands that also read tiered storage, which may be all that they read."""

    def given(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value and not ctx.resilient_parsing and "remote" not in ctx.meta.get(REMOTE, {}):
            raise click.MissingParameter(ctx=ctx, param=param)
        return gone_down(ctx, param, value)

    return _paths(storage_options_option(remote_options(function)), given, required=False)


def _paths(function: Any, callback: Callable[..., tuple[str, ...]], required: bool = True) -> Any:
    recursive = click.option(
        "-r", "--recursive", is_flag=True, is_eager=True, expose_value=False, callback=remember_recursive,
        help="Also read the log directories inside of PATH, at any depth.",
    )  # fmt: skip
    paths = click.argument(
        "paths", metavar="PATH...", nargs=-1, required=required, type=click.Path(), callback=callback
    )
    return paths(recursive(function))


def remote_options(function: Any) -> Any:
    """The options about tiered storage, which ``open_logs`` takes."""
    from kts.remote.layouts import LAYOUTS

    def option(*names: str, **how: Any) -> Any:
        return click.option(*names, is_eager=True, expose_value=False, callback=remember_remote, **how)

    metadata = option(
        "--remote-metadata", metavar="DIR", type=click.Path(),
        help="A log directory with __remote_log_metadata-N. Default: beside the partitions.",
    )  # fmt: skip
    layout = option("--remote-layout", type=click.Choice(LAYOUTS), help="Whose layout the store has. Default auto.")
    key = option(
        "--remote-key", metavar="ID=FILE", multiple=True,
        help="The private key (PEM) of a key pair, for encrypted segments; repeatable.",
    )  # fmt: skip
    remote = declared_option(
        options_of(LogOptions)["remote"],
        is_eager=True, expose_value=False, callback=remember_remote,
    )  # fmt: skip
    return remote(key(layout(metadata(function))))


def remember_remote(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep the options about tiered storage for ``open_logs``."""
    if not value:
        return
    given = ctx.meta.setdefault(REMOTE, {})
    if param.name != "remote_key":
        given[param.name] = value
        return
    given[param.name] = {}
    for text in value:
        key_id, equals, path = text.partition("=")
        if not equals or not key_id or not path:
            raise click.BadParameter(f"expected ID=FILE, found {text!r}")
        given[param.name][key_id] = path


def reached_by_context() -> dict[str, Any]:
    """``storage_options``, ``remote`` and ``remote_options`` of ``kts.open``, as the command line has them."""
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.meta.get(REMOTE, {})
    storage = {"storage_options": storage_options_of_context()}
    if not given:
        return storage
    if "remote" not in given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given))
        raise click.UsageError(f"{named}: give --remote URI as well, which names the tiered storage")
    names = {"remote_key": "private_keys", "remote_layout": "layout", "remote_metadata": "metadata"}
    options = {name: given[option] for option, name in names.items() if option in given}
    return storage | {"remote": given["remote"], "remote_options": options}


def storage_options_option(function: Any) -> Any:
    """``--storage-options``, which ``open_logs`` takes."""
    return declared_option(
        options_of(LogOptions)["storage_options"],
        is_eager=True, expose_value=False, callback=remember_storage_options,
    )(function)  # fmt: skip


def remember_storage_options(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep the options for ``paths_of``."""
    if value is None:
        return
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise click.BadParameter(f'expected a JSON object such as {{"region": "eu-west-1"}}, found {value}')
    ctx.meta[STORAGE_OPTIONS] = given


def remember_recursive(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Keep the flag for ``gone_down``."""
    ctx.meta[RECURSIVE] = value


def gone_down(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The paths as given, or with ``--recursive`` the log directories in them."""
    if ctx.resilient_parsing:
        return value
    if ctx.meta.get(IN_PLACE):
        for path in value:
            require_local(path, "--in-place")
    if any("://" in path for path in value):  # also for what is not opened by open_logs
        value = tuple(existing_paths(value))
    if not ctx.meta.get(RECURSIVE):
        return value
    from kts.dataset.paths import log_directories
    from kts.store.addresses import real

    found = list[str]()
    for path in value:
        source = source_named(path)
        found += log_directories(path, source=source) if source.directory_exists(path) else [path]
    if not found:
        raise UnknownTopicOrPartitionError(
            f"no partition directories (such as orders-0) in or below {', '.join(value)}"
        )
    return tuple({real(path): path for path in found}.values())


def local_directory(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an address for what is written; eager, so that nothing is asked before."""
    if value is not None:
        require_local(value, param.opts[-1])
    return value


def out_option(text: str) -> Callable[[Any], Any]:
    """``-o/--out DIR``: a directory on this machine."""
    return click.option(
        "-o", "--out", metavar="DIR", type=click.Path(), is_eager=True, callback=local_directory, help=text
    )


def remember_in_place(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Keep the flag for ``gone_down``."""
    ctx.meta[IN_PLACE] = value
    return value


def storage_options_of_context() -> dict[str, Any] | None:
    """``--storage-options`` of the command line."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(STORAGE_OPTIONS)


def source_named(path: str) -> Source:
    """The source of a path of the command line."""
    return source_of(path, storage_options_of_context())


def existing_paths(paths: Sequence[str]) -> list[str]:
    """What paths, addresses and patterns mean; one that is not there is a usage error."""
    from kts.dataset.paths import paths_of

    try:
        return paths_of(paths, storage_options_of_context())
    except FileNotFoundError as error:
        why = str(error.strerror) if has_pattern(str(error.filename)) else "no such file or directory"
        raise click.UsageError(f"{error.filename}: {why}; expected a partition, .log or log directory") from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def index_options(function: Any) -> Any:
    """The two topic settings that decide the entries of indexes, for commands that write indexes."""
    interval = click.option(
        "--index-interval-bytes",
        type=Size(0),
        default=LogConfig.index_interval_bytes,
        show_default=True,
        help="The topic's index.interval.bytes.",
    )
    most = click.option(
        "--segment-index-bytes",
        type=Size(4),
        default=LogConfig.segment_index_bytes,
        show_default=True,
        help="The topic's segment.index.bytes.",
    )
    return interval(most(function))


def negative_times_options(function: Any) -> Any:
    """The two options about timestamps before 1970, for commands that compare indexes with logs."""
    allow = click.option(
        "--allow-negative-timestamps", is_flag=True, help="Timestamps before 1970 count; only -1 means none."
    )
    minus_one = click.option(
        "--minus-one-is-a-time", is_flag=True, help="The same, and -1 is 1969-12-31T23:59:59.999Z."
    )
    return allow(minus_one(function))


filter_options = declared(LogOptions, "topics", "partitions")
on_error_option = declared(ScanOptions, "on_error")
unit_option = declared(ScanOptions, "unit")
now_option = click.option("--now", metavar="TIME", help="The base of times such as -1h. Default: now.")


def time_options(function: Any) -> Any:
    """``--unit`` and ``--now``, for every command that takes a time."""
    return unit_option(now_option(function))


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for programs.")


def exact_range(asked: Mapping[str, Any]) -> None:
    """Refuse options about an exact range of times without its times."""
    strict, end = asked["strict_time_range"], asked["ending_timestamp"]
    if strict is not None and end is None and asked["starting_timestamp"] is None:
        raise click.UsageError(f"--{'' if strict else 'no-'}strict needs --from or --to")
    if asked["allowed_lateness"] is not None and (end is None or strict is False):
        raise click.UsageError("--allowed-lateness is about the end of an exact range: give --to, without --no-strict")


def given_options(owner: type, asked: Mapping[str, Any], now: str | None) -> dict[str, Any]:
    """What the command line gives of the options that a class declares, with times in ms."""
    found = {name: asked[name] for name in options_of(owner) if asked.get(name) not in (None, ())}
    for name, one in options_of(owner).items():
        if isinstance(one.kind, Moment) and name in found:
            found[name] = resolve(found[name], one.flag, asked["unit"], now)
    return found | {"unit": "ms"}  # of these times, whose integers were checked


def open_logs(
    paths: Sequence[str],
    *,
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    internal: bool = True,
    decoder: str | None = None,
    reaches_more: bool = False,
) -> list[PartitionLog]:
    """Every partition under the paths, by topic and partition; several log directories count as one.

    Parameters
    ----------
    internal : bool
        False leaves Kafka's internal topics out of log directories, unless they are named.
    decoder : str, optional
        As for ``kts.scan``.
    reaches_more : bool
        As for ``LogOptions``.

    Raises
    ------
    click.UsageError
        No such path, no partitions, or a file that is no segment.
    UnknownTopicOrPartitionError
        A topic or partition of a filter does not exist.
    """
    from kts.dataset.paths import NoPartitionsError, log_dirs_at, select

    paths, reached = existing_paths(paths) if paths else [], reached_by_context()
    try:
        opened = log_dirs_at(paths or None, reaches_more=reaches_more, **reached)
    except ValueError as error:  # a file that is no segment
        raise click.UsageError(str(error)) from error
    except NoPartitionsError as error:
        found = f"no partition directories (such as orders-0) in {', '.join(paths)}{where_to_look(paths)}"
        raise click.UsageError(found) from error
    except FileNotFoundError as error:  # of the tiered storage
        raise click.UsageError(spelled(error)) from error
    paths = paths or [reached["remote"]]
    chosen: dict[str, Any] = {"topics": topics or None, "partitions": partitions or None}
    return select(opened, paths, **chosen, internal=internal, decoder=decoder)


def where_to_look(paths: Sequence[str]) -> str:
    """A hint at the log directories below the given ones, if there may be any."""
    from kts.dataset.paths import one_level_down

    hint = one_level_down(paths, storage_options_of_context())
    if hint:
        return f"{hint}, or add --recursive"
    folders = any(names for path in paths for _, names, _ in islice(os.walk(path), 1))
    return "; --recursive looks at any depth" * folders


def log_bytes(logs: Iterable[PartitionLog]) -> int:
    """The length of all ``.log`` files."""
    from kts.segment.rereading import settled

    def bytes_of(log: PartitionLog) -> int:
        return sum(segment.size_bytes for segment in log.segments)

    return sum(settled(partial(bytes_of, log)) for log in logs)


def rows_of(
    logs: Iterable[PartitionLog], read: Callable[[PartitionLog], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], int]:
    """The rows of all logs, and the exit code. A damaged log is left out, with an error on stderr."""
    from kts.segment.rereading import settled

    rows, code = list[dict[str, Any]](), FINE
    for log in logs:
        try:
            rows += settled(partial(read, log))
        except KtsError as error:
            code = say(f"{log.topic}-{log.partition} is left out: {error}", UNREADABLE)
    return rows, code


# --- logs that are written ---------------------------------------------------------------------


directory_argument = click.argument("directory", metavar="DIR", type=click.Path())
config_option = click.option(
    "--config", "settings", metavar="KEY=VALUE", multiple=True, help="A topic setting by Kafka's name; repeatable."
)


INDEX_PROPOSALS = ("bucket-index", "minute-map")
PROPOSALS = ("wall-clock", "largest-timestamp", "earliest-timestamp", *INDEX_PROPOSALS, "monotonic-append-time")
proposal_option = click.option(
    "--proposal",
    "proposals",
    metavar="NAME",
    type=click.Choice(PROPOSALS),
    multiple=True,
    help=f"Follow a proposal's rule: {', '.join(PROPOSALS)}; repeatable.",
)


shipped_option = click.option(
    "--shipped", is_flag=True, help="Exactly as the Kafka release, also where kts differs from it."
)


release_option = click.option(
    "--release",
    type=click.Choice(GENERATIONS),
    help="Follow the rules and settings of this release of Kafka, as --release 4.3.",
)


def with_proposals(settings: tuple[str, ...], proposals: Sequence[str], key: str = "proposals") -> tuple[str, ...]:
    """The settings, with ``--proposal`` as one of them."""
    names = [text.partition("=")[0].strip() for text in settings]
    given = [name for name in names if name in ("proposals", "log.proposals")]
    if proposals and given:
        raise click.UsageError(f"expected --proposal NAME or --config {given[0]}=NAME, found both; leave out one")
    return (*settings, f"{key}={','.join(proposals)}") if proposals else settings


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """``key=value`` strings as a mapping."""
    parsed = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"expected KEY=VALUE, found {text!r}", param_hint="'--config'")
        parsed[key.strip()] = value.strip()
    return parsed


def make_config(settings: Sequence[str], directory: str, release: str | None = None) -> LogConfig:
    """The topic's settings. Without a setting, the message format is that of the partition, if the release has it."""
    parsed = parse_settings(settings)
    behaviour = Behaviour.of(release or DEFAULT.release)
    if not {"message.format.version", "log.message.format.version"} & {*parsed, *behaviour.unknown_settings}:
        magic = newest_magic(directory)
        if magic is not None and magic < behaviour.greatest_magic:
            parsed["message.format.version"] = FORMAT_OF_MAGIC[magic]
    return config_of(parsed, release)


def config_of(settings: dict[str, str], release: str | None = None) -> LogConfig:
    """The topic's settings; a wrong one is a usage error."""
    try:
        return LogConfig.of(settings, release=release)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--config'") from error


def newest_magic(directory: str) -> int | None:
    """The magic of the first batch in the last segment with batches; None if there is none."""
    if not os.path.isdir(directory):
        return None
    for segment in reversed(partition(directory).segments):
        for batches in segment.batches(0, None, 1 << 12):
            return int(batches.column("magic")[0])
    return None


def partition(directory: str) -> PartitionLog:
    """One partition directory, read-only; anything else is a usage error."""
    logs = open_logs([directory])
    if len(logs) != 1 or logs[0].lone or os.path.abspath(logs[0].path) != os.path.abspath(directory):
        raise click.UsageError(f"expected one partition directory (such as orders-0), found {directory}")
    return logs[0]


@contextmanager
def writable_log(
    directory: str,
    config: LogConfig | None = None,
    *,
    create: bool = False,
    shipped: bool = False,
    clock: Callable[[], int] | None = None,
) -> Iterator[Log]:
    """The log opened for writing, closed at the end.

    Raises
    ------
    LogLockedError
        A broker or another program holds the lock; the message says what to do.
    """
    from kts.log.log import Log

    named: dict[str, Any] = {"create": create, "shipped": shipped}
    if clock is not None:
        named["clock"] = clock
    with advice_on_locks():
        log = Log(directory, config, **named)
    say_what_was_recovered(log)
    with log:
        yield log


@contextmanager
def advice_on_locks() -> Iterator[None]:
    """Add advice to an error about a lock, and make a wrong directory name a usage error."""
    try:
        yield
    except LogLockedError as error:
        advice = "stop the broker (or the other program) first, or work on a copy of the log directory"
        raise LogLockedError(f"{error.message}: {advice}", path=error.path) from error
    except ValueError as error:  # not a partition's name
        raise click.UsageError(str(error)) from error


def say_what_was_recovered(log: Log) -> None:
    """Report what recovery cut, removed or rebuilt."""
    from kts.log.directory import CHECKPOINTS

    for found in log.recovered:
        if os.path.basename(found.path) not in CHECKPOINTS:  # of which a warning tells
            note(f"at start-up, {found}")
