"""Converts partitions to another message format into new directories: segments, indexes and the small files.

Offsets, base offsets, gaps and file times stay, so that consumers, checkpoints and retention see the same log.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

import numpy as np

from kts.arguments import INT32_MAX
from kts.behaviour import DEFAULT, KAFKA_TIMES, Behaviour, TimeRules, generation_of_format
from kts.codec.columns import decode
from kts.codec.convert import convert
from kts.codec.layout import Entries
from kts.config import LogConfig
from kts.dataset.partition import PartitionLog
from kts.errors import CorruptRecordError, KtsError, LogStorageError, UnsupportedForMessageFormatError
from kts.log.directory import LOCK
from kts.offline.small_files import CHECKPOINTS
from kts.segment import names
from kts.segment.damage import next_sound_entry
from kts.segment.entries import Batches, Slices, at
from kts.segment.locks import FileLock
from kts.segment.rebuild import IndexConfig, rebuild
from kts.segment.rereading import unless_deleted
from kts.segment.segment import Segment
from kts.segment.snapshots import snapshot_bytes
from kts.store import addresses, local, publishing
from kts.store.local import WritableFile
from kts.store.protocol import Readable
from kts.store.source import Source, files

# Files of a log directory that also apply to the converted partitions. The .lock belongs to a process, and what the
# cleaner did since the segments were read is not in the copies.
BESIDE = (
    *(names.META_PROPERTIES, "bootstrap.checkpoint", names.CLEAN_SHUTDOWN),
    *(name for name in CHECKPOINTS if name != names.CLEANER_OFFSETS),
)
PART = ".part"  # ends the name of a directory that is not complete
LAST_READ_BYTES = 2**20

Progress = Callable[[int], None]


class Format(NamedTuple):
    """The target format of a conversion.

    Attributes
    ----------
    magic : int
        0, 1 or 2.
    compression : str or None
        Codec of all batches; None keeps the codec of each batch.
    level : int or None
        Of the codec.
    batch_bytes : int
        Approximate bytes of uncompressed messages that become one batch.
    drop_headers : bool
        Drop record headers where the target format has none, instead of refusing them.
    times : TimeRules
        Which numbers are times, and so are kept and indexed.
    has_timestamp : bool
        Batches with times before 1970 are marked as having timestamps; see ``kts.convert``.
    index_interval_bytes, segment_index_bytes : int
        The topic's settings, for the indexes.
    """

    magic: int
    compression: str | None = None
    level: int | None = None
    batch_bytes: int = 16384
    drop_headers: bool = False
    times: TimeRules = KAFKA_TIMES
    index_interval_bytes: int = LogConfig.index_interval_bytes
    segment_index_bytes: int = LogConfig.segment_index_bytes
    has_timestamp: bool = False


class Converted(NamedTuple):
    """One segment that was converted, with counts of what was read and written.

    Attributes
    ----------
    next_offset : int
        The offset after its last record; its base offset if it has none.
    magics : tuple of int
        Of the entries that were read.
    left_out : int
        Bytes of an incomplete tail, which are not converted.
    """

    topic: str
    partition: int
    path: str
    base_offset: int
    next_offset: int
    magics: tuple[int, ...]
    records: int
    batches: int
    size_bytes: int
    converted_batches: int
    converted_bytes: int
    left_out: int


@contextmanager
def aside(target: str) -> Iterator[str]:
    """A new directory to write into. It is renamed to ``target`` at the end; after an error neither exists.

    Raises
    ------
    FileExistsError
        ``target`` exists and is not an empty directory.
    LogLockedError
        It lies in a log directory that a broker or another program holds.
    """
    target = os.path.realpath(target)
    if files.exists(target) and (not os.path.isdir(target) or files.list_directory(target)):
        raise FileExistsError(f"{target} exists and is not empty")
    directory = f"{target}.{os.getpid()}{PART}"
    lock = os.path.join(os.path.dirname(target), LOCK)
    with FileLock(lock, target) if files.exists(lock) else nullcontext():
        local.remove_tree(directory)
        local.make_directory(directory)
        try:
            yield directory
            for entry in files.list_directory(directory):  # of attempts that ended with their machine
                if entry.name.endswith(PART):
                    local.remove_tree(entry.path)
            publishing.publish_directory(directory, target)
        except BaseException:
            with suppress(LogStorageError):
                local.remove_tree(directory)
            raise


def convert_segments(
    log: PartitionLog, directory: str, to: Format, progress: Progress | None = None
) -> Iterator[Converted]:
    """Convert the segments of a partition, or of a part of one, into a log directory, one at a time, oldest first.

    A segment appears there when it is complete, so that another attempt may have been ended anywhere, or run beside.

    Parameters
    ----------
    log : PartitionLog
        Read only.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.

    Raises
    ------
    CorruptRecordError
        The log is damaged. Only an incomplete or zero tail of the last segment is left out.
    UnsupportedForMessageFormatError
        The target is magic 0 or 1 and the log has control batches, transactions, headers, or a last batch without
        records.
    UnsupportedCompressionTypeError
        A batch has zstd, which magic 0 and 1 do not allow, and no other codec was chosen.

    Notes
    -----
    Memory holds a slice of 4 MiB and its decompressed records.
    """
    segments, target = log.listed(exact=True).segments, target_of(log, directory)
    made = os.path.join(directory, f"{log.topic}-{log.partition}.{secrets.token_hex(4)}{PART}")
    local.make_directory(made)
    local.make_directory(target)
    try:
        for segment in segments:
            with unless_deleted(segment.path, segment.source):
                is_last = segment is segments[-1] and log.following_offset is None
                found = _convert_segment(log, segment, is_last, made, to, progress)
                # The log comes last: a segment is there, or it is not.
                for entry in sorted(files.list_directory(made), key=lambda entry: entry.name.endswith(".log")):
                    local.rename(entry.path, os.path.join(target, entry.name))
                yield found
    finally:
        local.remove_tree(made)


def target_of(log: PartitionLog, directory: str) -> str:
    """The directory of a partition in a log directory; for segment files, that itself."""
    return directory if log.lone else os.path.join(directory, os.path.basename(addresses.absolute(log.path)))


def finish_partition(log: PartitionLog, directory: str, to: Format, made: Sequence[Converted]) -> None:
    """Add the files beside the converted segments of a partition, in the order of the segments."""
    directory = target_of(log, directory)
    local.make_directory(directory)
    if not log.lone:
        kept = [names.PARTITION_METADATA, *[names.LEADER_EPOCHS] * (to.magic == 2)]
        if to.magic == 2:
            found = {entry.name: names.parse_file_name(entry.name) for entry in log.source.list_directory(log.path)}
            kept += [name for name, parts in found.items() if parts and parts.suffix == ".snapshot" and _live(parts)]
        _copy(log.path, log.source, directory, kept)
        has_producers = any(2 in one.magics for one in made) or any(name.endswith(".snapshot") for name in kept)
        if to.magic == 2 and made and not has_producers:  # without snapshots a broker scans the log when it starts
            for offset in sorted({one.base_offset for one in made[1:]} | {made[-1].next_offset} - {0}):
                publishing.write_new(os.path.join(directory, f"{offset:020d}.snapshot"), snapshot_bytes([]))
    local.sync_directory(directory)


def copy_beside(log_dir: str, source: Source, directory: str) -> None:
    """Copy the checkpoints and other small files of a log directory after all its partitions were converted."""
    _copy(log_dir, source, directory, BESIDE)


def _live(name: names.FileName) -> bool:
    return not name.transition and not name.tier_id


def _convert_segment(
    log: PartitionLog, segment: Segment, is_last: bool, directory: str, to: Format, progress: Progress | None
) -> Converted:
    stem = os.path.basename(segment.path).partition(".log")[0]
    name = names.parse_file_name(f"{stem}.log")
    if segment.is_part or (name is not None and name.base_offset != segment.base_offset):  # where segments overlap
        stem = f"{segment.base_offset:020d}"
    stem = os.path.join(directory, stem)
    records = batches = position = 0
    magics: set[int] = set()
    last_offset = segment.base_offset - 1
    # Look up by name first: a writer may delete the segment meanwhile.
    modified_ms, txn_index = segment.modified_ms, segment.txn_index_path
    aborted = None if to.magic < 2 or txn_index is None else segment.source.read_bytes(txn_index)
    with segment.open() as source, WritableFile(f"{stem}.log", new=True) as made:
        size = source.size()
        slices = Slices(source, segment.span.start, size)
        for part in slices:
            data = _converted(part, segment, to)
            if position + len(data) > INT32_MAX:  # positions in an index have 31 bits
                why = f"the converted segment would exceed {INT32_MAX} bytes; choose a codec, or a larger batch_bytes"
                raise KtsError(why, path=segment.path, position=part.start)
            made.write(data, position)
            position += len(data)
            batches += len(part)
            records += _records(part, data)
            last_offset = part.last_offset
            if segment.span.until is not None and last_offset >= segment.span.until:
                why = f"offset {last_offset} reaches into the next segment, which starts at {segment.span.until}"
                raise CorruptRecordError(why, path=segment.path, position=part.start, offset=last_offset)
            magics |= set(np.unique(part.column("magic")).tolist())
            if progress is not None:
                progress(len(part.records()))
        _check_tail(slices, source, segment, is_last, last_offset + 1)
        config = IndexConfig(
            to.index_interval_bytes,
            to.segment_index_bytes,
            Behaviour.of(generation_of_format(to.magic), times=to.times),
        )
        rebuilt = rebuild(made, position, segment.base_offset, config, f"{stem}.log")
        if rebuilt.reason is not None:
            raise CorruptRecordError(f"offsets are not those of a segment: {rebuilt.reason}", path=segment.path)
        if is_last and batches and rebuilt.next_offset <= last_offset:
            why = f"the last batch has no records, and magic {to.magic} no place for its offset {last_offset}"
            raise UnsupportedForMessageFormatError(why, path=segment.path, offset=last_offset)
        made.sync()
    publishing.write_new(f"{stem}.index", rebuilt.offset_index)
    publishing.write_new(f"{stem}.timeindex", rebuilt.time_index)
    if aborted is not None:
        publishing.write_new(f"{stem}.txnindex", aborted)
    local.set_modified_ms(f"{stem}.log", modified_ms)  # for retention of segments without timestamps
    left_out = size - slices.position
    facts = (records, batches, size - segment.span.start, rebuilt.batches, position, left_out)
    return Converted(
        log.topic,
        log.partition,
        segment.path,
        segment.base_offset,
        rebuilt.next_offset,
        tuple(sorted(magics)),
        *facts,
    )


def _converted(part: Batches, segment: Segment, to: Format) -> bytes:
    """Convert a slice of whole entries."""
    try:
        if not part.all_sound:  # entries that are only copied are checked too
            unsound = int(part.column("crc_ok").argmin())
            raise CorruptRecordError("CRC is wrong", position=int(part.column("position")[unsound]) - part.start)
        return convert(
            part.records(),
            to.magic,
            generation=DEFAULT.release,
            compression=to.compression,
            level=to.level,
            batch_bytes=to.batch_bytes,
            lossless=True,
            drop_headers=to.drop_headers,
            allow_negative_timestamps=to.times.before_1970,
            has_timestamp=to.has_timestamp,
            minus_one_is_a_time=to.times.minus_one,
        )
    except CorruptRecordError as error:
        raise at(error, segment.path, part.start) from error.__cause__
    except KtsError as error:
        error.path = segment.path
        error.position = None if error.position is None else error.position + part.start
        raise


def _records(part: Batches, made: bytes) -> int:
    """Count the records of a slice from the headers, before or after conversion; else by decoding."""
    if not part.wrappers.any():
        return int(part.column("count").sum())
    converted = Batches(Entries(made), memoryview(made), 0)
    return len(decode(made, ["offset"])) if converted.wrappers.any() else int(converted.column("count").sum())


def _check_tail(slices: Slices, source: Readable, segment: Segment, is_last: bool, next_offset: int) -> None:
    """Raise unless the bytes after the last whole entry are what a crash leaves at the end of the last segment."""
    why = tail_fault(slices, source, segment, next_offset)
    if slices.position < slices.end and not is_last:
        why = why or slices.reason or "bytes after the last entry"
    if why is not None:
        raise CorruptRecordError(why, path=segment.path, position=slices.position)


def tail_fault(slices: Slices, source: Readable, segment: Segment, next_offset: int) -> str | None:
    """What is wrong after the last whole entry; None if there is nothing, or what a crash leaves: part of an entry, or
    zeros."""
    if slices.position >= slices.end:
        return None
    tail = source.read(slices.position, min(slices.end - slices.position, LAST_READ_BYTES))
    why = slices.reason or "bytes after the last entry"
    try:
        if any(tail) and len(Entries(tail)):
            return why
    except CorruptRecordError:
        return why
    more = next_sound_entry(segment, slices.position, slices.end, next_offset)
    return None if more is None else f"{why}, but sound entries follow at position {more}"


def _copy(directory: str, source: Source, target: str, wanted: Sequence[str]) -> None:
    for name in wanted:
        path = os.path.join(directory, name)
        if source.exists(path) and not source.directory_exists(path):
            copy = os.path.join(target, name)
            publishing.write_new(copy, source.read_bytes(path))
            local.set_modified_ms(copy, source.modified_ms(path))
