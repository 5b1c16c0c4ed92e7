"""Record sets in bulk: what Kafka's own classes read in them and what kts reads, as tables of the same shape."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import kts

Ints = NDArray[np.int64]
# Taken from the record's batch. The attributes and `createTimestamp` are nothing that Kafka tells.
OF_THE_BATCH = ("codec", "producerId", "producerEpoch", "partitionLeaderEpoch", "transactional", "control", "position")
OF_BATCHES_ONLY = ("baseOffset", "lastOffsetDelta", "baseTimestamp", "maxTimestamp")  # null for messages
OURS = ("attributes", "createTimestamp", "codecName", "hasTimestamp")
RECORD_COLUMNS = tuple(name for name in kts.ALL_COLUMNS if name not in OURS)
_NO_ROWS = kts.decode(b"", RECORD_COLUMNS)
_NO_BATCHES = kts.scan_batches(b"")


class Read(NamedTuple):
    """What a reader says of each set: why it refuses (None: it reads), how long it is, and what those read hold."""

    errors: list[str | None]
    valid_bytes: list[int]  # -1: refused
    record_counts: Ints  # a set
    batch_counts: Ints
    records: pa.Table
    batches: pa.Table


# --- kts -----------------------------------------------------------------------------------------------


def read_by_kts(sets: Iterable[bytes]) -> Read:
    """Every set decoded and scanned for itself."""
    errors: list[str | None] = []
    valid: list[int] = []
    records, batches = Rows(_NO_ROWS), Rows(_NO_BATCHES)
    for data in sets:
        rows, scanned, error = _NO_ROWS, _NO_BATCHES, None
        try:
            rows, scanned = kts.decode(data, RECORD_COLUMNS), kts.scan_batches(data)
        except kts.CorruptRecordError as refused:
            error = refused.message + (" in a batch of 0 records" if declares_none(data[refused.position :]) else "")
        errors.append(error)
        records.add(rows)
        batches.add(scanned)
        try:
            valid.append(kts.valid_bytes(data))
        except kts.CorruptRecordError:
            valid.append(-1)
    counts = np.array(records.counts), np.array(batches.counts)
    return Read(errors, valid, *counts, records.table(), batches.table())


def declares_none(entry: bytes) -> bool:
    """Whether this is a batch that says that it has no records."""
    return entry[16:17] == b"\2" and entry[57:61] == bytes(4)


class Rows:
    """Many small batches of rows, copied together now and then: each holds more memory than its rows need."""

    def __init__(self, none: pa.RecordBatch) -> None:
        self.counts: list[int] = []
        self.some = [none]
        self.copied: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self.counts.append(rows.num_rows)
        if rows.num_rows:
            self.some.append(rows)
        if len(self.some) > 200:
            self.copied.append(pa.concat_batches(self.some))
            self.some = self.some[:1]

    def table(self) -> pa.Table:
        return pa.Table.from_batches([*self.copied, *self.some])


# --- Kafka ---------------------------------------------------------------------------------------------


class Dump:
    """The columns that `java/Columns.java` wrote."""

    def __init__(self, raw: bytes) -> None:
        self.columns: dict[str, bytes] = {}
        stream = io.BytesIO(raw)
        while name_size := stream.read(2):
            name = stream.read(int.from_bytes(name_size, "big")).decode()
            (size,) = struct.unpack(">i", stream.read(4))
            self.columns[name] = stream.read(size)

    def numbers(self, name: str) -> Ints:
        return np.frombuffer(self.columns.get(name, b""), ">i8").astype(np.int64)

    def strings(self, name: str, kind: pa.DataType) -> pa.Array:
        sizes = self.numbers(name)
        data = self.columns.get(name + ".data", b"")
        buffers = [bitmap(sizes >= 0), pa.py_buffer(ends(np.maximum(sizes, 0))), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, len(sizes), buffers)


def ends(sizes: Ints) -> NDArray[np.int32]:
    """Offsets of strings or lists of these sizes, as Arrow has them."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def bitmap(valid: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def read_by_kafka(dump: Dump) -> Read:
    """The answer of `java/Interop.java`, in kts's columns and types."""
    batch = {name[6:]: dump.numbers(name) for name in dump.columns if name.startswith("batch.")}
    of_batches = batch["magic"] == 2
    wrapper = ~of_batches & (batch["codec"] != 0)
    scanned = {name: batch[name] for name in _NO_BATCHES.schema.names}
    nulls = {"baseOffset": wrapper, "count": wrapper}
    batches = pa.table([column(scanned[f.name], f, nulls.get(f.name)) for f in _NO_BATCHES.schema], _NO_BATCHES.schema)

    batch["lastOffsetDelta"] = batch["lastOffset"] - batch["baseOffset"]
    counts = batch["records"]
    keyed = {name: dump.numbers(f"record.{name}") for name in ("offset", "timestamp", "timestampType", "magic")}
    keyed["sequence"] = dump.numbers("record.sequence")
    keyed |= {name: np.repeat(batch[name], counts) for name in OF_THE_BATCH + OF_BATCHES_ONLY}
    outside = np.repeat(~of_batches, counts)
    arrays = []
    for f in _NO_ROWS.schema:
        if f.name in ("key", "value"):
            arrays.append(dump.strings(f"record.{f.name}", f.type))
        elif f.name == "headers":
            entries = [dump.strings("header.key", pa.string()), dump.strings("header.value", pa.binary())]
            arrays.append(header_lists(dump.numbers("record.headers"), *entries))
        else:
            arrays.append(column(keyed[f.name], f, outside if f.name in OF_BATCHES_ONLY else None))
    return Read(
        dump.strings("set.error", pa.string()).to_pylist(),
        dump.numbers("set.validBytes").tolist(),
        dump.numbers("set.records"),
        dump.numbers("set.batches"),
        pa.table(arrays, _NO_ROWS.schema),
        batches,
    )


