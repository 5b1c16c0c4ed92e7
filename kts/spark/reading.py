"""One task on an executor: byte ranges of segments in, batches of exactly Spark's Arrow types out."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kts.dataset.plan import NO_END, Piece, lost_end
from kts.dataset.reader import joined, read_piece
from kts.errors import InvalidTimestampError, KtsError, LogStorageError
from kts.model import TopicPartition
from kts.segment import files
from kts.segment.segment import Segment
from kts.spark.schema import MAX_MS, TimestampOverflow, arrow_schema, check_schema, split, to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kts.spark.options import Options
    from kts.spark.planning import Task


def read_task(task: Task, options: Options, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The batches of one task.

    Raises
    ------
    LogStorageError
        The executor does not see a file that the driver saw, or cannot read it.
    InvalidTimestampError
        A timestamp does not fit Spark's type and ``timestampOverflow`` is ``error``.
    """
    names = check_schema(schema, options)
    yield from joined(_batches(task, names, arrow_schema(schema), options), options.batch_bytes)


def _batches(task: Task, names: tuple[str, ...], target: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    for planned in task.pieces:
        piece = _readable(planned, options)
        if piece is None:
            continue
        batches = (
            _headers(piece) if options.granularity == "batch" else _records(piece, names, task.strict_range, options)
        )
        try:
            for batch in batches:
                for part in split(batch, options.batch_bytes):
                    yield _to_spark(part, target, piece, options)
        except LogStorageError as error:
            raise _seen_from_here(error) from error


def _records(
    piece: Piece, names: tuple[str, ...], strict_range: tuple[int | None, int | None], options: Options
) -> Iterator[pa.RecordBatch]:
    return read_piece(
        piece,
        columns=list(names),
        strict_range=strict_range,
        isolation=options.isolation,
        include_control=options.include_control,
        on_error="raise",
        verify_crc=options.verify_crc,
        batch_bytes=options.batch_bytes,
        max_decompressed_bytes=options.max_decompressed_bytes,
    )


def _headers(piece: Piece) -> Iterator[pa.RecordBatch]:
    """Headers of the batches that overlap the piece's offsets."""
    segment = Segment(piece.path, piece.topic, piece.partition, piece.base_offset)
    end = piece.base_offset
    for batch in segment.batches(piece.start_position, piece.end_position):
        end = batch.column("lastOffset")[-1].as_py() + 1 if len(batch) else end
        # A compressed wrapper does not say its first offset: it counts when its last one does.
        first = pc.coalesce(batch.column("baseOffset"), batch.column("lastOffset"))
        wanted = pc.and_(
            pc.greater_equal(batch.column("lastOffset"), piece.start_offset), pc.less(first, piece.end_offset)
        )
        found = batch.filter(wanted)
        whose = {
            "topic": pa.array([piece.topic] * len(found), pa.string()),
            "partition": pa.array([piece.partition] * len(found), pa.int32()),
            "segment": pa.array([piece.base_offset] * len(found), pa.int64()),
        }
        yield pa.RecordBatch.from_arrays([*whose.values(), *found.columns], names=[*whose, *found.schema.names])
    if end < min(piece.following, piece.end_offset) and (lost := lost_end(piece)) is not None:
        raise lost


def _to_spark(batch: pa.RecordBatch, target: pa.Schema, piece: Piece, options: Options) -> pa.RecordBatch:
    try:
        return to_spark(batch, target, options.timestamp_overflow)
    except TimestampOverflow as error:
        raise InvalidTimestampError(
            f"{error.column} {error.timestamp_ms} ms of {_place(piece, options, error)} does not fit Spark's timestamp "
            f"(64-bit microseconds, {MAX_MS} ms at most): set option timestampOverflow to null or clamp",
            path=piece.path,
        ) from None


def _place(piece: Piece, options: Options, overflow: TimestampOverflow) -> str:
    """Which record has that timestamp; reads the piece again, as the offset may not be among the user's columns."""
    name = TopicPartition(piece.topic, piece.partition)
    if options.granularity == "batch":
        columns, batches = ("lastOffset", "batch that ends at offset"), _headers(piece)
    else:
        columns, batches = ("offset", "offset"), _records(piece, ("offset", overflow.column), (None, None), options)
    for batch in batches:
        row = pc.index(batch.column(overflow.column).cast(pa.int64()), overflow.timestamp_ms).as_py()
        if row >= 0:
            return f"{columns[1]} {batch.column(columns[0])[row].as_py()} in {name}"
    return str(name)


def _readable(piece: Piece, options: Options) -> Piece | None:
    """The piece, as far as its files go; None where they went missing and ``failOnDataLoss=false`` allows to go on."""
    host = socket.gethostname()
    folder = os.path.dirname(piece.path)
    if not files.exists(folder):
        raise LogStorageError(
            f"the executor on {host} does not see {folder}, which the driver saw while planning: put the log directory "
            "where every executor sees it under the same path, such as a shared mount",
            path=piece.path,
        )
    if files.exists(piece.path) and files.size_of(piece.path) >= piece.end_position:
        error = None if options.fail_on_data_loss else lost_end(piece)
        if error is None:
            return piece
        warnings.warn(str(error), stacklevel=2)
        return replace(piece, following=NO_END)
    name = TopicPartition(piece.topic, piece.partition)
    lost = (
        f"offsets {piece.start_offset} to {piece.end_offset} (not included) of {name} went missing between planning "
        f"and reading, as the executor on {host} sees it: the segment was deleted or cut"
    )
    if options.fail_on_data_loss:
        raise LogStorageError(f"{lost}; load() again, or set failOnDataLoss to false", path=piece.path)
    warnings.warn(f"{lost}: {piece.path}", stacklevel=2)
    return replace(piece, following=NO_END) if files.exists(piece.path) else None


def _seen_from_here(error: LogStorageError) -> KtsError:
    return LogStorageError(
        f"{error.message} (on the executor on {socket.gethostname()})",
        path=error.path,
        position=error.position,
        errno=error.errno,
    )
