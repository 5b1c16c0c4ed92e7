"""Open, select and scan the partitions under a path."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, overload

from kts.arguments import suggestion
from kts.codec.layout import HEADER_BYTES, read_header
from kts.dataset import scan as scanning
from kts.dataset.decoders import DECODERS
from kts.dataset.options import LogOptions, LogStartOffsets, Path, PathScanOptions, ScanOptions, flat_offsets
from kts.dataset.partition import LogDirs, PartitionLog
from kts.errors import KtsError, LogStorageError, UnknownTopicOrPartitionError
from kts.options import takes_only
from kts.segment.checkpoints import Checkpoints
from kts.segment.names import (
    INTERNAL_TOPICS,
    LOG_DIRECTORY_FILES,
    META_PROPERTIES,
    is_partition_file,
    parse_directory_name,
    parse_file_name,
    partition_of_file,
)
from kts.segment.rereading import warn
from kts.store import addresses
from kts.store.addresses import RemoteOptions, StorageOptions
from kts.store.expanded import without_compression
from kts.store.protocol import DirectoryEntry
from kts.store.source import Source, files, source_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kts.remote.tiers import Tier

MOST_HINTED = 3
NOT_IN_STORE = "the tiered storage has no partitions; a prefix of its keys (key.prefix) belongs to the name"


@overload
def open(  # type: ignore[overload-overlap]
    path: Path,
    *,
    log_start_offset: LogStartOffsets = None,
    storage_options: StorageOptions = None,
    remote: Path | None = None,
    remote_options: RemoteOptions = None,
) -> PartitionLog | LogDirs: ...
@overload
def open(
    path: Sequence[Path] | None,
    *,
    log_start_offset: LogStartOffsets = None,
    storage_options: StorageOptions = None,
    remote: Path | None = None,
    remote_options: RemoteOptions = None,
) -> LogDirs: ...
def open(
    path: Path | Sequence[Path] | None,
    *,
    log_start_offset: LogStartOffsets = None,
    storage_options: StorageOptions = None,
    remote: Path | None = None,
    remote_options: RemoteOptions = None,
) -> PartitionLog | LogDirs:
    """Open a partition directory or segment file as a ``PartitionLog``, log directories as ``LogDirs``; read-only.

    Parameters
    ----------
    path : path or list of paths
        A partition directory, a segment file with any name, a log directory, or a list of them (always ``LogDirs``).
        Also an address in a bucket (``s3://``, ``gs://``, ``abfss://``), ``hdfs://`` or ``file://``, and a pattern with
        ``*``, ``?`` or ``[...]`` (a list of what it matches). None is what ``remote`` holds, without a log directory.
    log_start_offset : int or mapping, optional
        The log start offset, if you know a later one than the files show: an int for one partition, otherwise
        {topic: {partition: offset}} or {(topic, partition): offset}.
    storage_options : dict, optional
        How to reach the bucket: arguments of its class in ``pyarrow.fs``, such as ``region`` or ``endpoint_override``.
        None is the first ones of a bucket in a process, or the usual environment. What is opened keeps its own.
    remote : path, optional
        The tiered storage (KIP-405) of these partitions: a path or address, with the prefix of the keys as it is. Its
        segments and those of the directory are read as one log.
    remote_options : dict, optional
        ``layout``: "local" (Kafka's LocalTieredStorage), "aiven" (Aiven's plugin) or "auto". ``private_keys``: by the
        id of the key pair, PEM or the path of a PEM file. ``metadata``: a log directory with
        ``__remote_log_metadata-N``; without it the one beside the partitions, and where there is none, the store
        alone tells which segments there are.

    Raises
    ------
    FileNotFoundError
        The path does not exist, or no partition lies there.

    Warns
    -----
    KtsWarning
        Of several paths, one holds no partition; or the same partition is in two of the directories, and the newer one
        is taken: see ``LogDirs``. Or ``storage_options`` are given, and no address of a bucket.

    Notes
    -----
    The files decide the type of the result. If you know it, use ``kts.open_partition`` or ``kts.open_log_dirs``: they
    check it, and a type checker knows it too.

    Examples
    --------
    >>> import kts
    >>> kts.open(["demo/orders", "demo/clicks"])["orders", 0].log_end_offset
    3042
    """
    paths = None if path is None else paths_of(path, storage_options)
    logs, is_log_directory = _found(paths, log_start_offset, storage_options, remote, remote_options)
    single = isinstance(path, (str, os.PathLike)) and not _is_pattern(*_door(path, storage_options))
    return LogDirs(logs, paths or ()) if is_log_directory or not single else logs[0]


def log_dirs_at(
    paths: Sequence[str] | None,
    *,
    log_start_offset: LogStartOffsets = None,
    storage_options: StorageOptions = None,
    remote: Path | None = None,
    remote_options: RemoteOptions = None,
    reaches_more: bool = False,
) -> LogDirs:
    """As ``open_log_dirs``, for what ``paths_of`` found; ``reaches_more`` is that of ``LogOptions``."""
    logs, _ = _found(paths, log_start_offset, storage_options, remote, remote_options, reaches_more)
    return LogDirs(logs, paths or ())


def log_dirs_in(path: str, source: Source) -> LogDirs:
    """The partitions of a log directory."""
    return LogDirs(_directory(path, source)[0], [path])


def _found(
    paths: Sequence[str] | None,
    log_start_offset: LogStartOffsets,
    storage_options: StorageOptions,
    remote: Path | None,
    remote_options: RemoteOptions,
    reaches_more: bool = False,
) -> tuple[list[PartitionLog], bool]:
    """The partitions, and whether they are those of a log directory."""
    if not reaches_more:
        _tell_unused(storage_options, [*(paths or ()), remote, *_metadata_of(remote_options)])
    if paths is None:
        logs, are_of_directory = _partitions_of(remote, remote_options, storage_options), True
    else:
        logs, are_of_directory = _partitions_in(paths, storage_options)
        logs = _with_remote(logs, paths, remote, remote_options, storage_options)
    if not logs:
        if paths is None:
            raise FileNotFoundError(errno.ENOENT, NOT_IN_STORE, os.fspath(remote or ""))
        raise _nothing_in(paths, storage_options)
    _give_start_offsets(logs, log_start_offset)
    return logs, are_of_directory


def _tell_unused(storage_options: StorageOptions, named: Sequence[Path | None]) -> None:
    """Warn of storage options that reach nothing."""
    if storage_options and not any(addresses.is_elsewhere(os.fspath(one)) for one in named if one is not None):
        warn("storage_options has no effect: it says how a bucket is reached, and no address of one is given", None)


def _metadata_of(remote_options: RemoteOptions) -> list[Path]:
    """Where the metadata topic of tiered storage lies, if that is named; what is no path is refused later."""
    named = remote_options.get("metadata") if isinstance(remote_options, Mapping) else None
    return [named] if isinstance(named, (str, os.PathLike)) else []


def tier_of(
    remote: Path,
    remote_options: RemoteOptions,
    storage_options: StorageOptions,
    directories: Sequence[tuple[str, Source]] = (),
) -> Tier:
    """Tiered storage as a user names it; errors as for ``kts.open``."""
    from kts.remote.tiers import Tier

    return Tier(*_named(remote, storage_options), remote_options, directories, storage_options)


def _partitions_of(
    remote: Path | None, remote_options: RemoteOptions, storage_options: StorageOptions
) -> list[PartitionLog]:
    """The partitions that tiered storage holds."""
    if remote is None:
        raise TypeError("path: expected a path, found None; without one, remote names the tiered storage to read")
    tier = tier_of(remote, remote_options, storage_options)
    return [
        PartitionLog(one.directory, one.of.topic, one.of.partition, remote=one, source=one) for one in tier.partitions()
    ]


def _with_remote(
    logs: list[PartitionLog],
    paths: Sequence[str],
    remote: Path | None,
    remote_options: RemoteOptions,
    storage_options: StorageOptions,
) -> list[PartitionLog]:
    """The partitions of directories, each with its segments in tiered storage."""
    if remote is None:
        if remote_options is not None:
            raise ValueError("remote_options: expected remote as well, which names the tiered storage")
        return logs
    from kts.remote.metadata import PartitionId
    from kts.remote.tiers import TieredPartition

    for log in logs:
        if log.lone:
            raise ValueError(f"remote: expected a partition or log directory, found the segment file {log.path}")
    named = [(path, source_of(path, storage_options)) for path in paths]
    beside = [(os.path.dirname(addresses.absolute(log.path)), log.source) for log in logs]
    tier = tier_of(remote, remote_options, storage_options, [*named, *beside])

    def joined(log: PartitionLog) -> PartitionLog:
        of = PartitionId(log.topic, log.topic_id or "", log.partition)
        tiered = None if log.topic in INTERNAL_TOPICS else TieredPartition(tier, of)
        beside = log._checkpoints
        return PartitionLog(log.path, log.topic, log.partition, checkpoints=beside, remote=tiered, source=log.source)

    return [joined(log) for log in logs]


open_path = open  # its name inside of kts


def open_partition(
    path: Path,
    *,
    log_start_offset: int | None = None,
    storage_options: StorageOptions = None,
    remote: Path | None = None,
    remote_options: RemoteOptions = None,
) -> PartitionLog:
    """Open a partition directory or a segment file, read-only.

    Parameters
    ----------
    path : path
        A partition directory, or a segment file with any name.
    log_start_offset : int, optional
        The log start offset, if you know a later one than the files show.
    storage_options, remote, remote_options
        As for ``kts.open``.

    Raises
    ------
    FileNotFoundError
        The path does not exist, or no partition lies there.
    ValueError
        It is a log directory, or a pattern.

    Examples
    --------
    >>> import kts
    >>> kts.open_partition("demo/orders/orders-0").offset_for_timestamp(1_788_300_000_000)
    TimestampOffset(timestamp_ms=1788300022077, offset=210)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path: expected a path, found {type(path).__name__}")
    paths = paths_of(path, storage_options)
    if _is_pattern(*_door(path, storage_options)):
        raise ValueError(f"path: expected one partition, found the pattern {os.fspath(path)}; use kts.open_log_dirs")
    logs, is_log_directory = _partitions_in(paths, storage_options)
    if not logs:
        raise _nothing_in(paths, storage_options)
    if is_log_directory:
        known = ", ".join(f"{log.topic}-{log.partition}" for log in logs[:3]) + ", ..." * (len(logs) > 3)
        raise ValueError(
            f"path: expected a partition directory or a segment file, found the log directory {os.fspath(path)}, "
            f"with {known}; open it with kts.open_log_dirs"
        )
    _tell_unused(storage_options, [*paths, remote, *_metadata_of(remote_options)])
    logs = _with_remote(logs, paths, remote, remote_options, storage_options)
    _give_start_offsets(logs, log_start_offset)
    return logs[0]


def open_log_dirs(
    path: Path | Sequence[Path] | None,
    *,
    log_start_offset: LogStartOffsets = None,
    storage_options: StorageOptions = None,
    remote: Path | None = None,
    remote_options: RemoteOptions = None,
) -> LogDirs:
    """Open one or several log directories as a mapping from (topic, partition) to ``PartitionLog``, read-only.

    Parameters
    ----------
    path : path or list of paths
        Log directories; a partition directory or a segment file among them is one more partition.
    log_start_offset, storage_options, remote, remote_options
        As for ``kts.open``.

    Raises
    ------
    FileNotFoundError
        A path does not exist, or no partition lies in any of them.

    Examples
    --------
    >>> import kts
    >>> for name, log in kts.open_log_dirs("demo/orders").items():
    ...     print(name, log.log_start_offset, log.log_end_offset)
    orders-0 0 3042
    orders-1 0 2952
    orders-2 0 3006
    """
    return log_dirs_at(
        None if path is None else paths_of(path, storage_options),
        log_start_offset=log_start_offset,
        storage_options=storage_options,
        remote=remote,
        remote_options=remote_options,
    )


def paths_of(path: Path | Sequence[Path], storage_options: StorageOptions = None) -> list[str]:
    """The paths that a caller means: patterns replaced by what they match, ``file://`` by paths of this machine.

    Parameters
    ----------
    storage_options
        How their buckets are reached: see ``kts.open``.

    Raises
    ------
    FileNotFoundError
        A path does not exist, or nothing matches a pattern.
    """
    if isinstance(path, (str, os.PathLike)):
        return _matching(path, storage_options)
    if not isinstance(path, Sequence) or isinstance(path, (bytes, bytearray, memoryview)):
        raise TypeError(f"path: expected a path or a list of paths, found {type(path).__name__}")
    if not path:
        raise ValueError("path: expected at least one path, found an empty list")
    return [found for one in path for found in _matching(one, storage_options)]


def one_path(path: Path, storage_options: StorageOptions = None) -> tuple[str, Source]:
    """A path that means one file or directory, and the source of its files; errors as for ``paths_of``."""
    _name(path)
    found = paths_of(path, storage_options)
    if len(found) != 1:
        raise ValueError(f"path: expected one directory, found {len(found)}: {', '.join(found[:MOST_HINTED])}")
    return found[0], source_of(found[0], storage_options)


def _door(path: object, storage_options: StorageOptions) -> tuple[str, Source]:
    """A path that a user names, and the source of its files."""
    name = addresses.plain(_name(path))
    return name, source_of(name, storage_options)


def _named(path: object, storage_options: StorageOptions) -> tuple[str, Source]:
    """As ``_door``, where the user sees what lies there now."""
    name, source = _door(path, storage_options)
    source.refresh()
    return name, source


def _is_pattern(path: str, source: Source) -> bool:
    return addresses.has_pattern(path) and not source.exists(path)


def _matching(path: object, storage_options: StorageOptions) -> list[str]:
    name, source = _named(path, storage_options)
    if not _is_pattern(name, source):
        return [_there(name, source)]
    found = [one for one in source.matching(name) if _may_be_meant(os.path.basename(one))]
    if not found:
        raise FileNotFoundError(errno.ENOENT, "nothing matches the pattern", name)
    readable = [one for one in found if not _passed_over(one, source)]
    if not readable:
        raise PermissionError(errno.EACCES, "nothing that matches the pattern can be read", name)
    return readable


def _may_be_meant(name: str) -> bool:
    """False for what lies beside partitions and segments: a pattern such as ``logs/*`` does not mean it."""
    file, directory = parse_file_name(without_compression(name)), parse_directory_name(name)
    if name in LOG_DIRECTORY_FILES or name.startswith("kts-") or (directory is not None and directory.state):
        return False
    return file.suffix == ".log" and not file.transition if file is not None else not is_partition_file(name)


def _passed_over(path: str, source: Source) -> bool:
    """Whether a directory of this machine that nobody named may not be read; that is told."""
    if source.is_here and source.directory_exists(path):
        try:
            next(source.walk_directory(path), None)
        except LogStorageError as error:
            if error.errno not in (errno.EACCES, errno.EPERM):
                raise
            warn(f"{path}: it cannot be read and is passed over: {error.message}", path)
            return True
    return False


def _partitions_in(paths: Sequence[str], storage_options: StorageOptions) -> tuple[list[PartitionLog], bool]:
    """The partitions that paths hold, and whether one of the paths is a log directory."""
    logs: list[PartitionLog] = []
    bare: list[str] = []
    lone: dict[tuple[str, str, int], list[str]] = {}
    has_log_directory = False
    for one in paths:
        source = source_of(one, storage_options)
        if not source.directory_exists(one):
            name = parse_file_name(os.path.basename(one))
            if name is not None and name.suffix != ".log":
                raise ValueError(
                    f"path: expected a directory or a .log file, found {one}, which holds no records; kts batches lists"
                    " its entries"
                )
            _check_segment(one, source)
            topic, partition = partition_of_file(one)
            lone.setdefault((os.path.dirname(addresses.absolute(one)), topic, partition), []).append(one)
            continue
        found, is_log_directory = _directory(one, source)
        logs += found
        bare += [] if found else [one]
        has_log_directory |= is_log_directory
    for (_, topic, partition), names in lone.items():
        source = source_of(names[0], storage_options)
        logs.append(PartitionLog(names[0], topic, partition, segment_paths=names, source=source))
    for one in bare if logs else ():
        if not any(entry.name in LOG_DIRECTORY_FILES for entry in source_of(one, storage_options).walk_directory(one)):
            hint = one_level_down([one], storage_options)
            warn(f"{one}: no partition directories (such as orders-0) in it{hint}", one)
    return logs, has_log_directory


def _check_segment(path: str, source: Source) -> None:
    """Refuse a file that is no segment by its name, and does not begin as one."""
    name = without_compression(os.path.basename(path))
    if name.endswith(".log") or parse_file_name(name) is not None:
        return
    with source.open_file(path) as file:
        try:
            found = "no whole batch or message" if read_header(file.read(0, HEADER_BYTES)) is None else ""
        except KtsError as error:
            found = f"no batch or message at its start: {error.message}"
        if found:
            raise ValueError(
                f"path: expected a directory or a segment file, found {path} of {file.size():,} bytes, which holds"
                f" {found}; a damaged segment is read under a name that ends in .log"
            )


class NoPartitionsError(FileNotFoundError):
    """Nothing under the given paths is a partition."""


def _nothing_in(paths: Sequence[str], storage_options: StorageOptions) -> NoPartitionsError:
    message = f"no partition directories (such as orders-0){one_level_down(paths, storage_options)}"
    return NoPartitionsError(errno.ENOENT, message, ", ".join(paths))


def _name(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path: expected str or os.PathLike, found {type(path).__name__}")
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"path: expected str, found {type(name).__name__}")
    return name


def _there(name: str, source: Source) -> str:
    """The path, if something lies there."""
    if not source.is_here:
        if not source.exists(name):
            raise FileNotFoundError(errno.ENOENT, "there is nothing at this address", name)
        return addresses.absolute(name)
    try:
        os.stat(name)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LogStorageError(f"opening failed: {error.strerror}", path=name, errno=error.errno) from error
    return name


def log_directories(path: str, depth: int | None = None, source: Source = files) -> list[str]:
    """The directories at or below a path that hold partitions, or are one, in name order; links are not followed.

    Parameters
    ----------
    depth : int, optional
        How many levels to go down. None is all.
    source : Source
        Where the path lies.
    """
    logs, is_log_directory = _directory(path, source)
    if not is_log_directory:
        return [path] if _has_partition_files(path, source) else []
    found = [path] if logs else []
    partitions = {log.path for log in logs}
    for entry in source.list_directory(path) if depth != 0 else ():
        name = parse_directory_name(entry.name)
        if entry.path in partitions or (name is not None and name.state) or entry.is_symlink():
            continue
        if source.is_directory(entry) and not _passed_over(entry.path, source):
            found += log_directories(entry.path, None if depth is None else depth - 1, source)
    return found


def one_level_down(paths: Sequence[str], storage_options: StorageOptions = None) -> str:
    """A hint, for paths without partitions, at the log directories in them; empty if there are none."""
    found: list[str] = []
    for path in paths:
        with suppress(KtsError, OSError):  # a hint is no reason to fail
            source = source_of(path, storage_options)
            found += log_directories(path, 1, source) if source.directory_exists(path) else []
    shown = ", ".join(found[:MOST_HINTED]) + ", ..." * (len(found) > MOST_HINTED)
    return f"; there are some in {shown}: name one of these" if found else ""


def _directory(path: str, source: Source) -> tuple[list[PartitionLog], bool]:
    """The partitions in a directory, and whether it is a log directory.

    Notes
    -----
    Where a broker's own files show that this is a log directory, every directory called topic-N is a partition, as at a
    broker's start. Elsewhere it must have a file that only partitions have. A path that is itself called topic-N may
    also be empty.
    """
    names = (parse_file_name(without_compression(entry.name)) for entry in source.walk_directory(path))
    is_partition = any(name is not None and name.suffix == ".log" for name in names)
    own = parse_directory_name(os.path.basename(addresses.absolute(path)))
    if is_partition and own is None:
        topic, partition = partition_of_file(os.path.join(path, "0.log"))
        return [PartitionLog(path, topic, partition, source=source)], False
    found, entries = list[PartitionLog](), list[DirectoryEntry]()
    beside = Checkpoints(addresses.absolute(path), source)
    if not is_partition:
        commits = beside.commits()
        entries = source.list_directory(path)
        while (now := beside.commits()) is not commits:
            commits, entries = now, source.list_directory(path)
        not_yet = {(one.topic, one.partition) for one in commits.pending if one.is_new}
        of_broker = any(entry.name in LOG_DIRECTORY_FILES for entry in entries)
        for entry in entries:
            inner = parse_directory_name(entry.name)
            if inner is None or inner.state:
                continue
            if not source.directory_exists(entry.path):
                if entry.is_symlink():
                    warn(f"{entry.path}: it is passed over: the link leads to no directory", entry.path)
                continue
            if inner[:2] in not_yet:
                continue
            if of_broker or _has_partition_files(entry.path, source):
                found.append(PartitionLog(entry.path, inner.topic, inner.partition, checkpoints=beside, source=source))
    if own is not None and not found and not source.exists(os.path.join(path, META_PROPERTIES)):
        is_partition = is_partition or not entries or _has_partition_files(path, source)
        if is_partition:
            return [PartitionLog(path, own.topic, own.partition, source=source)], False
    return found, True


def _has_partition_files(path: str, source: Source) -> bool:
    try:
        return any(is_partition_file(entry.name) for entry in source.walk_directory(path))
    except LogStorageError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return True  # whoever reads it gets the error
        if error.errno != errno.ENOENT:
            raise
        return False  # deleted meanwhile


def _give_start_offsets(logs: list[PartitionLog], given: LogStartOffsets) -> None:
    if given is None:
        return
    if isinstance(given, int) and not isinstance(given, bool):
        if len(logs) != 1:
            raise ValueError(
                f"log_start_offset: an int needs one partition, found {len(logs)}; use {{topic: {{partition: offset}}}}"
            )
        wanted = {(logs[0].topic, logs[0].partition): given}
    elif isinstance(given, Mapping):
        wanted = flat_offsets(given, "log_start_offset")
    else:
        raise TypeError(f"log_start_offset: expected an int or a mapping, found {type(given).__name__}")
    known = {(log.topic, log.partition): log for log in logs}
    for key, offset in wanted.items():
        if key not in known:
            raise UnknownTopicOrPartitionError(f"log_start_offset: no partition {key[0]}-{key[1]} in the given path")
        if offset < 0:
            raise ValueError(f"log_start_offset: expected 0 or more, found {offset}")
        known[key]._log_start_offset = offset


@takes_only(PathScanOptions)
def scan(asked: PathScanOptions) -> pa.RecordBatchReader:
    """The records of a partition, a segment file, or log directories, as a stream of Arrow batches.

    Returns
    -------
    pyarrow.RecordBatchReader
        Ordered by topic, partition, offset. Files are opened when reached; at most a few batches are in memory.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError, UnknownTopicOrPartitionError
        A wrong argument; raised at once.
    CorruptRecordError
        Damage; raised while reading, after the rows before it, with ``.path`` and ``.position``.

    Examples
    --------
    >>> import kts
    >>> orders = "demo/orders"
    >>> kts.scan(orders, partitions=[0], columns=["offset", "key"]).read_next_batch().slice(0, 2).to_pylist()
    [{'offset': 0, 'key': b'C0345'}, {'offset': 1, 'key': b'C0030'}]
    >>> kts.scan(orders, starting_timestamp=1_788_300_000_000, strict_time_range=True).read_all().num_rows
    8402
    """
    _, logs = selected(asked.path, asked, asked.log_start_offset, decoder=asked.decoder)
    check_named(asked, logs)
    return scanning.records(logs, asked)


def check_named(asked: ScanOptions, logs: Sequence[PartitionLog]) -> None:
    """Raise UnknownTopicOrPartitionError if offsets are given for a partition that is not read."""
    known = {(log.topic, log.partition) for log in logs}
    for name, offsets in (("starting_offsets", asked.starting_offsets), ("ending_offsets", asked.ending_offsets)):
        for topic, partition in offsets if isinstance(offsets, dict) else ():
            if (topic, partition) not in known:
                raise UnknownTopicOrPartitionError(f"{name}: {topic}-{partition} is not among what is read")


def selected(
    path: Path | Sequence[Path] | None,
    asked: LogOptions,
    log_start_offset: LogStartOffsets = None,
    *,
    internal: bool = False,
    decoder: str | None = None,
) -> tuple[LogDirs, list[PartitionLog]]:
    """The partitions under a path, and those of them that options select; see ``select``."""
    paths = None if path is None else paths_of(path, asked.storage_options)
    opened = log_dirs_at(
        paths,
        log_start_offset=log_start_offset,
        storage_options=asked.storage_options,
        remote=asked.remote,
        remote_options=asked.remote_options,
        reaches_more=asked.reaches_more,
    )
    shown = [os.fspath(asked.remote or "")] if paths is None else paths
    chosen = select(opened, shown, topics=asked.topics, partitions=asked.partitions, internal=internal, decoder=decoder)
    return opened, chosen


def select(
    opened: PartitionLog | LogDirs,
    path: Path | Sequence[Path],
    *,
    topics: Sequence[str] | str | None = None,
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    internal: bool = False,
    decoder: str | None = None,
) -> list[PartitionLog]:
    """Select opened partitions by topic and partition.

    Parameters
    ----------
    path : path or list of paths
        The opened path. A partition given by its own path does not count as internal.
    topics, partitions
        As for ``kts.scan``.
    internal : bool
        Include Kafka's internal topics, even if they are not named.
    decoder : str, optional
        Unless topics are named, only the topic that it decodes, and partitions given by their own path.

    Raises
    ------
    UnknownTopicOrPartitionError
        A named topic or partition does not exist, nothing matches a pattern, or all topics are internal ones.
    """
    names, wanted = named_topics(topics), numbers_of_partitions(partitions)
    paths = _listed(path)
    logs = [opened] if isinstance(opened, PartitionLog) else list(opened.values())
    own = {*paths, *(log.path for log in logs if log.lone)}
    known = sorted({log.topic for log in logs})
    if names is not None:
        names = [topic for name in names for topic in matching_topics(name, known, internal=internal) or [name]]
    named = {*(names or ()), *(wanted if isinstance(wanted, dict) else ())}
    for topic in sorted(named.difference(known)):
        hint = suggestion(topic, known) or f"there are {', '.join(known)}"
        what = f"no topic matches {topic}" if addresses.has_pattern(topic) else f"there is no topic {topic}"
        raise UnknownTopicOrPartitionError(f"{what} in {', '.join(paths)}; {hint}")
    if names is not None:
        logs = [log for log in logs if log.topic in names]
    elif decoder is not None and not named:
        only = DECODERS[decoder].topic
        logs = [log for log in logs if log.topic == only or log.path in own]
        if not logs:
            raise UnknownTopicOrPartitionError(f"there is no topic {only} in {', '.join(paths)}")
    elif not internal:
        logs = [log for log in logs if log.topic not in INTERNAL_TOPICS or log.topic in named or log.path in own]
        if not logs:
            there = ", ".join(known)
            raise UnknownTopicOrPartitionError(
                f"there are only Kafka's internal topics in {', '.join(paths)}: {there}; name one to read it"
            )
    if wanted is None:
        return logs
    if isinstance(wanted, dict):
        for topic, numbers in wanted.items():
            if names is None or topic in names:
                _check_partitions(numbers, [log for log in logs if log.topic == topic], f"{topic}-", paths)
        return [log for log in logs if log.partition in wanted.get(log.topic, ())]
    _check_partitions(wanted, logs, "partition ", paths)
    return [log for log in logs if log.partition in wanted]


def matching_topics(name: str, known: Collection[str], *, internal: bool = False) -> list[str]:
    """The topics that a name or a pattern with ``*``, ``?`` or ``[...]`` means, in name order.

    A pattern finds Kafka's internal topics only if it begins with ``__``, or with ``internal``.
    """
    if not addresses.has_pattern(name):
        return [name] if name in known else []
    hidden = frozenset() if internal or name.startswith("__") else INTERNAL_TOPICS
    return [topic for topic in sorted(known) if fnmatchcase(topic, name) and topic not in hidden]


def _listed(path: Path | Sequence[Path]) -> list[str]:
    return [os.fspath(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path)]


def _check_partitions(numbers: Sequence[int], logs: Sequence[PartitionLog], prefix: str, paths: Sequence[str]) -> None:
    known = {log.partition for log in logs}
    for number in sorted(set(numbers) - known):
        there = ", ".join(map(str, sorted(known))) or "none"
        raise UnknownTopicOrPartitionError(
            f"there is no {prefix}{number} in {', '.join(paths)}; there are the partitions {there}"
        )


def named_topics(topics: object) -> list[str] | None:
    """The argument ``topics``, checked."""
    if topics is None:
        return None
    if isinstance(topics, str):
        return [topics]
    if not isinstance(topics, (Sequence, set, frozenset)) or isinstance(topics, (bytes, bytearray)):
        raise TypeError(f"topics: expected a list of names, found {topics!r}")
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"topics: expected names, found {topic!r}")
    return list(topics)


def numbers_of_partitions(partitions: object) -> list[int] | dict[str, list[int]] | None:
    """The argument ``partitions``, checked."""
    if partitions is None:
        return None
    if isinstance(partitions, Mapping):
        for topic in partitions:
            if not isinstance(topic, str):
                raise TypeError(f"partitions: expected {{topic: [int]}}, found the key {topic!r}")
        return {topic: _numbers(numbers) for topic, numbers in partitions.items()}
    return _numbers(partitions)


def _numbers(values: object) -> list[int]:
    if not isinstance(values, (Sequence, set, frozenset, range)) or isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"partitions: expected a list of ints or {{topic: list}}, found {values!r}")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"partitions: expected ints, found {value!r}")
        if value < 0:
            raise ValueError(f"partitions: expected 0 or more, found {value}")
    return list(values)