def column(values: Ints, field: pa.Field, null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers as an array of the field's type, which must hold them all."""
    return pa.array(values, pa.int64(), mask=null).cast(field.type)


def header_lists(counts: Ints, keys: pa.Array, values: pa.Array) -> pa.Array:
    """So many headers a row; null where there are none."""
    kind = _NO_ROWS.schema.field("headers").type
    entries = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    buffers = [bitmap(counts > 0), pa.py_buffer(ends(counts))]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[entries])


# --- comparison ----------------------------------------------------------------------------------------


def without(read: Read, left_out: set[int]) -> Read:
    """The same but for the rows of some sets."""
    keep = np.array([i not in left_out for i in range(len(read.errors))])
    return read._replace(
        record_counts=read.record_counts * keep,
        batch_counts=read.batch_counts * keep,
        records=read.records.filter(pa.array(np.repeat(keep, read.record_counts))),
        batches=read.batches.filter(pa.array(np.repeat(keep, read.batch_counts))),
    )


def difference(ours: Read, theirs: Read) -> tuple[int, str] | None:
    """The first set in which batches or records differ, and how; None if nothing does."""
    for name in ("batch", "record"):
        counts, wanted = getattr(ours, f"{name}_counts"), getattr(theirs, f"{name}_counts")
        if (counts != wanted).any():
            at = int(np.flatnonzero(counts != wanted)[0])
            return at, f"{counts[at]} {name} rows, expected {wanted[at]}"
    for counts, got, wanted in (
        (theirs.batch_counts, ours.batches, theirs.batches),
        (theirs.record_counts, ours.records, theirs.records),
    ):
        if not got.equals(wanted):
            return _first(counts, got, wanted)
    return None


def _first(counts: Ints, got: pa.Table, wanted: pa.Table) -> tuple[int, str]:
    for name in got.column_names:
        if got.column(name).equals(wanted.column(name)):
            continue
        pairs = zip(got.column(name), wanted.column(name), strict=True)
        row = next(i for i, (ours, theirs) in enumerate(pairs) if ours != theirs)
        at = int(np.searchsorted(np.cumsum(counts), row, side="right"))
        where = f"{name}, row {row - int(counts[:at].sum())} of the set"
        return at, f"{where}: {_cell(got[name][row])}, expected {_cell(wanted[name][row])}"
    raise AssertionError("the tables differ, but no column does")


def _cell(scalar: pa.Scalar) -> str:
    """For people; not every time is one that Python has."""
    return f"{(scalar.cast(pa.int64()) if pa.types.is_timestamp(scalar.type) else scalar).as_py()!r:.300}"
